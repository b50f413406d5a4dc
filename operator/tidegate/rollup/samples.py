"""Types for reading Prometheus' history, the same for every way of reading.

Times are whole milliseconds since the epoch. Ranges are half-open, [start, end). Nothing here connects or decodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Step(StrEnum):
    """Steps of a run whose progress is counted, as people read them."""

    INGESTED = "broker-hours read"
    PUBLISHED = "windows published"


class Progress(Protocol):
    """Receives the progress of a run. It is called from several threads, but never at once for the same step."""

    def __call__(self, step: Step, done: int, of: int, /) -> None:
        """`done` never falls and ends at `of`, which falls where less turns out to be there."""


def unwatched(_step: Step, _done: int, _of: int) -> None:
    """Drop the progress."""


class Count:
    """Counts one step and reports each change."""

    def __init__(self, progress: Progress, step: Step, of: int) -> None:
        self._progress = progress
        self._step = step
        self._of = of
        self._done = 0
        self._report()

    def done(self) -> None:
        """Count one more as done."""
        self._done += 1
        self._report()

    def left_out(self, count: int) -> None:
        """Take items that will not be done out of the total."""
        self._of -= count
        self._report()

    def _report(self) -> None:
        self._progress(self._step, self._done, self._of)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesSamples:
    """One series with the samples it has in the range that was asked; a series without any is not given at all.

    `labels` are without the metric's name (unless the selection gave none), without the labels of replicas and without external
    labels. `times_ms` rise strictly. `values` are finite: NaN, infinities and staleness markers are left out together with their times.
    """

    labels: Mapping[str, str]
    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series to read. An empty `metric` selects by labels alone, of which `__name__` may be one, and keeps `__name__` in the labels.

    `matching` and `excluding` hold regular expressions (RE2) for the whole value. A label that a series lacks has the empty value.
    """

    metric: str
    equal: Mapping[str, str] = field(default_factory=dict)
    matching: Mapping[str, str] = field(default_factory=dict)
    excluding: Mapping[str, str] = field(default_factory=dict)


class ReadRequest(NamedTuple):
    """One thing to read: the samples in [start_ms, end_ms) of the series selected."""

    selection: Selection
    start_ms: int
    end_ms: int


class Transport(Protocol):
    """One way of reading history. `exact` = values are the stored samples, with their own times."""

    name: str
    exact: bool

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """All samples in [start_ms, end_ms) of the series selected; raises tidegate.errors, never gives a part.

        Sorted by labels, so that the answer depends neither on the way nor on the server's order.
        """
        ...

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        """What `read` gives for each of these, in their order."""
        ...

    def close(self) -> None:
        """Hang up; the next read connects anew."""
        ...
