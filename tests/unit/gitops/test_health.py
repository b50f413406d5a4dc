"""The health scripts for Argo CD: each sample gets its expected health, and so do statuses that a
whole operator wrote in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaError
from structlog.testing import capture_logs

from tests.unit.control.stage import ALICE, Stage
from tests.unit.gitops.argo_lua import health_of
from tests.unit.gitops.samples import CUSTOMIZATIONS, SAMPLES, SCRIPTS, Sample, script_of
from tidegate.errors import Unreachable
from tidegate.kube.api import QUOTA_OVERRIDES, ObjectRef
from tidegate.resources.kinds import KINDS, parse_object
from tidegate_logic.model import QuotaKey
from tidegate_logic.reasons import STALLED, Reason

# --- samples --------------------------------------------------------------------------------------
# The health scripts for Argo CD: each sample gets its expected health, and each script uses only
# reasons of the operator.


OURS = [kind.kind for kind in KINDS]
each_kind = pytest.mark.parametrize("kind", OURS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_is_shown_as_expected(sample: Sample) -> None:
    shown = health_of(sample.script.read_text(encoding="utf-8"), sample.document)
    assert {key: value for key, value in shown.items() if value} == sample.expected


def test_every_sample_is_used() -> None:
    assert {sample.path for sample in SAMPLES} == set(CUSTOMIZATIONS.glob("*/*/testdata/*.yaml"))


@pytest.mark.parametrize(
    "sample",
    [one for one in SAMPLES if one.document["kind"] in OURS],
    ids=lambda sample: sample.name,
)
def test_a_sample_is_an_object_as_the_operator_leaves_it(sample: Sample) -> None:
    document = sample.document
    parse_object(document, strict=True)
    kind = next(kind for kind in KINDS if kind.kind == document["kind"])
    kind.status.model_validate_json(json.dumps(document.get("status") or {}))
    assert {one["reason"] for one in (document.get("status") or {}).get("conditions", [])} <= set(
        Reason
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_the_reasons_that_a_script_names_are_the_operators(script: Any) -> None:
    text = script.read_text(encoding="utf-8")
    named = re.findall(r'^  (\w+) = true,$|reason == "(\w+)"', text, re.MULTILINE)
    assert {one or other for one, other in named} <= set(Reason)


@each_kind
@pytest.mark.parametrize("truth", ["False", "Unknown"])
def test_what_is_not_ready_is_never_shown_healthy_but_an_override_at_rest(
    kind: str, truth: str
) -> None:
    shown = {
        reason: health_of(script_of(kind), with_condition(kind, truth, reason))["status"]
        for reason in Reason
    }
    assert {reason for reason, status in shown.items() if status == "Healthy"} == (
        {Reason.OVERRIDE_EXPIRED, Reason.OVERRIDE_SCHEDULED} if kind == "QuotaOverride" else set()
    )
    assert set(shown.values()) <= {"Healthy", "Progressing", "Suspended", "Degraded"}


@each_kind
def test_what_waits_for_a_person_is_degraded(kind: str) -> None:
    assert {
        health_of(script_of(kind), with_condition(kind, "False", reason))["status"]
        for reason in STALLED
    } == {"Degraded"}
    stalled = {
        "type": "Stalled",
        "status": "True",
        "observedGeneration": 1,
        "reason": "Starting",
        "message": "Because.",
    }
    document = with_condition(kind, "False", Reason.STARTING)
    assert health_of(script_of(kind), document)["status"] == "Progressing"
    document["status"]["conditions"].append(stalled)
    assert health_of(script_of(kind), document)["status"] == "Degraded"


@each_kind
def test_a_status_of_an_older_spec_does_not_count(kind: str) -> None:
    document = with_condition(kind, "True", Reason.IN_SYNC)
    document["metadata"]["generation"] = 2
    assert health_of(script_of(kind), document)["status"] == "Progressing"


@each_kind
@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"conditions": []},
        {"observedGeneration": 1, "conditions": [{"type": "Other", "status": "True"}]},
    ],
)
def test_an_object_without_a_status_is_progressing(kind: str, status: Any) -> None:
    document = with_condition(kind, "True", Reason.IN_SYNC) | {"status": status}
    assert health_of(script_of(kind), document)["status"] == "Progressing"


@pytest.mark.parametrize(
    "outlawed",
    [
        "string.upper('a')",
        "('a'):upper()",
        "io.open('/etc/passwd')",
        "os.execute('true')",
        "math.max(1, 2)",
    ],
)
def test_the_lua_of_these_tests_has_nothing_that_argo_cds_lacks(outlawed: str) -> None:
    with pytest.raises(LuaError):
        health_of(f"return {{status = {outlawed}}}", {})


def test_argo_cds_settings_hold_every_script_word_for_word() -> None:
    found: dict[str, str] = {}
    for path in sorted((CUSTOMIZATIONS.parent).glob("argocd-cm*.yaml")):
        found |= yaml.safe_load(path.read_text(encoding="utf-8"))["data"]
    assert found == {
        f"resource.customizations.health.{script.parts[-3]}_{script.parts[-2]}": script.read_text(
            encoding="utf-8"
        )
        for script in SCRIPTS
    }


def with_condition(kind: str, truth: str, reason: str) -> dict[str, Any]:
    """An object whose status has this Ready condition."""
    ready = {
        "type": "Ready",
        "status": truth,
        "observedGeneration": 1,
        "reason": str(reason),
        "message": "Because.",
    }
    return {
        "kind": kind,
        "metadata": {"name": "x", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [ready]},
    }


# --- real statuses --------------------------------------------------------------------------------
# The health that Argo CD shows for statuses that a whole operator wrote in memory, in the common
# states.


@pytest.fixture
def stage() -> Iterator[Stage]:
    """The operator in memory, whose log is discarded."""
    with capture_logs():
        yield Stage(now=datetime.fromisoformat("2026-11-21T12:00:10Z").timestamp())


def shown(stage: Stage, ref: ObjectRef) -> str:
    raw = stage.kubernetes.get(ref)
    return health_of(script_of(raw["kind"]), raw)["status"]


def shown_all(stage: Stage, *refs: ObjectRef) -> list[str]:
    return [shown(stage, ref) for ref in refs]


def override(stage: Stage, user: str = "alice") -> ObjectRef:
    rates = {"action": "SetRates", "rates": {"perPartition": {"produce": "20M"}}}
    ends = {"expiresAt": "2026-11-22T12:00:00Z", "reason": "agreed"}
    said = {"policyRef": {"name": "orders"}, "target": {"user": user}, **rates, **ends}
    raw = stage.kubernetes.create(
        QUOTA_OVERRIDES, {"metadata": {"name": "more", "namespace": "streaming"}, "spec": said}
    )
    ref = ObjectRef.of(QUOTA_OVERRIDES, raw)
    stage.kubernetes.edit(
        ref, lambda obj: obj["metadata"].update(creationTimestamp="2026-11-21T12:00:00Z")
    )
    return ref


def test_a_contract_in_force_is_healthy_and_so_is_its_override(stage: Stage) -> None:
    refs = stage.policy(), stage.tier(), override(stage)
    assert shown_all(stage, *refs) == ["Progressing"] * 3
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy"] * 3


def test_an_override_that_is_over_is_healthy(stage: Stage) -> None:
    stage.policy()
    stage.tier()
    over = override(stage)
    stage.run()
    stage.now += 24 * 3600
    stage.run()
    assert (shown(stage, over), stage.condition(over)) == ("Healthy", ("False", "OverrideExpired"))


def test_a_policy_that_only_observes_is_healthy(stage: Stage) -> None:
    refs = stage.policy(mode="Observe"), stage.tier()
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy", "Healthy"]


def test_a_pause_suspends_the_policy_and_all_that_belongs_to_it(stage: Stage) -> None:
    refs = stage.policy(annotations={"tidegate.io/paused": "true"}), stage.tier(), override(stage)
    stage.run()
    assert shown_all(stage, *refs) == ["Suspended"] * 3


def test_a_quota_on_its_way_down_is_progressing_and_its_policy_healthy(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "80000000"})
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy", "Progressing"]


def test_another_writer_that_does_not_stop_degrades_policy_and_tier(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.run()
    for _ in range(3):
        stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
        stage.run()
    assert shown_all(stage, *refs) == ["Degraded", "Degraded"]


def test_an_outage_degrades_the_policy_and_leaves_its_tiers_in_suspense(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.run()
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.run()
    assert shown_all(stage, *refs) == ["Degraded", "Progressing"]


def without_topic(stage: Stage) -> None:
    stage.leaders.leaders.clear()


def nothing(_: Stage) -> None:
    pass


@pytest.mark.parametrize(
    ("arranged", "second_tier", "expected"),
    [(without_topic, False, ["Progressing"]), (nothing, True, ["Healthy", "Degraded"])],
)
def test_a_tier_waits_for_a_topic_and_is_degraded_by_a_conflict(
    stage: Stage, arranged: Callable[[Stage], None], second_tier: bool, expected: list[str]
) -> None:
    stage.policy()
    tiers = [stage.tier(), *([stage.tier("silver")] if second_tier else [])]
    arranged(stage)
    stage.run()
    assert shown_all(stage, *tiers) == expected


def test_an_override_without_a_member_waits_and_one_that_does_not_fit_is_degraded(
    stage: Stage,
) -> None:
    stage.policy()
    stage.tier()
    no_one = override(stage, user="missing")
    stage.run()
    assert shown(stage, no_one) == "Progressing"
    unfit = {"target": {"user": "alice"}, "rates": {"perBroker": {"fetch": "1M"}}}
    stage.kubernetes.edit(no_one, lambda raw: raw["spec"].update(unfit))
    stage.run()
    assert (shown(stage, no_one), stage.condition(no_one)) == (
        "Degraded",
        ("False", "OverrideUnfit"),
    )
