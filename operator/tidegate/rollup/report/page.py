"""The report as one HTML file that needs no network; every number on it is one of the figures.

The templates have the text of the page. Plots are SVG, so that they print, need no script to be
seen, and follow the reader's colours; a small script adds tooltips, sorting and filtering. The
page's own Content-Security-Policy lets no other script or style run.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidegate.rollup.fold.broker import LEAST_FACTOR, MOST_FACTOR
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
    cell_text,
    clock,
    duration,
    embedded_json,
    sheets_of,
    text_with_unit,
)

_FILTER_FROM = 15  # rows; fewer are found by eye
_LONG_CHARACTERS = 40


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
            factor_bounds=(LEAST_FACTOR, MOST_FACTOR),
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
