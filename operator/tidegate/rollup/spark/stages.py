"""The stages of a run on Spark: workers ingest samples, add up days, then tiers are added up.

The first stage has a task for each broker and range, tried again by Spark's scheduler where a
worker dies. No sample crosses into the Java machine: a task returns only the records of the files
that it staged.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, Broadcast, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as columns
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    RetryLater,
    TidegateError,
    Unauthorized,
)
from tidegate.rollup.fold.broker import BrokerTerms
from tidegate.rollup.fold.hours import Places, broker_day, ranked, usage_day
from tidegate.rollup.ingest import IngestOrder, WorkItem, ingest
from tidegate.rollup.labels import NO_LABELS
from tidegate.rollup.samples import Progress, Step, unwatched
from tidegate.rollup.schemas import BROKER, DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.format import (
    NOBODY,
    OtherOwner,
    OtherVersion,
    Owner,
    PublishedFile,
    UsageDamaged,
    packed,
    unpacked,
)
from tidegate.rollup.tables.publication import (
    Publication,
    StagedFile,
    Written,
    parts_of,
    stage,
    write_rows,
)
from tidegate.rollup.tables.store import Part, UsageStore
from tidegate_logic.reasons import Reason

_LOOK_SECONDS = 0.5
NO_TERMS: Mapping[int, Mapping[int, BrokerTerms]] = MappingProxyType({})
NO_PLACES: Mapping[int, Places] = MappingProxyType({})


def ingest_all(
    context: SparkContext,
    order: IngestOrder,
    items: Sequence[WorkItem],
    progress: Progress = unwatched,
    *,
    terms: Mapping[int, Mapping[int, BrokerTerms]] = NO_TERMS,
    places: Mapping[int, Places] = NO_PLACES,
    at_once: int | None = None,
) -> list[StagedFile]:
    """Carry all items out, at most `at_once` at the same time; no item, no file.

    Raises PySparkException when a task keeps failing.

    `terms` are by the items' start and broker, `places` of clients by the items' start. A worker
    unpacks those of the hours that it gets: the terms of a day of 5000 members are megabytes.
    """
    if not items:
        return []
    ended = context.accumulator(0)
    by_hour = {start_ms: context.broadcast(brokers) for start_ms, brokers in terms.items()}
    places_of = _shared_by_hours(context, places)
    # a task is tried again as a whole, so it has one item where nothing speaks against it
    slices = len(items) if at_once is None else min(len(items), at_once)
    tasks = context.parallelize(items, numSlices=slices).flatMap(
        partial(_counted, ended, order, by_hour, places_of)
    )
    try:
        with _repeated(lambda: progress(Step.INGESTED, ended.value, len(items))):
            staged = list(tasks.collect())
    finally:
        for one in (*by_hour.values(), *places_of.values()):
            one.unpersist()
    progress(Step.INGESTED, len(items), len(items))
    return staged


def write_all(
    context: SparkContext, store_url: str, publications: Sequence[Publication]
) -> list[list[Written]]:
    """Write the files of all publications, of each in parts; the driver names them.

    Without any row there is nothing for Spark to do. Raises PySparkException when a task keeps
    failing.
    """
    parts = [
        (number, part)
        for number, publication in enumerate(publications)
        if publication.staged
        for part in parts_of(publication)
    ]
    found: list[list[Written]] = [[] for _ in publications]
    if parts:
        tasks = context.parallelize(parts, numSlices=len(parts))
        for number, written in tasks.map(partial(_written, store_url)).collect():
            found[number].append(written)
    return found


def _written(store_url: str, part: tuple[int, Publication]) -> tuple[int, Written]:
    number, publication = part
    return number, write_rows(UsageStore.at(store_url), publication)


def _shared_by_hours(
    context: SparkContext, places: Mapping[int, Places]
) -> Mapping[int, Broadcast[Places]]:
    """Hours in a row in which nobody moved share what is sent, as nearly always."""
    found: dict[int, Broadcast[Places]] = {}
    last: tuple[Places, Broadcast[Places]] | None = None
    for start_ms, each in sorted(places.items()):
        if last is None or last[0] != each:
            last = each, context.broadcast(each)
        found[start_ms] = last[1]
    return found


def _counted(
    ended: Accumulator[int],
    order: IngestOrder,
    terms: Mapping[int, Broadcast[Mapping[int, BrokerTerms]]],
    places: Mapping[int, Broadcast[Places]],
    item: WorkItem,
) -> list[StagedFile]:
    """Ingest and count; Spark adds once a task has ended well, however often it was tried."""
    hour, places_then = terms.get(item.start_ms), places.get(item.start_ms)
    own = None if hour is None else hour.value.get(item.broker)
    known = {} if places_then is None else places_then.value
    staged = ingest(order, replace(item, terms=own, places=known))
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


# Days of users and brokers: the hours of one client are in many files, so each file is read once,
# and its rows go to the task of their client. Spark carries them as bytes and looks at none, so
# that a run without tiers needs no SQL, which takes seconds to begin.


_TASK_ROWS = 500_000  # of a day; a third of a gigabyte while they are added up
_PLACE = ("window_start", "broker", "user", "client_id")
_MEASURED = (
    *("direction", "bytes", "peak_rate", "throttled_seconds", "over_contract_seconds"),
    *("deferred_bytes", "samples", "coverage"),
)
_FINER = {"usage_1d": ("usage_5m", "usage_1h"), "broker_1d": ("broker_5m",)}
_COLUMNS = {
    "usage_5m": (*_PLACE, *_MEASURED),
    "usage_1h": (*_PLACE, "tier", "labels"),
    "broker_5m": tuple(BROKER.names),
}
_Slice = tuple[int, tuple[int, str, bytes]]  # a task, with packed rows of a day and a table


def stage_days(
    context: SparkContext, order: IngestOrder, table: str, days: range
) -> list[StagedFile]:
    """Stage `usage_1d` or `broker_1d` of all days from what is published of their hours.

    Raises PySparkException when a task keeps failing.
    """
    store, span = UsageStore.at(order.store_url), (days[0], days[-1] + DAY_MS)
    pieces = [
        (finer, part, file)
        for finer in _FINER[table]
        for part in store.parts(finer, *span)
        for file in part.files
    ]
    if not pieces:
        return []
    rows = sum(file.rows for _, _, file in pieces)
    tasks = max(context.defaultParallelism, rows // len(days) // _TASK_ROWS)
    slices = context.parallelize(pieces, numSlices=len(pieces)).flatMap(
        partial(_by_task, order.store_url, span, tasks)
    )
    staged = slices.partitionBy(tasks, _same).mapPartitionsWithIndex(
        partial(_stage_days, order, table)
    )
    return list(staged.collect())


def _by_task(
    store_url: str, span: tuple[int, int], tasks: int, piece: tuple[str, Part, PublishedFile]
) -> Iterator[_Slice]:
    """The file's rows, which are of one day."""
    finer, part, file = piece
    rows = UsageStore.at(store_url).file_rows(
        part, file, start_ms=span[0], end_ms=span[1], columns=_COLUMNS[finer]
    )
    numbers = _tasks_of(rows) % tasks
    order = np.argsort(numbers, kind="stable")
    rows, edges = rows.take(pa.array(order)), np.searchsorted(numbers[order], range(tasks + 1))
    for task, (start, end) in enumerate(pairwise(edges.tolist())):
        if start < end:
            day_ms = part.manifest.window.day.start_ms
            yield task, (day_ms, finer, packed(rows.slice(start, end - start)))


