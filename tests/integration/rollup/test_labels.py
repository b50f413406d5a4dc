"""Labels are a column of hours and days, part of their key, on a real Spark."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from tidegate.rollup.labels import NO_LABELS, labels_text
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.spark.stages import tiers_by_hour, usage_sums

pytestmark = pytest.mark.integration

FINE = (
    "window_start timestamp, broker int, user string, client_id string, direction string, "
    "bytes long, peak_rate double, throttled_seconds double, over_contract_seconds double, "
    "deferred_bytes long, samples int, coverage double, calibration double"
)
SHOP, OPS = labels_text([("team", "shop")]), labels_text([("team", "ops")])


def test_whose_label_changes_has_a_row_of_the_day_with_each(spark: SparkSession) -> None:
    hours = [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (10, 11)]
    fine = [
        (at.replace(minute=5 * step), 1, user, "", "fetch", 100, 5.0, 0.0, 0.0, 0, 20, 1.0, None)
        for at in hours
        for step in range(12)
        for user in ("a", "b")
    ]
    members = [(at, "a", "", "ns/gold", text) for at, text in zip(hours, (SHOP, OPS), strict=True)]
    tiers = spark.createDataFrame(
        members, "hour timestamp, user string, client_id string, tier string, labels string"
    )
    summed = usage_sums(spark.createDataFrame(fine, FINE), tiers, window_ms=HOUR_MS)
    ranked_by_workers = {"p50", "p95", "p99", "sketch"}
    assert set(TABLES["usage_1d"].computed) - ranked_by_workers <= set(summed.columns)
    by_hour = {
        (row["user"], row["window_start"].hour, row["labels"]): row["bytes"]
        for row in summed.collect()
    }
    assert sorted((user, labels) for user, _, labels in by_hour) == sorted(
        [("a", SHOP), ("a", OPS), ("b", NO_LABELS), ("b", NO_LABELS)]
    )
    days = usage_sums(
        spark.createDataFrame(fine, FINE), tiers_by_hour(summed), window_ms=DAY_MS
    ).collect()
    assert {(row["user"], row["labels"]): row["bytes"] for row in days} == {
        ("a", SHOP): 1200,
        ("a", OPS): 1200,
        ("b", NO_LABELS): 2400,
    }
