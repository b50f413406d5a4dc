"""The lab's ZooKeeper, Kafka, Prometheus and load clients behave as the other tests and
measurements expect of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from lab import cache, zookeeper
from lab.kafka import MAIN_CLASS as BROKER_MAIN_CLASS
from lab.kafka import KafkaLab, QuotaChange, record_archives, use_as_labs_do
from lab.load import LoadClient, LoadPlan, RateStep
from lab.packages import kafka_jars
from lab.process import Process, wait_until
from lab.prometheus import PrometheusLab
from lab.zookeeper import DigestLogin, ZooKeeperLab

pytestmark = pytest.mark.integration

# --- ZooKeeper and Kafka --------------------------------------------------------------------------
# The lab's own ZooKeeper and Kafka behave as the other tests expect of them.


def test_a_topic_has_the_leaders_it_was_assigned(kafka: KafkaLab, unique_name: str) -> None:
    kafka.create_topic(unique_name, [[1, 2], [2, 3], [3, 1]])
    assert kafka.leaders(unique_name) == {0: 1, 1: 2, 2: 3}


def test_a_killed_broker_loses_its_leaders_and_gets_them_back_only_when_asked_to(
    kafka: KafkaLab, unique_name: str
) -> None:
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


def test_logins_are_accepted_with_the_right_password_only(
    kafka: KafkaLab, unique_name: str
) -> None:
    kafka.create_scram_user(unique_name, "right")
    wait_until(  # brokers read of a new user a little later
        lambda: kafka.can_log_in(unique_name, "right"), "the login", timeout_seconds=20
    )
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


def test_brokers_that_log_in_to_zookeeper_keep_strangers_from_writing() -> None:
    login = DigestLogin("kafka", "kafka-secret")
    with KafkaLab(brokers=1, zookeeper_logins=(login,), chroot="/guarded") as kafka:
        stranger = KazooClient(kafka.zookeeper_connect)
        stranger.start()
        with pytest.raises(NoAuthError):
            stranger.create("/config/users/mallory", b"{}")
        stranger.stop()
        stranger.close()


# --- recorded classes -----------------------------------------------------------------------------
# The lab's JVMs start from recorded classes wherever Java can do that, and start anyway where it
# cannot.


def java_can_share_classes() -> bool:
    """Whether this machine's Java has an archive of its own classes, on which every other one
    builds.
    """
    return (
        subprocess.run(
            ["java", "-Xshare:on", "-version"], capture_output=True, check=False
        ).returncode
        == 0
    )


def has_mapped_its_archive(process: Process, main_class: str) -> bool:
    """Whether the JVM uses the archive: one that refuses it does not keep it mapped."""
    return f"/{main_class}.jsa" in Path(f"/proc/{process.pid}/maps").read_text()


def test_zookeeper_and_every_broker_start_from_what_was_recorded(kafka: KafkaLab) -> None:
    parts = {
        zookeeper.MAIN_CLASS: [kafka.zookeeper.process],
        BROKER_MAIN_CLASS: [each.process for each in kafka.brokers],
    }
    mapped = [
        has_mapped_its_archive(process, main_class)
        for main_class, processes in parts.items()
        for process in processes
    ]
    assert mapped == [java_can_share_classes()] * 4, "`python -m lab prepare` records the archives"


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


# --- Prometheus -----------------------------------------------------------------------------------
# The lab's Prometheus scrapes every broker, under a label with its id.


def test_every_broker_is_scraped_under_its_id(prometheus: PrometheusLab) -> None:
    assert {
        (result["metric"]["broker"], result["value"][1]) for result in prometheus.query("up")
    } == {("1", "1"), ("2", "1"), ("3", "1")}


def test_leaders_per_broker_are_visible(
    kafka: KafkaLab, prometheus: PrometheusLab, unique_name: str
) -> None:
    before = _leaders_of_broker_2(prometheus)
    kafka.create_topic(unique_name, [[2], [2]])
    wait_until(
        lambda: _leaders_of_broker_2(prometheus) == before + 2,
        "two more leaders on broker 2",
        timeout_seconds=15,
    )


def _leaders_of_broker_2(prometheus: PrometheusLab) -> int:
    return int(prometheus.query('kafka_broker_leader_count{broker="2"}')[0]["value"][1])


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


def test_a_flat_out_user_over_its_quota_is_muted(
    kafka: KafkaLab, topic: str, tmp_path: Path
) -> None:
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
    client.set(
        f"/config/users/{user}",
        json.dumps(
            {"version": 1, "config": {"producer_byte_rate": str(bytes_per_second)}}
        ).encode(),
    )
    notification = json.dumps({"version": 2, "entity_path": f"users/{user}"}).encode()
    client.create("/config/changes/config_change_", notification, sequence=True)
    client.stop()
    client.close()
