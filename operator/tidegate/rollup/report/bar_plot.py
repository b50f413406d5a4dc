"""Who has how much of something: a bar a row, of one part or several."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.rollup.report.axes import Scale, horizontal_axis, round_ticks
from tidegate.rollup.report.drawing import NAMES_WIDTH, WIDTH, Words, bar, drawing, figure, legend, short
from tidegate.rollup.report.markup import Markup, element

_LEFT, _RIGHT, _ROW, _TOP = NAMES_WIDTH, WIDTH - 30, 24, 4


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: its parts from left to right as (class, length in the axis's unit)."""

    label: str
    parts: Sequence[tuple[str, float]]
    tip: str


def bar_plot(words: Words, bars: Sequence[Bar], *, axis: str, keys: Sequence[tuple[str, str]]) -> Markup:
    """Rows in the order given, on an axis from zero. `keys` explains the classes."""
    ticks = round_ticks(max((sum(length for _, length in one.parts) for one in bars), default=0.0), count=6)
    bottom = _TOP + _ROW * len(bars)
    across = Scale(0.0, ticks[-1], _LEFT, _RIGHT)
    picture = drawing(
        words,
        horizontal_axis(across, [(tick, f"{tick:,g}") for tick in ticks], top=_TOP, bottom=bottom, title=axis),
        *(_row(one, across, _TOP + _ROW * row) for row, one in enumerate(bars)),
        height=bottom + 42,
    )
    return figure(words, picture, legend(keys))


def _row(one: Bar, across: Scale, top: float) -> Markup:
    parts, base = [], 0.0
    for colour, length in one.parts:
        parts.append(bar(across.at(base), top + 4, across.at(base + length) - across.at(base), _ROW - 8, class_=colour))
        base += length
    name = element("text", short(one.label), x=_LEFT - 8, y=top + _ROW / 2 + 4, text_anchor="end")
    return element("g", name, *parts, bar(0, top, WIDTH, _ROW, class_="target"), data_tip=one.tip, class_="row")
