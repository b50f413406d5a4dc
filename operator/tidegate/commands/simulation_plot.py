"""Draws a simulated play as one SVG file that needs nothing else: no page, no script, no font.

Above, the NICs that went over their limits, by level; below them a row for each lowered member,
with its quota as a share of the contract and the seconds in which it was silent.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from tidegate.report.svg import (
    WIDTH,
    Markup,
    Point,
    Rows,
    Scale,
    area,
    bar,
    element,
    horizontal_axis,
    horizontal_line,
    labelled,
    line,
    round_ticks,
    svg_file,
    text,
    vertical_axis,
)
from tidegate.simulation.cluster import NicPlace
from tidegate.simulation.outcome import (
    MemberOutcome,
    NicOutcome,
    Outcome,
    moved_by_level,
    moving_means,
    nic_rates,
)
from tidegate.simulation.play import Play
from tidegate_logic.model import KEY_OF
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.words import elapsed_words, rate_words

_LEFT, _RIGHT = 170, WIDTH - 96  # at the right: the limit
_TOP, _NIC_HEIGHT, _BETWEEN, _ROW_HEIGHT = 88, 150, 48, 34
_MOST_NICS, _MOST_MEMBERS, _MOST_POINTS = 4, 24, 400
_MOSTLY_SILENT = 0.5  # the share of a second from which it is drawn as silent
_MEGABYTE = 1e6
_TIME_STEPS: Final = (
    *(10, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600),
)


def simulation_svg(name: str, played: Play, outcome: Outcome) -> str:
    """The whole file."""
    nics, members = _nics(outcome), _members(outcome)
    across = Scale(0.0, float(max(outcome.seconds, 1)), _LEFT, _RIGHT)
    parts: list[Markup] = []
    top = float(_TOP)
    for nic in nics:
        parts += _nic_panel(played, nic, across, top)
        top += _NIC_HEIGHT + _BETWEEN
    parts += _member_panel(played, members, outcome, across, top)
    height = top + len(members) * _ROW_HEIGHT + (70 if members else 10)
    described = (
        f"Load of brokers by level against their limits, and quotas of lowered members, over "
        f"{elapsed_words(outcome.seconds)}."
    )
    return svg_file(f"Simulation {name}", described, [*_legend(played), *parts], height=height)


def _nics(outcome: Outcome) -> Sequence[NicOutcome]:
    """Those that were over their limits for longest; without any the one that was nearest to it."""
    ordered = sorted(
        outcome.nics, key=lambda one: (-one.over_seconds, -one.highest / one.limit, one.broker)
    )
    over = [one for one in ordered if one.over_seconds]
    return over[:_MOST_NICS] or ordered[:1]


def _members(outcome: Outcome) -> Sequence[MemberOutcome]:
    """Those that were lowered, L3 first, then by what was held back of them."""
    lowered = [one for one in outcome.members if one.lowered_at is not None]
    return sorted(
        lowered, key=lambda one: (-int(one.level.value[1]), -one.amounts.held_by_throttle)
    )[:_MOST_MEMBERS]


def _legend(played: Play) -> Iterator[Markup]:
    levels = sorted({one.report.level for one in played.members.values()})
    marks = [*((level.value.lower(), level.value) for level in levels), ("other", "other traffic")]
    at = 14.0
    for class_, words in (*marks, ("silent", "delayed on all brokers")):
        yield bar(at, 40, 12, 12, class_=class_)
        yield text(words, at + 17, 50)
        at += 36 + 6.2 * len(words)


def _time_axis(across: Scale, top: float, bottom: float) -> Markup:
    step = next((one for one in _TIME_STEPS if across.high / one <= 10), _TIME_STEPS[-1])
    ticks = [float(at) for at in range(0, int(across.high) + 1, step)]
    return horizontal_axis(across, labelled(ticks, elapsed_words), top=top, bottom=bottom)


def _nic_panel(played: Play, nic: NicOutcome, across: Scale, top: float) -> Iterator[Markup]:
    """Areas of what each level and others move, the sum of each second, and the limit."""
    place = (nic.broker, nic.direction)
    bottom = top + _NIC_HEIGHT
    each_second = nic_rates(played, place, 1)
    ticks = round_ticks(max([*each_second, float(nic.limit)]) / _MEGABYTE, count=4)
    upward = Scale(0.0, ticks[-1], bottom, top)
    yield _time_axis(across, top, bottom)
    title = f"broker {nic.broker} {nic.direction.value}, MB/s"
    yield vertical_axis(upward, labelled(ticks), left=_LEFT, right=_RIGHT)
    yield text(title, _LEFT, top - 9, class_="faint")
    base = [0.0] * len(each_second)
    for class_, means in _layers(played, place):
        above = [low + mean for low, mean in zip(base, means, strict=True)]
        yield area(_points(above, across, upward), _points(base, across, upward), class_=class_)
        base = above
    yield line(_points(each_second, across, upward))
    at = upward.at(nic.limit / _MEGABYTE)
    yield horizontal_line(at, _LEFT, _RIGHT, class_="limit")
    yield text(f"limit {rate_words(nic.limit)}", _RIGHT + 6, at + 4, class_="limit")


def _layers(played: Play, place: NicPlace) -> Iterator[tuple[str, list[float]]]:
    """What lies at the bottom first, as means over the rhythm of a throttled client."""
    seconds = played.scenario.policy.window.sawtooth_period_seconds
    places = [(place[0], part) for part in place[1].parts]
    other = [sum(one.background[each] for each in places) for one in played.seconds]
    yield "other", moving_means(other, seconds)
    for level, moved in moved_by_level(played, place, seconds).items():
        yield level.value.lower(), moved


def _points(values: Sequence[float], across: Scale, upward: Scale) -> list[Point]:
    step = max(1, ceil(len(values) / _MOST_POINTS))
    places = [*range(0, len(values), step), *([len(values) - 1] if values else [])]
    return [(across.at(place), upward.at(values[place] / _MEGABYTE)) for place in places]


def _member_panel(
    played: Play,
    members: Sequence[MemberOutcome],
    outcome: Outcome,
    across: Scale,
    top: float,
) -> Iterator[Markup]:
    if not members:
        return
    lowered = sum(one.lowered_at is not None for one in outcome.members)
    more = f", {len(members)} of {lowered}" if lowered > len(members) else ""
    yield text(f"quotas as shares of the contract{more}", _LEFT, top - 9, class_="faint")
    rows = Rows(_ROW_HEIGHT, top, _LEFT, _RIGHT)
    for row, one in enumerate(members):
        yield _member_row(played, one, across, rows, row)
    yield _time_axis(across, rows.at(len(members)), rows.at(len(members)) + 4)


def _member_row(played: Play, one: MemberOutcome, across: Scale, rows: Rows, row: int) -> Markup:
    member = one.member
    quotas = played.quotas[member.key]
    highest = member.contract or max((quota for quota in quotas if quota is not None), default=1)
    low, high = rows.at(row) + _ROW_HEIGHT - 10, rows.at(row) + 3
    share = Scale(0.0, 1.0, low, high)
    called = f"{member.report.level.value} {member.report.member_name}"
    way = KEY_WORDS[KEY_OF[member.direction]]
    tip = (
        f"{called} {way}: contract {rate_words(highest)}, lowest "
        f"{rate_words(one.lowest or highest)}, longest throttle delay "
        f"{one.longest_mute_seconds:.0f} s"
    )
    shares = [1.0 if quota is None else min(1.0, quota / highest) for quota in quotas]
    return element(
        "g",
        element("title", tip),
        bar(_LEFT, high, _RIGHT - _LEFT, low - high, class_="row"),
        *(
            bar(
                across.at(begin),
                share.at(height),
                across.at(end) - across.at(begin),
                low - share.at(height),
                class_=member.report.level.value.lower(),
            )
            for begin, end, height in _runs(shares)
        ),
        *(
            bar(across.at(begin), low + 1, across.at(end) - across.at(begin), 4, class_="silent")
            for begin, end, is_silent in _runs(_silent(played, one))
            if is_silent
        ),
        rows.name(f"{called} {way}", row),
    )


def _silent(played: Play, one: MemberOutcome) -> list[float]:
    """1 in seconds in which it was muted for the most part, on all brokers where it wanted more."""
    key = one.member.key
    silent = [0.0] * len(played.seconds)
    for row, second in enumerate(played.seconds):
        muted = [flow.muted for (of, _), flow in second.flows.items() if of == key]
        if muted and min(muted) >= _MOSTLY_SILENT:
            silent[row] = 1.0
    return silent


def _runs(values: Sequence[float]) -> Iterator[tuple[int, int, float]]:
    """Stretches of one value: where each begins and ends, and the value."""
    begin = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[begin]:
            yield begin, place, values[begin]
            begin = place
