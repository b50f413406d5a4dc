"""Two operators on a Kafka without ZooKeeper, one of which stands still in the middle of a batch until
the other one has taken over, and then goes on: it changes nothing any more.

Meanwhile the members of its batch are removed, so that what it would write looks as if it had never
been written, or get other rates. `KRAFT_STOPS=<number>` plays fewer or more; `make kraft-stops
STOPS=50` shows each of them.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.contract.quota_store_contract import PRODUCE
from tests.integration.connections import connection_of
from tests.integration.operator.installation import LEASE_NAMESPACE
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.errors import TidegateError
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import describe
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity

pytestmark = [pytest.mark.integration, pytest.mark.kraft]

STOPS = int(os.environ.get("KRAFT_STOPS") or "2")
POLICY = "orders"
MB = 1_000_000
_MEMBERS = 500
_STEADY_RATE = 5 * MB
_LONGEST_DELAY_SECONDS = 0.06  # from the first intent in the topic; a batch takes twice that
_PATIENCE_SECONDS = 120
_PASSES = "tidegate_passes_total"

T = TypeVar("T")


@dataclass
class Quotas:
    """The produce quotas of these users, looked at all the time, and every value each has had."""

    connection: KafkaConnection
    users: frozenset[str]
    seen: set[frozenset[tuple[str, str]]] = field(default_factory=set)
    looks: int = 0

    def __post_init__(self) -> None:
        self._client = AdminClient(self.connection)

    def now(self) -> dict[str, str]:
        every = describe(self._client, None, "unused")
        return {
            str(entity.user): values[PRODUCE]
            for entity, values in every.items()
            if entity.user in self.users and PRODUCE in values
        }

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note each different state of them meanwhile in `seen`."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.02):
                with suppress(TidegateError):
                    self.seen.add(frozenset(self.now().items()))
                    self.looks += 1

        thread = threading.Thread(target=watch, name="quotas", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        self._client.close()


@dataclass
class World:
    """The policy, its tiers and its two operators."""

    api: KubeApi
    kafka: KraftLab
    namespace: str
    ledger: str
    operators: tuple[OperatorProcess, OperatorProcess]

    @property
    def connection(self) -> KafkaConnection:
        return connection_of(self.kafka.bootstrap_servers)

    def apply(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        document = {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": metadata}
        self.api.kubectl("apply", "-f", "-", input=json.dumps({**document, "spec": spec}))

    def apply_tier(self, name: str, users: frozenset[str], rate: int) -> None:
        contract = {"perBroker": {"produce": str(rate)}}
        members = [
            {"name": one, "user": one, "topics": [self.namespace], "contract": contract}
            for one in sorted(users)
        ]
        spec = {"policyRef": {"name": POLICY}, "level": "L0", "members": members}
        self.apply("BusinessTier", name, spec)

    def delete_tier(self, name: str) -> None:
        self.api.kubectl("delete", "bt", name, "-n", self.namespace, "--wait=false")

    def holder(self) -> OperatorProcess | None:
        name = f"tidegate.{self.namespace}.{POLICY}"
        answer = self.api.kubectl("get", "lease", name, "-n", LEASE_NAMESPACE, "-o", "json")
        identity = json.loads(answer)["spec"].get("holderIdentity")
        return next((one for one in self.operators if one.identity == identity), None)

    def stop_at_intents(self, holder: OperatorProcess, delay_seconds: float) -> threading.Thread:
        """Stop it as soon as intents of a new batch are in the topic; the thread ends then."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 1,
            }
        )
        _, end = consumer.get_watermark_offsets(
            TopicPartition(self.ledger, 0), timeout=_PATIENCE_SECONDS
        )
        consumer.assign([TopicPartition(self.ledger, 0, end)])
        consumer.poll(0.5)  # it is connected from now on

        def watch() -> None:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and b'"intent"' in (message.value() or b""):
                    time.sleep(delay_seconds)
                    holder.stop()
                    break
            consumer.close()

        thread = threading.Thread(target=watch, name="intents", daemon=True)
        thread.start()
        return thread

    def strays(self) -> list[str]:
        """Quotas without a record that says whose they are."""
        with closing(AdminQuotaStore(self.connection, self.ledger)) as store:
            every = store.read_everything()
        return [
            str(entity)
            for entity, one in every.items()
            if str(entity.user).startswith(self.namespace) and one.values and one.ledger is None
        ]


@pytest.fixture
def world(crds: KubeApi, kraft: KraftLab, unique_name: str, tmp_path: Path) -> Iterator[World]:
    kraft.create_topic(unique_name, [[1]])
    crds.kubectl("create", "namespace", unique_name)
    with (
        OperatorProcess(crds, unique_name, tmp_path, name="one") as one,
        OperatorProcess(crds, unique_name, tmp_path, name="two") as two,
    ):
        yield World(crds, kraft, unique_name, f"__ledger-{unique_name}", (one, two))


