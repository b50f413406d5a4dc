"""A broker under load that obeys: what its NIC and its clients' metrics show follows the quotas in
ZooKeeper at that moment.

Kafka, its leaders, ZooKeeper, Prometheus, the Kubernetes API and the operator are real; only the
bytes are made up, so that a test can fill a NIC, empty it, take its metrics away or freeze its
counter within a second.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CoordinationV1Api, CoreV1Api, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from lab.quota_watch import QuotaWatch, ZooKeeperQuotaWatch
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import LEASE_NAMESPACE, lay_out
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ResourceKind
from tidegate_logic.model import Level

MB = 1_000_000
CONTRACT, WANTED = 60 * MB, 25 * MB
THROTTLED = {Level.L1: 10 * MB, Level.L2: 5 * MB, Level.L3: MB}


@dataclass
class SimulatedLoad:
    """One user of each level fetches `wanted` from broker `leader`; `other` is what else its NIC
    sends. `watch` is open.

    A broker in `silent` exports nothing at all, one in `without_nic` no NIC counter, one in
    `frozen` a NIC counter that does not grow; the exporter of one in `asleep` does not answer. A
    broker in `strangers` is one of another cluster, with the same id, which sends 1 MB/s.
    """

    watch: QuotaWatch
    users: dict[Level, str]
    leader: int = 2
    wanted: float = WANTED
    other: float = 0.0
    silent: set[int] = field(default_factory=set)
    without_nic: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    asleep: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    _bytes: dict[int, float] = field(default_factory=dict)
    _read_at: dict[int, float] = field(default_factory=dict)

    def quotas(self) -> dict[Level, int | None]:
        """The quota in force for each level, in bytes/s; while ZooKeeper does not answer, the last
        one that was.
        """
        in_force = self.watch.quotas()
        return {level: in_force[user] for level, user in self.users.items()}

    def values(self, level: Level, *, since: float) -> list[int | None]:
        """The level's quota in force at that moment (seconds since the epoch), then every later
        one, in order.
        """
        return self.watch.values(self.users[level], since=since)

    def page(self, broker: int, _: int = 0) -> str:
        """What the broker's exporters show now."""
        until = time.monotonic() + 60
        while broker in self.asleep and time.monotonic() < until:
            time.sleep(0.1)
        if broker in self.silent:
            return ""
        quotas = self.quotas() if broker == self.leader else {}
        sent = {
            level: min(self.wanted, float("inf") if quota is None else quota)
            for level, quota in quotas.items()
        }
        nic = (
            ""
            if broker in self.without_nic
            else self._nic(broker, sum(sent.values()) + (self.other if sent else MB))
        )
        return nic + "".join(self._client(level, rate) for level, rate in sent.items())

    def page_of_stranger(self, broker: int, _: int = 0) -> str:
        """What the exporter of another cluster's broker shows now."""
        counter = 10**12 + MB * time.monotonic()
        sent = f'node_network_transmit_bytes_total{{device="eth0"}} {counter}\n'
        return sent if broker in self.strangers else ""

    def _nic(self, broker: int, rate: float) -> str:
        now = time.monotonic()
        moved = 0.0 if broker in self.frozen else rate * (now - self._read_at.get(broker, now))
        self._read_at[broker] = now
        self._bytes[broker] = self._bytes.get(broker, 0.0) + moved
        return f'node_network_transmit_bytes_total{{device="eth0"}} {self._bytes[broker]}\n'

    def _client(self, level: Level, rate: float) -> str:
        labels = f'resource="Fetch",user="{self.users[level]}"'
        waits = 1000 if rate < self.wanted else 0
        return (
            f"kafka_quota_byte_rate{{{labels}}} {rate}\nkafka_quota_throttle_time{{{labels}}} "
            f"{waits}\n"
        )


LOW, HIGH = 50 * MB, 1000 * MB


