"""A store's whole life in Google's and Azure's object stores, as their emulators play them.

Not among the tests that `make test` runs: one is compiled, the other takes 190 MB of Node packages.
`make test-transports` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from lab import object_stores
from lab.object_stores import ObjectStore
from tests.integration.rollup import store_life
from tests.integration.rollup.iceberg_life import NAMESPACE, play_iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore

pytestmark = pytest.mark.integration
STARTS = pytest.mark.parametrize(
    "start", [object_stores.gcs, object_stores.azure], ids=["GCS", "Azure"]
)


@STARTS
@pytest.mark.timeout(3600)  # the first time one of them is compiled
def test_a_stores_life(
    start: Callable[[], AbstractContextManager[ObjectStore]], tmp_path: object
) -> None:
    with start() as emulator:
        store_life.play(UsageStore.at(emulator.address("life")))
        store_life.play_kills(emulator.address("kills"), emulator.environment, 3, seed=20261124)
        store = UsageStore.at(emulator.address("iceberg"))
        assert "Eby8vdM02xNOcqFlq" not in store.storage.shown
        catalog = CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)
        play_iceberg(store, catalog, hours=4)
