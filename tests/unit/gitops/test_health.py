"""The health scripts for Argo CD: each sample gets its expected health, and each script uses only reasons of the operator."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaError

from controller_logic.reasons import STALLED, Reason
from tests.unit.gitops.argo_lua import health_of
from tests.unit.gitops.samples import CUSTOMIZATIONS, SAMPLES, SCRIPTS, Sample, script_of
from tidegate.resources.kinds import KINDS, parse_object

OURS = [kind.kind for kind in KINDS]
each_kind = pytest.mark.parametrize("kind", OURS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_is_shown_as_expected(sample: Sample) -> None:
    shown = health_of(sample.script.read_text(encoding="utf-8"), sample.document)
    assert {key: value for key, value in shown.items() if value} == sample.expected


def test_every_sample_is_used() -> None:
    assert {sample.path for sample in SAMPLES} == set(CUSTOMIZATIONS.glob("*/*/testdata/*.yaml"))


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one.document["kind"] in OURS], ids=lambda sample: sample.name)
def test_a_sample_is_an_object_as_the_operator_leaves_it(sample: Sample) -> None:
    document = sample.document
    parse_object(document, strict=True)
    kind = next(kind for kind in KINDS if kind.kind == document["kind"])
    kind.status.model_validate_json(json.dumps(document.get("status") or {}))
    assert {one["reason"] for one in (document.get("status") or {}).get("conditions", [])} <= set(Reason)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_the_reasons_that_a_script_names_are_the_operators(script: Any) -> None:
    text = script.read_text(encoding="utf-8")
    named = re.findall(r'^  (\w+) = true,$|reason == "(\w+)"', text, re.MULTILINE)
    assert {one or other for one, other in named} <= set(Reason)


@each_kind
@pytest.mark.parametrize("truth", ["False", "Unknown"])
def test_what_is_not_ready_is_never_shown_healthy_but_an_override_that_is_over(kind: str, truth: str) -> None:
    shown = {reason: health_of(script_of(kind), with_condition(kind, truth, reason))["status"] for reason in Reason}
    assert {reason for reason, status in shown.items() if status == "Healthy"} == (
        {Reason.OVERRIDE_EXPIRED} if kind == "QuotaOverride" else set()
    )
    assert set(shown.values()) <= {"Healthy", "Progressing", "Suspended", "Degraded"}


@each_kind
def test_what_waits_for_a_person_is_degraded(kind: str) -> None:
    assert {health_of(script_of(kind), with_condition(kind, "False", reason))["status"] for reason in STALLED} == {"Degraded"}
    stalled = {"type": "Stalled", "status": "True", "observedGeneration": 1, "reason": "Starting", "message": "Because."}
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
    "status", [None, {}, {"conditions": []}, {"observedGeneration": 1, "conditions": [{"type": "Other", "status": "True"}]}]
)
def test_an_object_without_a_status_is_progressing(kind: str, status: Any) -> None:
    document = with_condition(kind, "True", Reason.IN_SYNC) | {"status": status}
    assert health_of(script_of(kind), document)["status"] == "Progressing"


@pytest.mark.parametrize(
    "outlawed", ["string.upper('a')", "('a'):upper()", "io.open('/etc/passwd')", "os.execute('true')", "math.max(1, 2)"]
)
def test_the_lua_of_these_tests_has_nothing_that_argo_cds_lacks(outlawed: str) -> None:
    with pytest.raises(LuaError):
        health_of(f"return {{status = {outlawed}}}", {})


def test_argo_cds_settings_hold_every_script_word_for_word() -> None:
    found: dict[str, str] = {}
    for path in sorted((CUSTOMIZATIONS.parent).glob("argocd-cm*.yaml")):
        found |= yaml.safe_load(path.read_text(encoding="utf-8"))["data"]
    assert found == {
        f"resource.customizations.health.{script.parts[-3]}_{script.parts[-2]}": script.read_text(encoding="utf-8") for script in SCRIPTS
    }


def with_condition(kind: str, truth: str, reason: str) -> dict[str, Any]:
    """An object whose status has this Ready condition."""
    ready = {"type": "Ready", "status": truth, "observedGeneration": 1, "reason": str(reason), "message": "Because."}
    return {"kind": kind, "metadata": {"name": "x", "generation": 1}, "status": {"observedGeneration": 1, "conditions": [ready]}}
