"""The view of readers: ranges, columns, files by name, what was made from what, and damage that is
reported instead of shown.
"""

from collections.abc import Callable

import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import (
    DAY,
    IN_NO_TIER,
    as_set,
    coarser,
    put,
    put_hours,
    usage_5m,
)
from tidegate.errors import Incomplete, InvalidResource
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.format import Window, window_at, windows_between
from tidegate.rollup.tables.store import UsageStore, outdated, stamps

NOW = DAY + DAY_MS


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    put_hours(store_in(bucket), "a", hours=range(3), now_ms=NOW, windows=12)
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    return store_in(bucket)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "windows"),
    [
        (None, None, 36),
        (DAY, DAY + HOUR_MS, 12),
        (DAY + FIVE_MINUTES_MS, DAY + 3 * FIVE_MINUTES_MS, 2),
        (DAY + HOUR_MS - FIVE_MINUTES_MS, DAY + HOUR_MS + FIVE_MINUTES_MS, 2),
        (DAY + 1, DAY + FIVE_MINUTES_MS, 0),
        (DAY + 3 * HOUR_MS, None, 0),
        (None, DAY, 0),
    ],
)
def test_a_range_has_the_rows_whose_window_starts_in_it(
    store: UsageStore, start_ms: int | None, end_ms: int | None, windows: int
) -> None:
    rows = store.rows("usage_5m", start_ms, end_ms)
    assert rows.num_rows == windows * 12
    assert len(set(rows["window_start"].to_pylist())) == windows


def test_columns_come_as_asked(store: UsageStore) -> None:
    assert store.rows("usage_5m", columns=["bytes", "user"]).schema.names == ["bytes", "user"]
    assert store.rows("tier_1h", columns=["bytes", "tier"]).schema.names == ["bytes", "tier"]


def test_a_table_that_is_not_there_yet_is_empty_and_one_that_never_is_is_refused(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    assert store.rows("tier_1d").schema == TABLES["tier_1d"].schema
    with pytest.raises(InvalidResource) as refused:
        store.rows("usage_1w")
    for table in ("usage_1w", *TABLES):
        assert table in str(refused.value)
    golden(str(refused.value))


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_damaged_file_is_reported_and_never_shown(
    bucket: Bucket, store: UsageStore, damage: str
) -> None:
    path = f"usage/tidegate/{store.parts('usage_5m')[0].files[0].path}"
    content, at_ms = bucket.objects.pop(path)
    if damage == "changed":
        bucket.objects[path] = (content.replace(b"etl", b"eve"), at_ms)
    with pytest.raises(Incomplete, match="rollup verify"):
        store.rows("usage_5m")
    assert store.rows("usage_5m", DAY + HOUR_MS).num_rows == 288


def hourly(store: UsageStore, run_id: str, hour: int) -> None:
    at_ms = DAY + hour * HOUR_MS
    made_from = stamps(store, ["usage_5m"], at_ms, at_ms + HOUR_MS)
    rows = coarser(store.rows("usage_5m", at_ms, at_ms + HOUR_MS), "usage_1h", fill=IN_NO_TIER)
    put(store, run_id, "usage_1h", rows, start_ms=at_ms, now_ms=NOW, made_from=made_from)


def test_what_was_made_from_rows_that_are_replaced_shows_as_outdated(store: UsageStore) -> None:
    for hour in range(2):
        hourly(store, "a", hour)
    assert outdated(store, "usage_1h", ["usage_5m"]) == []
    put_hours(store, "late", hours=[1], now_ms=NOW, seed=3)
    assert [window.name for window in outdated(store, "usage_1h", ["usage_5m"])] == [
        "2026-11-21T01"
    ]
    hourly(store, "b", 1)
    assert outdated(store, "usage_1h", ["usage_5m"]) == []


def test_a_day_is_outdated_by_an_hour_that_came_later(store: UsageStore) -> None:
    hourly(store, "a", 0)
    rows = coarser(store.rows("usage_1h"), "usage_1d")
    put(
        store,
        "a",
        "usage_1d",
        rows,
        start_ms=DAY,
        now_ms=NOW,
        made_from=stamps(store, ["usage_1h"], DAY, DAY + DAY_MS),
    )
    assert outdated(store, "usage_1d", ["usage_1h"]) == []
    hourly(store, "a", 1)
    assert [window.name for window in outdated(store, "usage_1d", ["usage_1h"])] == ["2026-11-21"]


def test_requests_that_run_in_parallel_give_the_same_rows(
    bucket: Bucket, store: UsageStore
) -> None:
    store.storage.parallel = 4
    assert as_set(store.rows("usage_5m", DAY, DAY + HOUR_MS)) == as_set(usage_5m(DAY, windows=12))


@pytest.mark.parametrize(
    ("start_ms", "end_ms"),
    [
        (DAY + 1, DAY + 1 + HOUR_MS),
        (DAY, DAY + 2 * HOUR_MS),
        (DAY, DAY),
        (HOUR_MS, HOUR_MS + DAY_MS),
    ],
)
def test_a_window_is_a_whole_hour_or_day(start_ms: int, end_ms: int) -> None:
    with pytest.raises(InvalidResource):
        Window(start_ms, end_ms)


def test_windows_are_named_and_found_by_their_time() -> None:
    kind = TABLES["broker_5m"]
    assert window_at(kind, DAY + HOUR_MS + 5).name == "2026-11-21T01"
    assert window_at(kind, DAY).folder(kind) == "broker_5m/dt=2026-11-21/hour=00"
    assert window_at(TABLES["usage_1h"], DAY).folder(TABLES["usage_1h"]) == "usage_1h/dt=2026-11-21"
    assert [one.name for one in windows_between(kind, DAY + 5, DAY + HOUR_MS + 1)] == [
        "2026-11-21T00",
        "2026-11-21T01",
    ]
    assert window_at(TABLES["usage_1d"], DAY + 5).name == "2026-11-21"


def test_what_is_no_window_reads_like_this(golden: Callable[[str], None]) -> None:
    with pytest.raises(InvalidResource) as refused:
        Window(DAY, DAY + 2 * HOUR_MS)
    golden(refused.value.message)
