"""A run owns whole windows and reads as much around them as their edges need."""

from collections.abc import Callable

import pytest

from tests.unit.rollup.fold.broker_history import START_MS, windows
from tidegate.rollup.fold.windows import Windows, reading_of


@pytest.mark.parametrize(
    ("start_ms", "end_ms"), [(1, 300_000), (0, 299_999), (300_000, 300_000), (600_000, 300_000)]
)
def test_a_run_owns_whole_windows_only(start_ms: int, end_ms: int) -> None:
    with pytest.raises(ValueError):
        Windows(start_ms, end_ms)


def test_gauges_are_read_five_intervals_around_and_counters_an_hour_and_five_minutes() -> None:
    reading = reading_of(windows(12), interval_ms=15_000)
    assert reading.gauges == (START_MS - 75_000, START_MS + 3_675_000)
    assert reading.counters == (START_MS - 3_900_000, START_MS + 7_500_000)


def test_no_sample_stands_for_more_than_a_window() -> None:
    assert reading_of(windows(1), interval_ms=120_000).gauges == (
        START_MS - 300_000,
        START_MS + 600_000,
    )


@pytest.mark.parametrize("interval_ms", [0, -15_000, 300_001])
def test_an_interval_that_no_window_holds_is_refused(interval_ms: int) -> None:
    with pytest.raises(ValueError):
        reading_of(windows(1), interval_ms)


def test_what_is_refused_reads_like_this(golden: Callable[..., None]) -> None:
    with pytest.raises(ValueError) as refused:
        Windows(1, 300_000)
    golden(str(refused.value), "windows")
    with pytest.raises(ValueError) as refused:
        reading_of(windows(1), 300_001)
    golden(str(refused.value), "interval")
