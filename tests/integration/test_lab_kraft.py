"""The lab's Kafka without ZooKeeper: of each version, with its controllers inside and outside of
the brokers.
"""

from __future__ import annotations

import time

import pytest

from lab.kafka import QuotaChange, use_as_labs_do
from lab.kraft import KraftLab
from lab.packages import KAFKA_3, KAFKA_4, KAFKA_4_4
from lab.process import wait_until
from lab.quota_watch import PRODUCE_KEY, watched_quotas
from tests.integration.connections import connection_of
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate_logic.model import Entity, QuotaKey

pytestmark = [pytest.mark.integration, pytest.mark.kraft, pytest.mark.long]

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@pytest.mark.parametrize(
    ("version", "brokers", "controllers"),
    [
        (KAFKA_3, 1, 1),
        (KAFKA_3, 3, 0),
        (KAFKA_4, 1, 3),
        (KAFKA_4_4, 1, 3),
    ],
)
def test_brokers_take_a_quota_and_keep_it_and_logins_over_a_crash(
    version: str, brokers: int, controllers: int
) -> None:
    with KraftLab(
        version=version, brokers=brokers, controllers=controllers, users=("alice",)
    ) as kafka:
        assert len(kafka.controllers) == (controllers or brokers)
        assert f"Kafka version: {version}" in kafka.broker(1).log_text()
        client = AdminClient(connection_of(kafka.bootstrap_servers))
        assert client.is_kraft()
        with watched_quotas(kafka, ["alice"], PRODUCE_KEY) as quotas:
            before = time.time()
            for value in ("4096", None, "2048"):
                assert alter(client, {Entity("alice"): {PRODUCE: value}}, "unused") == {
                    Entity("alice"): None
                }
                # the watch asks a broker again and again, and sees what is there then
                assert quotas.wait_for("alice", value and int(value), timeout_seconds=15)
            writes = quotas.writes()
        assert [write.after for write in writes] == [4096, None, 2048]
        assert before <= writes[0].at_seconds <= writes[-1].at_seconds <= time.time()
        client.close()
        if brokers == 1:
            use_as_labs_do(kafka.broker(1).plan)  # what a fresh machine records
        client.close()
        kafka.wait_for_quota_applied(QuotaChange("PRODUCE", "alice", None, 2048.0))
        assert kafka.can_log_in("alice", kafka.password("alice"))
        assert not kafka.can_log_in("alice", "wrong")
        for broker in kafka.brokers:
            broker.kill()
        for broker in kafka.brokers:
            broker.launch()
        for broker in kafka.brokers:
            broker.wait_started()
        kafka.admin.wait_for_brokers(range(1, brokers + 1))
        again = AdminClient(connection_of(kafka.bootstrap_servers.split(",")[-1]))
        assert describe(again, [Entity("alice")], "unused") == {Entity("alice"): {PRODUCE: "2048"}}
        again.close()
        assert kafka.can_log_in("alice", kafka.password("alice"))
        kafka.create_topic("orders", [[brokers]])
        wait_until(  # a broker that was not asked to create it hears of it a moment later
            lambda: kafka.leaders("orders") == {0: brokers}, "the leader", timeout_seconds=20
        )
