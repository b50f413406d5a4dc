"""What people declare by mistake, for a while, or twice."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from e2e.declared import MB, override, policy, tier
from e2e.kafka_side import KafkaSide
from e2e.scene import Scenario
from lab.kafka import KafkaLab
from lab.process import wait_until


@pytest.fixture
def promised(scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide) -> Scenario:
    """checkout has 10 MB/s."""
    scene.declare(policy(kafka), tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB)
    return scene


def test_nonsense_is_refused_at_admission_with_what_to_do(
    scene: Scenario, topic: str, kafka: KafkaLab
) -> None:
    without_zookeeper = policy(kafka)
    without_zookeeper["spec"]["kafka"] = {
        "bootstrapServers": "kafka:9092",
        "quotaStore": "ZooKeeper",
    }
    assert "spec.kafka.zookeeper" in scene.refusal(without_zookeeper)
    assert "throttledRates" in scene.refusal(tier("cheap", "L3", {"reports": 10 * MB}, topic=topic))
    assert "spec.level" in scene.refusal(tier("odd", "L4", {"reports": 10 * MB}, topic=topic))
    assert scene.kubectl("get", "bbp,bt", "-o", "name") == ""


def test_a_paused_policy_freezes_everything_as_it_is(
    promised: Scenario, in_kafka: KafkaSide
) -> None:
    promised.kubectl("annotate", "bbp/orders", "tidegate.io/paused=true")
    promised.waits_for("bbp/orders", "Ready", "False", reason="Paused")
    members = promised.read("bt/gold")["spec"]["members"]
    raised = [{**members[0], "contract": {"perPartition": {"fetch": "12M"}}}]
    promised.edit("bt/gold", {"members": raised})
    time.sleep(20)
    assert in_kafka.fetch_quota("checkout") == 10 * MB
    promised.edit("bbp/orders", {"suspend": True})
    promised.kubectl("annotate", "bbp/orders", "tidegate.io/paused-")
    promised.waits_for("bbp/orders", "Ready", "False", reason="Paused")
    promised.edit("bbp/orders", {"suspend": False})
    in_kafka.wait_for_fetch_quota("checkout", 12 * MB)
    promised.delete("bbp/orders")


def test_an_override_holds_for_as_long_as_it_says(promised: Scenario, in_kafka: KafkaSide) -> None:
    more = override("more", user="checkout", fetch_per_partition=40 * MB, seconds=40)
    promised.declare(more)
    in_kafka.wait_for_fetch_quota("checkout", 40 * MB, timeout_seconds=35)
    wait_until(lambda: in_kafka.fetch_quota("checkout") != 40 * MB, "its end", timeout_seconds=70)
    assert datetime.now(UTC) >= datetime.fromisoformat(more["spec"]["expiresAt"])
    # a raise ends in safe steps: the second comes 30 s after the first
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB, timeout_seconds=60)
    promised.waits_for("qo/more", "Ready", "False", reason="OverrideExpired")
    promised.delete("bbp/orders")


def test_a_second_policy_for_the_same_cluster_reports_whose_it_is_and_writes_nothing(
    promised: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide
) -> None:
    promised.declare(
        policy(kafka, name="second"),
        tier("copy", "L0", {"orders": 20 * MB}, topic=topic, policy="second"),
    )
    refused = promised.waits_for("bbp/second", "Ready", "False", reason="ClusterAlreadyManaged")
    assert f"{promised.namespace}/orders" in refused["message"]
    time.sleep(10)
    assert in_kafka.fetch_quota("orders") is None
    promised.delete("bbp/second", "bbp/orders")
