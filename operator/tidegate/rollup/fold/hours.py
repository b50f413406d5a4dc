"""Hours and days of brokers, from their rows of 5 minutes: sums, percentiles and sketches.

A task has all rows of its broker's hour at hand, so it adds them up where they are; those of a
client's day come to one task, too. Only tiers, whose members are on many brokers, need Spark's SQL.
Sums of the finer rows are those of the coarser ones, to the byte. Percentiles are exact, by nearest
rank.

The sketch beside them is a map of buckets to numbers of 5-minute rates (DDSketch): rates in
(G^(n-1), G^n] bytes per second are in bucket n, those of up to 1 B/s in bucket 0. Buckets of rows
add up, which any SQL can do, so percentiles over longer times or several clients come from it, with
an error of at most 1 %; percentiles themselves do not add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.rollup.fold.clients import Client
from tidegate.rollup.labels import NO_LABELS
from tidegate.rollup.schemas import BROKER, DAY_MS, FIVE_MINUTES_MS, HOUR_MS, SKETCH, USAGE

ERROR: Final = 0.01
GROWTH: Final = (1 + ERROR) / (1 - ERROR)  # G: how much wider each bucket is than the one before
_SECONDS = FIVE_MINUTES_MS / 1000
_PERCENTS = (50, 95, 99)

Places = Mapping[Client, tuple[str, str]]
"""The tier of each client and its labels, as the tables have them."""


def usage_hour(rows: pa.Table, places: Places) -> pa.Table:
    """`usage_5m` of one broker by client, direction and window -> its `usage_1h`."""
    if not rows.num_rows:
        return USAGE.empty_table()
    rows = rows.combine_chunks()
    starts = _starts(rows, _CLIENT, window_ms=HOUR_MS)
    first = rows.take(pa.array(starts))
    names = zip(first["user"].to_pylist(), first["client_id"].to_pylist(), strict=True)
    found = [places.get(client, _OF_NONE) for client in names]
    tiers, labels = (pa.array([place[n] for place in found], pa.string()) for n in range(2))
    return _usage(rows, starts, tiers, labels, window_ms=HOUR_MS)


def usage_day(rows: pa.Table, hours: pa.Table) -> pa.Table:
    """`usage_5m` of a day and some clients, on any brokers and in any order, -> their `usage_1d`.

    `hours` are their rows of `usage_1h`: a client has a row of the day for each tier and labels
    that it had in any hour.
    """
    if not rows.num_rows:
        return USAGE.empty_table()
    keys = ["hour", "user", "client_id"]
    places = _with_hour(hours).group_by([*keys, "tier", "labels"]).aggregate([])
    joined = _with_hour(rows).join(places, keys, use_threads=False)
    for name, of_none in zip(("tier", "labels"), _OF_NONE, strict=True):
        filled = joined[name].fill_null(of_none)
        joined = joined.set_column(joined.schema.get_field_index(name), name, filled)
    names = ("broker", *_CLIENT, "tier", "labels")
    ordered = _in_order(joined, names)
    starts = _starts(ordered, names, window_ms=DAY_MS)
    first = ordered.take(pa.array(starts))
    return _usage(ordered, starts, first["tier"], first["labels"], window_ms=DAY_MS)


def broker_hour(rows: pa.Table) -> pa.Table:
    """`broker_5m` of one broker by direction and window -> its `broker_1h`.

    The limit is the last one that was in force.
    """
    return _broker(rows.combine_chunks(), window_ms=HOUR_MS)


def broker_day(rows: pa.Table) -> pa.Table:
    """`broker_5m` of a day and some brokers, in any order, -> their `broker_1d`."""
    return _broker(_in_order(rows, ("broker", "direction")), window_ms=DAY_MS)


_CLIENT = ("user", "client_id", "direction")
_OF_NONE = "", NO_LABELS


def _usage(
    rows: pa.Table, starts: NDArray[np.int64], tiers: pa.Array, labels: pa.Array, *, window_ms: int
) -> pa.Table:
    """A row for those from each of `starts` on, which are in order; `tiers` is by these."""
    first = rows.take(pa.array(starts))
    added = {
        name: np.add.reduceat(_numbers(rows, name), starts)
        for name in ("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes")
    }
    windows = window_ms // FIVE_MINUTES_MS
    ranks = ranked(_numbers(rows, "bytes"), np.append(starts, rows.num_rows))
    columns = {
        "window_start": _window_of(first, window_ms),
        "broker": first["broker"],
        "user": first["user"],
        "client_id": first["client_id"],
        "tier": tiers,
        "labels": labels,
        "direction": first["direction"],
        "peak_rate": np.maximum.reduceat(_numbers(rows, "peak_rate"), starts),
        **added,
        "samples": np.add.reduceat(_numbers(rows, "samples"), starts).astype(np.int32),
        "coverage": np.add.reduceat(_numbers(rows, "coverage"), starts) / windows,
        **ranks.percentiles,
        "sketch": ranks.sketch,
    }
    return pa.table([columns[name] for name in USAGE.names], names=USAGE.names).cast(USAGE)


def _broker(rows: pa.Table, *, window_ms: int) -> pa.Table:
    if not rows.num_rows:
        return BROKER.empty_table()
    starts = _starts(rows, ("broker", "direction"), window_ms=window_ms)
    ends = np.append(starts[1:], rows.num_rows)
    first = rows.take(pa.array(starts))
    limits = rows["limit"].to_pylist()
    added = {
        name: np.add.reduceat(_numbers(rows, name), starts)
        for name in (
            *("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes"),
            "over_limit_seconds",
        )
    }
    last_limits = [
        next((limit for limit in reversed(limits[begin:end]) if limit is not None), None)
        for begin, end in zip(starts, ends, strict=True)
    ]
    columns = {
        "window_start": _window_of(first, window_ms),
        "broker": first["broker"],
        "direction": first["direction"],
        "limit": pa.array(last_limits, pa.int64()),
        **added,
    }
    return pa.table([columns[name] for name in BROKER.names], names=BROKER.names).cast(BROKER)


def _with_hour(rows: pa.Table) -> pa.Table:
    return rows.append_column("hour", pa.array(_times(rows) // HOUR_MS))


def _in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows that are like each other in these columns together, in order of time."""
    codes: list[NDArray[Any]] = [_times(rows), *(_codes(rows, name) for name in reversed(names))]
    return rows.take(pa.array(np.lexsort(codes))).combine_chunks()


