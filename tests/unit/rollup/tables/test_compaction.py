"""A day in one file has the rows of its hours; an hour that is published again takes precedence
over it; and nothing is read twice at any moment.
"""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.rollup.tables.bucket import Bucket, Killed, store_in
from tests.unit.rollup.tables.usage import DAY, as_set, put, put_hours, usage_5m
from tidegate.errors import Incomplete
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables import format, publication
from tidegate.rollup.tables.format import Manifest
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, compact_days, sweep

NOW = DAY + DAY_MS + 3 * HOUR_MS
HOURS = range(3)


def rows_of(hours: range = HOURS, *, seed: int = 0) -> pa.Table:
    return pa.concat_tables([usage_5m(DAY + hour * HOUR_MS, seed=seed) for hour in hours])


def compact(store: UsageStore, run_id: str = "c") -> list[Manifest]:
    return compact_days(store, "usage_5m", before_ms=DAY + DAY_MS, run_id=run_id, now_ms=NOW)


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    put_hours(store_in(bucket), "a", hours=HOURS, now_ms=NOW)
    return bucket


def test_a_day_becomes_one_sorted_file_with_the_same_rows(bucket: Bucket) -> None:
    store = store_in(bucket)
    compact(store)
    assert store.files("usage_5m") == [
        "s3://usage/tidegate/" + store.parts("usage_5m")[0].files[0].path
    ]
    assert store.files("usage_5m")[0].startswith(
        "s3://usage/tidegate/usage_5m/dt=2026-11-21/part-c-0-"
    )
    rows = store.rows("usage_5m")
    assert as_set(rows) == as_set(rows_of())
    assert rows["broker"].to_pylist() == sorted(rows["broker"].to_pylist())


def test_a_day_that_is_in_one_piece_stays_as_it_is(bucket: Bucket) -> None:
    compact(store_in(bucket))
    assert compact(store_in(bucket), "d") == []


def test_a_day_that_has_not_ended_stays_in_hours(bucket: Bucket) -> None:
    assert (
        compact_days(
            store_in(bucket), "usage_5m", before_ms=DAY + DAY_MS - 1, run_id="c", now_ms=NOW
        )
        == []
    )


def test_a_day_of_many_rows_becomes_files_with_brokers_of_their_own(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "MOST_ROWS", 50)
    store = store_in(bucket)
    (day,) = compact(store)
    assert [file.rows for file in day.files] == [36, 36]
    assert as_set(store.rows("usage_5m")) == as_set(rows_of())


