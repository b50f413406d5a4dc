"""Measuring again where the host of this virtual machine gave its processors to others: such a run tells of the host."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.results import Figure
from lab.load import ProcessorShare, ProcessorTimes

_STOLEN_PERCENT = 12.0
_MOST_RUNS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run; `keep` writes down what they were taken from, and is called for the run that counts."""

    figures: list[Figure]
    keep: Callable[[], None]


def quiet(measure: Callable[[], Measured], *, times: Callable[[], ProcessorTimes] = ProcessorTimes.now) -> list[Figure]:
    """The figures of the first run from which the host took little; after four, those of the run from which it took least."""
    runs: list[tuple[float, Measured]] = []
    while len(runs) < _MOST_RUNS and not any(stolen <= _STOLEN_PERCENT for stolen, _ in runs):
        begun = times()
        measured = measure()
        runs.append((ProcessorShare.between(begun, times()).stolen_percent, measured))
    stolen, best = min(runs, key=lambda run: run[0])
    best.keep()
    left_out = f"; {len(runs) - 1} runs from which it took more are left out" if len(runs) > 1 else ""
    note = f"the host took {stolen:.0f} % of the processors{left_out}"
    return [replace(figure, note="; ".join(filter(None, [figure.note, note]))) for figure in best.figures]
