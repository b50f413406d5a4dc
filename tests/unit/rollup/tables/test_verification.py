"""A whole store is reported as whole; whatever is broken, missing or too old is named, in words and
with its window.
"""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import (
    DAY,
    IN_NO_TIER,
    NO_PERCENTILES,
    brokers_of,
    coarser,
    put,
    usage_5m,
)
from tidegate.commands.output import Page
from tidegate.commands.rollup_page import show_verdict
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.format import checksum, contents_of, encode, encode_manifest
from tidegate.rollup.tables.store import UsageStore, stamps
from tidegate.rollup.tables.upkeep import GRACE_MS, Retention, compact_days, retire, sweep
from tidegate.rollup.tables.verify import Verdict, verify

NOW = DAY + DAY_MS
HOURS = (0, 1)
STATES = dict.fromkeys(
    (
        "throttle_episodes",
        "seconds_contract",
        "seconds_stepping",
        "seconds_throttled",
        "seconds_relaxing",
    ),
    0,
)


def whole_store(store: UsageStore) -> None:
    """Two hours of all tables, as runs make them."""
    for hour in HOURS:
        at_ms = DAY + hour * HOUR_MS
        usage = usage_5m(at_ms, windows=3)
        publish_all(store, at_ms, {"usage_5m": usage, "broker_5m": brokers_of(usage)}, made_from=())
        hours = coarser(usage, "usage_1h", fill={**IN_NO_TIER, "tier": "silver" if hour else ""})
        publish_all(store, at_ms, {"usage_1h": hours}, made_from=("usage_5m",))
        publish_all(
            store,
            at_ms,
            {"broker_1h": coarser(brokers_of(usage), "broker_1h")},
            made_from=("broker_5m",),
        )
        publish_all(store, at_ms, {"tier_1h": tiers(hours, "tier_1h")}, made_from=("usage_1h",))
    publish_all(
        store,
        DAY,
        {"usage_1d": coarser(store.rows("usage_1h"), "usage_1d")},
        made_from=("usage_1h",),
    )
    publish_all(
        store,
        DAY,
        {"broker_1d": coarser(store.rows("broker_1h"), "broker_1d")},
        made_from=("broker_1h",),
    )
    publish_all(
        store,
        DAY,
        {"tier_1d": tiers(store.rows("usage_1d"), "tier_1d")},
        made_from=("usage_1d", "tier_1h"),
    )


def publish_all(
    store: UsageStore, at_ms: int, tables: dict[str, pa.Table], *, made_from: tuple[str, ...]
) -> None:
    for table, rows in tables.items():
        sources = stamps(store, made_from, at_ms, at_ms + TABLES[table].published_ms)
        put(store, "a", table, rows, start_ms=at_ms, now_ms=NOW, made_from=sources)


def tiers(usage: pa.Table, table: str) -> pa.Table:
    return coarser(usage, table, fill={**NO_PERCENTILES, **STATES})


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[bytes, int]]:
    bucket = Bucket()
    bucket.now_ms = NOW
    whole_store(store_in(bucket))
    return bucket.objects


@pytest.fixture
def bucket(made: dict[str, tuple[bytes, int]]) -> Bucket:
    bucket = Bucket()
    bucket.now_ms, bucket.objects = NOW, dict(made)
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    return store_in(bucket)


def words_of(verdict: Verdict) -> str:
    out = io.StringIO()
    show_verdict(verdict, Page(out))
    return out.getvalue()


def test_a_whole_store_is_said_to_be(store: UsageStore, golden: Callable[[str], None]) -> None:
    days: list[str] = []
    verdict = verify(store, progress=days.append)
    assert (verdict.broken, verdict.gaps, verdict.outdated) == ([], [], [])
    assert verdict.is_sound
    assert days == ["2026-11-21"]
    assert verdict.document()["tables"]["usage_5m"] == {  # type: ignore[index]
        "windows": 2,
        "files": 2,
        "rows": 72,
        "sizeBytes": sum(
            file.size_bytes for part in store.parts("usage_5m") for file in part.files
        ),
    }
    assert verdict.document()["whole"] is True
    golden(words_of(verdict))


def test_a_damaged_store_reads_like_this(store: UsageStore, golden: Callable[[str], None]) -> None:
    store.storage.delete([path := store.parts("broker_1h")[1].files[0].path])
    golden("\n".join(words_of(verify(store)).replace(path, "PATH").splitlines()[-4:]))


