"""The same hourly rollup by each engine, each in a process.

`python -m bench.rollup.raw_engines ENGINE ROWS OUT START_MS`

Every engine reads the files of `bench.rollup.raw_rows`, is held to two threads, and writes one
Parquet file with the same columns. Sums of five minutes come first and percentiles are of their
rates, by nearest rank. Ours writes tables of five minutes, brokers and sketches as well.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from unittest import mock

THREADS = 2
MEMORY_GIGABYTES = 4
_BROKERS, _HOURS = 0, 1  # parts of the files' names

# $start is the first edge in ms, $rows the files, $list(x) sorted values, $at(n) the n-th of them
_FIVE = """SELECT broker, user, client_id, direction, {window} AS slot, sum(rate) * 15 AS bytes, max(rate) AS peak,
  sum(CASE WHEN throttle_ms > 50 THEN 15 ELSE 0 END) AS throttled, count(*) AS samples
  FROM {rows} GROUP BY broker, user, client_id, direction, {window}"""
_HOURLY = """SELECT {hour} AS hour, broker, user, client_id, direction, {sum}(bytes) AS bytes, max(peak) AS peak_rate,
  {sum}(throttled) AS throttled_seconds, {sum}(samples) AS samples, {p50} AS p50, {p95} AS p95, {p99} AS p99
  FROM ({five}) AS five GROUP BY {hour}, broker, user, client_id, direction"""


def duckdb(folder: Path, out: Path, start_ms: int) -> None:
    """DuckDB, held to the memory of the bound."""
    engine = import_module("duckdb")

    connection = engine.connect(
        config={"threads": THREADS, "memory_limit": f"{MEMORY_GIGABYTES}GB"}
    )
    names = {
        f"p{percent}": f"quantile_disc(bytes, {percent / 100}) / 300.0" for percent in (50, 95, 99)
    }
    query = _query(
        f"read_parquet('{folder}/*.parquet')",
        f"(ts - 1 - {start_ms}) // 300000",
        "slot // 12",
        names,
    )
    connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


def chdb(folder: Path, out: Path, start_ms: int) -> None:
    """ClickHouse in the process, held to the memory of the bound."""
    engine = import_module("chdb")

    window = f"intDiv(ts - 1 - {start_ms}, 300000)"
    ranked = "arraySort(groupArray(bytes))[intDiv(count() * {0} + 99, 100)] / 300"
    query = _query(
        f"file('{folder}/*.parquet', Parquet)",
        window,
        "intDiv(slot, 12)",
        {f"p{n}": ranked.format(n) for n in (50, 95, 99)},
    )
    settings = (
        f"SETTINGS max_threads = {THREADS}, max_memory_usage = {MEMORY_GIGABYTES * 10**9}, "
        f"output_format_parquet_string_as_string = 1"
    )
    engine.query(
        f"{query.replace('AS bytes, max(peak)', 'AS bytes_, max(peak)')} INTO OUTFILE '{out}' "
        f"FORMAT Parquet {settings}"
    )


def polars(folder: Path, out: Path, start_ms: int) -> None:
    """Polars with its streaming engine; it has no bound of memory to be held to."""
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    engine = import_module("polars")

    client = ["broker", "user", "client_id", "direction"]
    column = engine.col
    five = (
        engine.scan_parquet(f"{folder}/*.parquet")
        .group_by(*client, ((column("ts") - 1 - start_ms) // 300_000).alias("slot"))
        .agg(
            (column("rate").sum() * 15).alias("bytes"),
            column("rate").max().alias("peak"),
            ((column("throttle_ms") > 50).sum() * 15).alias("throttled"),
            engine.len().alias("samples"),
        )
    )
    hourly = five.group_by((column("slot") // 12).alias("hour"), *client).agg(
        column("bytes").sum(),
        column("peak").max().alias("peak_rate"),
        column("throttled").sum().alias("throttled_seconds"),
        column("samples").sum(),
        # of the twelve windows of an hour these are the nearest ranks
        *(
            (
                column("bytes").quantile(percent / 100, "lower" if percent == 50 else "higher")
                / 300
            ).alias(f"p{percent}")
            for percent in (50, 95, 99)
        ),
    )
    hourly.sink_parquet(out, compression="zstd")


def spark_sql(folder: Path, out: Path, start_ms: int) -> None:
    """Spark without us: the query over all rows, with Java's usual options."""
    from tidegate.rollup.spark.session import spark_started

    ranked = (
        "element_at(sort_array(collect_list(bytes)), cast((count(*) * {0} + 99) div 100 as "
        "int)) / 300"
    )
    names = {f"p{percent}": ranked.format(percent) for percent in (50, 95, 99)}
    query = _query("raw", f"(ts - 1 - {start_ms}) div 300000", "slot div 12", names)
    usual = {"spark.driver.extraJavaOptions": ""}
    with spark_started("peer", master=f"local[{THREADS}]", memory="3g", further=usual) as spark:
        spark.session.read.parquet(str(folder)).createOrReplaceTempView("raw")
        spark.session.sql(query).write.parquet(str(out))