def _starts(rows: pa.Table, names: Sequence[str], *, window_ms: int) -> NDArray[np.int64]:
    """Where rows begin that are of one window and like each other in these columns."""
    codes: list[NDArray[Any]] = [
        _times(rows) // window_ms,
        *(_codes(rows, name) for name in names),
    ]
    changed = np.any([one[1:] != one[:-1] for one in codes], axis=0)
    return np.append(0, np.flatnonzero(changed) + 1)


def _codes(rows: pa.Table, name: str) -> NDArray[np.int32]:
    """A number for each value of the column."""
    found: NDArray[np.int32] = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
    return found


def _times(rows: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows["window_start"].cast(pa.int64()).to_numpy()
    return found


def _numbers(rows: pa.Table, name: str) -> NDArray[Any]:
    found: NDArray[Any] = rows[name].to_numpy()
    return found


def _window_of(rows: pa.Table, window_ms: int) -> pa.Array:
    times = _times(rows)
    return pa.array(times - times % window_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))


@dataclass(frozen=True, slots=True)
class Ranks:
    """`p50`, `p95` and `p99` in bytes per second, and a sketch; null for a row without values."""

    percentiles: Mapping[str, pa.Array]
    sketch: pa.Array


def ranked(values: NDArray[np.int64], edges: NDArray[np.int64]) -> Ranks:
    """Of the bytes of 5 minutes of each row: those from `edges[n]` to `edges[n + 1]` are of row n.

    Nearest rank: the smallest value that at least so many of all are not above.
    """
    counts = np.diff(edges)
    rows = np.repeat(np.arange(len(counts)), counts)
    ordered = values[np.lexsort((values, rows))]
    empty = counts == 0
    percentiles = {}
    for percent in _PERCENTS:
        places = edges[:-1] + np.maximum((counts * percent + 99) // 100, 1) - 1
        found = np.zeros(len(counts))
        found[~empty] = ordered[places[~empty]] / _SECONDS
        percentiles[f"p{percent}"] = pa.array(found, pa.float64(), mask=empty)
    return Ranks(percentiles, _sketches(ordered / _SECONDS, rows, empty))


def _sketches(
    rates: NDArray[np.float64], rows: NDArray[np.int64], empty: NDArray[np.bool_]
) -> pa.Array:
    """The maps of rates that are in order within their row."""
    buckets = bucket_of(rates)
    begins = np.flatnonzero(
        np.append(True, (buckets[1:] != buckets[:-1]) | (rows[1:] != rows[:-1]))[: len(rates)]
    )
    sizes = np.diff(np.append(begins, len(rates))).astype(np.int32)
    entries = np.bincount(rows[begins], minlength=len(empty))
    offsets = np.append(0, np.cumsum(entries)).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=np.append(empty, False)),
        pa.array(buckets[begins]),
        pa.array(sizes),
    ).cast(SKETCH)


def bucket_of(rates: NDArray[np.float64]) -> NDArray[np.int32]:
    """The bucket of each rate in bytes per second."""
    buckets: NDArray[np.int32] = np.ceil(np.log(np.maximum(rates, 1.0)) / log(GROWTH)).astype(
        np.int32
    )
    return buckets
