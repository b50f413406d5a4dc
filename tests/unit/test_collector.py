"""Garbage collection is rare but goes on: otherwise a loop of objects would fill the memory."""

import gc
from collections.abc import Iterator

import pytest

from tidegate.main import THRESHOLDS, tune_collector


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class _Ring:
    """Points at itself, so that only the collector can free it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        _Ring.alive += 1

    def __del__(self) -> None:
        _Ring.alive -= 1


def test_what_only_the_collector_can_free_is_freed() -> None:
    tune_collector()
    for _ in range(3 * THRESHOLDS[0]):
        _Ring()
    assert _Ring.alive < 2 * THRESHOLDS[0]
