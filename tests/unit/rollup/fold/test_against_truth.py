"""The fold against a broker whose every byte is known; docs/usage.md states these errors."""

from functools import cache

import numpy as np
import pytest

from bench.rollup.synthetic import MadeDirection, made_direction
from tests.unit.rollup.fold.broker_history import windows
from tidegate.rollup.fold.broker import DirectionFold, DirectionTerms, fold_direction

HOUR = windows(12)


@cache
def played(offset_ms: int) -> tuple[MadeDirection, DirectionFold]:
    made = made_direction(HOUR, 100, number=1, offset_ms=offset_ms)
    return made, fold_direction(
        made.samples, HOUR, DirectionTerms(contracts=made.contracts), interval_ms=15_000
    )


def off_percent(offset_ms: int, *, throttled: bool) -> np.ndarray:
    """By how much the hour of each client was missed."""
    made, fold = played(offset_ms)
    true, estimated = made.bytes_of_clients.sum(axis=1), fold.traffic.bytes_of_clients.sum(axis=1)
    return (100 * (estimated - true) / true)[made.throttled == throttled]


def test_with_a_scrape_on_each_edge_every_window_is_exact_to_the_byte() -> None:
    made, fold = played(0)
    assert fold.traffic.client_bytes.tolist() == made.bytes_of_clients.sum(axis=0).tolist()


def test_without_one_only_what_moved_between_two_scrapes_can_change_sides() -> None:
    made, fold = played(7_350)
    off = np.cumsum(fold.traffic.client_bytes - made.bytes_of_clients.sum(axis=0))
    assert np.abs(off).max() < 0.02 * made.bytes_of_clients.sum(axis=0).min()


@pytest.mark.parametrize("offset_ms", [0, 7_350])
def test_an_hour_of_each_client_comes_near_the_truth(offset_ms: int) -> None:
    free, throttled = (
        off_percent(offset_ms, throttled=False),
        off_percent(offset_ms, throttled=True),
    )
    assert np.abs(free).max() < 4
    assert np.abs(throttled).max() < 5


def test_a_client_that_is_throttled_at_its_contract_is_not_over_it() -> None:
    made, fold = played(0)
    assert fold.gauges.throttled_ms[made.throttled].min() == 300_000
    assert fold.gauges.over_contract_ms.max() == 0
