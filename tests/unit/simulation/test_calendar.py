"""Bursts that people declare in a calendar: L3 alone pays, and no longer than they declared.

All levels want 15 of the 80 MB/s that broker 1 may carry; for 45 s of every five minutes L0 wants 30
more. L3 may use 3 MB/s from minute 5 to minute 22, when the last burst is over.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.simulation.scenarios import MB, OUT, USERS, scenario, want
from tidegate.simulation.outcome import outcome_of
from tidegate.simulation.play import Play, play
from tidegate_logic.model import CalendarEntry, Level
from tidegate_logic.recurrence import Recurrence
from tidegate_logic.throttle.calendar import lead_seconds
from tidegate_logic.throttle.input import ThrottleSettings

MIDNIGHT = 86_400.0 * 12
BEGIN, END = 300, 1320
SHARE = 0.05
DECLARED = CalendarEntry(Recurrence(frozenset(range(7)), BEGIN // 60, END // 60), {Level.L3: SHARE})
BURSTS = range(300, 1201, 300)


def played(*, bursts: Sequence[int] = BURSTS, calendar: Sequence[CalendarEntry] = ()) -> Play:
    demands = want(dict.fromkeys(Level, 15.0), 0, None)
    for begin in bursts:
        demands += want({Level.L0: 30.0}, begin, begin + 45)
    made = scenario(*demands, seconds=1800, calendar=tuple(calendar))
    return play(replace(made, epoch_seconds=MIDNIGHT))


def over_seconds(one: Play) -> int:
    return sum(nic.over_seconds for nic in outcome_of(one).nics)


def below_seconds(one: Play) -> dict[Level, int]:
    """How long each user had less than the 60 MB/s of the contract."""
    return {
        level: sum(value is not None and value < 60 * MB for value in one.quotas[user, OUT])
        for level, user in USERS.items()
    }


def declared_seconds(one: Play) -> float:
    """The entry's, with the safe steps before it and the raises after it."""
    policy = one.scenario.policy
    lead = lead_seconds(SHARE, policy.max_mute_seconds, ThrottleSettings.of(policy))
    return lead + END - BEGIN + 120


def test_declared_bursts_find_room_that_l3_alone_gives() -> None:
    surprised, declared = played(), played(calendar=[DECLARED])
    assert over_seconds(surprised) > 60
    assert over_seconds(declared) == 0
    below = below_seconds(declared)
    assert [below[level] for level in (Level.L0, Level.L1, Level.L2)] == [0, 0, 0]
    assert END - BEGIN <= below[Level.L3] <= declared_seconds(declared)


def test_load_that_does_not_come_costs_l3_alone_what_was_declared() -> None:
    calm = played(bursts=(), calendar=[DECLARED])
    below = below_seconds(calm)
    assert [below[level] for level in (Level.L0, Level.L1, Level.L2)] == [0, 0, 0]
    assert END - BEGIN <= below[Level.L3] <= declared_seconds(calm)
    lost = {one.level: one.amounts.held_back for one in outcome_of(calm).levels}
    assert [lost[level] for level in (Level.L0, Level.L1, Level.L2)] == [0, 0, 0]
    assert lost[Level.L3] <= 12 * MB * declared_seconds(calm)


def test_load_that_comes_beside_the_entry_is_throttled_as_without_one() -> None:
    late = CalendarEntry(Recurrence(frozenset(range(7)), 28, 29), {Level.L3: SHARE})
    assert over_seconds(played(calendar=[late])) == pytest.approx(over_seconds(played()), abs=5)
