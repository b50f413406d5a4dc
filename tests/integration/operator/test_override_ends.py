"""An override on real parts: in force within a pass, reported in its status, and ended by itself at its `expiresAt`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi

from controller_logic.model import Entity, QuotaKey
from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.integration.operator.installation import one_of_each_kind
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import BUSINESS_TIERS, QUOTA_OVERRIDES, ResourceKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

AHEAD_SECONDS = 6.0
CONTRACT, OVERRIDDEN = "1000000", "500000"


def status(api_client: ApiClient, namespace: str, kind: ResourceKind) -> dict[str, Any]:
    """The status of the only object of this kind."""
    (found,) = CustomObjectsApi(api_client).list_namespaced_custom_object(kind.group, kind.version, namespace, kind.plural)["items"]
    return dict(found.get("status") or {})


def end_soon(api_client: ApiClient, namespace: str) -> float:
    """Let the override end a few seconds from now and return that moment (unix time)."""
    ends = time.time() + AHEAD_SECONDS
    body = {"spec": {"expiresAt": datetime.fromtimestamp(ends, UTC).isoformat(timespec="milliseconds")}}
    kind = QUOTA_OVERRIDES
    CustomObjectsApi(api_client).patch_namespaced_custom_object(kind.group, kind.version, namespace, kind.plural, "more", body)
    return ends


def test_it_is_in_force_until_its_end_and_at_most_a_few_seconds_longer(
    crds: KubeApi, api_client: ApiClient, kafka: KafkaLab, namespace: str, unique_name: str, tmp_path: Path
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
        return {event.reason for event in CoreV1Api(api_client).list_namespaced_event(namespace).items}

    declared = one_of_each_kind(kafka, namespace, unique_name)
    items: list[dict[str, Any]] = declared["items"]  # type: ignore[assignment]
    with OperatorProcess(crds, namespace, tmp_path) as operator:
        operator.wait_for("Operator started")
        items[-1]["spec"] |= {"rates": {"perPartition": {"produce": OVERRIDDEN}}}
        items.insert(0, items.pop())  # the override first: a contract that is in force already would go down in steps
        crds.kubectl("apply", "-f", "-", input=json.dumps(declared))
        try:
            wait_until(lambda: quota() == OVERRIDDEN, "the override to be in force", timeout_seconds=30)
            wait_until(lambda: state() == "Active", "its status", timeout_seconds=10)
            wait_until(lambda: overridden_by() == f"{namespace}/more", "the tier's status to name it", timeout_seconds=10)
            ends = end_soon(api_client, namespace)
            wait_until(lambda: quota() == CONTRACT, "the contract to be back", timeout_seconds=AHEAD_SECONDS + 10)
            assert ends <= time.time() < ends + 10
            wait_until(lambda: state() == "Expired", "its end to be reported", timeout_seconds=10)
            wait_until(lambda: "OverrideExpired" in events(), "the event of its end", timeout_seconds=10)
        finally:  # while a policy is there, no other may have the cluster
            crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=60s")
    store.close()
