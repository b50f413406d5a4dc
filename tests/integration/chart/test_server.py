"""The chart on a real API server: installing, upgrading and uninstalling, and the operator with the
arguments and rights of a release.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from lab.network import free_port
from lab.process import CommandFailed, patience, wait_until
from tests.integration.chart.rendering import CHART, CHECKOUT, VALUES_FILES, objects, only, rendered
from tests.integration.operator.installation import one_of_each_kind
from tests.unit.resources.documents import policy
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.resources.kinds import KINDS

pytestmark = pytest.mark.integration

# --- releases -------------------------------------------------------------------------------------
# The chart on a real API server: every object is accepted, and installing, upgrading and
# uninstalling keeps what is not Helm's.


RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
CRDS = sorted(kind.crd_name for kind in KINDS)
POLICIES = "brokerbandwidthpolicies.tidegate.io"
# When CRDs are added and removed quickly, Kubernetes sometimes waits a minute before it retries to
# remove one.
# The API server tries again ever later while a CRD that has just changed cannot be listed.
CRDS_GONE_SECONDS = 300


def make_namespace(cluster: KubeApi, name: str) -> None:
    """Create a namespace that accepts only restricted Pods."""
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": RESTRICTED},
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(document))
    # without this account no Pod is admitted
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")


@contextmanager
def installed(helm: Helm, namespace: str, *arguments: str) -> Iterator[None]:
    helm.run("install", "tidegate", str(CHART), "--namespace", namespace, *arguments)
    try:
        yield
    finally:
        helm.run("uninstall", "tidegate", "--namespace", namespace, "--ignore-not-found")


def served(cluster: KubeApi) -> list[str]:
    names = cluster.kubectl("get", "crd", "-o", "name").split()
    return sorted(name.rpartition("/")[2] for name in names if name.endswith("tidegate.io"))


def create_policy(cluster: KubeApi, namespace: str) -> str:
    """Apply a policy as a user does and return its uid."""
    document = {**policy(), "metadata": {"name": "orders", "namespace": namespace}}

    def is_applied() -> bool:
        try:
            cluster.kubectl("apply", "-f", "-", input=json.dumps(document))
        except CommandFailed:  # a CRD that is Established may still be unknown for a moment
            return False
        return True

    wait_until(is_applied, "the first write to the fresh CRDs", timeout_seconds=30)
    return field(cluster, "bbp/orders", ".metadata.uid", namespace=namespace)


def field(cluster: KubeApi, what: str, path: str, *, namespace: str = "default") -> str:
    return cluster.kubectl("get", what, "-n", namespace, "-o", f"jsonpath={{{path}}}")


@pytest.fixture(scope="module")
def places(cluster: KubeApi) -> None:
    """The namespaces that the values files name."""
    for name in ("platform", "streaming", "billing", "before", "kafka"):
        make_namespace(cluster, name)


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)
def test_the_server_accepts_every_object_without_a_warning(
    cluster: KubeApi, helm: Helm, values: Path
) -> None:
    text = rendered(helm, values)
    applied = cluster.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--warnings-as-errors",
        "-f",
        "-",
        input=text,
    ).splitlines()
    assert len(applied) == len(objects(text))


def test_a_replica_set_may_create_its_pods_where_only_restricted_pods_are_let_in(
    cluster: KubeApi, cluster_helm: Helm
) -> None:
    make_namespace(cluster, "pods")
    with installed(cluster_helm, "pods", "--set=crds.enabled=false,rbac.roles=false"):
        pods = wait_until(
            lambda: pods_of(cluster, "pods", at_least=2), "two Pods", timeout_seconds=30
        )
    assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {
        "tidegate:0.1.0"
    }


def pods_of(cluster: KubeApi, namespace: str, *, at_least: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        cluster.kubectl("get", "pods", "-n", namespace, "-o", "json")
    )["items"]
    return found if len(found) >= at_least else []


def test_the_notes_name_the_next_commands_for_this_release(cluster_helm: Helm) -> None:
    printed = cluster_helm.run(
        "install",
        "notes",
        str(CHART),
        "--dry-run=client",
        "--namespace",
        "platform",
        "--set",
        "watch.namespaces={a}",
    )
    notes = printed.partition("NOTES:")[2]
    assert "kubectl rollout status deployment/notes-tidegate -n platform" in notes
    assert "kubectl get brokerbandwidthpolicies,businesstiers,quotaoverrides -n a" in notes


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    """The chart as an earlier version: another version number, and a CRD without its categories."""
    chart = tmp_path / "tidegate"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "0.0.9"}))
    template = (
        chart
        / "templates"
        / "crds"
        / f"{POLICIES.partition('.')[2]}_{POLICIES.partition('.')[0]}.yaml"
    )
    without = template.read_text().replace("    categories:\n    - tidegate\n", "")
    assert without != template.read_text()
    template.write_text(without)
    return chart


@pytest.fixture
def no_crds(cluster: KubeApi) -> Iterator[None]:
    """Remove Tidegate's CRDs before the test and after it."""
    delete_crds(cluster)
    yield
    delete_crds(cluster)


