"""Draws plots as SVG: elements, scales, axes, bars and lines.

It imports nothing of rollups, so that the demo draws with it too. Colours are CSS classes of the
page, which is why a plot follows the reader's choice of a light or dark page, and prints.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log, log10
from typing import Final

WIDTH: Final = 880
LABELS_WIDTH: Final = 244  # left of bars with a name: 32 characters

# Of a file, which has no page around it: on a light screen and on a dark one.
FILE_COLOURS: Final = {
    "page": ("#fff", "#14181d"),
    "ink": ("#1f2933", "#e4e8ec"),
    "faint": ("#52606d", "#a3afba"),
    "rule": ("#d5dbe1", "#3a444e"),
    "limit": ("#b3261e", "#ff8a7a"),
    "l0": ("#1b4f8f", "#6ea6e8"),
    "l1": ("#2a9187", "#4fc2b5"),
    "l2": ("#d08a12", "#f0b04c"),
    "l3": ("#a83a6b", "#e77fae"),
    "other": ("#8b97a3", "#74808c"),
    "row": ("#eef1f4", "#222a32"),
}
# What a class of an element means in a file, as SVG's own attributes; without a class, the element.
_FILE_LOOKS: Final = {
    "svg": 'fill="ink" font-family="system-ui, DejaVu Sans, sans-serif" font-size="12"',
    "polyline": 'fill="none" stroke="ink" stroke-width=".6"',
    "line": 'stroke="rule"',
    "g.axis": 'fill="faint"',
    "text.title": 'font-size="16" font-weight="600"',
    "text.axis-title": 'fill="faint"',
    "text.faint": 'fill="faint"',
    "text.limit": 'fill="limit"',
    "line.limit": 'stroke="limit" stroke-width="1.6" stroke-dasharray="5 3"',
    "rect.silent": 'fill="ink"',
}
_START_TAG: Final = re.compile(r'<(\w+)((?: [\w-]+="[^"]*")*)>')
_COLOUR: Final = re.compile(r' (fill|stroke)="(\w+)"')
_CHARACTER_WIDTH = 7.0  # of a wide font
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TIME_STEPS = (
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 30 * _DAY, 90 * _DAY),
)

Attribute = str | float | None
Point = tuple[float, float]


class Markup(str):
    """Text that is markup already. Templates of Jinja take it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawn plot; `key` is its id on the page, `legend` is (CSS class of the mark, text)."""

    key: str
    title: str
    description: str
    svg: Markup
    legend: Sequence[tuple[str, str]] = ()


def plot(
    key: str,
    title: str,
    description: str,
    parts: Iterable[Markup | None],
    *,
    height: float,
    legend: Sequence[tuple[str, str]] = (),
) -> Plot:
    """A plot as wide as the page allows, described for screen readers.

    Parts with `data-tip` have a tooltip; the arrow keys go from one to the next.
    """
    svg = element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        tabindex="0",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-desc",
        class_="plot",
    )
    return Plot(key=key, title=title, description=description, svg=svg, legend=legend)


def svg_file(title: str, description: str, parts: Iterable[Markup], *, height: float) -> str:
    """A file with its title that needs nothing else: no page, no script, no font.

    Classes of its elements, and their `fill` and `stroke`, are names of FILE_COLOURS. The light
    colours are attributes, which every program knows, and not only browsers. Where a reader
    prefers dark colours, a browser puts these in their place.
    """
    drawn = element(
        "svg",
        element("title", title),
        element("desc", description),
        element("style", Markup(_dark_style())),
        bar(0, 0, WIDTH, height, class_="page"),
        text(title, 14, 26, class_="title"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        width=str(WIDTH),
        height=f"{height:g}",
        role="img",
    )
    painted = _START_TAG.sub(_with_colours, drawn)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{painted}\n'


def _dark_style() -> str:
    rules = "".join(
        dark_rule(way, *pair) for pair in FILE_COLOURS.values() for way in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark) {{\n{rules}}}"


def dark_rule(way: str, light: str, dark: str) -> str:
    """For a file: what is drawn in the light colour gets the dark one. `way`: fill or stroke."""
    return f'[{way}="{light}"] {{ {way}: {dark} }}\n'


def _with_colours(tag: re.Match[str]) -> str:
    """The start tag with what its class means, less what it has itself, and with light colours."""
    name, written = tag.groups()
    classes = re.search(r' class="([^"]*)"', written)
    looks = [f"{name}.{one}" for one in classes[1].split()] if classes else [name]
    meant = " ".join(_FILE_LOOKS.get(look, _filled(look)) for look in looks)
    for attribute in re.findall(r'[\w-]+="[^"]*"', meant):
        if f" {attribute.partition('=')[0]}=" not in written:
            written += f" {attribute}"
    coloured = _COLOUR.sub(lambda way: f' {way[1]}="{_light(way[2])}"', written)
    return f"<{name}{coloured}>"


def _filled(look: str) -> str:
    """An area or a bar in the colour that its class names."""
    colour = look.partition(".")[2]
    return f'fill="{colour}"' if colour in FILE_COLOURS else ""


def _light(colour: str) -> str:
    return FILE_COLOURS[colour][0] if colour in FILE_COLOURS else colour


def element(tag: str, *children: str | None, **attributes: Attribute) -> Markup:
    """`element("text", "a<b", class_="n", data_tip="x")`; text is escaped, as users choose names.

    Children and attributes that are None are left out. Lengths are rounded to a tenth of a unit:
    more digits would only add bytes.
    """
    written = "".join(
        f' {_name(name)}="{_escaped(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(_escaped(child) for child in children if child is not None)
    return Markup(f"<{tag}{written}>{inside}</{tag}>")


def _escaped(child: str) -> str:
    """With quotes by their numbers, as Jinja writes them."""
    if isinstance(child, Markup):
        return child
    return escape(child).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _name(name: str) -> str:
    """`viewBox` stays as it is, `data_tip` is `data-tip`, `class_` is `class`."""
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def short(label: str, characters: int) -> str:
    """As much of a name as there is room for; the tooltip and the table have all of it."""
    return label if len(label) <= characters else label[: characters - 1] + "…"


# Scales and axes


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high`, which is above it, drawn from `begin` to `end` in plot units."""

    low: float
    high: float
    begin: float
    end: float
    is_logarithmic: bool = False

    def at(self, value: float) -> float:
        low, high, at = (
            log(each) if self.is_logarithmic else each for each in (self.low, self.high, value)
        )
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)


