"""Answers of the query API: read for what they say as they arrive, and refused when they are
partial, no success, or no JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.prometheus.answer import Answer, ArrivingJson, NotJson, NotSamples, read_answer
from tidegate.prometheus.series import Series

# --- answers --------------------------------------------------------------------------------------
# An answer of the query API is read for what it says, and refused when it is partial, no success,
# or no samples over a range.


SERIES = {"metric": {"__name__": "sent", "broker": "1"}, "values": [[1000, "1"], [1001.5, "2.5"]]}


def body(*result: Any, **envelope: Any) -> dict[str, Any]:
    return {
        "status": "success",
        "data": {"resultType": "matrix", "result": list(result)},
        **envelope,
    }


def read(document: Any) -> Answer[Series]:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_answer(
        (text[start : start + 7] for start in range(0, len(text), 7)), lambda series: series
    )


def test_samples_keep_their_own_times() -> None:
    assert read(body(SERIES)).items == [
        Series({"__name__": "sent", "broker": "1"}, ((1000.0, 1.0), (1001.5, 2.5)))
    ]


def test_what_an_exporter_said_of_no_number_is_kept_for_others_to_judge() -> None:
    (series,) = read(
        body({"metric": {}, "values": [[1, "NaN"], [2, "+Inf"], [3, "-Inf"], [4, "-7"]]})
    ).items
    values = [value for _, value in series.samples]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, -7.0]


def test_the_order_of_members_does_not_matter() -> None:
    document = {
        "warnings": ["slow"],
        "data": {"result": [SERIES], "stats": {}, "resultType": "matrix"},
        "infos": [],
        "status": "success",
    }
    answer = read(document)
    assert (len(answer.items), answer.warnings) == (1, ["slow"])


def test_warnings_are_not_lost() -> None:
    assert read(body(SERIES, warnings=["store 10.0.0.7 is down"])).warnings == [
        "store 10.0.0.7 is down"
    ]


def test_infos_are_no_warnings() -> None:
    assert read(body(SERIES, infos=["metric might not be a counter"])).warnings == []


def test_victoriametrics_partial_answers_have_a_warning() -> None:
    assert "isPartial" in read(body(SERIES, isPartial=True)).warnings[0]


def test_a_series_without_a_sample_or_with_histograms_only_is_passed_over() -> None:
    assert (
        read(body({"metric": {}, "values": []}, {"metric": {}, "histograms": [[1, {}]]})).items
        == []
    )


@pytest.mark.parametrize(
    "document",
    [
        {"status": "error", "errorType": "execution", "error": "it broke"},
        {"status": "success"},
        {"status": "success", "data": None},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}},
        {"data": {"resultType": "matrix", "result": []}},
        body("series"),
        body({"values": [[1, "2"]]}),
        body({"metric": {"broker": 1}, "values": [[1, "2"]]}),
        body({"metric": [], "values": [[1, "2"]]}),
        body({"metric": {}, "values": "1 2"}),
        body({"metric": {}, "values": [[1]]}),
        body({"metric": {}, "values": [[1, "two"]]}),
        body({"metric": {}, "values": [["NaN", "2"]]}),
        body({"metric": {}, "values": [[2, "2"], [1, "2"]]}),
        body({"metric": {}, "values": [[1, "2"], [1, "3"]]}),
        body({"metric": {}, "values": [[1, "2"], ["NaN", "3"], [2, "2"]]}),
        body({"metric": {}, "values": [[1, None]]}),
        body({"metric": {}, "values": [[10**400, "2"]]}),
    ],
)
def test_json_of_another_kind_is_refused(document: Any) -> None:
    with pytest.raises(NotSamples):
        read(document)


@pytest.mark.parametrize(
    "text",
    [b"<html>log in</html>", b"", b"null", b"[]", b"OK", json.dumps(body(SERIES)).encode()[:-1]],
)
def test_what_is_no_json_object_or_ends_early_is_refused(text: bytes) -> None:
    with pytest.raises(NotJson):
        read(text)


@given(data=st.data())
def test_whatever_stands_in_an_answer_it_is_read_or_refused_and_nothing_else_happens(
    data: st.DataObject,
) -> None:
    whole = json.dumps(
        body(SERIES, {"metric": {}, "values": [[1, "NaN"], [2, "3"]]}, warnings=["w"])
    )
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    put_in = data.draw(
        st.sampled_from(
            ["", "null", "[]", "{}", '"x"', "1e999", "-", "\\", "\x00", "[[", "true,", "9" * 400]
        )
        | st.text(max_size=5)
    )
    text = (whole[:start] + put_in + whole[end:]).encode("utf-8", "replace")
    with suppress(NotJson, NotSamples):
        assert all(math.isfinite(at) for series in read(text).items for at, _ in series.samples)


def test_a_web_page_is_named(golden: Callable[[str], None]) -> None:
    with pytest.raises(NotJson) as refused:
        read(b"  <!DOCTYPE html>")
    golden(str(refused.value))


# --- JSON as it arrives ---------------------------------------------------------------------------
# Whatever the size of the pieces in which a text arrives, it reads the same; what is no JSON is
# refused and never waited for.


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def arriving(text: str | bytes, *, piece: int = 1) -> ArrivingJson:
    body = text.encode() if isinstance(text, str) else text
    return ArrivingJson(body[start : start + piece] for start in range(0, len(body), piece))


@given(
    values=st.lists(VALUES, max_size=6), piece=st.integers(1, 40), indent=st.sampled_from([None, 1])
)
def test_a_list_reads_the_same_in_pieces_of_any_size(
    values: list[object], piece: int, indent: int | None
) -> None:
    text = arriving(json.dumps(values, indent=indent, ensure_ascii=False), piece=piece)
    assert list(text.items()) == values
    text.end()


@given(members=st.dictionaries(st.text(), VALUES, max_size=6), piece=st.integers(1, 40))
def test_an_object_reads_the_same_in_pieces_of_any_size(
    members: dict[str, object], piece: int
) -> None:
    text = arriving(json.dumps(members), piece=piece)
    assert {name: text.value() for name in text.members()} == members
    text.end()


def test_a_number_is_not_taken_before_its_last_digit_is_there() -> None:
    assert arriving("12345", piece=2).value() == 12345


@pytest.mark.parametrize(
    "text", ["[1, 2", "[1 2]", "[,]", "[1,]", "{", "[", "", '["no end', "[nothing]", "[" * 100_000]
)
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
