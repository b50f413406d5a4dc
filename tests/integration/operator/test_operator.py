"""The whole path once: kubectl apply, the operator as a process, a quota in ZooKeeper, and a real client that slows down."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.load import LoadClient, LoadPlan
from lab.process import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_SAWTOOTH_SECONDS = 12.0
_BURST_SECONDS = 14.0

COMMAND = [sys.executable, "-m", "tidegate", "run", "--liveness-port", "0", "--metrics-port", "0", "--kubeconfig"]


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
    member = {"name": "alice", "user": user, "topics": [topic], "contract": {"perPartition": {"produce": "1M", "fetch": "1M"}}}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "gold", "namespace": namespace},
        "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]},
    }


def mean_rate_of_a_greedy_producer(kafka: KafkaLab, user: str, topic: str, *, directory: Path) -> float:
    """Bytes per second over one whole sawtooth of the throttling (12 s), after the mute that follows the first burst."""
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
    return sum(row.moved_bytes for row in rows if last - _SAWTOOTH_SECONDS < row.unix_seconds <= last) / _SAWTOOTH_SECONDS


def quota(zookeeper: KazooClient, user: str) -> dict[str, str]:
    path = f"/config/users/{user}"
    if zookeeper.exists(path) is None:
        return {}
    return dict(json.loads(zookeeper.get(path)[0] or b'{"config":{}}')["config"])


def test_a_contract_follows_its_leaders_and_is_given_back(
    crds: KubeApi, kafka: KafkaLab, operator: subprocess.Popen[bytes], unique_name: str, tmp_path: Path
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
        wait_until(lambda: quota(zookeeper, user).get("producer_byte_rate") == "1000000", "the contract on each broker", timeout_seconds=60)
        assert {key: value for key, value in quota(zookeeper, user).items() if key.startswith("SCRAM")} == {
            key: value for key, value in before.items() if key.startswith("SCRAM")
        }
        crds.kubectl("wait", "--for=condition=Ready", "bbp/orders", "bt/gold", "-n", namespace, "--timeout=30s")
        assert 2.0 < mean_rate_of_a_greedy_producer(kafka, user, topic, directory=tmp_path) / 1e6 < 3.4, "three brokers with 1 MB/s each"
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
    assert operator.wait(timeout=30) == 0
    zookeeper.stop()
    zookeeper.close()
