"""Spark for a run, `local[*]` in this process, without a port that the network sees.

On a cluster the executors are Pods; those settings are the Job's and come in as `further`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

# A task that fails is tried twice more, as it would be on a cluster.
LOCAL = "local[*,3]"
# a level set later is too late for what Spark logs while it starts
_LOGGING = Path(__file__).with_name("log4j2.properties")
# Of more groups than these Spark sorts rows before it adds them up, and has one at a time. Its
# default of 128 is few for the hours of a day's tiers.
_HASHED_KEYS = 12_288
WORKER_DAEMON = "tidegate.rollup.spark.worker_daemon"
# Of the driver's Java machine. A run on one machine is over before code that was compiled twice
# pays: without the second compiler even 10 million samples take no longer, and a sixth less of the
# processors. Classes fill more than the metaspace that Java begins with, which would be four
# collections of the whole heap. Rows pass through and few stay: beside a young generation of a
# third of the heap, as is usual, this small one saves a cold hour of 10,000 series 0.1 GB and costs
# it a second; longer runs save more.
_JAVA_OPTIONS = (
    "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m -XX:MaxNewSize=96m"
)
# A worker goes on to its next task with what the last one took from the system. Freed arrays of
# 4 MB and more go back at once, those of Arrow by the same way. Smaller ones stay, 16 MB at most at
# the end of the heap: where a quarter of a megabyte went back, two fifths of a worker's processor
# time were the system's, for fresh pages, and a worker was only 30 MB smaller.
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "4194304",
    "MALLOC_TRIM_THRESHOLD_": "16000000",
}
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    SHUFFLE_PARTITIONS: "8",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(_HASHED_KEYS),
    "spark.sql.files.maxPartitionBytes": "16m",
    # otherwise workers of SQL have another environment than the others, and so another daemon
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}


def shuffle_settings(cores: int) -> dict[str, str]:
    """As many partitions as there are cores, and some: Spark joins small ones, and divides none."""
    return {SHUFFLE_PARTITIONS: str(max(int(_SQL_SETTINGS[SHUFFLE_PARTITIONS]), 2 * cores))}


@dataclass(frozen=True)
class Spark:
    """Spark's context, which runs tasks, and the session for SQL beside it.

    A session takes Java two seconds of processors, so it is opened when it is first needed.
    """

    context: SparkContext
    opened: Callable[[], SparkSession]

    @cached_property
    def session(self) -> SparkSession:
        return self.opened()


@contextmanager
def spark_started(
    name: str, *, master: str = LOCAL, memory: str = "1g", further: Mapping[str, str] | None = None
) -> Iterator[Spark]:
    """Running for the block; `memory` is the driver's heap, if no Java machine runs here yet.

    Where a session is open already, in a notebook, its Java machine does the work, with settings of
    our own, and stays.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield beside(running)
        return
    # workers would take any python3 otherwise, which need not have our packages
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for variable, value in _MEMORY.items():
        os.environ.setdefault(variable, value)
    settings = {**_settings(memory), **(further or {})}
    own = SparkConf().setAppName(name).setMaster(master).setAll(list(settings.items()))
    context = SparkContext.getOrCreate(own)
    context.setLogLevel("ERROR")
    spark = Spark(context, _of_context)
    try:
        yield spark
    finally:
        if "session" in vars(spark):
            spark.session.stop()
        else:
            context.stop()


def _of_context() -> SparkSession:
    """A session with the settings of the context that runs."""
    return SparkSession.builder.getOrCreate()


def beside(running: SparkSession) -> Spark:
    """Tasks and SQL on the Java machine of an open session, with settings of our own."""

    def opened() -> SparkSession:
        session = running.newSession()
        for key, value in _SQL_SETTINGS.items():
            session.conf.set(key, value)
        return session

    return Spark(running.sparkContext, opened)


def _settings(memory: str) -> dict[str, str]:
    logging = f"-Dlog4j2.configurationFile={_LOGGING}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {logging}",
        # Executors are Pods of the same image, and have the file at the same path. They have more
        # to do and a size of their own, so collector and compilers are Java's usual ones.
        "spark.executor.extraJavaOptions": logging,
        **{f"spark.executorEnv.{variable}": value for variable, value in _MEMORY.items()},
        **_SQL_SETTINGS,
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": WORKER_DAEMON,
    }
