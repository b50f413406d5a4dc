"""Which hours a Job computes for its window: all that it touches, what came late, and never less
than is over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tidegate.errors import InvalidResource
from tidegate.rollup.job import SETTLE_MS, run_span
from tidegate.rollup.schemas import DAY_MS, HOUR_MS

NOON = 1_795_219_200_000 + 12 * HOUR_MS
MINUTE = 60_000


@pytest.mark.parametrize(
    ("start", "end", "now", "span"),
    [
        (0, 60, 63, (-120, 60)),  # an hour, as soon as it is due
        (0, 60, 200, (-120, 60)),
        (0, 15, 18, (-120, 15)),  # a quarter: its hour as far as it is over
        (15, 30, 33, (-120, 30)),
        (45, 60, 63, (-120, 60)),
        (0, 15, 49, (-120, 45)),  # late: the hour keeps what later windows put there
        (0, 15, 500, (-120, 60)),
        (0, 360, 363, (-120, 360)),
        (55, 65, 68, (-120, 65)),
        (0, 60, 23 * 60, (-120, 60)),
        (0, 60, 25 * 60, (0, 60)),  # nothing comes a day late
    ],
)
def test_a_run_has_whole_hours_around_its_window_and_the_two_before(
    start: int, end: int, now: int, span: tuple[int, int]
) -> None:
    found = run_span(NOON + start * MINUTE, NOON + end * MINUTE, now_ms=NOON + now * MINUTE)
    assert tuple((edge - NOON) // MINUTE for edge in found) == span


@pytest.mark.parametrize("now", [NOON + HOUR_MS + SETTLE_MS, NOON + 2 * DAY_MS])
@pytest.mark.parametrize(
    ("start", "end"),
    [(NOON, NOON), (NOON + 1, NOON + HOUR_MS), (NOON, NOON + 100_000), (NOON + HOUR_MS, NOON)],
)
def test_what_is_no_window_of_whole_five_minutes_is_refused(start: int, end: int, now: int) -> None:
    with pytest.raises(InvalidResource):
        run_span(start, end, now_ms=now)


def test_a_window_that_is_not_over_is_refused(golden: Callable[[str], None]) -> None:
    with pytest.raises(InvalidResource) as refused:
        run_span(NOON, NOON + HOUR_MS, now_ms=NOON + HOUR_MS - MINUTE)
    assert 60 in numbers(str(refused.value))
    golden(str(refused.value))
