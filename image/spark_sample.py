"""A small Spark job that goes the ways of a rollup.

It has Python workers that write and read Parquet, a join, sums, sketches, rows to workers. Run
inside the image by `smoke`, which wants to know whether it works and how soon; the build runs it,
too, and keeps a record of the classes that it loads. Arguments: Spark's master, a directory that
can be written to, Java's options.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as columns

_ROWS = 20_000
_HOUR_SECONDS = 3600


def main(master: str, directory: str, java_options: str = "") -> None:
    """Say how long it took, or exit with what was wrong."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    started = time.monotonic()
    builder = SparkSession.builder.appName("sample").master(master)
    for key, value in {
        **_SETTINGS,
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {java_options}",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    opened = time.monotonic()
    found = sum(
        row.total
        for row in _hours(_stored(spark, directory)).mapInArrow(_totals, "total long").collect()
    )
    worked, processor_seconds = time.monotonic(), _java_processor_seconds(spark)
    spark.stop()
    if found != _ROWS * (_ROWS - 1) // 2:
        sys.exit(
            f"Spark read a sum of {found} out of the Parquet files in {directory}, and other "
            f"rows were written."
        )
    times = (
        f"{opened - started:.1f} s to a session of Spark's, {worked - opened:.1f} s for a "
        f"small job with Parquet and Python workers"
    )
    print(f"{times}; {processor_seconds:.1f} s of Java's processor time")


def _stored(spark: SparkSession, directory: str) -> DataFrame:
    """Rows that a worker wrote, as Spark reads them again.

    Those that Spark itself writes are read by it, too.
    """
    user = columns.concat(columns.lit("u"), columns.col("id") % 7)
    samples = (
        spark.range(_ROWS)
        .withColumn("at", columns.timestamp_seconds("id"))
        .withColumn("user", user)
    )
    paths = [row.path for row in samples.mapInArrow(_writing(directory), "path string").collect()]
    return spark.read.schema(samples.schema).parquet(*paths)


def _hours(samples: DataFrame) -> DataFrame:
    """Joined, added up and sorted as usage is."""
    tiers = samples.sparkSession.createDataFrame([("u1", "gold")], "user string, tier string")
    named = samples.join(columns.broadcast(tiers), ["user"], "left").fillna("", ["tier"])
    grouped = named.groupBy(columns.date_trunc("HOUR", "at").alias("hour"), "user", "tier").agg(
        columns.sum("id").alias("total"),
        columns.max_by("id", columns.when(columns.col("id").isNotNull(), columns.col("at"))).alias(
            "last"
        ),
        columns.sort_array(columns.collect_list("id")).alias("values"),
        columns.kll_sketch_agg_double(columns.col("id") / _HOUR_SECONDS, columns.lit(1024)).alias(
            "sketch"
        ),
    )
    return grouped.withColumn(
        "p50", columns.expr("element_at(values, cast((size(values) * 50 + 99) div 100 as int))")
    ).drop("values")


def _writing(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            path = f"{directory}/{batch.column(0)[0]}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), path, compression="zstd")
            yield pa.RecordBatch.from_pydict({"path": [path]})

    return write


def _totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["total"])


def _java_processor_seconds(spark: SparkSession) -> float:
    """What the driver's Java machine has used so far, in seconds of processors.

    That says more than the clock where others are at work.
    """
    java = spark.sparkContext._gateway.proc.pid
    user_ticks, system_ticks = (
        Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()[11:13]
    )
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}

if __name__ == "__main__":
    main(*sys.argv[1:])
