"""What the clients of a broker were promised, at the times of their samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.course import Course, Rate
from tidegate.rollup.fold.gauges import Client, Gauges
from tidegate.rollup.fold.scrape_grid import ScrapeGrid

Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Contracts:
    """By number of the client: its contract in bytes/s, infinite without one; those that changed are in `changing`."""

    usual: Rates
    changing: Mapping[int, Course] = field(default_factory=dict)

    @classmethod
    def of(cls, clients: Sequence[Client], promised: Mapping[Client, Rate]) -> "Contracts":
        told = [promised.get(client, np.inf) for client in clients]
        usual = [np.inf if isinstance(rate, Course) else rate for rate in told]
        return cls(np.array(usual, np.float64), {number: rate for number, rate in enumerate(told) if isinstance(rate, Course)})

    def __len__(self) -> int:
        return len(self.usual)

    def at(self, samples: Gauges, grid: ScrapeGrid) -> Rates:
        """The contract that was in force at each sample."""
        found = self.usual[samples.client]
        for client, course in self.changing.items():
            own = slice(*np.searchsorted(samples.client, [client, client + 1]))
            found[own] = course.at(grid.times_ms[samples.scrape[own]])
        return found
