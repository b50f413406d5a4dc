"""The second stage: rows of 5 minutes -> hours and days. Sums of finer rows are those of the coarser ones, to the byte.

Percentiles are exact, by nearest rank over the 5-minute rates of a row's group. The sketch beside them (KLL) is for whoever wants
percentiles over longer times: sketches merge, percentiles do not.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as columns

from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS

# 99 of 100 ranks are within 0.31 % at this size (DataSketches: 2.296 / k^0.9021); a sketch of up to so many values holds them all.
SKETCH_SIZE = 1536
_GRAINS = {HOUR_MS: "HOUR", DAY_MS: "DAY"}
_SECONDS = FIVE_MINUTES_MS / 1000


def usage_sums(fine: DataFrame, tiers: DataFrame, *, window_ms: int) -> DataFrame:
    """`usage_5m` -> `usage_1h` or `usage_1d`. `tiers` says who is a member of which, as `in_tiers` takes it."""
    windows = window_ms // FIVE_MINUTES_MS
    named = in_tiers(fine, tiers)
    grouped = named.groupBy(_start(window_ms), "broker", "user", "client_id", "tier", "direction").agg(
        *_summed(),
        columns.sum("samples").cast("int").alias("samples"),
        (columns.sum("coverage") / windows).alias("coverage"),
        columns.sort_array(columns.collect_list("bytes")).alias("values"),
        columns.kll_sketch_agg_double(columns.col("bytes") / _SECONDS, columns.lit(SKETCH_SIZE)).alias("sketch"),
    )
    return _with_percentiles(grouped)


def broker_sums(fine: DataFrame, *, window_ms: int) -> DataFrame:
    """`broker_5m` -> `broker_1h` or `broker_1d`. The limit is the last one that was in force."""
    counted = [columns.sum(name).alias(name) for name in ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")]
    last_limit = columns.max_by("limit", columns.when(columns.col("limit").isNotNull(), columns.col("window_start"))).alias("limit")
    over = columns.sum("over_limit_seconds").alias("over_limit_seconds")
    return fine.groupBy(_start(window_ms), "broker", "direction").agg(*counted, last_limit, over)


def tier_sums(fine: DataFrame, tiers: DataFrame, states: DataFrame, *, window_ms: int) -> DataFrame:
    """`usage_5m` -> `tier_1h` or `tier_1d`, over the members of each tier.

    A member's 5-minute rate is that of all brokers together. `states` has window_start, tier, direction, throttle_episodes and the
    seconds_*; a tier that is only in them has a row without bytes.
    """
    rates = in_tiers(fine, tiers).where("tier != ''").groupBy("window_start", "tier", "user", "client_id", "direction").agg(*_summed())
    grouped = rates.groupBy(_start(window_ms), "tier", "direction").agg(
        *_summed(), columns.sort_array(columns.collect_list("bytes")).alias("values")
    )
    joined = _with_percentiles(grouped).join(columns.broadcast(states), ["window_start", "tier", "direction"], "full")
    seconds = [name for name in states.columns if name.startswith("seconds_")]
    floats = ["peak_rate", "throttled_seconds", "over_contract_seconds", *seconds]
    return joined.fillna(0.0, floats).fillna(0, ["bytes", "deferred_bytes", "throttle_episodes"])


def in_tiers(fine: DataFrame, tiers: DataFrame) -> DataFrame:
    """Rows of 5 minutes with their tier, "" for clients of none. `tiers` has user, client_id, tier, and `hour` where that may change."""
    keys = ["user", "client_id"]
    if "hour" in tiers.columns:
        keys.append("hour")
        fine = fine.withColumn("hour", columns.date_trunc("HOUR", "window_start"))
    return fine.join(columns.broadcast(tiers), keys, "left").fillna("", ["tier"])


def tiers_by_hour(usage: DataFrame) -> DataFrame:
    """`usage_1h` -> who was a member of which tier in each hour."""
    return usage.select(columns.col("window_start").alias("hour"), "user", "client_id", "tier").distinct()


def state_sums(hours: DataFrame, *, window_ms: int) -> DataFrame:
    """`tier_1h` -> the states of tiers over longer windows."""
    summed = [columns.sum(name).alias(name) for name in hours.columns if name.startswith("seconds_")]
    episodes = columns.sum("throttle_episodes").cast("int").alias("throttle_episodes")
    return hours.groupBy(_start(window_ms), "tier", "direction").agg(episodes, *summed)


def _start(window_ms: int) -> Column:
    return columns.date_trunc(_GRAINS[window_ms], "window_start").alias("window_start")


def _summed() -> list[Column]:
    return [
        columns.sum("bytes").alias("bytes"),
        columns.max("peak_rate").alias("peak_rate"),
        columns.sum("throttled_seconds").alias("throttled_seconds"),
        columns.sum("over_contract_seconds").alias("over_contract_seconds"),
        columns.sum("deferred_bytes").alias("deferred_bytes"),
    ]


def _with_percentiles(grouped: DataFrame) -> DataFrame:
    """Nearest rank: the smallest value that at least so many of all are not above."""
    ranked = {
        f"p{percent}": columns.expr(f"element_at(values, cast((size(values) * {percent} + 99) div 100 as int))") / _SECONDS
        for percent in (50, 95, 99)
    }
    return grouped.withColumns(ranked).drop("values")
