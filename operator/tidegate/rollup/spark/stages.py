"""The first stage on Spark: a task for each broker and range, tried again by Spark's scheduler where a worker dies.

No sample crosses into the Java machine: a task gives back only the records of the files that it staged.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark import Accumulator
from pyspark.sql import SparkSession

from tidegate.rollup.ingest.task import ingest
from tidegate.rollup.ingest.work import IngestOrder, WorkItem
from tidegate.rollup.progress import Progress, Step, unwatched
from tidegate.rollup.tables.staging import StagedFile

_LOOK_SECONDS = 0.5


def ingest_all(spark: SparkSession, order: IngestOrder, items: Sequence[WorkItem], progress: Progress = unwatched) -> list[StagedFile]:
    """Carry all items out; no item, no file. Raises PySparkException when a task failed each time that it was tried."""
    if not items:
        return []
    ended = spark.sparkContext.accumulator(0)
    tasks = spark.sparkContext.parallelize(items, numSlices=len(items)).flatMap(partial(_counted, ended, order))
    with _repeated(lambda: progress(Step.INGESTED, ended.value, len(items))):
        staged = list(tasks.collect())
    progress(Step.INGESTED, len(items), len(items))
    return staged


def _counted(ended: Accumulator[int], order: IngestOrder, item: WorkItem) -> list[StagedFile]:
    """Spark counts what a task added once, when the task has ended well, however often it was tried."""
    staged = ingest(order, item)
    ended.add(1)
    return staged


@contextmanager
def _repeated(look: Callable[[], None]) -> Iterator[None]:
    """Call it at once, and in a thread of its own again and again until the block is left."""
    left = threading.Event()

    def repeat() -> None:
        while not left.wait(_LOOK_SECONDS):
            look()

    look()
    thread = threading.Thread(target=repeat, name="rollup-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
