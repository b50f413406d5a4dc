"""What tiers moved over time: bars on top of each other, one picture a direction."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tidegate.rollup.report.axes import Scale, horizontal_axis, round_ticks, seconds_of, time_ticks, vertical_axis
from tidegate.rollup.report.drawing import WIDTH, Words, bar, drawing, figure, legend
from tidegate.rollup.report.figures import Period, TrafficPoint
from tidegate.rollup.report.markup import Markup, element
from tidegate.rollup.report.units import Kind, clock, duration, readable, with_unit

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 56, WIDTH - 24, 26, 206, 234
_COLOURS = 7
_HOUR = 3600
_OTHERS = "all other tiers"


def tier_words(tier: str) -> str:
    return tier or "no tier"


def traffic_plot(period: Period, points: Sequence[TrafficPoint], direction: str, *, below: Markup | None) -> Markup:
    """Bars of the mean rate. A tier has the same colour in both directions; from the eighth on, by volume, they share one."""
    ours = [point for point in points if point.direction == direction]
    tiers = _by_volume(points)
    steps = _steps(ours, tiers)
    totals = [sum(rates.values()) for rates in steps.values()]
    ticks = round_ticks(max(totals, default=0.0) / 1e6)
    across = Scale(seconds_of(period.start), seconds_of(period.end), _LEFT, _RIGHT)
    upward = Scale(0.0, ticks[-1] * 1e6, _BOTTOM, _TOP)
    seconds = ours[0].seconds if ours else 0.0
    bars = [_step(start, seconds, rates, across=across, upward=upward, tiers=tiers) for start, rates in steps.items()]
    words = Words(
        f"traffic-{direction}",
        f"Traffic over time: {direction}.",
        f"Mean rate of every {_step_words(period, seconds)} by tier, in MB/s, UTC.",
    )
    picture = drawing(
        words,
        vertical_axis(upward, [(tick * 1e6, f"{tick:g}") for tick in ticks], left=_LEFT, right=_RIGHT, title="MB/s"),
        horizontal_axis(across, list(time_ticks(across.low, across.high)), top=_BOTTOM, bottom=_BOTTOM + 4),
        *bars,
        height=_HEIGHT,
    )
    return figure(words, picture, legend([(_colour(tier, tiers), tier_words(tier)) for tier in tiers]), below)


def _step_words(period: Period, seconds: float) -> str:
    return duration(seconds) if seconds < _HOUR else period.grain if seconds == _HOUR else "step"


def _by_volume(points: Sequence[TrafficPoint]) -> Sequence[str]:
    """The tiers to draw, most bytes first; from the eighth on they are one."""
    moved: defaultdict[str, int] = defaultdict(int)
    for point in points:
        moved[point.tier] += point.bytes
    ranked = sorted(moved, key=lambda tier: (-moved[tier], tier))
    return ranked if len(ranked) <= _COLOURS else [*ranked[: _COLOURS - 1], _OTHERS]


def _steps(points: Sequence[TrafficPoint], tiers: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """By start of a step, the rate of each tier."""
    steps: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for point in points:
        steps[point.start][point.tier if point.tier in tiers else _OTHERS] += point.rate
    return steps


def _colour(tier: str, tiers: Sequence[str]) -> str:
    return "others" if tier == _OTHERS else f"c{list(tiers).index(tier)}"


def _step(start: str, seconds: float, rates: Mapping[str, float], *, across: Scale, upward: Scale, tiers: Sequence[str]) -> Markup:
    """One column, with a target to hover that is as high as the plot."""
    at = seconds_of(start)
    left, right = across.at(at), min(across.at(at + seconds), across.end)
    base, parts = 0.0, []
    for tier in tiers:
        rate = rates.get(tier, 0.0)
        if rate > 0:
            bottom, top = upward.at(base), upward.at(base + rate)
            parts.append(bar(left, top, right - left - 0.6, bottom - top, class_=_colour(tier, tiers)))
            base += rate
    length = duration(seconds) if seconds < _HOUR else f"{readable(seconds / _HOUR)} h"
    lines = [f"{clock(start)} UTC, {length}", *(f"{tier_words(tier)}: {_rate(rates.get(tier, 0.0))}" for tier in tiers)]
    tip = "\n".join([*lines, f"together: {_rate(base)}"])
    return element("g", *parts, bar(left, _TOP, right - left, _BOTTOM - _TOP, class_="target"), data_tip=tip)


def _rate(rate: float) -> str:
    return with_unit(Kind.RATE, rate)
