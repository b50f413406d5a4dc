"""Replicas become one series without a sample counted twice, and series that cannot be
distinguished are an error.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.samples import Selection, SeriesSamples
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.series import identified
from tidegate_logic.reasons import Reason

SETTINGS = HistorySettings(
    PrometheusServer("http://x"), replica_labels=("replica",), external_labels=("cluster",)
)
SECOND = 1000


def series(times_s: list[float], value: float = 1.0, **labels: str) -> SeriesSamples:
    times_ms = np.array([round(at * SECOND) for at in times_s], np.int64)
    return SeriesSamples({"__name__": "m", **labels}, times_ms, np.full(len(times_s), value))


def merged(*found: SeriesSamples, settings: HistorySettings = SETTINGS) -> list[SeriesSamples]:
    return identified(found, Selection("m"), settings=settings)


def every(interval_s: float, start: float, end: float) -> list[float]:
    return np.arange(start, end, interval_s).tolist()


def without(times: list[float], *gone: float) -> list[float]:
    return [at for at in times if at not in gone]


def test_the_metrics_name_and_external_labels_are_parsed_off() -> None:
    assert [one.labels for one in merged(series([1], cluster="c", user="u"))] == [{"user": "u"}]


def test_the_name_stays_where_the_selection_gave_none() -> None:
    (one,) = identified(
        [series([1])], Selection("", matching={"__name__": "m|n"}), settings=SETTINGS
    )
    assert one.labels == {"__name__": "m"}


def test_series_are_sorted_by_their_labels() -> None:
    assert [one.labels["user"] for one in merged(series([1], user="b"), series([1], user="a"))] == [
        "a",
        "b",
    ]


def test_of_two_whole_replicas_one_speaks() -> None:
    ours, theirs = (
        series(every(15, 0, 300), 1.0, replica="a"),
        series(every(15, 4, 300), 2.0, replica="b"),
    )
    (one,) = merged(theirs, ours)
    assert one.times_ms.tolist() == ours.times_ms.tolist()
    assert set(one.values.tolist()) == {1.0}


def test_the_fuller_replica_speaks_and_the_other_fills_its_gaps() -> None:
    ours = series(without(every(15, 0, 300), 45, 60, 75), 1.0, replica="a")
    (one,) = merged(ours, series([48, 62, 64, 200], 2.0, replica="b"))
    filled = one.times_ms[one.values == 2.0].tolist()
    assert filled == [48 * SECOND, 62 * SECOND, 64 * SECOND]
    assert (np.diff(one.times_ms) > 0).all()


def test_replicas_that_scrape_at_the_same_times_give_each_time_once() -> None:
    whole = every(15, 0, 300)
    (one,) = merged(
        series(without(whole, 60), 1.0, replica="a"),
        series(without(whole, 30, 90), 2.0, replica="b"),
    )
    assert one.times_ms.tolist() == [int(at * SECOND) for at in whole]
    assert one.times_ms[one.values == 2.0].tolist() == [60 * SECOND]


def test_a_clock_that_differs_a_little_never_makes_a_counter_fall() -> None:
    times = every(15, 0, 600)
    # the second replica's clock is 3 s ahead, so at "its" time the counter has less than the first
    # one's samples say
    ours = SeriesSamples(
        {"replica": "a"},
        np.array(without(times, 150, 165)).astype(np.int64) * SECOND,
        np.array(without(times, 150, 165)),
    )
    theirs = SeriesSamples(
        {"replica": "b"}, (np.array(times[:-4]) + 3).astype(np.int64) * SECOND, np.array(times[:-4])
    )
    (one,) = merged(ours, theirs)
    assert len(one.times_ms) == len(times)
    assert (np.diff(one.values) >= 0).all()


def test_whole_intervals_missing_at_either_end_are_filled() -> None:
    (one,) = merged(
        series(every(15, 60, 240), 1.0, replica="a"),
        series([2, 17, 32, 47, 242, 257], 2.0, replica="b"),
    )
    # at 47 s the first replica was due 2 s before: the interval between is not a missing one
    assert one.times_ms[one.values == 2.0].tolist() == [at * SECOND for at in (2, 17, 32, 242, 257)]


def test_three_replicas_fill_each_others_gaps() -> None:
    whole = every(15, 0, 300)
    found = [
        series(without(whole, gap, gap + 15), replica=name)
        for name, gap in (("a", 30), ("b", 90), ("c", 150))
    ]
    (one,) = merged(*found)
    assert one.times_ms.tolist() == [int(at * SECOND) for at in whole]


def test_an_external_label_that_changed_its_value_breaks_no_series() -> None:
    (one,) = merged(series([30, 45], cluster="new"), series([0, 15], cluster="old"))
    assert one.times_ms.tolist() == [0, 15_000, 30_000, 45_000]


def test_two_series_at_once_that_only_an_external_label_distinguished_are_an_error() -> None:
    with pytest.raises(InvalidResource, match='user="u"') as raised:
        merged(series([0, 15], cluster="one", user="u"), series([1, 16], cluster="two", user="u"))
    assert raised.value.reason is Reason.METRICS_AMBIGUOUS


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 600)), min_size=1))
def test_times_always_rise_and_come_from_a_replica(scrapes: list[tuple[str, int]]) -> None:
    found = [
        series(sorted({at for name, at in scrapes if name == replica}), replica=replica)
        for replica in {name for name, _ in scrapes}
    ]
    (one,) = merged(*found)
    assert (np.diff(one.times_ms) > 0).all()
    assert {at // SECOND for at in one.times_ms.tolist()} <= {at for _, at in scrapes}
    assert len(one.times_ms) >= max(len(replica.times_ms) for replica in found)
