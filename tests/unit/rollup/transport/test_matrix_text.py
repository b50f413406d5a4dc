"""Answers read in bulk say what they say as JSON, and whatever is laid out otherwise is left to who
reads JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.transport.histories import BASE_MS, Samples, samples
from tidegate.prometheus.answer import read_answer
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.transport.http_query import read_usual

SERIES = {
    "metric": {"__name__": "m", "user": "u"},
    "values": [[1700000000.123, "1"], [1700000015, "NaN"]],
}
tricky = st.sampled_from(['"},"values":[[1,"2"]]}', "]]}", '\\"', "é\n\t", '{"metric":'])
labels = st.dictionaries(
    st.text("ab_", min_size=1, max_size=3), st.one_of(tricky, st.text(max_size=8)), max_size=3
)


def answer(*series: object, **more: object) -> bytes:
    whole = {"status": "success", **more, "data": {"resultType": "matrix", "result": series}}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def spelled(value: float) -> str:
    """As Go's strconv does it where Python differs."""
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))


def plain(found: Iterable[SeriesSamples] | None) -> list[object]:
    assert found is not None
    return [
        (dict(one.labels), one.times_ms.tolist(), [repr(value) for value in one.values.tolist()])
        for one in found
    ]


@settings(max_examples=60)
@given(st.lists(st.tuples(labels, samples(max_size=8)), max_size=4))
def test_it_reads_what_reading_json_reads(stored: list[tuple[dict[str, str], Samples]]) -> None:
    body = answer(
        *(
            {"metric": names, "values": [[at / 1000, spelled(value)] for at, value in history]}
            for names, history in stored
        )
    )
    by_json = read_answer(iter([body]), lambda series: series).items
    expected = [
        (
            dict(one.labels),
            [round(at * 1000) for at, _ in one.samples],
            [repr(np.float64(value).item()) for _, value in one.samples],
        )
        for one in by_json
    ]
    assert plain(read_usual(body)) == expected


def test_no_series_is_an_answer() -> None:
    assert read_usual(answer()) == []


def test_the_end_of_the_line_is_no_other_layout() -> None:
    assert len(read_usual(answer(SERIES) + b"\n") or []) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        answer(SERIES)[:-1],
        answer(SERIES)[:-20],
        answer(SERIES) + b"x",
        answer(SERIES).replace(b":", b": "),
        answer(SERIES, isPartial=True),
        answer(SERIES)[:-1] + b',"warnings":["a store is down"]}',
        answer(SERIES, SERIES).replace(b"]]},{", b"]]}{"),
        answer(SERIES).replace(b'"NaN"', b'"what"'),
        answer(SERIES).replace(b'"NaN"', b'"1 2"'),
        answer(SERIES).replace(b'"NaN"', b'""'),
        answer(SERIES).replace(b'"NaN"]', b'"NaN",3]'),
        answer({"metric": {}, "histograms": []}),
        answer({"metric": [], "values": [[1, "1"]]}),
        answer().replace(b"matrix", b"vector"),
        json.dumps({"status": "error", "error": "no"}).encode(),
    ],
)
def test_any_other_layout_is_left_to_the_reader_of_json(body: bytes) -> None:
    assert read_usual(body) is None


def test_times_are_exact_to_the_millisecond() -> None:
    history = [(BASE_MS + step * 999, 1.0) for step in range(2000)]
    (one,) = (
        read_usual(answer({"metric": {}, "values": [[at / 1000, "1"] for at, _ in history]})) or []
    )
    assert one.times_ms.tolist() == [at for at, _ in history]
