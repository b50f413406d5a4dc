"""Computes one broker's rows of `usage_5m` and `broker_5m` from all its samples.

The caller finds out which series belong to whom, and which contracts and limits apply. No name of a
metric occurs here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.rollup.fold.clients import (
    MOST_BYTES_PER_SECOND,
    Client,
    ClientWindows,
    Contracts,
    Promises,
    Wanted,
    client_windows,
    gauges_of,
    of_clients,
)
from tidegate.rollup.fold.counters import Contradiction, Counted, counted
from tidegate.rollup.fold.windows import (
    WINDOW_MS,
    Rate,
    Windows,
    estimated_interval_ms,
    rates_at,
    scrape_grid,
    scrape_times,
)
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import BROKER, DIRECTIONS, USAGE_5M, Direction
from tidegate_logic.model import QuotaWindow

# Kafka has no counter of bytes by user. It has one for all clients of the broker. So the gauges
# give the shares and the counter gives the sum: the estimates of clients are scaled until they add
# up to the bytes that the broker counted. The factor between the two is published with each row.


Whole = NDArray[np.int64]
Rates = NDArray[np.float64]

LEAST_FACTOR: Final = 0.9
MOST_FACTOR: Final = 1.15


@dataclass(frozen=True, slots=True)
class FactorBounds:
    """Within these gauges and counter measure the same. Beyond, gauges of some clients are missing
    (above `most`), or the gauges of others are counted as well (below `least`).
    """

    least: float = LEAST_FACTOR
    most: float = MOST_FACTOR


BOUNDS: Final = FactorBounds()


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """Bytes of clients by client and window, all else by window.

    Clients' bytes + `unattributed_bytes` = `client_bytes`, always. `factor` is what was counted
    over what gauges read, NaN without the broker's counter, while it stood still, and where no
    gauge reported a byte. Clients never get more bytes than were counted, and never more than the
    highest factor that is allowed times their own: the bytes of clients without a gauge are not
    theirs.
    """

    bytes_of_clients: Whole
    client_bytes: Whole
    unattributed_bytes: Whole
    factor: Rates


def calibrated(
    thousandths_of_bytes: Whole,
    scraped_ms: Whole,
    counted: Counted,
    bounds: FactorBounds = BOUNDS,
) -> Calibrated:
    """Scale gauges, by client and window, to the broker's count; scrapes cover `scraped_ms`.

    Where gauges or counter cover only a part of a window, the factor compares their means, and the
    bytes are shared out nevertheless. Without the counter clients keep the bytes of their
    gauges, and the sum of these takes the counter's place.
    """
    gauged = thousandths_of_bytes.sum(axis=0) / 1000
    known = counted.covered_ms > 0
    expected = (
        gauged
        * np.where(known, counted.covered_ms, WINDOW_MS)
        / np.where(scraped_ms > 0, scraped_ms, WINDOW_MS)
    )
    comparable = known & (gauged > 0) & (counted.counted_bytes > 0)
    ratio = np.divide(
        counted.counted_bytes, expected, out=np.full(len(gauged), np.nan), where=comparable
    )
    most = np.rint(bounds.most * expected).astype(np.int64)
    attributed = np.where(
        ratio <= bounds.most, counted.counted_bytes, np.minimum(most, counted.counted_bytes)
    )
    attributed = np.where(
        comparable, attributed, np.where(known, 0, np.rint(gauged).astype(np.int64))
    )
    client_bytes = np.where(known, counted.counted_bytes, attributed)
    shares = np.column_stack(
        [
            apportioned(int(total), each)
            for total, each in zip(attributed, thousandths_of_bytes.T, strict=True)
        ]
    )
    return Calibrated(shares, client_bytes, client_bytes - attributed, ratio)


def apportioned(total: int, weights: Whole) -> Whole:
    """Divide `total` by weight into whole parts with that sum; all are 0 without weights.

    By largest remainder; of equal ones the first.
    """
    whole = weights.sum()
    if not whole:
        return np.zeros(len(weights), np.int64)
    exact = total * (weights / whole)
    parts: Whole = np.floor(exact).astype(np.int64)
    rest = np.where(weights > 0, exact - parts, -1.0)
    parts[np.argsort(-rest, kind="stable")[: total - int(parts.sum())]] += 1
    return parts


# Arrow arrays are made from buffers, as `pyarrow.array` and `pyarrow.scalar` import pandas wherever
# it is installed: two seconds of processor time in each worker process, for nothing.


def array_of(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Wrap fixed-width values whose bytes are those of `kind`; NaN stays NaN."""
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def nullable_array_of(values: NDArray[np.float64]) -> pa.Array:
    """Wrap numbers in which NaN means null."""
    known = np.packbits(~np.isnan(values), bitorder="little")
    return pa.Array.from_buffers(
        pa.float64(), len(values), [pa.py_buffer(known), pa.py_buffer(np.ascontiguousarray(values))]
    )


