"""Load clients move what their plan allows, and no more: measurements of the product are only as good as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from lab.kafka import KafkaLab, QuotaChange
from lab.load import LoadClient, LoadPlan, RateStep

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(kafka: KafkaLab, unique_name: str) -> str:
    kafka.create_topic(unique_name, [[1], [2]])
    return unique_name


def test_a_paced_producer_keeps_its_rate_on_all_its_partitions(kafka: KafkaLab, topic: str, tmp_path: Path) -> None:
    plan = LoadPlan(
        "paced",
        "produce",
        kafka.bootstrap_servers,
        topic=topic,
        partitions=(0, 1),
        duration_seconds=6,
        max_bytes=100_000_000,
        steps=(RateStep(0, 2_000_000),),
    )
    with LoadClient(plan, tmp_path) as client:
        client.wait()
        whole_seconds = client.rows()[1:-1]
    mean = sum(row.moved_bytes for row in whole_seconds) / len(whole_seconds)
    assert mean == pytest.approx(2_000_000, rel=0.15)
    assert {partition for row in whole_seconds for partition in row.bytes_by_partition} == {0, 1}


def test_a_client_ends_at_its_bytes_and_a_consumer_starts_over_at_the_end(kafka: KafkaLab, topic: str, tmp_path: Path) -> None:
    filler = LoadPlan("filler", "produce", kafka.bootstrap_servers, topic=topic, partitions=(0,), duration_seconds=30, max_bytes=5_000_000)
    reader = LoadPlan("reader", "consume", kafka.bootstrap_servers, topic=topic, partitions=(0,), duration_seconds=30, max_bytes=12_000_000)
    with LoadClient(filler, tmp_path) as client:
        client.wait()
        assert sum(row.moved_bytes for row in client.rows()) == 5_000_000
    with LoadClient(reader, tmp_path) as client:
        client.wait()
        assert sum(row.moved_bytes for row in client.rows()) >= 12_000_000


def test_a_flat_out_user_over_its_quota_is_muted(kafka: KafkaLab, topic: str, tmp_path: Path) -> None:
    before = kafka.log_positions()
    set_produce_quota(kafka.zookeeper_connect, user="erin", bytes_per_second=1_000_000)
    kafka.wait_for_quota_applied(QuotaChange("PRODUCE", "erin", None, 1_000_000.0), before)
    plan = LoadPlan(
        "erin",
        "produce",
        kafka.sasl_bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=13,
        max_bytes=200_000_000,
        user="erin",
        password=kafka.password("erin"),
    )
    with LoadClient(plan, tmp_path) as client:
        client.wait()
        rows = client.rows()
    assert max(row.throttle_milliseconds for row in rows) >= 500
    assert sum(row.moved_bytes for row in rows) <= 30_000_000


def set_produce_quota(zookeeper_connect: str, *, user: str, bytes_per_second: int) -> None:
    client = KazooClient(zookeeper_connect)
    client.start()
    client.ensure_path(f"/config/users/{user}")
    client.set(f"/config/users/{user}", json.dumps({"version": 1, "config": {"producer_byte_rate": str(bytes_per_second)}}).encode())
    notification = json.dumps({"version": 2, "entity_path": f"users/{user}"}).encode()
    client.create("/config/changes/config_change_", notification, sequence=True)
    client.stop()
    client.close()
