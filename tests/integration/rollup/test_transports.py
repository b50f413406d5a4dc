"""On a real Prometheus every way of reading gives the same rows, and exactly those that were
stored.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.process import freeze, patience
from tests.integration.rollup.history_server import HistoryServer
from tests.unit.rollup.transport.histories import BASE_MS, STALE
from tidegate.errors import Unreachable
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.transport.exchange import Exchange, HistorySettings
from tidegate.rollup.transport.http_query import RangeSelector, read_usual
from tidegate.rollup.transport.readers import READERS, choose_reader
from tidegate.rollup.transport.remote_read import RemoteReadChunks
from tidegate.rollup.transport.series import HistoryReader

pytestmark = [
    pytest.mark.integration,
    # a thread of kazoo that connects again draws random numbers while hypothesis makes an example
    pytest.mark.filterwarnings(
        "ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

SCRAPE_MS = 15_000
Samples = list[tuple[int, float]]
Rows = list[tuple[dict[str, str], Samples]]

amounts = st.one_of(
    st.integers(0, 10**12).map(float),
    st.floats(),
    st.sampled_from([0.0, -0.0, float("nan"), STALE, float("inf"), float("-inf")]),
)
# scrapes come in time, late, or not for a while
distances_ms = st.one_of(
    st.just(SCRAPE_MS),
    st.integers(SCRAPE_MS, SCRAPE_MS + 500),
    st.sampled_from([2 * SCRAPE_MS, 20 * SCRAPE_MS, 600_000]),
)


@st.composite
def histories(draw: st.DrawFn) -> Samples:
    """The samples of a series: a counter that grows and is reset, or any values, with gaps and
    markers of staleness.
    """
    at = BASE_MS + draw(st.integers(0, 120_000))
    steps = draw(st.lists(st.tuples(distances_ms, amounts), min_size=1, max_size=40))
    growing, total, found = draw(st.booleans()), 0.0, []
    for distance, amount in steps:
        total = (total if draw(st.integers(0, 9)) else 0.0) + (
            amount if np.isfinite(amount) else 1.0
        )
        found.append((at, total if growing and np.isfinite(amount) else amount))
        at += distance
    return found


@contextmanager
def every_way(server: HistoryServer, **given_settings: object) -> Iterator[list[HistoryReader]]:
    common = HistorySettings(
        PrometheusServer(server.url), scrape_interval_ms=SCRAPE_MS, external_labels=("cluster",)
    )
    ways = [kind(replace(common, **given_settings)) for kind in READERS]  # type: ignore[arg-type]
    yield ways
    for way in ways:
        way.close()


def rows(found: Sequence[SeriesSamples]) -> Rows:
    return [
        (dict(one.labels), list(zip(one.times_ms.tolist(), one.values.tolist(), strict=True)))
        for one in found
    ]


def stored(series: Mapping[str, Samples], start_ms: int, end_ms: int) -> Rows:
    """The rows that a reader must return: finite numbers only, with the start and without the
    end.
    """
    kept = {
        name: [one for one in samples if start_ms <= one[0] < end_ms and np.isfinite(one[1])]
        for name, samples in series.items()
    }
    return [({"series": name}, samples) for name, samples in sorted(kept.items()) if samples]


@settings(max_examples=25)
@given(
    st.dictionaries(st.sampled_from("abcd"), histories(), min_size=1),
    st.integers(0, 300_000),
    st.integers(1, 3_000_000),
)
def test_every_way_gives_exactly_what_is_stored(
    history: HistoryServer, series: dict[str, Samples], after_ms: int, length_ms: int
) -> None:
    metric, start_ms = history.new_metric(), BASE_MS + after_ms
    history.write(metric, *(({"series": name}, samples) for name, samples in series.items()))
    expected = stored(series, start_ms, start_ms + length_ms)
    with every_way(history) as ways:
        for way in ways:
            assert rows(way.read(Selection(metric), start_ms, start_ms + length_ms)) == expected, (
                way.name
            )


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abcd"), histories()), st.integers(0, 3_000_000)),
        max_size=5,
    )
)
def test_several_metrics_read_together_are_exactly_what_is_stored(
    history: HistoryServer, written: list[tuple[dict[str, Samples], int]]
) -> None:
    asked = []
    for series, length_ms in written:
        asked.append(ReadRequest(Selection(history.new_metric()), BASE_MS, BASE_MS + length_ms))
        history.write(
            asked[-1].selection.metric,
            *(({"series": name}, samples) for name, samples in series.items()),
        )
    expected = [stored(series, BASE_MS, BASE_MS + length_ms) for series, length_ms in written]
    with every_way(history) as ways:
        for way in ways:
            assert [rows(found) for found in way.read_all(asked)] == expected, way.name


def test_prometheus_answers_several_queries_of_one_question(history: HistoryServer) -> None:
    """Also where one of them is about nothing, and two are about the same."""
    metrics = [history.new_metric() for _ in range(3)]
    for number, metric in enumerate((metrics[0], metrics[2])):
        history.write(metric, ({"series": "a"}, [(BASE_MS, float(number))]))
    order = (0, 1, 0, 2)
    asked = [ReadRequest(Selection(metrics[at]), BASE_MS, BASE_MS + 1) for at in order]
    answers = []

    class Counting(Exchange):
        def ask(self, *args: Any, **kwargs: Any) -> Any:
            answers.append(super().ask(*args, **kwargs))
            return answers[-1]

    settings_here = HistorySettings(PrometheusServer(history.url), external_labels=("cluster",))
    way = RemoteReadChunks(settings_here, exchange=Counting(settings_here))
    assert [rows(found) for found in way.read_all(asked)] == [
        [({"series": "a"}, [(BASE_MS, 0.0)])],
        [],
        [({"series": "a"}, [(BASE_MS, 0.0)])],
        [({"series": "a"}, [(BASE_MS, 1.0)])],
    ]
    assert len(answers) == 1
    way.close()


def test_windows_that_touch_share_no_sample_and_lose_none(history: HistoryServer) -> None:
    metric = history.new_metric()
    samples = [(BASE_MS + index * SCRAPE_MS, float(index)) for index in range(80)]
    history.write(metric, ({"series": "a"}, samples))
    with every_way(history) as ways:
        for way in ways:
            windows = [
                way.read(Selection(metric), BASE_MS + at, BASE_MS + at + 300_000)
                for at in range(0, 1_200_000, 300_000)
            ]
            assert [len(found[0].times_ms) for found in windows] == [20, 20, 20, 20], way.name
            assert [sample for found in windows for sample in rows(found)[0][1]] == samples, (
                way.name
            )


def test_replicas_become_one_series_in_the_same_way_everywhere(history: HistoryServer) -> None:
    metric = history.new_metric()
    ours = [
        (BASE_MS + index * SCRAPE_MS, float(index))
        for index in range(100)
        if index not in range(40, 50)
    ]
    theirs = [(BASE_MS + 4000 + index * SCRAPE_MS, float(index)) for index in range(0, 100, 2)]
    history.write(
        metric, ({"user": "u", "replica": "b"}, theirs), ({"user": "u", "replica": "a"}, ours)
    )
    with every_way(history, replica_labels=("replica",)) as ways:
        answers = [rows(way.read(Selection(metric), BASE_MS, BASE_MS + 3_600_000)) for way in ways]
    assert answers == answers[:1] * len(READERS)
    ((labels, samples),) = answers[0]
    assert labels == {"user": "u"}
    filled = [
        time_ms
        for time_ms, _ in theirs
        if 39 * SCRAPE_MS + 7500 <= time_ms - BASE_MS <= 50 * SCRAPE_MS - 7500
    ]
    assert [time_ms for time_ms, _ in samples] == sorted([time_ms for time_ms, _ in ours] + filled)


@settings(max_examples=15)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("uv"), st.sampled_from("abc")), histories(), min_size=1
    ),
    st.integers(1, 3_000_000),
)
def test_pairs_of_replicas_are_merged_alike_whatever_they_missed(
    history: HistoryServer, scraped: dict[tuple[str, str], Samples], length_ms: int
) -> None:
    metric = history.new_metric()
    history.write(
        metric,
        *(
            ({"user": user, "replica": replica}, samples)
            for (user, replica), samples in scraped.items()
        ),
    )
    with every_way(history, replica_labels=("replica",)) as ways:
        answers = [rows(way.read(Selection(metric), BASE_MS, BASE_MS + length_ms)) for way in ways]
    assert answers == answers[:1] * len(READERS)
    for labels, samples in answers[0]:
        scraped_samples = {
            one
            for (user, _), replica in scraped.items()
            if user == labels["user"]
            for one in replica
        }
        assert set(samples) <= scraped_samples
        assert all(earlier < later for (earlier, _), (later, _) in pairwise(samples))


def test_samples_that_came_out_of_order_are_in_order(history: HistoryServer) -> None:
    metric = history.new_metric()
    samples = [(BASE_MS + index * SCRAPE_MS, float(index)) for index in range(60)]
    for part in (samples[20:40], samples[:20], samples[40:]):
        history.write(metric, ({"series": "a"}, part))
    with every_way(history) as ways:
        for way in ways:
            assert rows(way.read(Selection(metric), BASE_MS, BASE_MS + 3_600_000)) == [
                ({"series": "a"}, samples)
            ], way.name


def test_long_series_that_span_many_chunks_and_frames_come_whole(history: HistoryServer) -> None:
    metric = history.new_metric()
    # values that hardly compress: 9 bytes a sample, so a series of 1,000 spans several frames
    random = np.random.default_rng(1)
    series = {
        name: [
            (BASE_MS + at * 3000, value) for at, value in enumerate(random.random(1000).tolist())
        ]
        for name in "abc"
    }
    history.write(metric, *(({"series": name}, samples) for name, samples in series.items()))
    with every_way(history, scrape_interval_ms=3000) as ways:
        for way in ways:
            assert rows(way.read(Selection(metric), BASE_MS, BASE_MS + 3_600_000)) == stored(
                series, BASE_MS, BASE_MS + 3_600_000
            ), way.name


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (lambda metric: Selection(metric, {"kind": "odd"}), "bd"),
        (lambda metric: Selection(metric, {"kind": ""}), "e"),
        (lambda metric: Selection(metric, {}, {"series": "a|b"}), "ab"),
        (lambda metric: Selection(metric, {}, {"series": "a|b"}, {"series": "b"}), "a"),
        (lambda metric: Selection(metric, {"series": "a|b"}), ""),
    ],
    ids=["equal", "absent", "regex", "but not", "equal is no regex"],
)
def test_every_way_understands_selections_alike(
    history: HistoryServer, selection: Callable[[str], Selection], names: str
) -> None:
    metric = history.new_metric()
    kinds = {"a": "even", "b": "odd", "c": "even", "d": "odd", "e": ""}
    labels = [{"series": name, **({"kind": kind} if kind else {})} for name, kind in kinds.items()]
    history.write(metric, *((one, [(BASE_MS, 1.0)]) for one in labels))
    with every_way(history) as ways:
        for way in ways:
            found = way.read(selection(metric), BASE_MS, BASE_MS + 1000)
            assert "".join(one.labels["series"] for one in found) == names, way.name


def test_several_metrics_are_read_at_once_and_keep_their_names(history: HistoryServer) -> None:
    names = sorted([history.new_metric(), history.new_metric()])
    for step, name in enumerate(names):
        history.write(name, ({"user": "u"}, [(BASE_MS + step * 1000, float(step))]))
    with every_way(history) as ways:
        for way in ways:
            found = rows(
                way.read(
                    Selection("", {"user": "u"}, {"__name__": "|".join(names)}),
                    BASE_MS,
                    BASE_MS + 60_000,
                )
            )
            expected = [
                ({"__name__": name, "user": "u"}, [(BASE_MS + step * 1000, float(step))])
                for step, name in enumerate(names)
            ]
            assert found == expected, way.name


def test_a_real_answer_is_laid_out_as_reading_in_bulk_wants_it(history: HistoryServer) -> None:
    metric = history.new_metric()
    history.write(
        metric,
        *(({"user": user}, [(BASE_MS, 1.0), (BASE_MS + 1500, float("nan"))]) for user in "uv"),
    )
    with urllib.request.urlopen(
        f"{history.url}/api/v1/query?query={metric}%5B1h%5D&time={BASE_MS // 1000 + 60}",
        timeout=patience(10),
    ) as answer:
        found = read_usual(answer.read())
    assert found is not None
    assert [one.times_ms.tolist() for one in found] == [[BASE_MS, BASE_MS + 1500]] * 2


def test_label_values_with_odd_signs_are_found(history: HistoryServer) -> None:
    metric, odd = history.new_metric(), 'a"b\\c\n{d}=~é\t"}'
    history.write(metric, ({"user": odd}, [(BASE_MS, 1.0)]), ({"user": "other"}, [(BASE_MS, 2.0)]))
    with every_way(history) as ways:
        for way in ways:
            assert [
                one.labels
                for one in way.read(Selection(metric, {"user": odd}), BASE_MS, BASE_MS + 1)
            ] == [{"user": odd}], way.name


def test_a_real_prometheus_is_read_in_the_best_way(history: HistoryServer) -> None:
    metric = history.new_metric()
    history.write(metric, ({}, [(BASE_MS, 1.0)]))
    chosen = choose_reader(
        HistorySettings(PrometheusServer(history.url)),
        ReadRequest(Selection(metric), BASE_MS, BASE_MS + 1),
    )
    assert (chosen.reader.name, chosen.reader.exact, chosen.passed_over) == (
        "remote-read-chunks",
        True,
        (),
    )


def test_a_server_that_freezes_is_given_up_in_time_and_read_again_when_it_is_back(
    history: HistoryServer,
) -> None:
    metric = history.new_metric()
    history.write(metric, ({}, [(BASE_MS, 1.0)]))
    impatient = HistorySettings(
        PrometheusServer(history.url), read_timeout_seconds=0.3, deadline_seconds=1.0
    )
    for kind in (RemoteReadChunks, RangeSelector):
        way = kind(impatient)
        freeze(history.process.pid)
        try:
            started = time.monotonic()
            with pytest.raises(Unreachable):
                way.read(Selection(metric), BASE_MS, BASE_MS + 1)
            assert time.monotonic() - started < patience(5)
        finally:
            os.kill(history.process.pid, signal.SIGCONT)
        patient = kind(HistorySettings(PrometheusServer(history.url)))
        assert len(patient.read(Selection(metric), BASE_MS, BASE_MS + 1)) == 1
        way.close()
        patient.close()
