"""A matplotlib figure as an `<svg>` element that stands inside the report and takes the report's colours. It draws nothing itself."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from demo.palette import Role, themed

_WIDTH_INCHES = 10.5
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), Role.INK),
}
_NO_METADATA: Mapping[str, str | None] = {"Date": None, "Creator": None, "Type": None, "Format": None}


@dataclass
class Svg:
    """The finished element; empty until the figure is closed."""

    text: str = ""


@contextmanager
def picture(*, height_inches: float) -> Iterator[tuple[Figure, Svg]]:
    """A figure to draw on, and where its element is found afterwards."""
    svg = Svg()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield figure, svg
        svg.text = _element(figure)


def _element(figure: Figure) -> str:
    """Without XML prologue, fixed size and date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    drawn = text.getvalue()
    start = drawn.index("<svg")
    end = drawn.index(">", start)
    return themed(re.sub(r' (width|height)="[^"]*pt"', "", drawn[start:end]) + drawn[end:])
