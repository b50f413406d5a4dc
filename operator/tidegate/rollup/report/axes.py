"""Where things stand in a drawing: scales, round ticks, and times that people count in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

from tidegate.rollup.report.markup import Markup, element

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TIME_STEPS = (
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 30 * _DAY, 90 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` drawn from `begin` to `end`, in the drawing's units. `high` must be above `low`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def round_ticks(top: float, *, count: int = 5) -> Sequence[float]:
    """From zero to at least `top`, in steps of 1, 2 or 5 times a power of ten; zero and one where `top` is nothing."""
    if top <= 0:
        return (0.0, 1.0)
    rough = top / count
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return tuple(step * place for place in range(ceil(top / step * 0.999) + 1))


def time_ticks(start: float, end: float, *, count: int = 8) -> Iterator[tuple[float, str]]:
    """Round moments of UTC in [start, end] in seconds, with their words: the day at midnight and on the first, else the time."""
    step = next((one for one in _TIME_STEPS if (end - start) / one <= count), _TIME_STEPS[-1])
    at = ceil(start / step) * step
    while at <= end:
        moment = datetime.fromtimestamp(at, UTC)
        yield at, f"{moment.day} {moment:%b}" if at % _DAY == 0 else f"{moment:%H:%M}"
        at += step


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def horizontal_axis(scale: Scale, ticks: Sequence[tuple[float, str]], *, top: float, bottom: float, title: str = "") -> Markup:
    """Lines from `top` to `bottom` with words below, for a scale along x."""
    marks = [
        element(
            "g",
            element("line", x1=scale.at(value), x2=scale.at(value), y1=top, y2=bottom),
            element("text", label, x=scale.at(value), y=bottom + 16, text_anchor="middle"),
        )
        for value, label in ticks
    ]
    named = element("text", title, x=(scale.begin + scale.end) / 2, y=bottom + 33, text_anchor="middle", class_="axis-title")
    return element("g", *marks, named if title else None, class_="axis")


def vertical_axis(scale: Scale, ticks: Sequence[tuple[float, str]], *, left: float, right: float, title: str = "") -> Markup:
    """Lines from `left` to `right` with words before them, for a scale along y; the title stands above."""
    marks = [
        element(
            "g",
            element("line", x1=left, x2=right, y1=scale.at(value), y2=scale.at(value)),
            element("text", label, x=left - 6, y=scale.at(value) + 4, text_anchor="end"),
        )
        for value, label in ticks
    ]
    return element("g", *marks, element("text", title, x=0, y=scale.end - 9, class_="axis-title") if title else None, class_="axis")
