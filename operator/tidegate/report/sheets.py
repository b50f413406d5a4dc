"""The tables of a report and its JSON.

The page's tables and the CSV files have the columns that the figures declare, so they cannot
disagree.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any, Final, get_args, get_origin

from tidegate.report.columns import Column, camel, columns_of
from tidegate.report.figures import EpisodeSpan, ReportFigures

ROWS_SHOWN = 150

_KIND, _VERSION = "TidegateUsageReport", 1
_SHORTENED = frozenset(
    {
        *("members", "charges", "corrections", "labels", "unusualDays", "contractUse", "brokers"),
        *("recommendations", "calibration", "doubtful"),
    }
)
_SPANS = "episode_spans"

COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    **{
        field.name: columns_of(get_args(field.type)[0])
        for field in fields(ReportFigures)
        if get_origin(field.type) is tuple
    },
    _SPANS: columns_of(EpisodeSpan),
}
"""Of each list of figures by its name, and of the spans of all episodes."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows, each with its JSON pointer in the JSON file."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Any]]

    @property
    def columns_on_page(self) -> Sequence[Column]:
        """Those that are neither empty nor repeat the members' names; the CSV file has all."""
        return [
            column for column in self.columns if column.on_page and self._is_informative(column)
        ]

    def _is_informative(self, column: Column) -> bool:
        cells = [(getattr(row, column.name), getattr(row, "member", None)) for _, row in self.rows]
        is_empty = all(value is None or value in ("", {}) or value is False for value, _ in cells)
        repeats_names = column.name != "member" and all(value == name for value, name in cells)
        return not is_empty and not repeats_names


def sheets_of(figures: ReportFigures) -> dict[str, Sheet]:
    """Every table by name, those without rows too."""
    return {name: Sheet(name, columns, _rows(figures, name)) for name, columns in COLUMNS.items()}


def _rows(figures: ReportFigures, name: str) -> Sequence[tuple[str, Any]]:
    if name == _SPANS:
        return [
            (f"/episodes/{place}/spans/{number}", span)
            for place, one in enumerate(figures.episodes)
            for number, span in enumerate(one.spans)
        ]
    return [(f"/{camel(name)}/{place}", row) for place, row in enumerate(getattr(figures, name))]


# JSON


def document_of(figures: ReportFigures) -> dict[str, Any]:
    """The figures as plain data: camelCase names, and money as text, so that no digit is lost.

    `data-figure` of every number on the page is a JSON pointer into it.
    """
    return {"kind": _KIND, "version": _VERSION, **plain(figures)}


def json_text(figures: ReportFigures) -> str:
    """The JSON file. Raises ValueError for an infinity or NaN, which would be our own error."""
    return json.dumps(document_of(figures), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def embedded_json(figures: ReportFigures) -> str:
    """The JSON for a `<script>` element, which no text in it can end.

    Lists that the page shortens are as short here.
    """
    document = document_of(figures)
    shown = {
        name: value[:ROWS_SHOWN] if name in _SHORTENED else value
        for name, value in document.items()
    }
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def plain(value: Any) -> Any:
    """A figure as JSON and CSV have it: exact amounts as text, fractions to a millionth."""
    if is_dataclass(value):
        return {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return round(value, 6) if isinstance(value, float) else value
