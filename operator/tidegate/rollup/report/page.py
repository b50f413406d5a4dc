"""The report's files: an HTML page that needs no network, `report.json`, a CSV file for each table.

Every number on the page is one of the figures. The templates have its text. Plots are SVG, so that
they print, need no script to be seen, and follow the reader's colours; a small script adds
tooltips, sorting and filtering. The page's own Content-Security-Policy lets no other script or
style run.
"""

import base64
import csv
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidegate.rollup.report import plots
from tidegate.rollup.report.evidence import ENOUGH_COVERAGE
from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.request import GIB
from tidegate.rollup.report.sheets import (
    COLUMNS,
    ROWS_SHOWN,
    Column,
    Kind,
    Sheet,
    camel,
    cell_text,
    clock,
    duration,
    embedded_json,
    json_text,
    plain,
    sheets_of,
    text_with_unit,
)

_PAGE_FILE, _JSON_FILE = "report.html", "report.json"
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")
_FILTER_FROM = 15  # rows; fewer are found by eye
_LONG_CHARACTERS = 40


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


# The page.


def page_html(figures: ReportFigures) -> str:
    """The whole page."""
    style, script = template_text("page.css"), template_text("page.js")
    drawn = (
        *(point.seconds for point in figures.traffic),
        *(point.seconds for point in figures.load),
    )
    period = figures.period
    return (
        templates()
        .get_template("page.html")
        .render(
            figures=figures,
            sheets=sheets_of(figures),
            json=Markup(embedded_json(figures)),  # noqa: S704  it has no sign that could end its element
            style=style,
            script=script,
            policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src "
            f"'{_hash(style)}'; script-src '{_hash(script)}'",
            is_drawn_finer=min(drawn, default=period.seconds) < period.seconds / period.windows,
            traffic_directions=sorted({point.direction for point in figures.traffic}),
            load_directions=sorted({point.direction for point in figures.load}),
            free_directions=[price.direction for price in figures.prices if price.per_gib is None],
            plots=plots,
            pivot=pivot,
            factor_bounds=(figures.least_factor, figures.most_factor),
            ENOUGH_COVERAGE=ENOUGH_COVERAGE,
            GIB=GIB,
        )
    )


@cache
def templates(package: str | None = None) -> Environment:
    """The report's templates, and those of another package that uses them."""
    packages = [*([package] if package else []), "tidegate.rollup.report"]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"ROWS_SHOWN": ROWS_SHOWN, "FILTER_FROM": _FILTER_FROM}
    filters: dict[str, Callable[[Any], str]] = {
        "volume": lambda count: text_with_unit(Kind.VOLUME, count),
        "money": lambda amount: cell_text(Kind.MONEY, amount),
        "seconds": duration,
        "clock": clock,
    }
    environment.filters |= filters
    environment.tests["long"] = lambda text: len(text) > _LONG_CHARACTERS
    return environment


def template_text(name: str) -> Markup:
    """A style sheet or script, as it is."""
    file = resources.files("tidegate.rollup.report") / "templates" / name
    return Markup(file.read_text(encoding="utf-8"))  # noqa: S704  a file of this package


def _hash(text: str) -> str:
    """The text as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True, slots=True)
class Pivot:
    """A plot over time as a table of the sheet's rows: times by tiers or brokers."""

    heads: Sequence[str]
    lines: Sequence[tuple[str, Sequence[tuple[str, Any] | None]]]
    value: Column


def pivot(sheet: Sheet, direction: str, *, by: str, value: str) -> Pivot:
    columns = {column.name: column for column in COLUMNS[sheet.name]}
    rows = sorted(
        (row for row in sheet.rows if row[1].direction == direction),
        key=lambda row: (row[1].start, getattr(row[1], by)),
    )
    heads = list(dict.fromkeys(columns[by].text(row) for _, row in rows))
    cells: dict[str, dict[str, tuple[str, Any]]] = {}
    for pointer, row in rows:
        cells.setdefault(row.start, {})[columns[by].text(row)] = (
            columns[value].pointer(pointer),
            row,
        )
    return Pivot(
        heads,
        [(start, [line.get(head) for head in heads]) for start, line in cells.items()],
        columns[value],
    )


# CSV files.


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
