"""For notebooks: Prometheus as a source of Spark's, and the usage tables of a store as frames."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    DataType,
    DoubleType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import (
    BasicLogin,
    BearerLogin,
    BrokerLabel,
    MetricsSettings,
    Preset,
    PrometheusServer,
)
from tidegate.resources.fields import moment
from tidegate.rollup.ingest import DirectionSelections, catalogue
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples, selection_of
from tidegate.rollup.schemas import DIRECTIONS, TABLES
from tidegate.rollup.spark.stages import frame_of
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import ClientCertificate, HistorySettings
from tidegate.rollup.transport.readers import choose_reader, open_reader

# Arrow batches in a Spark schema's columns: `time`, `value`, `labels`, or single labels by name.


TIME, VALUE, LABELS = "time", "value", "labels"
_ROWS_IN_BATCH = 65_536
_STRINGS = MapType(StringType(), StringType(), valueContainsNull=False)
_FIXED: dict[str, DataType] = {TIME: TimestampType(), VALUE: DoubleType(), LABELS: _STRINGS}


def schema_for(labels: Sequence[str]) -> StructType:
    """Columns `time`, one for each label, and `value`; without labels, one map `labels`."""
    strings = [StructField(name, StringType(), nullable=False) for name in labels] or [
        StructField(LABELS, _STRINGS, nullable=False)
    ]
    return StructType(
        [
            StructField(TIME, TimestampType(), nullable=False),
            *strings,
            StructField(VALUE, DoubleType(), nullable=False),
        ]
    )


def require_readable(schema: StructType) -> None:
    """Raises InvalidResource for a column whose type is not what is read."""
    for column in schema.fields:
        wanted = _FIXED.get(column.name, StringType())
        if column.dataType.typeName() != wanted.typeName():
            problem = f"Column {column.name} is asked for as {column.dataType.simpleString()}"
            problem = f"{problem}, and is {wanted.simpleString()}; cast it afterwards."
            raise InvalidResource(
                f"{problem} Every other name than {TIME}, {VALUE} and {LABELS} is that of a label."
            )


def batches(series: Sequence[SeriesSamples], schema: StructType) -> Iterator[pa.RecordBatch]:
    """All samples, series by series. A label that a series lacks is "", as it is for Prometheus."""
    if not series:
        return
    rows = np.repeat(np.arange(len(series)), [len(one.times_ms) for one in series])
    names = pa.array(rows)
    columns = {column.name: _column(series, column.name, names) for column in schema.fields}
    arrow = pa.schema([_field(column) for column in schema.fields])
    yield from pa.table(columns).cast(arrow).to_batches(max_chunksize=_ROWS_IN_BATCH)


def _column(series: Sequence[SeriesSamples], name: str, rows: pa.Array) -> pa.Array:
    if name == TIME:
        return pa.array(np.concatenate([one.times_ms for one in series]) * 1000).cast(
            pa.timestamp("us", tz="UTC")
        )
    if name == VALUE:
        return pa.array(np.concatenate([one.values for one in series]))
    if name == LABELS:
        return pa.array(
            [list(one.labels.items()) for one in series], pa.map_(pa.string(), pa.string())
        ).take(rows)
    return pa.array([one.labels.get(name, "") for one in series], pa.string()).take(rows)


def _field(column: StructField) -> pa.Field:
    """As Spark expects it, to the letter: it compares schemas."""
    kinds = {TIME: pa.timestamp("us", tz="UTC"), VALUE: pa.float64()}
    kind = kinds.get(column.name, pa.string())
    if isinstance(column.dataType, MapType):
        kind = pa.map_(
            pa.string(), pa.field("value", pa.string(), nullable=column.dataType.valueContainsNull)
        )
    return pa.field(column.name, kind, nullable=column.nullable)


# Options of the data source `tidegate.prometheus` are text, and their names ignore case as Spark's
# do. An unknown option is refused, because a misspelt `token` would mean a read without one.


SERIES = ("nics", "client_bytes", "replication_bytes", "rates", "throttle_times")
OPTIONS = (
    *(
        "url",
        "query",
        "preset",
        "series",
        "direction",
        "brokerLabel",
        "start",
        "end",
        "chunkSeconds",
        "labels",
    ),
    *("token", "tokenFile", "username", "password", "caFile", "certificateFile", "keyFile"),
    *("replicaLabels", "externalLabels", "scrapeIntervalSeconds", "parallelRequests"),
)
HEADER = "header."
_CHUNK_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """`selection` in [start_ms, end_ms), read in pieces of `chunk_ms`."""

    selection: Selection
    history: HistorySettings = field(repr=False)
    start_ms: int
    end_ms: int
    chunk_ms: int

    def pieces_ms(self) -> Iterator[tuple[int, int]]:
        """Ranges on whole chunks of the clock: the same pieces whatever was asked for."""
        at_ms = self.start_ms
        while at_ms < self.end_ms:
            upto_ms = min(self.end_ms, at_ms - at_ms % self.chunk_ms + self.chunk_ms)
            yield at_ms, upto_ms
            at_ms = upto_ms


def labels_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The labels that are columns of their own; none = all of them in one map."""
    return _names(_Options(options), "labels")


