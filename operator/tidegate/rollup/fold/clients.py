"""Samples of clients -> what each client did in each window, by Kafka's gauges alone: integrals, peaks, and times above a threshold.

Sums are kept in thousandths of a byte (bytes per second times milliseconds) and in milliseconds, as whole numbers: they are the same in
whatever order they are added up, and however the range was cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from controller_logic.model import QuotaWindow
from controller_logic.throttle.settings import BINDING_MILLISECONDS
from tidegate.rollup.fold.contracts import Contracts
from tidegate.rollup.fold.gauge_excess import most_excess
from tidegate.rollup.fold.gauges import Gauges, part_of
from tidegate.rollup.fold.held_back import Wanted, wanted_rates
from tidegate.rollup.fold.held_time import scrapes_around
from tidegate.rollup.fold.scrape_grid import ScrapeGrid
from tidegate.rollup.fold.window_cells import WindowCells

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ClientWindows:
    """One row for each client, one column for each window. Bytes are those of the gauges, not calibrated."""

    thousandths_of_bytes: Whole
    peak_bytes_per_second: Rates
    samples: Whole
    throttled_ms: Whole
    over_contract_ms: Whole
    deferred_thousandths: Whole


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """Contracts on this broker, and throttle episodes by number of the client; `episodes` None = no account of them."""

    contracts: Contracts
    episodes: Sequence[Wanted] | None = None
    quota_window: QuotaWindow = field(default_factory=QuotaWindow)


def client_windows(rates: Gauges, throttle_times: Gauges, grid: ScrapeGrid, promises: Promises) -> ClientWindows:
    """Throttled is who has a throttle time above the operator's own threshold; a missing one is none (Kafka then says NaN)."""
    clients = len(promises.contracts)
    limited = part_of(throttle_times, np.flatnonzero(throttle_times.values > BINDING_MILLISECONDS))
    held = _samples_while(limited, rates, grid, clients=clients)
    promised = promises.contracts.at(rates, grid)
    over, throttled = part_of(rates, _above(rates, held, promised, promises.quota_window)), part_of(rates, held)
    short = np.maximum(0.0, wanted_rates(throttled, grid, promised[held], promises.episodes) - throttled.values)
    cells = WindowCells.of(rates, grid, clients)
    return ClientWindows(
        thousandths_of_bytes=cells.integrals(),
        peak_bytes_per_second=cells.peaks(),
        samples=cells.samples(),
        throttled_ms=_milliseconds_of(limited, grid, clients),
        over_contract_ms=_milliseconds_of(over, grid, clients),
        deferred_thousandths=WindowCells.of(replace(throttled, values=short), grid, clients).integrals(),
    )


def _milliseconds_of(samples: Gauges, grid: ScrapeGrid, clients: int) -> Whole:
    """For how long these samples stand, whatever their values."""
    return WindowCells.of(replace(samples, values=np.ones(len(samples.values))), grid, clients).integrals()


def _samples_while(limited: Gauges, rates: Gauges, grid: ScrapeGrid, *, clients: int) -> Whole:
    """Which samples of the rates are of a reading that told the same client throttled."""
    if not len(limited.values):
        return np.empty(0, np.int64)
    throttled = np.zeros((clients, grid.scrapes), bool)
    first, past = (each[limited.scrape] for each in scrapes_around(grid))
    for further in range(int((past - first).max())):
        throttled[limited.client, np.minimum(first + further, past - 1)] = True
    return np.flatnonzero(throttled[rates.client, rates.scrape])


def _above(rates: Gauges, held: Whole, promised: Rates, window: QuotaWindow) -> Whole:
    """Which samples read more than the contract: by any byte, and while Kafka throttles the client by more than `most_excess`."""
    most = promised.copy()
    most[held] *= most_excess(window)
    return np.flatnonzero(rates.values > most)
