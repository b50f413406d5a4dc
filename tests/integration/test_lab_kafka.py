"""What the tests on real parts do not show by themselves of the lab's Kafka and load clients."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from lab import cache
from lab.kafka import KafkaLab, record_archives, use_as_labs_do
from lab.load import LoadClient, LoadPlan, RateStep
from lab.packages import kafka_jars
from lab.zookeeper import DigestLogin

pytestmark = pytest.mark.integration


def test_brokers_that_log_in_to_zookeeper_keep_strangers_from_writing() -> None:
    login = DigestLogin("kafka", "kafka-secret")
    with KafkaLab(brokers=1, zookeeper_logins=(login,), chroot="/guarded") as kafka:
        stranger = KazooClient(kafka.zookeeper_connect)
        stranger.start()
        with pytest.raises(NoAuthError):
            stranger.create("/config/users/mallory", b"{}")
        stranger.stop()
        stranger.close()


def test_a_broker_does_all_that_a_fresh_machine_records() -> None:
    with KafkaLab(brokers=1, users=("alice",)) as kafka:
        use_as_labs_do(kafka.broker(1).plan)


def test_a_java_that_cannot_record_costs_a_line_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jars = kafka_jars()
    java = tmp_path / "java"
    java.write_text(
        """#!/bin/sh\ntest "$1" = -version && echo 'openjdk version "17" (broken)' >&2\n"""
    )
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = cache.entries()
    record_archives(jars)
    assert "class-archive: " in capsys.readouterr().err
    assert cache.entries() == before


# --- load clients ---------------------------------------------------------------------------------
# Load clients move what their plan allows, and no more: measurements of the product are only as
# good as they are.


@pytest.fixture
def topic(kafka: KafkaLab, unique_name: str) -> str:
    kafka.create_topic(unique_name, [[1], [2]])
    return unique_name


def test_a_paced_producer_keeps_its_rate_on_all_its_partitions(
    kafka: KafkaLab, topic: str, tmp_path: Path
) -> None:
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


def test_a_client_ends_at_its_bytes_and_a_consumer_starts_over_at_the_end(
    kafka: KafkaLab, topic: str, tmp_path: Path
) -> None:
    filler = LoadPlan(
        "filler",
        "produce",
        kafka.bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=30,
        max_bytes=5_000_000,
    )
    reader = LoadPlan(
        "reader",
        "consume",
        kafka.bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=30,
        max_bytes=12_000_000,
    )
    with LoadClient(filler, tmp_path) as client:
        client.wait()
        assert sum(row.moved_bytes for row in client.rows()) == 5_000_000
    with LoadClient(reader, tmp_path) as client:
        client.wait()
        assert sum(row.moved_bytes for row in client.rows()) >= 12_000_000
