"""What is not known moves nothing: Prometheus, ZooKeeper and the API server go away and come
back.
"""

from __future__ import annotations

from e2e.declared import MB, policy, tier, watching
from e2e.kafka_side import KafkaSide
from e2e.release import Release
from e2e.scene import Scenario
from lab.kafka import KafkaLab
from lab.prometheus import PrometheusLab


def test_without_zookeeper_everything_stands_and_goes_on_afterwards(
    scene: Scenario, topic: str, kafka: KafkaLab, in_kafka: KafkaSide, release: Release
) -> None:
    scene.declare(policy(kafka), tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB)
    restarts = release.restarts()

    kafka.zookeeper.kill()
    try:
        scene.waits_for(
            "bbp/orders", "Ready", "False", reason="ZooKeeperUnreachable", timeout_seconds=90
        )
        members = scene.read("bt/gold")["spec"]["members"]
        scene.edit(
            "bt/gold", {"members": [{**members[0], "contract": {"perPartition": {"fetch": "12M"}}}]}
        )
    finally:
        kafka.zookeeper.start()
    # A broker whose session ended in between has lost its leaders: it gets them back.
    kafka.restore_preferred_leaders(topic, timeout_seconds=120)
    in_kafka.wait_for_fetch_quota("checkout", 12 * MB, timeout_seconds=120)
    scene.waits_for("bbp/orders", "Ready", timeout_seconds=90)
    assert release.restarts() == restarts
    scene.delete("bbp/orders")


def test_without_prometheus_contracts_are_kept_and_said_to_be_blind(
    scene: Scenario, topic: str, kafka: KafkaLab, prometheus: PrometheusLab, in_kafka: KafkaSide
) -> None:
    nowhere = watching(prometheus, egress_limit=1000 * MB)
    nowhere["metrics"]["prometheus"]["url"] = prometheus.url.rsplit(":", 1)[0] + ":9"
    scene.declare(policy(kafka, **nowhere), tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    # what the client sends is not known, so its first quota steps down from the NIC's capacity
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB, timeout_seconds=300)
    scene.waits_for("bbp/orders", "MetricsFresh", "False", reason="PrometheusUnreachable")

    scene.edit("bbp/orders", {"metrics": {"prometheus": {"url": prometheus.url}}})
    scene.waits_for("bbp/orders", "MetricsFresh")
    assert in_kafka.fetch_quota("checkout") == 10 * MB
    scene.delete("bbp/orders")
