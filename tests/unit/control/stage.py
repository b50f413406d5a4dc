"""A whole operator in memory: Kubernetes, ZooKeeper and leaders are doubles, and a test sets the
clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.doubles.quota_store import MemoryQuotaStore
from tidegate.control.controller import Controller
from tidegate.control.report.reporter import KubernetesPublisher, Reporter
from tidegate.control.runtime import KINDS, Clock, OperatorContext, VitalSigns
from tidegate.errors import Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ObjectRef
from tidegate.kube.cache import ResourceCache, relist
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import StatusWriter
from tidegate.metrics import Telemetry
from tidegate.observe.broker_settings import Settings as BrokersSettings
from tidegate.observe.observation import KafkaCluster, ReplicationSource
from tidegate.observe.share_groups import ShareGroupSource
from tidegate.resources.policy import MetricsSource
from tidegate.settings import Settings
from tidegate_logic.model import (
    BrokerLimits,
    Entity,
    InSync,
    QuotaKey,
    Readings,
    TopicLeaders,
    Topology,
)
from tidegate_logic.reasons import Reason

ALICE = Entity(user="alice")
AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


@dataclass
class Leaders:
    """A TopologySource whose leaders a test sets; a set `error` is raised instead."""

    leaders: dict[str, dict[int, int]] = field(default_factory=lambda: {"acc": {1: 1, 2: 1, 3: 1}})
    brokers: frozenset[int] = frozenset({1, 2, 3})
    error: Exception | None = None
    in_sync: dict[str, dict[InSync, int]] = field(default_factory=dict)
    said: dict[int, dict[str, str]] = field(default_factory=dict)  # settings by broker
    refuse: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    cluster_id: str | None = "memory-cluster"

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        if self.error is not None:
            raise self.error
        topics = {
            name: TopicLeaders(
                spread, in_sync=tuple(self.in_sync.get(name, {}).items()) if with_in_sync else ()
            )
            for name, spread in self.leaders.items()
            if name in patterns
        }
        return Topology(0.0, self.brokers, topics, self.cluster_id)

    def settings(self, brokers: Collection[int], names: Collection[str]) -> BrokersSettings:
        return {
            broker: {}
            if broker in self.refuse
            else {"quota.window.num": "11", **self.said.get(broker, {})}
            for broker in brokers
            if broker not in self.silent
        }

    def close(self) -> None:
        pass


class Metrics:
    """A MetricsWatch with the readings of the test, where the policy names metrics."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def latest(
        self,
        spec: MetricsSource | None,
        _: Collection[int] | None,
        __: BrokerLimits | None = None,
        *,
        background: bool = False,
    ) -> Readings | None:
        return self._stage.readings if spec is not None else None

    def close(self) -> None:
        pass


@dataclass
class Stage:
    """One operator process and the world around it. `restart` forgets all that a process keeps in
    memory.
    """

    kubernetes: Any = field(default_factory=InMemoryKubernetes)
    store: Any = field(default_factory=lambda: MemoryQuotaStore(topics=["acc"]))
    leaders: Leaders = field(default_factory=Leaders)
    now: float = 1_000_000.0
    may_write: bool = True
    report_beside: bool = False
    readings: Readings | None = None
    identity: str = "operator"
    lease_namespace: str = ""
    replication: ReplicationSource | None = None
    share_groups: ShareGroupSource | None = None
    set_back_seconds: float = 0.0  # the wall clock alone

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        clock = Clock(wall=lambda: self.now - self.set_back_seconds, monotonic=lambda: self.now)
        self.telemetry = Telemetry()
        self.cache = ResourceCache(lambda _: None, monotonic=lambda: self.now)
        writer = StatusWriter(self.kubernetes, wall=lambda: self.now)
        recorder = EventRecorder(self.kubernetes, monotonic=lambda: self.now)
        publisher = KubernetesPublisher(
            writer, recorder, cache=self.cache, telemetry=self.telemetry
        )
        self.world = OperatorContext(
            Settings(identity=self.identity, lease_namespace=self.lease_namespace), clock, self.kubernetes, self.cache, Reporter(publisher), self.telemetry,
            VitalSigns(clock.monotonic, 120.0), lambda *_, **__: KafkaCluster("zk:2181", self.store, self.leaders, replication=self.replication, share_groups=self.share_groups),
            self.report_beside,
        )  # fmt: skip
        self.controllers: dict[str, Controller] = {}

    def run(self, name: str = "orders", *, relisted: bool = True) -> float:
        """One pass over the policy, on fresh lists."""
        if relisted:
            for kind in KINDS:
                relist(self.cache, self.kubernetes, kind)
        key = f"streaming/{name}"
        if key not in self.controllers:
            self.controllers[key] = Controller(
                key, self.world, may_write=lambda: self.may_write, wake=lambda _: None
            )
            self.controllers[key]._metrics = Metrics(self)  # type: ignore[assignment]  # the real one has a thread
        return self.controllers[key].pass_once()

    def run_past_grace(self) -> None:
        """The passes that look while a quota waits, up to the one that restores it."""
        for _ in range(2):
            self.now += 15
            self.run()

    def policy(
        self,
        name: str = "orders",
        *,
        created: str = "2026-01-01T00:00:00Z",
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> ObjectRef:
        kafka = {
            "bootstrapServers": "kafka:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": "zk:2181"},
        }
        metadata = {"name": name, "namespace": "streaming", "annotations": annotations or {}}
        made = self.kubernetes.create(
            BROKER_BANDWIDTH_POLICIES,
            {"metadata": metadata, "spec": {"mode": "Enforce", "kafka": kafka, **spec}},
        )
        ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)
        self.kubernetes.edit(ref, lambda raw: raw["metadata"].update(creationTimestamp=created))
        return ref

    def tier(
        self,
        name: str = "gold",
        *,
        user: str = "alice",
        rate: str = "10M",
        policy: str = "orders",
        namespace: str = "streaming",
    ) -> ObjectRef:
        member = {
            "name": user,
            "user": user,
            "topics": ["acc"],
            "contract": {"perPartition": {"produce": rate}},
        }
        reference = {"name": policy} | (
            {} if namespace == "streaming" else {"namespace": "streaming"}
        )
        spec = {"policyRef": reference, "level": "L0", "members": [member]}
        made = self.kubernetes.create(
            BUSINESS_TIERS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        )
        return ObjectRef.of(BUSINESS_TIERS, made)

    def produce(self, entity: Entity = ALICE) -> str | None:
        """The produce quota in ZooKeeper."""
        text: str | None = self.store.read([entity])[entity].values.get(QuotaKey.PRODUCER_BYTE_RATE)
        return text

    def condition(self, ref: ObjectRef, kind: str = "Ready") -> tuple[str, str]:
        conditions = self.kubernetes.get(ref)["status"]["conditions"]
        return next(
            (entry["status"], entry["reason"]) for entry in conditions if entry["type"] == kind
        )

    def message(self, ref: ObjectRef, kind: str = "Ready") -> str:
        conditions = self.kubernetes.get(ref)["status"]["conditions"]
        return str(next(entry["message"] for entry in conditions if entry["type"] == kind))

    def event_reasons(self) -> list[str]:
        return [event.reason for event in self.kubernetes.events]
