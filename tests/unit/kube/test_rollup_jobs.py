"""Rollup Jobs: the manifest, and the result to which each of them adds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract.kubernetes_contract import POD, POLICY, rollup_job
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.resources.documents import policy as policy_document
from tidegate.control.rollups import pod_of
from tidegate.errors import Conflict
from tidegate.kube.api import JsonObject
from tidegate.kube.rollup_jobs import (
    LONGEST_NAME,
    POLICY_LABEL,
    RollupResult,
    job_body,
    job_name,
    labels,
    read_result,
    record_result,
)
from tidegate.resources.rollup import Rollup
from tidegate.settings import RollupOffer
from tidegate_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from tidegate_logic.rollup_schedule import Window

# --- the manifest ---------------------------------------------------------------------------------
# The manifest of a rollup Job: a name that always fits, a Pod that a restricted namespace admits,
# failures by exit code.


START_MS = round(datetime(2026, 11, 22, 7, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("orders", "orders-rollup-202611220700-60m"),
        ("a" * 32, f"{'a' * 32}-rollup-202611220700-60m"),
    ],
)
def test_a_job_is_named_after_its_policy_and_window(policy: str, expected: str) -> None:
    assert job_name(policy, START_MS, START_MS + HOUR_MS) == expected


def test_names_that_would_be_too_long_or_no_label_differ_by_a_digest() -> None:
    policies = ("p" * 63, "p" * 62 + "q", "orders.eu", "orders-eu", "p" * 23 + "-" + "x" * 39)
    names = {job_name(policy, START_MS, START_MS + HOUR_MS) for policy in policies}
    assert len(names) == len(policies)
    assert all(len(name) <= LONGEST_NAME and "." not in name and "--" not in name for name in names)


def test_the_pod_is_let_in_where_only_restricted_pods_are() -> None:
    spec = rollup_job("streaming")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/var/lib/usage"}


def test_the_job_ends_by_itself_whatever_happens() -> None:
    spec = rollup_job("streaming")["spec"]
    assert (
        spec["activeDeadlineSeconds"],
        spec["backoffLimit"],
        spec["template"]["spec"]["restartPolicy"],
    ) == (1800, 2, "Never")
    assert spec["ttlSecondsAfterFinished"] > 0


def test_the_command_names_policy_and_window_and_the_pod_has_its_own_fields() -> None:
    (container,) = rollup_job("streaming", START_MS)["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "rollup",
        "job",
        "--policy=streaming/orders",
        "--window-start=2026-11-22T07:00:00Z",
        "--window-end=2026-11-22T07:05:00Z",
    ]
    assert {entry["name"] for entry in container["env"]} >= {
        "POD_NAME",
        "POD_NAMESPACE",
        "POD_IP",
        "NODE",
        "MEMORY_LIMIT_MIB",
    }
    assert container["resources"]["limits"] == {"cpu": str(POD.cores), "memory": POD.memory}


def test_a_bucket_may_have_an_endpoint_and_a_login_from_the_policys_own_secret() -> None:
    (on_disk,) = rollup_job("streaming")["spec"]["template"]["spec"]["containers"]
    assert not [entry for entry in on_disk["env"] if entry["name"].startswith("AWS_")]
    pod = replace(
        POD,
        mount=None,
        login_secret="orders-bucket",
        labels={"azure.workload.identity/use": "true"},
    )
    job = job_body(OURS, pod, start_ms=0, end_ms=300_000)
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["azure.workload.identity/use"] == "true"
    assert labels["app.kubernetes.io/component"] == "rollup"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {
        entry["name"]: entry["valueFrom"]
        for entry in container["env"]
        if entry["name"].startswith(("AWS", "ICEBERG"))
    }
    assert given == {
        name: {"secretKeyRef": {"name": "orders-bucket", "key": name, "optional": True}}
        for name in (
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_DEFAULT_REGION",
            "AWS_ENDPOINT_URL",
            "ICEBERG_TOKEN",
            "ICEBERG_CREDENTIAL",
            "ICEBERG_SCOPE",
            "ICEBERG_OAUTH2_SERVER_URI",
        )
    }


# --- the result -----------------------------------------------------------------------------------
# Jobs add to the result, lose none of another Job's, and write over one that is not theirs.


OURS = {**POLICY, "metadata": {**POLICY["metadata"], "namespace": "streaming"}}
FIGURES = {(Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE): DirectionUsage(1e6, 1e6, 1, 1.0, 0.0)}


def record(
    kubernetes: InMemoryKubernetes,
    start_ms: int,
    *,
    until_seconds: float | None = None,
    now_ms: int = 1000,
) -> RollupResult:
    usage = None if until_seconds is None else Usage(7, until_seconds, FIGURES)
    window = Window(start_ms, start_ms + 100)
    return record_result(
        kubernetes,
        OURS,
        published=[window],
        usage=usage,
        now_ms=now_ms,
        valid_until_ms=now_ms + 500,
    )


def test_windows_add_up_and_the_newest_figures_stay() -> None:
    kubernetes = InMemoryKubernetes()
    record(kubernetes, 100, until_seconds=2.0, now_ms=1000)
    record(kubernetes, 0, until_seconds=1.0, now_ms=2000)
    record(kubernetes, 300)
    result, problem = read_result(kubernetes, OURS)
    assert (result, problem) == (
        RollupResult(
            OURS["metadata"]["uid"],
            1000,
            1500,
            (Window(0, 200), Window(300, 400)),
            Usage(7, 2.0, FIGURES),
        ),
        None,
    )


def test_empty_time_adds_up_too() -> None:
    kubernetes = InMemoryKubernetes()
    for start_ms in (100, 0):
        record_result(
            kubernetes,
            OURS,
            published=(),
            empty=[Window(start_ms, start_ms + 100)],
            usage=None,
            now_ms=1000,
            valid_until_ms=1500,
        )
    result, _ = read_result(kubernetes, OURS)
    assert result is not None
    assert (result.published, result.empty) == ((), (Window(0, 200),))


def test_why_the_catalog_is_behind_is_what_the_newest_job_says() -> None:
    kubernetes = InMemoryKubernetes()
    for why in ("it is down" * 1000, "it refuses", None):
        result = record_result(
            kubernetes,
            OURS,
            published=(),
            usage=None,
            catalog_problem=why,
            now_ms=1000,
            valid_until_ms=1500,
        )
        read, _ = read_result(kubernetes, OURS)
        assert read is not None
        assert read.catalog_problem == (None if why is None else why[:1000])
    assert result.catalog_problem is None


def test_the_slower_writer_reads_again_and_adds() -> None:
    class Raced(InMemoryKubernetes):
        raced = False

        def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
            if not self.raced:
                self.raced = True
                record(self, 500)
            return super().write_config_map(namespace, body)

    kubernetes = Raced()
    assert record(kubernetes, 0).published == (Window(0, 100), Window(500, 600))


def test_a_writer_that_is_always_slower_raises_conflict() -> None:
    class Refusing(InMemoryKubernetes):
        def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
            raise Conflict("another was faster")

    with pytest.raises(Conflict):
        record(Refusing(), 0)


@pytest.mark.parametrize("text", ["", "{}", '{"schemaVersion":99}'])
def test_an_unreadable_result_is_reported_and_written_over(text: str) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.write_config_map(
        "streaming", {"metadata": {"name": "orders-rollup"}, "data": {"result.json": text}}
    )
    assert read_result(kubernetes, OURS)[1]
    assert record(kubernetes, 0).published == (Window(0, 100),)
    assert read_result(kubernetes, OURS)[1] is None


def test_the_result_goes_with_its_policy(golden: Callable[[str], None]) -> None:
    kubernetes = InMemoryKubernetes()
    record(kubernetes, 0)
    written = kubernetes.read_config_map("streaming", "orders-rollup")
    assert written is not None
    assert written["metadata"]["ownerReferences"][0]["uid"] == OURS["metadata"]["uid"]
    other = {**OURS, "metadata": {**OURS["metadata"], "uid": "another"}}
    result, why = read_result(kubernetes, other)
    assert result is None
    golden(why or "")


# --- what a policy says of its Pods ---------------------------------------------------------------


def pod_spec() -> Rollup:
    document = policy_document()["spec"]["rollup"]
    return Rollup.model_validate_json(json.dumps({**document, "suspend": True}))


def test_the_jobs_pod_is_where_the_policy_wants_it_and_has_what_it_gives() -> None:
    spec = pod_spec()
    pod = pod_of(
        spec, RollupOffer(image="tidegate:1", service_account="rollup"), policy_name="orders"
    )
    job = job_body(OURS, pod, start_ms=0, end_ms=300_000)
    template = job["spec"]["template"]
    made = template["spec"]
    assert job["spec"]["suspend"] is True
    given = policy_document()["spec"]["rollup"]["pod"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert made[name] == given[name]
    for metadata in (job["metadata"], template["metadata"]):
        assert metadata["labels"].items() >= {**given["labels"], **labels("orders")}.items()
    assert template["metadata"]["annotations"].items() >= given["annotations"].items()
    (container,) = made["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["HTTPS_PROXY"] == "http://proxy:3128"
    assert container["resources"]["requests"]["ephemeral-storage"] == "10Gi"
    assert made["volumes"][0] == {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}}


def test_a_policy_without_wishes_has_the_job_that_it_always_had() -> None:
    spec = Rollup.model_validate({"storage": {"url": "s3://usage/shop"}})
    pod = pod_of(
        spec, RollupOffer(image="tidegate:1", service_account="rollup"), policy_name="orders"
    )
    job = job_body(OURS, pod, start_ms=0, end_ms=300_000)
    assert "suspend" not in job["spec"]
    assert job["metadata"]["labels"] == labels("orders")
    made = job["spec"]["template"]["spec"]
    assert not {"nodeSelector", "tolerations", "affinity", "priorityClassName"} & made.keys()
    assert made["volumes"][0]["emptyDir"] == {}


def test_labels_of_the_operator_go_before_those_of_the_policy() -> None:
    pod = replace(POD, labels={POLICY_LABEL: "another", "queue": "night"})
    job = job_body(OURS, pod, start_ms=0, end_ms=300_000)
    assert job["metadata"]["labels"] == {**labels("orders"), "queue": "night"}
