"""`tidegate rollup show`: who is at the top of a table over a time. It adds windows up and estimates nothing.

Bytes and seconds are sums, a peak and a percentile is the highest of any window, coverage the mean of the rows'. A percentile of the whole
time is not to be had from those of its windows and is not made up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from controller_logic.quotas.values import rate_words
from tidegate.commands.output import Column, Document, Page, Sheet
from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import TableKind
from tidegate.rollup.tables.format import time_words
from tidegate.rollup.tables.store import UsageStore, kind_named

_HIGHEST = ("peak_rate", "p50", "p95", "p99", "limit")
_SILENT = ("window_start", "samples", "coverage", "calibration", "sketch")
_TITLES = {
    "client_id": "Client id",
    "p50": "p50",
    "p95": "p95",
    "p99": "p99",
    "nic_bytes": "Card",
    "client_bytes": "Clients",
    "replication_bytes": "Replication",
    "unattributed_bytes": "Unattributed",
    "deferred_bytes": "Deferred",
    "throttled_seconds": "Throttled",
    "over_contract_seconds": "Over contract",
    "over_limit_seconds": "Over limit",
    "peak_rate": "Peak",
    "seconds_contract": "At contract",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which table, from when to when (None = all there is), by which column, and how many rows; 0 = all.

    `by` None = the table's bytes, which for brokers are their cards'.
    """

    table: str
    start_ms: int | None = None
    end_ms: int | None = None
    by: str | None = None
    most: int = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows asked for, highest first; `others` were left out. `published_seconds` is the time that is published within the range."""

    question: Question
    kind: TableKind
    by: str
    rows: Sequence[Mapping[str, object]]
    others: int
    windows: Sequence[str]
    published_seconds: int

    def document(self) -> Document:
        """Canonical numbers: whole bytes, bytes per second, seconds."""
        return {
            "table": self.kind.name,
            "by": self.by,
            "firstWindow": self.windows[0] if self.windows else None,
            "lastWindow": self.windows[-1] if self.windows else None,
            "publishedSeconds": self.published_seconds,
            "rows": list(self.rows),
            "otherRows": self.others,
        }

    def show(self, page: Page) -> None:
        page.sheet(_sheet(self.kind, self.rows))
        page.say(self._words())

    def _words(self) -> str:
        if not self.windows:
            return f"Nothing of {self.kind.name} is published for that time."
        hours = f"{self.published_seconds / 3600:g} h published, {self.windows[0]} to {self.windows[-1]} UTC, by {self.by}"
        return f"{hours}." if not self.others else f"{hours}; {self.others} more rows."


def top(store: UsageStore, question: Question) -> Answer:
    """Raises InvalidResource for a table that does not exist, a column that cannot be ranked by, or a range that is none."""
    kind = kind_named(question.table)
    by = question.by or ("nic_bytes" if "nic_bytes" in kind.schema.names else "bytes")
    _require_sense(kind, question, by)
    rows = _added_up(store, kind, question).sort_by([(by, "descending"), *((name, "ascending") for name in _names(kind))])
    shown = rows if question.most == 0 else rows.slice(0, question.most)
    windows = store.windows(kind.name, question.start_ms, question.end_ms)
    seconds = _overlap_ms([(one.start_ms, one.end_ms) for one in windows], question) // 1000
    with_mean = [_with_mean_rate(row, seconds) for row in shown.to_pylist()]
    return Answer(question, kind, by, with_mean, rows.num_rows - shown.num_rows, [one.name for one in windows], seconds)


def ranked_columns(table: str) -> tuple[str, ...]:
    """What rows of a table can be ranked by."""
    kind = kind_named(table)
    return tuple(name for name in kind.schema.names if name not in {*kind.key, *_SILENT})


def _require_sense(kind: TableKind, question: Question, by: str) -> None:
    if by not in ranked_columns(kind.name):
        raise InvalidResource(f"{kind.name} cannot be ranked by {by}: take one of {', '.join(ranked_columns(kind.name))}.")
    if question.start_ms is not None and question.end_ms is not None and question.start_ms >= question.end_ms:
        raise InvalidResource(f"There is no time from {time_words(question.start_ms)} to {time_words(question.end_ms)}.")


def _names(kind: TableKind) -> tuple[str, ...]:
    return kind.key[:-1]


def _added_up(store: UsageStore, kind: TableKind, question: Question) -> pa.Table:
    """A row for each key without its time. Files are added up one by one, so that a year of windows fits into memory."""
    columns = [name for name in kind.schema.names if name not in {"window_start", "samples", "calibration", "sketch"}]
    empty = _reduced(kind, _counted(kind.schema.empty_table().select(columns)))
    pieces = (_reduced(kind, _counted(rows)) for rows in store.tables(kind.name, question.start_ms, question.end_ms, columns=columns))
    total = empty
    for piece in pieces:
        total = _reduced(kind, pa.concat_tables([total, piece]))
    if "coverage" not in columns:
        return total.drop_columns(["counted"])
    mean = pc.divide(total["coverage"], pc.cast(total["counted"], pa.float64()))
    return total.set_column(total.schema.get_field_index("coverage"), "coverage", mean).drop_columns(["counted"])


def _counted(rows: pa.Table) -> pa.Table:
    return rows.append_column("counted", pa.array([1] * rows.num_rows, pa.int64()))


def _reduced(kind: TableKind, rows: pa.Table) -> pa.Table:
    """Rows of the same key as one: the highest of what has no sum, the sum of the rest."""
    names = [name for name in rows.schema.names if name not in kind.key]
    functions = [(name, "max" if name in _HIGHEST else "sum") for name in names]
    grouped = rows.group_by(list(_names(kind)), use_threads=False).aggregate(functions)
    return grouped.select([*_names(kind), *(f"{name}_{function}" for name, function in functions)]).rename_columns([*_names(kind), *names])


def _overlap_ms(windows: Sequence[tuple[int, int]], question: Question) -> int:
    """How much of the range is published."""
    start_ms, end_ms = question.start_ms or 0, question.end_ms
    return sum((end if end_ms is None else min(end, end_ms)) - max(start, start_ms) for start, end in windows)


def _with_mean_rate(row: Mapping[str, object], seconds: int) -> Mapping[str, object]:
    """The mean over the time that is published, in bytes per second, for rows that are somebody's use."""
    used = row.get("bytes")
    return {**row, "mean_rate": used / seconds} if isinstance(used, int) and seconds else row


