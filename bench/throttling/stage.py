"""Where measured episodes are played.

One real broker with a NIC of its own, Prometheus, the Kubernetes API, and the operator.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kubernetes.client import ApiException

from bench.control.world import (
    GROUP,
    NAMESPACE,
    POLICY,
    TOPIC,
    VERSION,
    World,
    is_true,
    metrics_of,
    policy,
    resource,
    world,
)
from lab.episodes import (
    Business,
    Clients,
    Operation,
    fill_topic,
    nic_bytes,
    running_clients,
    wait_until,
)
from lab.errors import LabError
from lab.java import properties, start_java
from lab.kafka import KafkaLab
from lab.packages import kafka_jars
from lab.process import Process
from lab.prometheus import PrometheusLab, monitoring
from lab.quota_watch import QuotaWatch, watched_quotas
from lab.rates import ByteSeries

MB = 1_000_000
HIGH_LIMIT = 1000 * MB
CAPACITY = 1250 * MB
# The NIC's limit in an episode; every other rate is a part of it or a multiple. That is half of the
# rates of the demo's experiment 2 for consumers and a quarter for producers, so that two processor
# cores carry nineteen of them: a producer costs a core about twice what a consumer costs.
LIMITS: Mapping[Operation, int] = {Operation.CONSUME: 25 * MB, Operation.PRODUCE: 25 * MB // 2}
_WAY = {Operation.CONSUME: "egress", Operation.PRODUCE: "ingress"}
_RATE_FIELD = {Operation.CONSUME: "fetch", Operation.PRODUCE: "produce"}
_BROKER = 1


def four_businesses(operation: Operation, connections: int, run: str) -> tuple[Business, ...]:
    """One of each level; those that can be throttled have that many connections.

    Every run has users of its own: Kafka reports a client's throttle time for a minute after its
    last mute.
    """
    part = LIMITS[operation] // 50
    contract = 60 * part
    return (
        Business("L0", f"checkout-{run}", 32 * part, None, contract),
        Business("L1", f"orders-{run}", 24 * part, 10 * part, contract, connections),
        Business("L2", f"search-{run}", 24 * part, 5 * part, contract, connections),
        Business("L3", f"reports-{run}", 24 * part, 2 * part, contract, connections),
    )


def declared_policy(
    kafka: KafkaLab, prometheus: PrometheusLab, operation: Operation, *, speed: str
) -> dict[str, Any]:
    """A policy in mode Enforce, with the limit far away and readings every second.

    Deleting it restores what was there before.
    """
    declared = policy(kafka)
    declared["spec"] |= {
        "deletionPolicy": "Restore",
        "metrics": metrics_of(kafka, prometheus),
        "brokers": {_WAY[operation]: {"limit": str(HIGH_LIMIT), "capacity": str(CAPACITY)}},
        "escalation": {"speed": speed},
    }
    return declared


def declared_tiers(businesses: Sequence[Business], operation: Operation) -> list[dict[str, Any]]:
    """One tier a level, named by it."""
    by_level = groupby(
        sorted(businesses, key=lambda business: business.level), key=lambda business: business.level
    )
    return [_tier(level, list(members), operation) for level, members in by_level]


def _tier(level: str, businesses: Sequence[Business], operation: Operation) -> dict[str, Any]:
    members = [_member(business, operation) for business in businesses]
    spec: dict[str, Any] = {"policyRef": {"name": POLICY}, "level": level, "members": members}
    throttled = businesses[0].throttled
    if throttled is not None:
        spec["throttledRates"] = _rates(throttled, operation)
    return resource("BusinessTier", level.lower(), spec)


def _member(business: Business, operation: Operation) -> dict[str, Any]:
    return {
        "name": business.user,
        "user": business.user,
        "topics": [TOPIC],
        "contract": _rates(business.contract, operation),
    }


def _rates(bytes_per_second: int, operation: Operation) -> Mapping[str, Mapping[str, str]]:
    return {"perBroker": {_RATE_FIELD[operation]: str(bytes_per_second)}}


NEIGHBOURS_TOPIC = "neighbour"
_RECORD_BYTES = 10_000
_RECORDS_PER_SECOND = 30
_GRACE_SECONDS = 150.0  # longer than the client's own delivery.timeout.ms


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A small producer of a throttled user: the real Java client with its defaults.

    It sends `records` records at 0.3 MB/s. Kafka mutes connections of a user, whichever of them
    used the quota up, and a Java producer gives a record up after two minutes.
    """

    kafka: KafkaLab
    process: Process
    records: int
    offset_before: int

    def lost(self) -> int:
        """Wait for its end and return how many records did not arrive.

        Raises `LabError` when it failed.
        """
        self.process.expect_success(self.records / _RECORDS_PER_SECOND + _GRACE_SECONDS)
        return self.records - (_end_offset(self.kafka) - self.offset_before)