def one_stop(
    world: World, number: int, delay_seconds: float, *, removed: bool
) -> frozenset[frozenset[tuple[str, str]]] | None:
    """The holder stops at its intents; what it was about to write is changed, and it goes on.

    Returns the states of these quotas from then on that are not what is declared. None = the Lease
    had moved by itself before, as it does on a busy machine, so that another process was stopped
    than the one that wrote.
    """
    users = frozenset(f"{world.namespace}-{number}-{member}" for member in range(_MEMBERS))
    tier, stale = f"tier-{number}", 7 * MB
    right = {} if removed else dict.fromkeys(users, "8000000")
    with closing(Quotas(world.connection, users)) as quotas:
        if not removed:
            world.apply_tier(tier, users, 6 * MB)
            old = dict.fromkeys(users, "6000000")
            until(lambda: quotas.now() == old, "the rates of before")
        holder = until(world.holder, "a holder")
        assert holder is not None
        (other,) = (one for one in world.operators if one is not holder)
        stopping = world.stop_at_intents(holder, delay_seconds)
        passes = holder.metrics().get(_PASSES, 0.0)
        world.apply_tier(tier, users, stale)
        stopping.join()
        assert holder.is_stopped, "no intents were seen"
        was_the_writer = world.holder() is holder
        made = sum(rate == str(stale) for rate in quotas.now().values())
        if removed:
            world.delete_tier(tier)
        else:
            world.apply_tier(tier, users, 8 * MB)
        until(lambda: world.holder() is other, "the take-over")
        taken = other.metrics().get(_PASSES, 0.0)
        until(
            lambda: quotas.now() == right and other.metrics().get(_PASSES, 0.0) > taken,
            "what is declared by now",
        )
        lost = lease_losses(holder)
        with quotas.watched():
            holder.go_on()
            if was_the_writer:
                until(
                    lambda: lease_losses(holder) > lost and holder.metrics()[_PASSES] > passes,
                    "the end of the pass that stood still",
                )
            looks = quotas.looks
            until(lambda: quotas.looks >= looks + 25, "a look at quotas")
        # the ledger is read before the quotas are, so one that is made just now looks like a stray
        until(lambda: not world.strays(), "a record of every quota")
        until(lambda: quotas.now() == right, "what is declared by now")
        print(
            f"{number}: stopped {delay_seconds:.3f} s after the intents, {made} of {_MEMBERS} made"
        )
        return frozenset(quotas.seen - {frozenset(right.items())}) if was_the_writer else None


def lease_losses(operator: OperatorProcess) -> int:
    """How often it has found its Lease to be lost."""
    return sum(line["event"] == "Lease lost" for line in operator.lines())


def until(condition: Callable[[], T], what: str) -> T:
    """Wait for it on the slowest machine; what is measured here is never a time."""
    return wait_until(condition, what, timeout_seconds=_PATIENCE_SECONDS)


@pytest.mark.timeout(300 + 120 * STOPS)
def test_a_batch_that_stood_still_until_another_replica_took_over_writes_nothing(
    world: World,
) -> None:
    seed = int(os.environ.get("KRAFT_STOPS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"KRAFT_STOPS={STOPS} KRAFT_STOPS_SEED={seed}")
    dice = random.Random(seed)
    kafka = {"bootstrapServers": world.kafka.bootstrap_servers, "ledgerTopic": world.ledger}
    spec = {
        "mode": "Enforce",
        "kafka": {**kafka, "quotaWindow": {"samples": 2}},
        "writeBudget": {"changes": 100_000},
        "removal": {"maxPercent": 100},
    }
    world.apply("BrokerBandwidthPolicy", POLICY, spec)
    with closing(Quotas(world.connection, frozenset({f"{world.namespace}-steady"}))) as steady:
        world.apply_tier("steady", steady.users, _STEADY_RATE)
        until(steady.now, "the first quota")
        stale = dict[int, frozenset[frozenset[tuple[str, str]]]]()
        for number in range(2 * STOPS):
            if len(stale) == STOPS:
                break
            delay_seconds = dice.uniform(0.0, _LONGEST_DELAY_SECONDS)
            seen = one_stop(world, number, delay_seconds, removed=number % 3 != 1)
            if seen is not None:
                stale[number] = seen
        assert len(stale) == STOPS, "the Lease kept moving by itself; this machine is too busy"
        wrong = {number: sorted(map(len, seen)) for number, seen in stale.items() if seen}
        assert not wrong, f"stale batches: trial -> quotas in each wrong state: {wrong}"
        assert set(steady.now().values()) == {str(_STEADY_RATE)}
        world.api.kubectl(
            *("delete", "bbp", POLICY, "-n", world.namespace, "--timeout=240s"),
            timeout_seconds=250,
        )
        until(lambda: not steady.now(), "the end of every quota")
    with closing(AdminQuotaStore(world.connection, world.ledger)) as store:
        assert (store.facts().claim, store.ledger_entities()) == (None, frozenset())
        assert [
            one
            for one in store.read_everything()
            if isinstance(one, Entity) and str(one.user).startswith(world.namespace)
        ] == []
