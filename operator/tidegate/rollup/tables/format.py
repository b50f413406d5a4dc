"""Rows of a table to the content of one file and back, with what a manifest says of them: rows, sums, checksum.

A file's rows are in the order of the table's key; zstd; one content for the same rows. What a window is does not matter here.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, UserActionRequired
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TableKind

# A run is one process that publishes. Its name is part of file names, so that no two runs write the
# same file.


_FORM = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def new_run_id(now_ms: int) -> str:
    """`20261122T071500Z-9f86d081`: unique, also among attempts of the same Job; never derive it from the window instead."""
    return f"{datetime.fromtimestamp(now_ms / 1000, tz=UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def require_run_id(run_id: str) -> str:
    """Raises InvalidResource for what cannot be part of a file's name everywhere."""
    if not _FORM.fullmatch(run_id):
        raise InvalidResource(f"{run_id!r} cannot name a run: up to 63 letters, digits and dashes, neither end a dash.")
    return run_id


# A window is a whole hour or a whole day, UTC, that is published at once.


_DAY = "%Y-%m-%d"
_HOUR = "%Y-%m-%dT%H"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """[start, end) in milliseconds since the epoch; an hour or a day, and nothing else."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        span_ms = self.end_ms - self.start_ms
        if span_ms not in (HOUR_MS, DAY_MS) or self.start_ms % span_ms:
            raise InvalidResource(f"{self.start_ms}..{self.end_ms} ms is no whole hour or day: usage is published by those only.")

    @property
    def name(self) -> str:
        """`2026-11-22T07` or `2026-11-22`."""
        return _time(self.start_ms).strftime(_HOUR if self.end_ms - self.start_ms == HOUR_MS else _DAY)

    @property
    def day(self) -> "Window":
        """The day that it is in, or is."""
        start_ms = self.start_ms - self.start_ms % DAY_MS
        return Window(start_ms, start_ms + DAY_MS)

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """Whether any of it lies in [start, end); None = no bound."""
        return (end_ms is None or self.start_ms < end_ms) and (start_ms is None or start_ms < self.end_ms)

    def folder(self, kind: TableKind) -> str:
        """`usage_5m/dt=2026-11-22/hour=07`; only tables that have several rows an hour have folders for hours."""
        day = f"{kind.name}/dt={_time(self.start_ms).strftime(_DAY)}"
        is_hour = self.end_ms - self.start_ms == HOUR_MS
        return f"{day}/hour={_time(self.start_ms):%H}" if is_hour and kind.window_ms < HOUR_MS else day


def window_named(name: str) -> Window:
    """The window of such a name. Raises ValueError for another text."""
    is_hour = "T" in name
    start_ms = int(datetime.strptime(name, _HOUR if is_hour else _DAY).replace(tzinfo=UTC).timestamp()) * 1000
    return Window(start_ms, start_ms + (HOUR_MS if is_hour else DAY_MS))


def window_at(kind: TableKind, at_ms: int) -> Window:
    """The window that a row of this time is published in."""
    start_ms = at_ms - at_ms % kind.published_ms
    return Window(start_ms, start_ms + kind.published_ms)


def windows_between(kind: TableKind, start_ms: int, end_ms: int) -> Iterator[Window]:
    """Every window that has any of its time in [start, end), in order."""
    at_ms = start_ms - start_ms % kind.published_ms
    while at_ms < end_ms:
        yield Window(at_ms, at_ms + kind.published_ms)
        at_ms += kind.published_ms


def time_words(at_ms: int) -> str:
    """`2026-11-22T07:05:00Z`."""
    return _time(at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


class UsageDamaged(UserActionRequired):
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
        key = ", ".join(f"{name} {value}" for name, value in twice.items())
        raise UsageDamaged(f"{kind.name} would have two rows for {key}: the same usage was handed in twice. Nothing is published.")
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
