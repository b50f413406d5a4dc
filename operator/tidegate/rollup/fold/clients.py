"""Sums, peaks and times above a threshold of each client in each window, from Kafka's gauges.

Sums are whole numbers, in thousandths of a byte (bytes per second times milliseconds) and in
milliseconds. So they do not depend on the order of addition or on how the range was cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.kafka_clients import EntityNames, entity_of
from tidegate.rollup.fold.windows import (
    Rate,
    ScrapeGrid,
    StepFunction,
    sample_duration_ms,
    scrapes_around,
)
from tidegate.rollup.samples import SeriesSamples
from tidegate_logic.model import QuotaWindow
from tidegate_logic.readings import BINDING_MILLISECONDS

# The samples of a broker's clients in one direction as flat arrays, in the order of client and
# time. Clients are sorted by name, so no result depends on the order of series. Several series of
# one client (a pair of Prometheus servers, two exporters) become one: at the same time the highest
# sample counts, at different times each sample covers its own part.


Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
Client = tuple[str, str]  # user, client id; "" where Kafka reports none

MOST_BYTES_PER_SECOND: Final = 1e11  # a NIC of 800 Gbit/s; more is no measurement


@dataclass(frozen=True, slots=True, eq=False)
class Gauges:
    """Samples in rising order of `client` and `scrape`, both as numbers.

    Each covers the `sample_duration_ms` before it.
    """

    client: NDArray[np.int32]
    scrape: NDArray[np.int64]
    sample_duration_ms: NDArray[np.int64]
    values: NDArray[np.float64]


_NAMES = EntityNames()  # a rollup is of one policy


def client_of(series: SeriesSamples) -> Client | None:
    """Return the client in the labels, as the operator reads them; None if they name none."""
    entity = entity_of(series.labels, _NAMES)
    if entity is None:
        return None
    user, client_id = entity.user, entity.client_id
    return (user if isinstance(user, str) else "", client_id if isinstance(client_id, str) else "")


def of_clients(series: Iterable[SeriesSamples]) -> list[tuple[Client, SeriesSamples]]:
    """Return the series that name a client, each with it."""
    return [(client, one) for one in series if (client := client_of(one)) is not None]


def gauges_of(
    series: Sequence[tuple[Client, SeriesSamples]], clients: Sequence[Client], grid: ScrapeGrid
) -> Gauges:
    """Collect the samples of `clients` that are amounts; all times must be in the grid."""
    numbers = {client: number for number, client in enumerate(clients)}
    numbered = [(numbers[client], one) for client, one in series if len(one.times_ms)]
    numbered.sort(key=lambda each: each[0])
    if not numbered:
        return Gauges(
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.float64),
        )
    who = np.repeat(
        np.array([number for number, _ in numbered], np.int32),
        [len(one.times_ms) for _, one in numbered],
    )
    scrape = np.searchsorted(grid.times_ms, np.concatenate([one.times_ms for _, one in numbered]))
    values = np.concatenate([one.values for _, one in numbered])
    kept = _amounts_once(
        who, scrape, values, several=len(numbered) > len({number for number, _ in numbered})
    )
    if kept is not None:
        who, scrape, values = who[kept], scrape[kept], values[kept]
    return Gauges(who, scrape, sample_duration_ms(who, scrape, grid), values)


def _amounts_once(
    client: NDArray[np.int32],
    scrape: NDArray[np.int64],
    values: NDArray[np.float64],
    *,
    several: bool,
) -> Whole | None:
    """Return the places of the amounts to keep; None = all of them.

    Of several series of a client at one time the highest is kept.
    """
    amounts = (values >= 0) & (values <= MOST_BYTES_PER_SECOND)
    if not several:
        return None if amounts.all() else np.flatnonzero(amounts)
    order = np.lexsort((values, scrape, client))
    order = order[amounts[order]]
    another = (np.diff(client[order]) != 0) | (np.diff(scrape[order]) != 0)
    return order[np.append(another, True)] if len(order) else order


def part_of(gauges: Gauges, places: Whole) -> Gauges:
    """Return the samples at these places, each with the duration that it had."""
    return Gauges(
        gauges.client[places],
        gauges.scrape[places],
        gauges.sample_duration_ms[places],
        gauges.values[places],
    )


# Sums by client and window.


_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class WindowCells:
    """Sums over samples by client (rows) and window (columns), without a loop over samples.

    A sample belongs to the window in whose course, or at whose end, it was taken. `starts` are the
    places of each cell's first sample.
    """

    gauges: Gauges
    grid: ScrapeGrid
    clients: int
    cells: Whole
    starts: Whole

    @classmethod
    def of(cls, gauges: Gauges, grid: ScrapeGrid, clients: int) -> "WindowCells":
        """Assign samples, in rising order of client and scrape, to cells, which then rise too."""
        cells = gauges.client * np.int64(grid.columns) + grid.column[gauges.scrape]
        starts = np.flatnonzero(cells[1:] != cells[:-1]) + 1
        return cls(gauges, grid, clients, cells, np.append(0, starts) if len(cells) else starts)

    def integrals(self) -> Whole:
        """Return the sums of value times milliseconds.

        Each product is a whole number, so that the order of addition does not matter.
        """
        found = np.zeros(self.clients * self.grid.columns, np.int64)
        if len(self.cells):
            values, held, since = (
                self.gauges.values,
                self.gauges.sample_duration_ms,
                self.grid.since_edge_ms[self.gauges.scrape],
            )
            found[self.cells[self.starts]] = np.add.reduceat(
                _whole(values, np.minimum(held, since)), self.starts
            )
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


# A throttled client sends its window of n samples at once and waits until the broker has forgotten
# them. Until then the broker divides by n - 1 to n samples. So single readings lie up to
# n / (n - 1) above the quota, and higher where a burst takes long: 3 to 18 % were measured with
# Kafka's 11 samples. The mean is right: a burst is in n readings, together n x ln(n / (n - 1)) of
# its bytes, less the part that is not in the gauge while the burst lasts, which makes 1.00 with 11.
# So the integral needs no correction, and a single reading needs this one.


_DOUBT: Final = 1.09  # makes 1.2 with 11 samples, above all that was measured


def most_excess(window: QuotaWindow) -> float:
    """Return how many times its quota a throttled client's gauge may read without excess."""
    return _DOUBT * window.samples / max(1, window.samples - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Contracts:
    """Contracts by client number, in bytes/s, infinite = none; those that `changing` has vary."""

    usual: Rates
    changing: Mapping[int, StepFunction] = field(default_factory=dict)

    @classmethod
    def of(cls, clients: Sequence[Client], promised: Mapping[Client, Rate]) -> "Contracts":
        rates = [promised.get(client, np.inf) for client in clients]
        usual = [np.inf if isinstance(rate, StepFunction) else rate for rate in rates]
        return cls(
            np.array(usual, np.float64),
            {number: rate for number, rate in enumerate(rates) if isinstance(rate, StepFunction)},
        )

    def __len__(self) -> int:
        return len(self.usual)

    def at(self, samples: Gauges, grid: ScrapeGrid) -> Rates:
        """Return the contract in force at each sample."""
        found = self.usual[samples.client]
        for client, course in self.changing.items():
            own = slice(*np.searchsorted(samples.client, [client, client + 1]))
            found[own] = course.at(grid.times_ms[samples.scrape[own]])
        return found


# Deferred bytes are counted against the rate that a throttled client would have sent. With a record
# of throttle episodes that is the client's rate just before the first cut, for as long as the
# episode lasts, as in the operator's metric `tidegate_deferred_bytes_total`. Without a record it is
# the contract. Both are estimates: demand itself is not visible.


@dataclass(frozen=True, slots=True)
class Wanted:
    """A throttle episode of a client, by number, and its rate here before the first cut.

    It lasted [start_ms, end_ms).
    """

    client: int
    start_ms: int
    end_ms: int
    bytes_per_second: float


def wanted_rates(
    throttled: Gauges, grid: ScrapeGrid, promised: Rates, episodes: Sequence[Wanted] | None
) -> Rates:
    """Return the bytes/s that each sample's client wanted, 0 = unknown; `promised` = contracts."""
    if episodes is None:
        return np.where(np.isfinite(promised), promised, 0.0)
    wanted, times = np.zeros(len(throttled.values)), grid.times_ms[throttled.scrape]
    for episode in episodes:
        # samples are in the order of clients
        own = slice(*np.searchsorted(throttled.client, [episode.client, episode.client + 1]))
        during = (times[own] >= episode.start_ms) & (times[own] < episode.end_ms)
        wanted[own] = np.where(
            during, np.maximum(wanted[own], episode.bytes_per_second), wanted[own]
        )
    return wanted


# All together: one row for each client, one column for each window.


@dataclass(frozen=True, slots=True, eq=False)
class ClientWindows:
    """A row for each client, a column for each window; bytes by the gauges, not calibrated."""

    thousandths_of_bytes: Whole
    peak_bytes_per_second: Rates
    samples: Whole
    throttled_ms: Whole
    over_contract_ms: Whole
    deferred_thousandths: Whole


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """Contracts and throttle episodes on this broker; `episodes` None = no record of them."""

    contracts: Contracts
    episodes: Sequence[Wanted] | None = None
    quota_window: QuotaWindow = field(default_factory=QuotaWindow)


def client_windows(
    rates: Gauges, throttle_times: Gauges, grid: ScrapeGrid, promises: Promises
) -> ClientWindows:
    """Add up the samples of each client.

    A client is throttled above the operator's own threshold of throttle time; NaN is none.
    """
    clients = len(promises.contracts)
    limited = part_of(throttle_times, np.flatnonzero(throttle_times.values > BINDING_MILLISECONDS))
    held = _samples_while(limited, rates, grid, clients=clients)
    promised = promises.contracts.at(rates, grid)
    over, throttled = (
        part_of(rates, _above(rates, held, promised, promises.quota_window)),
        part_of(rates, held),
    )
    short = np.maximum(
        0.0, wanted_rates(throttled, grid, promised[held], promises.episodes) - throttled.values
    )
    cells = WindowCells.of(rates, grid, clients)
    return ClientWindows(
        thousandths_of_bytes=cells.integrals(),
        peak_bytes_per_second=cells.peaks(),
        samples=cells.samples(),
        throttled_ms=_milliseconds_of(limited, grid, clients),
        over_contract_ms=_milliseconds_of(over, grid, clients),
        deferred_thousandths=WindowCells.of(
            replace(throttled, values=short), grid, clients
        ).integrals(),
    )


def _milliseconds_of(samples: Gauges, grid: ScrapeGrid, clients: int) -> Whole:
    """Return the time that these samples cover, whatever their values."""
    return WindowCells.of(
        replace(samples, values=np.ones(len(samples.values))), grid, clients
    ).integrals()


def _samples_while(limited: Gauges, rates: Gauges, grid: ScrapeGrid, *, clients: int) -> Whole:
    """Return the places of those rates whose reading has the same client throttled."""
    if not len(limited.values):
        return np.empty(0, np.int64)
    throttled = np.zeros((clients, grid.scrapes), bool)
    first, past = (each[limited.scrape] for each in scrapes_around(grid))
    for further in range(int((past - first).max())):
        throttled[limited.client, np.minimum(first + further, past - 1)] = True
    return np.flatnonzero(throttled[rates.client, rates.scrape])


def _above(rates: Gauges, held: Whole, promised: Rates, window: QuotaWindow) -> Whole:
    """Return the places of samples above contract, or `most_excess` of it while throttled."""
    most = promised.copy()
    most[held] *= most_excess(window)
    return np.flatnonzero(rates.values > most)