def test_a_row_is_unpacked_at_most_twice_whatever_the_number_of_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight brokers in eight files; their names alone are looked at before."""
    monkeypatch.setattr(format, "ROWS_OF_GROUP", 12)  # a broker's hour
    store, unpacked = store_in(Bucket()), Counter[str]()
    for hour in HOURS:
        at_ms = DAY + hour * HOUR_MS
        rows = usage_5m(at_ms, brokers=range(1, 9))
        put(store, "a", "usage_5m", rows, start_ms=at_ms, now_ms=NOW)
    monkeypatch.setattr(publication, "MOST_ROWS", 40)

    class Counted(pq.ParquetFile):
        def read(self, columns: list[str] | None = None) -> pa.Table:
            return self._counted(super().read(columns))

        def read_row_groups(self, numbers: list[int], columns: list[str]) -> pa.Table:
            return self._counted(super().read_row_groups(numbers, columns))

        def _counted(self, rows: pa.Table) -> pa.Table:
            unpacked["bytes" if "bytes" in rows.column_names else "names"] += rows.num_rows
            return rows

    monkeypatch.setattr(format.pq, "ParquetFile", Counted)
    (day,) = compact(store)
    rows_of_day = 8 * 12 * len(HOURS)
    assert (len(day.files), day.contents.rows) == (8, rows_of_day)
    assert unpacked == {"bytes": rows_of_day, "names": rows_of_day}


def test_an_hour_published_again_after_its_day_is_read_from_its_own_files(bucket: Bucket) -> None:
    store = store_in(bucket)
    compact(store)
    sweep(store, now_ms=NOW + 2 * GRACE_MS)
    put_hours(store, "late", hours=[1], now_ms=NOW, seed=9)
    expected = as_set(
        pa.concat_tables([rows_of(range(1)), usage_5m(DAY + HOUR_MS, seed=9), rows_of(range(2, 3))])
    )
    assert as_set(store.rows("usage_5m")) == expected
    assert len(store.windows("usage_5m")) == len(HOURS)
    compact(store, "again")
    assert as_set(store.rows("usage_5m")) == expected
    assert len(store.files("usage_5m")) == 1


def test_engines_are_given_no_file_with_rows_that_are_valid_no_more(
    bucket: Bucket, golden: Callable[[str], None]
) -> None:
    store = store_in(bucket)
    compact(store)
    put_hours(store, "late", hours=[1], now_ms=NOW, seed=9)
    with pytest.raises(Incomplete) as refused:
        store.files("usage_5m")
    assert "2026-11-21T01" in str(refused.value)
    assert len(store.files("usage_5m", DAY + 2 * HOUR_MS, DAY + 3 * HOUR_MS)) == 1
    golden(str(refused.value))


def test_cut_short_at_any_operation_the_rows_are_the_same_and_the_next_run_completes_it(
    bucket: Bucket,
) -> None:
    expected = as_set(rows_of())
    objects = dict(bucket.objects)
    bucket.operations = 0
    compact(store_in(bucket))
    for cut in range(bucket.operations):
        bucket.objects = dict(objects)
        store = store_in(bucket)
        with bucket.failing(cut, Killed), pytest.raises(Killed):
            compact(store)
        assert as_set(store.rows("usage_5m")) == expected, cut
        compact(store, "d")
        sweep(store, now_ms=NOW + 2 * GRACE_MS)
        assert as_set(store.rows("usage_5m")) == expected, cut
        assert len([path for path in bucket.objects if path.endswith(".parquet")]) == 1, cut


def test_an_hour_that_is_published_while_its_day_is_put_together_is_not_lost(
    bucket: Bucket,
) -> None:
    """Whatever the day's file has of that hour, the hour's own manifest names another
    publication.
    """
    store, objects = store_in(bucket), dict(bucket.objects)
    compact(store)
    day = {path: content for path, content in bucket.objects.items() if path not in objects}
    bucket.objects = objects
    put_hours(store, "late", hours=[1], now_ms=NOW, seed=9)
    bucket.objects |= day
    assert as_set(store.rows("usage_5m", DAY + HOUR_MS, DAY + 2 * HOUR_MS)) == as_set(
        usage_5m(DAY + HOUR_MS, seed=9)
    )


def test_a_table_that_is_published_by_the_day_needs_none(bucket: Bucket) -> None:
    assert compact_days(store_in(bucket), "usage_1d", before_ms=NOW, run_id="c", now_ms=NOW) == []


def reads(bucket: Bucket) -> list[str]:
    """From now on, the objects that are opened."""
    opened: list[str] = []
    original = bucket.open_input_file

    def noted(path: str) -> pa.NativeFile:
        opened.append(path)
        return original(path)

    bucket.open_input_file = noted  # type: ignore[method-assign]
    return opened


def test_upkeep_of_a_settled_day_reads_a_single_manifest(bucket: Bucket) -> None:
    """Else a store of many days would cost each run thousands of requests."""
    store = store_in(bucket)
    bucket.now_ms = NOW
    compact(store)
    sweep(store, now_ms=NOW + 2 * GRACE_MS)
    opened = reads(bucket)
    assert compact(store, "d") == []
    sweep(store, now_ms=NOW + 3 * GRACE_MS)
    assert opened == ["usage/tidegate/_manifests/usage_5m/2026-11-21.json"]


def test_a_day_without_any_use_settles_too(bucket: Bucket) -> None:
    bucket.objects.clear()
    store = store_in(bucket)
    for hour in HOURS:
        publish(
            store,
            Publication(
                table="usage_5m", window_start_ms=DAY + hour * HOUR_MS, run_id="a", staged=[]
            ),
            now_ms=NOW,
        )
    (day,) = compact(store)
    assert day.files == ()
    assert len(store.windows("usage_5m")) == len(HOURS)
    assert compact(store, "d") == []
