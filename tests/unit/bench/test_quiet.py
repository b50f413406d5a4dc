"""A run from which the machine's host took much is made again, and said to be left out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.results import Figure, Measured, quiet
from lab.load import ProcessorTimes


def of_shares(stolen_percents: Iterable[int]) -> list[ProcessorTimes]:
    """What is read before and after each run, of 100 ticks each."""
    moments = []
    for number, stolen in enumerate(stolen_percents):
        moments += [ProcessorTimes(100 * number, 0, 0), ProcessorTimes(100 * number + 100, 0, stolen)]
    return moments


@pytest.mark.parametrize(
    ("stolen_percents", "value", "note"),
    [
        ([5], 1, "of one; the host took 5 % of the processors"),
        ([40, 12, 0], 2, "of one; the host took 12 % of the processors; 1 runs from which it took more are left out"),
        ([40, 30, 20, 50, 0], 3, "of one; the host took 20 % of the processors; 3 runs from which it took more are left out"),
    ],
)
def test_the_first_quiet_run_counts_or_the_quietest_of_four(stolen_percents: list[int], value: int, note: str) -> None:
    numbers, moments, kept = iter(range(1, 9)), iter(of_shares(stolen_percents)), list[int]()

    def measure() -> Measured:
        number = next(numbers)
        return Measured([Figure("silence", number, "s", None, "of one")], keep=lambda: kept.append(number))

    figures = quiet(measure, times=lambda: next(moments))
    assert [(figure.value, figure.note) for figure in figures] == [(value, note)]
    assert kept == [value]
