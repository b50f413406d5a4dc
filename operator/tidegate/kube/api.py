"""The protocol of Kubernetes for the control pass.

The real client and the double of the tests implement it. The contract tests in
`tests/contract/kubernetes_contract.py` state it in full. Objects are JSON documents here;
`resources/` has the models of their fields. kopf watches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of custom resource: where the API serves it, and the name of one object."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}"


BROKER_BANDWIDTH_POLICIES = ResourceKind(
    "tidegate.io", "v1alpha1", "brokerbandwidthpolicies", "BrokerBandwidthPolicy"
)
BUSINESS_TIERS = ResourceKind("tidegate.io", "v1alpha1", "businesstiers", "BusinessTier")
QUOTA_OVERRIDES = ResourceKind("tidegate.io", "v1alpha1", "quotaoverrides", "QuotaOverride")
BANDWIDTH_BUDGETS = ResourceKind("tidegate.io", "v1alpha1", "bandwidthbudgets", "BandwidthBudget")
DELAY_QUEUES = ResourceKind("tidegate.io", "v1alpha1", "delayqueues", "DelayQueue")
DEPLOYMENTS = ResourceKind("apps", "v1", "deployments", "Deployment")
DISRUPTION_BUDGETS = ResourceKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
EVENTS = ResourceKind("events.k8s.io", "v1", "events", "Event")
PASS_ANNOTATION = "tidegate.io/pass"  # noqa: S105  # on Events: the pass that posted it


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object. The uid distinguishes it from a later one of the same name."""

    kind: ResourceKind
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: ResourceKind, obj: Mapping[str, Any]) -> ObjectRef:
        """The reference to `obj`, which came from the API server."""
        metadata = obj["metadata"]
        return cls(kind, metadata["namespace"], metadata["name"], metadata["uid"])

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Secret(Mapping[str, bytes]):
    """A Secret's decoded data.

    Its text form names no key and no value, so that no log can leak it.
    """

    namespace: str
    name: str
    _data: Mapping[str, bytes]
    labels: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> bytes:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"Secret {self.namespace}/{self.name} (contents hidden)"