def round_ticks(top: float, *, count: int = 5) -> Sequence[float]:
    """From 0 to at least `top`, by 1, 2 or 5 times a power of ten; 0 and 1 if `top` is 0."""
    if top <= 0:
        return (0.0, 1.0)
    rough = top / count
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return tuple(step * place for place in range(ceil(top / step * 0.999) + 1))


def time_ticks(start: float, end: float, *, count: int = 8) -> Iterator[tuple[float, str]]:
    """Round moments of UTC in [start, end] in seconds, with labels: day at midnight, else time."""
    step = next((one for one in _TIME_STEPS if (end - start) / one <= count), _TIME_STEPS[-1])
    at = ceil(start / step) * step
    while at <= end:
        moment = datetime.fromtimestamp(at, UTC)
        yield at, f"{moment.day} {moment:%b}" if at % _DAY == 0 else f"{moment:%H:%M}"
        at += step


def seconds_of(text: str) -> float:
    """Seconds since the epoch of an ISO time."""
    return datetime.fromisoformat(text).timestamp()


def labelled(
    ticks: Iterable[float], form: Callable[[float], str] = "{:g}".format
) -> list[tuple[float, str]]:
    return [(tick, form(tick)) for tick in ticks]


def horizontal_axis(
    scale: Scale, ticks: Iterable[tuple[float, str]], *, top: float, bottom: float, title: str = ""
) -> Markup:
    """Lines from `top` to `bottom` with labels below, for a scale along x."""
    marks = [
        element(
            "g",
            element("line", x1=scale.at(value), x2=scale.at(value), y1=top, y2=bottom),
            text(label, scale.at(value), bottom + 16, anchor="middle"),
        )
        for value, label in ticks
    ]
    middle = (scale.begin + scale.end) / 2
    named = (
        text(title, middle, bottom + 33, anchor="middle", class_="axis-title") if title else None
    )
    return element("g", *marks, named, class_="axis")


