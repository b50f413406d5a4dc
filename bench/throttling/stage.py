"""Where measured episodes are played: one real broker with a card of its own, Prometheus, the Kubernetes API, and the operator."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from kubernetes.client import ApiException

from bench.control.world import GROUP, NAMESPACE, POLICY, TOPIC, VERSION, World, policy, world
from demo.witnesses import quota_of_znode
from lab.errors import LabError
from lab.java import properties, start_java
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.packages import kafka_jars
from lab.process import Process
from lab.prometheus import PrometheusLab, monitoring
from lab.rates import ByteSeries, Sample, growth

# Who plays in a measured episode, what each wants and is promised, and the card's limit. Nothing
# here starts or measures anything.
#
# Half the rates of the demo's experiment 2 for consumers and a quarter for producers, so that two
# processor cores carry nineteen of them:
# a producer costs a core about twice what a consumer costs. Rates are bytes per second on the one
# broker.


MB = 1_000_000
HIGH_LIMIT = 1000 * MB
CAPACITY = 1250 * MB


class Operation(Enum):
    """What the clients do, and therefore which direction of the card they fill."""

    CONSUME = "consume"
    PRODUCE = "produce"

    @property
    def limit(self) -> int:
        """The card's limit in an episode; every other rate is a part of it or a multiple."""
        return 25 * MB if self is Operation.CONSUME else 25 * MB // 2

    @property
    def limit_field(self) -> str:
        """The policy's field that holds the limit of that direction."""
        return "egressLimit" if self is Operation.CONSUME else "ingressLimit"

    @property
    def znode_key(self) -> str:
        """The quota as Kafka names it."""
        return "consumer_byte_rate" if self is Operation.CONSUME else "producer_byte_rate"

    @property
    def card_counter(self) -> str:
        """node_exporter's counter of that direction."""
        return f"node_network_{'transmit' if self is Operation.CONSUME else 'receive'}_bytes_total"


@dataclass(frozen=True, slots=True)
class Business:
    """One Kafka user; `wanted` is the sum over its connections (None = flat out), `throttled` None = never throttled."""

    level: str
    user: str
    wanted: int | None
    throttled: int | None
    contract: int
    connections: int = 1


def four_businesses(operation: Operation, connections: int, run: str) -> tuple[Business, ...]:
    """One of each level; those that can be throttled have that many connections.

    Every run has users of its own: Kafka tells a client's throttle time for a minute after its last mute.
    """
    part = operation.limit // 50
    contract = 60 * part
    return (
        Business("L0", f"checkout-{run}", 32 * part, None, contract),
        Business("L1", f"orders-{run}", 24 * part, 10 * part, contract, connections),
        Business("L2", f"search-{run}", 24 * part, 5 * part, contract, connections),
        Business("L3", f"reports-{run}", 24 * part, 2 * part, contract, connections),
    )


# The policy with one limited direction and a tier for each level, as a user would declare them. It
# applies nothing.


_RATE_FIELD = {Operation.CONSUME: "fetch", Operation.PRODUCE: "produce"}


def declared_policy(kafka: KafkaLab, prometheus: PrometheusLab, operation: Operation, *, speed: str) -> dict[str, Any]:
    """In mode Enforce, with the limit far away; readings every second. Deleting it restores what was there before."""
    declared = policy(kafka)
    capacity_field = operation.limit_field.replace("Limit", "Capacity")
    declared["spec"] |= {
        "deletion": "Restore",
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "preset": "JmxExporter" if kafka.network is None else "NodeExporter",
            "brokerIds": {"label": "broker"},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 15,
        },
        "brokers": {operation.limit_field: HIGH_LIMIT, capacity_field: CAPACITY},
        "escalation": {"speed": speed},
    }
    return declared


def declared_tiers(businesses: Sequence[Business], operation: Operation) -> list[dict[str, Any]]:
    """One tier a level, named by it."""
    by_level = groupby(sorted(businesses, key=lambda business: business.level), key=lambda business: business.level)
    return [_tier(level, list(members), operation) for level, members in by_level]


def _tier(level: str, businesses: Sequence[Business], operation: Operation) -> dict[str, Any]:
    members = [_member(business, operation) for business in businesses]
    spec: dict[str, Any] = {"policyRef": {"name": POLICY}, "level": level, "members": members}
    throttled = businesses[0].throttled
    if throttled is not None:
        spec["throttled"] = _rates(throttled, operation)
    metadata = {"name": level.lower(), "namespace": NAMESPACE}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "BusinessTier", "metadata": metadata, "spec": spec}


