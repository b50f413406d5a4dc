"""Publications that reach an Iceberg catalog, and what other readers then find there."""

from __future__ import annotations

import time
from collections.abc import Callable

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from lab.iceberg import DuckDb
from tests.unit.rollup.tables.usage import DAY, as_set, put, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables import iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, keep_up

NAMESPACE = "orders"
Sums = dict[tuple[str, str], int]


def publish(store: UsageStore, hour: int, *, seed: int) -> None:
    """The publication of this number of an hour, counted from the first day's begin."""
    at_ms = DAY + hour * HOUR_MS
    rows = usage_5m(at_ms, seed=seed)
    put(store, f"run-{hour}-{seed}", "usage_5m", rows, start_ms=at_ms, now_ms=at_ms + HOUR_MS)


def seen(catalog: CatalogSettings, store: UsageStore) -> pa.Table:
    """All rows, as pyiceberg reads them from the catalog."""
    return table_of(catalog, store).scan().to_arrow()


def table_of(catalog: CatalogSettings, store: UsageStore) -> Table:
    """The Iceberg table of clients' five minutes."""
    return iceberg.open_catalog(catalog, store).load_table(f"{catalog.namespace}.usage_5m")


def sums(rows: pa.Table) -> Sums:
    """Bytes by user and direction, added up by DuckDB."""
    connection = duckdb.connect()
    connection.register("usage", rows)
    found = connection.sql(
        'select "user", direction, sum(bytes) from usage group by all'
    ).fetchall()
    return {(user, direction): int(total) for user, direction, total in found}


def sums_in_arrow(rows: pa.Table) -> Sums:
    """The same, added up by pyarrow: DuckDB within this process answers one thread only."""
    found = rows.group_by(["user", "direction"]).aggregate([("bytes", "sum")]).to_pylist()
    return {(row["user"], row["direction"]): row["bytes_sum"] for row in found}


def sums_in_duckdb(reader: DuckDb, catalog: CatalogSettings, where: str = "true") -> Sums:
    """The same, read by DuckDB from the REST catalog that it has attached as `lake`."""
    table = f"lake.{catalog.namespace}.usage_5m"
    asked = f'select "user", direction, sum(bytes)::bigint from {table} where {where} group by all'
    return {(user, direction): total for user, direction, total in reader.ask(asked)}


def play_iceberg(
    store: UsageStore,
    catalog: CatalogSettings,
    *,
    hours: int,
    others: Callable[[], Sums] | None = None,
) -> None:
    """Hourly publications, each of which publishes the two hours before again, and their upkeep.

    AssertionError where the catalog's tables, as pyiceberg and as `others` read them, are not the
    store's after each fourth of them.
    """
    for hour in range(hours):
        for late in range(max(0, hour - 2), hour + 1):
            publish(store, late, seed=hour)
        now_ms = DAY + (hour + 1) * HOUR_MS
        keep_up(
            store,
            Retention(),
            run_id=f"upkeep-{hour}",
            now_ms=now_ms,
            before_sweep=lambda: bool(iceberg.update(store, catalog, now_ms=_now_ms())),
        )
        if hour % 4 != 3 and hour != hours - 1:
            continue
        found = seen(catalog, store)
        assert found.num_rows == (hour + 1) * usage_5m(DAY).num_rows
        expected = sums(store.rows("usage_5m"))
        assert sums(found) == expected, f"after hour {hour}"
        assert others is None or others() == expected, f"after hour {hour}"
    # nothing was written again: what Iceberg names are the store's own files
    table = table_of(catalog, store)
    named = {task.file.file_path.partition("/usage_5m/")[2] for task in table.scan().plan_files()}
    own = {one.partition("/usage_5m/")[2] for one in store.files("usage_5m")}
    assert named == own
    assert as_set(seen(catalog, store)) == as_set(
        store.rows("usage_5m").select(seen(catalog, store).schema.names)
    )
    assert len(table.snapshots()) == hours


def _now_ms() -> int:
    return int(time.time() * 1000)


LONG_AFTER_MS = 2 * DAY_MS
