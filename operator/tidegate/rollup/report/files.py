"""Writes a report into a folder: `report.html`, `report.json`, and a CSV file for each table."""

import csv
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.page import page_html
from tidegate.rollup.report.sheets import Sheet, camel, json_text, plain, sheets_of

_PAGE_FILE, _JSON_FILE = "report.html", "report.json"
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_report(figures: ReportFigures, folder: Path) -> Path:
    """Write all files over those of an earlier report; the page's path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in report_files(figures).items():
        _replace(folder / name, text)
    return folder / _PAGE_FILE


def report_files(figures: ReportFigures) -> Mapping[str, str]:
    """Every file of the report, name to text."""
    tables = {f"{name}.csv": csv_text(sheet) for name, sheet in sheets_of(figures).items()}
    return {_PAGE_FILE: page_html(figures), _JSON_FILE: json_text(figures), **tables}


def _replace(path: Path, text: str) -> None:
    """Rename a temporary file of the same folder, so that a reader never sees a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def csv_text(sheet: Sheet) -> str:
    """All rows with every digit, as in RFC 4180, under the JSON's names; unknown = empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([camel(column.name) for column in sheet.columns])
    writer.writerows(
        [_csv_cell(getattr(row, column.name)) for column in sheet.columns] for _, row in sheet.rows
    )
    return text.getvalue()


def _csv_cell(value: Any) -> str | int | float:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return harmless(value)
    return "" if value is None else plain(value)


def harmless(text: str) -> str:
    """Put a quote before a text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_SIGNS) else text
