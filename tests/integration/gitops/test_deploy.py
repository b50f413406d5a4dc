"""deploy/ on a real API server: what Kustomize builds, what is added to Argo CD, and that nothing
drifts from what is in Git.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import CommandFailed, wait_until
from tests.integration.chart.rendering import objects, only
from tests.integration.operator.operator_process import OperatorProcess
from tests.unit.gitops.argo_lua import health_of
from tests.unit.gitops.samples import CHECKOUT, script_of
from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS
from tools import kustomize_base

pytestmark = pytest.mark.integration

BASE = CHECKOUT / "deploy" / "kustomize" / "base"


@pytest.fixture
def overlay(tmp_path: Path, namespace: str) -> Path:
    """A folder to build that puts everything into `namespace`, which exists, and gives what is
    outside of it a suffix.
    """
    folder = tmp_path / "overlay"
    folder.mkdir()
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE, folder)],  # Kustomize takes no absolute path
        "namespace": namespace,
        "nameSuffix": f"-{namespace}",
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


# --- Kustomize ------------------------------------------------------------------------------------
# Kustomize builds what the chart installs, and a real API server accepts it.


def test_the_committed_files_agree_with_crds_and_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make kustomize-base` writes them again."""
    monkeypatch.chdir(CHECKOUT)
    assert {
        path: path.read_text(encoding="utf-8") for path in kustomize_base.FOLDER.rglob("*.yaml")
    } == kustomize_base.files()


def test_the_example_is_everything_with_an_image_of_ones_own(kube_api: KubeApi) -> None:
    found = objects(kube_api.kubectl("kustomize", str(CHECKOUT / "examples" / "kustomize")))
    deployment = only(found, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], deployment["spec"]["replicas"]) == (
        "registry.example.com/tidegate:0.1.0",
        3,
    )
    crds = {
        item["metadata"]["name"]: item["spec"]
        for item in found
        if item["kind"] == "CustomResourceDefinition"
    }
    assert crds == {kind.crd_name: crd_document(kind)["spec"] for kind in KINDS}


def test_nothing_of_helm_is_left(kube_api: KubeApi) -> None:
    assert (
        "helm"
        not in kube_api.kubectl(
            "kustomize", str(CHECKOUT / "deploy" / "kustomize" / "base")
        ).lower()
    )


def test_the_rights_are_bound_to_the_operator_in_whatever_namespace_it_is(
    kube_api: KubeApi, overlay: Path, namespace: str
) -> None:
    found = objects(kube_api.kubectl("kustomize", str(overlay)))
    operator = only(found, "Deployment")
    account = {
        "kind": "ServiceAccount",
        "name": operator["spec"]["template"]["spec"]["serviceAccountName"],
        "namespace": namespace,
    }
    bindings = [item for item in found if item["kind"] == "RoleBinding"]
    assert len(bindings) == 2
    for binding in bindings:
        assert binding["subjects"] == [account]
        assert list(names_of(found, "Role", binding["roleRef"]["name"]))
    assert only(found, "ServiceAccount")["metadata"]["name"] == account["name"]
    assert {item["metadata"]["namespace"] for item in found if "namespace" in item["metadata"]} == {
        namespace
    }


def names_of(found: list[dict[str, Any]], kind: str, name: str) -> Iterator[str]:
    return (
        item["metadata"]["name"]
        for item in found
        if (item["kind"], item["metadata"]["name"]) == (kind, name)
    )


def test_the_server_accepts_every_object_without_a_warning(
    kube_api: KubeApi, overlay: Path
) -> None:
    text = kube_api.kubectl("kustomize", str(overlay))
    applied = kube_api.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--warnings-as-errors",
        "-f",
        "-",
        input=text,
    ).splitlines()
    assert len(applied) == len(list(yaml.load_all(text, yaml.CSafeLoader)))


# --- settings of Argo CD --------------------------------------------------------------------------
# The health scripts are added to Argo CD's ConfigMap without changing its other settings.


def test_the_health_scripts_join_what_is_set_already(kube_api: KubeApi, namespace: str) -> None:
    before = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": namespace},
        "data": {"url": "https://x"},
    }
    kube_api.kubectl("create", "-f", "-", input=json.dumps(before))
    expected = {"url": "https://x"}
    for path in sorted((CHECKOUT / "deploy" / "argocd").glob("argocd-cm*.yaml")):
        ours = yaml.safe_load(path.read_text(encoding="utf-8"))
        ours["metadata"]["namespace"] = namespace
        kube_api.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={path.stem}",
            "-f",
            "-",
            input=json.dumps(ours),
        )
        expected |= ours["data"]
    assert (
        json.loads(
            kube_api.kubectl("get", "configmap", "argocd-cm", "-n", namespace, "-o", "json")
        )["data"]
        == expected
    )
    assert len(expected) == 7  # the URL, five kinds of ours, and Application


# --- drift ----------------------------------------------------------------------------------------
# What was applied from Git stays as it is in Git: neither the operator nor the API server changes
# it.
#
# `DRIFT_SECONDS` is how long the operator works before the test compares.


SECONDS = float(os.environ.get("DRIFT_SECONDS", "2"))

