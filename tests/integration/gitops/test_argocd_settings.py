"""The health scripts are added to Argo CD's ConfigMap without changing its other settings."""

from __future__ import annotations

import json

import pytest
import yaml

from lab.kubernetes.api import KubeApi
from tests.unit.gitops.samples import CHECKOUT

pytestmark = pytest.mark.integration


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
        kube_api.kubectl("apply", "--server-side", f"--field-manager={path.stem}", "-f", "-", input=json.dumps(ours))
        expected |= ours["data"]
    assert json.loads(kube_api.kubectl("get", "configmap", "argocd-cm", "-n", namespace, "-o", "json"))["data"] == expected
    assert len(expected) == 5
