"""kubectl shows a broker over its limit, and a Prometheus that died, on a real Prometheus and a real operator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from tests.goldens.golden import line_with, numbers
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES

pytestmark = [pytest.mark.integration, pytest.mark.throttling, pytest.mark.timeout(300)]

CALM, HOT, LIMIT = 1_000_000, 3_000_000, 2_000_000  # bytes per second


class NicCounter:
    """A NIC's counter that grows at the rate the test sets."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._bytes = 0.0
        self._at = time.monotonic()

    def page(self, _: int) -> str:
        now = time.monotonic()
        self._bytes += self.rate * (now - self._at)
        self._at = now
        return f'node_network_transmit_bytes_total{{device="eth0"}} {self._bytes}\n'


@pytest.fixture
def nics() -> dict[int, NicCounter]:
    return {broker: NicCounter(CALM) for broker in (1, 2, 3)}


@pytest.fixture
def prometheus(nics: dict[int, NicCounter]) -> Iterator[PrometheusLab]:
    """A Prometheus that scrapes the three NICs every second."""
    with ExitStack() as stack:
        targets = [ScrapeTarget("node", stack.enter_context(exporting(nic.page)).address, broker) for broker, nic in nics.items()]
        yield stack.enter_context(PrometheusLab(targets))


def policy(kafka: KafkaLab, prometheus: PrometheusLab, namespace: str) -> dict[str, object]:
    spec = {
        "mode": "Observe",
        "kafka": {
            "bootstrapServers": kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
            "quotaWindow": {"samples": 2},  # a broker counts as back within its limit after twice the rhythm that follows from it
        },
        "metrics": {"prometheus": {"url": prometheus.url}, "scrapeIntervalSeconds": 1, "staleAfterSeconds": 5},
        "brokers": {"egress": {"limit": str(LIMIT)}},
    }
    metadata = {"name": "orders", "namespace": namespace}
    return {"apiVersion": "tidegate.io/v1alpha1", "kind": "BrokerBandwidthPolicy", "metadata": metadata, "spec": spec}


def status(api_client: ApiClient, namespace: str) -> dict[str, Any]:
    kind = BROKER_BANDWIDTH_POLICIES
    found = CustomObjectsApi(api_client).get_namespaced_custom_object(kind.group, kind.version, namespace, kind.plural, "orders")
    return dict(found.get("status") or {})


def pressures(api_client: ApiClient, namespace: str) -> dict[int, str]:
    return {entry["id"]: entry["pressure"] for entry in status(api_client, namespace).get("brokers") or ()}


@pytest.fixture
def declared(crds: KubeApi, kafka: KafkaLab, prometheus: PrometheusLab, unique_name: str) -> Iterator[str]:
    """The namespace of the policy. While that exists, no younger policy may claim the cluster."""
    crds.kubectl("create", "namespace", unique_name)
    crds.kubectl("apply", "-f", "-", input=json.dumps(policy(kafka, prometheus, unique_name)))
    yield unique_name
    crds.kubectl("delete", "bbp", "orders", "-n", unique_name)


def test_a_broker_over_its_limit_is_seen_and_a_prometheus_that_died_too(
    crds: KubeApi, api_client: ApiClient, declared: str, prometheus: PrometheusLab, nics: dict[int, NicCounter], tmp_path: Path
) -> None:

    def comes(expected: dict[int, str], what: str) -> None:
        wait_until(lambda: pressures(api_client, declared) == expected, what, timeout_seconds=40, poll_seconds=0.1)

    with OperatorProcess(crds, declared, tmp_path) as operator:
        comes({1: "Within", 2: "Within", 3: "Within"}, "three brokers within their limits")
        nics[2].rate = HOT
        comes({1: "Within", 2: "Over", 3: "Within"}, "a broker over its limit")
        events = crds.kubectl("get", "events", "-n", declared, "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}")
        over = line_with(events, "BrokerOverLimit", "egress")
        assert numbers(over) >= {2}
        header, row = (line.split() for line in crds.kubectl("get", "bbp", "-n", declared).splitlines())
        assert dict(zip(header, row, strict=True))["OVER"] == "1"
        nics[2].rate = CALM
        comes({1: "Within", 2: "Within", 3: "Within"}, "the broker back within its limit")
        prometheus.process.kill()
        comes({1: "Unknown", 2: "Unknown", 3: "Unknown"}, "an unknown load")
        fresh = next(condition for condition in status(api_client, declared)["conditions"] if condition["type"] == "MetricsFresh")
        assert (fresh["status"], fresh["reason"]) == ("False", "PrometheusUnreachable")
        assert operator.is_running()
