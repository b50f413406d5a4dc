"""A real operator throttles and restores: kubectl, `tidegate top` and every page of the console
show it while it happens, `tidegate audit` afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi
from playwright.sync_api import Page

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.network import free_port
from lab.operator import console_command
from lab.process import patience, start, wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from lab.quota_watch import ZooKeeperQuotaWatch
from tests.goldens.golden import line_with, numbers
from tests.integration.operator.installation import LEASE_NAMESPACE
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.throttling import CONTRACT, MB, SimulatedLoad
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES
from tidegate_logic.model import Level
from tools.console_walk import in_short, is_throttled, look_at_every_page, opened, watched_page

pytestmark = [pytest.mark.integration, pytest.mark.throttling]

# --- kubectl --------------------------------------------------------------------------------------
# kubectl shows a broker over its limit, and a Prometheus that died, on a real Prometheus and a real
# operator.


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
        targets = [
            ScrapeTarget("node", stack.enter_context(exporting(nic.page)).address, broker)
            for broker, nic in nics.items()
        ]
        yield stack.enter_context(PrometheusLab(targets))


def policy(kafka: KafkaLab, prometheus: PrometheusLab, namespace: str) -> dict[str, object]:
    spec = {
        "mode": "Observe",
        "kafka": {
            "bootstrapServers": kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
            "quotaWindow": {
                "samples": 2
                # a broker counts as back within its limit after twice the rhythm that follows from
                # it
            },
        },
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 5,
        },
        "brokers": {"egress": {"limit": str(LIMIT)}},
    }
    metadata = {"name": "orders", "namespace": namespace}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": metadata,
        "spec": spec,
    }


def status(api_client: ApiClient, namespace: str) -> dict[str, Any]:
    kind = BROKER_BANDWIDTH_POLICIES
    found = CustomObjectsApi(api_client).get_namespaced_custom_object(
        kind.group, kind.version, namespace, kind.plural, "orders"
    )
    return dict(found.get("status") or {})


def pressures(api_client: ApiClient, namespace: str) -> dict[int, str]:
    return {
        entry["id"]: entry["pressure"]
        for entry in status(api_client, namespace).get("brokers") or ()
    }


@pytest.fixture
def observed(
    crds: KubeApi, kafka: KafkaLab, prometheus: PrometheusLab, unique_name: str
) -> Iterator[str]:
    """The namespace of the policy. While that exists, no younger policy may claim the cluster."""
    crds.kubectl("create", "namespace", unique_name)
    crds.kubectl("apply", "-f", "-", input=json.dumps(policy(kafka, prometheus, unique_name)))
    yield unique_name
    crds.kubectl("delete", "bbp", "orders", "-n", unique_name)


def column_over(crds: KubeApi, namespace: str) -> str:
    """What `kubectl get` shows of brokers over their limits."""
    header, row = (
        line.split() for line in crds.kubectl("get", "bbp", "-n", namespace).splitlines()
    )
    return dict(zip(header, row, strict=True))["OVER"]


def test_a_broker_over_its_limit_is_seen_and_a_prometheus_that_died_too(
    crds: KubeApi,
    api_client: ApiClient,
    observed: str,
    prometheus: PrometheusLab,
    nics: dict[int, NicCounter],
    tmp_path: Path,
) -> None:

    def comes(expected: dict[int, str], what: str) -> None:
        wait_until(
            lambda: pressures(api_client, observed) == expected,
            what,
            timeout_seconds=40,
            poll_seconds=0.1,
        )

    with OperatorProcess(crds, observed, tmp_path) as operator:
        comes({1: "Within", 2: "Within", 3: "Within"}, "three brokers within their limits")
        nics[2].rate = HOT
        comes({1: "Within", 2: "Over", 3: "Within"}, "a broker over its limit")
        events = crds.kubectl(
            "get",
            "events",
            "-n",
            observed,
            "-o",
            "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}",
        )
        over = line_with(events, "BrokerOverLimit", "egress")
        assert numbers(over) >= {2}
        assert column_over(crds, observed) == "1"
        nics[2].rate = CALM
        comes({1: "Within", 2: "Within", 3: "Within"}, "the broker back within its limit")
        prometheus.process.kill()
        comes({1: "Unknown", 2: "Unknown", 3: "Unknown"}, "an unknown load")
        fresh = next(
            condition
            for condition in status(api_client, observed)["conditions"]
            if condition["type"] == "MetricsFresh"
        )
        assert (fresh["status"], fresh["reason"]) == ("False", "PrometheusUnreachable")
        assert column_over(crds, observed) == "?"
        assert operator.is_running()


# --- top, the console and audit -------------------------------------------------------------------
# A real operator throttles and restores: `tidegate top` and the console show it while it happens,
# `tidegate audit` has every write of it afterwards.


LOW, HIGH = 40 * MB, 1000 * MB
VERSION = {"apiVersion": "tidegate.io/v1alpha1"}


def tidegate(*arguments: str) -> Any:
    """What a person gets, as a document."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=patience(90),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def load(kafka: KafkaLab, unique_name: str) -> Iterator[SimulatedLoad]:
    """One user of L0 and one of L3, each of whom fetches 25 MB/s from broker 2."""
    kafka.create_topic(unique_name, assignment=[[2, 1]])
    users = {level: f"{unique_name}-{level.value.lower()}" for level in (Level.L0, Level.L3)}
    with ZooKeeperQuotaWatch(kafka.zookeeper_connect, users.values()) as watch:
        yield SimulatedLoad(watch, users)


