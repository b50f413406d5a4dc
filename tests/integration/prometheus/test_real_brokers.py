"""Real brokers and the real JMX exporter: names with odd characters are read as the entities that have the quotas."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from controller_logic.model import Direction, Entity, QuotaKey, Readings
from controller_logic.reasons import Reason
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
    store.write([first(seen[entity], {QuotaKey.PRODUCER_BYTE_RATE: "900000000"}) for entity in entities], kafka.cluster_id)
    yield entities
    seen = store.read(entities)
    store.write([give_back(seen[entity], {QuotaKey.PRODUCER_BYTE_RATE: None}) for entity in entities], kafka.cluster_id)
    store.close()


def test_clients_with_odd_names_are_read_as_the_entities_that_have_the_quotas(
    kafka: KafkaLab, prometheus: PrometheusLab, metered: list[Entity], unique_name: str
) -> None:
    kafka.create_topic(unique_name, [[1]])
    settings = MetricsSettings(PrometheusServer(prometheus.url), Preset.JMX_EXPORTER, scrape_interval_seconds=1, stale_after_seconds=5)
    reader = PrometheusReader(settings)

    def metered_traffic() -> Readings | None:
        # Sent again each time: a broker meters a client from its first quota on, and reads that a moment after it is written.
        for entity in metered:
            produce(kafka, entity, unique_name)
        readings = reader.read({1, 2, 3})
        clients = [readings.clients.get((entity, 1, Direction.INGRESS)) for entity in metered]
        return readings if all(client is not None and client.bytes_per_second > 0 for client in clients) else None

    readings = wait_until(metered_traffic, "a rate of each client", timeout_seconds=60, poll_seconds=1)
    reader.close()
    assert readings is not None
    assert all(readings.clients[entity, 1, Direction.INGRESS].throttle_milliseconds == 0.0 for entity in metered)
    assert {broker for broker, _ in readings.nic} == {1, 2, 3}
    assert readings.nic[1, Direction.INGRESS][-1].at_seconds == pytest.approx(time.time(), abs=5)
    assert Reason.METRICS_AMBIGUOUS not in {problem.reason for problem in readings.problems}


def produce(kafka: KafkaLab, entity: Entity, topic: str) -> None:
    login = login_settings(kafka.sasl_bootstrap_servers, str(entity.user), password="right", mechanism="SCRAM-SHA-256")
    producer = Producer({**login, "client.id": str(entity.client_id)})
    for _ in range(20):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(20) == 0
