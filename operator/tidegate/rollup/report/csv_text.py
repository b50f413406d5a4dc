"""Tables as CSV: all rows, every digit, the JSON's names for columns; and no text that a spreadsheet would run as a formula."""

import csv
import io
from decimal import Decimal
from typing import Any

from tidegate.rollup.report.document import camel
from tidegate.rollup.report.sheets import Sheet

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")
_QUOTE = "'"


def csv_text(sheet: Sheet) -> str:
    """As RFC 4180 has it, so that line breaks in names are quoted. What is not known is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([camel(column.name) for column in sheet.columns])
    writer.writerows([_cell(getattr(row, column.name)) for column in sheet.columns] for _, row in sheet.rows)
    return text.getvalue()


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return round(value, 6)
    return harmless(value) if isinstance(value, str) else int(value)


def harmless(text: str) -> str:
    """A spreadsheet takes a text that begins with one of a few signs for a formula; a quote before it says that it is text."""
    return _QUOTE + text if text.lstrip(" ").startswith(_FORMULA_SIGNS) else text
