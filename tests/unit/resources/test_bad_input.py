"""The bad-input table against the models: what the API server would refuse is refused in a file too, in the same words."""

import pytest

from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.documents import override, policy, tier
from tidegate.errors import InvalidResource
from tidegate.resources import parse_object


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_bad_input_is_refused_and_the_message_names_the_field_and_what_must_hold(row: BadInput) -> None:
    with pytest.raises(InvalidResource) as refusal:
        parse_object(row.document, strict=True)
    assert row.field in refusal.value.message
    assert row.says in refusal.value.message


@pytest.mark.parametrize("document", [policy(), tier(), override()], ids=["policy", "tier", "override"])
def test_the_sound_objects_that_the_table_bends_are_accepted(document: dict[str, object]) -> None:
    assert parse_object(document, strict=True).metadata.namespace == "streaming"