def strings_of(names: Sequence[str]) -> pa.Array:
    """Encode names in UTF-8."""
    encoded = [name.encode() for name in names]
    offsets = np.array([0, *accumulate(map(len, encoded))], np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(names), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


@dataclass(frozen=True, slots=True, eq=False)
class DirectionSamples:
    """Series of one broker in one direction over `windows.reading_of`; any may be missing.

    `nics`, `client_bytes` and `replication_bytes` are counters of bytes, without the series by
    topic, which count the same bytes again. `rates` are gauges of bytes/s, `throttle_times` of
    milliseconds, with the labels of clients. `starts` are the processes' start times in seconds
    since the epoch, of whatever exporters have the broker's label.
    """

    nics: Sequence[SeriesSamples] = ()
    client_bytes: Sequence[SeriesSamples] = ()
    replication_bytes: Sequence[SeriesSamples] = ()
    rates: Sequence[SeriesSamples] = ()
    throttle_times: Sequence[SeriesSamples] = ()
    starts: Sequence[SeriesSamples] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """A client below its contract in [start_ms, end_ms), and its rate here before the first cut."""

    client: Client
    start_ms: int
    end_ms: int
    wanted_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DirectionTerms:
    """Limit and contracts in one direction on this broker, in bytes/s, constant or as they changed.

    The key of a contract is exactly the user and client id in the labels of the broker's series.
    `episodes` None = there is no record of throttle episodes; `clients.wanted_rates` defines
    deferred bytes for that case. `quota_window` is that of the brokers. More than
    `most_bytes_per_second` of a counter is no growth.
    """

    limit: Rate | None = None
    contracts: Mapping[Client, Rate] = field(default_factory=dict)
    episodes: Sequence[Episode] | None = None
    quota_window: QuotaWindow = field(default_factory=QuotaWindow)
    most_bytes_per_second: float = MOST_BYTES_PER_SECOND


BrokerTerms = Mapping[Direction, DirectionTerms]


@dataclass(frozen=True, slots=True, eq=False)
class DirectionFold:
    """The result of one direction; `clients` name the rows of arrays by client and window.

    All other arrays are by window. `scraped_ms` is the time that scrapes cover; of it the counter,
    where there is one, knows the bytes of `known_ms`.
    """

    clients: tuple[Client, ...]
    gauges: ClientWindows
    traffic: Calibrated
    scraped_ms: NDArray[np.int64]
    known_ms: NDArray[np.int64]
    nic: Counted
    replication: Counted
    limit: Rate | None
    contradiction: Contradiction | None = None

    @property
    def coverage(self) -> Rates:
        """Return the share of each window that is known: of its time and of the bytes counted."""
        traffic = self.traffic
        unknown = np.divide(
            traffic.unattributed_bytes,
            traffic.client_bytes,
            out=np.zeros(len(traffic.client_bytes)),
            where=traffic.client_bytes > 0,
        )
        covered: Rates = np.minimum(self.known_ms / WINDOW_MS, 1) * (1 - unknown)
        return covered


@dataclass(frozen=True, slots=True, eq=False)
class BrokerFold:
    """The result of one broker for the windows that a run owns."""

    broker: int
    windows: Windows
    directions: Mapping[Direction, DirectionFold]


def fold_broker(
    broker: int,
    samples: Mapping[Direction, DirectionSamples],
    windows: Windows,
    *,
    terms: BrokerTerms | None = None,
    interval_ms: int | None = None,
    bounds: FactorBounds = BOUNDS,
) -> BrokerFold:
    """Fold both directions; `interval_ms` is the scrape interval, None = estimate it.

    Tasks of one run should be given the same interval, so that they agree on what is a gap. Raises
    ValueError for one beyond 5 minutes.
    """
    every = [
        one
        for way in DIRECTIONS
        if way in samples
        for one in (*samples[way].client_bytes, *samples[way].nics, *samples[way].rates)
    ]
    interval = estimated_interval_ms(every) if interval_ms is None else interval_ms
    folds = {
        way: fold_direction(
            samples.get(way, DirectionSamples()),
            windows,
            (terms or {}).get(way, DirectionTerms()),
            interval_ms=interval,
            bounds=bounds,
        )
        for way in DIRECTIONS
    }
    return BrokerFold(broker, windows, folds)


def fold_direction(
    samples: DirectionSamples,
    windows: Windows,
    terms: DirectionTerms,
    *,
    interval_ms: int,
    bounds: FactorBounds = BOUNDS,
) -> DirectionFold:
    """Fold one direction."""
    series = (*samples.rates, *samples.throttle_times)
    scrapes = scrape_times(one.times_ms for one in series)
    grid = scrape_grid(scrapes, windows, interval_ms)
    named = [of_clients(samples.rates), of_clients(samples.throttle_times)]
    clients = tuple(sorted({client for each in named for client, _ in each}))
    rates, throttle_times = (gauges_of(each, clients, grid) for each in named)
    gauges = client_windows(rates, throttle_times, grid, _promises(clients, terms))
    count = partial(
        counted,
        windows=windows,
        interval_ms=interval_ms,
        starts=samples.starts,
        most=terms.most_bytes_per_second,
    )
    # of two names of the same counter one counts; a NIC may be made up of several counters
    total = count(samples.client_bytes, parts=())
    # an exporter without clients to report was there whenever it reported the broker's own counters
    there = scrape_times((scrapes, *(one.times_ms for one in samples.client_bytes)))
    scraped = scrape_grid(there, windows, interval_ms).covered_ms()
    return DirectionFold(
        clients=clients,
        gauges=gauges,
        traffic=calibrated(gauges.thousandths_of_bytes, scraped, total, bounds),
        scraped_ms=scraped,
        known_ms=np.where(total.covered_ms > 0, np.minimum(scraped, total.covered_ms), scraped),
        nic=count(samples.nics, limit=terms.limit),
        replication=count(samples.replication_bytes, parts=()),
        limit=terms.limit,
        contradiction=total.contradiction,
    )


def _promises(clients: Sequence[Client], terms: DirectionTerms) -> Promises:
    numbers = {client: number for number, client in enumerate(clients)}
    contracts = Contracts.of(clients, terms.contracts)
    if terms.episodes is None:
        return Promises(contracts, None, terms.quota_window)
    known = [each for each in terms.episodes if each.client in numbers]
    wanted = [
        Wanted(numbers[each.client], each.start_ms, each.end_ms, each.wanted_bytes_per_second)
        for each in known
    ]
    return Promises(contracts, wanted, terms.quota_window)


# Arrow tables have exactly the columns of the usage tables, in the order in which they are stored.


_WINDOW = pa.timestamp("ms", tz="UTC")
_Rows = NDArray[np.int64]


def usage_table(fold: BrokerFold) -> pa.Table:
    """Return rows of `usage_5m`: each client in each window with a sample of it.

    By user, client id, direction and window.
    """
    clients = tuple(sorted({client for one in fold.directions.values() for client in one.clients}))
    parts = [_usage_of(fold, direction, clients) for direction in sorted(fold.directions)]
    order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
    return (
        pa.concat_tables([table for _, table in parts])
        .combine_chunks()
        .take(array_of(order, pa.int64()))
        .cast(USAGE_5M)
    )


def _usage_of(
    fold: BrokerFold, direction: Direction, clients: tuple[Client, ...]
) -> tuple[_Rows, pa.Table]:
    """Return the rows of one direction, and each row's client as its number in sorted `clients`."""
    one = fold.directions[direction]
    gauges = one.gauges
    row, window = np.nonzero(
        (gauges.samples > 0) | (gauges.thousandths_of_bytes > 0) | (gauges.throttled_ms > 0)
    )
    numbers = {client: number for number, client in enumerate(clients)}
    places = np.array([numbers[client] for client in one.clients], np.int64)[row]
    names = array_of(row, pa.int64())
    return places, pa.table(
        {
            **_where(fold, direction, window),
            "user": strings_of([user for user, _ in one.clients]).take(names),
            "client_id": strings_of([client_id for _, client_id in one.clients]).take(names),
            "bytes": array_of(one.traffic.bytes_of_clients[row, window], pa.int64()),
            "peak_rate": array_of(gauges.peak_bytes_per_second[row, window], pa.float64()),
            "throttled_seconds": array_of(gauges.throttled_ms[row, window] / 1000, pa.float64()),
            "over_contract_seconds": array_of(
                gauges.over_contract_ms[row, window] / 1000, pa.float64()
            ),
            "deferred_bytes": array_of(
                (gauges.deferred_thousandths[row, window] + 500) // 1000, pa.int64()
            ),
            "samples": array_of(gauges.samples[row, window].astype(np.int32), pa.int32()),
            "coverage": array_of(one.coverage[window], pa.float64()),
            "calibration": nullable_array_of(one.traffic.factor[window]),
        }
    ).select(USAGE_5M.names)


def broker_table(fold: BrokerFold) -> pa.Table:
    """Return rows of `broker_5m`: each direction in each window with a sample; unknown bytes are 0.

    By direction and window.
    """
    return (
        pa.concat_tables([_broker_of(fold, direction) for direction in sorted(fold.directions)])
        .combine_chunks()
        .cast(BROKER)
    )


def _broker_of(fold: BrokerFold, direction: Direction) -> pa.Table:
    one = fold.directions[direction]
    window = np.flatnonzero(
        (one.nic.covered_ms > 0) | (one.replication.covered_ms > 0) | _is_traffic_known(one)
    )
    return pa.table(
        {
            **_where(fold, direction, window),
            "nic_bytes": array_of(one.nic.counted_bytes[window], pa.int64()),
            "client_bytes": array_of(one.traffic.client_bytes[window], pa.int64()),
            "replication_bytes": array_of(one.replication.counted_bytes[window], pa.int64()),
            "unattributed_bytes": array_of(one.traffic.unattributed_bytes[window], pa.int64()),
            "limit": _limits(one.limit, fold.windows.edges_ms[1:][window] - 1),
            "over_limit_seconds": array_of(one.nic.over_limit_ms[window] / 1000, pa.float64()),
        }
    ).select(BROKER.names)


def _is_traffic_known(one: DirectionFold) -> NDArray[np.bool_]:
    return (one.scraped_ms > 0) | (one.traffic.client_bytes > 0)


def _limits(limit: Rate | None, at_ms: _Rows) -> pa.Array:
    """Return the limit in force at the end of each window."""
    rates = rates_at(limit, at_ms)
    return pa.array(
        np.where(np.isfinite(rates), rates, 0).astype(np.int64),
        pa.int64(),
        mask=~np.isfinite(rates),
    )


def _where(fold: BrokerFold, direction: Direction, window: _Rows) -> dict[str, pa.Array]:
    return {
        "window_start": array_of(fold.windows.starts_ms[window], _WINDOW),
        "broker": array_of(np.full(len(window), fold.broker, np.int32), pa.int32()),
        "direction": strings_of([direction]).take(array_of(np.zeros_like(window), pa.int64())),
    }
