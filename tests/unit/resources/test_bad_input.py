"""The bad-input table against the models: what the API server would refuse is refused in a file too, in the same words."""

from collections.abc import Callable

import pytest

from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.documents import override, policy, tier
from tidegate.resources import parse_object


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_bad_input_is_refused_and_the_message_names_the_field_and_what_must_hold(row: BadInput) -> None:
    refusal = row.refusal()
    assert row.field in [field for field, _ in refusal.problems]
    assert row.field in refusal.message
    assert row.must() in refusal.message


def test_what_must_hold_reads_like_this(golden: Callable[[str], None]) -> None:
    """Every rule once, with the rows that break it."""
    rows: dict[str, list[str]] = {}
    for row in BAD_INPUT:
        rows.setdefault(row.must(), []).append(row.name)
    golden("\n".join(f"{must}\n    {'; '.join(names)}" for must, names in sorted(rows.items())))


@pytest.mark.parametrize("document", [policy(), tier(), override()], ids=["policy", "tier", "override"])
def test_the_sound_objects_that_the_table_bends_are_accepted(document: dict[str, object]) -> None:
    assert parse_object(document, strict=True).metadata.namespace == "streaming"
