"""The CRDs with the code that API servers of several versions of Kubernetes admit objects with.

`make test-crds` runs them. `make test` does not, so the file has another name: the first run
compiles that code for minutes. The same rows are put to a running server of one of these versions
in test_crds.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given

from lab.kubernetes.admission import ADMISSIONS, Admission
from tests.integration.conftest import CHECKOUT
from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.bent_input import OFTEN, bent_objects, refusal_of_model
from tests.unit.resources.documents import Document, tier
from tests.unit.resources.sound_input import SOUND
from tests.unit.test_documentation import written_objects
from tidegate.resources import API_VERSION, KINDS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

# The library, and the version whose functions rules may use: the one before, for a server that
# is taken back by one version has to understand them too.
EXPECTED = {
    "1.30": ("v0.30.14", "1.29"),
    "1.32": ("v0.32.13", "1.31"),
    "1.34": ("v0.34.4", "1.33"),
}
CRDS = [yaml.safe_load(path.read_text()) for path in sorted((CHECKOUT / "crds").glob("*.yaml"))]
_APPLIED_FROM = ("examples", "demo", "deploy/argocd")


@pytest.fixture(scope="module", params=ADMISSIONS)
def minor(request: pytest.FixtureRequest) -> str:
    """The version of Kubernetes that is asked."""
    return str(request.param)


@pytest.fixture(scope="module")
def admission(minor: str) -> Iterator[Admission]:
    """Its code, which knows our CRDs."""
    with Admission(minor) as admission:
        for crd in CRDS:
            said = admission.create(crd)
            assert said.kept is not None, said.refused
        yield admission


def written() -> dict[str, Document]:
    """Every object of ours that people are shown or given, by where it is."""
    in_files = (
        (str(file.relative_to(CHECKOUT)), document)
        for folder in _APPLIED_FROM
        for file in sorted((CHECKOUT / folder).rglob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    )
    return {
        f"{place}: {number}": document
        for number, (place, document) in enumerate([*written_objects(), *in_files])
        if isinstance(document, dict) and document.get("apiVersion") == API_VERSION
    }


WRITTEN = written()


def sent(document: Mapping[str, Any]) -> Document:
    """As kubectl sends it: into the namespace `default` where it names none.

    What only a server sets is left out: some samples are what one returned.
    """
    metadata = {"namespace": "default", **document["metadata"]}
    for name in ("creationTimestamp", "deletionTimestamp", "generation"):
        metadata.pop(name, None)
    return {**copy.deepcopy(dict(document)), "metadata": metadata}


# --- definitions ----------------------------------------------------------------------------------


def test_each_version_answers_with_its_own_library(minor: str, admission: Admission) -> None:
    assert (admission.library, admission.rules_since) == EXPECTED[minor]


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd["spec"]["names"]["kind"])
def test_a_definition_is_kept_as_it_is(crd: Document, minor: str, admission: Admission) -> None:
    kept = admission.create(crd).kept
    assert kept is not None
    expected = copy.deepcopy(crd["spec"])
    expected["conversion"] = {"strategy": "None"}
    if minor == "1.30":  # an API server of 1.30 knows them only behind a feature gate
        for version in expected["versions"]:
            version.pop("selectableFields", None)
    assert kept["spec"] == expected


def changed(kind: str, change: Callable[[dict[str, Any]], None]) -> Document:
    """The definition of a kind, with its schema of the spec changed."""
    crd = copy.deepcopy(next(crd for crd in CRDS if crd["spec"]["names"]["kind"] == kind))
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return crd


def with_rule(rule: str) -> Document:
    def add(spec: dict[str, Any]) -> None:
        spec["x-kubernetes-validations"].append({"rule": rule, "message": "no"})

    return changed("BusinessTier", add)


def test_rules_that_could_cost_too_much_are_refused(admission: Admission) -> None:
    def unbounded(spec: dict[str, Any]) -> None:
        del spec["properties"]["members"]["maxItems"]

    refused = admission.create(changed("BusinessTier", unbounded)).refused
    assert "estimated rule cost exceeds budget" in refused


def test_a_function_that_the_version_before_lacks_is_refused(
    minor: str, admission: Admission
) -> None:
    refused = admission.create(with_rule("isIP('10.0.0.1')")).refused
    assert ("undeclared reference to 'isIP'" in refused) == (minor == "1.30")
    assert "undeclared reference" in admission.create(with_rule("isEven(2)")).refused


def test_a_field_that_no_schema_has_is_refused(admission: Admission) -> None:
    def misspelt(spec: dict[str, Any]) -> None:
        spec["maxItms"] = 3

    refused = admission.create(changed("BusinessTier", misspelt)).refused
    assert "unknown field" in refused
    assert "maxItms" in refused


# --- objects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SOUND, *WRITTEN])
def test_what_is_sound_is_kept_as_it_was_written(name: str, admission: Admission) -> None:
    document = sent((SOUND | WRITTEN)[name])
    said = admission.create(document)
    assert said.kept is not None, said.refused
    kept = said.kept["metadata"]
    assert {
        **said.kept,
        "metadata": {name: kept[name] for name in document["metadata"]},
    } == document


def test_a_status_is_put_to_its_schema_too(minor: str, admission: Admission) -> None:
    refused = admission.create({**tier(), "status": {"summary": {"members": -1}}}).refused
    field = "summary.members" if minor == "1.30" else "status.summary.members"
    assert f"is invalid: {field}: Invalid value: -1" in refused
    assert "should be greater than or equal to 0" in refused


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_what_is_wrong_is_refused_in_our_words(
    row: BadInput, minor: str, admission: Admission
) -> None:
    refused = admission.create(row.document).refused
    assert refused, "accepted"
    assert row.field in refused
    words = row.server_words
    if minor == "1.30" and row.server_says:  # the server's own words for a length
        words = words.replace("may not be more than", "may not be longer than")
    assert words in refused


@OFTEN
@given(document=bent_objects())
def test_models_and_every_version_accept_the_same_objects(
    document: Document, admission: Admission
) -> None:
    by_version, by_model = admission.create(document).refused, refusal_of_model(document)
    assert bool(by_version) == (by_model is not None), (
        f"version: {by_version or 'accepted'}; model: {by_model or 'accepted'}"
    )


def test_it_is_every_page_and_example_that_is_read() -> None:
    places = {name.partition(":")[0] for name in WRITTEN}
    assert {
        "user-guide.md-orders",
        "protect-checkout.md-orders",
        "examples/00-policy.yaml",
        "examples/10-tiers.yaml",
        "examples/20-override.yaml",
        "examples/21-recurring-override.yaml",
        "examples/calendar/policy.yaml",
        "examples/strimzi/policy.yaml",
        "examples/simulate/evening-backfill.yaml",
        "demo/throttling.yaml",
    } <= places


def test_an_object_of_a_kind_that_is_not_defined_is_no_answer_by_chance(
    admission: Admission,
) -> None:
    assert "no definition" in admission.create({**tier(), "kind": "Dream"}).refused
    assert {crd["spec"]["names"]["kind"] for crd in CRDS} == {kind.kind for kind in KINDS}
