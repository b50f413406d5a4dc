"""Raises that the write budget defers: when it has room again, they still fit under the limit.

Kafka, ZooKeeper, Prometheus, the Kubernetes API and the operator are real; the bytes follow the
quotas that stand in ZooKeeper at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from lab.quota_watch import ZooKeeperQuotaWatch
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import lay_out
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ResourceKind

# In virtual time tests/unit/controller_logic/test_raises_on_their_way.py plays the same.
pytestmark = [pytest.mark.integration, pytest.mark.throttling, pytest.mark.long]

MB = 1_000_000
LEADER, CLIENTS = 2, 40
CONTRACT, THROTTLED, LIMIT = 3 * MB, MB, 80 * MB
CHANGES, PERIOD_SECONDS = 10, 60  # the smallest budget; of ten changes eight may be raises


@dataclass
class Load:
    """Every client fetches its contract from one broker, as far as its quota lets it."""

    watch: ZooKeeperQuotaWatch
    other: float = 0.0
    most: float = 0.0
    _bytes: float = 0.0
    _at: float = field(default_factory=time.monotonic)

    def sent(self) -> dict[str, float]:
        quotas = self.watch.quotas()
        return {
            user: float(CONTRACT if quota is None else min(quota, CONTRACT))
            for user, quota in quotas.items()
        }

    def page(self, broker: int, _: int = 0) -> str:
        """What the broker's exporters show now; one that leads nothing sends nothing."""
        sent = self.sent() if broker == LEADER else {}
        rate = sum(sent.values()) + (self.other if sent else 0.0)
        self.most = max(self.most, rate)
        now = time.monotonic()
        if sent:
            self._bytes, self._at = self._bytes + rate * (now - self._at), now
        lines = [
            f'node_network_transmit_bytes_total{{device="eth0"}} {self._bytes if sent else 0.0}'
        ]
        for user, bytes_per_second in sent.items():
            labels = f'resource="Fetch",user="{user}"'
            waits = 1000 if bytes_per_second < CONTRACT else 0
            lines.append(f"kafka_quota_byte_rate{{{labels}}} {bytes_per_second}")
            lines.append(f"kafka_quota_throttle_time{{{labels}}} {waits}")
        return "\n".join(lines) + "\n"


@dataclass
class Stage:
    objects: CustomObjectsApi
    namespace: str
    load: Load

    def create(self, kind: ResourceKind, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.kind}
        body |= {"metadata": {"name": name}, "spec": spec}
        self.objects.create_namespaced_custom_object(
            kind.group, kind.version, self.namespace, kind.plural, body
        )

    def edit(self, spec: dict[str, Any]) -> None:
        kind = BROKER_BANDWIDTH_POLICIES
        self.objects.patch_namespaced_custom_object(
            kind.group, kind.version, self.namespace, kind.plural, "orders", {"spec": spec}
        )

    def holds_back(self, clients: int) -> bool:
        return sum(rate <= THROTTLED for rate in self.load.sent().values()) >= clients


@pytest.fixture
def stage(
    crds: KubeApi, api_client: ApiClient, kafka: KafkaLab, tmp_path: Path, unique_name: str
) -> Iterator[Stage]:
    """All clients at their contracts, under a limit that no one reaches."""
    kafka.create_topic(unique_name, assignment=[[LEADER, 1]])
    users = [f"{unique_name}-{number:02d}" for number in range(CLIENTS)]
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperLab())
        client = KazooClient(zookeeper.connect, timeout=4.0)
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        lay_out(client, kafka.cluster_id)
        load = Load(stack.enter_context(ZooKeeperQuotaWatch(zookeeper.connect, users)))
        targets = [
            ScrapeTarget(
                "node", stack.enter_context(exporting(partial(load.page, broker))).address, broker
            )
            for broker in (1, 2, 3)
        ]
        prometheus = stack.enter_context(PrometheusLab(targets))
        CoreV1Api(api_client).create_namespace({"metadata": {"name": unique_name}})
        stage = Stage(CustomObjectsApi(api_client), unique_name, load)
        stage.create(BROKER_BANDWIDTH_POLICIES, "orders", _policy(kafka, zookeeper, prometheus))
        stage.create(BUSINESS_TIERS, "l3", _tier(users, unique_name))
        stack.enter_context(OperatorProcess(crds, unique_name, tmp_path, name="one"))
        yield stage


def _policy(kafka: KafkaLab, zookeeper: ZooKeeperLab, prometheus: PrometheusLab) -> dict[str, Any]:
    return {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": zookeeper.connect},
            "quotaWindow": {"samples": 2},
        },
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 5,
        },
        "brokers": {"egress": {"limit": str(10 * LIMIT)}},
        "escalation": {"holdSeconds": 15, "maxMuteSeconds": 3},
        "writeBudget": {"changes": 300, "periodSeconds": PERIOD_SECONDS},
    }


def _tier(users: list[str], topic: str) -> dict[str, Any]:
    return {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "throttledRates": {"perBroker": {"fetch": str(THROTTLED)}},
        "members": [
            {
                "name": user,
                "user": user,
                "topics": [topic],
                "contract": {"perBroker": {"fetch": str(CONTRACT)}},
            }
            for user in users
        ],
    }


def test_raises_that_waited_for_the_write_budget_do_not_lead_over_the_limit(stage: Stage) -> None:
    """All are throttled, which spends the budget; then there is room for eleven of them.

    Each takes a tenth of it, so they are released whole. Two periods let sixteen raises by.
    """
    load = stage.load
    wait_until(
        lambda: None not in load.watch.quotas().values(), "the first quotas", timeout_seconds=60
    )
    load.other = 80.0 * MB
    stage.edit({"brokers": {"egress": {"limit": str(LIMIT)}}})
    wait_until(lambda: stage.holds_back(CLIENTS), "everybody throttled", timeout_seconds=120)
    stage.edit({"writeBudget": {"changes": CHANGES, "periodSeconds": PERIOD_SECONDS}})
    load.other, load.most = 14.0 * MB, 0.0  # 54 of 80 MB/s: raises may use 22 of it
    wait_until(
        lambda: not stage.holds_back(CLIENTS - 9),
        "ten raises",
        timeout_seconds=4 * PERIOD_SECONDS,
        poll_seconds=0.2,
    )
    ends_at = time.monotonic() + PERIOD_SECONDS / 4  # what else was decided comes within 12 s
    wait_until(
        lambda: time.monotonic() >= ends_at or load.most > LIMIT,
        "more raises",
        timeout_seconds=PERIOD_SECONDS,
    )
    assert load.most <= LIMIT, f"{load.most / MB:.1f} of {LIMIT / MB:.0f} MB/s"
    assert load.most >= 0.9 * LIMIT
