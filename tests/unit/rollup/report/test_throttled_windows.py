"""Who has no audit trail learns of episodes from the tier tables, and is told where they know nothing either."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.rollup.report.small_request import START_MS, small_request, terms
from tidegate.rollup.report.figures import ReportFigures, ThrottledWindow
from tidegate.rollup.report.gathering import figures_of
from tidegate.rollup.report.page import page_html
from tidegate.rollup.schemas import HOUR_MS

AT_CONTRACT: Mapping[str, object] = {"tier": "t", "seconds_contract": 3600.0}
HELD: Mapping[str, object] = {
    "tier": "t",
    "window_start": START_MS + HOUR_MS,
    "throttle_episodes": 2,
    "seconds_contract": 3000.0,
    "seconds_throttled": 480.0,
    "seconds_relaxing": 120.0,
}


def figures(*tiers: Mapping[str, object], **more: object) -> ReportFigures:
    return figures_of(small_request([{"user": "u", "tier": "t", "bytes": 1}], tiers=tiers, members=[terms("u")], **more))


def test_a_window_with_time_below_the_contract_is_a_line() -> None:
    [window] = figures(AT_CONTRACT, HELD).throttled_windows
    assert window == ThrottledWindow("2026-11-20T01:00:00Z", 3600.0, "t", "L1", "fetch", 2, 480.0, 120.0)


@pytest.mark.parametrize(
    ("tiers", "told"),
    [
        ((HELD,), "By the operator's metrics, a window at a time"),
        ((AT_CONTRACT,), "By the operator's metrics no quota was below its contract"),
        (({"tier": "t"},), "the tables tell no states of tiers"),
        ((), "the tables tell no states of tiers"),
    ],
)
def test_without_a_trail_the_page_says_what_the_tables_know(tiers: tuple[Mapping[str, object], ...], told: str) -> None:
    assert told.replace("'", "&#x27;") in page_html(figures(*tiers))


def test_with_a_trail_the_trail_speaks() -> None:
    assert "By the audit trail no quota was below its contract" in page_html(figures(HELD, trail=()))