BY_GIT = ("--server-side", "--field-manager=argocd-controller")
OBJECTS = ("bbp/demo", "bt/accounting", "bt/reporting", "qo/nightly-backfill")


def examples(kafka: KafkaLab, namespace: str, name: str) -> str:
    """The examples with this test's namespace, Kafka and names, enforced, without the load that
    nobody measures here, and with an end in the future.
    """
    text = "\n---\n".join(
        path.read_text()
        for path in sorted((CHECKOUT / "examples").glob("[0-9]*.yaml"))
        if "namespace" not in path.name
    )
    ahead = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    here = {
        "namespace: streaming": f"namespace: {namespace}",
        "kafka-1:9092,kafka-2:9092,kafka-3:9092": kafka.bootstrap_servers,
        '# zookeeper: {connect: "zk-1:2181"}': f"zookeeper: {{connect: {kafka.zookeeper_connect}}}",
        "mode: Observe": "mode: Enforce",
        '["acc"]': f'["{name}"]',
        "user: alice": f"user: {name}-alice",
        "user: bob": f"user: {name}-bob",
        "2000-01-01T00:00:00Z": ahead,
    }
    for there, instead in here.items():
        assert there in text
        text = text.replace(there, instead)
    documents = [document for document in yaml.safe_load_all(text) if document]
    for document in documents:
        if document["kind"] == "BrokerBandwidthPolicy":
            del document["spec"]["metrics"], document["spec"]["brokers"]
    return yaml.safe_dump_all(documents, sort_keys=False)


@contextmanager
def at_work(api: KubeApi, namespace: str, directory: Path) -> Iterator[None]:
    """Run the operator until everything is restored: while a policy exists, no other may claim the
    cluster.
    """
    with OperatorProcess(api, namespace, directory):
        try:
            yield
        finally:
            api.kubectl("delete", "bbp", "--all", "-n", namespace, "--timeout=60s")


def found(api: KubeApi, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(
        api.kubectl("get", *OBJECTS, "-n", namespace, "--show-managed-fields", "-o", "json")
    )["items"]
    return items


def reported_quota(api: KubeApi, namespace: str, name: str) -> str:
    """The quota in force of the first member, as the status reports it."""
    return api.kubectl("get", name, "-n", namespace, "-o", "jsonpath={.status.members[0].quota}")


def owners_of_spec(document: dict[str, Any]) -> set[str]:
    return {
        entry["manager"]
        for entry in document["metadata"]["managedFields"]
        if "f:spec" in entry["fieldsV1"]
    }


@pytest.mark.timeout(SECONDS + 600)
def test_the_operator_leaves_what_was_applied_as_it_is_and_argo_cd_would_show_it_healthy(
    crds: KubeApi, kafka: KafkaLab, namespace: str, unique_name: str, tmp_path: Path
) -> None:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    git = tmp_path / "git.yaml"
    text = examples(kafka, namespace, unique_name)
    git.write_text(text)
    crds.kubectl("apply", *BY_GIT, "-f", str(git))
    with at_work(crds, namespace, tmp_path):
        crds.kubectl("wait", "--for=condition=Ready", *OBJECTS, "-n", namespace, "--timeout=60s")
        git.write_text(text.replace("10M", "20M"))  # a user edits the contract of the first tier
        crds.kubectl("apply", *BY_GIT, "-f", str(git))
        wait_until(
            lambda: "20000000" in reported_quota(crds, namespace, "bt/accounting"),
            "the edit to be in force",
            timeout_seconds=30,
        )
        ends = time.monotonic() + SECONDS
        wait_until(
            lambda: time.monotonic() > ends,
            "the operator to have worked for a while",
            timeout_seconds=SECONDS + 60,
        )
        assert crds.kubectl("diff", *BY_GIT, "-f", str(git)) == ""
        documents = found(crds, namespace)
        git.write_text(text)
        with pytest.raises(CommandFailed):  # the comparison detects a difference
            crds.kubectl("diff", *BY_GIT, "-f", str(git))
    assert {owner for document in documents for owner in owners_of_spec(document)} == {
        "argocd-controller"
    }
    assert {
        document["metadata"]["name"]: health_of(script_of(document["kind"]), document)["status"]
        for document in documents
    } == {name.partition("/")[2]: "Healthy" for name in OBJECTS}


@pytest.mark.timeout(SECONDS + 600)
def test_the_server_leaves_the_crds_as_they_are(crds: KubeApi) -> None:
    assert crds.kubectl("diff", "--server-side", "-f", str(CHECKOUT / "crds")) == ""


@pytest.mark.timeout(SECONDS + 600)
def test_the_cluster_leaves_the_operators_objects_as_they_are(
    kube_api: KubeApi, namespace: str, overlay: Path
) -> None:
    text = kube_api.kubectl("kustomize", str(overlay))
    kube_api.kubectl("apply", *BY_GIT, "-f", "-", input=text)
    try:
        wait_until(
            lambda: kube_api.kubectl("get", "replicasets", "-n", namespace, "-o", "name"),
            "a ReplicaSet",
            timeout_seconds=30,
        )
        assert kube_api.kubectl("diff", *BY_GIT, "-f", "-", input=text) == ""
    finally:
        kube_api.kubectl("delete", "--wait=false", "-f", "-", input=text)
