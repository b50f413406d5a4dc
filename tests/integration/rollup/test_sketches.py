"""The error of percentiles over longer times, which come from merged sketches."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as columns

from tidegate.rollup.spark.stages import SKETCH_SIZE

pytestmark = pytest.mark.integration

_CLIENTS, _HOURS = 50, 24
_RATES = np.random.default_rng(5).lognormal(13, 2, (_CLIENTS * _HOURS, 12)).round()
_HALF_A_PERCENT = 0.005


@pytest.fixture(scope="module")
def hourly(spark: SparkSession) -> DataFrame:
    """A sketch for each client and hour, as the hourly table has them."""
    rows = spark.createDataFrame(
        [(number, rates.tolist()) for number, rates in enumerate(_RATES)],
        "number int, rates array<double>",
    )
    one = rows.select("number", columns.explode("rates").alias("rate")).groupBy("number")
    return one.agg(columns.kll_sketch_agg_double("rate", columns.lit(SKETCH_SIZE)).alias("sketch"))


def test_percentiles_of_a_day_of_all_clients_are_within_half_a_percent_of_their_ranks(
    hourly: DataFrame,
) -> None:
    merged = hourly.agg(columns.kll_merge_agg_double("sketch").alias("sketch"))
    shares = (0.5, 0.95, 0.99)
    quantiles = merged.select(
        *(columns.kll_sketch_get_quantile_double("sketch", columns.lit(share)) for share in shares)
    ).first()
    assert quantiles is not None
    assert [np.mean(value >= _RATES) for value in quantiles] == pytest.approx(
        shares, abs=_HALF_A_PERCENT
    )
