"""The scrape interval is the usual distance of samples."""

import pytest

from tests.unit.rollup.fold.broker_history import every, series
from tidegate.rollup.fold.windows import estimated_interval_ms


@pytest.mark.parametrize("seconds", [1, 5, 15, 30, 60])
def test_regular_scrapes_show_their_interval(seconds: int) -> None:
    assert estimated_interval_ms([series({}, every(seconds, 1.0))]) == seconds * 1000


def test_lost_and_late_scrapes_do_not_move_it() -> None:
    samples = {
        at + 0.04 * (at % 2): 1.0
        for at in every(15, 1.0, until=3000)
        if not 900 < at < 1500 and at % 105
    }
    assert estimated_interval_ms([series({}, samples)]) == 15_000


@pytest.mark.parametrize("found", [[], [series({}, {1.0: 2.0})]])
def test_without_two_samples_it_is_the_usual_one(found: list) -> None:
    assert estimated_interval_ms(found) == 15_000


def test_it_is_never_longer_than_a_window() -> None:
    assert estimated_interval_ms([series({}, {0.0: 1.0, 900.0: 1.0})]) == 300_000
