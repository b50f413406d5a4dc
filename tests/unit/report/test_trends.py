"""Changes against the period before, and days unlike the same weekday of earlier weeks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.report.small_request import START_MS, small_request, table, terms
from tidegate.report.compute import figures_of
from tidegate.report.figures import ReportFigures, UnusualDay
from tidegate.report.page import page_html
from tidegate.report.rate_card import GIB
from tidegate.report.request import UsageBefore, UsageDays
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, USAGE

BEFORE_MS = START_MS - 2 * HOUR_MS
WEEK_MS = 7 * DAY_MS


def compared(rows: Sequence[Mapping[str, object]], *, is_complete: bool) -> ReportFigures:
    before = UsageBefore(BEFORE_MS, START_MS, table(USAGE, rows), is_complete)
    used = [
        {"user": "a", "bytes": 150, "labels": '{"team":"shop"}'},
        {"user": "new", "bytes": 50},
    ]
    return figures_of(small_request(used, before=before, by_labels=("team",)))


def test_volumes_are_compared_with_the_period_before() -> None:
    rows = [{"user": "a", "bytes": 100, "labels": '{"team":"shop"}', "window_start": BEFORE_MS}]
    figures = compared(rows, is_complete=True)
    assert {one.member: one.change for one in figures.members} == {"user=a": 0.5, "user=new": None}
    assert figures.totals[0].change == 1.0
    assert {one.value: one.change for one in figures.labels} == {"shop": 0.5, "": None}


def test_a_period_before_that_is_not_whole_is_compared_with_nothing_and_that_is_said() -> None:
    figures = compared([{"user": "a", "bytes": 100}], is_complete=False)
    assert {one.change for one in (*figures.members, *figures.totals, *figures.labels)} == {None}
    assert "is not wholly in the tables" in page_html(figures)


def test_budgets_have_lines_without_being_asked_for_and_only_where_there_are_some() -> None:
    in_budget = '{"team":"shop","tidegate.io/budget":"search"}'
    used = [{"user": "a", "bytes": 150, "labels": in_budget}, {"user": "new", "bytes": 50}]
    figures = figures_of(small_request(used, by_labels=("team",)))
    assert [(one.label, one.value, one.bytes) for one in figures.labels] == [
        ("team", "shop", 150),
        ("team", "", 50),
        ("tidegate.io/budget", "search", 150),
        ("tidegate.io/budget", "", 50),
    ]
    assert "By team, budget</h2>" in page_html(figures)
    asked = figures_of(small_request(used, by_labels=("tidegate.io/budget",)))
    assert len(asked.labels) == 2
    assert figures_of(small_request([{"user": "new", "bytes": 50}])).labels == ()


def days(weeks: Sequence[int], today: int | None, **row: Any) -> tuple[UnusualDay, ...]:
    """The findings on a day with `today` GiB, the same weekday before it with those of `weeks`."""
    moved = {START_MS: today}
    moved |= {START_MS - WEEK_MS * back: count for back, count in enumerate(weeks, start=1)}
    rows = [
        {"user": "a", "tier": "t", "window_start": at, "bytes": count * GIB, **row}
        for at, count in moved.items()
        if count is not None
    ]
    published = frozenset(START_MS - DAY_MS * back for back in range(7 * len(weeks) + 1))
    request = small_request(
        [{"user": "a", "tier": "t", "bytes": 1}],
        end_ms=START_MS + DAY_MS,
        members=[terms("a", name="loads")],
        days=UsageDays(table(USAGE, rows), published),
    )
    return figures_of(request).unusual_days


def test_a_day_far_from_the_same_weekday_before_is_named_with_how_far() -> None:
    (found,) = days([100, 110, 90, 100], 180)
    assert (found.member, found.day, found.weekday) == ("loads", "2026-11-20T00:00:00Z", "Friday")
    assert (found.usual_bytes, found.bytes, found.weeks) == (100 * GIB, 180 * GIB, 4)
    assert found.score == pytest.approx(8.0)  # the deviation is a tenth of the mean


def test_a_day_on_which_a_member_moved_nothing_is_unusual_too() -> None:
    (found,) = days([100, 100, 100, 100], None)
    assert (found.bytes, found.score) == (0, pytest.approx(-10.0))


@pytest.mark.parametrize(
    ("weeks", "today"),
    [
        ([100, 110, 90, 100], 129),  # within three tenths of the mean
        ([100, 200, 50, 150], 290),  # the weeks themselves differ by as much
        ([100, 100, 100], 900),  # too few weeks
        ([0, 0, 0, 0], 0),
    ],
)
def test_an_ordinary_day_is_not_named(weeks: list[int], today: int) -> None:
    assert days(weeks, today) == ()


def test_other_weekdays_are_not_compared() -> None:
    busy = [
        {"user": "a", "window_start": START_MS - DAY_MS * back, "bytes": 1000 * GIB}
        for back in range(1, 28)
        if back % 7
    ]
    calm = [
        {"user": "a", "window_start": START_MS - WEEK_MS * back, "bytes": GIB} for back in range(5)
    ]
    published = frozenset(START_MS - DAY_MS * back for back in range(29))
    request = small_request(
        [{"user": "a", "bytes": 1}],
        end_ms=START_MS + DAY_MS,
        days=UsageDays(table(USAGE, [*busy, *calm]), published),
    )
    assert figures_of(request).unusual_days == ()


def test_without_weeks_of_days_the_page_says_that_none_was_compared() -> None:
    page = page_html(figures_of(small_request([{"user": "a", "bytes": 1}])))
    assert "no day was compared" in page
