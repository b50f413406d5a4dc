"""The lab's own ZooKeeper and Kafka behave as the other tests expect of them."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from lab.kafka import KafkaLab
from lab.zookeeper import DigestLogin, ZooKeeperLab

pytestmark = pytest.mark.integration


def test_a_topic_has_the_leaders_it_was_assigned(kafka: KafkaLab, unique_name: str) -> None:
    kafka.create_topic(unique_name, [[1, 2], [2, 3], [3, 1]])
    assert kafka.leaders(unique_name) == {0: 1, 1: 2, 2: 3}


def test_a_killed_broker_loses_its_leaders_and_gets_them_back_only_when_asked_to(kafka: KafkaLab, unique_name: str) -> None:
    kafka.create_topic(unique_name, [[1, 2], [2, 3], [3, 1]])
    kafka.broker(3).kill()
    try:
        kafka.wait_for_leaders(unique_name, {0: 1, 1: 2, 2: 1})
    finally:
        kafka.broker(3).start()
    kafka.admin.wait_for_brokers([1, 2, 3])
    assert kafka.leaders(unique_name) == {0: 1, 1: 2, 2: 1}
    kafka.restore_preferred_leaders(unique_name)
    assert kafka.leaders(unique_name) == {0: 1, 1: 2, 2: 3}


def test_logins_are_accepted_with_the_right_password_only(kafka: KafkaLab, unique_name: str) -> None:
    kafka.create_scram_user(unique_name, "right")
    assert kafka.can_log_in(unique_name, "right")
    assert not kafka.can_log_in(unique_name, "wrong")
    assert kafka.can_log_in("alice", kafka.password("alice"), mechanism="PLAIN")


def test_zookeeper_keeps_its_data_over_a_crash(unique_name: str) -> None:
    with ZooKeeperLab() as server:
        client = KazooClient(server.connect)
        client.start()
        client.create(f"/{unique_name}", b"kept")
        server.kill()
        server.start()
        assert client.retry(client.get, f"/{unique_name}")[0] == b"kept"
        client.stop()
        client.close()


@pytest.mark.timeout(180)
def test_brokers_that_log_in_to_zookeeper_keep_strangers_from_writing() -> None:
    login = DigestLogin("kafka", "kafka-secret")
    with KafkaLab(brokers=1, zookeeper_logins=(login,), chroot="/guarded") as kafka:
        stranger = KazooClient(kafka.zookeeper_connect)
        stranger.start()
        with pytest.raises(NoAuthError):
            stranger.create("/config/users/mallory", b"{}")
        stranger.stop()
        stranger.close()
