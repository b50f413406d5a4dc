"""A store's whole life in S3, as moto plays it; GCS and Azure are in `with_object_stores.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import object_stores
from lab.object_stores import ObjectStore
from tests.integration.rollup import closing_race, store_life
from tests.integration.rollup.iceberg_life import NAMESPACE, play_iceberg
from tidegate.resources.rollup import RollupStorage
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStore]:
    with object_stores.s3() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store


def test_a_stores_life(s3: ObjectStore) -> None:
    store_life.play(UsageStore.at(s3.address("life")))


def test_the_fields_of_a_policy_reach_the_same_bucket_without_variables(
    s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UsageStore.at(s3.address("fields"))
    store_life.publish_hour(store, "first", 0, seed=0)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    given = RollupStorage.model_validate(
        {"url": "s3://usage/fields", "endpoint": s3.endpoint, "region": "eu-central-1"}
    )
    assert store_life.hour_in(UsageStore.at(given.address), 0) == store_life.hour_in(store, 0)
    assert UsageStore.at(given.address).storage.shown == "s3://usage/fields"


def test_its_iceberg_tables_are_the_stores_at_a_policys_endpoint(
    s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    given = RollupStorage.model_validate(
        {"url": "s3://usage/iceberg", "endpoint": s3.endpoint, "region": "us-east-1"}
    )
    catalog = CatalogSettings("sql", f"sqlite:///{tmp_path}/catalog.db", NAMESPACE)
    play_iceberg(UsageStore.at(given.address), catalog, hours=3)


@pytest.mark.timeout(600)
def test_of_processes_that_close_a_month_at_the_same_time_one_does(
    s3: ObjectStore, tmp_path: Path
) -> None:
    """A bucket has claims beside the file, a disk has a second name for it."""
    closing_race.play([s3.address(f"race-{number}") for number in range(8)], s3.environment)
    closing_race.play([f"file://{tmp_path}/race-{number}" for number in range(8)], {})


@pytest.mark.long
@pytest.mark.timeout(3600)  # make store-kills plays a hundred
def test_killed_while_it_publishes_every_hour_is_whole(s3: ObjectStore) -> None:
    kills = int(os.environ.get("STORE_KILLS", "3"))
    seed = int(os.environ.get("STORE_KILLS_SEED") or "20261124")
    print(f"{kills} kills, seed {seed}")
    print(store_life.play_kills(s3.address("kills"), s3.environment, kills, seed=seed))
