"""A run from which the machine's host took much is made again, and said to be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.results import Figure, Measured, quiet
from lab.load import ProcessorTimes
from tests.goldens.golden import numbers


def of_shares(stolen_percents: Iterable[int]) -> list[ProcessorTimes]:
    """What is read before and after each run, of 100 ticks each."""
    moments = []
    for number, stolen in enumerate(stolen_percents):
        moments += [ProcessorTimes(100 * number, 0, 0), ProcessorTimes(100 * number + 100, 0, stolen)]
    return moments


@pytest.mark.parametrize(
    ("stolen_percents", "value", "amounts"),
    [
        ([5], 1, {5}),
        ([40, 12, 0], 2, {12, 1}),
        ([40, 30, 20, 50, 0], 3, {20, 3}),
    ],
)
def test_the_first_quiet_run_counts_or_the_quietest_of_four(
    stolen_percents: list[int], value: int, amounts: set[float], golden: Callable[[str], None]
) -> None:
    runs, moments, kept = iter(range(1, 9)), iter(of_shares(stolen_percents)), list[int]()

    def measure() -> Measured:
        number = next(runs)
        return Measured([Figure("silence", number, "s", None, "of one")], keep=lambda: kept.append(number))

    figures = quiet(measure, times=lambda: next(moments))
    assert [(figure.value, numbers(figure.note)) for figure in figures] == [(value, amounts)]
    assert kept == [value]
    golden(figures[0].note)
