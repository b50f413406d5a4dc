"""The calendar of a policy: in force at its beginning, restored after its end, and no one else pays.

The day is 2026-11-26, a Thursday; the entry is 10:00 to 11:00 UTC and gives L3 a fifth.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import (
    BARE,
    MB,
    OUT,
    SimulatedCluster,
    actor,
    in_force_mb,
    simulated_cluster,
    want,
)
from tidegate_logic.model import CalendarEntry, Level
from tidegate_logic.recurrence import Recurrence
from tidegate_logic.throttle.calendar import LevelCalendar, lead_seconds, level_calendars
from tidegate_logic.throttle.decision import LimitedBy, Phase, ThrottleDecision
from tidegate_logic.throttle.input import LastChange, ThrottleMemory, ThrottleSettings

PASS_SECONDS = 15
TEN = datetime(2026, 11, 26, 10, tzinfo=UTC).timestamp()
ELEVEN = TEN + 3600
EVERY_DAY = frozenset(range(7))


def entry(begin: int, end: int, shares: Mapping[Level, float]) -> CalendarEntry:
    """From one minute after midnight to another, UTC."""
    return CalendarEntry(Recurrence(EVERY_DAY, begin, end), shares)


MORNING = entry(600, 660, {Level.L3: 0.2})


def cluster(
    *calendar: CalendarEntry, before_seconds: float = 300, **wanted_mb: float
) -> SimulatedCluster:
    """All levels with a contract of 50 MB/s on a broker of 400, some minutes before ten."""
    played = simulated_cluster(
        actor("l0", "L0", 50),
        actor("l1", "L1", 50),
        actor("l2", "L2", 50),
        actor("l3", "L3", 50),
        limit_mb=400,
    )
    played.calendar = calendar or (MORNING,)
    played.now_seconds = TEN - before_seconds
    want(played, **(wanted_mb or {"l0": 30, "l1": 30, "l2": 30, "l3": 30}))
    return played


def run_until(played: SimulatedCluster, seconds: float) -> list[tuple[float, ThrottleDecision]]:
    decisions = []
    while played.now_seconds < seconds:
        decision = played.run(PASS_SECONDS)
        decisions.append((played.now_seconds, decision))
    return decisions


def test_it_is_in_force_at_its_beginning_by_safe_steps_and_back_after_its_end() -> None:
    played = cluster()
    decisions = run_until(played, TEN)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 50, "l3": 10}
    cuts = [
        (at - TEN, step.value / MB, step.limited_by, step.predicted_mute_seconds <= 12)
        for at, decision in decisions
        for step in decision.steps.values()
        if step.limited_by in (LimitedBy.MAX_MUTE, LimitedBy.CALENDAR)
        and step.in_force != step.value
    ]
    # the measured rate is 30 MB/s, and a window may hold a quarter more
    assert cuts[0][0] == -90
    assert [limited for _, _, limited, _ in cuts] == [LimitedBy.MAX_MUTE, LimitedBy.CALENDAR]
    assert all(is_short for *_, is_short in cuts)
    assert {one.phase for _, decision in decisions for one in decision.rounds} == {Phase.NORMAL}

    decisions = run_until(played, ELEVEN - PASS_SECONDS)
    assert all(
        decision.by_calendar(step) for _, decision in decisions for step in decision.steps.values()
    )
    assert in_force_mb(played)["l3"] == 10
    run_until(played, ELEVEN + 240)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 50, "l3": 50}


def test_load_that_comes_with_a_calendar_finds_room_and_costs_others_nothing() -> None:
    played = cluster(l0=30, l1=30, l2=30, l3=50)
    played.limits[1] = type(played.limits[1])(150 * MB, None, None)
    run_until(played, TEN)
    want(played, l0=45)
    run_until(played, ELEVEN - 60)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 50, "l3": 10}


def test_load_may_ask_for_less_than_the_calendar_and_gets_no_more_than_it() -> None:
    played = cluster(entry(600, 660, {Level.L3: 0.6}), l0=30, l1=30, l2=30, l3=50)
    played.limits[1] = type(played.limits[1])(100 * MB, None, None)
    decisions = run_until(played, TEN + 600)
    (step,) = [one for one in decisions[-1][1].steps.values() if one.level is Level.L3]
    assert in_force_mb(played)["l3"] < 15
    assert not decisions[-1][1].by_calendar(step)
    want(played, l1=0, l2=0)
    decisions = run_until(played, TEN + 1200)
    assert in_force_mb(played)["l3"] == 30
    (step,) = [one for one in decisions[-1][1].steps.values() if one.level is Level.L3]
    assert decisions[-1][1].by_calendar(step)


def test_a_level_at_its_ceiling_holds_up_no_raise_of_those_below() -> None:
    played = cluster(entry(600, 660, {Level.L2: 0.5}), l0=30, l1=30, l2=50, l3=50)
    played.limits[1] = type(played.limits[1])(120 * MB, None, None)
    run_until(played, TEN + 300)
    assert in_force_mb(played)["l3"] < 50
    want(played, l0=0, l1=0)
    run_until(played, TEN + 1200)
    assert in_force_mb(played)["l2"] == 25
    assert in_force_mb(played)["l3"] == 50


def test_where_entries_overlap_the_lower_share_counts() -> None:
    half = entry(600, 720, {Level.L3: 0.5, Level.L2: 0.5})
    played = cluster(half, MORNING)
    run_until(played, TEN)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 25, "l3": 10}
    run_until(played, ELEVEN + 300)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 25, "l3": 25}


def test_nothing_is_lowered_that_could_not_be_restored_now() -> None:
    """Without readings of the broker nothing is lowered, and nothing is raised after the end."""
    played = cluster()
    played.lies[1, OUT] = None
    run_until(played, TEN + 300)
    assert in_force_mb(played)["l3"] == 50
    played.lies.clear()
    run_until(played, TEN + 600)
    assert in_force_mb(played)["l3"] == 10
    played.lies[1, OUT] = None
    run_until(played, ELEVEN + 1800)
    assert in_force_mb(played)["l3"] == 10
    played.lies.clear()
    run_until(played, ELEVEN + 2400)
    assert in_force_mb(played)["l3"] == 50


def test_a_tier_without_throttled_rates_and_one_with_higher_ones_keep_them() -> None:
    played = simulated_cluster(actor("free", "L3", 50, None), actor("floored", "L3", 50, 20))
    played.calendar, played.now_seconds = (MORNING,), TEN - 300
    run_until(played, TEN + 60)
    assert in_force_mb(played) == {"free": 50, "floored": 20}


def test_a_restart_and_a_pause_across_the_beginning_change_only_when_it_begins() -> None:
    played = cluster()
    run_until(played, TEN - 60)
    before = in_force_mb(played)["l3"]
    assert 10 <= before < 50
    played.memory = ThrottleMemory()
    run_until(played, TEN + 30)
    assert in_force_mb(played)["l3"] == 10
    paused = cluster(before_seconds=-600)
    run_until(paused, TEN + 600 + 120)
    assert in_force_mb(paused)["l3"] == 10


def test_an_edited_contract_does_not_rise_above_the_ceiling() -> None:
    played = cluster(before_seconds=-600)
    key = next(one.key for one in played.actors if one.level is Level.L3)
    played.in_force[key] = 5 * MB
    played.changes[key] = LastChange(TEN - 7200, 4 * MB)
    decision = played.run(PASS_SECONDS)
    assert decision.steps[key].value == 10 * MB
    assert decision.steps[key].limited_by is LimitedBy.CALENDAR


def test_what_is_in_force_and_what_comes_next() -> None:
    half = entry(630, 720, {Level.L3: 0.5, Level.L2: 0.5})
    says = {one.level: one for one in level_calendars((MORNING, half), TEN - 60)}
    assert says == {
        Level.L2: LevelCalendar(Level.L2, None, TEN + 1800, 0.5),
        Level.L3: LevelCalendar(Level.L3, None, TEN, 0.2),
    }
    assert says[Level.L3].words == (
        "limited by calendar on its way down to 20 % of its contracts from 2026-11-26T10:00:00Z"
    )
    (_, low) = level_calendars((MORNING, half), TEN + 2400)
    assert low == LevelCalendar(Level.L3, 0.2, ELEVEN, 0.5)
    assert low.words == "limited by calendar to 20 % of its contracts until 2026-11-26T11:00:00Z"
    always = (entry(0, 0, {Level.L3: 0.3}),)
    assert level_calendars(always, TEN) == (LevelCalendar(Level.L3, 0.3, None, None),)


def test_it_begins_by_as_many_steps_early_as_it_takes() -> None:
    made = ThrottleSettings()
    # a halving each step of 30 s, and 11 s in which the writes of a round are spread
    assert lead_seconds(0.5, 12, made) == 30 + 11
    assert lead_seconds(0.2, 12, made) == 3 * 30 + 11
    assert lead_seconds(0.01, 12, made) == 7 * 30 + 11


@pytest.mark.parametrize("max_mute_seconds", [2, 5, 12, 20])
@settings(max_examples=6)
@given(share=st.integers(1, 99).map(lambda percent: percent / 100), phase=st.integers(0, 14))
def test_whatever_the_share_it_is_in_force_in_time_and_over_soon(
    max_mute_seconds: int, share: float, phase: int
) -> None:
    made = ThrottleSettings(max_mute_seconds=max_mute_seconds, floors=BARE)
    lead = lead_seconds(share, max_mute_seconds, made)
    played = cluster(
        entry(600, 660, {Level.L3: share}), before_seconds=lead + 120 + phase, l0=1, l3=200
    )
    played.settings = made
    run_until(played, TEN - PASS_SECONDS)
    assert in_force_mb(played)["l3"] * 0.97 <= max(1, 50 * share)
    run_until(played, ELEVEN)
    assert max(1, 50 * share) * 0.97 <= in_force_mb(played)["l3"]
    run_until(played, ELEVEN + 900)
    assert in_force_mb(played) == {"l0": 50, "l1": 50, "l2": 50, "l3": 50}
