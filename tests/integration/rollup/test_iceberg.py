"""The Iceberg tables beside the store: what others read there is what the store says."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from lab.cache import RunDirectory
from lab.iceberg import RestCatalog, open_duckdb
from lab.process import freeze, patience, wait_until
from tests.integration.rollup.catalog_gate import CatalogGate
from tests.integration.rollup.iceberg_life import (
    LONG_AFTER_MS,
    NAMESPACE,
    Sums,
    play_iceberg,
    publish,
    seen,
    sums,
    sums_in_arrow,
    sums_in_duckdb,
    table_of,
)
from tests.unit.rollup.tables.usage import DAY, as_set, put, usage_5m
from tidegate.errors import InvalidResource, Unreachable
from tidegate.rollup.fold.hours import usage_hour
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES, USAGE_5M
from tidegate.rollup.tables import iceberg, iceberg_files
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, Swept, compact_days, keep_up, retire

pytestmark = pytest.mark.integration


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    return UsageStore.at(str(tmp_path / "usage"))


@pytest.fixture(scope="module")
def service() -> Iterator[RestCatalog]:
    """A REST catalog that runs; each test has a namespace of its own in it."""
    with RunDirectory() as run, RestCatalog(run.path / "catalog") as rest:
        yield rest


@pytest.fixture
def database(tmp_path: Path) -> CatalogSettings:
    return CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)


@pytest.fixture
def rest(service: RestCatalog) -> CatalogSettings:
    return CatalogSettings("rest", service.uri, f"orders_{uuid.uuid4().hex[:8]}")


@pytest.fixture(params=["database", "rest"])
def catalog(request: pytest.FixtureRequest) -> CatalogSettings:
    """Either of them."""
    found: CatalogSettings = request.getfixturevalue(request.param)
    return found


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_after_48_hourly_publications_all_readers_have_the_stores_sums(
    store: UsageStore, rest: CatalogSettings
) -> None:
    """Each of them publishes the two hours before again; two days are put together meanwhile."""
    with open_duckdb() as reader:
        reader.attach(rest.uri)
        play_iceberg(store, rest, hours=48, others=lambda: sums_in_duckdb(reader, rest))
        assert sums_in_duckdb(reader, rest, AT_ONE) == sums(usage_5m(DAY + HOUR_MS, seed=3))


@pytest.mark.timeout(1500)
def test_a_day_and_an_hour_in_a_database_have_the_stores_sums(
    store: UsageStore, database: CatalogSettings
) -> None:
    play_iceberg(store, database, hours=25)


def test_duckdbs_own_reader_of_iceberg_has_the_stores_sums(
    store: UsageStore, database: CatalogSettings
) -> None:
    """DuckDB reads Iceberg's files by itself, without a line of Python of ours or of pyiceberg's."""
    for hour in range(3):
        publish(store, hour, seed=0)
    publish(store, 1, seed=1)
    iceberg.update(store, database, now_ms=now_ms())
    file = table_of(database, store).metadata_location.removeprefix("file://")
    asked = (
        'select "user", direction, sum(bytes)::bigint from iceberg_scan(\'' + file + "') "
        "where {} group by all"
    )
    with open_duckdb() as reader:
        whole, hour_one = (
            {(user, direction): total for user, direction, total in reader.ask(asked.format(part))}
            for part in ("true", AT_ONE)
        )
    assert whole == sums(store.rows("usage_5m"))
    assert hour_one == sums(usage_5m(DAY + HOUR_MS, seed=1))


AT_ONE = "window_start >= '2026-11-21 01:00:00Z' and window_start < '2026-11-21 02:00:00Z'"


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

    from pyiceberg.io.pyarrow import PyArrowFileIO

    kind = type(iceberg.open_catalog(catalog, store))
    monkeypatch.setattr(kind, "commit_table", looking(kind.commit_table))
    monkeypatch.setattr(PyArrowFileIO, "new_output", _before(looks, catalog, store))
    iceberg.update(store, catalog, now_ms=now_ms())
    assert [one for one in looks if one not in (old, new)] == []
    assert looks[0] == old
    assert looks[-1] == new
    table = table_of(catalog, store)
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


def test_readers_in_the_middle_of_publications_see_one_of_them(
    store: UsageStore, rest: CatalogSettings
) -> None:
    """pyiceberg and DuckDB read all the time while an hour is published again and again."""
    rounds = 6
    publish(store, 0, seed=0)
    iceberg.update(store, rest, now_ms=now_ms())
    expected = [sums(usage_5m(DAY, seed=seed)) for seed in range(rounds + 1)]
    over, answers = threading.Event(), {"pyiceberg": [expected[0]], "DuckDB": [expected[0]]}

    def read_on(name: str, read: Callable[[], Sums]) -> None:
        while not over.is_set():
            answers[name].append(read())
        answers[name].append(read())

    def read_again(before: Mapping[str, int]) -> bool:
        return all(len(answers[name]) > count for name, count in before.items())

    with open_duckdb() as reader, ThreadPoolExecutor(2) as readers:
        reader.attach(rest.uri)
        asked = [
            readers.submit(read_on, "pyiceberg", lambda: sums_in_arrow(seen(rest, store))),
            readers.submit(read_on, "DuckDB", lambda: sums_in_duckdb(reader, rest)),
        ]
        try:
            for seed in range(1, rounds + 1):
                before = {name: len(found) for name, found in answers.items()}
                publish(store, 0, seed=seed)
                iceberg.update(store, rest, now_ms=now_ms())
                wait_until(
                    partial(read_again, before),
                    "both readers to have read meanwhile",
                    timeout_seconds=60,
                )
        finally:
            over.set()
        for one in asked:
            one.result(timeout=patience(60))
    for name, found in answers.items():
        assert [one for one in found if one not in expected] == [], name
        order = [expected.index(one) for one in found]
        assert order == sorted(order), f"{name} went back"
        assert order[-1] == rounds


def test_two_runs_that_commit_at_once_leave_what_the_store_says(
    store: UsageStore, catalog: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run commits between the look of the first at the table and its commit."""
    publish(store, 0, seed=0)
    iceberg.update(store, catalog, now_ms=now_ms())
    publish(store, 0, seed=1)
    kind = type(iceberg.open_catalog(catalog, store))
    commit, refused = kind.commit_table, []

    def late(*given: object, **named: object) -> object:
        monkeypatch.setattr(kind, "commit_table", commit)
        publish(store, 1, seed=0)
        assert iceberg.update(store, catalog, now_ms=now_ms()) == ["usage_5m"]
        try:
            return commit(*given, **named)
        except CommitFailedException as error:
            refused.append(error)
            raise

    monkeypatch.setattr(kind, "commit_table", late)
    assert iceberg.update(store, catalog, now_ms=now_ms()) == []  # nothing was left to do
    assert len(refused) == 1
    assert as_set(seen(catalog, store)) == as_set(store.rows("usage_5m"))
    assert len(table_of(catalog, store).snapshots()) == 2


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
    table = table_of(catalog, store)
    assert len(table.snapshots()) == 1
    assert sums(seen(catalog, store)) == sums(usage_5m(DAY, seed=3))
    # three lists, and the manifests that only they named
    assert sum(len(files) for _, _, files in os.walk(folder)) < before


