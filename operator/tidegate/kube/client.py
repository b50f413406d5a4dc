"""The real Kubernetes, through the official client: what Tidegate reads and writes of custom resources, Secrets, Events and Leases.
Jobs and ConfigMaps are in `jobs`.

One request a method, but for lists (in chunks) and finalizers (read, then change with a test). How a request fails is the business of
`transport` and `failures`; what Events and Leases look like is in `records`.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kubernetes import client

from controller_logic.reasons import Reason
from tidegate.errors import Conflict, Incomplete, InvalidResource, NotFound
from tidegate.kube.api import Event, JsonObject, LeaseRecord, Listing, ObjectRef, ResourceKind, Secret
from tidegate.kube.jobs import JobCalls
from tidegate.kube.records import event_body, lease_body, lease_record
from tidegate.kube.transport import Transport, connect

CHUNK_SIZE = 500
LIST_TIMEOUT_SECONDS = 60.0

_EVENTS = ("events.k8s.io", "v1")
_LEASES = ("coordination.k8s.io", "v1")
_FINALIZER_ATTEMPTS = 4
# What it means for the control pass that something is gone or came in part: what it knows of the custom resources is not what there is.
_NOT_AS_LISTED = Reason.LIST_INCOMPLETE
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"


class KubernetesClient(JobCalls):
    """Implements `api.Kubernetes`. `identity` names this process in the Events it posts. Safe for several threads."""

    def __init__(
        self,
        api_client: client.ApiClient,
        identity: str,
        *,
        transport: Transport | None = None,
        chunk_size: int = CHUNK_SIZE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # The interface for custom objects serves every named API group, so Leases and Events go through it as JSON too: the typed models
        # write a whole second without its microseconds, which the server refuses.
        self._objects = client.CustomObjectsApi(api_client)
        self._core = client.CoreV1Api(api_client)
        self._api_client = api_client
        self._identity = identity
        self._transport = transport or Transport()
        self._chunk_size = chunk_size
        self._monotonic = monotonic

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Path | None = None, context: str | None = None, *, identity: str = "") -> Self:
        """A client for the cluster this process runs in, or for the one a kubeconfig names; see `transport.connect`.

        `identity` defaults to the host's name, which in a cluster is the Pod's. It connects with the first request.
        """
        return cls(connect(kubeconfig, context), identity or socket.gethostname())

    def close(self) -> None:
        """Close its connections; a call under way in another thread may fail."""
        self._api_client.close()

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        deadline = self._monotonic() + LIST_TIMEOUT_SECONDS
        places: Sequence[str | None] = namespaces or [None]
        try:
            pages = [page for place in places for page in self._pages(kind, place, deadline=deadline)]
        except NotFound as missing:
            raise NotFound(
                _NOT_AS_LISTED,
                f"Kubernetes does not serve {kind.plural} of {kind.api_version}. Install the custom resources (`kubectl apply -f crds/`); "
                "until then Tidegate changes nothing.",
            ) from missing
        items = tuple(item for page in pages for item in page["items"])
        return Listing(items, resource_version=pages[0]["metadata"]["resourceVersion"])

    def get(self, ref: ObjectRef) -> JsonObject:
        found = self._transport.read(self._objects.get_namespaced_custom_object, *_address(ref), what=f"read {ref}", reason=_NOT_AS_LISTED)
        if found["metadata"]["uid"] != ref.uid:
            raise NotFound(_NOT_AS_LISTED, f"{ref} was deleted; another object has taken its name.")
        return found

    def patch_status(self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str) -> JsonObject:
        body = {"metadata": {"uid": ref.uid, "resourceVersion": resource_version}, "status": patch}
        return self._transport.write(
            self._objects.patch_namespaced_custom_object_status,
            *_address(ref),
            body=body,
            _content_type=_MERGE_PATCH,
            # A server with older CRDs drops what it does not know; by default it would also send a warning header for every such field
            # of every member, and Python reads no answer of more than 100 headers. The status writer notices what was dropped.
            field_validation="Ignore",
            what=f"write the status of {ref}",
            reason=_NOT_AS_LISTED,
        )

    def add_finalizer(self, ref: ObjectRef, finalizer: str) -> JsonObject:
        def addition(metadata: JsonObject) -> JsonObject | None:
            present = metadata.get("finalizers") or []
            if finalizer in present or "deletionTimestamp" in metadata:
                return None
            if not present:
                return {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}
            return {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}

        return self._change_finalizers(ref, addition)

    def remove_finalizer(self, ref: ObjectRef, finalizer: str) -> None:
        def removal(metadata: JsonObject) -> JsonObject | None:
            present = metadata.get("finalizers") or []
            if finalizer not in present:
                return None
            return {"op": "remove", "path": f"/metadata/finalizers/{present.index(finalizer)}"}

        with contextlib.suppress(NotFound):  # gone already, which is what removing it is for
            self._change_finalizers(ref, removal)

    def read_secret(self, namespace: str, name: str) -> Secret:
        found = self._transport.read(
            self._core.read_namespaced_secret, name, namespace, what=f"read Secret {namespace}/{name}", reason=Reason.SECRET_UNREADABLE
        )
        return Secret(namespace, name, {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()})

    def create_event(self, event: Event) -> None:
        self._transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_EVENTS, event.regarding.namespace, "events"),
            body=event_body(event, reporting_instance=self._identity, now=time.time()),
            what=f"post the event {event.reason} for {event.regarding}",
            reason=_NOT_AS_LISTED,
        )

    def read_lease(self, namespace: str, name: str) -> LeaseRecord | None:
        try:
            found = self._transport.read(
                self._objects.get_namespaced_custom_object,
                *(*_LEASES, namespace, "leases", name),
                what=f"read Lease {namespace}/{name}",
                reason=_NOT_AS_LISTED,
            )
        except NotFound:
            return None
        return lease_record(found)

    def create_lease(self, lease: LeaseRecord) -> LeaseRecord:
        made = self._transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_LEASES, lease.namespace, "leases"),
            body=lease_body(lease),
            what=f"create Lease {lease.namespace}/{lease.name}",
            reason=_NOT_AS_LISTED,
        )
        return lease_record(made)

    def replace_lease(self, lease: LeaseRecord) -> LeaseRecord:
        try:
            replaced = self._transport.write(
                self._objects.replace_namespaced_custom_object,
                *(*_LEASES, lease.namespace, "leases", lease.name),
                body=lease_body(lease),
                what=f"replace Lease {lease.namespace}/{lease.name}",
                reason=_NOT_AS_LISTED,
            )
        except NotFound as gone:
            raise Conflict(gone.message) from gone
        return lease_record(replaced)

    def _pages(self, kind: ResourceKind, namespace: str | None, *, deadline: float) -> list[JsonObject]:
        pages = [self._page(kind, namespace, position=None)]
        while position := pages[-1]["metadata"].get("continue"):
            if self._monotonic() > deadline:
                raise Incomplete(_NOT_AS_LISTED, f"{_unfinished(kind, len(pages))} The list is not used; it is read again.")
            pages.append(self._page(kind, namespace, position=position))
        return pages

    def _page(self, kind: ResourceKind, namespace: str | None, *, position: str | None) -> JsonObject:
        parameters: dict[str, Any] = {"limit": self._chunk_size}
        if position is not None:
            parameters["_continue"] = position
        call, place = self._objects.list_cluster_custom_object, [kind.group, kind.version, kind.plural]
        if namespace is not None:
            call, place = self._objects.list_namespaced_custom_object, [kind.group, kind.version, namespace, kind.plural]
        return self._transport.read(call, *place, **parameters, what=f"list {kind.plural}.{kind.group}", reason=_NOT_AS_LISTED)

    def _change_finalizers(self, ref: ObjectRef, change: Callable[[JsonObject], JsonObject | None]) -> JsonObject:
        """Apply the operation that `change` makes of the metadata (None = nothing to do), unless the finalizers changed meanwhile."""
        for attempts_left in reversed(range(_FINALIZER_ATTEMPTS)):
            found = self.get(ref)
            operation = change(found["metadata"])
            if operation is None:
                return found
            unchanged = {"op": "test", "path": "/metadata/finalizers", "value": found["metadata"].get("finalizers")}
            try:
                return self._patch_json(ref, [{"op": "test", "path": "/metadata/uid", "value": ref.uid}, unchanged, operation])
            except (InvalidResource, Conflict):
                # A failed test comes back as 422, just as a finalizer that the server does not like: reading again tells.
                if not attempts_left:
                    raise
        raise AssertionError("the last attempt either returns or raises")

    def _patch_json(self, ref: ObjectRef, operations: list[JsonObject]) -> JsonObject:
        return self._transport.write(
            self._objects.patch_namespaced_custom_object,
            *_address(ref),
            body=operations,
            _content_type=_JSON_PATCH,
            what=f"change the finalizers of {ref}",
            reason=_NOT_AS_LISTED,
        )


def _address(ref: ObjectRef) -> tuple[str, str, str, str, str]:
    return ref.kind.group, ref.kind.version, ref.namespace, ref.kind.plural, ref.name


def _unfinished(kind: ResourceKind, page_count: int) -> str:
    return f"Kubernetes had sent {page_count} pages of {kind.plural} after {LIST_TIMEOUT_SECONDS:g} s and had not come to the end."
