"""Days of users and brokers, made by Spark's workers from what is published of their hours."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.unit.rollup.tables.usage import (
    DAY,
    NO_PERCENTILES,
    brokers_of,
    coarser,
    put,
    usage_5m,
)
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.ingest import IngestOrder
from tidegate.rollup.labels import labels_text
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.spark.stages import stage_days
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import compact_days
from tidegate.rollup.transport.exchange import HistorySettings

pytestmark = pytest.mark.integration

DAYS = range(DAY, DAY + 2 * DAY_MS, DAY_MS)
NOW = DAY + 3 * DAY_MS
BROKERS = (1, 2, 3)
TIERS = {
    0: {"tier": "ns/gold", "labels": labels_text([("team", "shop")])},
    5: {"tier": "ns/gold", "labels": labels_text([("team", "shop")])},
    23: {"tier": "ns/bulk", "labels": labels_text([("team", "ops")])},
}
SUMS = ("bytes", "throttled_seconds", "deferred_bytes", "samples")


def publish_hour(store: UsageStore, at_ms: int, *, seed: int) -> None:
    fine = usage_5m(at_ms, seed=seed, brokers=BROKERS, windows=12)
    hour = coarser(fine, "usage_1h", fill={**NO_PERCENTILES, **TIERS[at_ms % DAY_MS // HOUR_MS]})
    tables = {"usage_5m": fine, "broker_5m": brokers_of(fine), "usage_1h": hour}
    for table, rows in tables.items():
        put(store, f"run-{seed}", table, rows, start_ms=at_ms, now_ms=NOW)


def sums(rows: pa.Table, *keys: str, added: tuple[str, ...]) -> dict[tuple[object, ...], object]:
    return {
        tuple(row[key] for key in keys): tuple(row[name] for name in added)
        for row in rows.to_pylist()
    }


def test_days_are_the_sums_of_their_hours_as_they_are_published_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One day is in one file already, of which an hour was published again since."""
    url = f"file://{tmp_path}"
    store = UsageStore.at(url)
    for day_ms in DAYS:
        for hour in TIERS:
            publish_hour(store, day_ms + hour * HOUR_MS, seed=1)
    for table in ("usage_5m", "usage_1h", "broker_5m"):
        compact_days(store, table, before_ms=DAYS[1], run_id="compact", now_ms=NOW)
    publish_hour(store, DAY + 5 * HOUR_MS, seed=2)
    (part, *_) = store.parts("usage_5m", DAY, DAY + DAY_MS)
    assert part.superseded or len(store.parts("usage_5m", DAY, DAY + DAY_MS)) > 1

    server = PrometheusServer("")
    order = IngestOrder("days", url, "", MetricsSettings(server), HistorySettings(server))
    for table in ("usage_1d", "broker_1d"):
        staged = stage_days(spark.sparkContext, order, table, DAYS)
        for day_ms in DAYS:
            own = [one for one in staged if one.window_start_ms == day_ms]
            assert own
            done = Publication(table=table, window_start_ms=day_ms, run_id="days", staged=own)
            publish(store, done, now_ms=NOW)

    fine = store.rows("usage_5m")
    hours = [row["window_start"].hour for row in fine.to_pylist()]
    for name in ("tier", "labels"):
        fine = fine.append_column(name, pa.array([TIERS[hour][name] for hour in hours]))
    expected = coarser(fine, "usage_1d", fill=NO_PERCENTILES)
    keys = ("window_start", "broker", "user", "client_id", "tier", "labels", "direction")
    found = store.rows("usage_1d")
    assert sums(found, *keys, added=SUMS) == sums(expected, *keys, added=SUMS)
    assert found.num_rows == expected.num_rows == 2 * 2 * len(BROKERS) * 3 * 2
    assert None not in found["p95"].to_pylist()

    brokers, by = coarser(store.rows("broker_5m"), "broker_1d"), ("window_start", "broker")
    counted = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
    assert sums(store.rows("broker_1d"), *by, "direction", added=counted) == sums(
        brokers, *by, "direction", added=counted
    )


def test_of_days_without_any_hour_nothing_is_staged(spark: SparkSession, tmp_path: Path) -> None:
    server = PrometheusServer("")
    order = IngestOrder(
        "days", f"file://{tmp_path}", "", MetricsSettings(server), HistorySettings(server)
    )
    assert stage_days(spark.sparkContext, order, "usage_1d", DAYS) == []
