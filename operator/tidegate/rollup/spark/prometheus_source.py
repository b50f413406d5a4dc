"""`spark.read.format("tidegate.prometheus")`: samples of any series as a frame, for notebooks.

The way of reading is chosen once, when Spark plans the query; then each task reads one piece of the time, and all tasks of a machine
share the slots that the server is given. Tables of usage are not made this way: a row for every sample passes through the Java machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidegate.rollup.spark.sample_batches import batches, require_readable, schema_for
from tidegate.rollup.spark.source_options import SourceRequest, labels_of, request_of
from tidegate.rollup.transport.ladder import Probe, choose, open_rung

NAME = "tidegate.prometheus"
_PROBED_MS = 600_000


class PrometheusSource(DataSource):  # type: ignore[misc]  # Spark comes without type information
    """What Spark asks for the schema and for a reader; its options are those of `source_options`."""

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
    """What one task reads: [start_ms, end_ms), by the rung of this name."""

    rung: str
    start_ms: int
    end_ms: int


class PrometheusReader(DataSourceReader):  # type: ignore[misc]  # Spark comes without type information
    """One query. It travels to the workers, and its connections do not."""

    def __init__(self, request: SourceRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        asked = self._request
        ladder = choose(asked.history, Probe(asked.selection, max(asked.start_ms, asked.end_ms - _PROBED_MS), asked.end_ms))
        ladder.rung.close()
        return [Piece(ladder.rung.name, start_ms, end_ms) for start_ms, end_ms in asked.pieces_ms()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):
            raise TypeError(f"{partition!r} is no piece of a query to Prometheus")
        transport = open_rung(partition.rung, self._request.history)
        try:
            yield from batches(transport.read(self._request.selection, partition.start_ms, partition.end_ms), self._schema)
        finally:
            transport.close()
