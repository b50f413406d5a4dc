"""A window is published whole, or stays as it was: whatever fails, at any time, and no matter who
else publishes it.
"""

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, Fault, Killed, store_in
from tests.unit.rollup.tables.usage import DAY, as_set, put, staged, usage_5m
from tidegate.errors import TidegateError, Unauthorized, Unreachable
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS, TABLES
from tidegate.rollup.tables import publication
from tidegate.rollup.tables.format import UsageDamaged, new_run_id
from tidegate.rollup.tables.publication import (
    Publication,
    StagedFile,
    discard_staging,
    name_files,
    parts_of,
    publish,
    stage,
    write_rows,
)
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, sweep

NOW = DAY + 2 * HOUR_MS
OLD, NEW = usage_5m(DAY, seed=1, windows=2), usage_5m(DAY, seed=2, windows=2)


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def gone() -> OSError:
    return OSError("Timeout was reached")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    return store_in(bucket)


def test_rows_come_back_as_they_were_staged_sorted_by_the_key(store: UsageStore) -> None:
    manifest = put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW, source="remote read")
    rows = store.rows("usage_5m")
    assert as_set(rows) == as_set(NEW)
    assert rows.equals(
        rows.sort_by(
            [
                (name, "ascending")
                for name in ("broker", "user", "client_id", "direction", "window_start")
            ]
        )
    )
    assert (manifest.contents.rows, manifest.source, manifest.coverage) == (
        NEW.num_rows,
        "remote read",
        1.0,
    )
    assert manifest.contents.sums["bytes"] == sum(NEW["bytes"].to_pylist())


def test_nothing_staged_is_seen_before_it_is_published(store: UsageStore) -> None:
    staged(store, "a", "usage_5m", NEW)
    assert store.rows("usage_5m").num_rows == 0


def test_a_window_without_any_usage_is_published_too(store: UsageStore) -> None:
    publish(
        store, Publication(table="usage_5m", window_start_ms=DAY, run_id="a", staged=[]), now_ms=NOW
    )
    assert [window.name for window in store.windows("usage_5m")] == ["2026-11-21T00"]
    assert (store.rows("usage_5m").num_rows, store.files("usage_5m")) == (0, [])


def test_publishing_again_replaces_the_whole_window(store: UsageStore) -> None:
    put(store, "a", "usage_5m", OLD, start_ms=DAY, now_ms=NOW)
    put(store, "b", "usage_5m", NEW.slice(0, 5), start_ms=DAY, now_ms=NOW)
    assert as_set(store.rows("usage_5m")) == as_set(NEW.slice(0, 5))


def test_the_same_rows_from_the_same_sources_are_not_published_again(
    store: UsageStore, bucket: Bucket
) -> None:
    first = put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    before = {path for path in bucket.objects if "_staging" not in path}
    again = put(store, "b", "usage_5m", NEW, start_ms=DAY, now_ms=NOW + HOUR_MS)
    assert (again, again.run_id, again.stamp) == (first, "a", first.stamp)
    assert {path for path in bucket.objects if "_staging" not in path} == before


def test_the_same_rows_from_other_sources_keep_their_files_and_are_published_again(
    store: UsageStore,
) -> None:
    first = put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    again = put(store, "b", "usage_5m", NEW, start_ms=DAY, now_ms=NOW, source="range selector")
    assert (again.run_id, again.source, again.files) == ("b", "range selector", first.files)
    assert as_set(store.rows("usage_5m")) == as_set(NEW)


