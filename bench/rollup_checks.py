"""Published tables against the estate that they were made of: brokers to the byte, clients within what docs/usage.md states, percentiles
by rank. It measures nothing and expects one hour with a scrape on each edge.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.results import Figure, percentile
from bench.rollup.estate import Estate
from bench.rollup_truth import MadeDirection
from tidegate.rollup.fold.windows import WINDOW_MS
from tidegate.rollup.schemas import DIRECTIONS, Direction
from tidegate.rollup.tables.store import UsageStore

_MOST_RANK_ERROR_PERCENT = 0.5
_STATED = {(False, 12): 0.8, (False, 1): 2.6, (True, 12): 2.3, (True, 1): 4.4}  # docs/usage.md: 95 of 100 clients are within, percent
_SHARES = (0.5, 0.95, 0.99)

Quantiles = Sequence[tuple[int, str, float, float, float]]
Table = NDArray[np.int64]  # a row for each client, a column for each window


def checks(estate: Estate, store: UsageStore, quantiles: Quantiles) -> list[Figure]:
    """`quantiles` are broker, direction, and the rates of five minutes at `_SHARES` as merged sketches tell them."""
    estimated = {(broker, way): _bytes_of_clients(estate, store, broker, way) for broker, way in _every(estate)}
    return [
        _brokers(estate, store),
        *(_clients(estate, estimated, throttled=throttled, windows=windows) for throttled, windows in _STATED),
        _percentiles(store),
        _sketches(estimated, quantiles),
        _against_truth(estate, quantiles),
    ]


def _every(estate: Estate) -> Iterator[tuple[int, Direction]]:
    return ((broker, way) for broker in range(1, estate.brokers + 1) for way in DIRECTIONS)


def _brokers(estate: Estate, store: UsageStore) -> Figure:
    off = [_lost(estate.made(broker)[way], store.rows("broker_5m"), broker, way, estate=estate) for broker, way in _every(estate)]
    return Figure(
        "bytes of a broker, direction and window in the tables against the truth", float(max(off)), "bytes", 0, f"{len(off)} of them"
    )


def _lost(made: MadeDirection, rows: pa.Table, broker: int, way: Direction, *, estate: Estate) -> int:
    own = rows.filter((pc.field("broker") == broker) & (pc.field("direction") == way)).sort_by("window_start")
    counted, true = own["client_bytes"].to_numpy(), made.bytes_of_clients.sum(axis=0)
    if len(counted) != len(true):
        raise RuntimeError(f"broker {broker} has {len(counted)} windows of {way} where {len(true)} were made from {estate.start_ms} on")
    return int(np.abs(counted - true).max())


def _bytes_of_clients(estate: Estate, store: UsageStore, broker: int, way: Direction) -> Table:
    """The table's bytes, in the order in which clients were made; 0 where a client has no row."""
    rows = store.rows("usage_5m").filter((pc.field("broker") == broker) & (pc.field("direction") == way))
    numbers = {user: number for number, (user, _) in enumerate(estate.made(broker)[way].clients)}
    found = np.zeros((len(numbers), WINDOW_MS // 25_000), np.int64)
    places = [numbers[user] for user in rows["user"].to_pylist()]
    found[places, (rows["window_start"].cast(pa.int64()).to_numpy() - estate.start_ms) // WINDOW_MS] = rows["bytes"].to_numpy()
    return found


def _clients(estate: Estate, estimated: dict[tuple[int, Direction], Table], *, throttled: bool, windows: int) -> Figure:
    """As `bench.rollup_fold` measures it: against the client's mean where it was silent."""
    off = []
    for (broker, way), table in estimated.items():
        made = estate.made(broker)[way]
        told, true = (
            each[made.throttled == throttled].reshape(-1, 12 // windows, windows).sum(axis=2) for each in (table, made.bytes_of_clients)
        )
        off.append((100 * np.abs(told - true) / np.maximum(true, true.mean(axis=1, keepdims=True))).ravel())
    every = np.concatenate(off)
    span, name = "an hour" if windows == 12 else "5 minutes", "throttled" if throttled else "free"
    note = f"median {np.median(every):.1f} %, worst {every.max():.1f} %"
    bound = _STATED[throttled, windows]
    return Figure(
        f"bytes of a {name} client in {span} in the tables against the truth, p95", percentile(every.tolist(), 95), "%", bound, note
    )


def _percentiles(store: UsageStore) -> Figure:
    """The hourly table's own percentiles against the rows of five minutes: by nearest rank each is one of these rates."""
    fine = store.rows("usage_5m").group_by(["broker", "user", "client_id", "direction"]).aggregate([("bytes", "list")])
    rates = {tuple(row[name] for name in _CLIENT): sorted(row["bytes_list"]) for row in fine.to_pylist()}
    wrong = 0
    for row in store.rows("usage_1h", columns=[*_CLIENT, "p50", "p95", "p99"]).to_pylist():
        ranked = rates[tuple(row[name] for name in _CLIENT)]
        expected = [ranked[-(-len(ranked) * percent // 100) - 1] * 1000 / WINDOW_MS for percent in (50, 95, 99)]
        wrong += [row["p50"], row["p95"], row["p99"]] != expected
    return Figure("p50, p95 and p99 of the hourly table that are not the rates at their ranks", wrong, "rows", 0, f"of {len(rates):,}")


_CLIENT = ("broker", "user", "client_id", "direction")


def _sketches(estimated: dict[tuple[int, Direction], Table], quantiles: Quantiles) -> Figure:
    values = {key: np.sort(table.ravel()) * 1000 / WINDOW_MS for key, table in estimated.items()}
    note = f"{len(quantiles)} brokers and directions, {len(next(iter(values.values()))):,} rates each"
    name = "p50, p95 and p99 from merged sketches against the table's own rates, error of rank, worst"
    return Figure(name, _worst_rank_error(values, quantiles), "%", _MOST_RANK_ERROR_PERCENT, note)


def _against_truth(estate: Estate, quantiles: Quantiles) -> Figure:
    values = {
        (broker, way): np.sort(estate.made(broker)[way].bytes_of_clients.ravel()) * 1000 / WINDOW_MS for broker, way in _every(estate)
    }
    name = "p50, p95 and p99 from merged sketches against the true rates, error of rank, worst"
    return Figure(name, _worst_rank_error(values, quantiles), "%", _MOST_RANK_ERROR_PERCENT, "estimated bytes and sketches together")


def _worst_rank_error(values: dict[tuple[int, Direction], NDArray[np.float64]], quantiles: Quantiles) -> float:
    """In percent of all values: how far a told quantile stands from its rank; equal values hold all ranks between their first and last."""
    worst = 0.0
    for broker, way, *told in quantiles:
        known = next(each for (number, direction), each in values.items() if (number, direction) == (broker, way))
        for share, value in zip(_SHARES, told, strict=True):
            low, high = (int(np.searchsorted(known, value, side=side)) for side in ("left", "right"))
            worst = max(worst, 100 * (low - share * len(known)) / len(known), 100 * (share * len(known) - high) / len(known))
    return worst
