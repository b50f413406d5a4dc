"""A rate that changes now and then: a contract that was edited, or whose leaders moved, and a limit that was raised."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Course:
    """Bytes/s that hold from each of `from_ms` on, which rise; infinite = none. Before the first it is what the first says."""

    from_ms: tuple[int, ...]
    rates: tuple[float, ...]

    @classmethod
    def of(cls, times_ms: Whole, rates: Rates) -> Self:
        """What samples tell, which must be one at least; only changes are kept."""
        kept = np.flatnonzero(np.append(True, rates[1:] != rates[:-1]))
        return cls(tuple(times_ms[kept].tolist()), tuple(rates[kept].tolist()))

    def at(self, times_ms: Whole) -> Rates:
        """The rate at each of these times."""
        places = np.searchsorted(np.array(self.from_ms, np.int64), times_ms, side="right") - 1
        return np.array(self.rates, np.float64)[np.maximum(places, 0)]


Rate = float | Course


def rates_at(rate: Rate | None, times_ms: Whole) -> Rates:
    """The same of a rate that may never change; None = none."""
    if isinstance(rate, Course):
        return rate.at(times_ms)
    return np.full(len(times_ms), np.inf if rate is None else rate, np.float64)
