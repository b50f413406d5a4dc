"""Tiers that are replaced, renamed or lose a member to another, and a policy that is made again,
while real clients produce and fetch flat out on a real broker.

No client may be throttled for longer than two mutes, and none may send more than its contract while
a tier is gone. A silence is the longest run of whole seconds in which a client moved nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.load import LoadClient, LoadPlan
from lab.process import wait_until
from lab.prometheus import monitoring
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld
from tests.integration.operator.operator_process import OperatorProcess
from tidegate_logic.model import Entity, QuotaKey

pytestmark = [pytest.mark.integration, pytest.mark.kraft]

MB = 1_000_000
CONTRACT = 2 * MB
LONGEST_SILENCE_SECONDS = 22
MOST_OF_CONTRACT = 1.2
SETTLING_SECONDS = 15  # longer than a quota's window
JAVA_LIKE = (("socket.timeout.ms", "120000"), ("message.timeout.ms", "300000"))


@dataclass
class Stage:
    """A broker, a Kubernetes API with a policy, and two clients of each member, which never end."""

    crds: KubeApi
    kafka: KraftLab
    namespace: str
    directory: Path
    world: AdminWorld
    operators: ExitStack
    clients: dict[str, list[LoadClient]] = field(default_factory=dict)
    running: list[OperatorProcess] = field(default_factory=list)

    def apply(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.crds.kubectl("apply", "-n", self.namespace, "-f", "-", input=json.dumps(document))

    def delete(self, kind: str, name: str) -> None:
        self.crds.kubectl("delete", kind, name, "-n", self.namespace, "--timeout=60s")

    def start_operator(self) -> None:
        name = f"operator-{len(self.running)}"
        process = OperatorProcess(self.crds, self.namespace, self.directory, name=name)
        self.running.append(self.operators.enter_context(process))

    def quota(self, member: str) -> dict[QuotaKey, str]:
        return dict(self.world.quotas(self.entity(member)))

    def entity(self, member: str) -> Entity:
        return Entity(None, f"{self.namespace}-{member}")

    def has_contracts(self, *members: str, timeout_seconds: float = 120) -> None:
        wanted = {
            QuotaKey.PRODUCER_BYTE_RATE: str(CONTRACT),
            QuotaKey.CONSUMER_BYTE_RATE: str(CONTRACT),
        }
        for member in members:
            wait_until(
                lambda member=member: self.quota(member) == wanted,
                f"the contract of {member}",
                timeout_seconds=timeout_seconds,
                poll_seconds=0.2,
            )

    def moved(self, member: str, since: float, until: float) -> list[list[int]]:
        """For each of the member's clients, the bytes of every whole second in between."""
        seconds = range(int(since) + 1, int(until))
        found = []
        for client in self.clients[member]:
            rows = {row.unix_seconds: row.moved_bytes for row in client.rows()}
            found.append([rows.get(second, 0) for second in seconds])
        return found

    def for_seconds(self, seconds: float) -> None:
        until = time.time() + seconds
        wait_until(lambda: time.time() >= until, "time to go by", timeout_seconds=seconds + 30)


def silence(seconds: list[int]) -> int:
    longest = here = 0
    for moved in seconds:
        here = 0 if moved else here + 1
        longest = max(longest, here)
    return longest


def member(stage: Stage, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "clientId": stage.entity(name).client_id,
        "topics": [f"{stage.namespace}-{name}"],
        "contract": {"perBroker": {"produce": "2M", "fetch": "2M"}},
    }


def tier(stage: Stage, name: str, *members: str) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": name},
        "spec": {
            "policyRef": {"name": "orders"},
            "level": "L0",
            "members": [member(stage, one) for one in members],
        },
    }


def policy(stage: Stage, **spec: Any) -> dict[str, Any]:
    kafka = {
        "bootstrapServers": stage.kafka.bootstrap_servers,
        "ledgerTopic": f"__{stage.namespace}",
    }
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders"},
        "spec": {"mode": "Enforce", "kafka": kafka, **spec},
    }


def start_clients(stage: Stage, *members: str) -> None:
    for name in members:
        topic = f"{stage.namespace}-{name}"
        stage.clients[name] = []
        for mode in ("produce", "consume"):
            plan = LoadPlan(
                f"{topic}-{mode}",
                mode,  # type: ignore[arg-type]
                stage.kafka.bootstrap_servers,
                topic=topic,
                partitions=(0,),
                duration_seconds=500,
                max_bytes=20_000_000_000,
                client_id=str(stage.entity(name).client_id),
                settings=JAVA_LIKE if mode == "produce" else JAVA_LIKE[:1],
            )
            client = LoadClient(plan, stage.directory / "load")
            stage.clients[name].append(stage.operators.enter_context(client))