def vertical_axis(
    scale: Scale, ticks: Iterable[tuple[float, str]], *, left: float, right: float, title: str = ""
) -> Markup:
    """Lines from `left` to `right` with labels before them, for a scale along y; title above."""
    marks = [
        element(
            "g",
            element("line", x1=left, x2=right, y1=scale.at(value), y2=scale.at(value)),
            text(label, left - 6, scale.at(value) + 4, anchor="end"),
        )
        for value, label in ticks
    ]
    named = text(title, 0, scale.end - 9, class_="axis-title") if title else None
    return element("g", *marks, named, class_="axis")


# Marks


def text(
    label: str, x: float, y: float, *, anchor: str | None = None, class_: str | None = None
) -> Markup:
    return element("text", label, x=x, y=y, text_anchor=anchor, class_=class_)


def bar(x: float, y: float, width: float, height: float, **attributes: Attribute) -> Markup:
    """A rectangle; a negative size, which rounding can give, is zero."""
    return element("rect", x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **attributes)


def line(points: Iterable[Point], **attributes: Attribute) -> Markup:
    """A line through the points, in the plot's units."""
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), **attributes)


def area(upper: Sequence[Point], lower: Sequence[Point], **attributes: Attribute) -> Markup:
    """The area between two lines."""
    return element(
        "polygon",
        points=" ".join(f"{x:.1f},{y:.1f}" for x, y in (*upper, *reversed(lower))),
        **attributes,
    )


def vertical_line(x: float, top: float, bottom: float, **attributes: Attribute) -> Markup:
    return element("line", x1=x, x2=x, y1=top, y2=bottom, **attributes)


def horizontal_line(y: float, left: float, right: float, **attributes: Attribute) -> Markup:
    return element("line", x1=left, x2=right, y1=y, y2=y, **attributes)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one height below each other, each with a name at its left."""

    height: float
    top: float = 6
    left: float = LABELS_WIDTH
    right: float = WIDTH - 30

    def at(self, row: int) -> float:
        """The row's upper edge."""
        return self.top + self.height * row

    def name(self, label: str, row: int) -> Markup:
        return text(
            short(label, int((self.left - 20) / _CHARACTER_WIDTH)),
            self.left - 8,
            self.at(row) + self.height / 2 + 4,
            anchor="end",
        )

    def target(self, row: int) -> Markup:
        """An invisible bar over the whole row, for its tooltip."""
        return bar(0, self.at(row), WIDTH, self.height, class_="target")


def stacked_bars(
    rows: Rows,
    bars: Sequence[tuple[str, Sequence[tuple[str, float]], str]],
    *,
    axis: str,
) -> tuple[list[Markup], float]:
    """Bars of (name, parts as (CSS class, length), tooltip) from zero, and the height they take."""
    ticks = round_ticks(
        max((sum(length for _, length in parts) for _, parts, _ in bars), default=0.0), count=6
    )
    across = Scale(0.0, ticks[-1], rows.left, rows.right)
    bottom = rows.at(len(bars))
    drawn = [
        horizontal_axis(
            across, labelled(ticks, "{:,g}".format), top=rows.top, bottom=bottom, title=axis
        )
    ]
    for row, (label, parts, tip) in enumerate(bars):
        marks, base = [], 0.0
        for colour, length in parts:
            left, right = across.at(base), across.at(base + length)
            marks.append(bar(left, rows.at(row) + 4, right - left, rows.height - 8, class_=colour))
            base += length
        drawn.append(
            element(
                "g", rows.name(label, row), *marks, rows.target(row), data_tip=tip, class_="row"
            )
        )
    return drawn, bottom + 42
