"""An in-memory double of an API server, for tests of everything above this adapter; it passes the
contract tests of the real one.

It has uids, resource versions that move only when something changed, generations that move with the
spec, the status subresource, finalizers and deletion. It has no schemas, no defaults, no rights and
no watches. A person with kubectl is `create`, `edit`, `delete` and `put_secret`; an outage is
`fail_with`.
"""

from __future__ import annotations

import copy
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller_logic.reasons import Reason
from tidegate.errors import Conflict, NotFound, TidegateError
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
                copy.deepcopy(job)
                for job in here
                if wanted.items() <= (job["metadata"].get("labels") or {}).items()
            ]

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            key = (namespace, str(body["metadata"]["name"]))
            if key in self._jobs:
                raise Conflict(f"Job {namespace}/{key[1]} exists already.")
            self._jobs[key] = self._named(body)
            return copy.deepcopy(self._jobs[key])

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        with self._answering():
            found = self._jobs.get((namespace, name))
            if found is not None and found["metadata"]["uid"] == uid:
                del self._jobs[namespace, name]

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        with self._answering():
            return copy.deepcopy(self._config_maps.get((namespace, name)))

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
            return copy.deepcopy(self._config_maps[key])

    def _named(self, body: Mapping[str, Any]) -> JsonObject:
        made = copy.deepcopy(dict(body))
        made["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": str(next(self._versions))}
        return made


_Key = tuple[ResourceKind, str, str]


class InMemoryKubernetes(MemoryJobs):
    """Implements `api.Kubernetes` over dictionaries; safe for several threads. `events` holds what
    was posted, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._objects: dict[_Key, JsonObject] = {}
        self._secrets: dict[tuple[str, str], Secret] = {}
        self._leases: dict[tuple[str, str], JsonObject] = {}
        self._failure: TidegateError | None = None
        self._lock = threading.RLock()

    # --- what people and outages do
    # ----------------------------------------------------------------------------------

    def fail_with(self, error: TidegateError | None) -> None:
        """From now on every call of the protocol raises `error`; None ends the outage."""
        self._failure = error

    def create(self, kind: ResourceKind, obj: Mapping[str, Any]) -> JsonObject:
        """Create `obj`, whose metadata names it and its namespace; its status, if any, is
        dropped.
        """
        with self._lock:
            made = copy.deepcopy(dict(obj))
            made.pop("status", None)
            made |= {"apiVersion": kind.api_version, "kind": kind.kind}
            made["metadata"] |= {
                "uid": str(uuid.uuid4()),
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            key = (kind, made["metadata"]["namespace"], made["metadata"]["name"])
            if key in self._objects:
                raise Conflict(f"{kind.kind} {key[1]}/{key[2]} exists already.")
            return self._store(key, made)

    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject:
        """Let `change` alter a copy of the object, as `kubectl edit` would; changes to the status
        are dropped.
        """
        with self._lock:
            before = self._present(ref)
            after = copy.deepcopy(before)
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

    def put_secret(self, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
        """Create or replace a Secret."""
        self._secrets[namespace, name] = Secret(namespace, name, dict(data))

    # --- the protocol
    # ------------------------------------------------------------------------------------------------

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        with self._answering():
            found = [
                obj
                for (of, place, _), obj in self._objects.items()
                if of == kind and (not namespaces or place in namespaces)
            ]
            return Listing(tuple(copy.deepcopy(found)), resource_version=str(next(self._versions)))

    def get(self, ref: ObjectRef) -> JsonObject:
        with self._answering():
            return copy.deepcopy(self._present(ref))

    def patch_status(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str
    ) -> JsonObject:
        with self._answering():
            before = self._present(ref)
            if before["metadata"]["resourceVersion"] != resource_version:
                raise Conflict(f"{ref} has changed meanwhile.")
            after = copy.deepcopy(before)
            after["status"] = status.apply(copy.deepcopy(dict(patch)), before.get("status") or {})
            return self._settle(ref, before, after)

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

    def create_event(self, event: Event) -> None:
        with self._answering():
            self.events.append(event)

    def read_lease(self, namespace: str, name: str) -> LeaseRecord | None:
        with self._answering():
            body = self._leases.get((namespace, name))
            return None if body is None else lease_record(body)

    def create_lease(self, lease: LeaseRecord) -> LeaseRecord:
        with self._answering():
            if (lease.namespace, lease.name) in self._leases:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} exists already.")
            return self._put_lease(lease)

    def replace_lease(self, lease: LeaseRecord) -> LeaseRecord:
        with self._answering():
            present = self._leases.get((lease.namespace, lease.name))
            if present is None or present["metadata"]["resourceVersion"] != lease.resource_version:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} has changed meanwhile.")
            return self._put_lease(lease)

    def list_leases(self, namespace: str, *, selector: str) -> list[LeaseRecord]:
        name, _, value = selector.partition("=")
        with self._answering():
            found = [lease_record(body) for body in self._leases.values()]
            return [
                lease
                for lease in found
                if lease.namespace == namespace
                and name in lease.labels
                and value in ("", lease.labels[name])
            ]

    def delete_lease(self, lease: LeaseRecord) -> None:
        with self._answering():
            present = self._leases.get((lease.namespace, lease.name))
            if present is None:
                return
            if present["metadata"]["resourceVersion"] != lease.resource_version:
                raise Conflict(f"Lease {lease.namespace}/{lease.name} has changed meanwhile.")
            del self._leases[lease.namespace, lease.name]

    # --- the store
    # ---------------------------------------------------------------------------------------------------

    def _answering(self) -> threading.RLock:
        if self._failure is not None:
            raise self._failure
        return self._lock

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
            return copy.deepcopy(before)
        key = (ref.kind, ref.namespace, ref.name)
        stored = self._store(key, after)
        if "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers"):
            del self._objects[key]
        return stored

    def _store(self, key: _Key, obj: JsonObject) -> JsonObject:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self._objects[key] = obj
        return copy.deepcopy(obj)

    def _put_lease(self, lease: LeaseRecord) -> LeaseRecord:
        versioned = replace(lease, resource_version=str(next(self._versions)))
        self._leases[lease.namespace, lease.name] = lease_body(versioned)
        return versioned
