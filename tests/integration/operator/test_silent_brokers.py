"""A pass waits for no broker that is asked for its quota plugin: one real broker, and beside it
sockets that its ZooKeeper knows as brokers.

Two of them accept and never answer, as behind a firewall that answers for them; one has a plugin.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lab.kafka import KafkaLab
from lab.process import patience, started, wait_until
from tests.integration.operator.sockets import Listener, registered
from tests.unit.control.stage import Stage
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import KafkaConnection, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.broker_settings import SETTLE_SECONDS

pytestmark = pytest.mark.integration

SILENT, WITH_PLUGIN = (2, 3, 4, 5), 6
PLUGIN = "io.example.Quotas"


@pytest.fixture
def kafka_of_one() -> Iterator[KafkaLab]:
    with started(lambda: KafkaLab(brokers=1)) as kafka:
        yield kafka


@pytest.fixture
def listeners(kafka_of_one: KafkaLab) -> Iterator[dict[int, Listener]]:
    """The sockets, known to Kafka's controller as brokers."""
    plugins = dict.fromkeys(SILENT, "") | {WITH_PLUGIN: PLUGIN}
    with registered(kafka_of_one, plugins) as made:
        yield made


@pytest.fixture
def stage(kafka_of_one: KafkaLab, listeners: dict[int, Listener]) -> Iterator[Stage]:
    """An operator on this Kafka, with Kubernetes as a double."""
    kafka_of_one.create_topic("acc", [[1], [1], [1]])
    store = ZooKeeperQuotaStore(
        ZooKeeperSession(ZooKeeperConnection(kafka_of_one.zookeeper_connect))
    )
    topology = KafkaTopology(
        KafkaConnection(tuple(kafka_of_one.bootstrap_servers.split(","))),
        topic_names=store.topic_names,
    )
    wait_until(
        lambda: topology.read([]).brokers == {1, *listeners},
        "the sockets to be brokers",
        timeout_seconds=30,
    )
    yield Stage(store=store, leaders=topology)  # type: ignore[arg-type]  # the real one
    topology.close()
    store.close()


def seconds_of_a_pass(stage: Stage) -> float:
    begun = time.monotonic()
    stage.run()
    return time.monotonic() - begun


def test_a_pass_waits_for_no_silent_broker_and_the_plugin_of_another_is_reported(
    stage: Stage, listeners: dict[int, Listener]
) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    assert stage.produce() == "30000000", "three leaders on the real broker"
    came = {one: listener.came for one, listener in listeners.items()}  # Kafka's controller

    def asked() -> set[int]:
        return {one for one, listener in listeners.items() if listener.came > came[one]}

    stage.now += SETTLE_SECONDS
    begun = time.monotonic()
    assert max(seconds_of_a_pass(stage) for _ in range(3)) < patience(2.0)
    wait_until(lambda: asked() >= {*SILENT, WITH_PLUGIN}, "the question", timeout_seconds=5)
    question = stage.controllers["streaming/orders"]._pass.observer._settings._question
    assert question is not None
    question.join(patience(20))
    assert 4.0 < time.monotonic() - begun < patience(7.0), "5 s for all of them together"
    assert seconds_of_a_pass(stage) < patience(2.0)
    assert stage.condition(policy, "QuotasInSync") == ("False", "QuotasIgnored")
    assert f"Broker {WITH_PLUGIN} sets client.quota.callback.class to {PLUGIN}" in stage.message(
        policy, "QuotasInSync"
    )
