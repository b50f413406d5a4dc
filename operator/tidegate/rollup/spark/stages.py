"""The first stage on Spark: a task for each broker and range, tried again by Spark's scheduler where a worker dies.

No sample crosses into the Java machine: a task gives back only the records of the files that it staged.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_millis
from pyspark.sql.pandas.types import from_arrow_schema

from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, InvalidResource, NotFound, RetryLater, TidegateError, Unauthorized
from tidegate.rollup.ingest import IngestOrder, WorkItem, ingest
from tidegate.rollup.samples import Progress, Step, unwatched
from tidegate.rollup.schemas import TABLES
from tidegate.rollup.tables.format import OtherVersion, PublishedFile, UsageDamaged
from tidegate.rollup.tables.publication import StagedFile, stage
from tidegate.rollup.tables.store import Part, UsageStore

# Spark returns only the text of a worker's traceback. The worker's own error is made from it.


_RAISED = re.compile(r"^tidegate\.[\w.]+\.(?P<kind>[A-Z]\w+): (?P<message>.+)$", re.MULTILINE)
_LOST = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly|OutOfMemoryError|MemoryError")
_MADE: Mapping[str, Callable[[str], TidegateError]] = {
    "InvalidResource": InvalidResource,
    "NotFound": lambda message: NotFound(Reason.METRICS_MISSING, message),
    "OtherVersion": OtherVersion,
    "Unauthorized": Unauthorized,
    "UsageDamaged": UsageDamaged,
}


@contextmanager
def workers_errors() -> Iterator[None]:
    """Raises the worker's own error in place of Spark's, where it was one of tidegate.errors; RetryLater where the worker was lost.

    Everything else goes on as it is: it is a bug.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        own = from_worker(str(error))
        if own is None:
            raise
        raise own from error


def from_worker(text: str) -> TidegateError | None:
    """The last error in the text of Spark's, which is the one that ended the run; a kind that may pass by itself comes as Incomplete."""
    found = list(_RAISED.finditer(text))
    if found:
        kind, message = found[-1]["kind"], found[-1]["message"]
        return _MADE.get(kind, _passing)(message)
    lost = _LOST.search(text)
    if lost is None:
        return None
    problem = f"Spark lost workers again and again ({lost[0]}), as it happens when they get too little memory; what is published is whole."
    return RetryLater(Reason.USAGE_INCOMPLETE, f"{problem} Give the policy's rollup more memory.")


def _passing(message: str) -> TidegateError:
    return Incomplete(Reason.METRICS_INCOMPLETE, message)


# Rows of a store as a Spark frame, and a frame's rows as staged files. Workers read and write files
# where Spark has no reader of its own for the storage.


_RECORD = "table string, window_start_ms long, path string, rows long, size_bytes long, sha256 string, sums map<string, long>"


def frame_of(spark: SparkSession, store_url: str, table: str, start_ms: int, end_ms: int) -> DataFrame:
    """All rows of the table with a window_start in [start_ms, end_ms), each once."""
    files = _files(store_url, table, start_ms, end_ms)
    if files is None or not all(file.startswith("/") for file in files):
        return _read_by_workers(spark, store_url, table, start_ms=start_ms, end_ms=end_ms)
    schema = from_arrow_schema(TABLES[table].schema, prefer_timestamp_ntz=False)
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(*files)
    return rows.where(unix_millis("window_start").between(start_ms, end_ms - 1))


def stage_frame(rows: DataFrame, store_url: str, run_id: str, table: str) -> list[StagedFile]:
    """Write the frame's rows into the run's staging; a partition without rows leaves no file."""
    wanted = rows.select(*TABLES[table].schema.names)
    records = wanted.mapInArrow(partial(_stage, store_url, run_id, table), _RECORD).collect()
    return [StagedFile(**record.asDict()) for record in records]


def _files(store_url: str, table: str, start_ms: int, end_ms: int) -> list[str] | None:
    """None while a file has rows in the range that are valid no more: then only a reader that knows of it may read."""
    try:
        return UsageStore.at(store_url).files(table, start_ms, end_ms)
    except Incomplete:
        return None


def _read_by_workers(spark: SparkSession, store_url: str, table: str, *, start_ms: int, end_ms: int) -> DataFrame:
    pieces = [(part, file) for part in UsageStore.at(store_url).parts(table, start_ms, end_ms) for file in part.files]
    schema = from_arrow_schema(TABLES[table].schema, prefer_timestamp_ntz=False)
    return spark.range(len(pieces)).mapInArrow(partial(_read, store_url, pieces, (start_ms, end_ms)), schema)


def _read(
    store_url: str, pieces: Sequence[tuple[Part, PublishedFile]], span: tuple[int, int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    store = UsageStore.at(store_url)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part, file = pieces[number]
            yield from _with_sparks_times(store.file_rows(part, file, start_ms=span[0], end_ms=span[1])).to_batches()


def _with_sparks_times(rows: pa.Table) -> pa.Table:
    """Spark takes microseconds and refuses whole batches of milliseconds."""
    times = rows["window_start"].cast(pa.timestamp("us", tz="UTC"))
    return rows.set_column(rows.schema.get_field_index("window_start"), "window_start", times)


def _stage(store_url: str, run_id: str, table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if not found:
        return
    context = TaskContext.get()
    part = context.partitionId() if context is not None else 0
    staged = stage(UsageStore.at(store_url), run_id, table, pa.Table.from_batches(found), part=part)
    records = [{**asdict(file), "sums": list(file.sums.items())} for file in staged]
    yield from pa.Table.from_pylist(records, schema=_ARROW_RECORD).to_batches()


_ARROW_RECORD = pa.schema(
    [
        ("table", pa.string()),
        ("window_start_ms", pa.int64()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("sha256", pa.string()),
        ("sums", pa.map_(pa.string(), pa.int64())),
    ]
)


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