def _member(business: Business, operation: Operation) -> dict[str, Any]:
    return {"name": business.user, "user": business.user, "topics": [TOPIC], "contract": _rates(business.contract, operation)}


def _rates(bytes_per_second: int, operation: Operation) -> Mapping[str, Mapping[str, int]]:
    return {"perBroker": {_RATE_FIELD[operation]: bytes_per_second}}


# The clients of a measured episode, each a process of its own: every connection of every business,
# and what it moved.


_LONGEST_RUN_SECONDS = 1800
# What L0 did not get while the machine was busy elsewhere, it gets later, as any client of Kafka.
_L0_CATCHES_UP_SECONDS = 10.0
_FLAT_OUT_BYTES_PER_SECOND = 200_000_000
_FILLED_BYTES = 160_000_000
_FILL_SECONDS = 60
_LEAST_READ_AHEAD_KILOBYTES, _MOST_READ_AHEAD_KILOBYTES = 1024, 4096
_CONSUMER = (
    # A muted client of librdkafka connects anew after a minute and gets away with it; a Java client waits it out, and so do these.
    ("socket.timeout.ms", "300000"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.message.max.bytes", "524288"),
)
# Larger requests than Java's 16 kB, for the machine carries twenty producers beside the broker; but when a mute ends, each connection is
# granted one request, and six of 128 kB would be an eighth of what L3 has for a whole window.
_PRODUCER = (("socket.timeout.ms", "300000"), ("linger.ms", "100"), ("batch.size", "50000"))
# What they want later than this they do not want any more: the way back is measured without a backlog.
_PRODUCERS_QUEUE_SECONDS = 2
_PRODUCED_MESSAGE_BYTES = 25_000


class Crowd:
    """Running clients, by business and connection. Bytes are payload, per whole second."""

    def __init__(self, clients: Mapping[Business, Sequence[LoadClient]]) -> None:
        self._clients = clients

    def each(self) -> dict[str, ByteSeries]:
        """Client -> what it moved so far; a client is named by its level, user and connection."""
        return {client.plan.name: _series(client) for clients in self._clients.values() for client in clients}

    def together(self) -> ByteSeries:
        """What all of them moved so far."""
        return _together([client for clients in self._clients.values() for client in clients])

    def by_business(self) -> dict[Business, ByteSeries]:
        """Business -> what all its connections moved so far."""
        return {business: _together(clients) for business, clients in self._clients.items()}


def fill(kafka: KafkaLab) -> None:
    """Something to read, round and round from the page cache; written without login, so under no quota."""
    plan = LoadPlan(
        name="fill",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=TOPIC,
        partitions=(0,),
        duration_seconds=_FILL_SECONDS,
        max_bytes=_FILLED_BYTES,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()


@contextmanager
def crowd(
    kafka: KafkaLab, businesses: Sequence[Business], operation: Operation, *, run: str, catch_up_seconds: float = 2.0
) -> Iterator[Crowd]:
    """Every connection of every business while the context is open; they come up within 8 s, without a burst. `run` tells files apart."""
    with ExitStack() as stack:
        clients = {
            business: [
                stack.enter_context(_client(kafka, business, operation, name=f"{run}-{number}", catch_up_seconds=catch_up_seconds))
                for number in range(business.connections)
            ]
            for business in businesses
        }
        yield Crowd(clients)


def _client(kafka: KafkaLab, business: Business, operation: Operation, *, name: str, catch_up_seconds: float) -> LoadClient:
    wanted = None if business.wanted is None else business.wanted // business.connections
    plan = LoadPlan(
        name=f"{business.level}-{business.user}-{name}",
        mode="consume" if operation is Operation.CONSUME else "produce",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=TOPIC,
        # what is written goes where nobody reads
        partitions=(0,) if operation is Operation.CONSUME else (1,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=(wanted or _FLAT_OUT_BYTES_PER_SECOND) * _LONGEST_RUN_SECONDS,
        user=business.user,
        password=kafka.password(business.user),
        client_id=f"bench-{business.user}",
        steps=_ramp(wanted),
        catch_up_seconds=catch_up_seconds if business.throttled is not None else max(catch_up_seconds, _L0_CATCHES_UP_SECONDS),
        message_bytes=_PRODUCED_MESSAGE_BYTES,
        settings=(*_CONSUMER, _read_ahead(wanted)) if operation is Operation.CONSUME else (*_PRODUCER, _queue(wanted)),
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


def _read_ahead(wanted: int | None) -> tuple[str, str]:
    """A sixth of a second of what it wants; at least what a Java client fetches of a partition at once."""
    kilobytes = _MOST_READ_AHEAD_KILOBYTES if wanted is None else min(_MOST_READ_AHEAD_KILOBYTES, wanted // 6000)
    return "queued.max.messages.kbytes", str(max(_LEAST_READ_AHEAD_KILOBYTES, kilobytes))


def _queue(wanted: int | None) -> tuple[str, str]:
    return "queue.buffering.max.kbytes", str((wanted or _FLAT_OUT_BYTES_PER_SECOND) * _PRODUCERS_QUEUE_SECONDS // 1000)


def _ramp(wanted: int | None) -> tuple[RateStep, ...]:
    if wanted is None:
        return (RateStep(0, None),)
    return RateStep(0, wanted // 4), RateStep(4, wanted // 2), RateStep(8, wanted)


def _series(client: LoadClient) -> ByteSeries:
    return ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows())


def _together(clients: Sequence[LoadClient]) -> ByteSeries:
    moved: Counter[int] = Counter()
    for client in clients:
        moved.update({row.unix_seconds + 1: row.moved_bytes for row in client.rows()})
    return ByteSeries(Sample(at, count) for at, count in moved.items())


# Which quota of each user stood in ZooKeeper since when, with ZooKeeper's own times: a witness
# that is not the operator. It only reads.


_START_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class QuotaWrite:
    """One write of one user's quota, in bytes per second; None = no quota."""

    at_seconds: float
    user: str
    before: int | None
    after: int | None


class Znodes:
    """A context manager with a session of its own, that keeps every write of `znode_key` for these users."""

    def __init__(self, connect: str, users: Sequence[str], znode_key: str) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._users = users
        self._key = znode_key
        self._lock = threading.Lock()
        self._writes: list[QuotaWrite] = []
        self._now: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for user in self._users:
            self._client.DataWatch(f"/config/users/{user}", partial(self._on_data, user))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def writes(self) -> list[QuotaWrite]:
        """Every write so far, in the order of time."""
        with self._lock:
            return sorted(self._writes, key=lambda write: write.at_seconds)

    def quotas(self) -> dict[str, int | None]:
        """User -> the quota that stands now."""
        with self._lock:
            return dict(self._now)

    def _on_data(self, user: str, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, self._key)
        with self._lock:
            before = self._now.get(user)
            self._now[user] = quota
            if stat is not None and before != quota:
                self._writes.append(QuotaWrite(stat.last_modified, user, before, quota))


# A small producer of a throttled user, with the real Java client and its defaults: does a record
# of it get lost?
#
# Kafka mutes connections of a user, whoever of them used the quota up, and a Java producer gives a
# record up after two minutes.


NEIGHBOURS_TOPIC = "neighbour"
_RECORD_BYTES = 10_000
_RECORDS_PER_SECOND = 30
_GRACE_SECONDS = 150.0  # longer than the client's own delivery.timeout.ms


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The running producer of `records` records at 0.3 MB/s."""

    kafka: KafkaLab
    process: Process
    records: int
    offset_before: int

    def lost(self) -> int:
        """Wait for its end and say how many records did not arrive; `LabError` when it failed."""
        self.process.expect_success(self.records / _RECORDS_PER_SECOND + _GRACE_SECONDS)
        return self.records - (_end_offset(self.kafka) - self.offset_before)


@contextmanager
def neighbour(kafka: KafkaLab, user: str, *, seconds: int) -> Iterator[Neighbour]:
    """It produces for that long; the topic must be there, with one partition."""
    config = kafka.run.path / "neighbour" / "producer.properties"
    config.parent.mkdir(parents=True, exist_ok=True)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{kafka.password(user)}";'
    config.write_text(
        properties(
            {
                "bootstrap.servers": kafka.sasl_bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": login,
            }
        )
    )
    records = seconds * _RECORDS_PER_SECOND
    sizes = ["--num-records", str(records), "--record-size", str(_RECORD_BYTES), "--throughput", str(_RECORDS_PER_SECOND)]
    before = _end_offset(kafka)
    with start_java(
        "neighbour",
        "org.apache.kafka.tools.ProducerPerformance",
        arguments=["--topic", NEIGHBOURS_TOPIC, *sizes, "--producer.config", str(config)],
        options=["-Xmx96m"],
        jars=kafka_jars(),
        directory=config.parent,
        namespace=kafka.client_namespace.name if kafka.client_namespace else None,
    ) as process:
        yield Neighbour(kafka, process, records, before)


def _end_offset(kafka: KafkaLab) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "neighbour-offsets"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(NEIGHBOURS_TOPIC, 0), timeout=20)
        return int(end)
    finally:
        consumer.close()


_READY_SECONDS = 60.0
_PLURALS = ("brokerbandwidthpolicies", "businesstiers")


@dataclass(frozen=True, slots=True)
class Stage:
    """The running parts; nothing is declared yet."""

    on: World
    prometheus: PrometheusLab

    def limit(self, operation: Operation, bytes_per_second: int) -> float:
        """Set every broker's limit; gives the time at which that was said."""
        said = time.time()
        patch = {"spec": {"brokers": {operation.limit_field: bytes_per_second}}}
        self.on.objects.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, _PLURALS[0], POLICY, patch)
        return said

    def card(self, operation: Operation, *, start_seconds: float, end_seconds: float) -> ByteSeries | None:
        """What the broker's card moved, second by second; None without a card of its own (that needs root)."""
        if self.on.kafka.network is None:
            return None
        query = f'{operation.card_counter}{{broker="1",device="eth0"}}'
        answer = self.prometheus.query_range(query, start_seconds, end_unix_seconds=end_seconds, step_seconds=1)
        return ByteSeries(growth(answer[0]["values"]) if answer else ())

    def wait_until(self, holds: Callable[[], bool], *, longest_seconds: float) -> bool:
        """Look once a second; True as soon as it holds, False when the time is over. `LabError` when the operator ended."""
        ends = time.time() + longest_seconds
        while time.time() < ends:
            if holds():
                return True
            if not self.on.operator.is_running():
                raise LabError(f"The operator ended during a measurement.\n{self.on.operator.log_tail()}")
            time.sleep(min(1.0, max(0.0, ends - time.time())))
        return holds()

    def wait(self, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, longest_seconds=seconds)

    @contextmanager
    def declared(self, businesses: Sequence[Business], operation: Operation, *, speed: str = "Ladder") -> Iterator[None]:
        """A policy and its tiers, Ready; deleted at the end, and the operator has forgotten them."""
        self.on.create(_PLURALS[0], declared_policy(self.on.kafka, self.prometheus, operation, speed=speed))
        for tier in declared_tiers(businesses, operation):
            self.on.create(_PLURALS[1], tier)
        try:
            if not self.wait_until(self._all_ready, longest_seconds=_READY_SECONDS):
                raise LabError(f"Policy and tiers were not Ready within {_READY_SECONDS:g} s.\n{self.on.operator.log_tail()}")
            yield
        finally:
            self._delete_all()

    def _all_ready(self) -> bool:
        objects = [entry for plural in _PLURALS for entry in self.on.listed(plural)]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in (o.get("status") or {}).get("conditions") or ()) for o in objects
        )

    def _delete_all(self) -> None:
        for plural in _PLURALS:  # the policy first: it gives every quota back
            for entry in self.on.listed(plural):
                self.on.objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, entry["metadata"]["name"])
            self.wait_until(lambda plural=plural: not self._is_left(plural), longest_seconds=_READY_SECONDS)  # type: ignore[misc]

    def _is_left(self, plural: str) -> bool:
        try:
            return bool(self.on.listed(plural))
        except ApiException:
            return True


@contextmanager
def running_stage(users: Sequence[str], log: Path) -> Iterator[Stage]:
    """Everything running; the operator's log, with its audit trail, goes to that file."""
    with world(brokers=1, users=users, namespaces=os.geteuid() == 0, log=log) as on:
        on.kafka.create_topic(NEIGHBOURS_TOPIC, [[1]])
        fill(on.kafka)
        with monitoring(on.kafka) as prometheus:
            yield Stage(on, prometheus)
