"""A user that brokers meter, and its traffic on every broker, for commands that read Prometheus."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AdminClient as Acls

from lab.kafka import BrokersLab, KafkaLab
from lab.kafka_admin import login_settings
from lab.kraft import KraftLab
from lab.process import patience, wait_until
from lab.prometheus import PrometheusLab
from tests.contract.quota_store_contract import first, give_back
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate_logic.model import BYTE_RATE_KEYS, Entity


@pytest.fixture(scope="module")
def user(kafka: KafkaLab) -> Iterator[str]:
    """A user with quotas, so that brokers meter it."""
    name = f"doctor-{uuid.uuid4().hex[:8]}"
    kafka.create_scram_user(name, "right")
    wait_until(lambda: kafka.can_log_in(name, "right"), "the SCRAM login", timeout_seconds=20)
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    entity = Entity(name)
    seen = store.read([entity])[entity]
    store.write([first(seen, dict.fromkeys(BYTE_RATE_KEYS, "900000000"))], kafka.cluster_id)
    yield name
    seen = store.read([entity])[entity]
    store.write([give_back(seen, dict.fromkeys(BYTE_RATE_KEYS))], kafka.cluster_id)
    store.close()


@pytest.fixture(scope="module")
def topic(kafka: KafkaLab, user: str, prometheus: PrometheusLab) -> str:
    """A topic that the user produced to and fetched from, on every broker, as Prometheus knows."""
    name = f"{user}-topic"
    kafka.create_topic(name, [[1], [2], [3]])

    def metered() -> bool:
        use(kafka, user, name, "right")
        found = prometheus.query('count by (broker, resource) (kafka_quota_byte_rate{user!=""})')
        return {(one["metric"]["broker"], one["metric"]["resource"]) for one in found} >= {
            (broker, resource) for broker in "123" for resource in ("Fetch", "Produce")
        }

    wait_until(metered, "a rate of the user on each broker", timeout_seconds=60, poll_seconds=1)
    return name


def use(kafka: BrokersLab, user: str, topic: str, password: str) -> None:
    """Produce to and fetch from all three partitions."""
    login = login_settings(
        kafka.sasl_bootstrap_servers, user, password=password, mechanism="SCRAM-SHA-256"
    )
    producer = Producer(login)
    for partition in range(3):
        producer.produce(topic, b"x" * 10_000, partition=partition)
    assert producer.flush(patience(20)) == 0
    consumer = Consumer({**login, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[int | None] = set()
    until = time.monotonic() + patience(20)
    while len(seen) < 3 and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.add(message.partition())
    consumer.close()


@contextmanager
def allowed(
    kafka: KraftLab, user: str, rights: Sequence[tuple[ResourceType, str, str]]
) -> Iterator[None]:
    """The user has these rights meanwhile."""
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    client = Acls({"bootstrap.servers": kafka.bootstrap_servers})
    for done in client.create_acls(bindings).values():
        done.result(patience(20))
    try:
        yield
    finally:
        filters = [
            AclBindingFilter(
                one.restype,
                one.name,
                one.resource_pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for one in bindings
        ]
        for removed in client.delete_acls(filters).values():
            removed.result(patience(20))
