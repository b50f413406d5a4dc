"""`tidegate import` as a process on a real ZooKeeper of a real Kafka: what it prints, `plan` takes,
and the plan changes no quota.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.process import patience
from tidegate.kafka.quota_node import config_path
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE


@pytest.fixture
def quotas(kafka: KafkaLab, unique_name: str) -> Iterator[dict[Entity, dict[QuotaKey, str]]]:
    """Three entities with quotas as a script leaves them."""
    wanted = {
        Entity(f"{unique_name}-shop"): {FETCH: "50000000", PRODUCE: "20000000"},
        Entity(f"{unique_name}-shop", "nightly"): {FETCH: "5242880"},
        Entity(client_id=f"{unique_name}-search"): {PRODUCE: "1234567"},
    }
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    for entity, values in wanted.items():
        content = {"version": 1, "config": {key.value: text for key, text in values.items()}}
        client.create(config_path(entity), json.dumps(content).encode(), makepath=True)
    yield wanted
    for entity in reversed(wanted):
        client.delete(config_path(entity), recursive=True)
    client.stop()
    client.close()


def tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(90),
    )


def test_what_is_printed_is_planned_without_a_change_of_any_quota(
    kafka: KafkaLab,
    quotas: dict[Entity, dict[QuotaKey, str]],
    unique_name: str,
    tmp_path: Path,
) -> None:
    done = tidegate(
        *("import", "n/orders", "--zookeeper", kafka.zookeeper_connect),
        *("--match", f"{unique_name}-*", "--level-of", f"{unique_name}-search=L0"),
    )
    assert done.returncode == 0, done.stderr
    tiers = list(yaml.safe_load_all(done.stdout))
    members = [member for tier in tiers for member in tier["spec"]["members"]]
    assert len(members) == len(quotas)
    assert {tier["spec"]["level"] for tier in tiers} == {"L0", "L2", "L3"}
    (tmp_path / "tiers.yaml").write_text(done.stdout)
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": "n"},
        "spec": {
            "mode": "Enforce",
            "kafka": {
                "bootstrapServers": kafka.bootstrap_servers,
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": kafka.zookeeper_connect},
            },
        },
    }
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    planned = tidegate("plan", "-f", str(tmp_path), "-o", "json")
    document = json.loads(planned.stdout)
    assert document["changes"] == []
    assert document["summary"]["managed"] == document["summary"]["inSync"] == len(quotas)
