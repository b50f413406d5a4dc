"""What all controllers of one process share, put together once by `main.py` or by a test."""

from dataclasses import dataclass, field

from tidegate.control.audit.trail import AuditTrail, unread_trail
from tidegate.control.clock import Clock
from tidegate.control.connections import OpenCluster
from tidegate.control.metrics_watch import OpenReader
from tidegate.control.report.reporter import Reporter
from tidegate.control.vital_signs import VitalSigns
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES, JsonObject, Kubernetes, ResourceKind
from tidegate.kube.cache import ResourceCache
from tidegate.prometheus.reader import PrometheusReader
from tidegate.settings import Settings
from tidegate.telemetry import Telemetry

KINDS = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)


@dataclass(frozen=True, slots=True)
class World:
    """One process: its settings, its clock, Kubernetes, and where it tells what it does.

    `report_beside`: passes do not wait until Kubernetes has taken the report of the last one.
    """

    settings: Settings
    clock: Clock
    kubernetes: Kubernetes
    cache: ResourceCache
    reporter: Reporter
    telemetry: Telemetry
    vital_signs: VitalSigns
    open_cluster: OpenCluster
    report_beside: bool = True
    open_reader: OpenReader = PrometheusReader
    audit: AuditTrail = field(default_factory=unread_trail)

    def list_is_fresh(self, kind: ResourceKind) -> bool:
        """Whether the objects of this kind are known in full, from a list that is not too old."""
        age_seconds = self.cache.list_age_seconds(kind)
        return age_seconds is not None and age_seconds < self.settings.list_stale_after_seconds

    def policies(self) -> dict[str, JsonObject]:
        """Every known policy by namespace/name."""
        found = self.cache.snapshot(BROKER_BANDWIDTH_POLICIES)
        return {f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": raw for raw in found}
