"""Generated files are committed, say the same as their sources, and keep the promises that need no
server to see.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS, Kind
from tidegate_logic.reasons import STALLED, Reason
from tools.generate import (
    CHART_README,
    CHART_README_HEAD,
    REASONS_PAGE,
    VALUES,
    Undescribed,
    Value,
    chart_template,
    crd_yaml,
    described_values,
    generated_files,
    readme,
    reasons_page,
)
from tools.write_or_check import write_or_check

# --- CRDs and their reference ---------------------------------------------------------------------
# What is generated is committed, says the same as the models, and keeps the promises that need no
# server to see.


CHECKOUT = Path(__file__).parents[3]
CLIENT_SIDE_APPLY_LIMIT_BYTES = 262_144

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@pytest.fixture(scope="module")
def generated() -> Mapping[Path, str]:
    return generated_files()


def test_the_committed_files_are_what_the_models_say(generated: Mapping[Path, str]) -> None:
    committed = {path: (CHECKOUT / path).read_text(encoding="utf-8") for path in generated}
    assert [path for path, text in generated.items() if committed[path] != text] == []


@each_kind
def test_a_crd_fits_client_side_apply(kind: Kind) -> None:
    """kubectl keeps what it applied in an annotation, as JSON without spaces.

    The policy fills 57 % of it; notes of other tools have the rest. What needs more than that goes
    into a kind of its own.
    """
    kept = json.dumps(crd_document(kind), separators=(",", ":"))
    assert len(kept.encode()) < 0.6 * CLIENT_SIDE_APPLY_LIMIT_BYTES


@each_kind
def test_a_crd_file_is_the_document_and_says_not_to_edit_it(kind: Kind) -> None:
    text = crd_yaml(kind)
    assert text.startswith("# Generated")
    assert yaml.load(text, yaml.CSafeLoader) == crd_document(kind)


@each_kind
def test_a_crd_file_shows_every_rule_where_it_holds_and_needs_no_anchors(kind: Kind) -> None:
    assert not [
        event
        for event in yaml.parse(crd_yaml(kind), yaml.CSafeLoader)
        if getattr(event, "anchor", None)
    ]


@each_kind
def test_nothing_in_a_crd_makes_gitops_see_drift(kind: Kind) -> None:
    for path, value in walked(crd_document(kind)):
        assert value not in ([], {}), f"{path} is empty"
        is_a_field = path.endswith(".properties.default")  # DelayQueue has one of that name
        assert is_a_field or not path.endswith(".default"), path


def walked(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value below a document but the empty status subresource, which Kubernetes wants as it
    is.
    """
    items: Any = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, below in items:
        if path.endswith(".subresources"):
            continue
        yield f"{path}.{name}", below
        yield from walked(below, f"{path}.{name}")


@each_kind
def test_the_reference_page_holds_every_field_and_every_rule(
    generated: Mapping[Path, str], kind: Kind
) -> None:
    page = generated[Path("docs/resources.md")]
    for model in (kind.spec, kind.status):
        for rule in model.rules:
            assert not rule.cel or rule.message.replace("|", "\\|") in page
        for field in model.model_fields.values():
            assert f"`{field.alias}`" in page


@pytest.mark.parametrize(
    ("field", "unset", "meaning"),
    [
        ("mode", "**required**", "Observe: decide, publish and audit"),
        ("escalation.holdSeconds", "45", "How long brokers must stay within their limits"),
        (
            "metrics.staleAfterSeconds",
            "three scrape intervals",
            "Readings older than this are ignored.",
        ),
        (
            "kafka.quotaWindow.samples",
            "11, Kafka's default",
            "The brokers' quota.window.num.",
        ),
        (
            "defaults.metering",
            "Disabled",
            "Enabled: write a quota for Kafka's default user that never limits anyone (2^53-1 B/s)",
        ),
        ("members[].topics", "", "Topics by name"),
    ],
)
def test_the_reference_page_separates_what_a_field_means_from_leaving_it_out(
    generated: Mapping[Path, str], field: str, unset: str, meaning: str
) -> None:
    page = generated[Path("docs/resources.md")]
    (row,) = (
        line.split(" | ")
        for line in page.splitlines()
        if line.startswith(f"| `{field}` |") and line.count(" | ") == 3
    )
    assert row[2] == unset
    assert row[3].startswith(meaning)


