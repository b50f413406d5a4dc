"""The report as one HTML file that needs no network. It computes nothing: every number is one of the figures.

Plots are SVG made here, so that they print, need no script to be seen, and follow the reader's colours; a small script adds tips, sorting
and filtering. The page's own policy lets no other script or style run.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from tidegate.rollup.report.bill_section import bill_section, cards, members_section, traffic_section
from tidegate.rollup.report.capacity_section import brokers_section, contracts_section
from tidegate.rollup.report.document import embedded_json
from tidegate.rollup.report.figures import Origin, ReportFigures
from tidegate.rollup.report.markup import Markup, element, join
from tidegate.rollup.report.section import Section
from tidegate.rollup.report.sheets import sheets_of
from tidegate.rollup.report.throttle_section import recommendations_section, throttle_section
from tidegate.rollup.report.trust_section import recipes_section, trust_section
from tidegate.rollup.report.units import clock, duration

_FOLDER = Path(__file__).parent


def page_html(figures: ReportFigures) -> str:
    """The whole page."""
    style, script = (_part(name) for name in ("page.css", "page.js"))
    sections = _sections(figures)
    heading = figures.policy or "All brokers"
    return Template(_part("page.html.template")).substitute(
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        title=escape(f"Usage of {heading}, {clock(figures.period.start)} to {clock(figures.period.end)} UTC"),
        heading=escape(heading),
        period=escape(_period(figures)),
        contents=_contents(sections),
        body=join([*_warning(figures), cards(figures), *(section.html() for section in sections), _footer(figures)]),
        figures=embedded_json(figures),
    )


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a Content-Security-Policy names what it lets run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _sections(figures: ReportFigures) -> Sequence[Section]:
    sheets = sheets_of(figures)
    return (
        bill_section(figures, sheets),
        members_section(figures, sheets),
        traffic_section(figures, sheets),
        contracts_section(figures, sheets),
        brokers_section(figures, sheets),
        throttle_section(figures, sheets),
        recommendations_section(sheets),
        trust_section(figures, sheets),
        recipes_section(sheets),
    )


def _period(figures: ReportFigures) -> str:
    """Where a plot is finer than the tables, it says so itself."""
    period = figures.period
    drawn = (*(point.seconds for point in figures.traffic), *(point.seconds for point in figures.load))
    whose = "tables " if min(drawn, default=period.seconds) < period.seconds / period.windows else ""
    return f"{clock(period.start)} to {clock(period.end)} UTC, {duration(period.seconds)}, {whose}by the {period.grain}"


def _warning(figures: ReportFigures) -> Sequence[Markup]:
    """A bill for a part of a period must not be taken for the whole one."""
    period = figures.period
    missing = period.windows - period.published_windows
    if missing <= 0:
        return ()
    told = f"This report is not whole: {missing} of {period.windows} windows of one {period.grain} are not in the tables."
    return (element("p", told, class_="warning", role="alert"),)


def _contents(sections: Sequence[Section]) -> Markup:
    return element("ul", *(element("li", element("a", section.title, href=f"#{section.key}")) for section in sections))


def _footer(figures: ReportFigures) -> Markup:
    return element("footer", element("p", f"Made {clock(figures.made_at)} UTC. {_origin(figures.origin)}"))


def _origin(origin: Origin) -> str:
    told = [f"Tables: {origin.store}, schema version {origin.schema_version}."]
    told += [f"Read by {origin.transports}."] if origin.transports else []
    told += [f"Runs: {origin.runs}."] if origin.runs else []
    return " ".join(told)
