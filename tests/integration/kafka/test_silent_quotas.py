"""Quotas in ZooKeeper of which nobody notified the brokers: they take them over all the same.

Each broker's log says which quotas it took over; a broker that is asked looks in ZooKeeper, so it
shows what no client is held to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from lab.kafka import KafkaLab, QuotaChange, is_applied
from tests.unit.control.stage import Leaders, Stage
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.nodes import ledger_path
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration
RATE = 10_000_000


class Cluster:
    """A real Kafka's ZooKeeper, what others do to its quotas, and the operator's passes over it."""

    def __init__(self, kafka: KafkaLab, client: KazooClient, user: str) -> None:
        self.kafka = kafka
        self._client = client
        self._user = user
        self._session = ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect))
        leaders = Leaders({"acc": {1: 1, 2: 1, 3: 1}}, cluster_id=kafka.cluster_id)
        self.stage = Stage(store=ZooKeeperQuotaStore(self._session), leaders=leaders)
        self.policy = self.stage.policy(removal={"maxPercent": 100})
        self.change = QuotaChange("PRODUCE", user, None, float(RATE))

    @property
    def path(self) -> str:
        return f"/config/users/{self._user}"

    def write_silently(self, rate: int = RATE) -> None:
        """Write the quota as a tool does that knows nothing of notifications."""
        data = {"version": 1, "config": {"producer_byte_rate": str(rate)}}
        self._client.ensure_path(self.path)
        self._client.set(self.path, json.dumps(data).encode())

    def write_as_kafka_does(self, rate: int) -> None:
        self.write_silently(rate)
        news = {"version": 2, "entity_path": f"users/{self._user}"}
        path = "/config/changes/config_change_"
        self._client.create(path, json.dumps(news).encode(), sequence=True)

    def write_record_alone(self) -> None:
        """Write our record again as the versions before did it, without quota and notification."""
        path = ledger_path(Entity(self._user))
        self._client.set(path, self._client.get(path)[0])

    def notifications(self) -> int:
        return sum(
            json.loads(self._client.get(f"/config/changes/{name}")[0])["entity_path"]
            == f"users/{self._user}"
            for name in self._client.get_children("/config/changes")
        )

    def pass_after(self, seconds: float = 0.0) -> None:
        self.stage.now += seconds
        self.stage.run()

    def brokers_that_know(self, since: dict[int, int] | None = None) -> list[int]:
        return [
            broker.broker_id
            for broker in self.kafka.brokers
            if is_applied(broker.log_text((since or {}).get(broker.broker_id, 0)), self.change)
        ]

    def leave(self) -> None:
        for path in (self.path, "/tidegate"):
            self._client.delete(path, recursive=True)
        self._session.close()


@pytest.fixture
def cluster(kafka: KafkaLab, unique_name: str) -> Iterator[Cluster]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    made = Cluster(kafka, client, unique_name)
    yield made
    made.leave()
    client.stop()
    client.close()


def test_brokers_take_over_what_was_right_already_when_it_is_taken_over(
    cluster: Cluster, unique_name: str
) -> None:
    cluster.write_silently()
    cluster.stage.tier(user=unique_name)
    assert cluster.brokers_that_know() == []
    cluster.pass_after()
    cluster.kafka.wait_for_quota_applied(cluster.change)
    assert cluster.notifications() == 1
    for _ in range(5):
        cluster.pass_after(60)
    assert cluster.notifications() == 1
    assert cluster.stage.condition(cluster.policy) == ("True", "InSync")


def test_what_an_earlier_version_recorded_is_notified_once_a_minute_after_the_upgrade(
    cluster: Cluster, unique_name: str
) -> None:
    cluster.stage.tier(user=unique_name)
    cluster.pass_after()
    cluster.write_record_alone()
    cluster.stage.restart()
    since, before = cluster.kafka.log_positions(), cluster.notifications()
    cluster.pass_after(300)
    assert cluster.notifications() == before
    assert "brokers are still to be notified of 1 quota" in cluster.stage.message(
        cluster.policy, "QuotasInSync"
    )
    cluster.pass_after(60)
    cluster.kafka.wait_for_quota_applied(cluster.change, since)
    assert cluster.notifications() == before + 1
    cluster.pass_after(60)
    assert cluster.notifications() == before + 1
    assert cluster.stage.condition(cluster.policy, "QuotasInSync") == ("True", "InSync")
    assert "notified" not in cluster.stage.message(cluster.policy, "QuotasInSync")


def test_what_another_tool_changed_and_put_back_without_a_word_reaches_brokers(
    cluster: Cluster, unique_name: str
) -> None:
    cluster.stage.tier(user=unique_name)
    cluster.pass_after()
    cluster.kafka.wait_for_quota_applied(cluster.change)
    cluster.pass_after(120)
    cluster.write_as_kafka_does(77_000)
    cluster.kafka.wait_for_quota_applied(QuotaChange("PRODUCE", unique_name, None, 77_000.0))
    cluster.write_silently()
    assert cluster.brokers_that_know() == []
    cluster.pass_after(30)
    cluster.kafka.wait_for_quota_applied(cluster.change)


def test_what_goes_back_to_a_value_that_is_there_already_reaches_brokers(
    cluster: Cluster, unique_name: str
) -> None:
    before = QuotaChange("PRODUCE", unique_name, None, 5_000_000.0)
    cluster.write_silently(5_000_000)
    tier = cluster.stage.tier(user=unique_name)
    cluster.pass_after()
    cluster.kafka.wait_for_quota_applied(cluster.change)
    cluster.write_silently(5_000_000)  # somebody puts back what was there, before we do
    cluster.stage.kubernetes.delete(tier)
    cluster.pass_after()  # its grace begins
    for _ in range(3):  # and goes on while passes look
        cluster.pass_after(10)
    cluster.kafka.wait_for_quota_applied(before)
