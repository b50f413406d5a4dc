"""The entry: everything that was read of one broker -> its columns of `usage_5m` and `broker_5m`.

Which series are whose, and which contracts and limits apply, is found out by the caller; names of metrics are unknown here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller_logic.model import QuotaWindow
from tidegate.rollup.fold.calibration import Calibrated, calibrated
from tidegate.rollup.fold.clients import ClientWindows, Promises, client_windows
from tidegate.rollup.fold.contracts import Contracts
from tidegate.rollup.fold.course import Rate
from tidegate.rollup.fold.gauges import Client, clients_of, gauges_of
from tidegate.rollup.fold.held_back import Wanted
from tidegate.rollup.fold.scrape_grid import scrape_grid, scrape_times
from tidegate.rollup.fold.scrape_interval import estimated_interval_ms
from tidegate.rollup.fold.tellers import Counted, counted
from tidegate.rollup.fold.windows import Windows
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import DIRECTIONS, Direction


@dataclass(frozen=True, slots=True, eq=False)
class DirectionSamples:
    """What was read of one broker in one direction, over the ranges of `windows.reading_of`. All of it may be missing.

    `cards`, `client_bytes` and `replication_bytes` are counters of bytes, without series that count the same bytes once more (topics).
    `rates` are gauges of bytes/s, `throttle_times` of milliseconds, with the labels of clients.
    """

    cards: Sequence[SeriesSamples] = ()
    client_bytes: Sequence[SeriesSamples] = ()
    replication_bytes: Sequence[SeriesSamples] = ()
    rates: Sequence[SeriesSamples] = ()
    throttle_times: Sequence[SeriesSamples] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """A client that Tidegate held below its contract, [start_ms, end_ms), and its rate on this broker just before the first cut."""

    client: Client
    start_ms: int
    end_ms: int
    wanted_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DirectionTerms:
    """What was promised in one direction on this broker, in bytes/s, at all times or as it changed.

    Contracts are by exactly the user and client id that the broker's series tell. `episodes` None = nobody kept an account; `held_back`
    says what deferred bytes are then. `quota_window` is that of the brokers.
    """

    limit: Rate | None = None
    contracts: Mapping[Client, Rate] = field(default_factory=dict)
    episodes: Sequence[Episode] | None = None
    quota_window: QuotaWindow = field(default_factory=QuotaWindow)


@dataclass(frozen=True, slots=True, eq=False)
class DirectionFold:
    """One direction. `clients` name the rows of what is by client and window; everything else is by window."""

    clients: tuple[Client, ...]
    told: ClientWindows
    traffic: Calibrated
    scraped_ms: NDArray[np.int64]
    card: Counted
    replication: Counted
    limit: Rate | None


@dataclass(frozen=True, slots=True, eq=False)
class BrokerFold:
    """What a run owns of one broker."""

    broker: int
    windows: Windows
    directions: Mapping[Direction, DirectionFold]


def fold_broker(
    broker: int,
    samples: Mapping[Direction, DirectionSamples],
    windows: Windows,
    *,
    terms: Mapping[Direction, DirectionTerms] | None = None,
    interval_ms: int | None = None,
) -> BrokerFold:
    """Fold both directions. `interval_ms` is the scrape interval; estimated from the samples where None.

    Tasks of one run should be given the same interval, so that they agree on what is a gap. Raises ValueError for one beyond 5 minutes.
    """
    every = [one for way in DIRECTIONS if way in samples for one in (*samples[way].client_bytes, *samples[way].cards, *samples[way].rates)]
    interval = estimated_interval_ms(every) if interval_ms is None else interval_ms
    folds = {
        way: fold_direction(samples.get(way, DirectionSamples()), windows, (terms or {}).get(way, DirectionTerms()), interval_ms=interval)
        for way in DIRECTIONS
    }
    return BrokerFold(broker, windows, folds)


def fold_direction(samples: DirectionSamples, windows: Windows, terms: DirectionTerms, *, interval_ms: int) -> DirectionFold:
    """Fold one direction."""
    gauges = (*samples.rates, *samples.throttle_times)
    scrapes = scrape_times(one.times_ms for one in gauges)
    grid = scrape_grid(scrapes, windows, interval_ms)
    clients = clients_of(gauges)
    rates, throttle_times = gauges_of(samples.rates, clients, grid), gauges_of(samples.throttle_times, clients, grid)
    told = client_windows(rates, throttle_times, grid, _promises(clients, terms))
    total = counted(samples.client_bytes, windows, interval_ms=interval_ms)
    # the exporter was there whenever it told the broker's own counters, though it may have had no client to tell of
    there = scrape_times((scrapes, *(one.times_ms for one in samples.client_bytes)))
    scraped = scrape_grid(there, windows, interval_ms).covered_ms()
    return DirectionFold(
        clients=clients,
        told=told,
        traffic=calibrated(told.thousandths_of_bytes, scraped, total),
        scraped_ms=scraped,
        card=counted(samples.cards, windows, interval_ms=interval_ms, limit=terms.limit),
        replication=counted(samples.replication_bytes, windows, interval_ms=interval_ms),
        limit=terms.limit,
    )


def _promises(clients: Sequence[Client], terms: DirectionTerms) -> Promises:
    numbers = {client: number for number, client in enumerate(clients)}
    contracts = Contracts.of(clients, terms.contracts)
    if terms.episodes is None:
        return Promises(contracts, None, terms.quota_window)
    known = [each for each in terms.episodes if each.client in numbers]
    wanted = [Wanted(numbers[each.client], each.start_ms, each.end_ms, each.wanted_bytes_per_second) for each in known]
    return Promises(contracts, wanted, terms.quota_window)
