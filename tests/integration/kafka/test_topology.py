"""Leaders and brokers as three real brokers report them: with a dead broker, with a wrong login, and without an answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from controller_logic.model import TopicLeaders
from lab.kafka import KafkaLab
from lab.process import wait_until
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

pytestmark = pytest.mark.integration


@pytest.fixture
def topology(kafka: KafkaLab) -> Iterator[KafkaTopology]:
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    opened = KafkaTopology(KafkaConnection(tuple(kafka.bootstrap_servers.split(","))), topic_names=store.topic_names)
    yield opened
    opened.close()
    store.close()


def test_names_and_prefixes_are_found_and_missing_topics_are_not_made(kafka: KafkaLab, topology: KafkaTopology, unique_name: str) -> None:
    kafka.create_topic(f"{unique_name}.a", [[1, 2], [2, 3], [3, 1]])
    kafka.create_topic(f"{unique_name}.b", [[2, 3], [2, 3]])
    for _ in range(2):
        read = topology.read([f"{unique_name}.*", f"{unique_name}-missing"])
        assert read.brokers == {1, 2, 3}
        assert read.topics == {f"{unique_name}.a": TopicLeaders({1: 1, 2: 1, 3: 1}), f"{unique_name}.b": TopicLeaders({2: 2})}


def test_the_brokers_report_the_same_cluster_id_and_run_no_quota_plugin(kafka: KafkaLab, topology: KafkaTopology) -> None:
    assert topology.read([]).cluster_id == kafka.cluster_id
    assert topology.quota_callbacks() == {}


@pytest.mark.timeout(180)
def test_leaders_are_followed_when_the_broker_in_use_dies(kafka: KafkaLab, topology: KafkaTopology, unique_name: str) -> None:
    kafka.create_topic(unique_name, [[1, 2], [2, 3], [3, 1]])
    assert topology.read([unique_name]).topics[unique_name] == TopicLeaders({1: 1, 2: 1, 3: 1})
    kafka.broker(1).kill()
    try:
        moved = TopicLeaders({2: 2, 3: 1})
        wait_until(lambda: topology.read([unique_name]).topics[unique_name] == moved, "leaders on the living brokers", timeout_seconds=30)
        wait_until(lambda: topology.read([unique_name]).brokers == {2, 3}, "the dead broker to be gone", timeout_seconds=30)
    finally:
        kafka.broker(1).start()
        kafka.admin.wait_for_brokers([1, 2, 3])


@pytest.mark.parametrize(("password", "accepted"), [("alice-password", True), ("wrong", False)])
def test_a_login_is_used_and_its_refusal_names_the_user(kafka: KafkaLab, password: str, *, accepted: bool) -> None:
    login = SaslLogin(SaslMechanism.PLAIN, "alice", password)
    settings = KafkaConnection(tuple(kafka.sasl_bootstrap_servers.split(",")), sasl=login)
    assert password not in repr(settings)
    topology = KafkaTopology(settings, topic_names=frozenset)
    if accepted:
        assert topology.read([]).brokers == {1, 2, 3}
    else:
        with pytest.raises(Unauthorized, match="alice"):
            topology.read([])
    topology.close()


def test_without_an_answer_the_error_names_every_broker_and_its_failure() -> None:
    with socket.socket() as unused, socket.create_server(("127.0.0.1", 0)) as mute:
        unused.bind(("127.0.0.1", 0))
        refused, silent = (f"127.0.0.1:{place.getsockname()[1]}" for place in (unused, mute))
        topology = KafkaTopology(KafkaConnection((refused, silent), request_timeout_seconds=1.5), topic_names=frozenset)
        with pytest.raises(Unreachable) as error:
            topology.read([])
    assert f"{refused}: " in error.value.message
    assert f"{silent}: " in error.value.message