@pytest.fixture
def declared(
    crds: KubeApi, kafka: KafkaLab, load: SimulatedLoad, unique_name: str
) -> Iterator[str]:
    """The namespace of a policy that scrapes every second, with a wide limit; and the two tiers."""
    with ExitStack() as stack:
        pages = {
            broker: stack.enter_context(exporting(partial(load.page, broker)))
            for broker in (1, 2, 3)
        }
        prometheus = stack.enter_context(
            PrometheusLab(
                [ScrapeTarget("node", page.address, broker) for broker, page in pages.items()]
            )
        )
        crds.kubectl("create", "namespace", unique_name)
        crds.kubectl(
            "apply", "-f", "-", input=json.dumps(objects(kafka, prometheus, load, unique_name))
        )
        yield unique_name


def objects(
    kafka: KafkaLab, prometheus: PrometheusLab, load: SimulatedLoad, namespace: str
) -> dict[str, Any]:
    store = {"quotaStore": "ZooKeeper", "zookeeper": {"connect": kafka.zookeeper_connect}}
    spec = {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": kafka.bootstrap_servers,
            **store,
            "quotaWindow": {"samples": 2},
        },
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 5,
        },
        "brokers": {"egress": {"limit": str(HIGH)}},
        "escalation": {"holdSeconds": 5, "maxMuteSeconds": 3},
    }
    tiers = [_tier(level, user, namespace) for level, user in load.users.items()]
    policy = {
        **VERSION,
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": namespace},
        "spec": spec,
    }
    return {"apiVersion": "v1", "kind": "List", "items": [policy, *tiers]}


def _tier(level: Level, user: str, namespace: str) -> dict[str, Any]:
    member = {
        "name": user,
        "user": user,
        "topics": [namespace],
        "contract": {"perBroker": {"fetch": str(CONTRACT)}},
    }
    throttled = {} if level is Level.L0 else {"throttledRates": {"perBroker": {"fetch": "1M"}}}
    spec = {"policyRef": {"name": "orders"}, "level": level.value, "members": [member], **throttled}
    return {
        **VERSION,
        "kind": "BusinessTier",
        "metadata": {"name": level.value.lower(), "namespace": namespace},
        "spec": spec,
    }


