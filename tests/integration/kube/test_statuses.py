"""One status that a real API server answers with 5xx keeps no other waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from lab.kubernetes.api import KubeApi
from tests.contract.kubernetes_contract import TIER_SPEC
from tidegate.control.report.conditions import Truth, ready
from tidegate.control.report.reporter import KubernetesPublisher, Report
from tidegate.errors import ServerFault
from tidegate.kube.api import BUSINESS_TIERS, JsonObject, ObjectRef
from tidegate.kube.cache import ResourceCache
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import StatusWriter
from tidegate.metrics import Telemetry
from tidegate.resources.status import MemberStatus, TierStatus
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

# etcd takes 1.5 MiB; these members leave less than their status needs
MEMBERS, TOPICS, TOPIC_BYTES = 58, 100, 249


@pytest.fixture(scope="module")
def kubernetes(crds: KubeApi) -> Iterator[KubernetesClient]:
    real = KubernetesClient(connect(crds.kubeconfig), "test")
    yield real
    real.close()


def _tier(name: str, members: list[JsonObject]) -> JsonObject:
    return {
        "apiVersion": BUSINESS_TIERS.api_version,
        "kind": BUSINESS_TIERS.kind,
        "metadata": {"name": name},
        "spec": {**TIER_SPEC, "members": members},
    }


def _large_tier() -> JsonObject:
    topics = [f"{number:0{TOPIC_BYTES}}" for number in range(TOPICS)]
    contract = {"perPartition": {"produce": "1M"}}
    members = [
        {"name": f"m-{number}", "user": f"u-{number}", "topics": topics, "contract": contract}
        for number in range(MEMBERS)
    ]
    return _tier("a-large", members)


def _report(raw: JsonObject) -> Report:
    members = tuple(
        MemberStatus(name=member["name"], state="Contract", message="x" * 1000)
        for member in raw["spec"]["members"]
        for _ in range(4)
    )
    verdict = ready(Truth.TRUE, Reason.CONTRACT, "All members are at their contracted rates")
    return Report(BUSINESS_TIERS, raw, TierStatus(members=members), (verdict,))


def test_a_tier_too_large_for_etcd_keeps_no_other_status_waiting(
    kubernetes: KubernetesClient, api_client: ApiClient, namespace: str
) -> None:
    objects = CustomObjectsApi(api_client)
    place = (BUSINESS_TIERS.group, BUSINESS_TIERS.version, namespace, BUSINESS_TIERS.plural)
    small = [_tier(name, TIER_SPEC["members"]) for name in ("b", "c")]
    made = [
        objects.create_namespaced_custom_object(*place, tier, _request_timeout=60)
        for tier in (_large_tier(), *small)
    ]
    reports = [_report(raw) for raw in made]
    with pytest.raises(ServerFault, match="request is too large"):
        kubernetes.patch_status(
            ObjectRef.of(BUSINESS_TIERS, made[0]),
            {"members": reports[0].status.as_document()["members"]},  # type: ignore[union-attr]
            resource_version=made[0]["metadata"]["resourceVersion"],
        )
    publisher = KubernetesPublisher(
        StatusWriter(kubernetes),
        EventRecorder(kubernetes),
        cache=ResourceCache(lambda _: None),
        telemetry=Telemetry(),
    )
    publisher.publish(reports)
    now = {
        tier["metadata"]["name"]: tier for tier in kubernetes.list_all(BUSINESS_TIERS, [namespace])
    }
    assert {name: "status" in tier for name, tier in now.items()} == {
        "a-large": False,
        "b": True,
        "c": True,
    }
