"""ServiceAccounts of the lab's Kubernetes API with exactly the rights a test names, as kubeconfig files.

With an administrator's kubeconfig every missing RBAC rule goes unnoticed; with one of these it is a 403. The rights are never wider
than what is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.kubernetes.api import KubeApi

Rule = Mapping[str, Sequence[str]]
"""One RBAC rule as Kubernetes spells it: `apiGroups`, `resources`, `verbs` and, where wanted, `resourceNames`."""

_RBAC = "rbac.authorization.k8s.io"


def service_account_kubeconfig(
    kube_api: KubeApi,
    name: str,
    *,
    namespace: str,
    rules: Sequence[Rule],
    granted_in: Sequence[str] = (),
) -> Path:
    """A kubeconfig that presents the ServiceAccount `name` of `namespace`, which is made and bound to `rules` here.

    The rules hold in the namespaces of `granted_in`, or in the whole cluster when there are none. The token lasts an hour. The
    namespaces have to exist. Raises `lab.kubectl.KubectlFailed` when the server refuses a rule.
    """
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}]
    places: Sequence[str | None] = granted_in or [None]
    for place in places:
        objects += _grant(f"{namespace}-{name}", rules, subject=subject, place=place)
    kube_api.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    token = kube_api.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=1h").strip()
    return kube_api.kubeconfig_for(token=token, path=kube_api.directory / f"{namespace}-{name}.kubeconfig")


def _grant(role_name: str, rules: Sequence[Rule], *, subject: Mapping[str, str], place: str | None) -> list[dict[str, Any]]:
    prefix = "Cluster" if place is None else ""
    metadata = {"name": role_name} if place is None else {"name": role_name, "namespace": place}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}Role", "metadata": metadata, "rules": list(rules)}
    reference = {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": role_name}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [subject],
    }
    return [role, binding]
