"""The metering quota on real brokers: users without a quota of their own are counted, and no one is throttled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from controller_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS
from controller_logic.model import BYTE_RATE_KEYS, Direction, Entity
from lab.kafka import KafkaLab, login_settings
from lab.process import wait_until
from lab.prometheus import PrometheusLab
from tests.contract.quota_store_stage import first, give_back
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer

pytestmark = pytest.mark.integration
MESSAGE_BYTES = 100_000


@pytest.fixture
def stranger(kafka: KafkaLab, unique_name: str) -> str:
    """A user without a quota, whom no broker has seen."""
    kafka.create_scram_user(unique_name, "right")
    wait_until(lambda: kafka.can_log_in(unique_name, "right"), "the SCRAM login", timeout_seconds=20)
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
def test_a_user_without_a_quota_is_metered_and_never_throttled(kafka: KafkaLab, prometheus: PrometheusLab, stranger: str) -> None:
    kafka.create_topic(stranger, [[1]])
    settings = MetricsSettings(PrometheusServer(prometheus.url), Preset.JMX_EXPORTER, scrape_interval_seconds=1, stale_after_seconds=5)
    reader = PrometheusReader(settings)
    producer = Producer(login_settings(kafka.sasl_bootstrap_servers, stranger, password="right", mechanism="SCRAM-SHA-256"))
    key = (Entity(stranger), 1, Direction.INGRESS)

    def rate() -> float:
        for _ in range(50):
            producer.produce(stranger, bytes(MESSAGE_BYTES), partition=0)
        producer.flush(10)
        read = reader.read({1, 2, 3}).clients.get(key)
        return read.bytes_per_second if read is not None else 0.0

    wait_until(lambda: rate() > MESSAGE_BYTES, "a rate of a user without a quota", timeout_seconds=30)
    metered = reader.read({1, 2, 3}).clients[key]
    reader.close()
    assert not metered.throttle_milliseconds
