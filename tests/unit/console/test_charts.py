"""A chart's data: lines that share their times, gaps that stay gaps, and no more points than are seen."""

import json
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from bench.large_console import large_measured, large_objects, large_past
from tests.doubles.simulated_console import KEY, stopped_at
from tidegate.console.brokers_part import brokers_of, throttled_spans
from tidegate.console.charts import SHARE, Chart, Line, figure_of
from tidegate.console.choices import RANGES, Choices
from tidegate.console.history import History, Past
from tidegate.console.parts import Kept
from tidegate.view.policy import PolicyNow, policy_now
from tidegate_logic.model import Direction

NOW = 1_800_000_000.0
PLACE = (1, Direction.EGRESS)


def data_of(html: object) -> dict[str, Any]:
    found = re.search(r'data-chart="([^"]*)"', str(html))
    assert found is not None
    parsed: dict[str, Any] = json.loads(unescape(found[1]))
    return parsed


def test_lines_share_times_and_a_gap_stays_one() -> None:
    points = [(NOW, 0.5), (NOW + 15, None), (NOW + 30, 1.25)]
    lines = [Line("broker 1 egress", points, limit=80), Line("broker 2 egress", points)]
    chart = Chart("a", "label", SHARE, NOW, NOW + 30, lines, limit=1.0)
    data = data_of(figure_of(chart, Markup("said")))
    assert data["times"] == [[0, 15, 30]]
    assert [line[-1] for line in data["lines"]] == [[0.5, None, 1.25]] * 2
    assert data["lines"][0][3] == 80


def large(brokers: int, members: int) -> tuple[PolicyNow, History]:
    key = "streaming/orders"
    seen = policy_now(
        large_objects(brokers, members, NOW), key, large_measured(brokers, members, NOW), NOW
    )
    assert seen is not None
    history = History()
    shares = [(NOW - 60.0 * back, 0.5 + back % 7 / 10) for back in range(1440, 0, -1)]
    past = large_past(brokers, NOW)
    history.begin(key, Past(dict.fromkeys(past.nics, shares), past.levels))
    history.note(seen)
    return seen, history


def test_a_day_of_fifty_brokers_is_small_whatever_is_kept() -> None:
    now, history = large(50, 100)
    for seconds in RANGES:
        _, chart = brokers_of(now, history, Kept(), Choices(seconds=seconds))
        data = data_of(chart)
        assert len(data["lines"]) == 100
        assert max(len(line[-1]) for line in data["lines"]) <= 361
        assert data["end"] - data["begin"] == seconds
        assert len(str(chart)) < 400_000


def test_a_chart_is_made_again_when_a_step_is_over_and_not_before() -> None:
    now, history = large(50, 100)
    kept, choices = Kept(), Choices(seconds=24 * 3600)
    kept.begin()
    _, first = brokers_of(now, history, kept, choices)
    kept.begin()
    _, second = brokers_of(now, history, kept, choices)
    assert second is first
    kept.begin()
    _, other = brokers_of(now, history, kept, Choices(seconds=900))
    assert other is not first


def test_throttled_times_are_shaded_once_however_many_levels_are() -> None:
    console, _ = stopped_at(640.0)
    spans = list(throttled_spans(console.history, KEY))
    assert spans
    assert {name for name, _ in spans} <= {"L3 throttled", "L2-L3 throttled"}
    for (_, before), (_, after) in pairwise(spans):
        assert before.end < after.begin


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.0, 3.0, width=32), min_size=1, max_size=900),
    st.sampled_from(sorted(RANGES)),
)
def test_what_is_thinned_keeps_its_highest_and_its_newest(
    shares: list[float], seconds: int
) -> None:
    history = History()
    history.begin(KEY, Past({PLACE: [(NOW + 15.0 * n, one) for n, one in enumerate(shares)]}))
    points = history.nic(KEY, PLACE, seconds)
    newest = NOW + 15.0 * (len(shares) - 1)
    within = [one for n, one in enumerate(shares) if newest - seconds <= NOW + 15.0 * n]
    assert max(share for _, share in points if share is not None) == max(within)
    assert points[-1][0] == newest
    assert len(points) <= 362


def test_what_is_noted_for_a_day_is_kept_by_the_minute_but_for_the_last_hour() -> None:
    now, history = large(6, 10)
    (nic, *_) = now.nics
    place = (nic.broker, nic.direction)
    for n in range(1, 26 * 240):
        at = NOW + 15.0 * n
        share = 1.5 if n == 100 else 0.5
        fresh = replace(nic, at_seconds=at, bytes_per_second=share * (nic.limit or 0))
        history.note(replace(now, now_seconds=at, nics=(fresh,), members=()))
    kept = history._policies[now.key].nics[place].kept[0]
    assert len(kept) < 1440 + 240 + 2 * 360
    end = history.newest_seconds(now.key)
    assert kept[0] >= end - 26 * 3600
    assert len([at for at in kept if at >= end - 3600]) == 241