def test_a_service_that_was_away_is_brought_up_to_the_store_when_it_is_back(
    store: UsageStore, rest: CatalogSettings, service: RestCatalog
) -> None:
    publish(store, 0, seed=0)
    iceberg.update(store, rest, now_ms=now_ms())
    publish(store, 0, seed=1)
    service.process.kill()
    try:
        with pytest.raises(Unreachable) as refused:
            iceberg.update(store, rest, now_ms=now_ms())
    finally:
        service.restart()
    assert "catalog of type rest" in refused.value.message
    assert sums(seen(rest, store)) == sums(usage_5m(DAY, seed=0))
    assert iceberg.update(store, rest, now_ms=now_ms()) == ["usage_5m"]
    assert sums(seen(rest, store)) == sums(usage_5m(DAY, seed=1))


@pytest.mark.parametrize("login", [{}, {"ICEBERG_CREDENTIAL": "tidegate:the-secret"}])
def test_a_service_that_takes_connections_and_never_answers_is_given_up(
    store: UsageStore,
    login: Mapping[str, str],
    service: RestCatalog,
    rest: CatalogSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in login.items():
        monkeypatch.setenv(name, value)
    publish(store, 0, seed=0)
    freeze(service.process.pid)
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(iceberg_files, "ANSWER_WITHIN_SECONDS", (0.5, 0.5))
            with pytest.raises(Unreachable) as refused:
                iceberg.update(store, rest, now_ms=now_ms())
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    assert "imed out" in refused.value.message
    assert iceberg.update(store, rest, now_ms=now_ms()) == ["usage_5m"]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    store: UsageStore, rest: CatalogSettings
) -> None:
    publish(store, 0, seed=0)
    iceberg.update(store, rest, now_ms=now_ms())
    publish(store, 0, seed=1)
    with CatalogGate(rest.uri) as gate:
        through = replace(rest, uri=gate.uri)
        gate.lose_answers_to_commits = True
        with pytest.raises(Unreachable):
            iceberg.update(store, through, now_ms=now_ms())
        gate.lose_answers_to_commits = False
        assert sums(seen(rest, store)) == sums(usage_5m(DAY, seed=1))
        assert iceberg.update(store, through, now_ms=now_ms()) == []
    assert len(table_of(rest, store).snapshots()) == 2


@pytest.mark.parametrize(
    "login",
    [
        {"ICEBERG_TOKEN": "the-token"},
        {"ICEBERG_CREDENTIAL": "tidegate:the-secret", "ICEBERG_SCOPE": "PRINCIPAL_ROLE:ALL"},
    ],
    ids=["token", "credential"],
)
def test_a_service_that_asks_for_a_login_gets_it_and_no_message_has_it(
    store: UsageStore,
    rest: CatalogSettings,
    login: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(store, 0, seed=0)
    with CatalogGate(rest.uri, token="the-token", secret="the-secret") as gate:
        asked = replace(rest, uri=gate.uri, warehouse="lake")
        with pytest.raises(Unreachable) as refused:
            iceberg.update(store, asked, now_ms=now_ms())
        assert "Unauthorized" in refused.value.message
        for name in login:
            monkeypatch.setenv(name, "tidegate:wrong-one")
        with pytest.raises(Unreachable) as refused:
            iceberg.update(store, asked, now_ms=now_ms())
        assert "wrong-one" not in refused.value.message
        for name, value in login.items():
            monkeypatch.setenv(name, value)
        assert iceberg.update(store, asked, now_ms=now_ms()) == ["usage_5m"]
        assert "lake" in gate.warehouses
        asked_for = [login["ICEBERG_SCOPE"]] if "ICEBERG_SCOPE" in login else []
        assert gate.scopes[-1:] == asked_for
    assert as_set(seen(rest, store)) == as_set(store.rows("usage_5m"))


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
    opened.create_namespace(catalog.namespace)
    older = replace(kind, schema=kind.schema.remove(kind.schema.get_field_index("coverage")))
    iceberg._table(opened, store, older, catalog.namespace)
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
    table = iceberg.open_catalog(catalog, store).load_table(f"{catalog.namespace}.usage_1h")
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
