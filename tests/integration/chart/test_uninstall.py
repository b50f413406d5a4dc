"""The operator with the arguments and rights of a release of the chart, and its removal.

It runs as a process, because the API server has no nodes. Its probe and its test script are taken from the rendered objects.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from lab.network import free_port
from lab.process import wait_until
from tests.integration.chart.rendering import CHART, objects, only, rendered
from tests.integration.operator.installation import one_of_each_kind
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@dataclass
class Release:
    """The chart, installed in a namespace that it also watches, with an operator that enforces a policy there."""

    api: KubeApi
    helm: Helm
    namespace: str
    metrics_port: int
    liveness_port: int
    operator: subprocess.Popen[bytes]
    log_path: Path

    def kubectl(self, *arguments: str) -> str:
        return self.api.kubectl(*arguments, "-n", self.namespace)

    def uninstall(self) -> None:
        self.helm.run("uninstall", "tidegate", "--namespace", self.namespace)

    def stop_operator(self) -> None:
        self.operator.terminate()
        assert self.operator.wait(timeout=30) == 0

    def delete_namespace(self) -> None:
        self.api.kubectl("delete", "namespace", self.namespace, "--timeout=60s", timeout_seconds=70)


@pytest.fixture
def release(crds: KubeApi, kafka: KafkaLab, namespace: str, unique_name: str, tmp_path: Path) -> Iterator[Release]:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    helm = Helm(tmp_path, crds.kubeconfig)
    sets = f"crds.enabled=false,rbac.aggregateRoles=false,watch.namespaces={{{namespace}}},rbac.secretNames={{login}}"
    helm.run("install", "tidegate", str(CHART), "--namespace", namespace, "--set", sets)
    with running(crds, helm, namespace, tmp_path) as started:
        crds.kubectl("apply", "-f", "-", input=json.dumps(one_of_each_kind(kafka, namespace, unique_name)))
        started.kubectl("wait", "--for=condition=Ready", "bbp/orders", "bt/gold", "qo/more", "--timeout=60s")
        yield started


@contextmanager
def running(api: KubeApi, helm: Helm, namespace: str, directory: Path) -> Iterator[Release]:
    """A process with the arguments of the release's Deployment and the token of its ServiceAccount."""
    deployment = json.loads(api.kubectl("get", "deployment", "tidegate", "-n", namespace, "-o", "json"))
    token = api.kubectl("create", "token", "tidegate", "-n", namespace, "--duration=1h").strip()
    kubeconfig = api.kubeconfig_for(token=token, path=directory / "operator.kubeconfig")
    liveness_port, metrics_port = free_port(), free_port()
    here = [
        "--listen-address=127.0.0.1",
        f"--liveness-port={liveness_port}",
        f"--metrics-port={metrics_port}",
        f"--kubeconfig={kubeconfig}",
    ]
    command = [sys.executable, "-m", "tidegate", *deployment["spec"]["template"]["spec"]["containers"][0]["args"], *here]
    log_path = directory / "operator.log"
    with log_path.open("wb") as log:
        operator = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Release(api, helm, namespace, metrics_port, liveness_port, operator, log_path)
    finally:
        operator.kill()
        operator.wait()


def managed_by(kafka: KafkaLab) -> str | None:
    """The policy that claims the cluster in ZooKeeper, or None when everything was restored."""
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    try:
        return store.facts().owner_policy_key
    finally:
        store.close()


def container(helm: Helm, kind: str) -> dict[str, Any]:
    document = only(objects(rendered(helm)), kind)
    spec = document["spec"] if kind == "Pod" else document["spec"]["template"]["spec"]
    return dict(spec["containers"][0])


def test_uninstalling_in_the_documented_order_restores_everything_and_hangs_nowhere(release: Release, kafka: KafkaLab) -> None:
    probe = container(release.helm, "Deployment")["livenessProbe"]["httpGet"]
    with urllib.request.urlopen(f"http://127.0.0.1:{release.liveness_port}{probe['path']}", timeout=10) as answer:
        assert answer.status == 200
    script = container(release.helm, "Pod")["args"][0]
    test_pod = subprocess.run(
        [sys.executable, "-c", script, "127.0.0.1", str(release.metrics_port)], capture_output=True, text=True, timeout=30
    )
    assert test_pod.stdout == f"127.0.0.1:{release.metrics_port} is Tidegate.\n", test_pod.stderr

    release.kubectl("delete", "brokerbandwidthpolicies", "--all", "--timeout=60s")
    assert managed_by(kafka) is None
    release.stop_operator()
    release.uninstall()
    release.delete_namespace()
    assert not [line for line in release.log_path.read_text().splitlines() if re.search(r"forbidden|\b403\b", line, re.IGNORECASE)]


def test_a_policy_that_was_left_behind_goes_with_the_documented_commands(release: Release, kafka: KafkaLab) -> None:
    release.stop_operator()
    release.uninstall()
    release.api.kubectl("delete", "namespace", release.namespace, "--wait=false")
    wait_until(lambda: "deletionTimestamp" in release.kubectl("get", "bbp", "orders", "-o", "json"), "the deletion", timeout_seconds=60)
    assert managed_by(kafka) == f"{release.namespace}/orders"

    release.kubectl("patch", "bbp", "orders", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
    release.delete_namespace()
    restore = [sys.executable, "-m", "tidegate", "restore", "--zookeeper", kafka.zookeeper_connect, "--yes"]
    done = subprocess.run(restore, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert managed_by(kafka) is None
