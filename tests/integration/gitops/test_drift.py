"""What was applied from Git stays as it is in Git: neither the operator nor the API server changes it.

`DRIFT_SECONDS` is how long the operator works before the test compares.
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

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import KubectlFailed
from lab.process import wait_until
from tests.integration.conftest import CHECKOUT
from tests.integration.operator.operator_process import OperatorProcess
from tests.unit.gitops.argo_lua import health_of
from tests.unit.gitops.samples import script_of

SECONDS = float(os.environ.get("DRIFT_SECONDS", "2"))
pytestmark = [pytest.mark.integration, pytest.mark.timeout(SECONDS + 240)]

BY_GIT = ("--server-side", "--field-manager=argocd-controller")
OBJECTS = ("bbp/demo", "bt/accounting", "bt/reporting", "qo/nightly-backfill")


def examples(kafka: KafkaLab, namespace: str, name: str) -> str:
    """The examples with this test's namespace, Kafka and names, and with an end in the future."""
    text = "\n---\n".join(path.read_text() for path in sorted((CHECKOUT / "examples").glob("[0-9]*.yaml")) if "namespace" not in path.name)
    ahead = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    here = {
        "namespace: streaming": f"namespace: {namespace}",
        "kafka-1:9092,kafka-2:9092,kafka-3:9092": kafka.bootstrap_servers,
        "zk-1:2181": kafka.zookeeper_connect,
        '["acc"]': f'["{name}"]',
        "user: alice": f"user: {name}-alice",
        "user: bob": f"user: {name}-bob",
        "2026-12-15T06:00:00Z": ahead,
    }
    for there, instead in here.items():
        assert there in text
        text = text.replace(there, instead)
    return text


@contextmanager
def at_work(api: KubeApi, namespace: str, directory: Path) -> Iterator[None]:
    """Run the operator until everything is restored: while a policy exists, no other may claim the cluster."""
    with OperatorProcess(api, namespace, directory):
        try:
            yield
        finally:
            api.kubectl("delete", "bbp", "--all", "-n", namespace, "--timeout=60s")


def found(api: KubeApi, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(api.kubectl("get", *OBJECTS, "-n", namespace, "--show-managed-fields", "-o", "json"))["items"]
    return items


def reported_quota(api: KubeApi, namespace: str, name: str) -> str:
    """The quota in force of the first member, as the status reports it."""
    return api.kubectl("get", name, "-n", namespace, "-o", "jsonpath={.status.members[0].quota}")


def owners_of_spec(document: dict[str, Any]) -> set[str]:
    return {entry["manager"] for entry in document["metadata"]["managedFields"] if "f:spec" in entry["fieldsV1"]}


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
        git.write_text(text.replace("10Mi", "20Mi"))  # a user edits the contract of the first tier
        crds.kubectl("apply", *BY_GIT, "-f", str(git))
        wait_until(lambda: "20971520" in reported_quota(crds, namespace, "bt/accounting"), "the edit to be in force", timeout_seconds=30)
        ends = time.monotonic() + SECONDS
        wait_until(lambda: time.monotonic() > ends, "the operator to have worked for a while", timeout_seconds=SECONDS + 60)
        assert crds.kubectl("diff", *BY_GIT, "-f", str(git)) == ""
        documents = found(crds, namespace)
        git.write_text(text)
        with pytest.raises(KubectlFailed):  # the comparison detects a difference
            crds.kubectl("diff", *BY_GIT, "-f", str(git))
    assert {owner for document in documents for owner in owners_of_spec(document)} == {"argocd-controller"}
    assert {document["metadata"]["name"]: health_of(script_of(document["kind"]), document)["status"] for document in documents} == {
        name.partition("/")[2]: "Healthy" for name in OBJECTS
    }


def test_the_server_leaves_the_crds_as_they_are(crds: KubeApi) -> None:
    assert crds.kubectl("diff", "--server-side", "-f", str(CHECKOUT / "crds")) == ""


def test_the_cluster_leaves_the_operators_objects_as_they_are(kube_api: KubeApi, namespace: str, overlay: Path) -> None:
    text = kube_api.kubectl("kustomize", str(overlay))
    kube_api.kubectl("apply", *BY_GIT, "-f", "-", input=text)
    try:
        wait_until(lambda: kube_api.kubectl("get", "replicasets", "-n", namespace, "-o", "name"), "a ReplicaSet", timeout_seconds=30)
        assert kube_api.kubectl("diff", *BY_GIT, "-f", "-", input=text) == ""
    finally:
        kube_api.kubectl("delete", "--wait=false", "-f", "-", input=text)
