"""Two replicas as processes: one writes, the other takes over when the first is killed or told to stop; both answer their probes.

The life of the replicas is played once and written down; each test reads one rule off it.
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
from lab.process import wait_until
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import MEMBERS_PER_TIER, TIERS, Estate, lay_out, one_leader_on_each_broker
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MEMBERS = TIERS * MEMBERS_PER_TIER
FIRST_RATE, AFTER_TAKEOVER, AT_THE_END = 1_000_000, 1_100_000, 1_200_000
WRITES = "tidegate_quota_writes_total"


@dataclass
class Life:
    """What was seen. A takeover lasts from the signal to the Lease in the name of another."""

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
def estate(kafka: KafkaLab, api_client: ApiClient, zookeeper: ZooKeeperLab) -> Iterator[Estate]:
    """Fifty members on a tree of their own; leaders come from the real brokers."""
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
    estate = Estate(api_client, name, client, f"{zookeeper.connect}/{name}", kafka.bootstrap_servers, name, users)
    yield estate
    estate.abandon()
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def life(crds: KubeApi, estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    directory = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:

        def start(name: str) -> OperatorProcess:
            return stack.enter_context(OperatorProcess(crds, estate.namespace, directory, name=name))

        yield _live(estate, first=start("first"), second=start("second"), start=start)


def _live(estate: Estate, *, first: OperatorProcess, second: OperatorProcess, start: Any) -> Life:
    estate.install(FIRST_RATE)
    estate.settle(FIRST_RATE)
    holder, other = (first, second) if estate.lease_holder() == first.identity else (second, first)
    writes = [replica.metrics().get(WRITES, 0.0) for replica in (holder, other)]
    liveness = [replica.liveness() for replica in (holder, other)]
    before = estate.versions()

    holder.kill()
    killed_at = time.monotonic()
    third = start("third")
    takeover_after_kill_seconds = _taken_over(estate, other, since=killed_at)
    other.wait_for_a_pass()
    after = estate.versions()
    estate.promise(AFTER_TAKEOVER)
    estate.settle(AFTER_TAKEOVER)
    writes_of_the_successor = other.metrics()[WRITES]
    exposed = other.exposed_names()

    third.wait_for("Operator started")
    estate.promise(AT_THE_END)
    wait_until(lambda: estate.has_any(AT_THE_END), "the middle of a pass", timeout_seconds=30, poll_seconds=0.002)
    other.terminate()
    reported_at = time.monotonic()
    exit_code = other.exit_code(timeout_seconds=60)
    exit_seconds = time.monotonic() - reported_at
    takeover_after_term_seconds = _taken_over(estate, third, since=reported_at)
    estate.settle(AT_THE_END)
    return Life(
        *writes, liveness, exposed, takeover_after_kill_seconds, before, after, writes_of_the_successor, exit_code, exit_seconds,
        takeover_after_term_seconds,
    )  # fmt: skip


def _taken_over(estate: Estate, successor: OperatorProcess, *, since: float) -> float:
    wait_until(lambda: estate.lease_holder() == successor.identity, "another to hold the Lease", timeout_seconds=60)
    return time.monotonic() - since


def test_one_replica_writes_and_the_other_writes_nothing(life: Life) -> None:
    assert (life.writes_of_the_holder, life.writes_of_the_other) == (MEMBERS, 0)


def test_a_replica_that_waits_is_as_alive_as_one_that_writes(life: Life) -> None:
    assert life.liveness == [200, 200]


def test_a_killed_holder_is_replaced_within_15_seconds(life: Life) -> None:
    assert life.takeover_after_kill_seconds <= 15


def test_whoever_takes_over_changes_nothing_that_stands(life: Life) -> None:
    assert life.after_takeover == life.before_takeover


def test_whoever_took_over_writes_what_changes_from_then_on(life: Life) -> None:
    assert life.writes_of_the_successor == MEMBERS


def test_told_to_stop_in_the_middle_of_a_pass_it_ends_with_code_0_within_seconds(life: Life) -> None:
    assert (life.exit_code, life.exit_seconds < 10) == (0, True)


def test_a_holder_that_is_told_to_stop_hands_over_at_once(life: Life) -> None:
    assert life.takeover_after_term_seconds - life.exit_seconds < 4


def test_the_documented_metrics_are_served(life: Life) -> None:
    page = Path("docs/metrics.md").read_text(encoding="utf-8")
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert documented
    assert documented <= life.exposed
