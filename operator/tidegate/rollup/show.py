"""Who is at the top of a table over a time. It adds windows up and estimates nothing.

Bytes and seconds are sums, a peak and a percentile is the highest of any window, coverage the mean
of the rows'. A percentile of the whole time is not to be had from those of its windows and is not
made up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import OWNER, TableKind
from tidegate.rollup.tables.store import UsageStore, kind_named
from tidegate.rollup.tables.verify import added_up
from tidegate_logic.words import rfc3339_ms

_HIGHEST = ("peak_rate", "p50", "p95", "p99", "limit")
_SILENT = ("window_start", *OWNER.names, "samples", "coverage", "calibration", "sketch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which table, from when to when (None = all), by which column, and how many rows (0 = all).

    `by` None = the table's bytes, which for brokers are those of their NICs.
    """

    table: str
    start_ms: int | None = None
    end_ms: int | None = None
    by: str | None = None
    most: int = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows, highest first; `others` were left out. `published_seconds` are within the range.

    `unattributed` has by direction the clients' bytes that are in no row, and all of them; only
    directions with any, and only for tables of usage.
    """

    question: Question
    kind: TableKind
    by: str
    rows: Sequence[Mapping[str, object]]
    others: int
    windows: Sequence[str]
    published_seconds: int
    unattributed: Mapping[str, tuple[int, int]]

    def document(self) -> Mapping[str, object]:
        """Canonical numbers: whole bytes, bytes per second, seconds."""
        return {
            "table": self.kind.name,
            "by": self.by,
            "firstWindow": self.windows[0] if self.windows else None,
            "lastWindow": self.windows[-1] if self.windows else None,
            "publishedSeconds": self.published_seconds,
            "rows": list(self.rows),
            "otherRows": self.others,
            "unattributedBytes": {way: rest for way, (rest, _) in self.unattributed.items()},
        }


def top(store: UsageStore, question: Question) -> Answer:
    """Rank a table's keys by one column.

    Raises InvalidResource for an unknown table, a column that cannot be ranked by, or an empty
    range.
    """
    kind = kind_named(question.table)
    by = question.by or ("nic_bytes" if "nic_bytes" in kind.schema.names else "bytes")
    _require_sense(kind, question, by)
    rows = _added_up(store, kind, question).sort_by(
        [(by, "descending"), *((name, "ascending") for name in key_columns(kind))]
    )
    shown = rows if question.most == 0 else rows.slice(0, question.most)
    windows = store.windows(kind.name, question.start_ms, question.end_ms)
    seconds = _overlap_ms([(one.start_ms, one.end_ms) for one in windows], question) // 1000
    with_mean = [_with_mean_rate(row, seconds) for row in shown.to_pylist()]
    return Answer(
        question,
        kind,
        by,
        with_mean,
        rows.num_rows - shown.num_rows,
        [one.name for one in windows],
        seconds,
        _unattributed(store, kind, question),
    )


def _unattributed(
    store: UsageStore, kind: TableKind, question: Question
) -> Mapping[str, tuple[int, int]]:
    """What brokers counted beside a table of usage, by direction: of nobody, and together."""
    table, _, grain = kind.name.partition("_")
    if table != "usage":
        return {}
    names = ["unattributed_bytes", "client_bytes"]
    found: dict[str, tuple[int, int]] = {}
    for rows in store.tables(
        f"broker_{grain}", question.start_ms, question.end_ms, columns=["direction", *names]
    ):
        for row in added_up(rows, ["direction"], names).to_pylist():
            rest, total = found.get(row["direction"], (0, 0))
            found[row["direction"]] = (rest + row[names[0]], total + row[names[1]])
    return {way: sums for way, sums in sorted(found.items()) if sums[0]}


def ranked_columns(table: str) -> tuple[str, ...]:
    """What rows of a table can be ranked by."""
    kind = kind_named(table)
    return tuple(name for name in kind.schema.names if name not in {*kind.key, *_SILENT})


def _require_sense(kind: TableKind, question: Question, by: str) -> None:
    if by not in ranked_columns(kind.name):
        raise InvalidResource(
            f"{kind.name} cannot be ranked by {by}: take one of "
            f"{', '.join(ranked_columns(kind.name))}."
        )
    if (
        question.start_ms is not None
        and question.end_ms is not None
        and question.start_ms >= question.end_ms
    ):
        raise InvalidResource(
            f"There is no time from {rfc3339_ms(question.start_ms)} to "
            f"{rfc3339_ms(question.end_ms)}."
        )


def key_columns(kind: TableKind) -> tuple[str, ...]:
    """What a row is about, without its time."""
    return kind.key[:-1]


def _added_up(store: UsageStore, kind: TableKind, question: Question) -> pa.Table:
    """A row for each key without time; adds up file by file, so that a year fits into memory."""
    columns = [
        name
        for name in kind.schema.names
        if name not in {"window_start", "samples", "calibration", "sketch", *OWNER.names}
    ]
    total = _reduced(kind, _counted(kind.schema.empty_table().select(columns)))
    for rows in store.tables(kind.name, question.start_ms, question.end_ms, columns=columns):
        piece = _reduced(kind, _counted(rows))
        total = _reduced(kind, pa.concat_tables([total, piece]))
    if "coverage" in columns:
        mean = pc.divide(total["coverage"], pc.cast(total["counted"], pa.float64()))
        total = total.set_column(total.schema.get_field_index("coverage"), "coverage", mean)
    return total.drop_columns(["counted"])


def _counted(rows: pa.Table) -> pa.Table:
    return rows.append_column("counted", pa.array([1] * rows.num_rows, pa.int64()))


def _reduced(kind: TableKind, rows: pa.Table) -> pa.Table:
    """Rows of the same key as one: the highest of what has no sum, the sum of the rest."""
    names = [name for name in rows.schema.names if name not in kind.key]
    return added_up(rows, key_columns(kind), names, highest=_HIGHEST)


def _overlap_ms(windows: Sequence[tuple[int, int]], question: Question) -> int:
    """How much of the range is published."""
    start_ms, end_ms = question.start_ms or 0, question.end_ms
    return sum(
        (end if end_ms is None else min(end, end_ms)) - max(start, start_ms)
        for start, end in windows
    )


def _with_mean_rate(row: Mapping[str, object], seconds: int) -> Mapping[str, object]:
    """The row with its mean in bytes/s over the published time, if it has `bytes`."""
    used = row.get("bytes")
    return {**row, "mean_rate": used / seconds} if isinstance(used, int) and seconds else row
