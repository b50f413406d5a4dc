"""Two replicas as processes: one writes, the other takes over when the first is killed or gets
SIGTERM. Both answer their probes.

The replicas run once and their history is recorded. Each test checks one rule on that record.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import patience, wait_until
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import (
    MEMBERS_PER_TIER,
    TIERS,
    Installation,
    lay_out,
    one_leader_on_each_broker,
)
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

MEMBERS = TIERS * MEMBERS_PER_TIER
FIRST_RATE, AFTER_TAKEOVER, AT_THE_END = 1_000_000, 1_100_000, 1_200_000
WRITES = "tidegate_quota_writes_total"


@dataclass
class History:
    """What the replicas did. A takeover lasts from the signal until another replica holds the
    Lease.
    """

    writes_of_the_holder: float
    writes_of_the_other: float
    liveness: list[int]
    exposed: frozenset[str]
    takeover_after_kill_seconds: float
    before_takeover: dict[str, Any]
    after_takeover: dict[str, Any]
    writes_of_the_successor: float
    exit_code: int
    exit_seconds: float
    takeover_after_term_seconds: float


@pytest.fixture(scope="module")
def installation(
    kafka: KafkaLab, api_client: ApiClient, zookeeper: ZooKeeperLab
) -> Iterator[Installation]:
    """Fifty members on a ZooKeeper tree of their own. Leaders come from the real brokers."""
    name = f"replicas-{uuid.uuid4().hex[:8]}"
    one_leader_on_each_broker(kafka, name)
    root = KazooClient(zookeeper.connect)
    root.start()
    root.create(f"/{name}")
    root.stop()
    root.close()
    client = KazooClient(f"{zookeeper.connect}/{name}")
    client.start()
    lay_out(client, kafka.cluster_id)
    users = tuple(f"{name}-{number:02}" for number in range(MEMBERS))
    installation = Installation(
        api_client,
        name,
        client,
        f"{zookeeper.connect}/{name}",
        kafka.bootstrap_servers,
        name,
        users,
    )
    yield installation
    installation.abandon()
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def history(
    crds: KubeApi, installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    directory = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:

        def start(name: str) -> OperatorProcess:
            return stack.enter_context(
                OperatorProcess(crds, installation.namespace, directory, name=name)
            )

        yield _run(installation, first=start("first"), second=start("second"), start=start)


def _run(
    installation: Installation, *, first: OperatorProcess, second: OperatorProcess, start: Any
) -> History:
    installation.install(FIRST_RATE)
    installation.settle(FIRST_RATE)
    holder, other = (
        (first, second) if installation.lease_holder() == first.identity else (second, first)
    )
    writes = [replica.metrics().get(WRITES, 0.0) for replica in (holder, other)]
    liveness = [replica.liveness() for replica in (holder, other)]
    before = installation.versions()

    holder.kill()
    killed_at = time.monotonic()
    third = start("third")
    takeover_after_kill_seconds = _taken_over(installation, other, since=killed_at)
    other.wait_for_a_pass()
    after = installation.versions()
    installation.change_contracts(AFTER_TAKEOVER)
    installation.settle(AFTER_TAKEOVER)
    writes_of_the_successor = other.metrics()[WRITES]
    exposed = other.exposed_names()

    # The dead one's ordinal lapses after some time; until then its successor leaves what is free to
    # those that it still counts as alive.
    third.wait_for("Replica has an ordinal")
    wait_until(
        lambda: third.metrics().get("tidegate_replicas_alive") == 2,
        "two replicas to be known",
        timeout_seconds=60,
    )
    installation.change_contracts(AT_THE_END)
    wait_until(
        lambda: installation.has_any(AT_THE_END),
        "the middle of a pass",
        timeout_seconds=30,
        poll_seconds=0.002,
    )
    other.terminate()
    signalled_at = time.monotonic()
    exit_code = other.exit_code(timeout_seconds=60)
    exit_seconds = time.monotonic() - signalled_at
    takeover_after_term_seconds = _taken_over(installation, third, since=signalled_at)
    installation.settle(AT_THE_END)
    return History(
        *writes, liveness, exposed, takeover_after_kill_seconds, before, after, writes_of_the_successor, exit_code, exit_seconds,
        takeover_after_term_seconds,
    )  # fmt: skip


def _taken_over(installation: Installation, successor: OperatorProcess, *, since: float) -> float:
    wait_until(
        lambda: installation.lease_holder() == successor.identity,
        "another to hold the Lease",
        timeout_seconds=60,
    )
    return time.monotonic() - since


def test_one_replica_writes_and_the_other_writes_nothing(history: History) -> None:
    assert (history.writes_of_the_holder, history.writes_of_the_other) == (MEMBERS, 0)


def test_a_waiting_replica_is_as_live_as_the_one_that_writes(history: History) -> None:
    assert history.liveness == [200, 200]


def test_a_killed_holder_is_replaced_within_15_seconds(history: History) -> None:
    assert history.takeover_after_kill_seconds <= patience(15)


def test_a_takeover_changes_nothing_that_is_in_force(history: History) -> None:
    # the claim alone names the successor, and refuses from then on what the one before had decided
    changed = history.after_takeover.items() ^ history.before_takeover.items()
    znodes = {key for key, _ in changed if key.startswith("/")}
    assert znodes == {"/tidegate/claim"}
    # and the policy's status remembers the claim's new epoch; no tier was written
    assert len({key for key, _ in changed} - znodes) <= 1


def test_the_successor_writes_later_changes(history: History) -> None:
    assert history.writes_of_the_successor == MEMBERS


def test_sigterm_in_the_middle_of_a_pass_ends_the_holder_with_code_0_within_seconds(
    history: History,
) -> None:
    assert (history.exit_code, history.exit_seconds < patience(10)) == (0, True)


def test_a_holder_that_gets_sigterm_hands_over_at_once(history: History) -> None:
    assert history.takeover_after_term_seconds - history.exit_seconds < patience(4)


def test_the_documented_metrics_are_served(history: History) -> None:
    page = Path("docs/metrics.md").read_text(encoding="utf-8")
    page = page.partition("## Metrics of forwarders")[0]
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert documented
    assert documented <= history.exposed
