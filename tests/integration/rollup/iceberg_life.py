"""Publications that are told to an Iceberg catalog, and what other readers then find there."""

from __future__ import annotations

import time

import duckdb
import pyarrow as pa

from tests.unit.rollup.tables.usage import DAY, as_set, put, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables import iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, keep_up

NAMESPACE = "orders"
TABLE = f"{NAMESPACE}.usage_5m"
Sums = dict[tuple[str, str], int]


def publish(store: UsageStore, hour: int, *, seed: int) -> None:
    """The publication of this number of an hour, counted from the first day's begin."""
    at_ms = DAY + hour * HOUR_MS
    rows = usage_5m(at_ms, seed=seed)
    put(store, f"run-{hour}-{seed}", "usage_5m", rows, start_ms=at_ms, now_ms=at_ms + HOUR_MS)


def seen(catalog: CatalogSettings, store: UsageStore) -> pa.Table:
    """All rows, as pyiceberg reads them from the catalog."""
    return iceberg.open_catalog(catalog, store).load_table(TABLE).scan().to_arrow()


def sums(rows: pa.Table) -> Sums:
    """Bytes by user and direction, added up by DuckDB."""
    connection = duckdb.connect()
    connection.register("usage", rows)
    found = connection.sql(
        'select "user", direction, sum(bytes) from usage group by all'
    ).fetchall()
    return {(user, direction): int(total) for user, direction, total in found}


def play_iceberg(store: UsageStore, catalog: CatalogSettings, *, hours: int) -> None:
    """Hourly publications, each of which publishes the two hours before anew, and their upkeep.

    AssertionError where the catalog's tables are not the store's after each fourth of them.
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
        assert sums(found) == sums(store.rows("usage_5m")), f"after hour {hour}"
    # nothing was written again: what Iceberg names are the store's own files
    table = iceberg.open_catalog(catalog, store).load_table(TABLE)
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
