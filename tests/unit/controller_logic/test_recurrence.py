"""Times that come back every week, by the clock of a time zone."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.recurrence import Recurrence, Window

EVERY_DAY = frozenset(range(7))
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")


def at(wall: str, zone: str = "Europe/Berlin", fold: int = 0) -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def minutes(clock: str) -> int:
    hours, rest = clock.split(":")
    return 60 * int(hours) + int(rest)


def recurrence(
    begin: str, end: str, days: frozenset[int] = EVERY_DAY, zone: str = "Europe/Berlin"
) -> Recurrence:
    return Recurrence(days, minutes(begin), minutes(end), zone)


def begun(one: Recurrence, wall: str) -> Window:
    """The window that begins on the day of this time."""
    return next(one.windows(at(f"{wall[:10]}T00:00", one.zone), at(wall, one.zone)))


def test_a_window_across_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    fridays = recurrence("22:00", "06:00", frozenset({4}))  # 2026-07-31 is a Friday
    night = Window(at("2026-07-31T22:00"), at("2026-08-01T06:00"))
    assert fridays.window_at(at("2026-07-31T21:59:59")) is None
    assert fridays.window_at(at("2026-07-31T22:00")) == night
    assert fridays.window_at(at("2026-08-01T05:59:59")) == night
    assert fridays.window_at(at("2026-08-01T06:00")) is None
    assert fridays.window_at(at("2026-08-01T22:30")) is None  # a Saturday
    assert fridays.next_window(at("2026-07-31T22:00")).begin_seconds == at("2026-08-07T22:00")


def test_an_end_that_is_the_beginning_is_a_whole_day() -> None:
    day = recurrence("06:00", "06:00", frozenset({0}))
    assert day.window_at(at("2026-07-28T05:59")) == Window(
        at("2026-07-27T06:00"), at("2026-07-28T06:00")
    )


@pytest.mark.parametrize(
    ("zone", "skipped", "change"),
    [
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T03:00"),
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T03:00"),
    ],
)
def test_a_time_that_clocks_skip_is_the_moment_of_the_change(
    zone: str, skipped: str, change: str
) -> None:
    day = skipped[:10]
    begins_there = recurrence("02:30", "06:00", zone=zone)
    window = begins_there.window_at(at(f"{day}T05:00", zone))
    assert window == Window(at(change, zone), at(f"{day}T06:00", zone))
    ends_there = recurrence("22:00", "02:30", zone=zone)
    window = ends_there.window_at(at(f"{day}T01:00", zone))
    assert window is not None
    assert window.end_seconds == at(change, zone)
    assert window.end_seconds - window.begin_seconds == 4 * 3600
    inside = recurrence("02:15", "02:45", zone=zone)
    assert inside.window_at(at(change, zone)) is None
    following = datetime.fromisoformat(f"{day}T02:15") + timedelta(days=1)
    assert inside.next_window(at(f"{day}T00:00", zone)).begin_seconds == at(
        following.isoformat(), zone
    )


@pytest.mark.parametrize(
    ("zone", "day"), [("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-11-01")]
)
def test_of_a_time_that_comes_twice_the_first_begins_and_the_second_ends(
    zone: str, day: str
) -> None:
    twice = "02" if zone == "Europe/Berlin" else "01"
    begin = recurrence(f"{twice}:30", "06:00", zone=zone)
    window = begin.window_at(at(f"{day}T05:00", zone))
    assert window == Window(at(f"{day}T{twice}:30", zone), at(f"{day}T06:00", zone))
    end = recurrence("22:00", f"{twice}:30", zone=zone)
    window = end.window_at(at(f"{day}T00:30", zone))
    assert window is not None
    assert window.end_seconds == at(f"{day}T{twice}:30", zone, fold=1)
    assert window.end_seconds == at(f"{day}T{twice}:30", zone) + 3600


def test_what_is_no_recurrence_is_refused_with_what_is_wrong() -> None:
    for days, begin, zone, problem in (
        (frozenset[int](), 0, "UTC", "no days"),
        (frozenset({7}), 0, "UTC", "no days"),
        (EVERY_DAY, 1440, "UTC", "no minutes"),
        (EVERY_DAY, 0, "Europe/Nowhere", "'Europe/Nowhere' is no time zone"),
        (EVERY_DAY, 0, "Europe", "'Europe' is no time zone"),
        (EVERY_DAY, 0, "../etc/passwd", "is no time zone"),
    ):
        with pytest.raises(ValueError, match=problem):
            Recurrence(days, begin, 60, zone)


@st.composite
def recurrences(draw: st.DrawFn) -> Recurrence:
    days = draw(st.frozensets(st.integers(0, 6), min_size=1))
    begin, end = draw(st.integers(0, 1439)), draw(st.integers(0, 1439))
    return Recurrence(days, begin, end, draw(st.sampled_from(ZONES)))


# whole minutes of 2026, with all changes of clocks in it
moments = st.integers(at("2026-01-01T00:00", "UTC") // 60, at("2027-01-01T00:00", "UTC") // 60).map(
    lambda minute: float(60 * minute)
)


def shows(one: Recurrence, at_seconds: float) -> bool:
    """Whether a clock on the wall shows a declared time."""
    wall = datetime.fromtimestamp(at_seconds, ZoneInfo(one.zone))
    minute, day = 60 * wall.hour + wall.minute, wall.weekday()
    if one.begin_minutes < one.end_minutes:
        return day in one.days and one.begin_minutes <= minute < one.end_minutes
    return (day in one.days and minute >= one.begin_minutes) or (
        (day - 1) % 7 in one.days and minute < one.end_minutes
    )


@given(recurrences(), moments)
def test_whenever_a_clock_shows_a_declared_time_a_window_has_it(
    one: Recurrence, at_seconds: float
) -> None:
    window = one.window_at(at_seconds)
    if shows(one, at_seconds):
        assert window is not None
    elif window is not None:  # only within the hour that comes twice
        assert any(shows(one, at_seconds + shift * 60) for shift in (-60, -30, 30, 60))
    if window is not None:
        assert window.has(at_seconds)
        assert window.end_seconds - window.begin_seconds <= 25 * 3600


@given(recurrences(), moments)
def test_windows_are_in_order_and_none_is_left_out(one: Recurrence, at_seconds: float) -> None:
    following = one.next_window(at_seconds)
    assert at_seconds < following.begin_seconds <= at_seconds + 15 * 86_400
    until = following.begin_seconds + 14 * 86_400
    found = list(one.windows(at_seconds, until))
    assert found == sorted(found)
    begins = [window.begin_seconds for window in found if window.begin_seconds > at_seconds]
    assert begins[0] == following.begin_seconds
    assert len(begins) >= 2 * len(one.days) - 1
