"""The CRDs on a real API server: what it accepts and refuses as the models do, and what kubectl
shows.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from kubernetes import client

from lab.kubernetes.api import KubeApi
from lab.process import CommandFailed
from tests.doubles.kubectl import kubectl_get
from tests.integration.conftest import CHECKOUT
from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.bent_input import OFTEN, bent_objects, refusal_of_model
from tests.unit.resources.documents import Document, budget, override, policy, queue, tier
from tests.unit.resources.sound_input import SOUND
from tests.unit.tutorials.played import Tutorial, objects_of
from tidegate.resources import GROUP, KINDS, VERSION, Kind

pytestmark = pytest.mark.integration

# --- answers of the API server --------------------------------------------------------------------
# The answer of a real API server with this checkout's CRDs to an object that it is asked to create.


NAMESPACE = "streaming"
Answer = Callable[[Mapping[str, Any]], str | None]


@pytest.fixture(scope="session")
def served(crds: KubeApi) -> KubeApi:
    """The API server with both kinds served and the namespace of the documents in place."""
    crds.kubectl("apply", "-f", str(CHECKOUT / "examples" / "00-namespace.yaml"))
    return crds


@pytest.fixture(scope="session")
def answer(served: KubeApi, api_client: client.ApiClient) -> Answer:
    """The server's answer to creating a document, strictly and as a dry run: None if it accepts,
    else its message.
    """
    api = client.CustomObjectsApi(api_client)

    def create(document: Mapping[str, Any]) -> str | None:
        plural = next(kind.plural for kind in KINDS if kind.kind == document["kind"])
        try:
            api.create_namespaced_custom_object(
                GROUP,
                VERSION,
                NAMESPACE,
                plural,
                document,
                dry_run="All",
                field_validation="Strict",
            )
        except client.ApiException as refusal:
            if refusal.status not in (400, 422):
                raise
            return str(json.loads(refusal.body)["message"])
        return None

    return create


# --- bad input ------------------------------------------------------------------------------------
# The bad-input table against a real API server: every row is refused with a message that names the
# field and the rule.


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_bad_input_is_refused_and_the_message_names_the_field_and_what_must_hold(
    row: BadInput, answer: Answer
) -> None:
    refusal = answer(row.document)
    assert refusal is not None, "accepted"
    assert row.field in refusal
    assert row.server_words in refusal


@pytest.mark.parametrize("name", SOUND)
def test_sound_input_is_accepted(name: str, answer: Answer) -> None:
    assert answer(SOUND[name]) is None


def test_a_rate_that_breaks_its_own_rule_draws_no_complaint_about_the_contract(
    answer: Answer,
) -> None:
    refusal = answer(tier({"members.0.contract.perPartition.fetch": "0"}))
    assert refusal is not None
    assert "spec.throttled" not in refusal


# --- agreement with the models --------------------------------------------------------------------
# Models and CRDs come from one declaration: an object that one accepts, the other accepts too.
#
# Sound objects are bent in a few random places with values that have been troublesome somewhere,
# and put to both.


# The strategies draw no random number of their own, but kazoo's threads of other tests do, and
# hypothesis cannot distinguish them.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@OFTEN
@given(document=bent_objects())
def test_model_and_server_accept_the_same_objects(document: Document, answer: Answer) -> None:
    by_server, by_model = answer(document), refusal_of_model(document)
    assert (by_server is None) == (by_model is None), (
        f"server: {by_server or 'accepted'}; model: {by_model or 'accepted'}"
    )


# --- kubectl --------------------------------------------------------------------------------------
# The kinds in kubectl: columns, explanations, waiting for conditions, and field selectors.


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
    "summary": {"brokers": 3, "over": 1, "overShown": "1", "throttled": 2},
}
TIER_STATUS = {
    "observedGeneration": 1,
    "conditions": [READY],
    "summary": {"members": 1, "state": "Contract"},
    "members": [
        {
            "name": "nightly-reports",
            "leaders": 6,
            "leaderSkew": "1.33",
            "quota": {"fetch": 20971520},
            "state": "Contract",
        }
    ],
}

OVERRIDE_STATUS = {
    "observedGeneration": 1,
    "conditions": [READY],
    "state": "Active",
    "members": [
        {
            "tier": "streaming/reporting",
            "member": "nightly-reports",
            "user": "reports",
            "clientId": "nightly",
        }
    ],
    "since": "2026-11-21T12:00:00Z",
    "until": "2026-11-30T06:00:00Z",
    "summary": {"target": "user=reports", "members": 1},
}


QUEUE_STATUS = {
    "observedGeneration": 1,
    "conditions": [{**READY, "reason": "Forwarding"}],
    "topicPrefix": "shop.unpaid",
    "delays": [
        {"seconds": 5, "topics": 2, "waiting": 12, "oldestLateSeconds": 3, "perSecond": 7},
        {"seconds": 600, "topics": 4},
    ],
    "forwarders": [{"name": "unpaid-forwarders-1-x", "topics": 6}],
    "dead": 4,
    "summary": {"waiting": 12, "oldestLateSeconds": 3},
}


BUDGET_STATUS = {
    "observedGeneration": 1,
    "conditions": [{**READY, "reason": "BudgetDivided"}],
    "measured": {"fetch": 40000000, "produce": 9000000},
    "permitted": {"fetch": 120000000, "produce": 60000000},
    "members": [
        {
            "tier": "streaming/reporting",
            "member": "nightly-reports",
            "level": "L3",
            "measured": {"fetch": 40000000},
            "allowed": {"fetch": 60000000},
            "permitted": {"fetch": 60000000},
            "limitedBy": "Budget",
        }
    ],
    "children": ["streaming/suggest"],
    "summary": {"members": 1, "fetch": "40 of 120 MB/s", "produce": "9 of 60 MB/s"},
}


def create(
    served: KubeApi, document: dict[str, object], name: str, status: dict[str, object]
) -> None:
    named = {**document, "metadata": {"name": name, "namespace": "streaming"}}
    served.kubectl("create", "--validate=strict", "-f", "-", input=json.dumps(named))
    kind = str(document["kind"]).lower()
    patch = json.dumps({"status": status})
    served.kubectl(
        "patch", kind, name, "-n", "streaming", "--subresource=status", "--type=merge", "-p", patch
    )


def columns(table: str) -> dict[str, str]:
    heads, values = (line.split() for line in table.splitlines())
    return dict(zip(heads, values, strict=True))


@pytest.mark.usefixtures("answer")
def test_a_policy_shows_readiness_mode_brokers_and_quotas(
    served: KubeApi, unique_name: str
) -> None:
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
def test_wide_output_shows_the_cluster_and_the_reason_after_readiness(
    served: KubeApi, unique_name: str
) -> None:
    create(served, policy(), unique_name, POLICY_STATUS)
    shown = columns(served.kubectl("get", "bbp", unique_name, "-n", "streaming", "-o", "wide"))
    assert list(shown)[-4:] == ["CLUSTER", "READY", "REASON", "AGE"]
    assert (shown["CLUSTER"], shown["REASON"]) == ("6n9yBVQpTmqxCpLQXWtDzw", "InSync")


@pytest.mark.usefixtures("answer")
def test_the_category_lists_all_kinds(served: KubeApi, unique_name: str) -> None:
    for document, status in (
        (policy(), POLICY_STATUS),
        (tier(), TIER_STATUS),
        (override(), OVERRIDE_STATUS),
        (queue(), QUEUE_STATUS),
        (budget(), BUDGET_STATUS),
    ):
        create(served, document, unique_name, status)
    listed = served.kubectl("get", "tidegate", "-n", "streaming", "-o", "name").split()
    assert {name.partition("/")[0] for name in listed if name.endswith(f"/{unique_name}")} == {
        "brokerbandwidthpolicy.tidegate.io",
        "businesstier.tidegate.io",
        "quotaoverride.tidegate.io",
        "delayqueue.tidegate.io",
        "bandwidthbudget.tidegate.io",
    }


@pytest.mark.usefixtures("answer")
def test_a_tier_shows_level_policy_members_and_state(served: KubeApi, unique_name: str) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    shown = columns(served.kubectl("get", "bt", unique_name, "-n", "streaming"))
    del shown["AGE"]
    assert shown == {
        "NAME": unique_name,
        "LEVEL": "L3",
        "POLICY": "orders",
        "MEMBERS": "1",
        "STATE": "Contract",
        "READY": "True",
    }


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
def test_a_budget_shows_its_parent_its_members_and_what_they_use(
    served: KubeApi, unique_name: str
) -> None:
    create(served, budget(), unique_name, BUDGET_STATUS)
    row = served.kubectl("get", "bb", unique_name, "-n", "streaming", "--no-headers").split("   ")
    assert [cell.strip() for cell in row if cell.strip()][:-1] == [
        *(unique_name, "orders", "retail", "1", "40 of 120 MB/s", "9 of 60 MB/s", "True")
    ]
    found = json.loads(served.kubectl("get", "bb", unique_name, "-n", "streaming", "-o", "json"))
    assert found["status"] == BUDGET_STATUS


@pytest.mark.usefixtures("answer")
def test_a_queue_shows_policy_guarantee_and_what_waits(served: KubeApi, unique_name: str) -> None:
    create(served, queue(), unique_name, QUEUE_STATUS)
    shown = columns(served.kubectl("get", "dq", unique_name, "-n", "streaming"))
    del shown["AGE"]
    assert shown == {
        "NAME": unique_name,
        "POLICY": "orders",
        "GUARANTEE": "AtLeastOnce",
        "WAITING": "12",
        "LATE": "3",
        "DEAD": "4",
        "READY": "True",
    }
    found = json.loads(served.kubectl("get", "dq", unique_name, "-n", "streaming", "-o", "json"))
    assert found["status"] == QUEUE_STATUS


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    "change",
    [
        {"topicPrefix": "shop.paid"},
        {"topicPrefix": None},
        {"policyRef": {"name": "others"}},
        {"policyRef": {"namespace": None}},
    ],
    ids=str,
)
def test_prefix_and_policy_of_a_queue_stay_as_they_were(
    change: dict[str, object], served: KubeApi, unique_name: str
) -> None:
    create(served, queue(), unique_name, QUEUE_STATUS)
    patch = json.dumps({"spec": change})
    refused = _patched(served, unique_name, patch)
    assert refused is not None
    assert f"spec.{next(iter(change))}" in refused
    assert "cannot be changed" in refused
    growing = json.dumps({"spec": {"delays": [{"seconds": 7}], "forwarders": {"replicas": 3}}})
    assert _patched(served, unique_name, growing) is None


def _patched(served: KubeApi, name: str, patch: str) -> str | None:
    try:
        served.kubectl("patch", "dq", name, "-n", "streaming", "--type=merge", "-p", patch)
    except CommandFailed as refused:
        return str(refused)
    return None


@pytest.mark.usefixtures("answer")
def test_kubectl_wait_sees_readiness(served: KubeApi, unique_name: str) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    assert "condition met" in served.kubectl(
        "wait", "--for=condition=Ready", "--timeout=5s", f"bt/{unique_name}", "-n", "streaming"
    )


@pytest.mark.usefixtures("answer")
def test_tiers_are_selected_by_their_policy_on_the_server(
    served: KubeApi, unique_name: str
) -> None:
    create(served, tier({"policyRef.name": unique_name}), unique_name, TIER_STATUS)
    found = served.kubectl(
        "get",
        "bt",
        "-n",
        "streaming",
        "-o",
        "name",
        f"--field-selector=spec.policyRef.name={unique_name}",
    )
    assert found.split() == [f"businesstier.tidegate.io/{unique_name}"]


@pytest.mark.usefixtures("answer")
def test_a_spec_write_leaves_the_status_and_a_status_write_leaves_the_spec(
    served: KubeApi, unique_name: str
) -> None:
    create(served, tier(), unique_name, TIER_STATUS)
    served.kubectl(
        "patch",
        "bt",
        unique_name,
        "-n",
        "streaming",
        "--type=merge",
        "-p",
        '{"spec":{"level":"L2"},"status":null}',
    )
    found = json.loads(served.kubectl("get", "bt", unique_name, "-n", "streaming", "-o", "json"))
    assert (found["spec"]["level"], found["status"]) == ("L2", TIER_STATUS)


def test_escalation_is_explained_with_its_defaults(served: KubeApi) -> None:
    explained = " ".join(served.kubectl("explain", "bbp.spec.escalation").split())
    for words in (
        "How tiers are throttled and released",
        "maxMuteSeconds <integer>",
        "Unset means 12.",
        "enum: Ladder, Drain",
    ):
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
    assert "configured" in served.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", crds
    )


@pytest.mark.usefixtures("answer")
def test_kubectl_prints_what_the_documents_show(
    served: KubeApi, unique_name: str, tmp_path: Path
) -> None:
    """The README and the tutorial have this from columns that a test reads by itself."""
    tutorial = Tutorial(tmp_path, objects_of("protect-checkout.md"), {"checkout": 20.0})
    tutorial.play(15)
    served.kubectl("create", "namespace", unique_name)
    for one in tutorial.objects():
        name = one["metadata"]["name"]
        made = {**one, "metadata": {"name": name, "namespace": unique_name}}
        served.kubectl("create", "--validate=strict", "-f", "-", input=json.dumps(made))
        status = json.dumps({"status": one["status"]})
        served.kubectl(
            *("patch", str(one["kind"]).lower(), name, "-n", unique_name),
            *("--subresource=status", "--type=merge", "-p", status),
        )
    printed = served.kubectl("get", "bbp,bt", "-n", unique_name)
    shown = [re.sub(r"\d+\w+$", "4d", line.rstrip()) for line in printed.strip().splitlines()]
    assert shown == kubectl_get(tutorial.objects(), age="4d").strip().splitlines()