def test_compaction_clean_up_and_retention_keep_it_whole(store: UsageStore) -> None:
    for table in TABLES:
        compact_days(store, table, before_ms=NOW, run_id="c", now_ms=NOW)
    sweep(store, now_ms=NOW + GRACE_MS + 1000)
    assert verify(store).is_whole
    retire(store, Retention(five_minutes_days=3), run_id="r", now_ms=NOW + 5 * DAY_MS)
    verdict = verify(store)
    assert verdict.is_whole
    assert verdict.tables["usage_5m"].rows == 0


def test_an_empty_store_is_whole(bucket: Bucket) -> None:
    bucket.objects.clear()
    assert verify(store_in(bucket)).is_whole


@pytest.mark.parametrize("action", ["delete", "change"])
def test_a_damaged_file_is_named_with_its_window(
    bucket: Bucket, store: UsageStore, action: str, golden: Callable[[str], None]
) -> None:
    path = store.parts("broker_1h")[1].files[0].path
    content, at_ms = bucket.objects.pop(f"usage/tidegate/{path}")
    if action == "change":
        bucket.objects[f"usage/tidegate/{path}"] = (content[:-1], at_ms)
    verdict = verify(store)
    (finding,) = verdict.broken
    assert (finding.table, finding.window) == ("broker_1h", "2026-11-21T01")
    assert path in finding.message
    assert not verdict.is_sound
    assert verdict.document()["sound"] is False
    golden(finding.message.replace(path, "PATH"))


def without_names(message: str) -> str:
    """The message without the names of files, which are others in each run."""
    return re.sub(r"\S+\.parquet", "FILE", message)


def falsify(
    store: UsageStore, table: str, change: Callable[[pa.Table], pa.Table], *, sums_too: bool = True
) -> None:
    """Put other rows into the first file of a table, with a manifest that says so, as a bug in a
    run might.
    """
    manifest = store.parts(table)[0].manifest
    (file,) = manifest.files
    rows = change(store.rows(table, manifest.window.start_ms, manifest.window.end_ms))
    content, contents = encode(rows), contents_of(TABLES[table], rows)
    store.storage.write(file.path, content)
    wrong = replace(file, size_bytes=len(content), sha256=checksum(content))
    wrong = replace(wrong, rows=contents.rows, sums=contents.sums) if sums_too else wrong
    store.storage.write(
        manifest.path, encode_manifest(replace(manifest, files=(wrong,), made_from={}))
    )


