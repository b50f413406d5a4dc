"""The manifest of a rollup Job: a name that always fits, a Pod that a restricted namespace admits, failures by exit code."""

from datetime import UTC, datetime

import pytest

from tests.contract.kubernetes_contract import POD, rollup_job
from tidegate.kube.rollup_jobs import LONGEST_NAME, job_name

START_MS = round(datetime(2026, 11, 22, 7, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("orders", "orders-rollup-202611220700-60m"), ("a" * 32, f"{'a' * 32}-rollup-202611220700-60m")],
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
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (1800, 2, "Never")
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
    assert {entry["name"] for entry in container["env"]} >= {"POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE", "MEMORY_LIMIT_MIB"}
    assert container["resources"]["limits"] == {"cpu": str(POD.cores), "memory": POD.memory}
