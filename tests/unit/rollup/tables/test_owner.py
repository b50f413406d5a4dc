"""A store belongs to one policy of one Kafka cluster."""

import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, put, usage_5m
from tidegate.commands.rollup_job import exit_code_of
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import NOBODY, TAKE_OVER_ANNOTATION, OtherOwner, Owner
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, keep_up
from tidegate.rollup.tables.verify import verify

NOW = DAY + DAY_MS + HOUR_MS
SHOP = Owner("uid-1", "ns/shop", "kafka-a")


def publish_hour(store: UsageStore, owner: Owner, *, hour: int = 0) -> None:
    at_ms = DAY + hour * HOUR_MS
    files = stage(store, "run", "usage_5m", usage_5m(at_ms), part=0, owner=owner)
    publication = Publication(
        table="usage_5m", window_start_ms=at_ms, run_id="run", staged=files, owner=owner
    )
    publish(store, publication, now_ms=NOW)


@pytest.fixture
def store() -> UsageStore:
    """An hour of policy ns/shop."""
    store = store_in(Bucket())
    publish_hour(store, SHOP)
    return store


def test_every_row_names_the_kafka_cluster_and_the_policy(store: UsageStore) -> None:
    rows = store.rows("usage_5m")
    assert rows.schema.names[:2] == ["cluster", "policy"]
    assert set(rows["cluster"].to_pylist()) == {"kafka-a"}
    assert set(rows["policy"].to_pylist()) == {"ns/shop"}


def test_a_manifest_names_the_owner_also_after_the_day_was_put_together(store: UsageStore) -> None:
    publish_hour(store, SHOP, hour=1)
    keep_up(store, Retention(30, 400), run_id="later", now_ms=NOW + DAY_MS)
    owners = {one.owner for one in store.manifests("usage_5m")}
    assert owners == {Owner("uid-1", "ns/shop", "kafka-a")}


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        pytest.param(Owner("uid-2", "ns/other", "kafka-a"), "uid-1", id="another policy"),
        pytest.param(Owner("uid-2", "ns/shop", "kafka-a"), "uid-1", id="created again"),
        pytest.param(Owner("uid-1", "ns/shop", "kafka-b"), "kafka-a", id="another Kafka cluster"),
        pytest.param(Owner("", "ns/other"), "ns/shop", id="another policy in a file"),
        pytest.param(NOBODY, "ns/shop", id="no policy"),
    ],
)
def test_the_run_of_another_policy_is_refused_with_64(
    store: UsageStore, owner: Owner, said: str
) -> None:
    with pytest.raises(OtherOwner) as refused:
        store.require_writable(owner)
    assert exit_code_of(refused.value) == 64
    assert said in str(refused.value)
    assert "storage.url" in str(refused.value)
    # which would not help for another Kafka cluster, or without a uid
    is_told = TAKE_OVER_ANNOTATION in str(refused.value)
    assert is_told == (owner.policy_uid == "uid-2")


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(SHOP, id="the same"),
        pytest.param(Owner("uid-1", "ns/shop"), id="whose cluster id is not known yet"),
        pytest.param(Owner("", "ns/shop", "kafka-a"), id="the same in a file"),
        pytest.param(Owner("uid-2", "ns/shop", "kafka-a", former_uids=("uid-1",)), id="annotated"),
    ],
)
def test_its_own_policy_goes_on(store: UsageStore, owner: Owner) -> None:
    store.require_writable(owner)


def test_tables_of_no_policy_are_anybodys_to_go_on_with() -> None:
    store = store_in(Bucket())
    put(store, "run", "usage_5m", usage_5m(DAY), start_ms=DAY, now_ms=NOW)
    store.require_writable(SHOP)


def test_hours_of_two_kafka_clusters_in_one_storage_are_broken(store: UsageStore) -> None:
    publish_hour(store, Owner("uid-9", "ns/other", "kafka-b"), hour=1)
    found = [one for one in verify(store).broken if "two policies" in one.message]
    assert [(one.table, one.window) for one in found]
    assert "kafka-a" in found[0].message
    assert "kafka-b" in found[0].message


def test_what_an_owner_may_write_says_the_uid_to_annotate(store: UsageStore) -> None:
    with pytest.raises(OtherOwner, match=f"{TAKE_OVER_ANNOTATION}: uid-1"):
        store.require_writable(Owner("uid-2", "ns/shop", "kafka-a"))
