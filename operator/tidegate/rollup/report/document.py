"""The figures as JSON: the names of their fields in camelCase, amounts of money as texts, so that no digit is lost."""

import json
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

from tidegate.rollup.report.figures import ReportFigures

_KIND = "TidegateUsageReport"
_VERSION = 1
ROWS_SHOWN = 150
_SHORTENED = frozenset({"members", "contractUse", "brokers", "recommendations", "calibration", "doubtful"})


def document_of(figures: ReportFigures) -> dict[str, Any]:
    """Plain data; `data-figure` of every number on the page is a JSON pointer into it."""
    return {"kind": _KIND, "version": _VERSION, **_plain(figures)}


def json_text(figures: ReportFigures) -> str:
    """The file. Raises ValueError where a number is no finite one: that would be a mistake of ours, and nobody could read it."""
    return json.dumps(document_of(figures), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def embedded_json(figures: ReportFigures) -> str:
    """The same data for a `<script>` element: no text in it can end the element, whatever somebody is called.

    Of lists that the page shows the beginning of, it has just that.
    """
    document = document_of(figures)
    shown = {name: value[:ROWS_SHOWN] if name in _SHORTENED else value for name, value in document.items()}
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def camel(name: str) -> str:
    """`peak_rate` is `peakRate`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {camel(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return round(value, 6)
    return value
