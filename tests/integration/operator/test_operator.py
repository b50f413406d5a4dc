"""The operator as a process on real parts: the whole path once, an override that ends, and the
rights of `examples/rights/`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.load import LoadClient, LoadPlan
from lab.process import patience, wait_until
from tests.integration.operator.installation import one_of_each_kind
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import BUSINESS_TIERS, QUOTA_OVERRIDES, ResourceKind
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

# --- the whole path -------------------------------------------------------------------------------
# The whole path once: kubectl apply, the operator as a process, a quota in ZooKeeper, and a real
# client that slows down.


_SAWTOOTH_SECONDS = 12.0
_BURST_SECONDS = 14.0

COMMAND = [
    sys.executable,
    "-m",
    "tidegate",
    "run",
    "--all-namespaces",
    "--lease-namespace",
    "default",
    "--liveness-port",
    "0",
    "--metrics-port",
    "0",
    "--kubeconfig",
]


@pytest.fixture
def operator(crds: KubeApi, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = (tmp_path / "operator.log").open("wb")
    process = subprocess.Popen([*COMMAND, str(crds.kubeconfig)], stderr=log)
    yield process
    process.kill()
    process.wait()
    log.close()


def policy(kafka: KafkaLab, namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": namespace},
        "spec": {
            "mode": "Enforce",
            "kafka": {
                "bootstrapServers": kafka.bootstrap_servers,
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": kafka.zookeeper_connect},
            },
        },
    }


def tier(namespace: str, user: str, topic: str) -> dict[str, object]:
    member = {
        "name": "alice",
        "user": user,
        "topics": [topic],
        "contract": {"perPartition": {"produce": "1M", "fetch": "1M"}},
    }
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "gold", "namespace": namespace},
        "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]},
    }


def mean_rate_of_a_greedy_producer(
    kafka: KafkaLab, user: str, topic: str, *, directory: Path
) -> float:
    """Bytes per second over one whole sawtooth of the throttling (12 s), after the mute that
    follows the first burst.
    """
    plan = LoadPlan(
        name="greedy",
        mode="produce",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=topic,
        partitions=(0, 1, 2),
        duration_seconds=_BURST_SECONDS + _SAWTOOTH_SECONDS,
        max_bytes=2_000_000_000,
        user=user,
        password=kafka.password(user),
    )
    with LoadClient(plan, directory) as client:
        client.wait()
        rows = client.rows()
    last = max(row.unix_seconds for row in rows)
    return (
        sum(row.moved_bytes for row in rows if last - _SAWTOOTH_SECONDS < row.unix_seconds <= last)
        / _SAWTOOTH_SECONDS
    )


def quota(zookeeper: KazooClient, user: str) -> dict[str, str]:
    path = f"/config/users/{user}"
    if zookeeper.exists(path) is None:
        return {}
    return dict(json.loads(zookeeper.get(path)[0] or b'{"config":{}}')["config"])


def test_a_contract_follows_its_leaders_and_is_given_back(
    crds: KubeApi,
    kafka: KafkaLab,
    operator: subprocess.Popen[bytes],
    unique_name: str,
    tmp_path: Path,
) -> None:
    namespace, user, topic = unique_name, "alice", unique_name
    kafka.create_topic(topic, assignment=[[1, 2], [2, 3], [3, 1]])
    zookeeper = KazooClient(kafka.zookeeper_connect)
    zookeeper.start()
    before = quota(zookeeper, user)
    crds.kubectl("create", "namespace", namespace)
    crds.kubectl("apply", "-f", "-", input=json.dumps(policy(kafka, namespace)))
    crds.kubectl("apply", "-f", "-", input=json.dumps(tier(namespace, user, topic)))
    try:
        wait_until(
            lambda: quota(zookeeper, user).get("producer_byte_rate") == "1000000",
            "the contract on each broker",
            timeout_seconds=60,
        )
        assert {
            key: value for key, value in quota(zookeeper, user).items() if key.startswith("SCRAM")
        } == {key: value for key, value in before.items() if key.startswith("SCRAM")}
        crds.kubectl(
            "wait",
            "--for=condition=Ready",
            "bbp/orders",
            "bt/gold",
            "-n",
            namespace,
            "--timeout=30s",
        )
        assert (
            2.0 < mean_rate_of_a_greedy_producer(kafka, user, topic, directory=tmp_path) / 1e6 < 3.4
        ), "three brokers with 1 MB/s each"
        kafka.broker(3).kill()
        wait_until(
            lambda: quota(zookeeper, user).get("producer_byte_rate") == "2000000",
            "the quota of the broker that leads two",
            timeout_seconds=60,
        )
    finally:
        kafka.broker(3).start()
    crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=90s")
    assert quota(zookeeper, user) == before
    operator.send_signal(signal.SIGTERM)
    assert operator.wait(timeout=patience(30)) == 0
    zookeeper.stop()
    zookeeper.close()


# --- an override ----------------------------------------------------------------------------------
# An override on real parts: in force within a pass, reported in its status, and ended by itself at
# its `expiresAt`.


AHEAD_SECONDS = 6.0
CONTRACT, OVERRIDDEN = "1000000", "500000"


def status(api_client: ApiClient, namespace: str, kind: ResourceKind) -> dict[str, Any]:
    """The status of the only object of this kind."""
    (found,) = CustomObjectsApi(api_client).list_namespaced_custom_object(
        kind.group, kind.version, namespace, kind.plural
    )["items"]
    return dict(found.get("status") or {})


def end_soon(api_client: ApiClient, namespace: str) -> float:
    """Let the override end a few seconds from now and return that moment (unix time)."""
    ends = time.time() + AHEAD_SECONDS
    body = {
        "spec": {"expiresAt": datetime.fromtimestamp(ends, UTC).isoformat(timespec="milliseconds")}
    }
    kind = QUOTA_OVERRIDES
    CustomObjectsApi(api_client).patch_namespaced_custom_object(
        kind.group, kind.version, namespace, kind.plural, "more", body
    )
    return ends


def test_it_is_in_force_until_its_end_and_at_most_a_few_seconds_longer(
    crds: KubeApi,
    api_client: ApiClient,
    kafka: KafkaLab,
    namespace: str,
    unique_name: str,
    tmp_path: Path,
) -> None:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    user = Entity(unique_name)

    def quota() -> str | None:
        return store.read([user])[user].values.get(QuotaKey.PRODUCER_BYTE_RATE)

    def state() -> Any:
        return status(api_client, namespace, QUOTA_OVERRIDES).get("state")

    def overridden_by() -> Any:
        members = status(api_client, namespace, BUSINESS_TIERS).get("members") or [{}]
        return members[0].get("override")

    def events() -> set[str]:
        return {
            event.reason for event in CoreV1Api(api_client).list_namespaced_event(namespace).items
        }

    declared = one_of_each_kind(kafka, namespace, unique_name)
    items: list[dict[str, Any]] = declared["items"]  # type: ignore[assignment]
    with OperatorProcess(crds, namespace, tmp_path) as operator:
        operator.wait_for("Operator started")
        items[-1]["spec"] |= {"rates": {"perPartition": {"produce": OVERRIDDEN}}}
        items.insert(
            0, items.pop()
        )  # the override first: a contract that is in force already would go down in steps
        crds.kubectl("apply", "-f", "-", input=json.dumps(declared))
        try:
            wait_until(
                lambda: quota() == OVERRIDDEN, "the override to be in force", timeout_seconds=30
            )
            wait_until(lambda: state() == "Active", "its status", timeout_seconds=10)
            wait_until(
                lambda: overridden_by() == f"{namespace}/more",
                "the tier's status to name it",
                timeout_seconds=10,
            )
            ends = end_soon(api_client, namespace)
            wait_until(
                lambda: quota() == CONTRACT,
                "the contract to be back",
                timeout_seconds=AHEAD_SECONDS + 10,
            )
            assert ends <= time.time() < ends + patience(10)
            wait_until(lambda: state() == "Expired", "its end to be reported", timeout_seconds=10)
            wait_until(
                lambda: "OverrideExpired" in events(), "the event of its end", timeout_seconds=10
            )
        finally:  # while a policy is there, no other may have the cluster
            crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=60s")
    store.close()


# --- the documented rights ------------------------------------------------------------------------
# The rights of `examples/rights/` suffice: with exactly these the operator does its whole work, and
# nothing is refused.


RIGHTS = Path(__file__).parents[3] / "examples" / "rights"
LOCAL_COMMAND = [
    sys.executable,
    "-m",
    "tidegate",
    "run",
    "--all-namespaces",
    "--lease-namespace",
    "tidegate",
    "--listen-address",
    "127.0.0.1",
    "--liveness-port",
    "0",
    "--metrics-port",
    "0",
]


@pytest.fixture
def kubeconfig(crds: KubeApi, tmp_path: Path) -> Path:
    """The ServiceAccount of the example, with a token of its own."""
    crds.kubectl("apply", "-f", str(RIGHTS))
    token = crds.kubectl(
        "create", "token", "tidegate", "--namespace=tidegate", "--duration=1h"
    ).strip()
    return crds.kubeconfig_for(token=token, path=tmp_path / "tidegate.kubeconfig")


def test_the_documented_rights_are_enough_for_everything(
    crds: KubeApi,
    kafka: KafkaLab,
    kubeconfig: Path,
    namespace: str,
    unique_name: str,
    tmp_path: Path,
) -> None:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    log_path = tmp_path / "operator.log"
    with log_path.open("wb") as log:
        operator = subprocess.Popen(
            [*LOCAL_COMMAND, "--kubeconfig", str(kubeconfig)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        crds.kubectl(
            "apply", "-f", "-", input=json.dumps(one_of_each_kind(kafka, namespace, unique_name))
        )
        crds.kubectl(
            "wait",
            "--for=condition=Ready",
            "bbp/orders",
            "bt/gold",
            "qo/more",
            "-n",
            namespace,
            "--timeout=60s",
        )
        wait_until(
            lambda: "FirstQuota" in crds.kubectl("get", "events", "-n", namespace),
            "the event of the first quota",
            timeout_seconds=30,
        )
        assert f"tidegate.{namespace}.orders" in crds.kubectl("get", "lease", "-n", "tidegate")
        crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=60s")
    finally:
        operator.terminate()
        assert operator.wait(timeout=patience(30)) == 0
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    assert store.facts().owner_policy_key is None
    store.close()
    assert not [
        line
        for line in log_path.read_text().splitlines()
        if re.search(r"forbidden|\b403\b", line, re.IGNORECASE)
    ]
