"""Everything real that an episode is played on: one policy with a tier for each level, a Kafka, a Prometheus and a ZooKeeper of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CoordinationV1Api, CoreV1Api, CustomObjectsApi

from controller_logic.model import Level
from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import lay_out
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.tide import CONTRACT, MB, THROTTLED, Tide, Witness
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ResourceKind

LOW, HIGH = 50 * MB, 1000 * MB


@dataclass
class Stage:
    """Everything real that the episode is played on."""

    crds: KubeApi
    api_client: ApiClient
    kafka: KafkaLab
    zookeeper: ZooKeeperLab
    prometheus: PrometheusLab
    tide: Tide
    witness: Witness
    namespace: str
    directory: Path
    operators: ExitStack
    operator: OperatorProcess | None = None

    @property
    def _objects(self) -> CustomObjectsApi:
        return CustomObjectsApi(self.api_client)

    def _place(self, kind: ResourceKind) -> tuple[str, str, str, str]:
        return kind.group, kind.version, self.namespace, kind.plural

    def create(self, kind: ResourceKind, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
        self._objects.create_namespaced_custom_object(*self._place(kind), body)

    def limit(self, bytes_per_second: int) -> None:
        body = {"spec": {"brokers": {"egress": {"limit": str(bytes_per_second)}}}}
        self._objects.patch_namespaced_custom_object(*self._place(BROKER_BANDWIDTH_POLICIES), "orders", body)

    def delete_tier(self, level: Level) -> None:
        self._objects.delete_namespaced_custom_object(*self._place(BUSINESS_TIERS), level.value.lower())

    def delete_lease(self) -> None:
        """What 12 s of silence do, which are the matter of test_replicas.py. Only for an operator that is dead."""
        CoordinationV1Api(self.api_client).delete_namespaced_lease("tidegate-orders", self.namespace)

    def status(self) -> dict[str, Any]:
        found = self._objects.get_namespaced_custom_object(*self._place(BROKER_BANDWIDTH_POLICIES), "orders")
        return dict(found.get("status") or {})

    def conditions(self) -> dict[str, dict[str, str]]:
        return {entry["type"]: entry for entry in self.status().get("conditions") or ()}

    def start_operator(self, name: str) -> None:
        self.operator = self.operators.enter_context(OperatorProcess(self.crds, self.namespace, self.directory, name=name))

    def comes(self, level: Level, rate: int | None, *, timeout_seconds: float = 90) -> None:
        what = f"{level.value} at {rate} B/s"
        wait_until(lambda: self.witness.now().get(level) == rate, what, timeout_seconds=timeout_seconds, poll_seconds=0.1)

    def moves(self, level: Level) -> None:
        """Return once the quota of this level changes."""
        stood = self.witness.now()[level]
        wait_until(lambda: self.witness.now()[level] != stood, f"a step of {level.value}", timeout_seconds=60, poll_seconds=0.05)

    def says(self, condition: str, status: str) -> None:
        told = lambda: self.conditions().get(condition, {}).get("status") == status  # noqa: E731
        wait_until(told, f"{condition}={status}", timeout_seconds=60, poll_seconds=0.3)

    def for_seconds(self, seconds: float) -> None:
        """Two steps' time, in which something would have happened."""
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= until, "time to go by", timeout_seconds=seconds + 5)


@contextmanager
def set_up(crds: KubeApi, api_client: ApiClient, kafka: KafkaLab, directory: Path) -> Iterator[Stage]:
    """The stage with everything declared and a limit that nobody reaches; operators are started by the test."""
    name = f"tide-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, assignment=[[2, 1]])
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperLab())
        client = KazooClient(zookeeper.connect, timeout=4.0)
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        lay_out(client, kafka.cluster_id)
        tide = Tide(client, {level: f"{name}-{level.value.lower()}" for level in Level})
        targets = [
            ScrapeTarget("node", stack.enter_context(exporting(partial(_page, tide, broker))).address, broker) for broker in (1, 2, 3)
        ]
        prometheus = stack.enter_context(PrometheusLab(targets))
        CoreV1Api(api_client).create_namespace({"metadata": {"name": name}})
        operators = stack.enter_context(ExitStack())
        witness = stack.enter_context(Witness(tide))
        stage = Stage(crds, api_client, kafka, zookeeper, prometheus, tide, witness, name, directory, operators)
        _declare(stage)
        yield stage


def _page(tide: Tide, broker: int, _: int) -> str:
    return tide.page(broker)


def _declare(stage: Stage) -> None:
    kafka = {
        "bootstrapServers": stage.kafka.bootstrap_servers,
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": stage.zookeeper.connect},
        "quotaWindow": {"samples": 2},
    }
    spec = {
        "mode": "Enforce",
        "kafka": kafka,
        "metrics": {"prometheus": {"url": stage.prometheus.url}, "scrapeIntervalSeconds": 1, "staleAfterSeconds": 5},
        "brokers": {"egress": {"limit": str(HIGH)}},
        "escalation": {"holdSeconds": 5, "maxMuteSeconds": 3},
    }
    stage.create(BROKER_BANDWIDTH_POLICIES, "orders", spec)
    for level, user in stage.tide.users.items():
        member = {"name": user, "user": user, "topics": [stage.namespace], "contract": {"perBroker": {"fetch": str(CONTRACT)}}}
        throttled = {"throttledRates": {"perBroker": {"fetch": str(THROTTLED[level])}}} if level in THROTTLED else {}
        spec = {"policyRef": {"name": "orders"}, "level": level.value, "members": [member], **throttled}
        stage.create(BUSINESS_TIERS, level.value.lower(), spec)
