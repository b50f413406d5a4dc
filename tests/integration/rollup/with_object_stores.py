"""A store's whole life in Google's and Azure's object stores, as their emulators play them.

Not among the tests that `make test` runs: one is compiled, the other takes 190 MB of Node packages.
`make test-transports` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import object_stores
from lab.object_stores import ObjectStore
from tests.integration.rollup import store_life
from tests.integration.rollup.iceberg_life import NAMESPACE, play_iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(3600),  # the first time one of them is compiled
]


@pytest.fixture(
    scope="module", params=[object_stores.gcs, object_stores.azure], ids=["GCS", "Azure"]
)
def emulator(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    with request.param() as store:
        yield store


def test_a_stores_life(emulator: ObjectStore) -> None:
    store_life.play(UsageStore.at(emulator.address("life")))


def test_no_login_is_shown(emulator: ObjectStore) -> None:
    store = UsageStore.at(emulator.address("shown"))
    assert store.storage.shown in (
        "gs://usage/shown",
        "abfss://usage@devstoreaccount1.dfs.core.windows.net/shown",
    )


def test_killed_while_it_publishes_every_hour_is_whole(emulator: ObjectStore) -> None:
    store_life.play_kills(emulator.address("kills"), emulator.environment, 3, seed=20261124)


def test_its_iceberg_tables_are_the_stores(emulator: ObjectStore, tmp_path: Path) -> None:
    store = UsageStore.at(emulator.address("iceberg"))
    catalog = CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)
    play_iceberg(store, catalog, hours=3)
