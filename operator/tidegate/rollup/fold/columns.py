"""A fold -> Arrow tables with exactly the columns of the usage tables, in the order in which they are stored."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.rollup.fold.arrow_arrays import array_of, nullable_array_of, strings_of
from tidegate.rollup.fold.broker import BrokerFold, DirectionFold
from tidegate.rollup.fold.course import Rate, rates_at
from tidegate.rollup.fold.gauges import Client
from tidegate.rollup.fold.windows import WINDOW_MS
from tidegate.rollup.schemas import BROKER, USAGE_5M, Direction

_WINDOW = pa.timestamp("ms", tz="UTC")
_Rows = NDArray[np.int64]


def usage_table(fold: BrokerFold) -> pa.Table:
    """Rows of `usage_5m`: each client in each window in which it was told of, by user, client id, direction and window."""
    clients = tuple(sorted({client for one in fold.directions.values() for client in one.clients}))
    parts = [_usage_of(fold, direction, clients) for direction in sorted(fold.directions)]
    order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
    return pa.concat_tables([table for _, table in parts]).combine_chunks().take(array_of(order, pa.int64())).cast(USAGE_5M)


def _usage_of(fold: BrokerFold, direction: Direction, clients: tuple[Client, ...]) -> tuple[_Rows, pa.Table]:
    """The rows of one direction, and each row's client as a number among `clients`, which are sorted."""
    one = fold.directions[direction]
    told = one.told
    row, window = np.nonzero((told.samples > 0) | (told.thousandths_of_bytes > 0) | (told.throttled_ms > 0))
    numbers = {client: number for number, client in enumerate(clients)}
    places = np.array([numbers[client] for client in one.clients], np.int64)[row]
    names = array_of(row, pa.int64())
    return places, pa.table(
        {
            **_where(fold, direction, window),
            "user": strings_of([user for user, _ in one.clients]).take(names),
            "client_id": strings_of([client_id for _, client_id in one.clients]).take(names),
            "bytes": array_of(one.traffic.bytes_of_clients[row, window], pa.int64()),
            "peak_rate": array_of(told.peak_bytes_per_second[row, window], pa.float64()),
            "throttled_seconds": array_of(told.throttled_ms[row, window] / 1000, pa.float64()),
            "over_contract_seconds": array_of(told.over_contract_ms[row, window] / 1000, pa.float64()),
            "deferred_bytes": array_of((told.deferred_thousandths[row, window] + 500) // 1000, pa.int64()),
            "samples": array_of(told.samples[row, window].astype(np.int32), pa.int32()),
            "coverage": array_of(one.scraped_ms[window] / WINDOW_MS, pa.float64()),
            "calibration": nullable_array_of(one.traffic.factor[window]),
        }
    ).select(USAGE_5M.names)


def broker_table(fold: BrokerFold) -> pa.Table:
    """Rows of `broker_5m`: each direction in each window of which anything is known, by direction and window. Unknown bytes are 0."""
    return pa.concat_tables([_broker_of(fold, direction) for direction in sorted(fold.directions)]).combine_chunks().cast(BROKER)


def _broker_of(fold: BrokerFold, direction: Direction) -> pa.Table:
    one = fold.directions[direction]
    window = np.flatnonzero((one.card.covered_ms > 0) | (one.replication.covered_ms > 0) | _is_traffic_known(one))
    return pa.table(
        {
            **_where(fold, direction, window),
            "nic_bytes": array_of(one.card.counted_bytes[window], pa.int64()),
            "client_bytes": array_of(one.traffic.client_bytes[window], pa.int64()),
            "replication_bytes": array_of(one.replication.counted_bytes[window], pa.int64()),
            "unattributed_bytes": array_of(one.traffic.unattributed_bytes[window], pa.int64()),
            "limit": _limits(one.limit, fold.windows.edges_ms[1:][window] - 1),
            "over_limit_seconds": array_of(one.card.over_limit_ms[window] / 1000, pa.float64()),
        }
    ).select(BROKER.names)


def _is_traffic_known(one: DirectionFold) -> NDArray[np.bool_]:
    return (one.scraped_ms > 0) | (one.traffic.client_bytes > 0)


def _limits(limit: Rate | None, at_ms: _Rows) -> pa.Array:
    """The limit in force at the end of each window."""
    rates = rates_at(limit, at_ms)
    return pa.array(np.where(np.isfinite(rates), rates, 0).astype(np.int64), pa.int64(), mask=~np.isfinite(rates))


def _where(fold: BrokerFold, direction: Direction, window: _Rows) -> dict[str, pa.Array]:
    return {
        "window_start": array_of(fold.windows.starts_ms[window], _WINDOW),
        "broker": array_of(np.full(len(window), fold.broker, np.int32), pa.int32()),
        "direction": strings_of([direction]).take(array_of(np.zeros_like(window), pa.int64())),
    }
