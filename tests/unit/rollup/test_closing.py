"""A closed month keeps its figures, whatever is published afterwards; the difference is told."""

from __future__ import annotations

import json
from datetime import UTC
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, IN_NO_TIER, brokers_of, coarser, put, usage_5m
from tidegate.errors import InvalidResource, NotFound
from tidegate.rollup.closing import (
    Month,
    adjustments,
    close_month,
    closed_months,
    read_closed,
)
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import UsageDamaged, time_words
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, Retention, retire, sweep

NOVEMBER = Month.named("2026-11")
OVER = NOVEMBER.end_ms + 2 * HOUR_MS
GIB = 2**30
HOURS = (DAY, DAY + HOUR_MS)
PRICES = {"fetch": Decimal("0.02"), "produce": Decimal("0.01")}


def publish_hour(store: UsageStore, run: str, at_ms: int, *, more_of_etl: int = 0) -> None:
    usage = coarser(usage_5m(at_ms), "usage_1h", fill=IN_NO_TIER)
    rows = usage.to_pylist()
    for row in rows:
        is_that = (row["user"], row["broker"], row["direction"]) == ("etl", 1, "fetch")
        row["bytes"] += more_of_etl if is_that else 0
    usage = usage.from_pylist(rows, schema=usage.schema)
    put(store, run, "usage_1h", usage, start_ms=at_ms, now_ms=OVER)
    brokers = brokers_of(usage, "broker_1h")
    put(store, run, "broker_1h", brokers, start_ms=at_ms, now_ms=OVER)


@pytest.fixture
def bucket() -> Bucket:
    """Two hours of November."""
    bucket = Bucket()
    for at_ms in HOURS:
        publish_hour(store_in(bucket), "a", at_ms)
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    store = store_in(bucket)
    close_month(store, NOVEMBER, per_gib=PRICES, now_ms=OVER, with_gaps=True)
    return store


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        pytest.param(UTC, "2026-10-01T00:00:00Z", 744, id="UTC"),
        pytest.param(ZoneInfo("Europe/Berlin"), "2026-09-30T22:00:00Z", 745, id="winter begins"),
    ],
)
def test_a_month_is_that_of_its_time_zone(zone: ZoneInfo, start: str, hours: int) -> None:
    month = Month.named("2026-10", zone)

    assert time_words(month.start_ms) == start
    assert (month.end_ms - month.start_ms) // HOUR_MS == hours


@pytest.mark.parametrize("name", ["2026-13", "October", "2026", ""])
def test_what_is_no_month_is_refused(name: str) -> None:
    with pytest.raises(InvalidResource, match="2026-10"):
        Month.named(name)


def test_a_zone_of_half_hours_is_refused() -> None:
    with pytest.raises(InvalidResource, match="Kolkata"):
        Month.named("2026-10", ZoneInfo("Asia/Kolkata"))


def test_a_closed_month_has_what_every_client_moved_and_a_checksum(store: UsageStore) -> None:
    closed = read_closed(store, "2026-11")
    rows = store.rows("usage_1h").to_pylist()
    assert sum(one.bytes for one in closed.usage) == sum(row["bytes"] for row in rows)
    assert len(closed.usage) == len({(r["user"], r["broker"], r["direction"]) for r in rows})
    assert sum(one.unattributed_bytes for one in closed.counted) == 5 * 2 * 2 * len(HOURS)
    assert closed_months(store) == ["2026-11"]
    assert adjustments(store, closed).rows == ()


def test_what_is_published_again_later_is_an_adjustment_and_the_figures_stay(
    store: UsageStore,
) -> None:
    before = read_closed(store, "2026-11")
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    made = adjustments(store, read_closed(store, "2026-11"))
    assert made.changed == ("2026-11-21T01",)
    (row,) = made.rows
    assert (row.user, row.broker, row.direction) == ("etl", 1, "fetch")
    assert (row.difference, row.amount) == (100 * GIB, Decimal("2.00"))
    assert read_closed(store, "2026-11") == before
    assert json.loads(json.dumps(made.document()))["adjustments"][0]["difference"] == 100 * GIB


def test_an_hour_that_is_published_again_with_the_same_bytes_is_no_adjustment(
    store: UsageStore,
) -> None:
    publish_hour(store, "b", HOURS[0])
    made = adjustments(store, read_closed(store, "2026-11"))
    assert (made.changed, made.rows) == (("2026-11-21T00",), ())


def test_a_month_is_closed_once(store: UsageStore, bucket: Bucket) -> None:
    objects = dict(bucket.objects)
    with pytest.raises(InvalidResource, match="closed already"):
        close_month(store, NOVEMBER, per_gib={}, now_ms=OVER + DAY_MS, with_gaps=True)
    assert bucket.objects == objects


def test_a_month_is_not_closed_before_late_samples_came(bucket: Bucket) -> None:
    with pytest.raises(InvalidResource, match="2026-12-01T02:00:00Z"):
        close_month(store_in(bucket), NOVEMBER, per_gib={}, now_ms=OVER - 1, with_gaps=True)


def test_hours_that_are_not_published_are_counted(bucket: Bucket) -> None:
    with pytest.raises(InvalidResource, match="718 of 720 hours"):
        close_month(store_in(bucket), NOVEMBER, per_gib={}, now_ms=OVER)
    assert closed_months(store_in(bucket)) == []


def test_nothing_published_is_nothing_to_close() -> None:
    with pytest.raises(NotFound, match="nothing to close"):
        close_month(store_in(Bucket()), NOVEMBER, per_gib={}, now_ms=OVER, with_gaps=True)


def test_a_figure_that_somebody_changed_is_found(store: UsageStore, bucket: Bucket) -> None:
    path = "_closed/2026-11.json"
    (found,) = [each for each in bucket.objects if each.endswith(path)]
    content, at_ms = bucket.objects[found]
    document = json.loads(content)
    document["usage"][0]["bytes"] += 1
    bucket.objects[found] = (json.dumps(document).encode(), at_ms)
    with pytest.raises(UsageDamaged, match="checksum"):
        read_closed(store, "2026-11")


def test_a_month_that_is_not_closed_has_no_adjustments(store: UsageStore) -> None:
    with pytest.raises(NotFound, match="closed: 2026-11"):
        read_closed(store, "2026-10")


def test_retention_is_no_correction_and_a_clean_up_leaves_what_is_closed(
    store: UsageStore,
) -> None:
    later = OVER + 500 * DAY_MS
    retire(store, Retention(30, 400), run_id="c", now_ms=later)
    sweep(store, now_ms=later + 2 * GRACE_MS)
    closed = read_closed(store, "2026-11")
    assert closed.usage
    with pytest.raises(NotFound, match="out of retention"):
        adjustments(store, closed)
