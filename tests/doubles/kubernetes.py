"""An in-memory double of an API server, for tests of everything above this adapter; it passes the
contract tests of the real one.

It has uids, resource versions that move only when something changed, generations that move with the
spec, the status subresource, finalizers and deletion. It has no schemas, no defaults, no rights and
no watches. A person with kubectl is `create`, `edit`, `delete` and `put_secret`; an outage is
`fail_with`.
"""

from __future__ import annotations

import itertools
import marshal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from tidegate.errors import Conflict, InvalidResource, NotFound, TidegateError, Unauthorized
from tidegate.kube import status
from tidegate.kube.api import (
    Event,
    JsonObject,
    LeaseRecord,
    Listing,
    ObjectRef,
    ResourceKind,
    Secret,
)
from tidegate.kube.client import lease_body, lease_record
from tidegate_logic.reasons import Reason

Json = TypeVar("Json")


def copied(value: Json) -> Json:
    """A JSON value that shares nothing with this one; many times as fast as `copy.deepcopy`."""
    try:  # the second version keeps no parts shared
        return marshal.loads(marshal.dumps(value, 2))  # type: ignore[no-any-return]
    except ValueError:  # something besides plain values is in it
        return _copied(value)


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [_copied(part) for part in value]  # type: ignore[return-value]
    return value


# Nothing runs here: a test ends a Job with `finish_job`.


class MemoryJobs:
    """The part of `InMemoryKubernetes` that keeps Jobs and ConfigMaps."""

    _versions: Iterator[int]

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        self._jobs: dict[tuple[str, str], JsonObject] = {}
        self._config_maps: dict[tuple[str, str], JsonObject] = {}

    def _answering(self) -> threading.RLock:
        raise NotImplementedError

    def finish_job(
        self,
        namespace: str,
        name: str,
        *,
        condition: str,
        at: str = "2026-01-01T01:00:00Z",
        message: str = "",
    ) -> None:
        """Let the Job end, `condition` Complete or Failed, as its controller would."""
        ended = {
            "type": condition,
            "status": "True",
            "lastTransitionTime": at,
            "reason": "Test",
            "message": message,
        }
        self._jobs[namespace, name]["status"] = {"conditions": [ended]} | (
            {"completionTime": at} if condition == "Complete" else {}
        )

    def list_jobs(self, namespace: str, *, selector: str) -> list[JsonObject]:
        wanted = dict(part.split("=", 1) for part in selector.split(","))
        with self._answering():
            here = [job for (place, _), job in self._jobs.items() if place == namespace]
            return [
                copied(job)
                for job in here
                if wanted.items() <= (job["metadata"].get("labels") or {}).items()
            ]

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            key = (namespace, str(body["metadata"]["name"]))
            if key in self._jobs:
                raise Conflict(f"Job {namespace}/{key[1]} exists already.")
            self._jobs[key] = self._named(body)
            return copied(self._jobs[key])

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        with self._answering():
            found = self._jobs.get((namespace, name))
            if found is not None and found["metadata"]["uid"] == uid:
                del self._jobs[namespace, name]

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        with self._answering():
            return copied(self._config_maps.get((namespace, name)))

    def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            key = (namespace, str(body["metadata"]["name"]))
            present, over = self._config_maps.get(key), body["metadata"].get("resourceVersion")
            if present is None and over is not None:
                raise NotFound(
                    Reason.ROLLUPS_UNSEEN, f"ConfigMap {namespace}/{key[1]} does not exist."
                )
            if present is not None and present["metadata"]["resourceVersion"] != over:
                raise Conflict(f"ConfigMap {namespace}/{key[1]} has changed meanwhile.")
            self._config_maps[key] = self._named(body)
            return copied(self._config_maps[key])

    def _named(self, body: Mapping[str, Any]) -> JsonObject:
        made = copied(dict(body))
        made["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": str(next(self._versions))}
        return made


# It knows no fields: what an object has beside an applied body is what its controller put there.


