"""Rows of the usage tables that add up: a few brokers and users, every number from the window and a
seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.rollup.schemas import DIRECTIONS, FIVE_MINUTES_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.format import Manifest
from tidegate.rollup.tables.publication import Publication, StagedFile, publish, stage
from tidegate.rollup.tables.store import UsageStore

DAY = 1_795_219_200_000  # 2026-11-21T00:00:00Z
OF_NOBODY = {"cluster": "", "policy": ""}
USERS = ("", "etl", "web")
Row = dict[str, Any]


def usage_5m(
    start_ms: int, *, seed: int = 0, brokers: Sequence[int] = (1, 2), windows: int = 2
) -> pa.Table:
    """Five-minute rows from `start_ms` on; another seed = other bytes, such as late samples
    bring.
    """
    rows = [
        _usage_row(start_ms + number * FIVE_MINUTES_MS, broker, user, direction, seed=seed)
        for number in range(windows)
        for broker in brokers
        for user in USERS
        for direction in DIRECTIONS
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["usage_5m"].schema)


def _usage_row(at_ms: int, broker: int, user: str, direction: str, *, seed: int) -> Row:
    number = (
        at_ms // FIVE_MINUTES_MS * 31 + broker * 7 + len(user) * 3 + len(direction) + seed
    ) % 1000
    return {
        **OF_NOBODY,
        "window_start": at_ms,
        "broker": broker,
        "user": user,
        "client_id": f"{user}-app",
        "direction": direction,
        "bytes": 2**40 + number,
        "peak_rate": float(number),
        "throttled_seconds": float(number % 5),
        "over_contract_seconds": 0.0,
        "deferred_bytes": number,
        "samples": 20,
        "coverage": 1.0,
        "calibration": None if user == "" else 1.01,
    }


def brokers_of(usage: pa.Table, table: str = "broker_5m", *, unattributed: int = 5) -> pa.Table:
    """What the brokers' own counters say where users used this: their bytes and a remainder."""
    sums: dict[tuple[Any, ...], int] = {}
    for row in usage.select(["window_start", "broker", "direction", "bytes"]).to_pylist():
        key = (row["window_start"], row["broker"], row["direction"])
        sums[key] = sums.get(key, 0) + row["bytes"]
    rows = [
        {
            **OF_NOBODY,
            **dict(zip(("window_start", "broker", "direction"), key, strict=True)),
            "nic_bytes": total + unattributed + 10,
            "client_bytes": total + unattributed,
            "replication_bytes": 3,
            "unattributed_bytes": unattributed,
            "limit": None,
            "over_limit_seconds": 0.0,
        }
        for key, total in sums.items()
    ]
    return pa.Table.from_pylist(rows, schema=TABLES[table].schema)


def coarser(rows: pa.Table, table: str, *, fill: Mapping[str, Any] = {}) -> pa.Table:
    """Rows added up to the windows of `table`; `fill` has the columns that the finer table
    lacks.
    """
    kind = TABLES[table]
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows.to_pylist():
        at_ms = int(row["window_start"].timestamp() * 1000)
        full = {**fill, **row, "window_start": at_ms - at_ms % kind.window_ms}
        key = tuple(full[name] for name in kind.key)
        total = sums.setdefault(
            key,
            {name: full[name] for name in kind.schema.names}
            | dict.fromkeys(_added(kind.schema.names), 0),
        )
        for name in _added(kind.schema.names):
            total[name] += full[name]
    return pa.Table.from_pylist(list(sums.values()), schema=kind.schema)


def _added(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(("bytes", "_seconds")) or name == "samples"]


NO_PERCENTILES: Mapping[str, Any] = {"p50": None, "p95": None, "p99": None, "sketch": None}
IN_NO_TIER: Mapping[str, Any] = {"tier": "", **NO_PERCENTILES}


def staged(
    store: UsageStore, run_id: str, table: str, rows: pa.Table, *, tasks: int = 2
) -> list[StagedFile]:
    """Rows as several workers hand them over, not in order."""
    pieces = [
        rows.slice(number, None).take(list(range(0, rows.num_rows - number, tasks)))
        for number in range(min(tasks, rows.num_rows))
    ]
    return [
        file
        for part, piece in enumerate(reversed(pieces))
        for file in stage(store, run_id, table, piece, part=part)
    ]


def put(
    store: UsageStore,
    run_id: str,
    table: str,
    rows: pa.Table,
    *,
    start_ms: int,
    now_ms: int,
    **more: Any,
) -> Manifest:
    """Stage and publish one window."""
    files = staged(store, run_id, table, rows)
    publication = Publication(
        table=table, window_start_ms=start_ms, run_id=run_id, staged=files, **more
    )
    return publish(store, publication, now_ms=now_ms)


def put_hours(
    store: UsageStore,
    run_id: str,
    *,
    hours: Iterable[int],
    now_ms: int,
    seed: int = 0,
    day_ms: int = DAY,
    windows: int = 2,
) -> None:
    """Five-minute usage of some hours of a day."""
    for hour in hours:
        at_ms = day_ms + hour * HOUR_MS
        put(
            store,
            run_id,
            "usage_5m",
            usage_5m(at_ms, seed=seed, windows=windows),
            start_ms=at_ms,
            now_ms=now_ms,
            source="made up",
        )


def as_set(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows without their order, for comparing."""
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)
