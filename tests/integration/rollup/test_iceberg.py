"""The Iceberg tables beside the store: what others read there is what the store says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.object_stores import iceberg_reader
from tests.integration.rollup.iceberg_life import (
    LONG_AFTER_MS,
    NAMESPACE,
    TABLE,
    play_iceberg,
    publish,
    seen,
    sums,
)
from tests.unit.rollup.tables.usage import DAY, as_set, put, usage_5m
from tidegate.errors import InvalidResource, Unreachable
from tidegate.rollup.fold.hours import usage_hour
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES, USAGE_5M
from tidegate.rollup.tables import iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, Swept, compact_days, keep_up, retire

pytestmark = pytest.mark.integration


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    return UsageStore.at(str(tmp_path / "usage"))


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogSettings:
    return CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.timeout(1500)
def test_after_48_hourly_publications_all_readers_have_the_stores_sums(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    """Each of them publishes the two hours before anew; two days are put together meanwhile."""
    play_iceberg(store, catalog, hours=48)


def test_duckdbs_own_reader_of_iceberg_has_the_stores_sums(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    """DuckDB reads Iceberg's files by itself, without a line of Python of ours or of pyiceberg's."""
    for hour in range(3):
        publish(store, hour, seed=0)
    publish(store, 1, seed=1)
    iceberg.update(store, catalog, now_ms=now_ms())
    table = iceberg.open_catalog(catalog, store).load_table(TABLE)
    asked = (
        'select "user", direction, sum(bytes)::bigint from iceberg_scan(\''
        f"{table.metadata_location.removeprefix('file://')}') {{}} group by all order by all"
    )
    at_one = (
        "where window_start >= '2026-11-21 01:00:00Z' and window_start < '2026-11-21 02:00:00Z'"
    )
    script = (
        "import duckdb, sys\n"
        "connection = duckdb.connect()\n"
        "connection.sql(\"set timezone = 'UTC'\")\n"
        "for folder in sys.argv[1].split(','):\n"
        "    connection.sql(f\"load '{folder}'\")\n"
        "for question in sys.argv[2:]:\n"
        "    print(connection.sql(question).fetchall())\n"
    )
    packages, extensions = iceberg_reader()
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            ",".join(map(str, extensions)),
            asked.format(""),
            asked.format(at_one),
        ],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    whole, hour = (
        {(user, direction): total for user, direction, total in eval(line)}
        for line in answer.stdout.splitlines()
    )
    assert whole == sums(store.rows("usage_5m"))
    assert hour == sums(usage_5m(DAY + HOUR_MS, seed=1))


def test_a_reader_sees_an_hour_as_it_was_or_as_it_is_and_never_both(
    store: UsageStore, catalog: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at every call that the update makes to the catalog."""
    publish(store, 0, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    publish(store, 0, seed=1)
    old, new = sums(usage_5m(DAY, seed=0)), sums(usage_5m(DAY, seed=1))
    looks: list[object] = [sums(seen(catalog, store))]

    def looking(commit: Callable[..., object]) -> Callable[..., object]:
        def look(*given: object, **named: object) -> object:
            looks.append(sums(seen(catalog, store)))
            done = commit(*given, **named)
            looks.append(sums(seen(catalog, store)))
            return done

        return look

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFileIO

    monkeypatch.setattr(SqlCatalog, "commit_table", looking(SqlCatalog.commit_table))
    monkeypatch.setattr(PyArrowFileIO, "new_output", _before(looks, catalog, store))
    iceberg.update(store, catalog, now_ms=now_ms())
    assert [one for one in looks if one not in (old, new)] == []
    assert looks[0] == old
    assert looks[-1] == new
    table = iceberg.open_catalog(catalog, store).load_table(TABLE)
    snapshots = [
        sums(table.scan(snapshot_id=one.snapshot_id).to_arrow()) for one in table.snapshots()
    ]
    assert snapshots == [old, new]


def _before(
    looks: list[object], catalog: CatalogSettings, store: UsageStore
) -> Callable[..., object]:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    original = PyArrowFileIO.new_output

    def look(self: PyArrowFileIO, location: str) -> object:
        looks.append(sums(seen(catalog, store)))
        return original(self, location)

    return look


def test_what_an_update_missed_the_next_one_finds(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    publish(store, 0, seed=0)
    publish(store, 1, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    publish(store, 0, seed=1)  # and the run was killed
    publish(store, 2, seed=0)
    assert iceberg.update(store, catalog, now_ms=now_ms()) == ["usage_5m"]
    assert as_set(seen(catalog, store)) == as_set(store.rows("usage_5m"))
    assert iceberg.update(store, catalog, now_ms=now_ms()) == []


def test_a_day_with_rows_that_count_no_more_is_taken_once_it_is_put_together_again(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    late_ms = DAY + DAY_MS + 6 * HOUR_MS
    for hour in range(3):
        publish(store, hour, seed=0)
    compact_days(store, "usage_5m", before_ms=late_ms, run_id="day", now_ms=late_ms)
    iceberg.update(store, catalog, now_ms=now_ms())
    before = sums(store.rows("usage_5m"))
    publish(store, 1, seed=1)
    assert iceberg.update(store, catalog, now_ms=now_ms()) == []
    assert sums(seen(catalog, store)) == before
    compact_days(store, "usage_5m", before_ms=late_ms, run_id="again", now_ms=late_ms)
    assert iceberg.update(store, catalog, now_ms=now_ms()) == ["usage_5m"]
    assert sums(seen(catalog, store)) == sums(store.rows("usage_5m")) != before


def test_windows_out_of_retention_are_gone_and_days_without_usage_are_nothing(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    publish(store, 0, seed=0)
    publish(store, 24 * 3, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    retire(store, Retention(five_minutes_days=1), run_id="r", now_ms=DAY + 3 * DAY_MS)
    iceberg.update(store, catalog, now_ms=now_ms())
    assert as_set(seen(catalog, store)) == as_set(usage_5m(DAY + 3 * DAY_MS))


def test_snapshots_end_before_the_files_that_they_name(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    for seed in range(4):
        publish(store, 0, seed=seed)
        iceberg.update(store, catalog, now_ms=now_ms())
    folder = store.storage.address("_iceberg")
    before = sum(len(files) for _, _, files in os.walk(folder))
    iceberg.update(store, catalog, now_ms=now_ms() + LONG_AFTER_MS)
    table = iceberg.open_catalog(catalog, store).load_table(TABLE)
    assert len(table.snapshots()) == 1
    assert sums(seen(catalog, store)) == sums(usage_5m(DAY, seed=3))
    # three lists, and the manifests that only they named
    assert sum(len(files) for _, _, files in os.walk(folder)) < before


def test_a_catalog_that_is_away_changes_nothing_and_keeps_old_files(
    store: UsageStore, tmp_path: Path
) -> None:
    away = CatalogSettings("sql", f"sqlite:///{tmp_path}/no/such/folder/catalog.db", NAMESPACE)
    publish(store, 0, seed=0)
    publish(store, 0, seed=1)
    with pytest.raises(Unreachable) as refused:
        iceberg.update(store, away, now_ms=now_ms())
    assert "catalog of type sql" in refused.value.message
    done = keep_up(
        store,
        Retention(),
        run_id="upkeep",
        now_ms=now_ms() + LONG_AFTER_MS,
        before_sweep=lambda: False,
    )
    assert done.swept == Swept(0, 0, 0, 0)


def test_a_table_of_an_older_version_gets_the_columns_that_it_lacks(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    kind, opened = TABLES["usage_5m"], iceberg.open_catalog(catalog, store)
    opened.create_namespace(NAMESPACE)
    older = replace(kind, schema=kind.schema.remove(kind.schema.get_field_index("coverage")))
    iceberg._table(opened, store, older, NAMESPACE)
    publish(store, 0, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    found = seen(catalog, store)
    assert as_set(found.select(kind.schema.names)) == as_set(store.rows("usage_5m"))


def test_sketches_of_hours_are_maps_for_other_readers(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    fine = usage_5m(DAY, brokers=(1,), windows=12).select(USAGE_5M.names)
    order = ("user", "client_id", "direction", "window_start")
    rows = usage_hour(fine.sort_by([(name, "ascending") for name in order]), {})
    put(store, "a", "usage_1h", rows, start_ms=DAY, now_ms=DAY + DAY_MS)
    iceberg.update(store, catalog, now_ms=now_ms())
    table = iceberg.open_catalog(catalog, store).load_table(f"{NAMESPACE}.usage_1h")
    keys = [(name, "ascending") for name in order[:3]]
    found, expected = (
        one.sort_by(keys)["sketch"].to_pylist()
        for one in (table.scan().to_arrow(), store.rows("usage_1h"))
    )
    assert found == expected
    assert all(sum(count for _, count in one) == 12 for one in found)


def test_time_that_was_let_go_while_no_catalog_was_told_goes_with_the_next_update(
    store: UsageStore, catalog: CatalogSettings
) -> None:
    publish(store, 0, seed=0)
    publish(store, 24 * 3, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    store.storage.delete_folder("_manifests/usage_5m")
    assert iceberg.update(store, catalog, now_ms=now_ms()) == []  # an empty store says nothing
    assert seen(catalog, store).num_rows == 2 * usage_5m(DAY).num_rows
    publish(store, 24 * 3, seed=0)
    assert iceberg.update(store, catalog, now_ms=now_ms()) == ["usage_5m"]
    assert as_set(seen(catalog, store)) == as_set(usage_5m(DAY + 3 * DAY_MS))


def test_two_stores_never_share_a_namespace(
    store: UsageStore, catalog: CatalogSettings, tmp_path: Path
) -> None:
    other = UsageStore.at(str(tmp_path / "other"))
    publish(store, 0, seed=0)
    publish(other, 0, seed=1)
    iceberg.update(store, catalog, now_ms=now_ms())
    with pytest.raises(InvalidResource) as refused:
        iceberg.update(other, catalog, now_ms=now_ms())
    assert str(tmp_path / "usage") in refused.value.message
    assert sums(seen(catalog, store)) == sums(usage_5m(DAY, seed=0))