@given(
    st.lists(st.sets(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=8),
    st.integers(1, 60),
)
def test_parts_that_are_written_beside_each_other_are_the_whole_publication(
    brokers_of_tasks: list[set[int]], most: int
) -> None:
    """Staged files of one broker each, as tasks of a run leave them, or of several."""
    store, taken = store_in(Bucket()), set[int]()
    files = []
    for part, brokers in enumerate(brokers_of_tasks):
        new = sorted(brokers - taken)
        taken |= brokers
        if new:
            files += stage(store, "a", "usage_5m", usage_5m(DAY, brokers=new), part=part)
    whole = Publication(table="usage_5m", window_start_ms=DAY, run_id="a", staged=files)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publication, "MOST_ROWS_OF_A_PART", most)
        parts = parts_of(whole)
    assert sorted(file.path for part in parts for file in part.staged) == sorted(
        file.path for file in files
    )
    # each of them goes to a task of its own, in whatever order
    written = {part.part: write_rows(store, part) for part in reversed(parts)}
    manifest = name_files(store, whole, [written[part.part] for part in parts], now_ms=NOW)
    rows = store.rows("usage_5m")
    assert as_set(rows) == as_set(usage_5m(DAY, brokers=sorted(taken)))
    order = [(name, "ascending") for name in TABLES["usage_5m"].key]
    assert rows.equals(rows.sort_by(order))
    assert len({file.path for file in manifest.files}) == len(parts) == len(manifest.files)
    assert manifest.coverage == 1.0
    for part in parts:
        several = len(part.staged) > 1
        assert not several or sum(f.rows for f in part.staged) <= most or _overlap(part.staged)


def _overlap(staged_files: Sequence[StagedFile]) -> bool:
    """Whether files of a part have brokers between those of another."""
    ends = sorted(file.brokers for file in staged_files if file.brokers is not None)
    return any(later[0] <= earlier[1] for earlier, later in pairwise(ends))


def test_a_part_that_is_lacking_is_noticed_and_nothing_is_named(store: UsageStore) -> None:
    files = staged(store, "a", "usage_5m", NEW)
    whole = Publication(table="usage_5m", window_start_ms=DAY, run_id="a", staged=files)
    with pytest.raises(UsageDamaged):
        name_files(store, whole, [write_rows(store, replace(whole, staged=files[:1]))], now_ms=NOW)
    assert store.windows("usage_5m") == []


