"""Rows of a table to the content of one file and back, with what a manifest says of them: rows, sums, checksum.

A file's rows are in the order of the table's key; zstd; one content for the same rows. What a window is does not matter here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller_logic.reasons import Reason
from tidegate.errors import NeedsMending
from tidegate.rollup.schemas import TableKind


class UsageDamaged(NeedsMending):
    """Rows or files of a usage table are not what they are said to be."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.USAGE_DAMAGED, message)


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in some rows: how many, and the sum of each column that counts bytes."""

    rows: int
    sums: Mapping[str, int]


def conform(kind: TableKind, rows: pa.Table) -> pa.Table:
    """The table's columns in its order and types; others are dropped. Raises UsageDamaged for missing columns, nulls, NaN and infinity."""
    missing = [name for name in kind.schema.names if name not in rows.schema.names]
    if missing:
        raise UsageDamaged(f"Rows for {kind.name} lack {', '.join(missing)}; nothing of them is kept.")
    try:
        found = rows.select(kind.schema.names).cast(kind.schema).combine_chunks()
    except (ValueError, pa.ArrowException) as error:
        raise UsageDamaged(f"Rows for {kind.name} do not fit its columns ({error}); nothing of them is kept.") from error
    _refuse_what_is_no_number(kind, found)
    return found


def _refuse_what_is_no_number(kind: TableKind, rows: pa.Table) -> None:
    for field in kind.schema:
        if pa.types.is_floating(field.type) and pc.all(pc.is_finite(rows[field.name])).as_py() is False:
            raise UsageDamaged(f"Rows for {kind.name} have a {field.name} that is no number; nothing of them is kept.")


def in_order(kind: TableKind, rows: pa.Table) -> pa.Table:
    """Sorted by the table's key. Raises UsageDamaged where two rows have the same key."""
    found = rows.sort_by([(name, "ascending") for name in kind.key]).combine_chunks()
    twice = _first_repeated(kind, found)
    if twice is not None:
        told = ", ".join(f"{name} {value}" for name, value in twice.items())
        raise UsageDamaged(f"{kind.name} would have two rows for {told}: the same usage was handed in twice. Nothing is published.")
    return found


def _first_repeated(kind: TableKind, rows: pa.Table) -> Mapping[str, object] | None:
    """The key of a row that has the same key as the one before it; rows are sorted."""
    if rows.num_rows < 2:
        return None
    above, below = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    same = pc.equal(above[kind.key[0]], below[kind.key[0]])
    for name in kind.key[1:]:
        same = pc.and_(same, pc.equal(above[name], below[name]))
    place = pc.index(same, True).as_py()
    return None if place < 0 else {name: below[name][place].as_py() for name in kind.key}


def contents_of(kind: TableKind, rows: pa.Table) -> Contents:
    """Exact, whatever the order of the rows; no rows have sums of zero."""
    return Contents(rows.num_rows, {name: pc.sum(rows[name]).as_py() or 0 for name in summed_columns(kind)})


def summed_columns(kind: TableKind) -> tuple[str, ...]:
    return tuple(name for name in kind.schema.names if name.endswith("bytes"))


def encode(rows: pa.Table) -> bytes:
    """The content of a file with these rows, in their order."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", version="2.6")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(content: bytes, *, where: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file. Raises UsageDamaged where it cannot be read as Parquet; `where` is its name for people."""
    try:
        return pq.ParquetFile(pa.BufferReader(content)).read(None if columns is None else list(columns))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UsageDamaged(f"{where} is no whole Parquet file ({error}).") from error


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
