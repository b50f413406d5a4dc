"""An edit wakes the policy that the object belongs to and no other, on a real API server.

Three policies of one operator: one for a real Kafka, two for ZooKeepers of their own whose brokers
do not answer. What an edit must not do to them is the same as for clusters that do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.zookeeper import ZooKeeperLab
from tests.integration.operator.installation import lay_out, one_leader_on_each_broker
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ResourceKind

pytestmark = [pytest.mark.integration, pytest.mark.long]

POLICIES = ("orders", "payments", "search")
EDITS, EVERY_SECONDS = 50, 0.2


class Policies:
    """The three policies, a tier of each, and the operator that works for them."""

    def __init__(self, api_client: ApiClient, namespace: str, operator: OperatorProcess) -> None:
        self._objects = CustomObjectsApi(api_client)
        self._namespace = namespace
        self.operator = operator

    def create(self, kind: ResourceKind, name: str, spec: JsonObject) -> None:
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self._objects.create_namespaced_custom_object(*self._place(kind), body)

    def edit_tier(self, name: str, patch: JsonObject) -> None:
        self._objects.patch_namespaced_custom_object(*self._place(BUSINESS_TIERS), name, patch)

    def delete_all(self) -> None:
        for name in POLICIES:
            place = (*self._place(BROKER_BANDWIDTH_POLICIES), name)
            self._objects.patch_namespaced_custom_object(*place, {"metadata": {"finalizers": None}})
            self._objects.delete_namespaced_custom_object(*place)

    def wakes(self) -> dict[str, float]:
        """How often edits have woken each policy."""
        return {
            name: self.operator.metric("tidegate_wakes_total", policy=name, cause="objects")
            for name in POLICIES
        }

    def settle(self) -> dict[str, float]:
        """The wakes, once every policy has passed and no edit is on its way any more."""
        wait_until(
            lambda: all(
                self.operator.metric("tidegate_passes_total", policy=name) for name in POLICIES
            ),
            "a pass of every policy",
            timeout_seconds=60,
        )
        before: dict[str, float] = {}
        while before != (now := self.wakes()):
            before = now
            time.sleep(1.5)
        return now

    def edit_often(self, name: str, patch_of: Any) -> None:
        """Edit a tier five times a second, for ten seconds."""
        begun = time.monotonic()
        for number in range(EDITS):
            self.edit_tier(name, patch_of(number))
            time.sleep(max(0.0, begun + (number + 1) * EVERY_SECONDS - time.monotonic()))

    def _place(self, kind: ResourceKind) -> tuple[str, str, str, str]:
        return kind.group, kind.version, self._namespace, kind.plural


def tier_spec(policy: str, topic: str, rate: int) -> JsonObject:
    contract = {"perPartition": {"produce": str(rate)}}
    user = f"{topic}-{policy}"
    members = [{"name": "all", "user": user, "topics": [topic], "contract": contract}]
    return {"policyRef": {"name": policy}, "level": "L0", "members": members}


@pytest.fixture
def in_kafka(kafka: KafkaLab) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    if client.exists("/tidegate"):
        client.delete("/tidegate", recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def policies(
    kafka: KafkaLab,
    in_kafka: KazooClient,
    zookeeper: ZooKeeperLab,
    crds: KubeApi,
    api_client: ApiClient,
    namespace: str,
    unique_name: str,
    tmp_path: Path,
) -> Iterator[Policies]:
    one_leader_on_each_broker(kafka, unique_name)
    clusters = {"orders": (kafka.bootstrap_servers, kafka.zookeeper_connect)}
    root = KazooClient(zookeeper.connect)
    root.start()
    for name in POLICIES[1:]:
        root.create(f"/{unique_name}-{name}")
        clusters[name] = ("127.0.0.1:1", f"{zookeeper.connect}/{unique_name}-{name}")
        own = KazooClient(clusters[name][1])
        own.start()
        lay_out(own, f"cluster-of-{name}")
        own.stop()
        own.close()
    root.stop()
    root.close()
    with OperatorProcess(crds, namespace, tmp_path) as operator:
        made = Policies(api_client, namespace, operator)
        for name, (bootstrap_servers, connect) in clusters.items():
            connection = {
                "bootstrapServers": bootstrap_servers,
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": connect},
            }
            spec = {"mode": "Enforce", "kafka": connection, "writeBudget": {"changes": 10_000}}
            made.create(BROKER_BANDWIDTH_POLICIES, name, spec)
            made.create(BUSINESS_TIERS, name, tier_spec(name, unique_name, 1_000_000))
        yield made
    made.delete_all()


def quota(client: KazooClient, user: str) -> str | None:
    path = f"/config/users/{user}"
    if not client.exists(path):
        return None
    found: str | None = json.loads(client.get(path)[0])["config"].get("producer_byte_rate")
    return found


def test_an_edit_wakes_the_policy_of_its_object_and_no_other(
    policies: Policies, in_kafka: KazooClient, unique_name: str
) -> None:
    before = policies.settle()
    policies.edit_often(
        "orders",
        lambda number: {"metadata": {"annotations": {"example.com/seen": str(number)}}},
    )
    assert policies.settle() == before, "an annotation of another controller wakes no policy"

    last = 2_000_000 + EDITS - 1
    policies.edit_often(
        "orders", lambda number: {"spec": tier_spec("orders", unique_name, 2_000_000 + number)}
    )
    wait_until(
        lambda: quota(in_kafka, f"{unique_name}-orders") == str(last),
        "the last edit in Kafka",
        timeout_seconds=5,
    )
    after = policies.settle()
    woken = after.pop("orders") - before["orders"]
    assert after == {name: before[name] for name in POLICIES[1:]}
    assert 10 <= woken <= EDITS

    policies.edit_tier("orders", {"spec": {"policyRef": {"name": "search"}}})
    moved = policies.settle()
    assert moved["payments"] == before["payments"]
    assert moved["orders"] == before["orders"] + woken + 1
    assert moved["search"] == before["search"] + 1
