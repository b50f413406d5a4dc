"""An upgrade of the chart rolls the Pods and moves nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from e2e.cluster import Cluster
from e2e.conftest import USERS
from e2e.declared import MB, policy, tier
from e2e.kafka_side import KafkaSide
from e2e.release import CHART, Release
from e2e.scene import Scenario
from lab.kafka import KafkaLab
from lab.process import wait_until
from lab.quota_watch import ZooKeeperQuotaWatch


def test_an_upgrade_keeps_definitions_objects_and_quotas(
    scene: Scenario,
    topic: str,
    kafka: KafkaLab,
    in_kafka: KafkaSide,
    kubernetes: Cluster,
    release: Release,
    tmp_path: Path,
) -> None:
    scene.declare(policy(kafka), tier("gold", "L0", {"checkout": 10 * MB}, topic=topic))
    in_kafka.wait_for_fetch_quota("checkout", 10 * MB)
    scene.waits_for("bt/gold", "Ready")
    definitions, objects, pods = (
        _identities(kubernetes, "crd"),
        _identities(kubernetes, "bbp,bt", scene.namespace),
        set(release.pods()),
    )
    with ZooKeeperQuotaWatch(kafka.zookeeper_connect, USERS) as quotas:
        release.upgrade(_next_version(tmp_path), **{"operator.logLevel": "DEBUG"})
        wait_until(
            lambda: pods.isdisjoint(release.pods()), "the old Pods to go", timeout_seconds=90
        )
        in_kafka.wait_for_fetch_quota("checkout", 10 * MB)
    assert quotas.values("checkout") == [10 * MB]
    assert _identities(kubernetes, "crd") == definitions
    assert _identities(kubernetes, "bbp,bt", scene.namespace) == objects
    release.upgrade()
    scene.delete("bbp/orders")


def _next_version(directory: Path) -> Path:
    """This chart under a version of its own, with a field more in a definition's description."""
    chart = directory / "tidegate"
    shutil.copytree(CHART, chart)
    facts = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**facts, "version": "99.0.0"}))
    return chart


def _identities(kubernetes: Cluster, kinds: str, namespace: str = "default") -> dict[str, str]:
    found = json.loads(kubernetes.kubectl("get", kinds, "-n", namespace, "-o", "json"))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}
