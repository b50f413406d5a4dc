"""The edges of a range and of the server's limits, on a server whose version the test decides."""

from __future__ import annotations

import pytest

from tests.unit.rollup.transport.fake_prometheus import FakePrometheus
from tests.unit.rollup.transport.histories import BASE_MS
from tests.unit.rollup.transport.posting import answering, asking
from tidegate.rollup.samples import Selection
from tidegate.rollup.transport.http_query import QueryRange, RangeSelector
from tidegate.rollup.transport.readers import READERS
from tidegate.rollup.transport.series import HistoryReader

LENGTH_MS = 60_000
AT_THE_EDGES = [
    (BASE_MS + after_ms, float(after_ms))
    for after_ms in (-15_000, -1, 0, 15_000, 45_000, 59_999, 60_000, 60_001)
]
INSIDE = [(at, value) for at, value in AT_THE_EDGES if BASE_MS <= at < BASE_MS + LENGTH_MS]


@pytest.mark.parametrize("left_open", [False, True], ids=["Prometheus 2", "Prometheus 3"])
@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_the_start_is_read_and_the_end_is_not_in_either_version(
    kind: type[HistoryReader], left_open: bool
) -> None:
    with (
        answering(FakePrometheus([({"a": "1"}, AT_THE_EDGES)], left_open)) as server,
        asking(kind, server) as way,
    ):
        (found,) = way.read(Selection("m"), BASE_MS, BASE_MS + LENGTH_MS)
    assert list(zip(found.times_ms.tolist(), found.values.tolist(), strict=True)) == INSIDE


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_an_empty_range_is_not_asked_for(kind: type[HistoryReader]) -> None:
    with (
        answering(FakePrometheus([({"a": "1"}, AT_THE_EDGES)])) as server,
        asking(kind, server) as way,
    ):
        assert way.read(Selection("m"), BASE_MS, BASE_MS) == []
    assert server.seen == []


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_series_come_sorted_whatever_the_servers_order(kind: type[HistoryReader]) -> None:
    series = [({"user": user}, AT_THE_EDGES) for user in "cab"]
    with answering(FakePrometheus(series)) as server, asking(kind, server) as way:
        assert [one.labels["user"] for one in way.read(Selection("m"), BASE_MS, BASE_MS + 1)] == [
            "a",
            "b",
            "c",
        ]


def test_a_long_range_is_asked_in_pieces_below_the_limit_of_points() -> None:
    every_hour = [(BASE_MS + hour * 3_600_000, float(hour)) for hour in range(80)]
    with (
        answering(FakePrometheus([({"a": "1"}, every_hour)])) as server,
        asking(QueryRange, server) as way,
    ):
        (found,) = way.read(Selection("m"), BASE_MS, BASE_MS + 80 * 3_600_000)
    assert len(server.seen) == 6  # 24,000 steps of 12 s, values and times
    assert found.values.tolist() == [float(hour) for hour in range(80)]


def test_a_series_that_ended_does_not_go_on_and_gaps_stay_gaps() -> None:
    samples = [(BASE_MS, 1.0), (BASE_MS + 15_000, 2.0), (BASE_MS + 180_000, 3.0)]
    with (
        answering(FakePrometheus([({"a": "1"}, samples)])) as server,
        asking(QueryRange, server) as way,
    ):
        (found,) = way.read(Selection("m"), BASE_MS, BASE_MS + 900_000)
        (later,) = way.read(Selection("m"), BASE_MS + 20_000, BASE_MS + 900_000)
    assert found.times_ms.tolist() == [at for at, _ in samples]
    assert later.times_ms.tolist() == [BASE_MS + 180_000]


def test_only_the_last_of_samples_closer_than_a_step_is_seen_which_is_why_the_last_way_is_not_exact() -> (
    None
):
    samples = [(BASE_MS + after_ms, 1.0) for after_ms in (0, 15_000, 16_000, 30_000)]
    with (
        answering(FakePrometheus([({"a": "1"}, samples)])) as server,
        asking(QueryRange, server) as way,
    ):
        (found,) = way.read(Selection("m"), BASE_MS, BASE_MS + 60_000)
        assert not way.exact
    assert len(found.times_ms) == 3


def test_queries_go_as_a_form_and_no_packed_answer_is_asked_for() -> None:
    with (
        answering(FakePrometheus([])) as server,
        asking(RangeSelector, server, request_timeout_seconds=7.0) as way,
    ):
        way.read(Selection("m", {"a": "x" * 5000}), BASE_MS, BASE_MS + 1)
    assert server.seen[0].path == "/api/v1/query"
    assert server.seen[0].headers["accept-encoding"] == "identity"
    assert server.seen[0].headers["content-type"] == "application/x-www-form-urlencoded"
