"""Older and newer tables are never misread, and a ladder of steps leads the older ones up, a window at a time."""

import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, Killed, store_in
from tests.unit.rollup.tables.usage import DAY, as_set, put_hours, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import UsageDamaged, checksum, encode
from tidegate.rollup.tables.manifest import LADDER, Ladder, OtherVersion, encode_manifest
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, compact_days, migrate, sweep

NOW = DAY + DAY_MS


def with_calibration(table: str, rows: pa.Table) -> pa.Table:
    """From a version 0 that never was: it knew no calibration."""
    return rows.append_column("calibration", pa.nulls(rows.num_rows, pa.float64())) if table == "usage_5m" else rows


CLIMBING = Ladder(current=1, steps={0: with_calibration})
EXPECTED = as_set(pa.concat_tables([usage_5m(DAY), usage_5m(DAY + HOUR_MS)]).set_column(12, "calibration", pa.nulls(48, pa.float64())))


def usage_rows(store: UsageStore, path: str) -> pa.Table:
    content = store.storage.read(path)
    assert content is not None
    return pq.read_table(pa.BufferReader(content)).drop_columns(["calibration"])


@pytest.fixture
def bucket() -> Bucket:
    """Two hours of version 0."""
    bucket = Bucket()
    put_hours(store_in(bucket), "a", hours=[0, 1], now_ms=NOW)
    make_old(store_in(bucket))
    return bucket


def make_old(store: UsageStore) -> None:
    manifests = store.manifests("usage_5m")
    for manifest in manifests:
        (file,) = manifest.files
        content = encode(usage_rows(store, file.path))
        store.storage.write(file.path, content)
        old = replace(manifest, files=(replace(file, size_bytes=len(content), sha256=checksum(content)),), version=0)
        store.storage.write(manifest.path, encode_manifest(old))


def test_an_older_version_without_a_way_up_is_told_and_left_alone(bucket: Bucket, golden: Callable[[str], None]) -> None:
    objects = dict(bucket.objects)
    with pytest.raises(OtherVersion) as refused:
        store_in(bucket).rows("usage_5m")
    assert numbers(str(refused.value)) >= {0, 1}
    with pytest.raises(OtherVersion):
        migrate(store_in(bucket), run_id="m", now_ms=NOW)
    assert bucket.objects == objects
    golden(str(refused.value))


def test_an_older_version_with_a_way_up_says_what_will_happen(bucket: Bucket, golden: Callable[[str], None]) -> None:
    with pytest.raises(OtherVersion) as refused:
        store_in(bucket, ladder=CLIMBING).rows("usage_5m")
    golden(str(refused.value))


@pytest.mark.parametrize("action", ["read", "sweep", "migrate"])
def test_a_newer_version_is_never_read_changed_or_cleaned_up(bucket: Bucket, action: str) -> None:
    bucket.objects.clear()
    put_hours(store_in(bucket, ladder=Ladder(current=2)), "a", hours=[0, 1], now_ms=NOW)
    objects, store = dict(bucket.objects), store_in(bucket)
    actions = {
        "read": lambda: store.rows("usage_5m"),
        "sweep": lambda: sweep(store, now_ms=NOW + 9 * GRACE_MS),
        "migrate": lambda: migrate(store, run_id="m", now_ms=NOW),
    }
    with pytest.raises(OtherVersion):
        actions[action]()
    assert bucket.objects == objects


def test_migration_brings_every_row_up(bucket: Bucket) -> None:
    store = store_in(bucket, ladder=CLIMBING)
    assert [manifest.window.name for manifest in migrate(store, run_id="m", now_ms=NOW)] == ["2026-11-21T00", "2026-11-21T01"]
    assert as_set(store.rows("usage_5m")) == EXPECTED
    assert migrate(store, run_id="n", now_ms=NOW) == []


def test_migration_cut_short_at_any_operation_is_completed_by_the_next(bucket: Bucket) -> None:
    store, objects = store_in(bucket, ladder=CLIMBING), dict(bucket.objects)
    bucket.operations = 0
    migrate(store, run_id="m", now_ms=NOW)
    for cut in range(8, bucket.operations):  # the first only list the other tables
        bucket.objects = dict(objects)
        with bucket.failing(cut, Killed), pytest.raises(Killed):
            migrate(store, run_id="m", now_ms=NOW)
        migrate(store, run_id="n", now_ms=NOW)
        assert as_set(store.rows("usage_5m")) == EXPECTED, cut


def test_migration_takes_apart_the_days_that_were_put_together(bucket: Bucket) -> None:
    bucket.objects.clear()
    store = store_in(bucket, ladder=CLIMBING)
    put_hours(store, "a", hours=[0, 1], now_ms=NOW)
    compact_days(store, "usage_5m", before_ms=NOW, run_id="c", now_ms=NOW)
    sweep(store, now_ms=NOW + 2 * GRACE_MS)
    for path, (content, at_ms) in list(bucket.objects.items()):
        if path.endswith(".json"):
            bucket.objects[path] = (json.dumps(json.loads(content) | {"schemaVersion": 0}).encode(), at_ms)
    rows_before = pa.concat_tables([usage_5m(DAY), usage_5m(DAY + HOUR_MS)])
    plain = store_in(bucket, ladder=Ladder(current=1, steps={0: lambda _, rows: rows}))
    migrate(plain, run_id="m", now_ms=NOW)
    assert as_set(plain.rows("usage_5m")) == as_set(rows_before)
    assert len(plain.files("usage_5m")) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schemaVersion": 1}', b'{"schemaVersion": "x"}', b"[]"])
def test_a_manifest_that_is_none_is_told_with_its_name(bucket: Bucket, content: bytes) -> None:
    store = store_in(bucket)
    store.storage.write("_manifests/usage_1d/2026-11-21.json", content)
    with pytest.raises(UsageDamaged) as refused:
        store.rows("usage_1d")
    assert "_manifests/usage_1d/2026-11-21.json" in str(refused.value)


def test_the_version_that_is_written_is_the_first() -> None:
    assert (LADDER.current, dict(LADDER.steps)) == (1, {})


def test_a_manifest_that_is_none_reads_like_this(bucket: Bucket, golden: Callable[[str], None]) -> None:
    store = store_in(bucket)
    store.storage.write("_manifests/usage_1d/2026-11-21.json", b"{}")
    with pytest.raises(UsageDamaged) as refused:
        store.rows("usage_1d")
    golden(str(refused.value))
