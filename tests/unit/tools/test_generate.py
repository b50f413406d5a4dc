"""What is generated is committed, says the same as the models, and keeps the promises that need no server to see."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS, Kind
from tools.generate import crd_yaml, generated_files

CHECKOUT = Path(__file__).parents[3]
CLIENT_SIDE_APPLY_LIMIT_BYTES = 262_144
GENERATED = generated_files()

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@pytest.mark.parametrize("path", GENERATED, ids=str)
def test_the_committed_file_is_what_the_models_say(path: Path) -> None:
    assert (CHECKOUT / path).read_text(encoding="utf-8") == GENERATED[path]


@each_kind
def test_a_crd_fits_client_side_apply(kind: Kind) -> None:
    assert len(crd_yaml(kind).encode()) < CLIENT_SIDE_APPLY_LIMIT_BYTES / 2


@each_kind
def test_a_crd_file_is_the_document_and_says_not_to_edit_it(kind: Kind) -> None:
    text = crd_yaml(kind)
    assert text.startswith("# Generated")
    assert yaml.safe_load(text) == crd_document(kind)


@each_kind
def test_a_crd_file_shows_every_rule_where_it_holds_and_needs_no_anchors(kind: Kind) -> None:
    assert not [event for event in yaml.parse(crd_yaml(kind)) if getattr(event, "anchor", None)]


@each_kind
def test_nothing_in_a_crd_makes_gitops_see_drift(kind: Kind) -> None:
    for path, value in walked(crd_document(kind)):
        assert value not in ([], {}), f"{path} is empty"
        assert not path.endswith(".default"), path


def walked(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value below a document but the empty status subresource, which Kubernetes wants as it is."""
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, below in items:
        if path.endswith(".subresources"):
            continue
        yield f"{path}.{name}", below
        yield from walked(below, f"{path}.{name}")


@each_kind
def test_the_reference_page_holds_every_field_and_every_rule(kind: Kind) -> None:
    page = GENERATED[Path("docs/resources.md")]
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
        ("metrics.staleAfterSeconds", "three scrape intervals", "A reading older than this is not acted on."),
        ("kafka.quotaWindow.samples", "11, which is Kafka's default", "The brokers' quota.window.num."),
        ("defaults.metering", "Disabled", "Enabled: write a quota that never binds (2^53-1 B/s)"),
        ("members[].topics", "", "Topics by name"),
    ],
)
def test_the_reference_page_separates_what_a_field_means_from_leaving_it_out(field: str, unset: str, meaning: str) -> None:
    page = GENERATED[Path("docs/resources.md")]
    (row,) = (line.split(" | ") for line in page.splitlines() if line.startswith(f"| `{field}` |") and line.count(" | ") == 3)
    assert row[2] == unset
    assert row[3].startswith(meaning)