def request_of(options: Mapping[str, str]) -> SourceRequest:
    """Raises InvalidResource for whatever is missing, unknown or makes no sense."""
    given = _Options(options)
    server = PrometheusServer(
        given.required("url", "the server, such as http://prometheus:9090"),
        _login(given),
        given.get("caFile"),
    )
    now_seconds = time.time()
    since = given.required(
        "start",
        "the first moment: a time such as 2026-11-21T11:00:00Z, or how long ago, such as 2h",
    )
    start_ms, end_ms = (
        int(moment(text, now_seconds=now_seconds) * 1000)
        for text in (since, given.get("end") or "0s")
    )
    if start_ms >= end_ms:
        raise InvalidResource(
            f"There is no time between start={since} and end={given.get('end') or 'now'}: "
            f"nothing can be read."
        )
    return SourceRequest(
        _selection(given, server),
        _history(given, server),
        start_ms,
        end_ms,
        given.count("chunkSeconds", _CHUNK_SECONDS) * 1000,
    )


class _Options:
    """Options by name, whatever their case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in OPTIONS}
        if unknown := sorted(
            name for name in self._given if name not in known and not name.startswith(HEADER)
        ):
            raise InvalidResource(
                f"There is no option {', '.join(unknown)}: take some of {', '.join(OPTIONS)}, "
                f"{HEADER}NAME."
            )
        self.headers = {
            name.removeprefix(HEADER): value
            for name, value in self._given.items()
            if name.startswith(HEADER)
        }

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str, meaning: str) -> str:
        if not (value := self.get(name)):
            raise InvalidResource(f"Option {name} is missing: {meaning}.")
        return value

    def count(self, name: str, default: int) -> int:
        text = self.get(name) or str(default)
        if not text.isdecimal() or int(text) < 1:
            raise InvalidResource(f"Option {name}={text} is not a whole number above 0.")
        return int(text)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.get(name) or default
        if value not in choices:
            raise InvalidResource(f"Option {name}={value} is not one of {', '.join(choices)}.")
        return value


def _names(given: _Options, name: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in (given.get(name) or "").split(",") if one.strip())


def _login(given: _Options) -> BearerLogin | BasicLogin | None:
    token, username, password = given.get("token"), given.get("username"), given.get("password")
    if (username is None) != (password is None) or (token and username):
        raise InvalidResource(
            "A login is either token (or tokenFile), or username together with password."
        )
    if username is not None and password is not None:
        return BasicLogin(username, password)
    return BearerLogin(token) if token else None


def _selection(given: _Options, server: PrometheusServer) -> Selection:
    query, series = given.get("query"), given.get("series")
    if (query is None) == (series is None):
        raise InvalidResource(
            'Set either query (metric{label="value"}), or series (NICs, rates, ...) of a preset.'
        )
    if query is not None:
        return selection_of(query)
    preset = Preset(given.one_of("preset", tuple(Preset), Preset.NODE_EXPORTER))
    label = given.get("brokerLabel")
    settings = MetricsSettings(
        server, preset, brokers=None if label is None else BrokerLabel(label)
    )
    of_direction: DirectionSelections = catalogue(settings)[
        "produce" if _direction(given) == "produce" else "fetch"
    ]
    found: Selection | None = getattr(of_direction, given.one_of("series", SERIES, ""))
    if found is None:
        raise InvalidResource(f"Preset {preset} has no {series}. Name the series with query.")
    return found


def _direction(given: _Options) -> str:
    return given.one_of("direction", DIRECTIONS, "fetch")


def _history(given: _Options, server: PrometheusServer) -> HistorySettings:
    certificate, key = given.get("certificateFile"), given.get("keyFile")
    if (certificate is None) != (key is None):
        raise InvalidResource("certificateFile and keyFile go together: one of them is missing.")
    return HistorySettings(
        server,
        token_file=given.get("tokenFile"),
        client_certificate=None
        if certificate is None or key is None
        else ClientCertificate(certificate, key),
        headers=given.headers,
        replica_labels=_names(given, "replicaLabels"),
        external_labels=_names(given, "externalLabels"),
        scrape_interval_ms=given.count("scrapeIntervalSeconds", 15) * 1000,
        parallel_requests=given.count("parallelRequests", 4),
    )


# `spark.read.format("tidegate.prometheus")` gives samples of any series as a frame, for notebooks.
# The way of reading is chosen once, when Spark plans the query. Then each task reads one piece of
# the time, and all tasks of a machine share the slots for the server. Usage tables are not made
# this way: a row for every sample passes through the Java machine.


NAME = "tidegate.prometheus"
_PROBED_MS = 600_000


class PrometheusSource(DataSource):  # type: ignore[misc]  # Spark comes without type information
    """What Spark asks for the schema and for a reader; its options are `OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_for(labels_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        require_readable(schema)
        return PrometheusReader(request_of(self.options), schema)


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):  # type: ignore[misc]  # Spark comes without type information
    """What one task reads: [start_ms, end_ms), by the reader of this name."""

    reader: str
    start_ms: int
    end_ms: int


class PrometheusReader(DataSourceReader):  # type: ignore[misc]  # Spark comes without type information
    """One query. It travels to the workers, and its connections do not."""

    def __init__(self, request: SourceRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        asked = self._request
        since_ms = max(asked.start_ms, asked.end_ms - _PROBED_MS)
        probe = ReadRequest(asked.selection, since_ms, asked.end_ms)
        chosen = choose_reader(asked.history, probe)
        chosen.reader.close()
        return [
            Piece(chosen.reader.name, start_ms, end_ms) for start_ms, end_ms in asked.pieces_ms()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):
            raise TypeError(f"{partition!r} is not a piece of a query to Prometheus")
        transport = open_reader(partition.reader, self._request.history)
        try:
            yield from batches(
                transport.read(self._request.selection, partition.start_ms, partition.end_ms),
                self._schema,
            )
        finally:
            transport.close()


def register(spark: SparkSession) -> None:
    """Register `tidegate.prometheus` with the session; a second time changes nothing."""
    spark.dataSource.register(PrometheusSource)


def usage_tables(spark: SparkSession, store: str) -> Mapping[str, DataFrame]:
    """The store's usage tables by name; each is read only when it is looked up.

    Raises InvalidResource if `store` is not the address of a usage store.
    """
    return _UsageTables(spark, UsageStore.at(store), store)


class _UsageTables(Mapping[str, DataFrame]):
    """Frames of the files that manifests name when taken; a folder has others too."""

    def __init__(self, spark: SparkSession, store: UsageStore, url: str) -> None:
        self._spark = spark
        self._store = store
        self._url = url

    def __getitem__(self, table: str) -> DataFrame:
        if table not in TABLES:
            raise KeyError(table)
        windows = self._store.windows(table)
        span = (windows[0].start_ms, windows[-1].end_ms) if windows else (0, 0)
        return frame_of(self._spark, self._url, table, *span)

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)