def _tasks_of(rows: pa.Table) -> NDArray[np.int64]:
    """A number for each row, the same for all rows of a client, or of a broker."""
    numbers: NDArray[np.int64]
    if "user" not in rows.column_names:
        numbers = rows["broker"].to_numpy().astype(np.int64)
        return numbers
    names = pc.binary_join_element_wise(rows["user"], rows["client_id"], "\0")
    found = names.combine_chunks().dictionary_encode()
    of_names = np.array([crc32(name.encode()) for name in found.dictionary.to_pylist()], np.int64)
    numbers = of_names[found.indices.to_numpy()]
    return numbers


def _same(task: int) -> int:
    return task


def _stage_days(
    order: IngestOrder, table: str, number: int, slices: Iterator[_Slice]
) -> list[StagedFile]:
    found: dict[int, dict[str, list[bytes]]] = {}
    for _, (day_ms, finer, content) in slices:
        found.setdefault(day_ms, {}).setdefault(finer, []).append(content)
    store, staged = UsageStore.at(order.store_url), list[StagedFile]()
    for day_ms in sorted(found):
        own = found.pop(day_ms)
        rows = [_unpacked(name, own.get(name, [])) for name in _FINER[table]]
        day = usage_day(*rows) if table == "usage_1d" else broker_day(*rows)
        staged += stage(store, order.run_id, table, day, part=number, owner=order.owner)
    return staged


