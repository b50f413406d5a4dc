"""Prometheus as a source of Spark's: what notebooks do, on a real Prometheus and a real Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.rollup.estate import BROKERS, RATES, SCRAPE_MS, START_MS
from tests.integration.rollup.history_server import HistoryServer
from tidegate.rollup.schemas import FIVE_MINUTES_MS
from tidegate.rollup.spark.notebook import register

pytestmark = pytest.mark.integration

QUERY = 'kafka_quota_byte_rate{resource="Fetch"}'
FIVE_MINUTES = {"start": "2026-01-01T22:00:00Z", "end": "2026-01-01T22:05:00Z", "chunkSeconds": "120", "externalLabels": "cluster"}


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, estate: HistoryServer, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("tidegate.prometheus").options(**{"url": estate.url, **FIVE_MINUTES, **options}).load()


def test_every_sample_is_read_once_with_its_own_time_in_parallel_pieces(spark: SparkSession, estate: HistoryServer) -> None:
    frame = read(spark, estate, {"query": QUERY, "labels": "broker,user"})
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.toArrow().sort_by([("user", "ascending"), ("broker", "ascending"), ("time", "ascending")]).to_pylist()
    times = [datetime.fromtimestamp(at / 1000, UTC) for at in range(START_MS, START_MS + FIVE_MINUTES_MS, SCRAPE_MS)]
    assert rows == [
        {"time": time, "broker": str(broker), "user": user, "value": 1.04 * rate}
        for user, rate in sorted(RATES.items())
        for broker in BROKERS
        for time in times
    ]


def test_without_named_columns_all_labels_are_in_a_map(spark: SparkSession, estate: HistoryServer) -> None:
    frame = read(spark, estate, {"series": "client_bytes", "direction": "fetch", "scrapeIntervalSeconds": "15"})
    assert frame.dtypes == [("time", "timestamp"), ("labels", "map<string,string>"), ("value", "double")]
    assert {row.labels["broker"] for row in frame.select("labels").collect()} == {str(broker) for broker in BROKERS}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"querry": QUERY}, "There is no option querry"),
        ({"query": "rate(x[5m])"}, "is no plain selector"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(spark: SparkSession, estate: HistoryServer, options: Mapping[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        read(spark, estate, options).collect()
