"""Samples of clients -> one cell for each client and window, without a loop over samples or series."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.gauges import Gauges
from tidegate.rollup.fold.scrape_grid import ScrapeGrid

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class WindowCells:
    """Gauges with the cell that each of their samples falls into. Answers have one row for each of `clients`, one column a window.

    A sample falls into the window in whose course, or at whose end, it was taken. `starts` are the places of each cell's first sample.
    """

    gauges: Gauges
    grid: ScrapeGrid
    clients: int
    cells: Whole
    starts: Whole

    @classmethod
    def of(cls, gauges: Gauges, grid: ScrapeGrid, clients: int) -> "WindowCells":
        """Samples are in rising order of client and scrape, and so are their cells."""
        cells = gauges.client * np.int64(grid.columns) + grid.column[gauges.scrape]
        starts = np.flatnonzero(cells[1:] != cells[:-1]) + 1
        return cls(gauges, grid, clients, cells, np.append(0, starts) if len(cells) else starts)

    def integrals(self) -> Whole:
        """The sum of value times milliseconds; each product is rounded to a whole number, so that no order of adding shows."""
        found = np.zeros(self.clients * self.grid.columns, np.int64)
        if len(self.cells):
            values, held, since = self.gauges.values, self.gauges.held_ms, self.grid.since_edge_ms[self.gauges.scrape]
            found[self.cells[self.starts]] = np.add.reduceat(_whole(values, np.minimum(held, since)), self.starts)
            edge = np.flatnonzero(held > since)
            np.add.at(found, self.cells[edge] - 1, _whole(values[edge], held[edge] - since[edge]))
        return self._by_window(found)

    def peaks(self) -> Rates:
        """The highest value, 0 without one."""
        found = np.zeros(self.clients * self.grid.columns)
        if len(self.cells):
            found[self.cells[self.starts]] = np.maximum.reduceat(self.gauges.values, self.starts)
        return self._by_window(found)

    def samples(self) -> Whole:
        """How many samples there are."""
        found = np.zeros(self.clients * self.grid.columns, np.int64)
        found[self.cells[self.starts]] = np.diff(np.append(self.starts, len(self.cells)))
        return self._by_window(found)

    def _by_window(self, found: NDArray[_Number]) -> NDArray[_Number]:
        return found.reshape(self.clients, self.grid.columns)[:, 1:-1]


def _whole(values: Rates, milliseconds: Whole) -> Whole:
    return np.rint(values * milliseconds).astype(np.int64)