def _unpacked(table: str, slices: Sequence[bytes]) -> pa.Table:
    none = TABLES[table].schema.empty_table().select(_COLUMNS[table])
    return pa.concat_tables([none, *map(unpacked, slices)])


# Tiers, whose members are on many brokers. Sums of finer rows are those of the coarser ones, to the
# byte. The column `values` has the bytes of a row's 5 minutes: workers rank them, as they do those
# of hours, when they stage the rows.


_GRAINS = {HOUR_MS: "HOUR", DAY_MS: "DAY"}
VALUES = "values"


def tier_sums(fine: DataFrame, tiers: DataFrame, states: DataFrame, *, window_ms: int) -> DataFrame:
    """`usage_5m` -> `tier_1h` or `tier_1d`, over the members of each tier.

    A member's 5-minute rate is that of all brokers together. `states` has window_start, tier,
    direction, throttle_episodes and the seconds_*; a tier that is only in them has a row without
    bytes.
    """
    rates = (
        in_tiers(fine, tiers)
        .where("tier != ''")
        .groupBy("window_start", "tier", "user", "client_id", "direction")
        .agg(*_summed())
    )
    grouped = rates.groupBy(_start(window_ms), "tier", "direction").agg(
        *_summed(), columns.collect_list("bytes").alias(VALUES)
    )
    joined = grouped.join(columns.broadcast(states), ["window_start", "tier", "direction"], "full")
    seconds = [name for name in states.columns if name.startswith("seconds_")]
    floats = ["peak_rate", "throttled_seconds", "over_contract_seconds", *seconds]
    return joined.fillna(0.0, floats).fillna(0, ["bytes", "deferred_bytes", "throttle_episodes"])


def in_tiers(fine: DataFrame, tiers: DataFrame) -> DataFrame:
    """Rows of 5 minutes with their tier and labels, "" and "{}" for clients of none.

    `tiers` has user, client_id, tier, labels, and `hour` where these may change.
    """
    keys = ["user", "client_id"]
    if "hour" in tiers.columns:
        keys.append("hour")
        fine = fine.withColumn("hour", columns.date_trunc("HOUR", "window_start"))
    return fine.join(columns.broadcast(tiers), keys, "left").fillna(
        {"tier": "", "labels": NO_LABELS}
    )


def tiers_by_hour(usage: DataFrame) -> DataFrame:
    """`usage_1h` -> who was a member of which tier in each hour, with which labels."""
    return usage.select(
        columns.col("window_start").alias("hour"), "user", "client_id", "tier", "labels"
    ).distinct()


def state_sums(hours: DataFrame, *, window_ms: int) -> DataFrame:
    """`tier_1h` -> the states of tiers over longer windows."""
    summed = [
        columns.sum(name).alias(name) for name in hours.columns if name.startswith("seconds_")
    ]
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


# Rows of a store as a Spark frame, and a frame's rows as staged files. Workers read and write files
# where Spark has no reader of its own for the storage.


_RECORD = (
    "table string, window_start_ms long, path string, rows long, size_bytes long, sha256 "
    "string, sums map<string, long>"
)


def frame_of(
    spark: SparkSession, store_url: str, table: str, start_ms: int, end_ms: int
) -> DataFrame:
    """All rows of the table with a window_start in [start_ms, end_ms), each once."""
    files = _files(store_url, table, start_ms, end_ms)
    if files is None or not all(file.startswith("/") for file in files):
        return _read_by_workers(spark, store_url, table, start_ms=start_ms, end_ms=end_ms)
    schema = from_arrow_schema(TABLES[table].schema, prefer_timestamp_ntz=False)
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(*files)
    return rows.where(columns.unix_millis("window_start").between(start_ms, end_ms - 1))


def stage_frame(
    rows: DataFrame, store_url: str, run_id: str, table: str, *, owner: Owner = NOBODY
) -> list[StagedFile]:
    """Write the frame's rows into the run's staging; a partition without rows leaves no file.

    Percentiles and sketches are those of the `values`, where the frame has them.
    """
    computed = TABLES[table].computed
    if VALUES in rows.columns:
        computed = (*(name for name in computed if name in rows.columns), VALUES)
    wanted = rows.select(*computed)
    records = wanted.mapInArrow(partial(_stage, store_url, run_id, table, owner), _RECORD).collect()
    return [StagedFile(**record.asDict()) for record in records]


