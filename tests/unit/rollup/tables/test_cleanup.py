"""Clean-up and retention: files that no manifest names go after the grace, what is named or new or
not ours stays.
"""

from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, Killed, store_in
from tests.unit.rollup.tables.usage import DAY, as_set, put, put_hours, staged, usage_5m
from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, Retention, compact_days, retire, sweep

NOW = DAY + 2 * HOUR_MS


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    bucket.now_ms = NOW
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    return store_in(bucket)


def parquet_files(bucket: Bucket) -> int:
    return len([path for path in bucket.objects if path.endswith(".parquet")])


def test_files_of_a_replaced_window_stay_for_the_grace_after_it_was_replaced(
    bucket: Bucket, store: UsageStore
) -> None:
    """Their own age says nothing: a reader may have begun just before."""
    put_hours(store, "a", hours=[0], now_ms=NOW)
    bucket.now_ms = replaced_ms = NOW + 5 * DAY_MS
    put_hours(store, "b", hours=[0], now_ms=replaced_ms, seed=1)
    assert sweep(store, now_ms=replaced_ms + GRACE_MS - 1000).files == 0
    assert sweep(store, now_ms=replaced_ms + GRACE_MS + 1000).files == 1
    assert as_set(store.rows("usage_5m")) == as_set(usage_5m(DAY, seed=1))


def test_a_file_that_a_run_is_about_to_publish_stays(bucket: Bucket, store: UsageStore) -> None:
    put_hours(store_in(other := Bucket()), "a", hours=[0], now_ms=NOW)
    with bucket.failing(other.operations - 1, Killed), pytest.raises(Killed):
        put_hours(store, "a", hours=[0], now_ms=NOW)
    assert any("/usage_5m/dt=" in path for path in bucket.objects)
    assert sweep(store, now_ms=NOW + HOUR_MS).files == 0
    assert sweep(store, now_ms=NOW + GRACE_MS + 1000).files == 1


def test_what_a_dead_run_staged_goes_and_what_a_living_one_staged_stays(
    bucket: Bucket, store: UsageStore
) -> None:
    staged(store, "dead", "usage_5m", usage_5m(DAY))
    bucket.now_ms = NOW + GRACE_MS
    staged(store, "living", "usage_5m", usage_5m(DAY))
    assert sweep(store, now_ms=NOW + GRACE_MS + 1000).staged == 2
    assert {path.split("/")[3] for path in bucket.objects} == {"living"}


@pytest.mark.parametrize(
    "path",
    [
        "usage_5m/README.md",
        "usage_5m/dt=2026-11-21/mine.parquet",
        "notes.txt",
        "other/part-a-0-00000000.parquet",
    ],
)
def test_files_of_other_people_stay(bucket: Bucket, store: UsageStore, path: str) -> None:
    store.storage.write(path, b"mine")
    sweep(store, now_ms=NOW + 100 * DAY_MS)
    assert store.storage.read(path) == b"mine"


def test_a_grace_that_could_hit_a_run_is_refused(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as refused:
        sweep(store, now_ms=NOW, grace_ms=HOUR_MS - 1)
    assert 60 in numbers(str(refused.value))
    golden(str(refused.value))


def test_a_clean_up_cut_short_at_any_operation_loses_no_row(
    bucket: Bucket, store: UsageStore
) -> None:
    put_hours(store, "a", hours=[0, 1], now_ms=NOW)
    put_hours(store, "b", hours=[0], now_ms=NOW, seed=1)
    compact_days(store, "usage_5m", before_ms=DAY + DAY_MS, run_id="c", now_ms=NOW)
    objects, expected = dict(bucket.objects), as_set(store.rows("usage_5m"))
    bucket.operations = 0
    sweep(store, now_ms=NOW + GRACE_MS + 1000)
    for cut in range(bucket.operations):
        bucket.objects = dict(objects)
        with bucket.failing(cut, Killed), pytest.raises(Killed):
            sweep(store, now_ms=NOW + GRACE_MS + 1000)
        assert as_set(store.rows("usage_5m")) == expected, cut
    sweep(store, now_ms=NOW + GRACE_MS + 1000)
    assert parquet_files(bucket) == 1


def test_days_out_of_retention_go_whole_and_by_their_grain(
    bucket: Bucket, store: UsageStore
) -> None:
    for day in range(3):
        put_hours(store, "a", hours=[0, 23], now_ms=NOW, day_ms=DAY + day * DAY_MS)
    put(store, "a", "usage_1d", store.rows("usage_1d"), start_ms=DAY, now_ms=NOW)
    retire(
        store,
        Retention(five_minutes_days=30, hours_days=400),
        run_id="r",
        now_ms=DAY + 32 * DAY_MS - 1,
    )
    assert [window.name for window in store.windows("usage_5m")] == [
        "2026-11-22T00",
        "2026-11-22T23",
        "2026-11-23T00",
        "2026-11-23T23",
    ]
    retire(store, Retention(), run_id="r", now_ms=DAY + 5000 * DAY_MS)
    assert store.windows("usage_5m") == []
    assert [window.name for window in store.windows("usage_1d")] == ["2026-11-21"]


def test_retired_rows_can_be_read_to_the_end_of_the_grace_and_then_leave_nothing(
    bucket: Bucket, store: UsageStore
) -> None:
    put_hours(store, "a", hours=[0, 1], now_ms=NOW)
    compact_days(store, "usage_5m", before_ms=DAY + DAY_MS, run_id="c", now_ms=NOW)
    begun = [file for part in store.parts("usage_5m") for file in part.files]
    late_ms = DAY + 40 * DAY_MS
    retire(store, Retention(), run_id="r", now_ms=late_ms)
    sweep(store, now_ms=late_ms + HOUR_MS)
    assert [len(store.content(file)) for file in begun] == [file.size_bytes for file in begun]
    sweep(store, now_ms=late_ms + GRACE_MS + 1000)
    assert bucket.objects == {}


def test_retiring_cut_short_at_any_operation_leaves_windows_whole(
    bucket: Bucket, store: UsageStore
) -> None:
    put_hours(store, "a", hours=[0, 1], now_ms=NOW)
    compact_days(store, "usage_5m", before_ms=DAY + DAY_MS, run_id="c", now_ms=NOW)
    sweep(store, now_ms=NOW + GRACE_MS + 1000)
    objects, late_ms = dict(bucket.objects), DAY + 40 * DAY_MS
    bucket.operations = 0
    retire(store, Retention(), run_id="r", now_ms=late_ms)
    for cut in range(bucket.operations):
        bucket.objects = dict(objects)
        with bucket.failing(cut, Killed), pytest.raises(Killed):
            retire(store, Retention(), run_id="r", now_ms=late_ms)
        assert store.rows("usage_5m").num_rows == 24 * len(store.windows("usage_5m")), cut
