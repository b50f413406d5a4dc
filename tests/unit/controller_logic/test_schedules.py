"""The brokers' limits by the clock: which count, what comes next, and when a lower one begins.

2026-11-30 is a Monday, the last day of its month.
"""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import ALICE, MB, member, per_partition, tier
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Level,
    LimitSchedule,
    Policy,
    Tier,
)
from tidegate_logic.recurrence import DAYS, Recurrence
from tidegate_logic.throttle.calendar import lead_seconds
from tidegate_logic.throttle.input import ThrottleSettings
from tidegate_logic.throttle.schedules import LimitsNow, in_force, limits_now

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
DAY = BrokerLimits(BrokerLimit(100 * MB, 90 * MB), {7: BrokerLimit(200 * MB, 90 * MB)})
TIERS = (
    replace(
        tier(member(ALICE, per_partition(10 * MB, 10 * MB), "orders"), level=Level.L3),
        throttled=(per_partition(2 * MB, 5 * MB),),
    ),
)


def at(wall: str, zone: str = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def limits(egress: int, ingress: int = 90 * MB, of_7: int = 200 * MB) -> BrokerLimits:
    return BrokerLimits(BrokerLimit(egress, ingress), {7: BrokerLimit(of_7, ingress)})


def schedule(
    begin: str,
    end: str,
    egress_mb: int,
    *,
    days: str = "",
    zone: str = BERLIN,
    before: bool = False,
) -> LimitSchedule:
    minutes = [int(clock[:2]) * 60 + int(clock[3:]) for clock in (begin, end)]
    chosen = frozenset(map(DAYS.index, days.split())) if days else frozenset(range(7))
    return LimitSchedule(Recurrence(chosen, *minutes, zone), limits(egress_mb * MB), before)


def now(wall: str, *schedules: LimitSchedule, tiers: tuple[Tier, ...] = TIERS) -> LimitsNow:
    found = limits_now(Policy("a/b", "uid", limits=DAY, schedules=schedules), tiers, at(wall))
    assert found is not None
    return found


def egress_mb(found: LimitsNow) -> tuple[float | None, float | None]:
    """Of brokers without limits of their own: now, and next."""
    following = found.next_limits
    return tuple(
        None if one is None or one.everywhere.egress is None else one.everywhere.egress / MB
        for one in (found.limits, following)
    )  # type: ignore[return-value]


def test_without_schedules_there_is_nothing_to_say_and_the_policy_stays_as_it_is() -> None:
    policy = Policy("a/b", "uid", limits=DAY)
    assert limits_now(policy, TIERS, 0.0) is None
    assert in_force(policy, TIERS, 0.0) is policy


NIGHT = schedule("22:00", "06:00", 40)


@pytest.mark.parametrize(
    ("wall", "mb", "until", "next_mb"),
    [
        ("2026-11-30T21:59:59", 100, "2026-11-30T22:00", 40),
        ("2026-11-30T22:00", 40, "2026-12-01T06:00", 100),  # across midnight and a month's end
        ("2026-12-01T05:59:59", 40, "2026-12-01T06:00", 100),
        ("2026-12-01T06:00", 100, "2026-12-01T22:00", 40),
        ("2027-03-27T23:00", 40, "2027-03-28T06:00", 100),  # clocks are put forward
        ("2026-10-24T23:00", 40, "2026-10-25T06:00", 100),  # and back
    ],
)
def test_the_limits_of_the_night_and_of_the_day(
    wall: str, mb: int, until: str, next_mb: int
) -> None:
    found = now(wall, NIGHT)
    assert egress_mb(found) == (mb, next_mb)
    assert (found.until_seconds, found.due_seconds) == (at(until), at(until))
    assert (found.schedule, found.next_schedule) == ((0, None) if mb == 40 else (None, 0))
    assert found.limits.of(7).egress == 200 * MB


@pytest.mark.parametrize(
    ("zone", "missing", "change", "twice"),
    [
        (BERLIN, "2027-03-28T02:30", "2027-03-28T03:00", "2026-10-25T02:30"),
        (NEW_YORK, "2027-03-14T02:30", "2027-03-14T03:00", "2026-11-01T01:30"),
    ],
)
def test_the_hour_that_is_missing_and_the_one_that_comes_twice(
    zone: str, missing: str, change: str, twice: str
) -> None:
    def mb_at(one: LimitSchedule, wall: str, fold: int = 0, plus: float = 0.0) -> float:
        policy = Policy("a/b", "uid", limits=DAY, schedules=(one,))
        found = in_force(policy, TIERS, at(wall, zone, fold) + plus)
        return (found.limits.everywhere.egress or 0) / MB

    begins = schedule(missing[11:], "06:00", 40, zone=zone)
    assert [mb_at(begins, change, plus=plus) for plus in (-1.0, 0.0)] == [100, 40]
    ends = schedule("22:00", missing[11:], 40, zone=zone)
    assert [mb_at(ends, change, plus=plus) for plus in (-1.0, 0.0)] == [40, 100]
    begins = schedule(twice[11:], "06:00", 40, zone=zone)
    assert [mb_at(begins, twice, plus=plus) for plus in (-1.0, 0.0)] == [100, 40]
    assert mb_at(begins, twice, fold=1) == 40
    ends = schedule("22:00", twice[11:], 40, zone=zone)
    assert mb_at(ends, twice) == 40
    assert [mb_at(ends, twice, fold=1, plus=plus) for plus in (-1.0, 0.0)] == [40, 100]


def test_of_several_the_first_that_matches_counts() -> None:
    weekend = schedule("00:00", "00:00", 60, days="Sat Sun")
    found = now("2026-11-28T23:00", weekend, NIGHT)
    assert (egress_mb(found), found.schedule) == ((60, 40), 0)
    # both schedules meet: Sunday's ends, and the night that began on Sunday goes on
    assert (found.until_seconds, found.next_schedule) == (at("2026-11-30T00:00"), 1)
    assert egress_mb(now("2026-11-28T23:00", NIGHT, weekend)) == (40, 60)


def test_one_that_is_always_in_force_has_no_end() -> None:
    found = now("2026-11-30T12:00", schedule("00:00", "00:00", 60))
    assert (egress_mb(found), found.until_seconds, found.due_seconds) == ((60, None), None, None)


LEAD = lead_seconds(0.2, 12, ThrottleSettings())


def test_a_lower_limit_counts_so_early_that_the_deepest_cut_can_be_done() -> None:
    early = replace(NIGHT, is_ready_before=True)
    boundary = at("2026-11-30T22:00")
    policy = Policy("a/b", "uid", limits=DAY, schedules=(early,))
    assert LEAD > 60
    for before, mb, due in (
        (LEAD + 1, 100, boundary - LEAD),
        (LEAD, 40, boundary),
        (1, 40, boundary),
    ):
        found = limits_now(policy, TIERS, boundary - before)
        assert found is not None
        assert (egress_mb(found), found.schedule) == ((mb, 40), None)
        assert found.due_seconds == due


def test_no_tier_that_can_be_throttled_needs_no_time() -> None:
    early = replace(NIGHT, is_ready_before=True)
    vital = tuple(replace(one, level=Level.L0) for one in TIERS)
    for tiers in ((), vital):
        found = now("2026-11-30T21:59:48", early, tiers=tiers)  # the spread of writes, 11 s
        assert egress_mb(found) == (100, 40)


def test_a_higher_limit_ahead_counts_from_its_time_on() -> None:
    night = schedule("22:00", "06:00", 150, before=True)
    assert egress_mb(now("2026-11-30T21:59:59", night)) == (100, 150)
    # its end lowers the limit, and it says that this is made ready for
    assert egress_mb(now("2026-12-01T05:59:30", night)) == (100, 100)
    assert egress_mb(now("2026-12-01T05:00", night)) == (150, 100)
    assert egress_mb(now("2026-12-01T05:59:30", replace(night, is_ready_before=False))) == (
        150,
        100,
    )


def test_a_short_time_of_a_higher_limit_does_not_hide_a_lower_one_behind_it() -> None:
    short = schedule("21:59", "22:00", 150)
    early = replace(NIGHT, is_ready_before=True)
    found = now("2026-11-30T21:58:30", short, early)
    assert (egress_mb(found), found.next_schedule) == ((40, 150), 0)
    assert egress_mb(now("2026-11-30T21:59:30", short, early)) == (40, 40)


def test_a_direction_without_a_limit_gets_the_one_ahead() -> None:
    unlimited = BrokerLimits(BrokerLimit(None, 90 * MB, 250 * MB))
    policy = Policy(
        "a/b", "uid", limits=unlimited, schedules=(replace(NIGHT, is_ready_before=True),)
    )
    found = in_force(policy, TIERS, at("2026-11-30T21:59:30")).limits.everywhere
    assert found == BrokerLimit(40 * MB, 90 * MB, 250 * MB)


def test_both_directions_as_one_have_schedules_too() -> None:
    combined = BrokerLimits(BrokerLimit(combined=100 * MB, combined_capacity=300 * MB))
    night = LimitSchedule(
        NIGHT.recurrence,
        BrokerLimits(BrokerLimit(combined=40 * MB, combined_capacity=300 * MB)),
        True,
    )
    policy = Policy("a/b", "uid", limits=combined, schedules=(night,))
    for wall, mb in (
        ("2026-11-30T21:00", 100),
        ("2026-11-30T21:59:30", 40),
        ("2026-11-30T23:00", 40),
    ):
        found = in_force(policy, TIERS, at(wall)).limits.everywhere
        assert found == BrokerLimit(combined=mb * MB, combined_capacity=300 * MB)


schedules = st.lists(
    st.builds(
        LimitSchedule,
        st.builds(
            Recurrence,
            st.frozensets(st.integers(0, 6), min_size=1),
            st.integers(0, 1439),
            st.integers(0, 1439),
            st.sampled_from((BERLIN, NEW_YORK)),
        ),
        st.integers(1, 300).map(lambda mb: limits(mb * MB)),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
moments = st.integers(0, 60 * 24 * 400).map(lambda minute: at("2026-01-01T00:00") + 60.0 * minute)


@given(schedules, moments)
def test_nothing_changes_before_it_is_due_and_it_is_resolved_from_any_time(
    many: tuple[LimitSchedule, ...], at_seconds: float
) -> None:
    policy = Policy("a/b", "uid", limits=DAY, schedules=many)
    found = limits_now(policy, TIERS, at_seconds)
    assert found is not None
    due = found.due_seconds
    if due is not None:
        assert due > at_seconds
        just_before = limits_now(policy, TIERS, due - 0.5)
        assert just_before is not None
        assert just_before.limits == found.limits
    here = in_force(policy, TIERS, at_seconds)
    assert here.usual_limits == DAY
    elsewhere = in_force(policy, TIERS, at_seconds + 1e6)
    assert in_force(elsewhere, TIERS, at_seconds) == here
    first = next((one for one in many if one.recurrence.window_at(at_seconds)), None)
    declared = DAY if first is None else first.limits
    assert (here.limits.everywhere.egress or 0) <= (declared.everywhere.egress or 0)
    if not any(one.is_ready_before for one in many):
        assert here.limits == declared
