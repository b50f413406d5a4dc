"""Reading several things at once gives what reading each by itself gives, and each keeps its own
attempts, time and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.transport.chunk_writer import chunked_series, damaged_series, frame
from tests.unit.rollup.transport.fake_prometheus import FakePrometheus, kind_of, range_of
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
    history, asked, together_bytes = (
        wild_history(chance),
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
        assert len(server.seen) == 2 * requests


def test_a_damaged_chunk_is_asked_for_again_and_its_neighbours_are_whole() -> None:
    with (
        answering(first_then(says(frame(damaged_series({"a": "1"}, ONE))), good)) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        found = way.read_all(TWICE)
    assert [one.values.tolist() for (one,) in found] == [[1.0, 2.0]] * 2


def test_a_chunk_that_stays_damaged_is_an_error_after_all_attempts_and_never_a_part() -> None:
    bad = says(frame(chunked_series({"a": "1"}, ONE), damaged_series({"a": "2"}, ONE)))
    with answering(bad) as server, asking(RemoteReadChunks, server, attempts=3) as way:
        with pytest.raises(Incomplete) as together:
            way.read_all(TWICE)
        asked = len(server.seen)
        with pytest.raises(Incomplete) as alone:
            way.read(*TWICE[0])
    assert together.value.message == alone.value.message
    assert asked == len(TWICE) + 3


def test_newer_chunks_are_asked_for_as_samples_and_nothing_else_is() -> None:
    """Blocks of XOR2 lie beside older ones: the second of three questions meets them."""
    newer, asked = replace(good, encoding=4), TWICE[0]
    later = ReadRequest(asked.selection, asked.start_ms + 1000, asked.end_ms)

    def mixed(request: PostRequest) -> None:
        of_newer = range_of(request)[0] == later.start_ms
        kinds.append((of_newer, kind_of(request)))
        (newer if of_newer else good)(request)

    kinds: list[tuple[bool, int]] = []
    with answering(mixed) as server, asking(RemoteReadChunks, server) as way:
        together = way.read_all([asked, later, asked])
        assert kinds == [(False, 1), (True, 1), (True, 0), (False, 1)]
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
        assert len(server.seen) == 1


def test_a_damaged_frame_is_asked_for_again_before_the_next_question() -> None:
    with (
        answering(first_then(says(frame(chunked_series({"a": "1"}, ONE))[:-1]), good)) as server,
        asking(RemoteReadChunks, server) as way,
    ):
        assert len(way.read_all(TWICE)) == 2
        assert len(server.seen) == 3


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_each_has_the_whole_time_for_itself(kind: type[HistoryReader]) -> None:
    now = [0.0]

    def slow(request: PostRequest) -> None:
        now[0] += 4.0
        good(request)

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
        alone = way.read(*TWICE[0])
        before = len(server.seen)
        found = way.read_all([empty, TWICE[0], empty])
    assert [plain(one) for one in found] == [[], plain(alone), []]
    assert len(server.seen) == 2 * before
