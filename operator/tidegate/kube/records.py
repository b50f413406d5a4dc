"""Events and Leases between our dataclasses and the JSON of Kubernetes. Pure but for an event's random name; it sends nothing.

Kubernetes wants its MicroTime with exactly six digits and a Z; a time of whole seconds without them is refused.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from tidegate.kube.api import Event, JsonObject, LeaseRecord

REPORTING_CONTROLLER = "tidegate.io/operator"

_LONGEST_NAME_STEM = 200  # with a dot and 16 digits still a valid object name


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def event_body(event: Event, *, reporting_instance: str, now: float) -> JsonObject:
    """`event` as an object of events.k8s.io/v1; kubectl shows it as it shows those of core/v1."""
    about = event.regarding
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name[:_LONGEST_NAME_STEM]}.{secrets.token_hex(8)}", "namespace": about.namespace},
        "regarding": {
            "apiVersion": about.kind.api_version,
            "kind": about.kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "eventTime": micro_time(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": reporting_instance,
        "action": "Reconcile",
        "type": event.type,
        "reason": event.reason,
        "note": event.note,
    }


def lease_body(lease: LeaseRecord) -> JsonObject:
    """`lease` as an object of coordination.k8s.io/v1; with its resource version, if it has one, for compare-and-set."""
    metadata = {"name": lease.name, "namespace": lease.namespace}
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": lease.duration_seconds,
            "leaseTransitions": lease.transitions,
            "acquireTime": micro_time(lease.acquired_at),
            "renewTime": micro_time(lease.renewed_at),
        },
    }


def lease_record(body: JsonObject) -> LeaseRecord:
    """The Lease in `body`; what it does not say is "", 0 or the epoch."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    return LeaseRecord(
        namespace=metadata["namespace"],
        name=metadata["name"],
        holder=spec.get("holderIdentity") or "",
        duration_seconds=spec.get("leaseDurationSeconds") or 0,
        transitions=spec.get("leaseTransitions") or 0,
        acquired_at=_seconds(spec.get("acquireTime")),
        renewed_at=_seconds(spec.get("renewTime")),
        resource_version=metadata["resourceVersion"],
    )


def _seconds(micro_time_text: str | None) -> float:
    return datetime.fromisoformat(micro_time_text).timestamp() if micro_time_text else 0.0
