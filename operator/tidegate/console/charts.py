"""What a chart shows, as data in an attribute of its `figure`; `chart_drawing/` draws it.

Pure. Times are seconds since the epoch. Lines that have their times in common share them, so that
50 brokers over a day are some 100 kB.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from tidegate.console.history import Points, Span

SHARE, RATE = "share", "rate"  # of a limit, or bytes per second
_DIGITS: Final = {SHARE: 3, RATE: 0}


@dataclass(frozen=True, slots=True)
class Line:
    """`kind` decides how it looks: "" = of its own colour, or over, quiet, quota, contract.

    With `limit` (bytes/s), a share is also shown as a rate. `group` has one colour.
    """

    name: str
    points: Points
    kind: str = ""
    group: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """`shaded` are spans with a name, `marks` have a time, a type and words.

    `limit` is the value at which a line is drawn across. The axis reaches `floor` at least, and
    `ceiling` at most: what is higher is cut off.
    """

    key: str
    label: str
    unit: str
    begin: float
    end: float
    lines: Sequence[Line]
    limit: float | None = None
    floor: float = 0.0
    ceiling: float | None = None
    shaded: Sequence[tuple[str, Span]] = ()
    marks: Sequence[tuple[float, str, str]] = ()


def figure_of(chart: Chart, caption: Markup) -> Markup:
    """A figure that `live.js` has drawn. Without scripts its label and caption are there."""
    return Markup(
        '<figure class="chart" data-key="{}" data-chart="{}"><div class="plot" role="img" '
        'tabindex="0" aria-label="{}"></div><figcaption>{}</figcaption></figure>'
    ).format(chart.key, _data(chart), chart.label, caption)


def _data(chart: Chart) -> str:
    digits = _DIGITS[chart.unit]
    times: dict[tuple[int, ...], int] = {}
    lines = []
    for one in chart.lines:
        at = tuple(round(at - chart.begin) for at, _ in one.points)
        values = [None if value is None else round(value, digits) for _, value in one.points]
        place = times.setdefault(at, len(times))
        lines.append([one.name, one.kind, one.group, one.limit, place, values])
    found = {
        "unit": chart.unit,
        "begin": round(chart.begin),
        "end": round(chart.end),
        "limit": chart.limit,
        "floor": chart.floor,
        "ceiling": chart.ceiling,
        "times": list(times),
        "lines": lines,
        "shaded": [[name, round(one.begin), round(one.end)] for name, one in chart.shaded],
        "marks": [[round(at), kind, words] for at, kind, words in chart.marks],
    }
    return json.dumps(found, separators=(",", ":"), allow_nan=False)
