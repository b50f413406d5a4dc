"""Series of samples -> Arrow batches in the columns that a Spark schema names: `time`, `value`, `labels`, or labels by their names."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, DoubleType, MapType, StringType, StructField, StructType, TimestampType

from tidegate.errors import InvalidResource
from tidegate.rollup.samples import SeriesSamples

TIME, VALUE, LABELS = "time", "value", "labels"
_ROWS_IN_BATCH = 65_536
_STRINGS = MapType(StringType(), StringType(), valueContainsNull=False)
_FIXED: dict[str, DataType] = {TIME: TimestampType(), VALUE: DoubleType(), LABELS: _STRINGS}


def schema_for(labels: Sequence[str]) -> StructType:
    """`time`, the labels as columns of their own, `value`; without any `time`, `labels`, `value`."""
    strings = [StructField(name, StringType(), nullable=False) for name in labels] or [StructField(LABELS, _STRINGS, nullable=False)]
    return StructType([StructField(TIME, TimestampType(), nullable=False), *strings, StructField(VALUE, DoubleType(), nullable=False)])


def require_readable(schema: StructType) -> None:
    """Raises InvalidResource for a column whose type is not what is read."""
    for column in schema.fields:
        wanted = _FIXED.get(column.name, StringType())
        if column.dataType.typeName() != wanted.typeName():
            told = f"Column {column.name} is asked for as {column.dataType.simpleString()}"
            told = f"{told}, and is {wanted.simpleString()}; cast it afterwards."
            raise InvalidResource(f"{told} Every other name than {TIME}, {VALUE} and {LABELS} is that of a label.")


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
        return pa.array(np.concatenate([one.times_ms for one in series]) * 1000).cast(pa.timestamp("us", tz="UTC"))
    if name == VALUE:
        return pa.array(np.concatenate([one.values for one in series]))
    if name == LABELS:
        return pa.array([list(one.labels.items()) for one in series], pa.map_(pa.string(), pa.string())).take(rows)
    return pa.array([one.labels.get(name, "") for one in series], pa.string()).take(rows)


def _field(column: StructField) -> pa.Field:
    """As Spark expects it, to the letter: it compares schemas."""
    kinds = {TIME: pa.timestamp("us", tz="UTC"), VALUE: pa.float64()}
    kind = kinds.get(column.name, pa.string())
    if isinstance(column.dataType, MapType):
        kind = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=column.dataType.valueContainsNull))
    return pa.field(column.name, kind, nullable=column.nullable)
