"""Whatever the size of the pieces in which a text arrives, it reads the same; what is no JSON is refused and never waited for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.prometheus.answer import ArrivingJson, NotJson

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20)


def arriving(text: str | bytes, *, piece: int = 1) -> ArrivingJson:
    body = text.encode() if isinstance(text, str) else text
    return ArrivingJson(body[start : start + piece] for start in range(0, len(body), piece))


@given(values=st.lists(VALUES, max_size=6), piece=st.integers(1, 40), indent=st.sampled_from([None, 1]))
def test_a_list_reads_the_same_in_pieces_of_any_size(values: list[object], piece: int, indent: int | None) -> None:
    text = arriving(json.dumps(values, indent=indent, ensure_ascii=False), piece=piece)
    assert list(text.items()) == values
    text.end()


@given(members=st.dictionaries(st.text(), VALUES, max_size=6), piece=st.integers(1, 40))
def test_an_object_reads_the_same_in_pieces_of_any_size(members: dict[str, object], piece: int) -> None:
    text = arriving(json.dumps(members), piece=piece)
    assert {name: text.value() for name in text.members()} == members
    text.end()


def test_a_number_is_not_taken_before_its_last_digit_is_there() -> None:
    assert arriving("12345", piece=2).value() == 12345


@pytest.mark.parametrize("text", ["[1, 2", "[1 2]", "[,]", "[1,]", "{", "[", "", '["no end', "[nothing]", "[" * 100_000])
def test_a_list_that_is_broken_or_ends_early_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        list(arriving(text, piece=3).items())


@pytest.mark.parametrize("text", ['{"a" 1}', '{"a": 1', '{"a": 1 "b": 2}', "{1 2}", "["])
def test_an_object_that_is_broken_or_ends_early_is_no_json(text: str) -> None:
    json_text = arriving(text)
    with pytest.raises(NotJson):
        _ = {name: json_text.value() for name in json_text.members()}


def test_bytes_that_are_no_utf_8_are_no_json() -> None:
    with pytest.raises(NotJson, match="UTF-8"):
        list(arriving(b'["\xff"]').items())


def test_what_follows_the_end_is_no_json() -> None:
    text = arriving("[] []")
    assert list(text.items()) == []
    with pytest.raises(NotJson):
        text.end()


def test_a_long_value_is_not_looked_at_again_for_every_piece() -> None:
    reads = 0

    def pieces() -> Iterator[bytes]:
        nonlocal reads
        yield b'["'
        for _ in range(4096):
            reads += 1
            yield b"x" * 64
        yield b'"]'

    text = ArrivingJson(pieces())
    tries = 0
    more = text._more

    def counted() -> bool:
        nonlocal tries
        tries += 1
        return more()

    text._more = counted  # type: ignore[method-assign]
    assert len(str(next(text.items()))) == 64 * 4096
    assert reads == 4096
    assert tries < 40