@dataclass(frozen=True, slots=True)
class Listing:
    """Every object of a kind, as of `resource_version` or later.

    `resource_version` is an opaque text, that of the first namespace where several were listed.
    """

    items: tuple[JsonObject, ...]
    resource_version: str

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object, for `kubectl describe`.

    `note` has at most 1024 bytes in UTF-8, `reason` 128. `pass_id` "" = not of a control pass.
    """

    regarding: ObjectRef
    type: EventType
    reason: str
    note: str
    pass_id: str = ""


# A holder may write for 10 s after its last renewal: a call that hangs ends in time for others.
LEASE_CALL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it was read.

    `holder` "" = no one; `duration_seconds` 0 = not set. The times are the holder's clock: for
    people only.
    """

    namespace: str
    name: str
    holder: str
    duration_seconds: int
    transitions: int
    acquired_at: float
    renewed_at: float
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class Kubernetes(Protocol):
    """One API server.

    Every call is bounded in time; nothing is cached; calls may come from several threads at once.

    All calls raise from tidegate.errors: Unreachable when the server did not answer, is overloaded
    or has a fault of its own; Unauthorized when it refuses the identity or its rights; NotFound
    when the object (or, for a list, the kind) does not exist; Conflict when a compare-and-set lost
    and nothing was written; InvalidResource when the server refuses what was written;
    OutcomeUnknown when a write may or may not have happened. Only reads are tried again inside a
    call; calls for Leases end within LEASE_CALL_SECONDS, without a second try.
    """

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        """Every object of `kind` in `namespaces`, or in the whole cluster when none are named.

        Never a part of them. Raises Incomplete when the list could not be finished in time or
        expired while it was read.
        """
        ...

    def get(self, ref: ObjectRef) -> JsonObject:
        """The object as it is now. NotFound also when another object has taken the name."""
        ...

    def patch_status(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str
    ) -> JsonObject:
        """Merge `patch` into the status and return the new object.

        As in RFC 7386, None removes a key and lists are replaced. Conflict when the object is no
        longer at `resource_version`. Spec and metadata cannot be changed by this.
        """
        ...

    def annotate(self, ref: ObjectRef, name: str, value: str | None) -> JsonObject:
        """Set one annotation and return the object; all others stay. For commands only.

        None removes it. InvalidResource when another object has taken the name.
        """
        ...

    def create(self, kind: ResourceKind, obj: Mapping[str, Any]) -> JsonObject:
        """Create the object, which names its namespace, and return it. For commands only.

        Conflict when there is one of that name already.
        """
        ...

    def add_finalizer(self, ref: ObjectRef, finalizer: str) -> JsonObject:
        """Put `finalizer` on the object unless it is there, and return the object.

        Other finalizers stay. An object that is being deleted gets no new finalizer: it comes back
        as it is, with its deletionTimestamp.
        """
        ...

    def remove_finalizer(self, ref: ObjectRef, finalizer: str) -> None:
        """Take `finalizer` off the object, if both are there; other finalizers stay."""
        ...

    def read_secret(self, namespace: str, name: str) -> Secret:
        """The Secret with its values decoded; NotFound carries the reason SECRET_UNREADABLE."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; NotFound carries the reason NAMESPACES_UNREAD."""
        ...

    def claim_labels(self, namespace: str, name: str) -> Mapping[str, str]:
        """Those of a PersistentVolumeClaim; NotFound carries the reason CLAIM_NOT_ALLOWED."""
        ...

    def create_event(self, event: Event) -> None:
        """Post `event` as a new object of its own."""
        ...

    def read_lease(self, namespace: str, name: str) -> LeaseRecord | None:
        """The Lease, or None when there is none."""
        ...

    def create_lease(self, lease: LeaseRecord) -> LeaseRecord:
        """Create it and return it with its resource version; Conflict when there is one already."""
        ...

    def replace_lease(self, lease: LeaseRecord) -> LeaseRecord:
        """Replace the Lease that is still at `lease.resource_version`.

        Conflict when it has moved on or is gone.
        """
        ...

    def list_leases(self, namespace: str, *, selector: str) -> list[LeaseRecord]:
        """Every Lease in the namespace whose labels the selector (`name` or `name=value`) names."""
        ...

    def delete_lease(self, lease: LeaseRecord) -> None:
        """Delete the Lease that is still at `lease.resource_version`; one that is gone is fine.

        Conflict when it has moved on.
        """
        ...

    def list_jobs(self, namespace: str, *, selector: str) -> list[JsonObject]:
        """Every Job in the namespace whose labels the selector (`name=value,...`) names."""
        ...

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        """Create the Job and return it as the server keeps it.

        Conflict when there is one of that name already.
        """
        ...

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete the Job of that uid, if it is there, and its Pods after it."""
        ...

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        """The ConfigMap, or None when there is none."""
        ...

    def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        """Create the ConfigMap, or replace the one at the resource version of `body`.

        A `body` without a resource version is created. Conflict when another was faster.
        """
        ...

    def read_managed(self, kind: ResourceKind, namespace: str, name: str) -> JsonObject | None:
        """The Deployment or PodDisruptionBudget of this name, or None when there is none."""
        ...

    def apply_managed(self, kind: ResourceKind, body: Mapping[str, Any]) -> JsonObject:
        """Make the object so in all that `body` says, or create it; returns the object.

        What an earlier `body` said and this one does not is removed; fields of others stay.
        """
        ...

    def delete_managed(self, kind: ResourceKind, namespace: str, name: str, *, uid: str) -> None:
        """Delete the object of that uid, if it is there. It stays until what it owns is gone."""
        ...
