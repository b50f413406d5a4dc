"""The lab's Kubernetes API behaves as a cluster's does, in everything that Tidegate depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, watch

from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.kubernetes.tools import KubectlFailed

pytestmark = pytest.mark.integration

GROUP = "lab.tidegate.io"
LOCK = (GROUP, "v1", "locks")

LOCK_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"locks.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Lock", "plural": "locks", "singular": "lock"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "low": {"type": "integer"},
                                    "high": {"type": "integer"},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "self.low <= self.high",
                                        "message": "low must not exceed high",
                                    }
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {"level": {"type": "integer"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


def lock(name: str, low: int = 1, high: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Lock",
        "metadata": {"name": name},
        "spec": {"low": low, "high": high},
    }


@pytest.fixture(scope="module", autouse=True)
def lock_crd(kube_api: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("crds") / "locks.yaml"
    path.write_text(yaml.safe_dump(LOCK_CRD))
    kube_api.install_crds(path)


@pytest.fixture
def locks(api_client: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api_client)


def create(locks: client.CustomObjectsApi, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    group, version, plural = LOCK
    created: dict[str, Any] = locks.create_namespaced_custom_object(
        group, version, namespace, plural, body, _request_timeout=30
    )
    return created


def test_a_cel_rule_refuses_an_object_with_its_own_message(
    kube_api: KubeApi, namespace: str
) -> None:
    with pytest.raises(KubectlFailed) as refused:
        kube_api.kubectl(
            "create",
            "-n",
            namespace,
            "-f",
            "-",
            input=json.dumps(lock("upside-down", low=3, high=2)),
        )
    assert "low must not exceed high" in refused.value.stderr


def test_strict_validation_refuses_a_field_that_is_not_in_the_schema(
    kube_api: KubeApi, namespace: str
) -> None:
    stray = lock("stray")
    stray["spec"]["colour"] = "red"
    with pytest.raises(KubectlFailed, match=r'unknown field "spec.colour"'):
        kube_api.kubectl(
            "create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(stray)
        )


def test_a_status_patch_changes_the_status_and_not_the_generation(
    locks: client.CustomObjectsApi, namespace: str
) -> None:
    before = create(locks, namespace, lock("gauge"))
    group, version, plural = LOCK
    patch = {"status": {"level": 7}, "spec": {"high": 99}}
    after = locks.patch_namespaced_custom_object_status(
        group, version, namespace, plural, "gauge", patch, _request_timeout=30
    )
    assert (after["status"], after["spec"]) == ({"level": 7}, before["spec"])
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_a_watch_reports_an_object_that_was_created_changed_and_deleted(
    locks: client.CustomObjectsApi, namespace: str
) -> None:
    group, version, plural = LOCK
    listed = locks.list_namespaced_custom_object(
        group, version, namespace, plural, _request_timeout=30
    )
    create(locks, namespace, lock("seen"))
    locks.patch_namespaced_custom_object(
        group, version, namespace, plural, "seen", {"spec": {"high": 5}}, _request_timeout=30
    )
    locks.delete_namespaced_custom_object(
        group, version, namespace, plural, "seen", _request_timeout=30
    )
    stream = watch.Watch().stream(
        locks.list_namespaced_custom_object,
        *(group, version, namespace, plural),
        resource_version=listed["metadata"]["resourceVersion"],
        timeout_seconds=2,
        _request_timeout=30,
    )
    assert [event["type"] for event in stream] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_lease_replaced_with_an_old_resource_version_is_a_conflict(
    api_client: client.ApiClient, namespace: str
) -> None:
    leases = client.CoordinationV1Api(api_client)
    body = {
        "metadata": {"name": "turn"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    first = leases.create_namespaced_lease(namespace, body, _request_timeout=30)
    first.spec.holder_identity = "b"
    leases.replace_namespaced_lease("turn", namespace, first, _request_timeout=30)
    first.spec.holder_identity = "c"
    with pytest.raises(client.ApiException) as refused:
        leases.replace_namespaced_lease("turn", namespace, first, _request_timeout=30)
    assert refused.value.status == 409
    assert (
        leases.read_namespaced_lease("turn", namespace, _request_timeout=30).spec.holder_identity
        == "b"
    )


def test_kubectl_describe_shows_an_event_of_a_custom_resource(
    kube_api: KubeApi, locks: client.CustomObjectsApi, namespace: str
) -> None:
    made = create(locks, namespace, lock("talkative"))
    regarding = {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "namespace": namespace,
        "name": "talkative",
        "uid": made["metadata"]["uid"],
    }
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "talkative.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "tidegate.io/lab",
        "reportingInstance": "test",
        "action": "Reconcile",
        "type": "Normal",
        "reason": "Opened",
        "note": "the gate is open",
        "regarding": regarding,
    }
    kube_api.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(event))
    assert "the gate is open" in kube_api.kubectl(
        "describe", "-n", namespace, "locks.lab.tidegate.io/talkative"
    )


def test_a_deleted_namespace_takes_its_objects_with_it(
    kube_api: KubeApi, locks: client.CustomObjectsApi, namespace: str
) -> None:
    create(locks, namespace, lock("doomed"))
    kube_api.kubectl("delete", "namespace", namespace, "--wait=true", "--timeout=30s")
    assert namespace not in kube_api.kubectl(
        "get", "locks", "--all-namespaces", "--ignore-not-found"
    )


def test_a_service_account_may_do_what_its_rules_allow_and_nothing_else(
    kube_api: KubeApi, namespace: str
) -> None:
    rules = [{"apiGroups": [GROUP], "resources": ["locks"], "verbs": ["create"]}]
    kubeconfig = service_account_kubeconfig(
        kube_api, "maker", namespace=namespace, rules=rules, granted_in=[namespace]
    )
    maker = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}")
    assert "created" in kube_api.kubectl(
        *maker, "create", "-f", "-", input=json.dumps(lock("allowed"))
    )
    with pytest.raises(KubectlFailed, match="forbidden"):
        kube_api.kubectl(*maker, "delete", "locks", "allowed")


def test_two_apis_run_side_by_side_and_leave_nothing(kube_api: KubeApi) -> None:
    with KubeApi() as second:
        assert second.server != kube_api.server
        second.kubectl("create", "namespace", "only-here")
        assert "only-here" not in kube_api.kubectl("get", "namespaces")
        directory, processes = second.directory, list(second._processes.values())
    assert not directory.exists()
    gone = [not Path(f"/proc/{process.pid}").exists() for process in processes]
    assert gone == [True, True, True]