def spark_start(_: Path, __: Path, start_ms: int) -> None:
    """Spark with our settings, and a task for a worker that does nothing: what its start costs."""
    from tidegate.rollup.spark.session import spark_started

    with spark_started("start", master=f"local[{THREADS}]") as spark:
        spark.context.parallelize([start_ms], numSlices=1).map(float).collect()


def tidegate(folder: Path, out: Path, start_ms: int) -> None:
    """A whole run of ours that reads the files in place of Prometheus."""
    from pyspark import SparkContext

    from bench.rollup.raw_rows import RawTransport
    from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
    from tidegate.rollup.ingest import IngestOrder, WorkItem, ingest_by
    from tidegate.rollup.samples import Progress
    from tidegate.rollup.schemas import HOUR_MS
    from tidegate.rollup.spark import run as rollup_run
    from tidegate.rollup.spark.session import spark_started
    from tidegate.rollup.tables.format import new_run_id
    from tidegate.rollup.tables.publication import StagedFile
    from tidegate.rollup.transport.exchange import HistorySettings

    brokers, hours = (
        sorted({int(path.stem.split("-")[part]) for path in folder.glob("*.parquet")})
        for part in (_BROKERS, _HOURS)
    )
    end_ms, server = start_ms + len(hours) * HOUR_MS, PrometheusServer("http://127.0.0.1:9")
    order = IngestOrder(
        new_run_id(end_ms),
        f"file://{out}",
        RawTransport.name,
        MetricsSettings(server),
        HistorySettings(server),
    )

    def one(item: WorkItem) -> list[StagedFile]:
        return ingest_by(RawTransport(folder, start_ms, [item.broker]), order, item)

    def every(
        context: SparkContext,
        _: IngestOrder,
        items: Sequence[WorkItem],
        __: Progress,
        **___: object,
    ) -> list[StagedFile]:
        return list(context.parallelize(items, numSlices=len(items)).flatMap(one).collect())

    wanted = rollup_run.RollupRun(order, start_ms, end_ms, clock_ms=lambda: end_ms, tell=print)
    with (
        spark_started("tidegate", master=f"local[{THREADS}]") as spark,
        mock.patch.object(rollup_run, "ingest_all", every),
    ):
        rollup_run.run_rollup(spark, wanted, RawTransport(folder, start_ms, brokers))


def _query(rows: str, window: str, hour: str, ranks: Mapping[str, str]) -> str:
    return _HOURLY.format(
        five=_FIVE.format(rows=rows, window=window), hour=hour, sum="sum", **ranks
    )


START = "spark-start"
ENGINES: Mapping[str, Callable[[Path, Path, int], None]] = {
    START: spark_start,
    "tidegate": tidegate,
    "duckdb": duckdb,
    "polars": polars,
    "chdb": chdb,
    "spark-sql": spark_sql,
}


def main() -> int:
    """Do it and be silent."""
    engine, folder, out, start_ms = sys.argv[1:]
    ENGINES[engine](Path(folder), Path(out), int(start_ms))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
