"""`tidegate doctor` as a process on a real Kafka with ZooKeeper, Prometheus and Kubernetes API: what
it says of a sound set-up, and of ten broken ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import started, wait_until
from lab.prometheus import PrometheusLab
from tests.integration.commands.doctor_set_ups import DoctorOnSetUps, Report, Setup, doctor
from tests.integration.operator.sockets import registered
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession

pytestmark = pytest.mark.integration


@pytest.fixture
def setup(
    kafka: KafkaLab,
    prometheus: PrometheusLab,
    crds: KubeApi,
    namespace: str,
    user: str,
    topic: str,
) -> Setup:
    by_zookeeper = {
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": kafka.zookeeper_connect},
    }
    return Setup(kafka, by_zookeeper, prometheus, crds, namespace, user, topic)


class TestWithZooKeeper(DoctorOnSetUps):
    def test_a_sound_set_up_has_no_problem_and_nothing_is_changed(
        self, setup: Setup, kafka: KafkaLab
    ) -> None:
        store = ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect))
        before = store.children(["/config/users", "/config/changes", "/"])
        report = self.sound(setup)
        assert "ok" in report.states("zookeeper")
        assert "ZooKeeper mode, protocol 3.9" in report.of("kafka", "ok")[0]["what"]
        assert store.children(["/config/users", "/config/changes", "/"]) == before
        store.close()


def test_a_quota_plugin_is_named_with_its_broker(setup: Setup, kafka: KafkaLab) -> None:
    setup.apply()
    plugin = "io.strimzi.kafka.quotas.StaticQuotaCallback"
    with registered(kafka, {6: plugin}):

        def seen() -> Report | None:
            report = setup.doctor()
            return report if report.of("plugin") else None

        report = wait_until(seen, "the broker with the plugin", timeout_seconds=60)
    assert report is not None
    assert ("plugin", "QuotasIgnored") in report.problems()
    (one,) = report.of("plugin")
    assert "Broker 6 sets" in one["what"]
    assert plugin in one["what"]


def test_a_server_without_the_custom_resources_has_the_cure_how_to_install_them() -> None:
    with started(KubeApi) as bare:
        report = doctor("--kubeconfig", str(bare.kubeconfig))
    assert report.problems() == {("crds", "CustomResourcesMissing")}
    (one,) = report.of("crds")
    assert "BrokerBandwidthPolicy, BusinessTier, QuotaOverride" in one["what"]
    assert "kubectl apply" in one["toDo"]
    assert report.states("kafka") == {"unknown"}
    assert report.code == 1


def test_files_need_no_kubernetes(setup: Setup, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": setup.objects()}))
    report = doctor("-f", str(file))
    assert (report.problems(), report.code) == (set(), 0)
    assert report.states("kubernetes") == {"unknown"}
