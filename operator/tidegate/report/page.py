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
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidegate.report import plots
from tidegate.report.bill import MEASURED_ERROR, MEASURED_ERROR_THROTTLED
from tidegate.report.columns import (
    Column,
    Kind,
    camel,
    cell_text,
    clock,
    duration,
    harmless,
    labels_words,
    text_with_unit,
)
from tidegate.report.evidence import ENOUGH_COVERAGE
from tidegate.report.figures import ReportFigures
from tidegate.report.rate_card import GIB
from tidegate.report.sheets import (
    ROWS_SHOWN,
    Sheet,
    embedded_json,
    json_text,
    plain,
    sheets_of,
)

_PAGE_FILE, _JSON_FILE = "report.html", "report.json"
_FILTER_FROM = 15  # rows; fewer are found by eye
_LONG_CHARACTERS = 40


def write_report(figures: ReportFigures, folder: Path) -> Path:
    """Write all files over those of an earlier report; the page's path. Raises OSError."""
    write_files(report_files(figures), folder)
    return folder / _PAGE_FILE


def write_files(files: Mapping[str, str | bytes], folder: Path) -> None:
    """Write files over those of the same names; a reader sees the old or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _replace(folder / name, content.encode() if isinstance(content, str) else content)


def report_files(figures: ReportFigures) -> Mapping[str, str]:
    """Every file of the report, name to text."""
    tables = {f"{name}.csv": csv_text(sheet) for name, sheet in sheets_of(figures).items()}
    return {_PAGE_FILE: page_html(figures), _JSON_FILE: json_text(figures), **tables}


def _replace(path: Path, content: bytes) -> None:
    """Rename a temporary file of the same folder, so that a reader never sees a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
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
            free_directions=sorted(
                {price.what for price in figures.prices if price.amount is None}
            ),
            doubted=[one for one in figures.calibration if one.bounded_windows],
            plots=plots,
            pivot=pivot,
            factor_bounds=(figures.least_factor, figures.most_factor),
            ENOUGH_COVERAGE=ENOUGH_COVERAGE,
            MEASURED_ERROR=MEASURED_ERROR,
            MEASURED_ERROR_THROTTLED=MEASURED_ERROR_THROTTLED,
            GIB=GIB,
        )
    )


@cache
def templates(package: str | None = None) -> Environment:
    """The report's templates, and those of another package that uses them."""
    packages = [*([package] if package else []), "tidegate.report"]
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
        "signed_money": lambda amount: f"{amount:+,.2f}".replace("-", "−"),
        "money": lambda amount: cell_text(Kind.MONEY, amount),
        "seconds": duration,
        "factor": lambda factor: cell_text(Kind.FACTOR, factor),
        "broker_hours": lambda seconds: text_with_unit(Kind.BROKER_HOURS, seconds),
        "change": lambda change: cell_text(Kind.CHANGE, change),
        "clock": clock,
    }
    environment.filters |= filters
    environment.tests["long"] = lambda text: len(text) > _LONG_CHARACTERS
    return environment


def template_text(name: str) -> Markup:
    """A style sheet or script, as it is."""
    file = resources.files("tidegate.report") / "templates" / name
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
    columns = {column.name: column for column in sheet.columns}
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
    if isinstance(value, Mapping):
        return harmless(labels_words(value))
    return "" if value is None else plain(value)


# Prometheus' text format, for a textfile collector: amounts and budgets of labels.


def metrics_text(figures: ReportFigures) -> str:
    """Gauges by label and value, of the report's period. A value without a budget has no such."""
    lines = []
    for name, meaning, field in (
        ("bytes", "Bytes that members with the label moved in the period.", "bytes"),
        ("amount", "What they were charged, in the rate card's currency.", "amount"),
        ("budget", "Their budget for the length of the period.", "budget"),
        ("budget_ratio", "The amount as a part of the budget.", "budget_share"),
    ):
        known = [one for one in figures.labels if getattr(one, field) is not None]
        if known:
            lines += [
                f"# HELP tidegate_label_{name} {meaning}",
                f"# TYPE tidegate_label_{name} gauge",
            ]
        for one in known:
            labels = {
                "policy": figures.policy,
                "label": one.label,
                "value": one.value,
                "currency": figures.currency,
            }
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"tidegate_label_{name}{{{inside}}} {plain(getattr(one, field))}")
    if figures.labels:
        lines += [
            "# HELP tidegate_label_period_end_timestamp_seconds The end of the period.",
            "# TYPE tidegate_label_period_end_timestamp_seconds gauge",
            f'tidegate_label_period_end_timestamp_seconds{{policy="{_escaped(figures.policy)}"}} '
            f"{datetime.fromisoformat(figures.period.end).timestamp():.0f}",
        ]
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
