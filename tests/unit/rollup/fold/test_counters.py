"""Counters are exact: whatever grew between the first and the last sample is in some window, once,
to the byte.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.fold.broker_history import START_MS, counter, series, windows
from tidegate.rollup.fold.counters import (
    Samples,
    Whole,
    growth,
    spread,
    whole_counts,
)
from tidegate.rollup.fold.windows import WINDOW_MS

WIDE = windows(24, first=-12)
gaps_ms = st.integers(1, 900_000)
counts = st.integers(0, 5 * 10**11)  # more within a moment is no growth


def bytes_by_window(times_ms: Whole, counts: Whole, edges_ms: Whole) -> Whole:
    unknown = np.full(len(times_ms), -1, np.int64)
    grown = growth(Samples(times_ms, counts, unknown))
    return spread(grown.times_ms, grown.amounts, edges_ms)


def in_windows(samples: dict[float, float], count: int = 1) -> list[int]:
    return bytes_by_window(
        *whole_counts(series({}, samples), 15_000), windows(count).edges_ms
    ).tolist()


def grown(values: list[int]) -> int:
    return sum(now - before if now >= before else now for before, now in pairwise(values))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(gaps_ms, counts), min_size=1, max_size=40), st.integers(0, 3_000_000))
def test_windows_add_up_to_last_less_first_and_resets(
    samples: list[tuple[int, int]], begins_ms: int
) -> None:
    times = START_MS - begins_ms + np.cumsum([gap for gap, _ in samples])
    values = np.array([value for _, value in samples], np.int64)
    last = times[-1] + WINDOW_MS
    edges = np.arange(START_MS - 12 * WINDOW_MS, last - last % WINDOW_MS + 1, WINDOW_MS)
    assert bytes_by_window(times, values, edges).sum() == grown(values.tolist())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(gaps_ms, st.integers(0, 2**62 // 40)), min_size=1, max_size=40),
    st.sets(st.integers(0, 10**7), min_size=2),
)
def test_an_edge_more_moves_no_byte(amounts: list[tuple[int, int]], cuts: set[int]) -> None:
    times = np.cumsum([0, *(gap for gap, _ in amounts)])
    sizes, edges = np.array([amount for _, amount in amounts]), np.array(sorted(cuts))
    whole = spread(times, sizes, edges[[0, -1]])
    parts = spread(times, sizes, edges)
    assert parts.sum() == whole[0]
    assert (parts >= 0).all()


def test_bytes_between_two_scrapes_are_shared_out_by_time() -> None:
    assert in_windows({-10.0: 0.0, 5.0: 1500.0, 299.0: 1500.0}) == [500]


def test_shares_are_whole_and_rounded_by_what_has_come() -> None:
    assert in_windows({0.0: 0.0, 900.0: 100.0}, 3) == [33, 33, 34]


def test_after_a_restart_a_counter_grew_by_what_it_shows() -> None:
    assert in_windows({0.0: 1000.0, 15.0: 1500.0, 30.0: 200.0, 45.0: 300.0}) == [500 + 200 + 100]


def test_bytes_before_the_first_sample_are_left_out() -> None:
    assert in_windows({100.0: 7e12, 115.0: 7e12 + 8}) == [8]


def test_a_gap_of_up_to_an_hour_is_bridged() -> None:
    assert in_windows({0.0: 0.0, 3600.0: 12_000.0}, 12) == [1000] * 12


def test_bytes_of_a_longer_gap_are_left_out() -> None:
    assert in_windows({0.0: 0.0, 15.0: 5.0, 3616.0: 9e9, 3631.0: 9e9 + 7}, 13) == [
        5,
        *([0] * 11),
        7,
    ]


def test_a_small_fall_within_a_second_is_two_clocks_and_no_restart() -> None:
    assert in_windows({0.0: 1e12, 15.0: 1e12 + 1000, 15.02: 1e12 + 990, 30.0: 1e12 + 2000}) == [
        2000
    ]


def test_what_is_no_number_of_bytes_is_passed_over() -> None:
    assert in_windows({0.0: 10.0, 15.0: -3.0, 30.0: 1e300, 45.0: 25.0}) == [15]


@pytest.mark.parametrize("samples", [{}, {20.0: 5.0}])
def test_one_sample_says_nothing(samples: dict[float, float]) -> None:
    assert in_windows(samples) == [0]


def test_counts_beyond_all_nics_do_not_overflow() -> None:
    assert in_windows({-3000.0: 0.0, 600.0: 3.6e14}) == [30_000_000_000_000]


def test_a_steady_counter_is_exact_to_the_byte() -> None:
    assert in_windows(counter(1_000_003, until=900), 2) == [300_000_900, 300_000_900]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(gaps_ms, st.integers(0, 2**53)), min_size=1, max_size=40),
    st.sampled_from([1e6, 1.25e9, 1e11]),
)
def test_growth_never_exceeds_what_the_nic_carries(
    samples: list[tuple[int, int]], most: float
) -> None:
    times = START_MS + np.cumsum([gap for gap, _ in samples])
    values = np.array([value for _, value in samples], np.int64)
    found = growth(Samples(times, values, np.full(len(times), -1, np.int64)), most=most)
    assert found.amounts.sum() <= most * (np.diff(times) / 1000 + 5).sum()
    assert (found.amounts >= 0).all()
    assert (found.known_ms <= np.diff(found.times_ms)).all()
