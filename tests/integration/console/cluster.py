"""What tests of the console on a real API server share: objects, viewers' tokens, a live source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client as kubernetes_client

from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from tidegate.console.access import Access
from tidegate.console.source import LiveSource
from tidegate.kube.api import ResourceKind


@dataclass
class Live:
    source: LiveSource
    access: Access
    kubeconfig: Path


def create(
    api_client: kubernetes_client.ApiClient,
    kind: ResourceKind,
    namespace: str,
    name: str,
    document: dict[str, Any],
) -> None:
    kubernetes_client.CustomObjectsApi(api_client).create_namespaced_custom_object(
        kind.group,
        kind.version,
        namespace,
        kind.plural,
        {**document, "metadata": {"name": name}},
        _request_timeout=30,
    )


def set_status(
    api_client: kubernetes_client.ApiClient,
    kind: ResourceKind,
    namespace: str,
    name: str,
    status: dict[str, Any],
) -> None:
    """Instead of an operator: what is not in `status` stays."""
    kubernetes_client.CustomObjectsApi(api_client).patch_namespaced_custom_object_status(
        *(kind.group, kind.version, namespace, kind.plural, name),
        {"status": status},
        _request_timeout=30,
    )


def names(source: LiveSource, namespace: str) -> dict[str, Any]:
    found = source.objects()
    return {
        raw["metadata"]["name"]: raw
        for raw in (*found.policies, *found.tiers)
        if raw["metadata"]["namespace"] == namespace
    }


def token_of(
    crds: KubeApi, name: str, home: str, rules: list[dict[str, Any]], granted_in: str
) -> str:
    kubeconfig = service_account_kubeconfig(
        crds, name, namespace=home, rules=rules, granted_in=[granted_in]
    )
    users = yaml.safe_load(kubeconfig.read_text())["users"]
    return str(users[0]["user"]["token"])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
