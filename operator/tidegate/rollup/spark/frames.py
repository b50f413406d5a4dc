"""Usage tables as Spark sees them: rows of a store as a frame, and a frame's rows as staged files. Files are read and written by workers
where Spark has no reader for the storage of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_millis
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.errors import Incomplete
from tidegate.rollup.schemas import TABLES
from tidegate.rollup.tables.manifest import PublishedFile
from tidegate.rollup.tables.resolution import Part
from tidegate.rollup.tables.staging import StagedFile, stage
from tidegate.rollup.tables.store import UsageStore

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