def one_more(column: str) -> Callable[[pa.Table], pa.Table]:
    """A single byte more in the first row."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        return rows.set_column(
            rows.schema.get_field_index(column),
            rows.schema.field(column),
            pa.array([values[0] + 1, *values[1:]]),
        )

    return change


@pytest.mark.parametrize(
    ("table", "column", "finer", "coarser"),
    [
        ("usage_5m", "bytes", "usage_5m", "usage_1h"),
        ("usage_1h", "deferred_bytes", "usage_5m", "usage_1h"),
        ("usage_1d", "bytes", "usage_1h", "usage_1d"),
        ("broker_5m", "nic_bytes", "broker_5m", "broker_1h"),
        ("broker_1d", "replication_bytes", "broker_1h", "broker_1d"),
        ("tier_1d", "bytes", "tier_1h", "tier_1d"),
        ("broker_1h", "client_bytes", "broker_1h", "broker_1h"),
        ("broker_5m", "unattributed_bytes", "broker_5m", "broker_5m"),
    ],
)
def test_a_single_byte_that_does_not_agree_is_found(
    store: UsageStore, table: str, column: str, finer: str, coarser: str
) -> None:
    falsify(store, table, one_more(column))
    found = [one.message for one in verify(store).broken]
    assert any(
        finer in message and coarser in message and re.search(r"[+-]1\b", message)
        for message in found
    ), found


def test_what_does_not_agree_reads_like_this(
    store: UsageStore, golden: Callable[..., None]
) -> None:
    falsify(store, "usage_1d", one_more("bytes"))
    falsify(store, "broker_1h", one_more("client_bytes"))
    golden("\n".join(one.message for one in verify(store).broken))


def test_a_tier_with_other_bytes_than_its_members_is_found(store: UsageStore) -> None:
    put(
        store,
        "b",
        "tier_1h",
        tiers(store.rows("usage_1h", DAY + HOUR_MS), "tier_1h").slice(1),
        start_ms=DAY + HOUR_MS,
        now_ms=NOW,
    )
    assert any(
        "tier_1h" in one.message and "usage_1h" in one.message for one in verify(store).broken
    )


def test_rows_and_sums_that_a_manifest_does_not_have_are_found(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    falsify(store, "usage_1h", one_more("bytes"), sums_too=False)
    finding = verify(store).broken[0]
    assert finding.table == "usage_1h"
    golden(without_names(finding.message))


def test_rows_that_come_twice_are_found(store: UsageStore, golden: Callable[[str], None]) -> None:
    falsify(store, "usage_1d", lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    finding = verify(store).broken[0]
    assert finding.table == "usage_1d"
    golden(without_names(finding.message))


def test_rows_of_another_day_are_found(store: UsageStore, golden: Callable[[str], None]) -> None:
    falsify(
        store,
        "broker_1h",
        lambda rows: pa.concat_tables(
            [rows, coarser(brokers_of(usage_5m(NOW, windows=1)), "broker_1h")]
        ),
    )
    found = [
        one
        for one in verify(store).broken
        if (one.table, one.window) == ("broker_1h", "2026-11-21T00")
    ]
    finding = next(
        one for one in found if 4 in numbers(one.message) and "2026-11-21T00" in one.message
    )
    golden(without_names(finding.message))


def test_other_columns_are_found(store: UsageStore, golden: Callable[[str], None]) -> None:
    falsify(store, "tier_1d", lambda rows: rows.append_column("more", pa.nulls(rows.num_rows)))
    finding = verify(store).broken[0]
    assert finding.table == "tier_1d"
    golden(without_names(finding.message))


def test_a_manifest_that_cannot_be_read_is_found_and_the_other_tables_are_read(
    store: UsageStore,
) -> None:
    store.storage.write("_manifests/usage_1h/2026-11-21T00.json", b"{")
    verdict = verify(store)
    assert [one.table for one in verdict.broken] == ["usage_1h"]
    assert verdict.tables["usage_1d"].rows == 24


def test_an_hour_that_was_not_published_is_a_gap_and_no_damage(store: UsageStore) -> None:
    put(
        store,
        "b",
        "broker_1h",
        TABLES["broker_1h"].schema.empty_table(),
        start_ms=DAY + 4 * HOUR_MS,
        now_ms=NOW,
    )
    verdict = verify(store)
    assert [one.window for one in verdict.gaps] == ["2026-11-21T02", "2026-11-21T03"]
    assert verdict.is_sound
    assert not verdict.is_whole
    assert 2 in numbers(words_of(verdict).replace("(", " ").replace(")", " "))


def test_what_was_made_from_older_rows_is_outdated(store: UsageStore) -> None:
    rows = store.rows("usage_5m", DAY, DAY + HOUR_MS)
    put(store, "b", "usage_5m", rows, start_ms=DAY, now_ms=NOW, source="range selector")
    verdict = verify(store)
    assert [(one.table, one.window) for one in verdict.outdated] == [("usage_1h", "2026-11-21T00")]
    assert (verdict.is_sound, verdict.is_whole) == (True, False)


def test_programs_get_all_of_it(store: UsageStore) -> None:
    store.storage.delete([store.parts("usage_1d")[0].files[0].path])
    document: Any = json.loads(json.dumps(verify(store).document()))
    assert (document["sound"], document["whole"]) == (False, False)
    assert document["broken"][0]["table"] == "usage_1d"


def test_a_day_with_bytes_on_nobodys_account_is_named_and_nothing_is_broken() -> None:
    store = store_in(Bucket())
    usage = usage_5m(DAY)
    put(store, "a", "usage_5m", usage, start_ms=DAY, now_ms=NOW)
    total = sum(usage["bytes"].to_pylist())
    rest = total // 10
    brokers = brokers_of(usage, unattributed=rest)
    put(store, "a", "broker_5m", brokers, start_ms=DAY, now_ms=NOW)
    verdict = verify(store)
    (found,) = verdict.unattributed
    rows = brokers.num_rows
    assert (found.table, found.window) == ("broker_5m", "2026-11-21")
    assert f"{rest * rows} of {total + rest * rows}" in found.message
    assert verdict.is_whole
