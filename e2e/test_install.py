"""From the chart to quotas in Kafka, and on with the leaders when a broker dies."""

from __future__ import annotations

import pytest

from e2e.declared import MB, policy, tier
from e2e.kafka_side import KafkaSide
from e2e.release import Release
from e2e.scene import Scenario
from lab.kafka import KafkaLab


def test_a_promise_becomes_a_quota_and_follows_the_leaders(
    scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide
) -> None:
    with_login = policy(kafka)
    with_login["spec"]["kafka"] |= {
        "bootstrapServers": kafka.sasl_bootstrap_servers,
        "authentication": {
            "type": "plain",
            "username": "orders",
            "passwordSecret": {"secretName": "orders", "password": "password"},
        },
    }
    scene.kubectl(
        "create",
        "secret",
        "generic",
        "orders",
        f"--from-literal=password={kafka.password('orders')}",
    )
    scene.kubectl("label", "secret", "orders", "tidegate.io/credentials=true")
    scene.declare(with_login, tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    scene.waits_for("bbp/orders", "Ready")
    scene.waits_for("bt/gold", "Ready")
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB)

    kafka.broker(3).kill()
    try:
        # partition 3 has moved to broker 1, which leads two now: every broker lets the user have
        # two promises
        in_kafka.wait_for_fetch_quota("checkout", 20 * MB)
    finally:
        kafka.broker(3).start()
        kafka.restore_preferred_leaders(topic)
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB, timeout_seconds=120.0)

    scene.delete("bt/gold", "bbp/orders")
    in_kafka.wait_for_fetch_quota("checkout", None)
    assert in_kafka.claimed_by() is None


@pytest.mark.usefixtures("scene")
def test_the_release_tests_itself(release: Release) -> None:
    assert "Succeeded" in release.test()