def _sheet(kind: TableKind, rows: Sequence[Mapping[str, object]]) -> Sheet:
    names = [name for name in (*_names(kind), *ranked_columns(kind.name)) if any(row.get(name) is not None for row in rows)]
    if any("mean_rate" in row for row in rows):
        names.insert(names.index("bytes") + 1, "mean_rate")
    if "coverage" in kind.schema.names and rows:
        names.append("coverage")
    columns = tuple(Column(_title(name), right=name not in kind.key, fold=name in {"user", "client_id"}) for name in names)
    return Sheet(columns, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _title(name: str) -> str:
    return _TITLES.get(name, name.removeprefix("seconds_").replace("_rate", "").replace("_", " ").capitalize())


def _cell(name: str, value: object) -> str:
    if not isinstance(value, int | float) or name in {"broker", "throttle_episodes"}:
        return "" if value is None else str(value)
    return _unit(name)(value)


def _unit(name: str) -> Callable[[float], str]:
    if name.endswith("bytes"):
        return byte_words
    if name.endswith("_seconds") or name.startswith("seconds_"):
        return lambda seconds: f"{seconds:,.0f} s"
    return (lambda share: f"{100 * share:.0f} %") if name == "coverage" else (lambda rate: rate_words(round(rate)))


def byte_words(count: float) -> str:
    """`1.2 GB`, by powers of a thousand."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(count) >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"