@pytest.fixture
def stage(crds: KubeApi, kraft: KraftLab, unique_name: str, tmp_path: Path) -> Iterator[Stage]:
    crds.kubectl("create", "namespace", unique_name)
    settings = connection_of(kraft.bootstrap_servers)
    world = AdminWorld(settings, f"__{unique_name}", kraft.cluster_id)
    with ExitStack() as operators:
        made = Stage(crds, kraft, unique_name, tmp_path, world, operators)
        for name in ("a", "b", "c"):
            kraft.create_topic(
                f"{unique_name}-{name}",
                assignment=[[1]],
                config={"retention.bytes": "50000000", "segment.bytes": "20000000"},
            )
        yield made
        made.crds.kubectl("delete", "bt", "--all", "-n", unique_name)
        made.crds.kubectl("delete", "bbp", "--all", "-n", unique_name, "--timeout=90s")
    world.close()


def same_process(stage: Stage) -> None:
    pass


def new_process(stage: Stage) -> None:
    """The operator dies in the middle, and another one takes over."""
    stage.running[-1].kill()
    stage.start_operator()


HANDS: list[Callable[[Stage], None]] = [same_process, new_process]


# A silence of two mutes, and a few seconds more, are seen in the shortest; `make test-long` looks on.
@pytest.mark.parametrize(
    ("hands", "seconds_after"),
    [
        (new_process, LONGEST_SILENCE_SECONDS + 3),
        pytest.param(same_process, 60, marks=pytest.mark.long),
        pytest.param(new_process, 60, marks=pytest.mark.long),
    ],
)
def test_tiers_that_are_replaced_renamed_or_merged_are_not_felt(
    stage: Stage, hands: Callable[[Stage], None], seconds_after: float
) -> None:
    """Tier a is deleted and made again, b comes back by another name, and c's member in tier a."""
    stage.apply(policy(stage, removal={"maxPercent": 100}))
    stage.apply(*(tier(stage, name, name) for name in ("a", "b", "c")))
    stage.start_operator()
    stage.has_contracts("a", "b", "c")
    start_clients(stage, "a", "b", "c")
    stage.for_seconds(SETTLING_SECONDS)
    began = time.time()
    for name in ("a", "b", "c"):
        stage.delete("bt", name)
    hands(stage)
    stage.for_seconds(5)
    stage.apply(tier(stage, "a", "a", "c"), tier(stage, "renamed", "b"))
    stage.for_seconds(seconds_after)
    ended = time.time()
    stage.has_contracts("a", "b", "c", timeout_seconds=1)
    for name in ("a", "b", "c"):
        for way, seconds in zip(("produce", "fetch"), stage.moved(name, began, ended), strict=True):
            share = sum(seconds) / len(seconds) / CONTRACT
            print(f"{name} {way}: longest silence {silence(seconds)} s, {share:.2f} x contract")
            assert silence(seconds) <= LONGEST_SILENCE_SECONDS
            assert share <= MOST_OF_CONTRACT


@pytest.mark.long
@pytest.mark.parametrize("hands", HANDS)
def test_a_policy_that_is_made_again_steps_down_from_what_its_clients_send(
    stage: Stage, hands: Callable[[Stage], None]
) -> None:
    """The broker's own rates of clients come from its JMX exporter and a real Prometheus.

    Somebody else's quota makes it measure clients while there is none of ours: Kafka 4.3 measures
    none, and throttles none for the past, when the last quota has gone.
    """
    stranger = Entity(None, f"{stage.namespace}-stranger")
    stage.world.put(
        stranger,
        dict.fromkeys((QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE), "9000000"),
    )
    with monitoring(stage.kafka, scrape_interval_seconds=5) as prometheus:
        metrics = {"prometheus": {"url": prometheus.url}, "scrapeIntervalSeconds": 5}
        made = policy(stage, metrics=metrics)
        stage.apply(made, tier(stage, "a", "a"))
        stage.start_operator()
        stage.has_contracts("a")
        start_clients(stage, "a")
        stage.for_seconds(SETTLING_SECONDS)
        stage.delete("bbp", "orders")
        assert stage.quota("a") == {}
        hands(stage)
        stage.for_seconds(20)
        began = time.time()
        stage.apply(made)
        wait_until(lambda: stage.quota("a"), "the first quota", timeout_seconds=60)
        first = stage.quota("a")
        print(f"first quota {first}")
        assert int(first[QuotaKey.PRODUCER_BYTE_RATE]) > 5 * CONTRACT
        stage.has_contracts("a", timeout_seconds=400)
        stage.for_seconds(30)
        ended = time.time()
        for way, seconds in zip(("produce", "fetch"), stage.moved("a", began, ended), strict=True):
            print(
                f"{way}: longest silence {silence(seconds)} s, at first "
                f"{max(seconds[:5]) / MB:.0f} MB/s, in the end {sum(seconds[-20:]) / 20 / MB:.1f}"
            )
            assert silence(seconds) <= LONGEST_SILENCE_SECONDS