def _files(store_url: str, table: str, start_ms: int, end_ms: int) -> list[str] | None:
    """None while a file has rows in the range that are valid no more, which Spark would read."""
    try:
        return UsageStore.at(store_url).files(table, start_ms, end_ms)
    except Incomplete:
        return None


def _read_by_workers(
    spark: SparkSession, store_url: str, table: str, *, start_ms: int, end_ms: int
) -> DataFrame:
    pieces = [
        (part, file)
        for part in UsageStore.at(store_url).parts(table, start_ms, end_ms)
        for file in part.files
    ]
    schema = from_arrow_schema(TABLES[table].schema, prefer_timestamp_ntz=False)
    return spark.range(len(pieces)).mapInArrow(
        partial(_read, store_url, pieces, (start_ms, end_ms)), schema
    )


def _read(
    store_url: str,
    pieces: Sequence[tuple[Part, PublishedFile]],
    span: tuple[int, int],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    store = UsageStore.at(store_url)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part, file = pieces[number]
            yield from _with_sparks_times(
                store.file_rows(part, file, start_ms=span[0], end_ms=span[1])
            ).to_batches()


def _with_sparks_times(rows: pa.Table) -> pa.Table:
    """Spark takes microseconds and refuses whole batches of milliseconds."""
    times = rows["window_start"].cast(pa.timestamp("us", tz="UTC"))
    return rows.set_column(rows.schema.get_field_index("window_start"), "window_start", times)


def _stage(
    store_url: str, run_id: str, table: str, owner: Owner, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if not found:
        return
    context = TaskContext.get()
    part = context.partitionId() if context is not None else 0
    rows = _with_ranks(pa.Table.from_batches(found))
    staged = stage(UsageStore.at(store_url), run_id, table, rows, part=part, owner=owner)
    records = [{**asdict(file), "sums": list(file.sums.items())} for file in staged]
    yield from pa.Table.from_pylist(records, schema=_ARROW_RECORD).to_batches()


def _with_ranks(rows: pa.Table) -> pa.Table:
    if VALUES not in rows.column_names:
        return rows
    lists = rows[VALUES].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ranks = ranked(lists.flatten().to_numpy(), np.append(0, np.cumsum(counts)))
    for name, values in {**ranks.percentiles, "sketch": ranks.sketch}.items():
        rows = rows.append_column(name, values)
    return rows.drop_columns([VALUES])


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


# Spark returns only the text of a worker's traceback. The worker's own error is made from it.


_RAISED = re.compile(r"^tidegate\.[\w.]+\.(?P<kind>[A-Z]\w+): (?P<message>.+)$", re.MULTILINE)
_LOST = re.compile(
    r"ExecutorLostFailure|Python worker exited unexpectedly|OutOfMemoryError|MemoryError"
)
_MADE: Mapping[str, Callable[[str], TidegateError]] = {
    "InvalidResource": InvalidResource,
    "NotFound": lambda message: NotFound(Reason.METRICS_MISSING, message),
    "OtherOwner": OtherOwner,
    "OtherVersion": OtherVersion,
    "Unauthorized": Unauthorized,
    "UsageDamaged": UsageDamaged,
}


@contextmanager
def workers_errors() -> Iterator[None]:
    """Raise a worker's own error of tidegate.errors instead of Spark's.

    RetryLater where the worker was lost. Everything else goes on as it is: it is a bug.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        own = from_worker(str(error))
        if own is None:
            raise
        raise own from error


def from_worker(text: str) -> TidegateError | None:
    """The last error in Spark's text, which ended the run, None if it has none of ours.

    A kind that may pass by itself comes as Incomplete.
    """
    found = list(_RAISED.finditer(text))
    if found:
        kind, message = found[-1]["kind"], found[-1]["message"]
        return _MADE.get(kind, _passing)(message)
    lost = _LOST.search(text)
    if lost is None:
        return None
    problem = (
        f"Spark lost workers again and again ({lost[0]}), which happens when they have too little "
        "memory; what is published is whole."
    )
    return RetryLater(Reason.USAGE_INCOMPLETE, f"{problem} Give the policy's rollup more memory.")


def _passing(message: str) -> TidegateError:
    return Incomplete(Reason.METRICS_INCOMPLETE, message)
