"""A picture as an SVG file of its own, on white, as small as it can be kept without anybody seeing it."""

import re

from demo.palette import light_variables

# a tenth of a point is finer than anybody sees, the fonts are named once for all, and the file is half as large
_TENTHS, _SUPERFLUOUS = re.compile(r"(\d\.\d)\d+"), re.compile(r"^ +| font-family: [^;\"]*;?", re.MULTILINE)
_STYLE = "<style>svg{background:#fff;font-family:sans-serif;" + light_variables() + "}</style>"


def as_file(element: str) -> str:
    """The `<svg>` element of `demo.svg` as a whole file."""
    drawn = _TENTHS.sub(r"\1", _SUPERFLUOUS.sub("", element)).replace(" \nL ", "L")
    start = drawn.index(">", drawn.index("<svg")) + 1
    return '<?xml version="1.0" encoding="utf-8"?>\n' + drawn[:start] + _STYLE + drawn[start:]
