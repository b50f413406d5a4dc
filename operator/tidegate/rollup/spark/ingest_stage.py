"""The first stage on Spark: a task for each broker and range, tried again by Spark's scheduler where a worker dies.

No sample crosses into the Java machine: a task gives back only the records of the files that it staged.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from tidegate.rollup.ingest.task import ingest
from tidegate.rollup.ingest.work import IngestOrder, WorkItem
from tidegate.rollup.tables.staging import StagedFile


def ingest_all(spark: SparkSession, order: IngestOrder, items: Sequence[WorkItem]) -> list[StagedFile]:
    """Carry all items out; no item, no file. Raises PySparkException when a task failed each time that it was tried."""
    if not items:
        return []
    return list(spark.sparkContext.parallelize(items, numSlices=len(items)).flatMap(partial(ingest, order)).collect())