@contextmanager
def console(kubeconfig: Path, namespace: str, directory: Path) -> Iterator[Page]:
    """The first page of a console that shows this namespace, in a browser that is watched."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = console_command(
        kubeconfig,
        namespace,
        port=port,
        audit_file=directory / "operator.log",
        lease_namespace=LEASE_NAMESPACE,
    )
    with (
        start("console", command, log_path=directory / "console.log") as served,
        watched_page(address) as page,
    ):
        wait_until(
            lambda: opened(page, address), "the console", timeout_seconds=90, processes=[served]
        )
        yield page


def test_an_episode_is_shown_while_it_happens_and_audited_afterwards(
    crds: KubeApi, declared: str, load: SimulatedLoad, tmp_path: Path
) -> None:
    def limit(bytes_per_second: int) -> None:
        patch = json.dumps({"spec": {"brokers": {"egress": {"limit": str(bytes_per_second)}}}})
        crds.kubectl("patch", "bbp", "orders", "-n", declared, "--type=merge", "-p", patch)

    def comes(what: str, holds: Any) -> None:
        wait_until(holds, what, timeout_seconds=60, poll_seconds=0.2)

    with (
        OperatorProcess(crds, declared, tmp_path) as operator,
        console(crds.kubeconfig, declared, tmp_path) as page,
    ):
        comes("both contracts", lambda: set(load.quotas().values()) == {CONTRACT})
        load.other = 40.0 * MB  # so that the broker stays over its limit, whatever L3 sends
        limit(LOW)
        comes("a cut", lambda: (load.quotas()[Level.L3] or 0) < CONTRACT)
        now = tidegate("top", "--once", "--kubeconfig", str(crds.kubeconfig), "-n", declared)
        comes("the effect of a cut", lambda: any(map(_bites, operator.lines())))
        comes("L3 throttled, on the page", lambda: is_throttled(page, "L3"))
        look_at_every_page(page, tmp_path, limit="30M", throttled=("L3",))
        page.get_by_role("link", name="Now", exact=True).click()
        load.other = 0.0
        limit(HIGH)
        comes("both contracts again", lambda: set(load.quotas().values()) == {CONTRACT})
        comes(
            "both, on the page",
            lambda: "All members are at their contracted rates" in in_short(page),
        )
        comes(
            "the write of it in the trail",
            lambda: _writes(operator)[-1:] and _writes(operator)[-1]["to"] == CONTRACT,
        )
        log = tmp_path / "operator.log"
        trail = tidegate("audit", "--audit-file", str(log), "--entity", load.users[Level.L3])[
            "lines"
        ]
        (important, batch) = tidegate("audit", "--audit-file", str(log), "--summary")["summary"]
        crds.kubectl(
            "delete", "bbp", "orders", "-n", declared
        )  # no younger policy may have the cluster while this one is there

    _shows_who_is_held(now, load)
    _has_every_write(trail)
    assert (important["level"], important["cuts"], important["secondsBelowContract"]) == (
        "L0",
        0,
        0,
    )
    assert (batch["level"], batch["brokers"]) == ("L3", ["2 egress"])
    assert batch["cuts"] >= 1
    assert batch["raises"] >= 1
    assert batch["secondsBelowContract"] > 5


def _bites(line: dict[str, Any]) -> bool:
    """Whether it reports a cut after which less was sent; the first one may be above what is
    sent.
    """
    return (
        line.get("kind") == "effect"
        and line["entities"][0]["rateAfter"] < line["entities"][0]["rateBefore"]
    )


def _writes(operator: OperatorProcess) -> list[dict[str, Any]]:
    return [
        line for line in operator.lines() if line.get("kind") == "write" and line["level"] == "L3"
    ]


def _shows_who_is_held(now: Any, load: SimulatedLoad) -> None:
    brokers = {row["id"]: row for row in now["brokers"]}
    assert (brokers[2]["limit"], brokers[2]["pressure"]) == (LOW, "Over")
    assert brokers[1]["pressure"] == "Within"
    members = {row["level"]: row for row in now["members"]}
    assert (members["L3"]["belowContract"], members["L3"]["contract"]) == (True, CONTRACT)
    assert members["L3"]["bytesPerSecond"] > 0
    assert (members["L0"]["belowContract"], members["L0"]["quota"]) == (False, CONTRACT)


def _has_every_write(trail: list[dict[str, Any]]) -> None:
    """What each write found is what the one before it left, from the first quota to the contract at
    the end.
    """
    writes = [line for line in trail if line["kind"] == "write"]
    rounds = {line["id"] for line in trail if line["kind"] == "round"}
    assert writes[0]["from"] is None
    assert writes[-1]["to"] == CONTRACT
    assert all(later["from"] == earlier["to"] for earlier, later in pairwise(writes))
    throttles = [line for line in writes if line["reason"] == "Throttled"]
    assert throttles
    assert {line["round"] for line in throttles} <= rounds
    assert any(map(_bites, trail))
