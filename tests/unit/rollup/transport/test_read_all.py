"""Reading several things at once gives what reading each by itself gives, and each keeps its own
attempts, time and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.transport.chunk_writer import chunked_series, damaged_series, frame
from tests.unit.rollup.transport.fake_prometheus import FakePrometheus, kind_of, ranges_of
from tests.unit.rollup.transport.histories import BASE_MS
from tests.unit.rollup.transport.posting import (
    STREAMED,
    PostRequest,
    Respond,
    answering,
    asking,
    first_then,
)
from tidegate.errors import Incomplete, InvalidResource
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.transport import remote_read
from tidegate.rollup.transport.exchange import Exchange, HistorySettings
from tidegate.rollup.transport.readers import READERS
from tidegate.rollup.transport.remote_read import RemoteReadChunks
from tidegate.rollup.transport.series import HistoryReader

ONE = [(BASE_MS, 1.0), (BASE_MS + 15_000, 2.0)]
TWICE = [ReadRequest(Selection("m"), BASE_MS, BASE_MS + 60_000)] * 2
good = FakePrometheus([({"a": "1"}, ONE)])
alone = replace(good, queries="first")

SCRAPES = 80


def wild_history(chance: np.random.Generator) -> FakePrometheus:
    """None to eight series; scrapes were missed, some series end before others begin, some values
    are none.
    """
    found = []
    for number in range(chance.integers(0, 9)):
        first, last = sorted(chance.integers(0, SCRAPES + 1, 2))
        times = (
            BASE_MS
            + 15_000
            * np.arange(first, last)[chance.random(last - first) > chance.choice([0.0, 0.3])]
        )
        values = np.where(
            chance.random(len(times)) < 0.1,
            np.nan,
            np.floor(chance.random(len(times)) * 10.0 ** chance.integers(0, 12)),
        )
        found.append(
            ({"user": f"{number}"}, list(zip(times.tolist(), values.tolist(), strict=True)))
        )
    return FakePrometheus(found)


def wild_questions(chance: np.random.Generator) -> list[ReadRequest]:
    """None to six; some are without a length, some before or after everything."""
    starts = (
        BASE_MS
        + chance.integers(-5, SCRAPES + 5, chance.integers(0, 7)) * 15_000
        + chance.choice([0, 1])
    )
    lengths = chance.choice([0, 1, 60_000, 600_000], len(starts), p=[0.15, 0.05, 0.4, 0.4])
    return [
        ReadRequest(Selection("m"), start, start + length)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def plain(found: Sequence[SeriesSamples]) -> list[tuple[object, ...]]:
    return [(one.labels, one.times_ms.tobytes(), one.values.tobytes()) for one in found]


def says(answer: bytes) -> Respond:
    return lambda request: request.send(200, answer, STREAMED)


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
@settings(max_examples=25)
@given(st.integers(0, 1 << 32))
def test_reading_together_is_reading_one_by_one(kind: type[HistoryReader], number: int) -> None:
    chance = np.random.default_rng(number)
    queries = chance.choice(["all", "first", "unnumbered"])
    history, asked, together_bytes = (
        replace(wild_history(chance), queries=queries),
        wild_questions(chance),
        int(chance.choice([0, 1000, 1 << 25])),
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        answering(history) as server,
        asking(kind, server) as way,
    ):
        patch.setattr(remote_read, "_TOGETHER_BYTES", together_bytes)
        together, requests = way.read_all(asked), len(server.seen)
        assert [plain(found) for found in together] == [plain(way.read(*one)) for one in asked]
        single = len(server.seen) - requests
        assert requests <= single + (kind is RemoteReadChunks and single > 1)


def test_all_are_one_question_where_the_server_says_which_series_are_of_which() -> None:
    later = ReadRequest(TWICE[0].selection, BASE_MS + 1000, BASE_MS + 60_000)
    nothing = ReadRequest(TWICE[0].selection, 0, 1000)
    with answering(good) as server, asking(RemoteReadChunks, server) as way:
        found = way.read_all([nothing, TWICE[0], nothing, later])
    assert [[one.values.tolist() for one in each] for each in found] == [
        [],
        [[1.0, 2.0]],
        [],
        [[2.0]],
    ]
    assert len(server.seen) == 1


def test_what_no_later_series_proves_empty_is_asked_for_by_itself() -> None:
    nothing = ReadRequest(TWICE[0].selection, 0, 1000)
    with answering(good) as server, asking(RemoteReadChunks, server) as way:
        found = way.read_all([*TWICE, nothing, nothing])
    assert [len(each) for each in found] == [1, 1, 0, 0]
    assert len(server.seen) == 1 + 2


@pytest.mark.parametrize("queries", ["first", "unnumbered"])
def test_of_a_server_that_does_not_number_its_answers_none_is_believed(queries: Any) -> None:
    with (
        answering(replace(good, queries=queries)) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        found = way.read_all(TWICE * 2)
    assert [one.values.tolist() for (one,) in found] == [[1.0, 2.0]] * 4
    assert len(server.seen) == 1 + 4


@pytest.mark.parametrize(
    "refuses",
    [
        lambda request: request.send(400, "one query only", "text/plain"),
        lambda request: request.send(503, "busy", "text/plain"),
        lambda request: request.send(200, "<html>", "text/html"),
        says(frame(chunked_series({"a": "1"}, ONE), query=1)[:-1]),
        says(frame(query=1) + frame(query=0)),
        says(frame(query=7)),
        says(frame(chunked_series({"a": "1"}, ONE, encoding=4), query=1)),
    ],
    ids=["refused", "busy", "page", "damaged", "out of order", "beyond", "newer chunks"],
)
def test_whatever_goes_wrong_with_all_together_each_is_asked_by_itself(refuses: Respond) -> None:
    with answering(first_then(refuses, good)) as server, asking(RemoteReadChunks, server) as way:
        found = way.read_all(TWICE)
    assert [one.values.tolist() for (one,) in found] == [[1.0, 2.0]] * 2
    assert len(server.seen) == 1 + 2


def test_an_answer_above_the_limit_is_asked_for_in_parts() -> None:
    many = FakePrometheus([({"a": f"{number}"}, ONE) for number in range(20)])
    with (
        answering(many) as server,
        asking(RemoteReadChunks, server, answer_limit_bytes=3000) as way,
    ):
        assert [len(found) for found in way.read_all(TWICE * 2)] == [20] * 4
    assert len(server.seen) == 1 + 4


def test_a_damaged_chunk_is_asked_for_again_and_its_neighbours_are_whole() -> None:
    with (
        answering(
            first_then(
                says(
                    frame(damaged_series({"a": "1"}, ONE))
                    + frame(chunked_series({"a": "1"}, ONE), query=1)
                ),
                good,
            )
        ) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        found = way.read_all(TWICE)
    assert len(server.seen) == 1 + 2
    assert [one.values.tolist() for (one,) in found] == [[1.0, 2.0]] * 2


def test_a_chunk_that_stays_damaged_is_an_error_after_all_attempts_and_never_a_part() -> None:
    bad = says(frame(chunked_series({"a": "1"}, ONE), damaged_series({"a": "2"}, ONE)))
    with answering(bad) as server, asking(RemoteReadChunks, server, attempts=3) as way:
        with pytest.raises(Incomplete) as together:
            way.read_all(TWICE)
        asked = len(server.seen)
        with pytest.raises(Incomplete) as single:
            way.read(*TWICE[0])
    assert together.value.message == single.value.message
    assert asked == 1 + len(TWICE) + 3


def test_newer_chunks_are_asked_for_as_samples_and_nothing_else_is() -> None:
    """Blocks of XOR2 lie beside older ones: the second of three questions meets them."""
    newer, asked = replace(good, encoding=4), TWICE[0]
    later = ReadRequest(asked.selection, asked.start_ms + 1000, asked.end_ms)

    def mixed(request: PostRequest) -> None:
        starts_ms = [start_ms for start_ms, _ in ranges_of(request)]
        of_newer = later.start_ms in starts_ms
        kinds.append((len(starts_ms), of_newer, kind_of(request)))
        (newer if of_newer else good)(request)

    kinds: list[tuple[int, bool, int]] = []
    with answering(mixed) as server, asking(RemoteReadChunks, server) as way:
        together = way.read_all([asked, later, asked])
        assert kinds == [
            (3, True, 1),
            (1, False, 1),
            (1, True, 1),
            (1, True, 0),
            (1, False, 1),
        ]
        assert [one.values.tolist() for (one,) in together] == [[1.0, 2.0], [2.0], [1.0, 2.0]]
        assert plain(way.read(*later)) == plain(together[1])


@pytest.mark.parametrize("encoding", [0, 2, 3])
def test_chunks_that_are_no_floats_are_an_error_and_not_asked_for_again(encoding: int) -> None:
    with (
        answering(replace(good, encoding=encoding)) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        with pytest.raises(InvalidResource):
            way.read_all(TWICE)
        assert len(server.seen) == 1 + 1


def test_a_damaged_frame_is_asked_for_again_before_the_next_question() -> None:
    with (
        answering(
            first_then(
                alone,
                first_then(says(frame(chunked_series({"a": "1"}, ONE))[:-1]), alone),
            )
        ) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        assert len(way.read_all(TWICE)) == 2
        assert len(server.seen) == 1 + 3


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_each_has_the_whole_time_for_itself(kind: type[HistoryReader]) -> None:
    now = [0.0]

    def slow(request: PostRequest) -> None:
        now[0] += 4.0
        alone(request)

    with answering(slow) as server:
        patient = HistorySettings(PrometheusServer(server.url), deadline_seconds=10.0)
        way = kind(patient, exchange=Exchange(patient, monotonic=lambda: now[0]))
        assert [len(found) for found in way.read_all(TWICE * 2)] == [1] * 4
        way.close()
    assert now[0] > patient.deadline_seconds


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_nothing_is_asked_for_empty_ranges_among_others(kind: type[HistoryReader]) -> None:
    empty = ReadRequest(Selection("m"), BASE_MS, BASE_MS)
    with answering(good) as server, asking(kind, server) as way:
        single = way.read(*TWICE[0])
        before = len(server.seen)
        found = way.read_all([empty, TWICE[0], empty])
    assert [plain(one) for one in found] == [[], plain(single), []]
    assert len(server.seen) == 2 * before
