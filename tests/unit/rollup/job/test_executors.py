"""Spark settings of executors as Pods: they fit into what the policy gives them, and are as
restricted as the Job's own Pod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.kubernetes_contract import rollup_job
from tidegate.errors import InvalidResource
from tidegate.kube.rollup_jobs import labels, login_environment
from tidegate.rollup.job import (
    Executors,
    Mount,
    Pod,
    heap_mib,
    master,
    pod_of,
    pod_template,
    spark_settings,
)
from tidegate.settings import SecurityContexts

ENVIRONMENT = {
    "POD_NAME": "orders-rollup-1",
    "POD_NAMESPACE": "streaming",
    "POD_IP": "10.0.0.7",
    "MEMORY_LIMIT_MIB": "3072",
}
MOUNTS = (Mount("/var/lib/usage", claim="usage"), Mount("/var/lib/more", claim="more"))
EXECUTORS = Executors(2, 3, 500, 4096, labels("orders"), MOUNTS)


def settings(pod_name: str = "orders-rollup-202611220700-60m-x7k2p") -> dict[str, str]:
    pod = Pod(pod_name, "streaming", "10.0.0.7", 3072, "tidegate:1", "rollup", ("pull",))
    return dict(spark_settings(pod, EXECUTORS, template=Path("executor.json"), ports=(7078, 7079)))


def test_a_pod_of_an_executor_gets_exactly_the_memory_that_the_policy_says() -> None:
    found = settings()
    heap, beside = (
        int(found[key].removesuffix("m"))
        for key in ("spark.executor.memory", "spark.executor.memoryOverhead")
    )
    assert heap + beside == 4096
    assert found["spark.executor.instances"] == "2"
    assert [found[f"spark.kubernetes.executor.{kind}.cores"] for kind in ("request", "limit")] == [
        "500m",
        "3",
    ]


def test_executors_reach_the_driver_by_its_own_address_and_only_with_the_secret() -> None:
    found = settings()
    assert {found["spark.driver.host"], found["spark.driver.bindAddress"]} == {"10.0.0.7"}
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "orders-rollup-202611220700-60m-x7k2p",
        "9-lives-rollup-x",
        f"{'a' * 35}-bcdef",
        "x" * 63,
    ],
)
def test_names_of_executors_are_dns_labels_and_no_two_pods_share_them(name: str) -> None:
    prefix = settings(name)["spark.kubernetes.executor.podNamePrefix"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", prefix)
    assert len(prefix) <= 47
    assert prefix != settings(name[:-1] + "0")["spark.kubernetes.executor.podNamePrefix"]


def test_an_executor_is_as_restricted_as_the_job() -> None:
    job = rollup_job("streaming")["spec"]["template"]["spec"]
    pod = json.loads(pod_template(EXECUTORS))["spec"]
    assert pod["securityContext"] == job["securityContext"]
    assert pod["containers"][0]["securityContext"] == job["containers"][0]["securityContext"]
    assert pod["automountServiceAccountToken"] is False


def test_an_executor_has_the_endpoint_and_the_login_of_the_bucket() -> None:
    given = login_environment("orders-bucket")
    pod = json.loads(pod_template(replace(EXECUTORS, environment=given)))["spec"]
    assert pod["containers"][0]["env"] == given
    assert {entry["valueFrom"]["secretKeyRef"]["name"] for entry in given} == {"orders-bucket"}


def test_an_executor_has_the_same_files_at_the_same_places() -> None:
    pod = json.loads(pod_template(EXECUTORS))["spec"]
    (container,) = pod["containers"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/tmp",
        "/var/lib/usage",
        "/var/lib/more",
    }
    assert [volume for volume in pod["volumes"] if "emptyDir" not in volume] == [
        {"name": "mount-0", "persistentVolumeClaim": {"claimName": "usage"}},
        {"name": "mount-1", "persistentVolumeClaim": {"claimName": "more"}},
    ]


@pytest.mark.parametrize(
    ("host", "address"), [("10.96.0.1", "10.96.0.1"), ("fd00::1", "[fd00::1]")]
)
def test_the_api_server_is_named_by_its_address(host: str, address: str) -> None:
    assert (
        master({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"})
        == f"k8s://https://{address}:443"
    )


def test_a_pod_is_known_by_its_environment_and_outside_of_one_there_is_none() -> None:
    assert pod_of({}) is None
    assert pod_of(ENVIRONMENT) == Pod(
        "orders-rollup-1", "streaming", "10.0.0.7", 3072, "", "default"
    )
    assert pod_of({**ENVIRONMENT, "TIDEGATE_PULL_SECRETS": "a,b"}) == Pod(
        "orders-rollup-1", "streaming", "10.0.0.7", 3072, "", "default", ("a", "b")
    )


def test_executors_have_the_security_contexts_that_the_operator_gave_the_job() -> None:
    given = SecurityContexts(pod={"runAsNonRoot": True}, container={"privileged": False})
    pod = pod_of({**ENVIRONMENT, **given.environment()})
    assert pod is not None
    made = json.loads(pod_template(replace(EXECUTORS, security=pod.security)))["spec"]
    assert made["securityContext"] == {"runAsNonRoot": True}
    assert made["containers"][0]["securityContext"] == {"privileged": False}


@pytest.mark.parametrize(
    ("made_for", "named_now", "refused"),
    [
        (None, "usage", False),  # a person's own Job
        ("usage", "usage", False),
        ("", None, False),
        ("usage", "other", True),
        ("usage", None, True),
        ("", "other", True),
    ],
)
def test_executors_mount_no_claim_but_that_of_their_job(
    made_for: str | None, named_now: str | None, *, refused: bool
) -> None:
    given = {} if made_for is None else {"TIDEGATE_CLAIM": made_for}
    pod = pod_of({**ENVIRONMENT, **given})
    assert pod is not None
    if not refused:
        pod.refuse_other_claim(named_now)
        return
    with pytest.raises(InvalidResource, match="executors mount no other one"):
        pod.refuse_other_claim(named_now)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"POD_IP": None}, "POD_IP"),
        ({"POD_IP": None, "POD_NAMESPACE": None}, "POD_IP, POD_NAMESPACE"),
        ({"MEMORY_LIMIT_MIB": "3Gi"}, "3Gi"),
        ({"TIDEGATE_SECURITY_CONTEXTS": "[]"}, "TIDEGATE_SECURITY_CONTEXTS is not the JSON"),
    ],
)
def test_half_an_environment_is_refused(change: dict[str, str | None], named: str) -> None:
    half = {name: value for name, value in {**ENVIRONMENT, **change}.items() if value is not None}
    with pytest.raises(InvalidResource) as refused:
        pod_of(half)
    assert named in refused.value.message


@pytest.mark.parametrize(("memory", "heap"), [(1024, 512), (768, 512), (3072, 1536), (8192, 4096)])
def test_java_gets_half_and_never_less_than_spark_starts_with(memory: int, heap: int) -> None:
    assert heap_mib(memory) == heap


def test_half_an_environment_reads_like_this(golden: Callable[[str], None]) -> None:
    with pytest.raises(InvalidResource) as refused:
        pod_of({name: value for name, value in ENVIRONMENT.items() if name != "POD_IP"})
    golden(refused.value.message)


def test_executors_are_where_the_policy_wants_the_job() -> None:
    wished = replace(
        EXECUTORS,
        placement={"nodeSelector": {"pool": "batch"}, "priorityClassName": "batch"},
        annotations={"sidecar.istio.io/inject": "false"},
        environment=[{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        ephemeral_storage="10Gi",
    )
    pod = json.loads(pod_template(wished))
    assert pod["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert pod["spec"]["nodeSelector"] == {"pool": "batch"}
    assert pod["spec"]["priorityClassName"] == "batch"
    (container,) = pod["spec"]["containers"]
    assert container["env"] == [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    assert container["resources"]["limits"] == {"ephemeral-storage": "10Gi"}
    assert pod["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "10Gi"}
