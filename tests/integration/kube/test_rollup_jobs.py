"""A rollup Job on a real API server: accepted as it is where only restricted Pods are, made under
the chart's rights and no more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client as kubernetes_client

from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from tests.contract.kubernetes_contract import rollup_job
from tests.integration.chart.rendering import objects, rendered
from tests.unit.resources.documents import policy
from tidegate.control.rollups import RollupLook
from tidegate.errors import Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.rollup_jobs import RESULT_KEY, RollupResult, encode, labels, owner, result_name
from tidegate.resources.kinds import parse_policy
from tidegate.settings import RollupOffer
from tidegate_logic.rollup_schedule import Window

pytestmark = pytest.mark.integration

GROUP, VERSION, PLURAL = (
    BROKER_BANDWIDTH_POLICIES.group,
    BROKER_BANDWIDTH_POLICIES.version,
    BROKER_BANDWIDTH_POLICIES.plural,
)


def test_the_server_takes_the_job_and_lets_its_pod_in_where_only_restricted_pods_are(
    kube_api: KubeApi, api_client: kubernetes_client.ApiClient, namespace: str
) -> None:
    kube_api.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    body = rollup_job(namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job"},
        "spec": body["spec"]["template"]["spec"],
    }
    batch, core = kubernetes_client.BatchV1Api(api_client), kubernetes_client.CoreV1Api(api_client)
    made = batch.create_namespaced_job(
        namespace, body, dry_run="All", field_validation="Strict", _request_timeout=30
    )
    assert made.spec.pod_failure_policy.rules[0].on_exit_codes.values == [64, 65, 77]
    del pod["spec"][
        "serviceAccountName"
    ]  # admission looks for the account, which is none of this test's business
    kube_api.kubectl(
        "wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=30s"
    )
    core.create_namespaced_pod(
        namespace, pod, dry_run="All", field_validation="Strict", _request_timeout=30
    )


@pytest.fixture
def chart_rights(crds: KubeApi, namespace: str, tmp_path: Path) -> Helm:
    """The chart's accounts and rights for rollups in this namespace."""
    helm = Helm(tmp_path)
    values = {
        "rollup": {"enabled": True, "namespaces": [namespace]},
        "watch": {"namespaces": [namespace]},
        "crds": {"enabled": False},
    }
    wanted = [
        item
        for item in objects(rendered(helm, None, **values))
        if item["kind"] in ("ServiceAccount", "Role", "RoleBinding")
    ]
    for item in wanted:
        item["metadata"]["namespace"] = namespace
        for subject in item.get("subjects", ()):
            subject["namespace"] = namespace
    crds.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    )
    return helm


def connected(crds: KubeApi, namespace: str, account: str, folder: Path) -> KubernetesClient:
    token = crds.kubectl(
        "create", "token", account, f"--namespace={namespace}", "--duration=1h"
    ).strip()
    return KubernetesClient(
        connect(crds.kubeconfig_for(token=token, path=folder / f"{account}.kubeconfig")), "test"
    )


@pytest.fixture
def operator(
    crds: KubeApi, chart_rights: Helm, namespace: str, tmp_path: Path
) -> Iterator[KubernetesClient]:
    made = connected(crds, namespace, "tidegate", tmp_path)
    yield made
    made.close()


@pytest.fixture
def job(
    crds: KubeApi, chart_rights: Helm, namespace: str, tmp_path: Path
) -> Iterator[KubernetesClient]:
    made = connected(crds, namespace, "tidegate-rollup", tmp_path)
    yield made
    made.close()


@pytest.fixture
def claim(crds: KubeApi, namespace: str) -> None:
    """The volume claim that the policy's store names, and the Secret of its catalog, with the labels
    that let Jobs use them.
    """
    credentials = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "catalog",
            "namespace": namespace,
            "labels": {"tidegate.io/credentials": "true"},
        },
    }
    crds.kubectl("apply", "-f", "-", input=json.dumps(credentials))
    crds.kubectl(
        "apply",
        "-f",
        "-",
        input=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "tidegate-usage",
                    "namespace": namespace,
                    "labels": {"tidegate.io/usage-tables": "true"},
                },
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        ),
    )


@pytest.fixture
def raw_policy(
    crds: KubeApi, api_client: kubernetes_client.ApiClient, namespace: str
) -> JsonObject:
    made: JsonObject = kubernetes_client.CustomObjectsApi(
        api_client
    ).create_namespaced_custom_object(
        GROUP,
        VERSION,
        namespace,
        PLURAL,
        {**policy(), "metadata": {"name": "orders"}},
        _request_timeout=30,
    )
    return made


@pytest.mark.usefixtures("claim")
def test_operator_and_job_do_their_work_with_the_charts_rights_and_no_more(
    operator: KubernetesClient, job: KubernetesClient, raw_policy: JsonObject, namespace: str
) -> None:
    spec = parse_policy(raw_policy, strict=False).spec.rollup
    assert spec is not None
    now = (
        time.time() + 4 * 3600
    )  # the policy is young, and nothing before its first whole hour is computed
    look = RollupLook(
        operator, RollupOffer(image="tidegate:0.1.0"), may_write=lambda: True, wall=lambda: now
    )
    assert look.look(raw_policy, spec).trouble is None
    seen = look.look(raw_policy, spec).due
    assert seen is not None
    assert seen.active == seen.missing[0]

    uid = raw_policy["metadata"]["uid"]
    assert [
        found["metadata"]["uid"] for found in job.list_all(BROKER_BANDWIDTH_POLICIES, (namespace,))
    ] == [uid]
    until_ms = round(now * 1000)
    published = Window(seen.missing[0].start_ms, seen.missing[-1].end_ms)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": result_name("orders"),
            "labels": labels("orders"),
            "ownerReferences": [owner(raw_policy)],
        },
        "data": {
            RESULT_KEY: encode(RollupResult(uid, until_ms, until_ms + 3_600_000, (published,)))
        },
    }
    made = job.write_config_map(namespace, body)
    job.write_config_map(namespace, made)
    found = look.look(raw_policy, spec)
    assert (found.unusable, found.due and found.due.missing) == (None, ())

    with pytest.raises(Unauthorized):
        job.create_job(namespace, rollup_job(namespace))
    with pytest.raises(Unauthorized):
        operator.write_config_map(namespace, made)
    with pytest.raises(Unauthorized):
        operator.list_jobs("default", selector="a=b")
