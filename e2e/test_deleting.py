"""Nothing hangs when objects, namespaces or the operator itself go, in whatever order, and what
Kafka had before comes back.
"""

from __future__ import annotations

import time

from e2e.declared import MB, policy, tier
from e2e.kafka_side import KafkaSide
from e2e.release import Release
from e2e.scene import Scenario
from lab.kafka import KafkaLab


def promise(scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide) -> None:
    scene.declare(policy(kafka), tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB)


def test_a_namespace_goes_with_everything_in_it(
    scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide
) -> None:
    promise(scene, topic, kafka, in_kafka)
    scene.delete_namespace(timeout_seconds=60)
    in_kafka.wait_for_fetch_quota("checkout", None)
    assert in_kafka.claimed_by() is None


def test_without_the_operator_a_deleted_policy_waits_for_it_and_tiers_do_not(
    scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide, release: Release
) -> None:
    promise(scene, topic, kafka, in_kafka)
    release.scale(0)
    try:
        scene.delete("bt/gold", timeout_seconds=20)
        scene.kubectl("delete", "bbp/orders", "--wait=false")
        time.sleep(5)
        assert in_kafka.fetch_quota("checkout") == 10 * MB
        assert scene.read("bbp/orders")["metadata"]["deletionTimestamp"]
    finally:
        release.scale(2)
    in_kafka.wait_for_fetch_quota("checkout", None, timeout_seconds=90)
    # the claim goes after the last quota, and the policy after the claim
    scene.kubectl("wait", "--for=delete", "bbp/orders", "--timeout=30s")
    assert in_kafka.claimed_by() is None
