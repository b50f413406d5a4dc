"""Scrapes cover the time since the one before, except over gaps."""

import numpy as np
import pytest

from tests.unit.rollup.fold.broker_history import START_MS, windows
from tidegate.rollup.fold.windows import ScrapeGrid, scrape_grid, scrape_times


def grid(*seconds: float, number: int = 2) -> ScrapeGrid:
    return scrape_grid(
        np.array([START_MS + round(at * 1000) for at in seconds], np.int64), windows(number), 15_000
    )


def test_regular_scrapes_cover_everything() -> None:
    assert grid(*np.arange(-30, 700, 15) + 4).covered_ms().tolist() == [300_000, 300_000]


def test_a_scrape_at_an_edge_belongs_to_the_window_that_ends() -> None:
    at_edge = grid(285, 300)
    assert (at_edge.column.tolist(), at_edge.since_edge_ms.tolist()) == ([1, 1], [285_000, 300_000])


def test_a_scrape_past_an_edge_stands_for_a_part_of_both_windows() -> None:
    past = grid(290, 305)
    assert (past.column.tolist(), past.since_edge_ms.tolist()) == ([1, 2], [290_000, 5_000])
    assert past.covered_ms().tolist() == [25_000, 5_000]


@pytest.mark.parametrize(("gap", "covered_ms"), [(75, 90_000), (76, 30_000)])
def test_a_gap_of_more_than_five_intervals_is_not_covered(gap: float, covered_ms: int) -> None:
    assert grid(100, 100 + gap).covered_ms().tolist() == [covered_ms, 0]


def test_what_lies_outside_covers_nothing() -> None:
    assert grid(-900, -885, -870, 1500, 1515).covered_ms().tolist() == [0, 0]


def test_the_first_scrape_after_the_end_covers_the_end() -> None:
    assert grid(595, 610).covered_ms().tolist() == [0, 15_000 + 5_000]


def test_a_pair_of_servers_covers_time_once() -> None:
    assert grid(
        *sorted([*np.arange(-30, 700, 15), *np.arange(-23, 700, 15)])
    ).covered_ms().tolist() == [300_000, 300_000]


@pytest.mark.parametrize("copies", [1, 1000])
@pytest.mark.parametrize("shift_ms", [0, 10**9])
def test_times_of_all_series_are_known_once(shift_ms: int, copies: int) -> None:
    some, others = (
        np.array([START_MS, START_MS + 15_000]),
        np.array([START_MS + 7, START_MS + 15_000, START_MS + 20_000 + shift_ms]),
    )
    assert scrape_times([some, others, some] * copies).tolist() == [
        START_MS,
        START_MS + 7,
        START_MS + 15_000,
        START_MS + 20_000 + shift_ms,
    ]


def test_without_series_there_are_no_times() -> None:
    assert scrape_times([]).tolist() == []