def delete_crds(cluster: KubeApi) -> None:
    patience = f"--timeout={CRDS_GONE_SECONDS}s"
    cluster.kubectl(
        "delete",
        "crd",
        *CRDS,
        "--ignore-not-found",
        patience,
        timeout_seconds=CRDS_GONE_SECONDS + 10,
    )


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("no_crds")
def test_upgrading_and_uninstalling_keep_crds_and_policies(
    cluster: KubeApi, cluster_helm: Helm, previous_chart: Path
) -> None:
    make_namespace(cluster, "lifecycle")
    cluster_helm.run("install", "tidegate", str(previous_chart), "--namespace", "lifecycle")
    made = create_policy(cluster, "lifecycle")
    crd = field(cluster, f"crd/{POLICIES}", ".metadata.uid")
    assert field(cluster, f"crd/{POLICIES}", ".spec.names.categories") == ""

    cluster_helm.run(
        "upgrade", "tidegate", str(CHART), "--namespace", "lifecycle", "--set=replicaCount=3"
    )
    assert field(cluster, f"crd/{POLICIES}", ".spec.names.categories") == '["tidegate"]'
    assert field(cluster, "deployment/tidegate", ".spec.replicas", namespace="lifecycle") == "3"
    assert field(cluster, f"crd/{POLICIES}", ".metadata.uid") == crd

    cluster_helm.run("uninstall", "tidegate", "--namespace", "lifecycle")
    assert cluster.kubectl(
        "get", "deployments,services,pdb,serviceaccounts", "-n", "lifecycle", "-o", "name"
    ).split() == ["serviceaccount/default"]
    assert served(cluster) == CRDS

    cluster_helm.run(
        "install", "tidegate", str(CHART), "--namespace", "lifecycle"
    )  # the CRDs that it kept are its own
    assert field(cluster, "bbp/orders", ".metadata.uid", namespace="lifecycle") == made
    cluster_helm.run("uninstall", "tidegate", "--namespace", "lifecycle")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("no_crds")
def test_crds_of_another_owner_are_taken_over_only_when_asked_and_deleted_only_when_not_kept(
    cluster: KubeApi, cluster_helm: Helm
) -> None:
    make_namespace(cluster, "theirs")
    cluster.install_crds(CHECKOUT / "crds")
    with pytest.raises(CommandFailed, match="cannot be imported into the current release"):
        cluster_helm.run("install", "tidegate", str(CHART), "--namespace", "theirs")
    with installed(cluster_helm, "theirs", "--take-ownership", "--set=crds.keep=false"):
        assert served(cluster) == CRDS
    wait_until(lambda: served(cluster) == [], "the CRDs to go", timeout_seconds=CRDS_GONE_SECONDS)


# --- the operator of a release --------------------------------------------------------------------
# The operator with the arguments and rights of a release of the chart, and its removal.
#
# It runs as a process, because the API server has no nodes. Its probe and its test script are taken
# from the rendered objects.


@dataclass
class Release:
    """The chart, installed in a namespace that it also watches, with an operator that enforces a
    policy there.
    """

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
        assert self.operator.wait(timeout=patience(30)) == 0

    def delete_namespace(self) -> None:
        self.api.kubectl("delete", "namespace", self.namespace, "--timeout=60s", timeout_seconds=70)


