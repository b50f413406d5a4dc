"""What every way of reading Prometheus' history takes and gives, so that whoever folds samples need not know which way it was.

Times are whole milliseconds since the epoch; ranges are half-open, [start, end). Nothing here connects or decodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


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


class Asked(NamedTuple):
    """One thing to read: the samples in [start_ms, end_ms) of the series selected."""

    selection: Selection
    start_ms: int
    end_ms: int


class Transport(Protocol):
    """One way of reading history. `exact` says that values are the stored samples, with their own times."""

    name: str
    exact: bool

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """All samples in [start_ms, end_ms) of the series selected; raises tidegate.errors, never gives a part.

        Sorted by labels, so that the answer depends neither on the way nor on the server's order.
        """
        ...

    def read_all(self, asked: Sequence[Asked]) -> list[list[SeriesSamples]]:
        """What `read` gives for each of these, in their order."""
        ...

    def close(self) -> None:
        """Hang up; the next read connects anew."""
        ...
