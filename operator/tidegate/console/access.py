"""Who looks, and what they may see: TokenReview and SubjectAccessReview of the API server.

A viewer sees the objects that their own rights let them list, kind by kind and namespace by
namespace; nothing of others is sent. Nothing is stored by these calls: a review is answered and
forgotten. Answers are kept for a minute, so that a right that is taken away counts soon.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubernetes import client

from tidegate.kube.api import ResourceKind
from tidegate.kube.client import Transport
from tidegate_logic.reasons import Reason

_KEPT_SECONDS: Final = 60.0
_MOST_KEPT: Final = 10_000
_LONGEST_TOKEN: Final = 16_384
_REASON: Final = Reason.KUBERNETES_UNREACHABLE


class Refused(Exception):
    """There is no token, or the API server does not know whose it is. `str()` is for people."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody whom the API server knows, as it names them."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)


class Access:
    """Asks the API server. Calls may come from several threads; all raise from tidegate.errors."""

    def __init__(
        self,
        api_client: client.ApiClient,
        *,
        audiences: Sequence[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = client.CustomObjectsApi(api_client)
        self._transport = Transport()
        self._audiences = list(audiences)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._viewers: dict[str, tuple[float, Viewer | None]] = {}
        self._rights: dict[tuple[str, str, str], tuple[float, bool]] = {}

    def viewer(self, token: str | None) -> Viewer:
        """Whose token it is. Raises Refused."""
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            raise Refused("Log in with a token of this Kubernetes cluster.")
        # the token itself is kept nowhere but in the session
        key = hashlib.sha256(token.encode()).hexdigest()
        known = self._known(self._viewers, key)
        if known is None:
            known = self._review(token)
            self._keep(self._viewers, key, known)
        found = known[0]
        if found is None:
            raise Refused("This token is not valid any more, or is not of this Kubernetes cluster.")
        return found

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        """Whether the viewer may list objects of this kind in the namespace."""
        key = (f"{viewer.username}\0{viewer.uid}", kind.plural, namespace)
        known = self._known(self._rights, key)
        if known is None:
            known = (self._may_list(viewer, kind, namespace),)
            self._keep(self._rights, key, known)
        return bool(known[0])

    def _review(self, token: str) -> tuple[Viewer | None]:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = self._transport.read(
            self._objects.create_cluster_custom_object,
            "authentication.k8s.io",
            "v1",
            "tokenreviews",
            what="ask whose token it is",
            reason=_REASON,
            body=body,
        )
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return (None,)
        user = status.get("user") or {}
        return (
            Viewer(
                str(user.get("username", "")),
                str(user.get("uid", "")),
                tuple(user.get("groups") or ()),
                user.get("extra") or {},
            ),
        )

    def _may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        attributes = {
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "verb": "list",
            "namespace": namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": viewer.username,
                "uid": viewer.uid,
                "groups": list(viewer.groups),
                "extra": {name: list(values) for name, values in viewer.extra.items()},
                "resourceAttributes": attributes,
            },
        }
        answer = self._transport.read(
            self._objects.create_cluster_custom_object,
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            what="ask what the viewer may see",
            reason=_REASON,
            body=body,
        )
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")

    def _known(self, kept: Mapping[Any, tuple[float, Any]], key: object) -> tuple[Any] | None:
        with self._lock:
            found = kept.get(key)
        if found is None or self._monotonic() - found[0] > _KEPT_SECONDS:
            return None
        return (found[1],)

    def _keep(self, kept: dict[Any, tuple[float, Any]], key: object, value: tuple[Any]) -> None:
        with self._lock:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = (self._monotonic(), value[0])