@dataclass
class Stage:
    """Everything real that an episode is played on: one policy with a tier for each level, a Kafka,
    a Prometheus and a ZooKeeper.
    """

    crds: KubeApi
    api_client: ApiClient
    kafka: KafkaLab
    zookeeper: ZooKeeperLab
    prometheus: PrometheusLab
    load: SimulatedLoad
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
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self._objects.create_namespaced_custom_object(*self._place(kind), body)

    def limit(self, bytes_per_second: int) -> None:
        body = {"spec": {"brokers": {"egress": {"limit": str(bytes_per_second)}}}}
        self._objects.patch_namespaced_custom_object(
            *self._place(BROKER_BANDWIDTH_POLICIES), "orders", body
        )

    def delete_tier(self, level: Level) -> None:
        self._objects.delete_namespaced_custom_object(
            *self._place(BUSINESS_TIERS), level.value.lower()
        )

    def delete_lease(self) -> None:
        """What 12 s of silence do, which are the matter of test_replicas.py. Only for an operator
        that is dead.
        """
        CoordinationV1Api(self.api_client).delete_namespaced_lease(
            f"tidegate.{self.namespace}.orders", LEASE_NAMESPACE
        )

    def status(self) -> dict[str, Any]:
        found = self._objects.get_namespaced_custom_object(
            *self._place(BROKER_BANDWIDTH_POLICIES), "orders"
        )
        return dict(found.get("status") or {})

    def conditions(self) -> dict[str, dict[str, str]]:
        return {entry["type"]: entry for entry in self.status().get("conditions") or ()}

    def start_operator(self, name: str) -> None:
        self.operator = self.operators.enter_context(
            OperatorProcess(self.crds, self.namespace, self.directory, name=name)
        )

    def comes(self, level: Level, rate: int | None, *, timeout_seconds: float = 90) -> None:
        what = f"{level.value} at {rate} B/s"
        wait_until(
            lambda: self.load.quotas().get(level) == rate,
            what,
            timeout_seconds=timeout_seconds,
            poll_seconds=0.1,
        )

    def moves(self, level: Level) -> None:
        """Return once the quota of this level changes."""
        before = self.load.quotas()[level]
        wait_until(
            lambda: self.load.quotas()[level] != before,
            f"a step of {level.value}",
            timeout_seconds=60,
            poll_seconds=0.05,
        )

    def has_condition(self, condition: str, status: str, *, timeout_seconds: float = 60) -> None:
        holds = lambda: self.conditions().get(condition, {}).get("status") == status  # noqa: E731
        what = f"{condition}={status}"
        wait_until(holds, what, timeout_seconds=timeout_seconds, poll_seconds=0.3)

    def for_seconds(self, seconds: float) -> None:
        """Two steps' time, in which something would have happened."""
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= until, "time to go by", timeout_seconds=seconds + 5)


@contextmanager
def set_up(
    crds: KubeApi, api_client: ApiClient, kafka: KafkaLab, directory: Path
) -> Iterator[Stage]:
    """The stage with everything declared and a limit that no one reaches; operators are started by
    the test.
    """
    name = f"throttling-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, assignment=[[2, 1]])
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperLab())
        client = KazooClient(zookeeper.connect, timeout=4.0)
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        lay_out(client, kafka.cluster_id)
        users = {level: f"{name}-{level.value.lower()}" for level in Level}
        load = SimulatedLoad(
            stack.enter_context(ZooKeeperQuotaWatch(zookeeper.connect, users.values())), users
        )
        targets = [
            ScrapeTarget(
                "node", stack.enter_context(exporting(partial(load.page, broker))).address, broker
            )
            for broker in (1, 2, 3)
        ]
        strangers = stack.enter_context(exporting(partial(load.page_of_stranger, load.leader)))
        targets.append(ScrapeTarget("other-cluster", strangers.address, load.leader))
        prometheus = stack.enter_context(PrometheusLab(targets))
        CoreV1Api(api_client).create_namespace({"metadata": {"name": name}})
        operators = stack.enter_context(ExitStack())
        stage = Stage(
            crds, api_client, kafka, zookeeper, prometheus, load, name, directory, operators
        )
        _declare(stage)
        yield stage


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
        "metrics": {
            "prometheus": {"url": stage.prometheus.url},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 5,
        },
        "brokers": {"egress": {"limit": str(HIGH)}},
        "escalation": {"holdSeconds": 5, "maxMuteSeconds": 3},
    }
    stage.create(BROKER_BANDWIDTH_POLICIES, "orders", spec)
    for level, user in stage.load.users.items():
        member = {
            "name": user,
            "user": user,
            "topics": [stage.namespace],
            "contract": {"perBroker": {"fetch": str(CONTRACT)}},
        }
        throttled = (
            {"throttledRates": {"perBroker": {"fetch": str(THROTTLED[level])}}}
            if level in THROTTLED
            else {}
        )
        spec = {
            "policyRef": {"name": "orders"},
            "level": level.value,
            "members": [member],
            **throttled,
        }
        stage.create(BUSINESS_TIERS, level.value.lower(), spec)
