"""Tiers below their contracts as time lines, by the windows of the tier tables: the fuller a window, the longer it was so in it."""

from collections.abc import Sequence

from tidegate.rollup.report.axes import Scale, horizontal_axis, seconds_of, time_ticks
from tidegate.rollup.report.drawing import NAMES_WIDTH, WIDTH, Words, bar, drawing, figure, short
from tidegate.rollup.report.figures import Period, ThrottledWindow
from tidegate.rollup.report.markup import Markup, element
from tidegate.rollup.report.units import Kind, clock, with_unit

_LEFT, _RIGHT, _ROW, _TOP = NAMES_WIDTH, WIDTH - 30, 24, 6
_SEEN = 2.0


def throttled_plot(period: Period, windows: Sequence[ThrottledWindow]) -> Markup:
    """A row a tier and direction. There must be a window."""
    rows = sorted({(one.tier, one.direction) for one in windows})
    across = Scale(seconds_of(period.start), seconds_of(period.end), _LEFT, _RIGHT)
    bottom = _TOP + _ROW * len(rows)
    words = Words("throttled-tiers", "Tiers below their contracts.", "By the tier tables, UTC. The fuller a window, the longer in it.")
    picture = drawing(
        words,
        horizontal_axis(across, list(time_ticks(across.low, across.high)), top=_TOP, bottom=bottom),
        *(_name(short(f"{tier}, {direction}"), row) for row, (tier, direction) in enumerate(rows)),
        *(_window(one, across, top=_TOP + _ROW * rows.index((one.tier, one.direction))) for one in windows),
        height=bottom + 24,
    )
    return figure(words, picture)


def _window(one: ThrottledWindow, across: Scale, *, top: float) -> Markup:
    begin, held = seconds_of(one.start), one.seconds_throttled + one.seconds_relaxing
    left, right = across.at(begin), across.at(begin + one.seconds)
    full = _ROW - 4
    taken = max(_SEEN, full * min(1.0, held / one.seconds))
    tip = (
        f"{one.tier}, {one.direction}, from {clock(one.start)} UTC\nthrottled {with_unit(Kind.SECONDS, one.seconds_throttled)}, "
        f"relaxing {with_unit(Kind.SECONDS, one.seconds_relaxing)}\n{one.throttle_episodes} episodes began"
    )
    return bar(left, top + 2 + full - taken, max(right - left, _SEEN), taken, class_=one.level.lower() or "others", data_tip=tip)


def _name(text: str, row: int) -> Markup:
    return element("text", text, x=_LEFT - 8, y=_TOP + _ROW * row + _ROW / 2 + 4, text_anchor="end")
