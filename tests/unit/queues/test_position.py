import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ForeignContent
from tidegate.queues.position import LONGEST_BYTES, PositionNote, parse_note

counts = st.integers(0, 2**53)
late = st.tuples(*[st.integers(0, 2**40)] * 3)
notes = st.builds(
    PositionNote,
    owner=st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=253),
    lost=counts,
    dead=counts,
    late_ms=late,
    clock_ms=st.integers(-(2**40), 2**40),
    error=st.text(max_size=3000),
)


@given(notes)
def test_a_note_is_read_as_it_was_written_and_brokers_take_it(note: PositionNote) -> None:
    text = note.text()
    assert len(text.encode()) <= LONGEST_BYTES
    read = parse_note(text)
    assert read.with_error("") == note.with_error("")
    assert note.error.startswith(read.error)
    assert len(note.error) < 100 or read.error


def test_a_topic_without_a_note_was_never_forwarded() -> None:
    assert parse_note(None) == parse_note("") == PositionNote()


def test_the_format_is_the_documented_one() -> None:
    assert json.loads(PositionNote(owner="a", late_ms=(1, 2, 3), clock_ms=12).text()) == {
        "v": 1,
        "owner": "a",
        "lost": 0,
        "late_ms": [1, 2, 3],
        "clock_ms": 12,
        "error": "",
        "dead": 0,
    }


def test_unknown_fields_are_ignored_and_missing_ones_have_their_defaults() -> None:
    assert parse_note('{"v":1,"owner":"b","bitmap":"AAA"}') == PositionNote(owner="b")


def test_a_newer_version_is_left_alone() -> None:
    with pytest.raises(ForeignContent, match="newer"):
        parse_note('{"v":2,"owner":"b"}')


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        "{}",
        "3",
        '"v"',
        '{"v":null}',
        '{"v":1,"lost":Infinity}',
        '{"v":1,"late_ms":[1]}',
        "[" * 5000,
    ],
)
def test_what_another_program_committed_is_not_taken_for_a_note(text: str) -> None:
    with pytest.raises(ForeignContent, match="not Tidegate's"):
        parse_note(text)


@given(st.text(max_size=100))
def test_any_text_is_a_note_or_is_left_alone(text: str) -> None:
    with contextlib.suppress(ForeignContent):
        parse_note(text)
