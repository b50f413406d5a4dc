"""The interface for notebooks on a real Prometheus and a real Spark: Prometheus as a source, and
usage tables as frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import BROKERS, RATES, SCRAPE_MS, START_MS
from tests.unit.rollup.tables.usage import DAY, as_set, put_hours, usage_5m
from tidegate.errors import InvalidResource
from tidegate.notebook import register, usage_tables
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, TABLES
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import compact_days

pytestmark = pytest.mark.integration

QUERY = 'kafka_quota_byte_rate{resource="Fetch"}'
FIVE_MINUTES = {
    "start": "2026-01-01T22:00:00Z",
    "end": "2026-01-01T22:05:00Z",
    "chunkSeconds": "120",
    "externalLabels": "cluster",
}


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def read(
    spark: SparkSession, known_history: HistoryServer, options: Mapping[str, str]
) -> DataFrame:
    return (
        spark.read.format("tidegate.prometheus")
        .options(**{"url": known_history.url, **FIVE_MINUTES, **options})
        .load()
    )


def test_every_sample_is_read_once_with_its_own_time_in_parallel_pieces(
    spark: SparkSession, known_history: HistoryServer
) -> None:
    frame = read(spark, known_history, {"query": QUERY, "labels": "broker,user"})
    assert frame.rdd.getNumPartitions() == 3
    rows = (
        frame.toArrow()
        .sort_by([("user", "ascending"), ("broker", "ascending"), ("time", "ascending")])
        .to_pylist()
    )
    times = [
        datetime.fromtimestamp(at / 1000, UTC)
        for at in range(START_MS, START_MS + FIVE_MINUTES_MS, SCRAPE_MS)
    ]
    assert rows == [
        {"time": time, "broker": str(broker), "user": user, "value": 1.04 * rate}
        for user, rate in sorted(RATES.items())
        for broker in BROKERS
        for time in times
    ]


def test_without_named_columns_all_labels_are_in_a_map(
    spark: SparkSession, known_history: HistoryServer
) -> None:
    frame = read(
        spark,
        known_history,
        {"series": "client_bytes", "direction": "fetch", "scrapeIntervalSeconds": "15"},
    )
    assert frame.dtypes == [
        ("time", "timestamp"),
        ("labels", "map<string,string>"),
        ("value", "double"),
    ]
    assert {row.labels["broker"] for row in frame.select("labels").collect()} == {
        str(broker) for broker in BROKERS
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"querry": QUERY}, "querry"),
        ({"query": "rate(x[5m])"}, r"rate\(x\[5m\]\)"),
    ],
)
def test_a_wrong_option_or_query_is_named(
    spark: SparkSession, known_history: HistoryServer, options: Mapping[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, known_history, options).collect()


PUBLISHED = DAY + DAY_MS


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    """Three hours of a day, put into one file of it."""
    found = UsageStore.at(str(tmp_path))
    put_hours(found, "run-1", hours=range(3), now_ms=PUBLISHED)
    compact_days(found, "usage_5m", before_ms=PUBLISHED, run_id="run-2", now_ms=PUBLISHED)
    return found


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_frame_has_every_published_row_once_whatever_else_lies_about(
    spark: SparkSession, store: UsageStore, tmp_path: Path, zone: str
) -> None:
    """The hours' own files are still there beside the day's, and so is what a killed run left."""
    pq.write_table(
        usage_5m(DAY), tmp_path / "usage_5m/dt=2026-11-21/hour=00/part-killed-0-00000000.parquet"
    )
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    frame = usage_tables(session, str(tmp_path))["usage_5m"]
    assert as_set(frame.toArrow().cast(TABLES["usage_5m"].schema)) == as_set(store.rows("usage_5m"))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_an_hour_that_was_published_anew_since_its_day_was_put_together_is_the_new_one(
    spark: SparkSession, store: UsageStore, tmp_path: Path, zone: str
) -> None:
    tables = usage_tables(spark, tmp_path.as_uri())
    put_hours(store, "run-3", hours=[1], now_ms=PUBLISHED + 1000, seed=7)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    for each in (tables, usage_tables(session, str(tmp_path))):
        assert as_set(each["usage_5m"].toArrow().cast(TABLES["usage_5m"].schema)) == as_set(
            store.rows("usage_5m")
        )


def test_every_table_is_there_though_nothing_of_it_is_published(
    spark: SparkSession, store: UsageStore, tmp_path: Path
) -> None:
    tables = usage_tables(spark, str(tmp_path))
    assert list(tables) == list(TABLES)
    assert tables["tier_1d"].count() == 0
    assert tables["tier_1d"].columns == TABLES["tier_1d"].schema.names
    assert "usage_2h" not in tables


def test_what_is_no_store_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(InvalidResource, match=r"ftp://example\.org/usage"):
        usage_tables(spark, "ftp://example.org/usage")