@contextmanager
def neighbour(kafka: KafkaLab, user: str, *, seconds: int) -> Iterator[Neighbour]:
    """It produces for that long; the topic must be there, with one partition."""
    config = kafka.run.path / "neighbour" / "producer.properties"
    config.parent.mkdir(parents=True, exist_ok=True)
    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" '
        f'password="{kafka.password(user)}";'
    )
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
    sizes = [
        "--num-records",
        str(records),
        "--record-size",
        str(_RECORD_BYTES),
        "--throughput",
        str(_RECORDS_PER_SECOND),
    ]
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
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "neighbour-offsets"}
    )
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
        """Set every broker's limit; returns the time before the request was sent."""
        sent = time.time()
        patch = {"spec": {"brokers": {_WAY[operation]: {"limit": str(bytes_per_second)}}}}
        self.on.objects.patch_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, _PLURALS[0], POLICY, patch
        )
        return sent

    def nic(
        self, clients: Clients, operation: Operation, *, start_seconds: float, end_seconds: float
    ) -> ByteSeries:
        """What the broker's NIC moved, second by second."""
        span = {"start_seconds": start_seconds, "end_seconds": end_seconds}
        return nic_bytes(
            self.on.kafka, self.prometheus, clients, operation=operation, broker=_BROKER, **span
        )

    def clients(
        self,
        businesses: Sequence[Business],
        operation: Operation,
        *,
        run: str,
        catch_up_seconds: float = 2.0,
    ) -> AbstractContextManager[Clients]:
        """Their clients, each a process of its own, while the context is open."""
        return running_clients(
            self.on.kafka,
            businesses,
            operation,
            topic=TOPIC,
            run=run,
            prefix="bench",
            catch_up_seconds=catch_up_seconds,
        )

    def watch(self, businesses: Sequence[Business], operation: Operation) -> QuotaWatch:
        """A record of every write of their quotas while it is open."""
        return watched_quotas(
            self.on.kafka,
            [business.user for business in businesses],
            operation.quota_key,
        )

    def wait_until(self, holds: Callable[[], bool], *, longest_seconds: float) -> bool:
        """Check once a second; True as soon as it holds, False when the time is over.

        Raises `LabError` when the operator ended.
        """
        return wait_until(holds, self.on.operator, longest_seconds=longest_seconds)

    def wait(self, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, longest_seconds=seconds)

    @contextmanager
    def declared(
        self, businesses: Sequence[Business], operation: Operation, *, speed: str = "Ladder"
    ) -> Iterator[None]:
        """Declare a policy and its tiers and wait until they are Ready; delete them at the end.

        The operator has forgotten them then.
        """
        self.on.create(
            _PLURALS[0], declared_policy(self.on.kafka, self.prometheus, operation, speed=speed)
        )
        for tier in declared_tiers(businesses, operation):
            self.on.create(_PLURALS[1], tier)
        try:
            if not self.wait_until(self._all_ready, longest_seconds=_READY_SECONDS):
                raise LabError(
                    f"Policy and tiers were not Ready within {_READY_SECONDS:g} "
                    f"s.\n{self.on.operator.log_tail()}"
                )
            yield
        finally:
            self._delete_all()

    def _all_ready(self) -> bool:
        objects = [entry for plural in _PLURALS for entry in self.on.listed(plural)]
        return all(is_true(one, "Ready") for one in objects)

    def _delete_all(self) -> None:
        for plural in _PLURALS:  # the policy first: it gives every quota back
            for entry in self.on.listed(plural):
                self.on.delete(plural, entry["metadata"]["name"])
            is_gone = partial(self._is_gone, plural)
            self.wait_until(is_gone, longest_seconds=_READY_SECONDS)

    def _is_gone(self, plural: str) -> bool:
        try:
            return not self.on.listed(plural)
        except ApiException:
            return False


@contextmanager
def running_stage(users: Sequence[str], log: Path) -> Iterator[Stage]:
    """Everything running; the operator's log, with its audit trail, goes to that file."""
    with world(brokers=1, users=users, namespaces=os.geteuid() == 0, log=log) as on:
        on.kafka.create_topic(NEIGHBOURS_TOPIC, [[1]])
        fill_topic(on.kafka, TOPIC)
        with monitoring(on.kafka) as prometheus:
            yield Stage(on, prometheus)
