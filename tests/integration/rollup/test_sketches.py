"""Percentiles over longer times and many clients, by plain SQL on the sketches of hourly rows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tidegate.rollup.fold.hours import ERROR, ranked

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs/usage-tables.md"
_CLIENTS, _HOURS = 50, 24
_RATES = np.random.default_rng(5).lognormal(13, 2, (_CLIENTS * _HOURS, 12)).round()


@pytest.fixture(scope="module")
def hourly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sketch for each client and hour, as the hourly table has them."""
    values = (_RATES * 300).astype(np.int64).ravel()
    ranks = ranked(values, np.arange(0, values.size + 1, 12))
    users = [f"user-{number // _HOURS % 2}" for number in range(len(_RATES))]
    path = tmp_path_factory.mktemp("hours") / "usage_1h.parquet"
    table = pa.table({"user": users, "direction": ["fetch"] * len(users), "sketch": ranks.sketch})
    pq.write_table(table, path, compression="zstd")
    return path


def query(engine: str) -> str:
    """The page's own SQL, for its table `usage_1h`."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"<!-- sketches in {engine} -->\n```sql\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1].strip().rstrip(";")


def expected() -> dict[str, float]:
    halves = {
        f"user-{number}": _RATES[np.arange(len(_RATES)) // _HOURS % 2 == number].ravel()
        for number in (0, 1)
    }
    return {
        user: float(np.quantile(each, 0.95, method="inverted_cdf")) for user, each in halves.items()
    }


def test_the_pages_query_for_spark_is_within_a_hundredth(spark: SparkSession, hourly: Path) -> None:
    spark.read.parquet(str(hourly)).createOrReplaceTempView("usage_1h")
    found = {row["user"]: row["p95"] for row in spark.sql(query("Spark")).collect()}
    assert found == {user: pytest.approx(rate, rel=ERROR) for user, rate in expected().items()}


def test_the_pages_query_for_duckdb_is_within_a_hundredth(hourly: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW usage_1h AS SELECT * FROM read_parquet('{hourly}')")
    found = dict(connection.execute(query("DuckDB")).fetchall())
    assert found == {user: pytest.approx(rate, rel=ERROR) for user, rate in expected().items()}
