"""Sums, highest and lowest of a table's columns by some of its other columns, as rows that Python reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Row = dict[str, Any]

_WINDOW = "window_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to make of which columns; each comes out under its own name. `distinct` counts."""

    sums: Sequence[str] = ()
    highest: Sequence[str] = ()
    lowest: Sequence[str] = ()
    means: Sequence[str] = ()
    distinct: Sequence[str] = ()

    def aggregations(self) -> list[tuple[str, str, str]]:
        """(column, function of Arrow, name of what comes out)."""
        functions = {"sum": self.sums, "max": self.highest, "min": self.lowest, "mean": self.means, "count_distinct": self.distinct}
        return [(column, function, f"{column}_{function}") for function, columns in functions.items() for column in columns]


def within(table: pa.Table, start_ms: int, end_ms: int) -> pa.Table:
    """The rows of [start, end); `window_start` becomes whole milliseconds. Sketches are left out: nothing here reads them."""
    table = table.select([name for name in table.column_names if name != "sketch"])
    table = table.set_column(table.schema.get_field_index(_WINDOW), _WINDOW, pc.cast(table[_WINDOW], pa.int64()))
    return table.filter(pc.and_(pc.greater_equal(table[_WINDOW], start_ms), pc.less(table[_WINDOW], end_ms)))


def grouped(table: pa.Table, keys: Sequence[str], wanted: Wanted) -> Iterator[Row]:
    """A row a group, in no order. A function of nothing but nulls is None."""
    aggregations = wanted.aggregations()
    found = table.group_by(list(keys)).aggregate([(column, function) for column, function, _ in aggregations])
    for row in found.to_pylist():
        yield {key: row[key] for key in keys} | {column: row[name] for column, _, name in aggregations}


def floored(table: pa.Table, step_ms: int, *, origin_ms: int) -> pa.Table:
    """Windows as the starts of steps since `origin_ms`, which must not be after any of them."""
    steps = pc.divide(pc.subtract(table[_WINDOW], origin_ms), step_ms)
    return table.set_column(table.schema.get_field_index(_WINDOW), _WINDOW, pc.add(pc.multiply(steps, step_ms), origin_ms))


def windows_of(table: pa.Table, step_ms: int, *, origin_ms: int) -> set[int]:
    """The starts of the steps in which the table has a row."""
    return set(pc.unique(floored(table, step_ms, origin_ms=origin_ms)[_WINDOW]).to_pylist())


def at_highest(table: pa.Table, keys: Sequence[str], column: str) -> dict[tuple[Any, ...], Row]:
    """Of each group the row in which the column is highest, the earliest of several. Groups of nothing but nulls have none."""
    narrow = table.select([*keys, *dict.fromkeys((_WINDOW, column))])
    top = narrow.group_by(list(keys)).aggregate([(column, "max")])
    joined = narrow.join(top, keys=list(keys))
    rows = joined.filter(pc.equal(joined[column], joined[f"{column}_max"])).sort_by(_WINDOW).to_pylist()
    return {tuple(row[key] for key in keys): row for row in reversed(rows)}