def test_a_file_that_is_gone_is_written_again(store: UsageStore, bucket: Bucket) -> None:
    first = put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    store.storage.delete([first.files[0].path])
    again = put(store, "b", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    assert again.run_id == "b"
    assert as_set(store.rows("usage_5m")) == as_set(NEW)


def operations_of_a_run() -> int:
    bucket = Bucket()
    put(store_in(bucket), "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    return bucket.operations


@pytest.mark.parametrize(
    ("fault", "once"),
    [(Killed, False), (full, False), (gone, True)],
    ids=["killed", "full from then on", "once out of reach"],
)
def test_cut_short_at_any_operation_the_window_is_as_it_was_and_the_next_run_completes_it(
    fault: Fault, once: bool
) -> None:
    before = Bucket()
    put(store_in(before), "a", "usage_5m", OLD, start_ms=DAY, now_ms=NOW)
    for cut in range(operations_of_a_run()):
        bucket = Bucket()
        bucket.objects = dict(before.objects)
        store = store_in(bucket)
        with bucket.failing(cut, fault, once=once), pytest.raises((Killed, Unreachable)):
            put(store, "b", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
        assert as_set(store.rows("usage_5m")) == as_set(OLD), cut
        put(store, "c", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
        assert as_set(store.rows("usage_5m")) == as_set(NEW), cut
        sweep(store, now_ms=NOW + 2 * GRACE_MS)
        assert as_set(store.rows("usage_5m")) == as_set(NEW), cut
        assert [path for path in bucket.objects if path.endswith(".parquet")] == store_paths(
            store
        ), cut


def store_paths(store: UsageStore) -> list[str]:
    return [
        f"usage/tidegate/{file.path}" for part in store.parts("usage_5m") for file in part.files
    ]


@pytest.mark.parametrize("switch", range(operations_of_a_run() + 1))
def test_two_runs_of_a_window_at_once_leave_the_rows_of_one_of_them(switch: int) -> None:
    """Wherever the one is when the other does all of its work."""
    bucket = Bucket()
    store = store_in(bucket)
    bucket.before(
        switch, lambda: put(store_in(bucket), "b", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    )
    put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    assert as_set(store.rows("usage_5m")) == as_set(NEW)
    sweep(store, now_ms=NOW + 2 * GRACE_MS)
    assert as_set(store.rows("usage_5m")) == as_set(NEW)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_window_of_many_rows_becomes_files_with_brokers_of_their_own(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch, parallel: int
) -> None:
    monkeypatch.setattr(publication, "MOST_ROWS", 18)
    store.storage.parallel = parallel
    rows = usage_5m(DAY, brokers=[7, 3, 5], windows=3)
    manifest = put(store, "a", "usage_5m", rows, start_ms=DAY, now_ms=NOW)
    assert [file.rows for file in manifest.files] == [18, 18, 18]
    assert as_set(store.rows("usage_5m")) == as_set(rows)
    assert store.rows("usage_5m")["broker"].to_pylist() == [3] * 18 + [5] * 18 + [7] * 18


def test_the_same_run_may_publish_a_window_again_after_an_error(
    bucket: Bucket, store: UsageStore
) -> None:
    files = staged(store, "a", "usage_5m", NEW)
    publication = Publication(table="usage_5m", window_start_ms=DAY, run_id="a", staged=files)
    with bucket.failing(4, full), pytest.raises(Unreachable, match="No space left on device"):
        publish(store, publication, now_ms=NOW)
    publish(store, publication, now_ms=NOW)
    assert as_set(store.rows("usage_5m")) == as_set(NEW)


def test_a_run_that_publishes_other_rows_under_its_own_name_never_writes_over_a_named_file(
    bucket: Bucket, store: UsageStore
) -> None:
    put(store, "a", "usage_5m", OLD, start_ms=DAY, now_ms=NOW)
    before = store_paths(store)
    put(store, "a", "usage_5m", NEW, start_ms=DAY, now_ms=NOW)
    assert not set(before) & set(store_paths(store))
    assert set(before) < set(bucket.objects)


def without_names(refused: pytest.ExceptionInfo[Exception]) -> str:
    """The message without the names of staged files and their checksums, which are others in each
    run.
    """
    return re.sub(r"\S*_staging/\S+|[0-9a-f]{16,}", "...", str(refused.value))


def damage(bucket: Bucket, path: str) -> None:
    content, at_ms = bucket.objects[f"usage/tidegate/{path}"]
    bucket.objects[f"usage/tidegate/{path}"] = (content[:-1] + b"?", at_ms)


def published(store: UsageStore, **changed: object) -> None:
    publication = Publication(
        table="usage_5m",
        window_start_ms=DAY,
        run_id="a",
        staged=staged(store, "a", "usage_5m", NEW),
    )
    publish(store, replace(publication, **changed), now_ms=NOW)  # type: ignore[arg-type]


def test_a_staged_file_that_changed_is_never_published(
    bucket: Bucket, store: UsageStore, golden: Callable[[str], None]
) -> None:
    files = staged(store, "a", "usage_5m", NEW)
    damage(bucket, files[0].path)
    with pytest.raises(UsageDamaged) as refused:
        published(store, staged=files)
    assert store.windows("usage_5m") == []
    golden(without_names(refused))


def test_a_staged_file_that_is_gone_is_reported(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    files = staged(store, "a", "usage_5m", NEW)
    discard_staging(store, "a")
    with pytest.raises(UsageDamaged) as refused:
        published(store, staged=files)
    golden(without_names(refused))


@pytest.mark.parametrize("wrong", [{"rows": 1}, {"sums": {"bytes": 1, "deferred_bytes": 0}}])
def test_a_record_with_other_rows_than_its_file_has_is_refused(
    store: UsageStore, wrong: dict[str, object]
) -> None:
    first, *others = staged(store, "a", "usage_5m", NEW)
    with pytest.raises(UsageDamaged):
        published(store, staged=[replace(first, **wrong), *others])  # type: ignore[arg-type]


def test_rows_that_are_handed_in_twice_are_refused(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    with pytest.raises(UsageDamaged) as refused:
        published(
            store,
            staged=[
                *staged(store, "a", "usage_5m", NEW),
                *staged(store, "a", "usage_5m", NEW.slice(3, 1)),
            ],
        )
    golden(without_names(refused))


def test_rows_of_another_window_are_refused(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    files = staged(store, "a", "usage_5m", usage_5m(DAY + 11 * FIVE_MINUTES_MS, windows=2))
    with pytest.raises(UsageDamaged) as refused:
        published(store, staged=files)
    assert "usage_5m 2026-11-21T00" in str(refused.value)
    golden(without_names(refused))


def test_rows_between_the_five_minutes_are_refused(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    askew = staged(store, "a", "usage_5m", usage_5m(DAY + FIVE_MINUTES_MS // 2, windows=1))
    with pytest.raises(UsageDamaged) as refused:
        published(store, staged=askew)
    assert 12 in numbers(str(refused.value))
    golden(without_names(refused))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(NEW.drop_columns(["coverage"]), id="a column is missing"),
        pytest.param(
            NEW.set_column(8, "peak_rate", pa.array([float("nan")] * NEW.num_rows)), id="no number"
        ),
        pytest.param(NEW.set_column(4, "user", pa.nulls(NEW.num_rows, pa.string())), id="a null"),
        pytest.param(
            NEW.set_column(7, "bytes", pa.array(["many"] * NEW.num_rows)), id="another type"
        ),
    ],
)
def test_rows_that_do_not_fit_the_table_are_not_even_staged(
    bucket: Bucket, store: UsageStore, rows: pa.Table, golden: Callable[[str], None]
) -> None:
    with pytest.raises(UsageDamaged) as refused:
        staged(store, "a", "usage_5m", rows)
    assert bucket.objects == {}
    golden(str(refused.value))


def test_what_spark_hands_over_fits_though_it_allows_nulls_everywhere(store: UsageStore) -> None:
    loose = NEW.cast(pa.schema([field.with_nullable(True) for field in NEW.schema]))
    put(store, "a", "usage_5m", loose.select(loose.schema.names[::-1]), start_ms=DAY, now_ms=NOW)
    assert store.rows("usage_5m").schema == NEW.schema


def test_a_write_that_came_out_shorter_is_not_published(
    bucket: Bucket, store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = staged(store, "a", "usage_5m", NEW)
    monkeypatch.setattr(store.storage, "size_bytes", lambda path: 3)
    with pytest.raises(Unreachable) as refused:
        published(store, staged=files)
    assert 3 in numbers(str(refused.value))


def test_a_refused_identity_is_reported_as_such(
    bucket: Bucket, store: UsageStore, golden: Callable[[str], None]
) -> None:
    with (
        bucket.failing(0, lambda: OSError("AWS Error ACCESS_DENIED during PutObject")),
        pytest.raises(Unauthorized) as refused,
    ):
        staged(store, "a", "usage_5m", NEW)
    assert "ACCESS_DENIED" in str(refused.value)
    golden(without_names(refused))


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "a" * 64, "-a", "a b"])
def test_a_name_that_cannot_be_part_of_a_file_name_names_no_run(
    store: UsageStore, run_id: str
) -> None:
    with pytest.raises(TidegateError) as refused:
        staged(store, run_id, "usage_5m", NEW)
    assert repr(run_id) in str(refused.value)


def test_two_runs_that_begin_at_the_same_moment_have_two_names() -> None:
    names = {new_run_id(NOW) for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("20261121T020000Z-") for name in names)
