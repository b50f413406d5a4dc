"""Spark's Python workers: all of them are forked from one process of ours that has already imported
the modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.rollup.spark.session import WORKER_DAEMON

pytestmark = pytest.mark.integration


def parents(_: Iterable[int]) -> Iterator[int]:
    yield os.getppid()


def parents_of_sql(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"parent": pa.array([os.getppid()], pa.int64())})


def started_as(_: Iterable[int]) -> Iterator[str]:
    yield sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]


def test_tasks_and_frames_have_the_same_workers(spark: SparkSession) -> None:
    of_tasks = spark.sparkContext.range(4, numSlices=4).mapPartitions(parents).collect()
    of_frames = [
        row.parent
        for row in spark.range(4, numPartitions=4)
        .mapInArrow(parents_of_sql, "parent long")
        .collect()
    ]
    assert len({*of_tasks, *of_frames}) == 1


def test_workers_are_forked_from_our_process(spark: SparkSession) -> None:
    assert set(spark.sparkContext.range(2, numSlices=2).mapPartitions(started_as).collect()) == {
        WORKER_DAEMON
    }
