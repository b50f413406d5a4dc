"""Takes the pictures of the documents out of the report of a run of the demo: `make demo`, then
`make demo-pictures`.

A plot in the report gets its colours from the page. Here it becomes a separate file: with its
colours, its legend, and a background, so that it can be read on a light page, on a dark one, and
outside a browser. Nothing is drawn or computed again.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

from tools.svg_colours import SVG, with_colours

REPORT = Path("out/demo/report.html")
PICTURES = {
    "total": Path("docs/broker-death.svg"),
    "episode-tidegate": Path("docs/throttling-episode.svg"),
    "pauses-tidegate": Path("docs/throttling-pauses.svg"),
    "move": Path("docs/replication-move.svg"),
    "shift": Path("docs/messages-wait.svg"),
}

_MARGIN, _LEGEND_ROW, _KEY = 14, 20, 12
_CHARACTER_WIDTH = 6.4  # of 12 px text
_BACKGROUND = "svg rect.page:not(.target) { fill: var(--page); stroke: none }"
_SVG = (
    r'<svg viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"[^>]*'
    r'aria-labelledby="{key}-title"[^>]*>(?P<drawn>.*?)</svg>'
)
_LEGEND = re.compile(r'<li><span class="key ([^"]*)"></span>(.*?)</li>')


class NoSuchPlotError(ValueError):
    """The report has no plot of this name: it is no report of the demo, or of another version."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of the report; `legend` is (classes of the mark, text)."""

    width: float
    height: float
    drawn: str
    legend: Sequence[tuple[str, str]]


def picture(report: str, key: str) -> str:
    """The plot `key` of a report as a file of its own. Raises NoSuchPlotError."""
    plot = plot_of(report, key)
    legend, legend_height = _legend(plot)
    width, height = plot.width + 2 * _MARGIN, plot.height + legend_height + 2 * _MARGIN
    head = (
        f'<svg xmlns="{SVG}" viewBox="0 0 {width:g} {height:g}"',
        f'width="{width:g}" height="{height:g}" role="img"',
        f'aria-labelledby="{key}-title" aria-describedby="{key}-desc"',
        """font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">""",
    )
    drawn = (
        f"{' '.join(head)}\n"
        '<rect class="page" width="100%" height="100%"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN})">\n{_lines(plot.drawn)}\n{legend}'
        "</g>\n</svg>"
    )
    page = re.search(r"<style>(.*?)</style>", report, re.DOTALL)
    return with_colours(drawn, (page[1] if page else "") + _BACKGROUND)


def plot_of(report: str, key: str) -> Plot:
    """Raises NoSuchPlotError."""
    found = re.search(_SVG.format(key=re.escape(key)), report, re.DOTALL)
    if found is None:
        raise NoSuchPlotError(
            f"There is no plot named {key} in the report. Play the demo again (make demo), and "
            "take its report."
        )
    after = report[found.end() : report.index("</figure>", found.end())]
    legend = [(mark, unescape(text)) for mark, text in _LEGEND.findall(after)]
    return Plot(float(found["width"]), float(found["height"]), found["drawn"], legend)


def _legend(plot: Plot) -> tuple[str, float]:
    """The legend below the plot, in as many rows as it needs, and their height."""
    parts, x, row = [], 0.0, 0
    for mark, text in plot.legend:
        length = _KEY + 6 + len(text) * _CHARACTER_WIDTH + 16
        if x + length > plot.width and x:
            x, row = 0.0, row + 1
        y = plot.height + _LEGEND_ROW + row * _LEGEND_ROW
        if "line" in mark.split():
            parts.append(
                f'<line class="{mark}" x1="{x:g}" x2="{x + _KEY:g}" y1="{y - 4:g}" y2="{y - 4:g}"/>'
            )
        else:
            parts.append(
                f'<rect class="{mark}" x="{x:g}" y="{y - 10:g}" width="{_KEY}" height="{_KEY}"/>'
            )
        parts.append(f'<text x="{x + _KEY + 6:g}" y="{y:g}">{escape(text)}</text>')
        x += length
    return "".join(f"{part}\n" for part in parts), (row + 1.5) * _LEGEND_ROW if parts else 0


def _lines(drawn: str) -> str:
    """One element a line where a group ends, so that a difference can be read."""
    return re.sub(
        r"(</(?:g|title|desc)>|<(?:polyline|polygon)[^>]*></(?:polyline|polygon)>)", r"\1\n", drawn
    ).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures; exit code 1, and all old ones stay, if the report lacks one."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_pictures", description=__doc__)
    parser.add_argument("report", nargs="?", type=Path, default=REPORT, help="report.html of a run")
    path = parser.parse_args(arguments).report
    try:
        report = path.read_text(encoding="utf-8")
        pictures = {target: picture(report, key) for key, target in PICTURES.items()}
    except (OSError, NoSuchPlotError) as error:
        print(f"No picture was written. {error}", file=sys.stderr)
        return 1
    for target, text in pictures.items():
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
