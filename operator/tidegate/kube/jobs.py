"""Jobs and ConfigMaps of the real Kubernetes: the calls behind `api.Kubernetes` that usage rollups need, and nothing of what is in them.

Jobs go through the interface for custom objects as JSON, as Leases and Events do. How a Job looks is in `job_manifest.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kubernetes import client

from controller_logic.reasons import Reason
from tidegate.errors import NotFound
from tidegate.kube.api import JsonObject
from tidegate.kube.transport import Transport

_JOBS = ("batch", "v1")
_GONE = Reason.ROLLUPS_UNSEEN


class JobCalls:
    """What `KubernetesClient` can do with Jobs and ConfigMaps; it brings the interfaces and the transport."""

    _objects: client.CustomObjectsApi
    _core: client.CoreV1Api
    _transport: Transport

    def list_jobs(self, namespace: str, *, selector: str) -> list[JsonObject]:
        found = self._transport.read(
            self._objects.list_namespaced_custom_object,
            *(*_JOBS, namespace, "jobs"),
            label_selector=selector,
            what=f"list the Jobs {selector} in {namespace}",
            reason=_GONE,
        )
        return list(found.get("items") or [])

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        return self._transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_JOBS, namespace, "jobs"),
            body=body,
            what=f"create Job {namespace}/{body['metadata']['name']}",
            reason=_GONE,
        )

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        with contextlib.suppress(NotFound):  # gone already
            self._transport.write(
                self._objects.delete_namespaced_custom_object,
                *(*_JOBS, namespace, "jobs", name),
                body={"propagationPolicy": "Background", "preconditions": {"uid": uid}},
                what=f"delete Job {namespace}/{name}",
                reason=_GONE,
            )

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        try:
            return self._transport.read(
                self._core.read_namespaced_config_map, name, namespace, what=f"read ConfigMap {namespace}/{name}", reason=_GONE
            )
        except NotFound:
            return None

    def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        name = str(body["metadata"]["name"])
        what = f"write ConfigMap {namespace}/{name}"
        if "resourceVersion" in body["metadata"]:
            return self._transport.write(self._core.replace_namespaced_config_map, name, namespace, body=body, what=what, reason=_GONE)
        return self._transport.write(self._core.create_namespaced_config_map, namespace, body=body, what=what, reason=_GONE)
