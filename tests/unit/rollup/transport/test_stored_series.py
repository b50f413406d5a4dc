"""What came becomes the rows that every way gives alike: the range half-open, only numbers, each
time once, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.unit.rollup.transport.histories import STALE
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.transport.series import StoredSeries, in_range

Stored = Sequence[tuple[str, Sequence[tuple[int, float]]]]


def stored(*given: tuple[str, Sequence[tuple[int, float]]]) -> StoredSeries:
    flat = [sample for _, samples in given for sample in samples]
    counts = np.array([len(samples) for _, samples in given], np.int64)
    times_ms, values = (
        np.array([at for at, _ in flat], np.int64),
        np.array([value for _, value in flat], np.float64),
    )
    return StoredSeries([{"a": name} for name, _ in given], counts, times_ms, values)


def plain(found: list[SeriesSamples]) -> list[tuple[str, list[tuple[int, float]]]]:
    return [
        (one.labels["a"], list(zip(one.times_ms.tolist(), one.values.tolist(), strict=True)))
        for one in found
    ]


def test_the_start_belongs_to_the_range_and_the_end_does_not() -> None:
    assert plain(in_range(stored(("x", [(9, 1.0), (10, 2.0), (19, 3.0), (20, 4.0)])), 10, 20)) == [
        ("x", [(10, 2.0), (19, 3.0)])
    ]


def test_what_is_no_number_is_left_out_with_its_time() -> None:
    odd = [(1, float("nan")), (2, STALE), (3, float("inf")), (4, float("-inf")), (5, 7.0)]
    assert plain(in_range(stored(("x", odd)), 0, 10)) == [("x", [(5, 7.0)])]


def test_a_series_without_samples_in_the_range_is_left_out() -> None:
    assert plain(in_range(stored(("x", [(1, 1.0)]), ("y", [(50, 1.0)]), ("z", [])), 0, 10)) == [
        ("x", [(1, 1.0)])
    ]


def test_nothing_gives_nothing() -> None:
    assert in_range(stored(), 0, 10) == []


def test_pieces_of_a_series_are_joined_in_order_of_time() -> None:
    found = in_range(
        stored(("x", [(5, 5.0), (6, 6.0)]), ("y", [(1, 1.0)]), ("x", [(2, 2.0)])), 0, 10
    )
    assert plain(found) == [("x", [(2, 2.0), (5, 5.0), (6, 6.0)]), ("y", [(1, 1.0)])]


def test_of_two_samples_at_one_time_the_first_stays() -> None:
    assert plain(
        in_range(stored(("x", [(1, 1.0), (2, 2.0)]), ("x", [(2, 9.0), (3, 3.0)])), 0, 10)
    ) == [("x", [(1, 1.0), (2, 2.0), (3, 3.0)])]
