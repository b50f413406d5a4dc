"""Pictures of benchmarks as SVG files, drawn by matplotlib: small multiples with shared axes.

The reports do not need matplotlib.
"""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import matplotlib as mpl
from matplotlib.figure import Figure

_WIDTH_INCHES = 10.5
# a tenth of a point is finer than one sees, the fonts are named once for all, and the file is half
# as large
_TENTHS, _SUPERFLUOUS = (
    re.compile(r"(\d\.\d)\d+"),
    re.compile(r"^ +| font-family: [^;\"]*;?", re.MULTILINE),
)
_FILE_STYLE = "<style>svg{background:#fff;font-family:sans-serif}</style>"
_NO_METADATA: Mapping[str, str | None] = {
    "Date": None,
    "Creator": None,
    "Type": None,
    "Format": None,
}


class Colour(StrEnum):
    """The colours of the reports' light page."""

    INK = "#1f2933"
    LEVEL_0 = "#1b4f8f"
    LEVEL_1 = "#2a9187"
    LEVEL_2 = "#c77f0a"
    LEVEL_3 = "#a83a6b"
    LIMIT = "#c0392b"
    NIC = "#34495e"


_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
        Colour.INK.value,
    ),
}


@dataclass
class PictureFile:
    """The text of the file; empty until the picture is drawn."""

    text: str = ""


@contextmanager
def picture(*, height_inches: float) -> Iterator[tuple[Figure, PictureFile]]:
    """A figure to draw on, and the file that it becomes afterwards."""
    file = PictureFile()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield figure, file
        file.text = _file_text(figure)


def _file_text(figure: Figure) -> str:
    """Without a fixed size and date, as small as it can be without a visible difference."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    drawn = text.getvalue()
    start = drawn.index("<svg")
    end = drawn.index(">", start)
    drawn = (
        re.sub(r' (width|height)="[^"]*pt"', "", drawn[start:end])
        + ">"
        + _FILE_STYLE
        + drawn[end + 1 :]
    )
    drawn = _TENTHS.sub(r"\1", _SUPERFLUOUS.sub("", drawn)).replace(" \nL ", "L")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + drawn
