"""What one login may do at an API server, and what that server has: for `tidegate doctor`.

Nothing is stored by any of these calls: reviews of rights are answered and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from kubernetes import client

from tidegate.errors import NotFound
from tidegate.kube.client import CoreObjects, Transport
from tidegate_logic.reasons import Reason

_REASON = Reason.KUBERNETES_UNREACHABLE
_REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (`leases`, `businesstiers/status`).

    `namespace` "" = in the whole cluster; `name` "" = on every object.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}"


class Login:
    """The login of an API client.

    Every call is bounded in time, raises tidegate.errors, and may come from several threads.
    """

    def __init__(self, api_client: client.ApiClient) -> None:
        self._api_client = api_client
        self._objects = client.CustomObjectsApi(api_client)
        self._transport = Transport()
        self._date = ""

    @property
    def server_seconds(self) -> float | None:
        """The server's clock in the last answer, half a second late at most; None without one."""
        with suppress(TypeError, ValueError):
            return parsedate_to_datetime(self._date).timestamp() + 0.5
        return None

    def version(self) -> str:
        """The server's version, such as v1.34.1."""
        answer = self._read(CoreObjects(self._api_client).version, what="ask its version")
        return str(answer.get("gitVersion", "of an unknown version"))

    def user(self) -> str:
        """The name by which the server knows this login; "" where it cannot tell (before 1.28)."""
        try:
            answer = self._read(
                self._objects.create_cluster_custom_object,
                "authentication.k8s.io",
                "v1",
                "selfsubjectreviews",
                what="ask who it is",
                body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            )
        except NotFound:
            return ""
        return str(answer["status"]["userInfo"].get("username", ""))

    def served(self, group: str, version: str) -> frozenset[str]:
        """The plural names of what the server serves of a group's version; empty = not known."""
        try:
            answer = self._read(
                self._objects.get_api_resources,
                group,
                version,
                what=f"list what is served of {group}",
            )
        except NotFound:
            return frozenset()
        return frozenset(one["name"] for one in answer["resources"] if "/" not in one["name"])

    def may(self, right: Right) -> bool:
        """Whether the server would let this login do it."""
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
            "namespace": right.namespace,
            "name": right.name,
        }
        answer = self._read(
            self._objects.create_cluster_custom_object,
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
            what=f"ask whether it may {right}",
            body={**_REVIEW, "spec": {"resourceAttributes": attributes}},
        )
        return bool(answer["status"].get("allowed"))

    def close(self) -> None:
        """Close its connections."""
        self._api_client.close()

    def _read(self, call: Callable[..., Any], *args: str, what: str, **parameters: Any) -> Any:
        def noting(*arguments: str, **options: Any) -> Any:
            response = call(*arguments, **options)
            self._date = response.headers.get("Date", "")
            return response

        return self._transport.read(noting, *args, what=what, reason=_REASON, **parameters)
