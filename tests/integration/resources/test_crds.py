"""The kinds in kubectl: columns, explanations, waiting for conditions, and field selectors."""

import json
from pathlib import Path

import pytest

from lab.kubernetes.api import KubeApi
from tests.integration.resources.conftest import Answer
from tests.unit.resources.documents import override, policy, tier
from tidegate.resources import KINDS, Kind

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"
READY = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-11-21T12:00:00Z",
    "reason": "InSync",
    "message": "All right.",
}
POLICY_STATUS = {
    "observedGeneration": 1,
    "conditions": [READY],
    "clusterId": "6n9yBVQpTmqxCpLQXWtDzw",
    "quotas": {"managed": 120, "inSync": 118, "contended": 0},
    "summary": {"brokers": 3, "over": 1, "throttled": 2},
}
TIER_STATUS = {
    "observedGeneration": 1,
    "conditions": [READY],
    "summary": {"members": 1, "state": "Contract"},
    "members": [{"name": "nightly-reports", "leaders": 6, "leaderSkew": "1.33", "quota": {"fetch": 20971520}, "state": "Contract"}],
}

OVERRIDE_STATUS = {
    "observedGeneration": 1,
    "conditions": [READY],
    "state": "Active",
    "members": [{"tier": "streaming/reporting", "member": "nightly-reports", "user": "reports", "clientId": "nightly"}],
    "since": "2026-11-21T12:00:00Z",
    "until": "2026-11-30T06:00:00Z",
    "summary": {"target": "user=reports", "members": 1},
}


def create(served: KubeApi, document: dict[str, object], name: str, status: dict[str, object]) -> None:
    named = {**document, "metadata": {"name": name, "namespace": "streaming"}}
    served.kubectl("create", "--validate=strict", "-f", "-", input=json.dumps(named))
    kind = str(document["kind"]).lower()
    patch = json.dumps({"status": status})
    served.kubectl("patch", kind, name, "-n", "streaming", "--subresource=status", "--type=merge", "-p", patch)


def columns(table: str) -> dict[str, str]:
    heads, values = (line.split() for line in table.splitlines())
    return dict(zip(heads, values, strict=True))


@pytest.mark.usefixtures("answer")
def test_a_policy_shows_readiness_mode_brokers_and_quotas(served: KubeApi, unique_name: str) -> None:
    create(served, policy(), unique_name, POLICY_STATUS)
    shown = columns(served.kubectl("get", "bbp", unique_name, "-n", "streaming"))
    del shown["AGE"]
    assert shown == {
        "NAME": unique_name,
        "READY": "True",
        "MODE": "Enforce",
        "BROKERS": "3",
        "OVER": "1",
        "THROTTLED": "2",
        "QUOTAS": "120",
        "INSYNC": "118",
    }
    assert list(shown)[-1] == "READY"


@pytest.mark.usefixtures("answer")
def test_wide_output_shows_the_cluster_and_the_reason_after_readiness(served: KubeApi, unique_name: str) -> None:
    create(served, policy(), unique_name, POLICY_STATUS)
    shown = columns(served.kubectl("get", "bbp", unique_name, "-n", "streaming", "-o", "wide"))
    assert list(shown)[-4:] == ["CLUSTER", "READY", "REASON", "AGE"]
    assert (shown["CLUSTER"], shown["REASON"]) == ("6n9yBVQpTmqxCpLQXWtDzw", "InSync")


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize("category", ["tidegate", "kafka"])
def test_a_category_lists_all_kinds(served: KubeApi, unique_name: str, category: str) -> None:
    for document, status in ((policy(), POLICY_STATUS), (tier(), TIER_STATUS), (override(), OVERRIDE_STATUS)):
        create(served, document, unique_name, status)
    listed = served.kubectl("get", category, "-n", "streaming", "-o", "name").split()
    assert {name.partition("/")[0] for name in listed if name.endswith(f"/{unique_name}")} == {
        "brokerbandwidthpolicy.tidegate.io",
        "businesstier.tidegate.io",
        "quotaoverride.tidegate.io",
    }


@pytest.mark.usefixtures("answer")
def test_a_tier_shows_level_policy_members_and_state(served: KubeApi, unique_name: str) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    shown = columns(served.kubectl("get", "bt", unique_name, "-n", "streaming"))
    del shown["AGE"]
    assert shown == {"NAME": unique_name, "LEVEL": "L3", "POLICY": "orders", "MEMBERS": "1", "STATE": "Contract", "READY": "True"}


@pytest.mark.usefixtures("answer")
def test_an_override_shows_policy_target_state_and_end(served: KubeApi, unique_name: str) -> None:
    create(served, override(), unique_name, OVERRIDE_STATUS)
    shown = columns(served.kubectl("get", "qo", unique_name, "-n", "streaming"))
    del shown["AGE"]
    assert shown == {
        "NAME": unique_name,
        "POLICY": "orders",
        "TARGET": "user=reports",
        "STATE": "Active",
        "UNTIL": "2026-11-30T06:00:00Z",
        "READY": "True",
    }
    found = json.loads(served.kubectl("get", "qo", unique_name, "-n", "streaming", "-o", "json"))
    assert found["status"] == OVERRIDE_STATUS


@pytest.mark.usefixtures("answer")
def test_kubectl_wait_sees_readiness(served: KubeApi, unique_name: str) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    assert "condition met" in served.kubectl("wait", "--for=condition=Ready", "--timeout=5s", f"bt/{unique_name}", "-n", "streaming")


@pytest.mark.usefixtures("answer")
def test_tiers_are_selected_by_their_policy_on_the_server(served: KubeApi, unique_name: str) -> None:
    create(served, tier({"policyRef.name": unique_name}), unique_name, TIER_STATUS)
    found = served.kubectl("get", "bt", "-n", "streaming", "-o", "name", f"--field-selector=spec.policyRef.name={unique_name}")
    assert found.split() == [f"businesstier.tidegate.io/{unique_name}"]


@pytest.mark.usefixtures("answer")
def test_a_spec_write_leaves_the_status_and_a_status_write_leaves_the_spec(served: KubeApi, unique_name: str) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    served.kubectl("patch", "bt", unique_name, "-n", "streaming", "--type=merge", "-p", '{"spec":{"level":"L2"},"status":null}')
    found = json.loads(served.kubectl("get", "bt", unique_name, "-n", "streaming", "-o", "json"))
    assert (found["spec"]["level"], found["status"]) == ("L2", TIER_STATUS)


def test_escalation_is_explained_with_its_defaults(served: KubeApi) -> None:
    explained = " ".join(served.kubectl("explain", "bbp.spec.escalation").split())
    for words in ("How tiers are throttled and released", "maxMuteSeconds <integer>", "Unset means 12.", "enum: Ladder, Drain"):
        assert words in explained


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_field_that_kubectl_explains_has_a_description(served: KubeApi, kind: Kind) -> None:
    explained = served.kubectl("explain", "--recursive", f"{kind.short_name}.spec")
    assert "<no description>" not in explained


def test_the_examples_apply_as_they_are(served: KubeApi, answer: Answer) -> None:
    applied = served.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(EXAMPLES))
    assert "brokerbandwidthpolicy.tidegate.io/demo created" in applied


def test_the_crds_apply_strictly_without_server_side_apply_too(served: KubeApi) -> None:
    crds = str(EXAMPLES.parent / "crds")
    assert "configured" in served.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", crds)