class MemoryManaged:
    """The part of `InMemoryKubernetes` that keeps Deployments and PodDisruptionBudgets."""

    _versions: Iterator[int]

    def __init__(self) -> None:
        self._managed: dict[tuple[ResourceKind, str, str], JsonObject] = {}

    def _answering(self) -> threading.RLock:
        raise NotImplementedError

    def edit_managed(
        self, kind: ResourceKind, namespace: str, name: str, change: Callable[[JsonObject], object]
    ) -> None:
        """Let a controller or a person alter the object; a new spec gets a new generation."""
        present = self._managed[kind, namespace, name]
        before = copied(present.get("spec"))
        change(present)
        present["metadata"]["resourceVersion"] = str(next(self._versions))
        present["metadata"]["generation"] += present.get("spec") != before

    def read_managed(self, kind: ResourceKind, namespace: str, name: str) -> JsonObject | None:
        with self._answering():
            return copied(self._managed.get((kind, namespace, name)))

    def apply_managed(self, kind: ResourceKind, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            metadata = body["metadata"]
            key = (kind, str(metadata["namespace"]), str(metadata["name"]))
            present = self._managed.get(key)
            made = copied(dict(body))
            before: dict[str, Any] = (
                {"uid": str(uuid.uuid4()), "generation": 0, "resourceVersion": ""}
                if present is None
                else present["metadata"]
            )
            is_new = present is None or present["spec"] != made["spec"]
            made["metadata"] = {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **before,
                **made["metadata"],
                "generation": before["generation"] + is_new,
                "resourceVersion": str(next(self._versions)),
            }
            if present is not None and "status" in present:
                made["status"] = present["status"]
            self._managed[key] = made
            return copied(made)

    def delete_managed(self, kind: ResourceKind, namespace: str, name: str, *, uid: str) -> None:
        with self._answering():
            found = self._managed.get((kind, namespace, name))
            if found is not None and found["metadata"]["uid"] == uid:
                del self._managed[kind, namespace, name]


_Key = tuple[ResourceKind, str, str]
# hears of every change: "PUT" or "DELETED", the kind, and the object after it
Watcher = Callable[[str, ResourceKind, JsonObject], None]


class InMemoryKubernetes(MemoryJobs, MemoryManaged):
    """Implements `api.Kubernetes` over dictionaries; safe for several threads. `events` holds what
    was posted, oldest first.
    """

    def __init__(
        self,
        *,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        created_at: Callable[[], str] = lambda: "2026-01-01T00:00:00Z",
        watcher: Watcher = lambda *_: None,
    ) -> None:
        MemoryJobs.__init__(self)
        MemoryManaged.__init__(self)
        self.events: list[Event] = []
        self._new_uid = new_uid
        self._created_at = created_at
        self._watcher = watcher
        self._terminating: set[str] = set()
        self._objects: dict[_Key, JsonObject] = {}
        self._secrets: dict[tuple[str, str], Secret] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._claims: dict[tuple[str, str], dict[str, str]] = {}
        self._leases: dict[tuple[str, str], LeaseRecord] = {}
        self._failure: TidegateError | None = None
        self._refused_lists: dict[ResourceKind, TidegateError] = {}
        self._lock = threading.RLock()

    # --- what people and outages do
    # ----------------------------------------------------------------------------------

    def fail_with(self, error: TidegateError | None) -> None:
        """From now on every call of the protocol raises `error`; None ends the outage."""
        self._failure = error

    def refuse_lists(self, kind: ResourceKind, error: TidegateError | None) -> None:
        """From now on lists of this kind raise `error`; None ends that."""
        if error is None:
            self._refused_lists.pop(kind, None)
        else:
            self._refused_lists[kind] = error

    def create(self, kind: ResourceKind, obj: Mapping[str, Any]) -> JsonObject:
        """See api.Kubernetes; people and tests create with it, too. A status is dropped."""
        with self._answering():
            made = copied(dict(obj))
            made.pop("status", None)
            made |= {"apiVersion": kind.api_version, "kind": kind.kind}
            made["metadata"] |= {
                "uid": self._new_uid(),
                "generation": 1,
                "creationTimestamp": self._created_at(),
            }
            key = (kind, made["metadata"]["namespace"], made["metadata"]["name"])
            self._require_live(key[1])
            if key in self._objects:
                raise Conflict(f"{kind.kind} {key[1]}/{key[2]} exists already.")
            return self._store(key, made)

    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject:
        """Let `change` alter a copy of the object, as `kubectl edit` would; changes to the status
        are dropped.
        """
        with self._lock:
            before = self._present(ref)
            after = copied(before)
            change(after)
            after.pop("status", None)
            if "status" in before:
                after["status"] = before["status"]
            if after.get("spec") != before.get("spec"):
                after["metadata"]["generation"] += 1
            return self._settle(ref, before, after)

    def delete(self, ref: ObjectRef) -> None:
        """Delete the object: at once, or when its last finalizer is taken off."""

        def mark(obj: JsonObject) -> None:
            obj["metadata"].setdefault("deletionTimestamp", "2026-01-02T00:00:00Z")

        with self._lock:
            self.edit(ref, mark)

    def put_secret(
        self,
        namespace: str,
        name: str,
        data: Mapping[str, bytes],
        labels: Mapping[str, str] = MappingProxyType({"tidegate.io/credentials": "true"}),
    ) -> None:
        """Create or replace a Secret; without `labels` it is one that policies may use."""
        self._secrets[namespace, name] = Secret(namespace, name, dict(data), dict(labels))

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Create or replace a namespace. Objects may live in one that was never created."""
        self._namespaces[name] = {"kubernetes.io/metadata.name": name, **labels}

    def put_claim(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """Create or replace a PersistentVolumeClaim."""
        self._claims[namespace, name] = dict(labels)

    def remove_lease(self, namespace: str, name: str) -> None:
        """Delete the Lease, if it is there, as `kubectl delete` would."""
        self._leases.pop((namespace, name), None)

    def delete_namespace(self, namespace: str) -> None:
        """Do what the namespace's controller does: from now on nothing can be made in it, and what
        is in it is deleted, Leases and Secrets at once, objects with a finalizer when that goes.
        """
        self._terminating.add(namespace)
        for kept in (self._leases, self._secrets, self._jobs, self._config_maps):
            for key in [key for key in kept if key[0] == namespace]:
                del kept[key]
        for kind, place, name in list(self._objects):
            if place == namespace:
                self.delete(ObjectRef.of(kind, self._objects[kind, place, name]))

    def is_namespace_empty(self, namespace: str) -> bool:
        """Whether nothing is left in it, so that a namespace in deletion is gone."""
        return not any(place == namespace for _, place, _ in self._objects)

    def create_namespace(self, namespace: str) -> None:
        """Make it again, once it is gone."""
        if not self.is_namespace_empty(namespace):
            raise Conflict(f"Namespace {namespace} is still being deleted.")
        self._terminating.discard(namespace)

    # --- the protocol
    # ------------------------------------------------------------------------------------------------

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        with self._answering():
            if kind in self._refused_lists:
                raise self._refused_lists[kind]
            found = [
                obj
                for (of, place, _), obj in self._objects.items()
                if of == kind and (not namespaces or place in namespaces)
            ]
            return Listing(tuple(copied(found)), resource_version=str(next(self._versions)))

    def get(self, ref: ObjectRef) -> JsonObject:
        with self._answering():
            return copied(self._present(ref))

    def patch_status(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str
    ) -> JsonObject:
        with self._answering():
            before = self._present(ref)
            if before["metadata"]["resourceVersion"] != resource_version:
                raise Conflict(f"{ref} has changed meanwhile.")
            after = {**before, "metadata": dict(before["metadata"])}  # what is kept never changes
            after["status"] = status.apply(copied(dict(patch)), before.get("status") or {})
            return self._settle(ref, before, after)

    def annotate(self, ref: ObjectRef, name: str, value: str | None) -> JsonObject:
        def change(obj: JsonObject) -> None:
            present = dict(obj["metadata"].get("annotations") or {})
            present.pop(name, None)
            obj["metadata"]["annotations"] = present | ({} if value is None else {name: value})

        with self._answering():
            if self._find(ref) is None and (ref.kind, ref.namespace, ref.name) in self._objects:
                raise InvalidResource(f"{ref} has another uid now.")
            return self.edit(ref, change)

    def add_finalizer(self, ref: ObjectRef, finalizer: str) -> JsonObject:
        def add(obj: JsonObject) -> None:
            present = obj["metadata"].get("finalizers") or []
            if finalizer not in present and "deletionTimestamp" not in obj["metadata"]:
                obj["metadata"]["finalizers"] = [*present, finalizer]

        with self._answering():
            return self.edit(ref, add)

    def remove_finalizer(self, ref: ObjectRef, finalizer: str) -> None:
        def remove(obj: JsonObject) -> None:
            left = [name for name in obj["metadata"].pop("finalizers", []) if name != finalizer]
            if left:
                obj["metadata"]["finalizers"] = left

        with self._answering():
            if self._find(ref) is not None:
                self.edit(ref, remove)

    def read_secret(self, namespace: str, name: str) -> Secret:
        with self._answering():
            if (namespace, name) not in self._secrets:
                raise NotFound(
                    Reason.SECRET_UNREADABLE, f"Secret {namespace}/{name} does not exist."
                )
            return self._secrets[namespace, name]

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        with self._answering():
            if name not in self._namespaces:
                raise NotFound(Reason.NAMESPACES_UNREAD, f"Namespace {name} does not exist.")
            return dict(self._namespaces[name])

    def claim_labels(self, namespace: str, name: str) -> Mapping[str, str]:
        with self._answering():
            if (namespace, name) not in self._claims:
                raise NotFound(
                    Reason.CLAIM_NOT_ALLOWED,
                    f"PersistentVolumeClaim {namespace}/{name} does not exist.",
                )
            return dict(self._claims[namespace, name])

    def create_event(self, event: Event) -> None:
        with self._answering():
            self._require_live(event.regarding.namespace)
            self.events.append(event)

    def read_lease(self, namespace: str, name: str) -> LeaseRecord | None:
        with self._answering():
            return self._leases.get((namespace, name))

    def create_lease(self, lease: LeaseRecord) -> LeaseRecord:
        with self._answering():
            if (lease.namespace, lease.name) in self._leases:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} exists already.")
            self._require_live(lease.namespace)
            return self._put_lease(lease)

    def replace_lease(self, lease: LeaseRecord) -> LeaseRecord:
        with self._answering():
            present = self._leases.get((lease.namespace, lease.name))
            if present is None or present.resource_version != lease.resource_version:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} has changed meanwhile.")
            return self._put_lease(lease)

    def list_leases(self, namespace: str, *, selector: str) -> list[LeaseRecord]:
        name, _, value = selector.partition("=")
        with self._answering():
            return [
                lease
                for lease in self._leases.values()
                if lease.namespace == namespace
                and name in lease.labels
                and value in ("", lease.labels[name])
            ]

    def delete_lease(self, lease: LeaseRecord) -> None:
        with self._answering():
            present = self._leases.get((lease.namespace, lease.name))
            if present is None:
                return
            if present.resource_version != lease.resource_version:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} has changed meanwhile.")
            del self._leases[lease.namespace, lease.name]

    # --- the store
    # ---------------------------------------------------------------------------------------------------

    def _answering(self) -> threading.RLock:
        if self._failure is not None:
            raise self._failure
        return self._lock

    def _require_live(self, namespace: str) -> None:
        if namespace in self._terminating:
            raise Unauthorized(
                f"Kubernetes refused it (403): unable to create new content in namespace "
                f"{namespace} because it is being terminated."
            )

    def _find(self, ref: ObjectRef) -> JsonObject | None:
        found = self._objects.get((ref.kind, ref.namespace, ref.name))
        return found if found is not None and found["metadata"]["uid"] == ref.uid else None

    def _present(self, ref: ObjectRef) -> JsonObject:
        found = self._find(ref)
        if found is None:
            raise NotFound(Reason.LIST_INCOMPLETE, f"{ref} does not exist.")
        return found

    def _settle(self, ref: ObjectRef, before: JsonObject, after: JsonObject) -> JsonObject:
        if after == before:
            return copied(before)
        key = (ref.kind, ref.namespace, ref.name)
        if "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers"):
            after["metadata"]["resourceVersion"] = str(next(self._versions))
            del self._objects[key]
            self._watcher("DELETED", ref.kind, copied(after))
            return after
        return self._store(key, after)

    def _store(self, key: _Key, obj: JsonObject) -> JsonObject:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self._objects[key] = obj
        self._watcher("PUT", key[0], copied(obj))
        return copied(obj)

    def _put_lease(self, lease: LeaseRecord) -> LeaseRecord:
        versioned = replace(lease, resource_version=str(next(self._versions)))
        # as it comes back from JSON: the times have microseconds, the labels are its own
        self._leases[lease.namespace, lease.name] = lease_record(lease_body(versioned))
        return versioned