@pytest.fixture
def release(
    crds: KubeApi, kafka: KafkaLab, namespace: str, unique_name: str, tmp_path: Path
) -> Iterator[Release]:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    helm = Helm(tmp_path, crds.kubeconfig)
    sets = "crds.enabled=false,rbac.roles=false,rbac.secretNames={login}"
    helm.run("install", "tidegate", str(CHART), "--namespace", namespace, "--set", sets)
    with running(crds, helm, namespace, tmp_path) as started:
        crds.kubectl(
            "apply", "-f", "-", input=json.dumps(one_of_each_kind(kafka, namespace, unique_name))
        )
        started.kubectl(
            "wait", "--for=condition=Ready", "bbp/orders", "bt/gold", "qo/more", "--timeout=60s"
        )
        yield started


@contextmanager
def running(api: KubeApi, helm: Helm, namespace: str, directory: Path) -> Iterator[Release]:
    """A process with the arguments of the release's Deployment and the token of its
    ServiceAccount.
    """
    deployment = json.loads(
        api.kubectl("get", "deployment", "tidegate", "-n", namespace, "-o", "json")
    )
    token = api.kubectl("create", "token", "tidegate", "-n", namespace, "--duration=1h").strip()
    kubeconfig = api.kubeconfig_for(token=token, path=directory / "operator.kubeconfig")
    liveness_port, metrics_port = free_port(), free_port()
    here = [
        "--listen-address=127.0.0.1",
        f"--liveness-port={liveness_port}",
        f"--metrics-port={metrics_port}",
        f"--kubeconfig={kubeconfig}",
    ]
    command = [
        sys.executable,
        "-m",
        "tidegate",
        *deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        *here,
    ]
    log_path = directory / "operator.log"
    with log_path.open("wb") as log:
        operator = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            # a Pod has it in a file of its ServiceAccount
            env=os.environ | {"TIDEGATE_LEASE_NAMESPACE": namespace},
        )
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


def test_uninstalling_in_the_documented_order_restores_everything_and_hangs_nowhere(
    release: Release, kafka: KafkaLab
) -> None:
    probe = container(release.helm, "Deployment")["livenessProbe"]["httpGet"]
    with urllib.request.urlopen(
        f"http://127.0.0.1:{release.liveness_port}{probe['path']}", timeout=patience(10)
    ) as answer:
        assert answer.status == 200
    script = container(release.helm, "Pod")["args"][0]
    test_pod = subprocess.run(
        [sys.executable, "-c", script, "127.0.0.1", str(release.metrics_port)],
        capture_output=True,
        text=True,
        timeout=patience(30),
    )
    assert test_pod.stdout == f"127.0.0.1:{release.metrics_port} is Tidegate.\n", test_pod.stderr

    release.kubectl("delete", "brokerbandwidthpolicies", "--all", "--timeout=60s")
    assert managed_by(kafka) is None
    release.stop_operator()
    release.uninstall()
    release.delete_namespace()
    assert not [
        line
        for line in release.log_path.read_text().splitlines()
        if re.search(r"forbidden|\b403\b", line, re.IGNORECASE)
    ]


def test_a_policy_that_was_left_behind_goes_with_the_documented_commands(
    release: Release, kafka: KafkaLab
) -> None:
    release.stop_operator()
    release.uninstall()
    release.api.kubectl("delete", "namespace", release.namespace, "--wait=false")
    wait_until(
        lambda: "deletionTimestamp" in release.kubectl("get", "bbp", "orders", "-o", "json"),
        "the deletion",
        timeout_seconds=60,
    )
    assert managed_by(kafka) == f"{release.namespace}/orders"

    release.kubectl(
        "patch",
        "bbp",
        "orders",
        "--type=json",
        "-p",
        '[{"op":"remove","path":"/metadata/finalizers"}]',
    )
    release.delete_namespace()
    restore = [
        sys.executable,
        "-m",
        "tidegate",
        "restore",
        "--zookeeper",
        kafka.zookeeper_connect,
        "--yes",
    ]
    done = subprocess.run(restore, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stdout + done.stderr
    assert managed_by(kafka) is None
