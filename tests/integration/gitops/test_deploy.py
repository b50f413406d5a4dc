"""Kustomize builds what the chart installs, and a real API server accepts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kubernetes.api import KubeApi
from tests.integration.chart.rendering import objects, only
from tests.unit.gitops.samples import CHECKOUT
from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS
from tools import kustomize_base

pytestmark = pytest.mark.integration


def test_the_committed_files_agree_with_crds_and_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make kustomize-base` writes them again."""
    monkeypatch.chdir(CHECKOUT)
    assert {path: path.read_text(encoding="utf-8") for path in kustomize_base.FOLDER.rglob("*.yaml")} == kustomize_base.files()


def test_the_example_is_everything_with_an_image_of_ones_own(kube_api: KubeApi) -> None:
    found = objects(kube_api.kubectl("kustomize", str(CHECKOUT / "examples" / "kustomize")))
    deployment = only(found, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], deployment["spec"]["replicas"]) == ("registry.example.com/tidegate:0.1.0", 3)
    crds = {item["metadata"]["name"]: item["spec"] for item in found if item["kind"] == "CustomResourceDefinition"}
    assert crds == {kind.crd_name: crd_document(kind)["spec"] for kind in KINDS}


def test_nothing_of_helm_is_left(kube_api: KubeApi) -> None:
    assert "helm" not in kube_api.kubectl("kustomize", str(CHECKOUT / "deploy" / "kustomize" / "base")).lower()


def test_the_rights_are_bound_to_the_operator_in_whatever_namespace_it_is(kube_api: KubeApi, overlay: Path, namespace: str) -> None:
    found = objects(kube_api.kubectl("kustomize", str(overlay)))
    operator = only(found, "Deployment")
    account = {"kind": "ServiceAccount", "name": operator["spec"]["template"]["spec"]["serviceAccountName"], "namespace": namespace}
    binding = only(found, "ClusterRoleBinding")
    assert binding["subjects"] == [account]
    assert only(found, "ServiceAccount")["metadata"]["name"] == account["name"]
    assert list(names_of(found, "ClusterRole", binding["roleRef"]["name"]))
    assert {item["metadata"]["namespace"] for item in found if "namespace" in item["metadata"]} == {namespace}


def names_of(found: list[dict[str, Any]], kind: str, name: str) -> Iterator[str]:
    return (item["metadata"]["name"] for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name))


def test_the_server_accepts_every_object_without_a_warning(kube_api: KubeApi, overlay: Path) -> None:
    text = kube_api.kubectl("kustomize", str(overlay))
    applied = kube_api.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-", input=text
    ).splitlines()
    assert len(applied) == len(list(yaml.safe_load_all(text)))
