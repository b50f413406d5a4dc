"""A store's whole life in Google's and Azure's object stores, as their emulators play them.

Not among the tests that `make test` runs: one is compiled, the other takes 190 MB of Node packages.
`make test-transports` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import object_stores
from lab.object_stores import BUCKET, ObjectStore
from tests.integration.rollup import store_life
from tests.integration.rollup.iceberg_life import NAMESPACE, play_iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.storage import Storage
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


def store_at(emulator: ObjectStore, prefix: str) -> UsageStore:
    """Opened as the product opens it, where an address is enough for that."""
    address = emulator.address(prefix)
    if emulator.files is None:
        return UsageStore.at(address)
    return UsageStore(Storage(emulator.files, f"{BUCKET}/{prefix}", shown=address))


def test_a_stores_life(emulator: ObjectStore) -> None:
    store_life.play(store_at(emulator, "life"))


@pytest.fixture
def addressed(emulator: ObjectStore) -> ObjectStore:
    """One that other processes can open, too."""
    if emulator.files is not None:
        pytest.skip("it is opened by a key, which no address has")
    return emulator


def test_no_login_is_shown(addressed: ObjectStore) -> None:
    assert UsageStore.at(addressed.address("shown")).storage.shown == "gs://usage/shown"


def test_killed_while_it_publishes_every_hour_is_whole(addressed: ObjectStore) -> None:
    store_life.play_kills(addressed.address("kills"), addressed.environment, 3, seed=20261124)


def test_its_iceberg_tables_are_the_stores(addressed: ObjectStore, tmp_path: Path) -> None:
    store = UsageStore.at(addressed.address("iceberg"))
    catalog = CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)
    play_iceberg(store, catalog, hours=3)
