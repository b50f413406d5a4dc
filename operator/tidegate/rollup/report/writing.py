"""Puts a report into a folder: `report.html`, `report.json`, and a CSV file a table. Each file is there whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidegate.rollup.report.csv_text import csv_text
from tidegate.rollup.report.document import json_text
from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.page import page_html
from tidegate.rollup.report.sheets import sheets_of

PAGE_FILE, JSON_FILE = "report.html", "report.json"


def report_files(figures: ReportFigures) -> Mapping[str, str]:
    """Every file of the report, name to text."""
    tables = {f"{name}.csv": csv_text(sheet) for name, sheet in sheets_of(figures).items()}
    return {PAGE_FILE: page_html(figures), JSON_FILE: json_text(figures), **tables}


def write_report(figures: ReportFigures, folder: Path) -> Path:
    """Write all files, replacing those of an earlier report, and return the page's path. Raises OSError where they do not fit."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in report_files(figures).items():
        _replace(folder / name, text)
    return folder / PAGE_FILE


def _replace(path: Path, text: str) -> None:
    """Written beside and moved over it: a reader sees the old file or the new one."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
