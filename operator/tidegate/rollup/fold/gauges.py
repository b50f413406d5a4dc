"""Flat arrays of the samples of a broker's clients in one direction, in the order of client and time.

Clients are sorted by name, so no result depends on the order of series. Several series of one client (a pair of Prometheus servers, two
exporters) become one: at the same time the highest sample counts, at different times each sample covers its own part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.clients import entity_of
from tidegate.rollup.fold.windows import ScrapeGrid, sample_duration_ms
from tidegate.rollup.samples import SeriesSamples

_Places = NDArray[np.int64]
Client = tuple[str, str]  # user, client id; "" where Kafka reports none

MOST_BYTES_PER_SECOND: Final = 1e11  # a NIC of 800 Gbit/s; more is no measurement


@dataclass(frozen=True, slots=True, eq=False)
class Gauges:
    """Samples in rising order of `client` and `scrape`, which are numbers of a client and of a scrape in the grid.

    Each covers the `sample_duration_ms` before it.
    """

    client: NDArray[np.int32]
    scrape: NDArray[np.int64]
    sample_duration_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def client_of(series: SeriesSamples) -> Client | None:
    """Return the client in the labels of the series, None where they name none. The operator reads them the same way."""
    entity = entity_of(series.labels)
    if entity is None:
        return None
    user, client_id = entity.user, entity.client_id
    return (user if isinstance(user, str) else "", client_id if isinstance(client_id, str) else "")


def clients_of(series: Iterable[SeriesSamples]) -> tuple[Client, ...]:
    """Return all clients in the labels of these series, sorted."""
    return tuple(sorted({client for one in series if (client := client_of(one)) is not None}))


def gauges_of(series: Sequence[SeriesSamples], clients: Sequence[Client], grid: ScrapeGrid) -> Gauges:
    """Collect the samples of `clients`, without values that are no amounts and series without a client. All times must be in the grid."""
    numbers = {client: number for number, client in enumerate(clients)}
    numbered = [(numbers[client], one) for one in series if (client := client_of(one)) in numbers and len(one.times_ms)]
    numbered.sort(key=lambda each: each[0])
    if not numbered:
        return Gauges(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
    who = np.repeat(np.array([number for number, _ in numbered], np.int32), [len(one.times_ms) for _, one in numbered])
    scrape = np.searchsorted(grid.times_ms, np.concatenate([one.times_ms for _, one in numbered]))
    values = np.concatenate([one.values for _, one in numbered])
    kept = _amounts_once(who, scrape, values, several=len(numbered) > len({number for number, _ in numbered}))
    if kept is not None:
        who, scrape, values = who[kept], scrape[kept], values[kept]
    return Gauges(who, scrape, sample_duration_ms(who, scrape, grid), values)


def _amounts_once(client: NDArray[np.int32], scrape: NDArray[np.int64], values: NDArray[np.float64], *, several: bool) -> _Places | None:
    """Return the places of samples to keep: amounts, and the highest of several series of a client at one time. None = all of them."""
    amounts = (values >= 0) & (values <= MOST_BYTES_PER_SECOND)
    if not several:
        return None if amounts.all() else np.flatnonzero(amounts)
    order = np.lexsort((values, scrape, client))
    order = order[amounts[order]]
    another = (np.diff(client[order]) != 0) | (np.diff(scrape[order]) != 0)
    return order[np.append(another, True)] if len(order) else order


def part_of(gauges: Gauges, places: _Places) -> Gauges:
    """Return the samples at these places, each with the duration that it had."""
    return Gauges(gauges.client[places], gauges.scrape[places], gauges.sample_duration_ms[places], gauges.values[places])


Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class WindowCells:
    """Sums the samples of each client and window without a loop over samples. Results have one row for each client, one column a window.

    A sample belongs to the window in whose course, or at whose end, it was taken. `starts` are the places of each cell's first sample.
    """

    gauges: Gauges
    grid: ScrapeGrid
    clients: int
    cells: Whole
    starts: Whole

    @classmethod
    def of(cls, gauges: Gauges, grid: ScrapeGrid, clients: int) -> "WindowCells":
        """Assign samples to cells. They are in rising order of client and scrape, and so are their cells."""
        cells = gauges.client * np.int64(grid.columns) + grid.column[gauges.scrape]
        starts = np.flatnonzero(cells[1:] != cells[:-1]) + 1
        return cls(gauges, grid, clients, cells, np.append(0, starts) if len(cells) else starts)

    def integrals(self) -> Whole:
        """Return the sums of value times milliseconds. Each product is a whole number, so that the order of addition does not matter."""
        found = np.zeros(self.clients * self.grid.columns, np.int64)
        if len(self.cells):
            values, held, since = self.gauges.values, self.gauges.sample_duration_ms, self.grid.since_edge_ms[self.gauges.scrape]
            found[self.cells[self.starts]] = np.add.reduceat(_whole(values, np.minimum(held, since)), self.starts)
            edge = np.flatnonzero(held > since)
            np.add.at(found, self.cells[edge] - 1, _whole(values[edge], held[edge] - since[edge]))
        return self._by_window(found)

    def peaks(self) -> Rates:
        """Return the highest values, 0 without one."""
        found = np.zeros(self.clients * self.grid.columns)
        if len(self.cells):
            found[self.cells[self.starts]] = np.maximum.reduceat(self.gauges.values, self.starts)
        return self._by_window(found)

    def samples(self) -> Whole:
        """Return the numbers of samples."""
        found = np.zeros(self.clients * self.grid.columns, np.int64)
        found[self.cells[self.starts]] = np.diff(np.append(self.starts, len(self.cells)))
        return self._by_window(found)

    def _by_window(self, found: NDArray[_Number]) -> NDArray[_Number]:
        return found.reshape(self.clients, self.grid.columns)[:, 1:-1]


def _whole(values: Rates, milliseconds: Whole) -> Whole:
    return np.rint(values * milliseconds).astype(np.int64)
