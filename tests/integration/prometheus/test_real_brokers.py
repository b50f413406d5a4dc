"""Real brokers and the real JMX exporter: names with odd characters, and users without a quota of
their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from lab.kafka import KafkaLab
from lab.kafka_admin import login_settings
from lab.process import patience, wait_until
from lab.prometheus import PrometheusLab
from tests.contract.quota_store_contract import first, give_back
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS
from tidegate_logic.model import BYTE_RATE_KEYS, Direction, Entity, QuotaKey, Readings
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

# --- odd names ------------------------------------------------------------------------------------
# Real brokers and the real JMX exporter: names with odd characters are read as the entities that
# have the quotas.


ODD_CLIENT_IDS = ("app 1", 'q"uo:te*d?\\,=', "100%_~")


@pytest.fixture
def odd_user(kafka: KafkaLab, unique_name: str) -> str:
    name = f"{unique_name} w*+~<default>"
    kafka.create_scram_user(name, "right")
    wait_until(lambda: kafka.can_log_in(name, "right"), "the SCRAM login", timeout_seconds=20)
    return name


@pytest.fixture
def metered(kafka: KafkaLab, odd_user: str) -> Iterator[list[Entity]]:
    """Pairs of the odd user with odd client ids, each with a quota, so that brokers meter them."""
    entities = [Entity(odd_user, client_id) for client_id in ODD_CLIENT_IDS]
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    seen = store.read(entities)
    store.write(
        [first(seen[entity], {QuotaKey.PRODUCER_BYTE_RATE: "900000000"}) for entity in entities],
        kafka.cluster_id,
    )
    yield entities
    seen = store.read(entities)
    store.write(
        [give_back(seen[entity], {QuotaKey.PRODUCER_BYTE_RATE: None}) for entity in entities],
        kafka.cluster_id,
    )
    store.close()


def test_clients_with_odd_names_are_read_as_the_entities_that_have_the_quotas(
    kafka: KafkaLab, prometheus: PrometheusLab, metered: list[Entity], unique_name: str
) -> None:
    kafka.create_topic(unique_name, [[1]])
    settings = MetricsSettings(
        PrometheusServer(prometheus.url),
        Preset.JMX_EXPORTER,
        scrape_interval_seconds=1,
        stale_after_seconds=5,
    )
    reader = PrometheusReader(settings)

    def metered_traffic() -> Readings | None:
        # Sent again each time: a broker meters a client from its first quota on, and reads that a
        # moment after it is written.
        for entity in metered:
            produce(kafka, entity, unique_name)
        readings = reader.read({1, 2, 3})
        clients = [readings.clients.get((entity, 1, Direction.INGRESS)) for entity in metered]
        return (
            readings
            if all(client is not None and client.bytes_per_second > 0 for client in clients)
            else None
        )

    readings = wait_until(
        metered_traffic, "a rate of each client", timeout_seconds=60, poll_seconds=1
    )
    reader.close()
    assert readings is not None
    assert all(
        readings.clients[entity, 1, Direction.INGRESS].throttle_milliseconds == 0.0
        for entity in metered
    )
    assert {broker for broker, _ in readings.nic} == {1, 2, 3}
    assert readings.nic[1, Direction.INGRESS][-1].at_seconds == pytest.approx(time.time(), abs=5)
    assert Reason.METRICS_AMBIGUOUS not in {problem.reason for problem in readings.problems}


def produce(kafka: KafkaLab, entity: Entity, topic: str) -> None:
    login = login_settings(
        kafka.sasl_bootstrap_servers, str(entity.user), password="right", mechanism="SCRAM-SHA-256"
    )
    producer = Producer({**login, "client.id": str(entity.client_id)})
    for _ in range(20):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(patience(20)) == 0


# --- the metering quota ---------------------------------------------------------------------------
# The metering quota on real brokers: users without a quota of their own are counted, and no one is
# throttled.


MESSAGE_BYTES = 100_000


@pytest.fixture
def stranger(kafka: KafkaLab, unique_name: str) -> str:
    """A user without a quota, whom no broker has seen."""
    kafka.create_scram_user(unique_name, "right")
    wait_until(
        lambda: kafka.can_log_in(unique_name, "right"), "the SCRAM login", timeout_seconds=20
    )
    return unique_name


@pytest.fixture
def metering(kafka: KafkaLab) -> Iterator[None]:
    """Set the default user's quota that never binds, and remove it at the end."""
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    seen = store.read([DEFAULT_USER])[DEFAULT_USER]
    store.write([first(seen, {key: str(NEVER_BINDS) for key in BYTE_RATE_KEYS})], kafka.cluster_id)
    yield
    seen = store.read([DEFAULT_USER])[DEFAULT_USER]
    store.write([give_back(seen, dict.fromkeys(BYTE_RATE_KEYS))], kafka.cluster_id)
    store.close()


@pytest.mark.usefixtures("metering")
def test_a_user_without_a_quota_is_metered_and_never_throttled(
    kafka: KafkaLab, prometheus: PrometheusLab, stranger: str
) -> None:
    kafka.create_topic(stranger, [[1]])
    settings = MetricsSettings(
        PrometheusServer(prometheus.url),
        Preset.JMX_EXPORTER,
        scrape_interval_seconds=1,
        stale_after_seconds=5,
    )
    reader = PrometheusReader(settings)
    producer = Producer(
        login_settings(
            kafka.sasl_bootstrap_servers, stranger, password="right", mechanism="SCRAM-SHA-256"
        )
    )
    key = (Entity(stranger), 1, Direction.INGRESS)

    def rate() -> float:
        for _ in range(50):
            producer.produce(stranger, bytes(MESSAGE_BYTES), partition=0)
        producer.flush(patience(10))
        read = reader.read({1, 2, 3}).clients.get(key)
        return read.bytes_per_second if read is not None else 0.0

    wait_until(
        lambda: rate() > MESSAGE_BYTES, "a rate of a user without a quota", timeout_seconds=30
    )
    metered = reader.read({1, 2, 3}).clients[key]
    reader.close()
    assert not metered.throttle_milliseconds