# --- CRDs in the chart ----------------------------------------------------------------------------
# A CRD as a template of the chart: the same CRD, with what Helm fills in.


CRD = "# Generated.\nkind: CustomResourceDefinition\nmetadata:\n  name: a.b\nspec:\n  group: b\n"


def test_labels_and_what_keeps_it_stand_after_the_name_and_the_spec_is_as_it_was() -> None:
    lines = chart_template(CRD).splitlines()
    assert lines[1:4] == [
        "{{- if .Values.crds.enabled }}",
        "kind: CustomResourceDefinition",
        "metadata:",
    ]
    assert lines[4:6] == ["  name: a.b", "  labels:"]
    assert "    helm.sh/resource-policy: keep" in lines
    assert lines[-3:] == ["spec:", "  group: b", "{{- end }}"]


def test_braces_in_a_description_are_no_template() -> None:
    assert '  description: a {{ "{{" }}b}}\n' in chart_template(CRD + "  description: a {{b}}\n")


@pytest.mark.parametrize("text", ["", "kind: A\n", "metadata:\n  labels: {}\nspec:\n"])
def test_what_is_no_crd_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no CRD"):
        chart_template(text)


# --- the chart's README ---------------------------------------------------------------------------
# The chart's README describes every value by the comment above it.


def text_of(path: Path) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


def test_the_committed_page_is_that_of_its_sources() -> None:
    assert text_of(CHART_README) == readme(head=text_of(CHART_README_HEAD), values=text_of(VALUES))


def test_a_key_is_described_by_the_lines_of_comment_right_above_it() -> None:
    text = "# a title\n\n# Not this.\n\n# How many,\n# in all.\ncount: 2\n"
    assert described_values(text) == (Value("count", "How many, in all.", "2"),)


def test_a_group_comes_before_its_values() -> None:
    text = "# The image.\nimage:\n  # Its name.\n  name: a\n  # Its tag.\n  tag: ''\n"
    assert described_values(text) == (
        Value("image", "The image.", None),
        Value("image.name", "Its name.", '"a"'),
        Value("image.tag", "Its tag.", ""),
    )


def test_what_no_comment_takes_apart_is_one_value() -> None:
    text = "# What it takes.\nresources:\n  requests: {cpu: 50m}\n"
    assert described_values(text) == (
        Value("resources", "What it takes.", '{"requests":{"cpu":"50m"}}'),
    )


@pytest.mark.parametrize(
    "text",
    [
        "count: 2\n",
        "# A group.\nimage:\n  # Its name.\n  name: a\n  tag: b\n",
        "# Far away.\n\ncount: 2\n",
    ],
)
def test_a_value_without_a_comment_is_refused(text: str) -> None:
    with pytest.raises(Undescribed, match=r"count|image\.tag"):
        described_values(text)


def test_no_values_are_no_rows() -> None:
    assert described_values("# nothing yet\n") == ()


def test_the_page_is_short_enough_to_be_read() -> None:
    assert len(text_of(CHART_README).replace("|", " ").split()) <= 2200


# --- the page of reasons --------------------------------------------------------------------------
# The page of reasons is generated from the enum, and a check finds a page that is not.


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_every_reason_has_one_row_with_its_meaning(reason: Reason) -> None:
    rows = [
        line for line in reasons_page().splitlines() if line.startswith(f"| `{reason.value}` |")
    ]
    assert rows == [
        f"| `{reason.value}` | {reason.meaning} | {'yes' if reason in STALLED else ''} |"
    ]


def test_the_committed_page_is_that_of_the_enum() -> None:
    assert (ROOT / REASONS_PAGE).read_text(encoding="utf-8") == reasons_page()


@pytest.mark.parametrize("present", [None, "an older page\n"], ids=["missing", "different"])
def test_a_check_fails_on_a_page_that_is_out_of_date_and_leaves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], present: str | None
) -> None:
    page = tmp_path / "page.md"
    if present is not None:
        page.write_text(present)
    assert write_or_check({page: "new\n"}, command="python -m it", arguments=["--check"]) == 1
    assert (page.read_text() if page.exists() else None) == present
    assert "python -m it" in capsys.readouterr().err


def test_a_written_page_passes_the_check(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.md"
    assert write_or_check({page: "new\n"}, command="it", arguments=[]) == 0
    assert write_or_check({page: "new\n"}, command="it", arguments=["--check"]) == 0
