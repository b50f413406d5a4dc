"""A part of a plot with a time axis, as all plots of the demo's report have it."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from tidegate.report import svg

LEFT, RIGHT = 56, svg.WIDTH - 84  # at the right: the names of horizontal lines


def megabytes(rate: float) -> float:
    return rate / 1e6


@dataclass(frozen=True, slots=True)
class Strip:
    """A part of a plot with a time axis: seconds along x, another quantity along y.

    It reaches from `top` to `bottom`.
    """

    across: svg.Scale
    upward: svg.Scale

    @property
    def top(self) -> float:
        return self.upward.end

    @property
    def bottom(self) -> float:
        return self.upward.begin

    def points(self, times: Iterable[float], values: Iterable[float]) -> list[svg.Point]:
        return [
            (self.across.at(time), self.upward.at(value))
            for time, value in zip(times, values, strict=True)
        ]

    def axis(self, title: str, ticks: Iterable[float] | None = None) -> svg.Markup:
        """Its scale along y, at round values if none are given."""
        shown = svg.labelled(ticks_of(self.upward) if ticks is None else ticks)
        return svg.vertical_axis(self.upward, shown, left=LEFT, right=RIGHT, title=title)

    def vertical(self, at: float, class_: str) -> svg.Markup:
        return svg.vertical_line(self.across.at(at), self.top, self.bottom, class_=f"line {class_}")

    def level(
        self,
        value: float,
        class_: str,
        name: str,
        *,
        begin: float | None = None,
        end: float | None = None,
    ) -> svg.Markup:
        """A horizontal line from `begin` to `end`, or edge to edge, with its name at the right."""
        left, right = (
            self.across.at(edge) if edge is not None else side
            for edge, side in ((begin, LEFT), (end, RIGHT))
        )
        y = self.upward.at(value)
        names = [
            svg.text(part, RIGHT + 6, y + 4 + 15 * row, class_=f"{class_} small")
            for row, part in enumerate(name.split("\n"))
        ]
        return svg.element(
            "g", svg.horizontal_line(y, left, right, class_=f"line {class_}"), *names
        )

    def span(self, begin: float, end: float, class_: str) -> svg.Markup:
        """A coloured background from one time to another."""
        left, right = self.across.at(begin), self.across.at(end)
        return svg.bar(
            left, self.top, right - left, self.bottom - self.top, class_=f"background {class_}"
        )


def ticks_of(upward: svg.Scale, *, count: int = 5) -> list[float]:
    return [tick for tick in svg.round_ticks(upward.high, count=count) if tick <= upward.high]


def time_axis(across: svg.Scale, top: float, bottom: float, title: str) -> svg.Markup:
    step = svg.round_ticks(across.high - across.low, count=9)[1]
    first = ceil(across.low / step)
    ticks = [step * place for place in range(first, int(across.high // step) + 1)]
    return svg.horizontal_axis(across, svg.labelled(ticks), top=top, bottom=bottom, title=title)
