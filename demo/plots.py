"""The plots of the demo's report. They compute nothing but moving means.

Drawn by the usage report's own module of SVG, so that both pages look alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from demo.episode import Playing
from demo.move_outcome import LEADER_RATE, MoveOutcome
from demo.outcome import Outcome
from demo.script import (
    BROKER,
    BUSINESSES,
    CONTRACT,
    HEALTHY_LEADERS,
    LEVELS,
    LIMIT,
    NIC,
    NIC_LIMIT,
    READER,
    VICTIM,
    WANTED,
    Regime,
)
from demo.shift_outcome import DELAY_SECONDS, ShiftOutcome
from demo.words import Mark, MarkKind
from lab.episodes import NIC_MEAN_SECONDS
from lab.rates import SAWTOOTH_SECONDS, ByteSeries
from tidegate.report.svg import (
    WIDTH,
    Markup,
    Plot,
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
    plot,
    round_ticks,
    text,
    vertical_axis,
    vertical_line,
)

_LEFT, _RIGHT = 56, WIDTH - 84  # at the right: the names of horizontal lines
_MARKS = {
    MarkKind.KILL: ("kill", "start"),
    MarkKind.RETURN: ("return", "end"),
    MarkKind.QUOTA: ("quota dotted", "start"),
}
_NAME_HEIGHT = 13
_QUOTA_TICKS = (1, 2, 5, 10, 20, 60)


def _megabytes(rate: float) -> float:
    return rate / 1e6


@dataclass(frozen=True, slots=True)
class _Strip:
    """A part of a plot with a time axis: seconds along x, another quantity along y.

    It reaches from `top` to `bottom`.
    """

    across: Scale
    upward: Scale

    @property
    def top(self) -> float:
        return self.upward.end

    @property
    def bottom(self) -> float:
        return self.upward.begin

    def points(self, times: Iterable[float], values: Iterable[float]) -> list[Point]:
        return [
            (self.across.at(time), self.upward.at(value))
            for time, value in zip(times, values, strict=True)
        ]

    def axis(self, title: str, ticks: Iterable[float] | None = None) -> Markup:
        """Its scale along y, at round values if none are given."""
        shown = labelled(_ticks(self.upward) if ticks is None else ticks)
        return vertical_axis(self.upward, shown, left=_LEFT, right=_RIGHT, title=title)

    def vertical(self, at: float, class_: str) -> Markup:
        return vertical_line(self.across.at(at), self.top, self.bottom, class_=f"line {class_}")

    def level(
        self,
        value: float,
        class_: str,
        name: str,
        *,
        begin: float | None = None,
        end: float | None = None,
    ) -> Markup:
        """A horizontal line from `begin` to `end`, or edge to edge, with its name at the right."""
        left, right = (
            self.across.at(edge) if edge is not None else side
            for edge, side in ((begin, _LEFT), (end, _RIGHT))
        )
        y = self.upward.at(value)
        names = [
            text(part, _RIGHT + 6, y + 4 + 15 * row, class_=f"{class_} small")
            for row, part in enumerate(name.split("\n"))
        ]
        return element("g", horizontal_line(y, left, right, class_=f"line {class_}"), *names)

    def span(self, begin: float, end: float, class_: str) -> Markup:
        """A coloured background from one time to another."""
        left, right = self.across.at(begin), self.across.at(end)
        return bar(
            left, self.top, right - left, self.bottom - self.top, class_=f"background {class_}"
        )


def _ticks(upward: Scale, *, count: int = 5) -> list[float]:
    return [tick for tick in round_ticks(upward.high, count=count) if tick <= upward.high]


def _time_axis(across: Scale, top: float, bottom: float, title: str) -> Markup:
    step = round_ticks(across.high - across.low, count=9)[1]
    first = ceil(across.low / step)
    ticks = [step * place for place in range(first, int(across.high // step) + 1)]
    return horizontal_axis(across, labelled(ticks), top=top, bottom=bottom, title=title)


# Experiment 1: the total over time


def total_plot(outcome: Outcome) -> Plot:
    """The total over time with kills, returns and quota writes, against the promise."""
    promised = _promised(outcome)
    times, rates = _moving_means(outcome)
    strip = _Strip(_run_scale(outcome), Scale(0, max([*rates, promised]) * 1.08, 330, 62))
    upper = strip.points(times, rates)
    marks = _shown_marks(outcome)
    parts = [
        *_regimes(outcome, strip),
        strip.axis("MB/s"),
        _time_axis(
            strip.across, strip.bottom, strip.bottom + 4, "seconds since the experiment began"
        ),
        area(upper, [(x, strip.bottom) for x, _ in (upper[0], upper[-1])], class_="total faint"),
        line(upper, class_="total"),
        strip.level(promised, "promise dashed", f"promised\n{promised:g} MB/s"),
        *(
            strip.vertical(mark.at_seconds - _span(outcome)[0], _MARKS[mark.kind][0])
            for mark in marks
        ),
        *_mark_names(outcome, strip, marks),
        *_measured_windows(outcome, strip),
    ]
    legend = [
        ("line total", "total, mean of the last 12 s"),
        ("line promise dashed", "promised"),
        ("line kill", f"broker {VICTIM} killed"),
        ("line return", f"broker {VICTIM} leads again"),
        ("line quota dotted", "quota written in Kafka"),
        ("line measured", "measured here"),
    ]
    return plot(
        "total",
        "The total over time.",
        (
            "Each point is the mean of the 12 seconds before it, so a change shows fully 12 "
            "seconds after its line."
        ),
        parts,
        height=strip.bottom + 42,
        legend=legend,
    )


def _promised(outcome: Outcome) -> float:
    return _megabytes(outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS))


def _span(outcome: Outcome) -> tuple[float, float]:
    return outcome.results[0].begin_seconds, outcome.results[-1].end_seconds


def _run_scale(outcome: Outcome) -> Scale:
    start, end = _span(outcome)
    return Scale(0, end - start, _LEFT, _RIGHT)


def _moving_means(outcome: Outcome) -> tuple[list[float], list[float]]:
    """Times in seconds since the run's start, and the total's means of the last 12 s before each.

    In MB/s, twice a second, over the whole run.
    """
    start, end = _span(outcome)
    count = int((end - start - SAWTOOTH_SECONDS) * 2)
    times = [SAWTOOTH_SECONDS + step / 2 for step in range(max(1, count + 1))]
    return times, [
        _megabytes(
            sum(
                series.mean(start + time - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS)
                for series in outcome.series.values()
            )
        )
        for time in times
    ]


def _regimes(outcome: Outcome, strip: _Strip) -> Iterator[Markup]:
    """A background for the time in which each regime decided the quota.

    A regime's phases follow each other.
    """
    start, end = _span(outcome)
    begins: dict[Regime, float] = {}
    for result in outcome.results:
        begins.setdefault(result.phase.regime, result.begin_seconds - start)
    ends = [*list(begins.values())[1:], end - start]
    for (regime, begin), finish in zip(begins.items(), ends, strict=True):
        yield strip.span(begin, finish, regime.name.lower())
        middle = strip.across.at((begin + finish) / 2)
        yield text(regime.value, middle, 16, anchor="middle", class_="strong")


def _measured_windows(outcome: Outcome, strip: _Strip) -> Iterator[Markup]:
    """A line over every measured window, with its steady mean."""
    start, y = _span(outcome)[0], strip.bottom - 8
    for result in outcome.results:
        begin, finish = (
            strip.across.at(at - start) for at in (result.measured_from_seconds, result.end_seconds)
        )
        yield horizontal_line(y, begin, finish, class_="line measured")
        yield text(
            f"{_megabytes(result.total):.1f} MB/s",
            (begin + finish) / 2,
            y - 6,
            anchor="middle",
            class_="strong halo",
        )


def _shown_marks(outcome: Outcome) -> list[Mark]:
    """Kills, returns and quota writes of the experiment itself."""
    start, end = _span(outcome)
    return [
        mark for mark in outcome.marks if mark.kind in _MARKS and start <= mark.at_seconds <= end
    ]


def _mark_names(outcome: Outcome, strip: _Strip, marks: Sequence[Mark]) -> Iterator[Markup]:
    """The name of each line above it.

    Of quota writes close together (a lowering in steps) only the last is named.
    """
    start, end = _span(outcome)
    names = {MarkKind.KILL: f"broker {VICTIM} killed", MarkKind.RETURN: "back"}
    for number, mark in enumerate(marks):
        later = marks[number + 1 : number + 2]
        if any(
            one.kind is mark.kind and one.at_seconds - mark.at_seconds < 0.1 * (end - start)
            for one in later
        ):
            continue
        colour, anchor = _MARKS[mark.kind]
        y = strip.top - (22 if mark.kind is MarkKind.QUOTA else 6)
        yield text(
            names.get(mark.kind, mark.text),
            strip.across.at(mark.at_seconds - start),
            y,
            anchor=anchor,
            class_=f"{colour} small",
        )


# Experiments 2 and 3: one episode; 0 on the time axis is when the limit was lowered


def episode_plot(episode: Playing, key: str, title: str, description: str) -> Plot:
    """What each tier got, and its quota; names stand at the lines, and above them what to see."""
    since = _seconds_since_the_limit(episode)
    across = _episode_scale(episode)
    rates = _Strip(across, Scale(0, _megabytes(WANTED) * 1.25, 272, 52))
    quotas = _Strip(across, Scale(0.8, 90, 430, 320, is_logarithmic=True))
    parts = [
        text(_what_to_see(episode), 0, 16, class_="strong"),
        *_rates(episode, rates, since),
        quotas.axis("quota, MB/s", _QUOTA_TICKS),
        *_quotas(episode, quotas, since),
        *_limit_edges(episode, across, rates.top, quotas.bottom),
        _time_axis(across, quotas.bottom, quotas.bottom + 4, "seconds since the limit was lowered"),
    ]
    return plot(key, title, description, parts, height=quotas.bottom + 42)


def pauses_plot(episode: Playing, key: str, title: str, description: str) -> Plot:
    """When clients received nothing; tier states too, if the policy's status was watched."""
    since, across = _seconds_since_the_limit(episode), _episode_scale(episode)
    silent, states = Rows(17, top=24, left=_LEFT), Rows(17, top=130, left=_LEFT)
    bottom = states.at(len(LEVELS)) if episode.tiers else silent.at(len(LEVELS))
    parts = [
        *_level_names(silent, "no byte received"),
        *_silences(episode, silent, across, since),
        *(
            [*_level_names(states, "state"), *_states(episode, states, across, since)]
            if episode.tiers
            else []
        ),
        *_limit_edges(episode, across, silent.top, bottom),
        _time_axis(across, bottom, bottom + 4, "seconds since the limit was lowered"),
    ]
    legend = [(state.lower(), state) for state in _STATES] if episode.tiers else []
    return plot(key, title, description, parts, height=bottom + 42, legend=legend)


def _seconds_since_the_limit(episode: Playing) -> Callable[[float], float]:
    return lambda at_seconds: at_seconds - episode.limited_at_seconds


def _episode_scale(episode: Playing) -> Scale:
    since = _seconds_since_the_limit(episode)
    return Scale(since(episode.began_seconds), since(episode.ended_seconds), _LEFT, _RIGHT)


def _limit_edges(episode: Playing, across: Scale, top: float, bottom: float) -> Iterator[Markup]:
    """When the limit was lowered, and when it was raised."""
    since = _seconds_since_the_limit(episode)
    for at in (0.0, since(episode.raised_at_seconds)):
        yield vertical_line(across.at(at), top, bottom, class_="line promise dashed")


def _what_to_see(episode: Playing) -> str:
    """What L0 got while the limit was low, who was throttled, and the longest pause of anyone."""
    seconds = round(episode.raised_at_seconds - episode.limited_at_seconds)
    wanted = _megabytes(episode.business_of("L0").demand)
    got = _megabytes(episode.moved_by("L0").mean(episode.limited_at_seconds, seconds))
    *lower, last = [level for level in reversed(LEVELS) if episode.written(level)] or ["no tier"]
    throttled = f"{', '.join(lower)} and {last} are" if lower else f"{last} is"
    pause = max(episode.longest_silence(level) for level in LEVELS)
    return (
        f"L0 gets {got:.1f} of {wanted:g} MB/s while {throttled} throttled; no client pauses for "
        f"more than {pause} s"
    )


_Since = Callable[[float], float]
_STATES = ("Contract", "Stepping", "Throttled", "Relaxing")


def _rates(episode: Playing, strip: _Strip, since: _Since) -> Iterator[Markup]:
    """Tiers stacked as 12-second means, the NIC over them, and the limit while it is low.

    The NIC is drawn in single seconds and as 24-second means.
    """
    times = range(int(episode.began_seconds) + 1, int(episode.ended_seconds) + 1)
    shown = [since(time) for time in times]

    def means(series: ByteSeries, seconds: int) -> list[float]:
        """Of the last seconds before each time, in MB/s."""
        return [_megabytes(series.mean(time - seconds, seconds)) for time in times]

    yield strip.axis("MB/s")
    base = [0.0] * len(shown)
    middles: list[float] = []  # of each tier at the end
    for level in LEVELS:
        lower = base[-1]
        top = [
            low + rate
            for low, rate in zip(
                base, means(episode.moved_by(level), SAWTOOTH_SECONDS), strict=True
            )
        ]
        yield area(strip.points(shown, top), strip.points(shown, base), class_=level.lower())
        base = top
        middles.append((base[-1] + lower) / 2)
    nic = means(episode.nic, NIC_MEAN_SECONDS)
    yield line(strip.points(shown, means(episode.nic, 1)), class_="nic thin")
    yield line(strip.points(shown, nic), class_="nic")
    names = [f"{business.level} {business.user}" for business in BUSINESSES]
    yield from _names_at_the_end(
        strip, [*zip([*middles, nic[-1]], [*names, "NIC"], [*LEVELS, "nic"], strict=True)]
    )
    limit = _megabytes(LIMIT)
    y, left, right = (
        strip.upward.at(limit),
        *(strip.across.at(at) for at in (0.0, since(episode.raised_at_seconds))),
    )
    yield horizontal_line(y, left, right, class_="line over dashed")
    yield text(f"limit {limit:g} MB/s", left + 6, y - 5, class_="over small halo")


def _names_at_the_end(strip: _Strip, names: Sequence[tuple[float, str, str]]) -> Iterator[Markup]:
    """The name of each value at the right, from the lowest up, none over another."""
    above = strip.bottom
    for value, name, class_ in names:
        above = min(strip.upward.at(value) + 4, above - _NAME_HEIGHT)
        yield text(name, _RIGHT + 6, above, class_=f"{class_.lower()} named small")


def _quotas(episode: Playing, strip: _Strip, since: _Since) -> Iterator[Markup]:
    """Each tier's quota on a logarithmic scale, which shows halvings as equal steps."""
    for level in LEVELS:
        steps = episode.writes_of(level)
        times = [since(step.at_seconds) for step in steps] + [since(episode.ended_seconds)]
        points: list[Point] = []
        for step, begin, end in zip(steps, times, times[1:], strict=False):
            quota = _megabytes(step.after or CONTRACT)
            points += strip.points((max(begin, strip.across.low), end), (quota, quota))
        if points:
            yield line(points, class_=level.lower())
        if episode.written(level):
            lowest = min(episode.written(level), key=lambda step: step.after or CONTRACT)
            quota = _megabytes(lowest.after or CONTRACT)
            ((x, y),) = strip.points((since(lowest.at_seconds),), (quota,))
            yield text(
                f"{level} {quota:.3g}", x + 6, y - 5, class_=f"{level.lower()} named small halo"
            )


def _silences(episode: Playing, rows: Rows, across: Scale, since: _Since) -> Iterator[Markup]:
    """A bar for every second in which a tier's client received nothing."""
    for row, level in enumerate(LEVELS):
        for begin, seconds in episode.silences(level):
            yield _time_bar(
                across, since(begin), since(begin) + seconds, rows.at(row), level.lower()
            )


def _states(episode: Playing, rows: Rows, across: Scale, since: _Since) -> Iterator[Markup]:
    """The state of each tier in the policy's status."""
    for row, level in enumerate(LEVELS):
        steps = [step for step in episode.tiers if step.level == level]
        ends = [step.at_seconds for step in steps[1:]] + [episode.ended_seconds]
        for step, end in zip(steps, ends, strict=True):
            begin = max(since(step.at_seconds), across.low)
            yield _time_bar(
                across,
                begin,
                since(end),
                rows.at(row),
                step.state.lower() if step.state in _STATES else "others",
            )


def _time_bar(across: Scale, begin: float, end: float, top: float, class_: str) -> Markup:
    return bar(across.at(begin), top + 3, across.at(end) - across.at(begin), 11, class_=class_)


def _level_names(rows: Rows, title: str) -> Iterator[Markup]:
    yield text(title, 0, rows.top - 9, class_="axis-title")
    for row, level in enumerate(LEVELS):
        yield rows.name(level, row)


# Experiment 6: what was due and what was sent, below the broker's NIC


def shift_plot(outcome: ShiftOutcome, episode: Playing) -> Plot:
    """The NIC against its limit, and the queue's bytes that were due and that were sent."""
    start = outcome.limited_at_seconds
    times = range(int(outcome.began_seconds) + 1, int(outcome.ended_seconds) + 1)
    shown = [time - start for time in times]
    across = Scale(shown[0], outcome.ended_seconds - start, _LEFT, _RIGHT)
    nic = _Strip(across, Scale(0, _megabytes(WANTED) * 1.15, 146, 26))
    due, sent = (
        [_megabytes(series.delivered_until(time)) for time in times]
        for series in (outcome.due_series(), outcome.sent_series())
    )
    queue = _Strip(across, Scale(0, max(*due, *sent, 0.1) * 1.1, 340, 190))
    raised, limit = outcome.raised_at_seconds - start, _megabytes(LIMIT)
    released = outcome.released_seconds()
    waits = [
        strip.span(first - start, (released or outcome.ended_seconds) - start, "fixed")
        for first in [outcome.held_from_seconds]
        if first is not None
        for strip in (nic, queue)
    ]
    means = [
        _megabytes(episode.nic.mean(time - NIC_MEAN_SECONDS, NIC_MEAN_SECONDS)) for time in times
    ]
    parts = [
        *waits,
        nic.axis("MB/s"),
        line(nic.points(shown, means), class_="nic"),
        nic.level(limit, "over dashed", f"limit\n{limit:g} MB/s", begin=0.0, end=raised),
        queue.axis("MB of the queue"),
        area(queue.points(shown, due), queue.points(shown, sent), class_="moved"),
        line(queue.points(shown, due), class_="promise dashed"),
        line(queue.points(shown, sent), class_="return"),
        _time_axis(across, queue.bottom, queue.bottom + 4, "seconds since the limit was lowered"),
    ]
    legend = [
        ("line nic", f"NIC of broker {BROKER}, mean of {NIC_MEAN_SECONDS} s"),
        ("line promise dashed", f"due: written {DELAY_SECONDS} s before"),
        ("line return", "sent to their topic"),
        ("moved", "due, and waiting"),
        ("fixed", "from the first quota until messages are sent again"),
    ]
    return plot(
        "shift",
        "Messages that may wait stay where they are while the broker is over its limit.",
        (
            "Top: the broker's NIC. Below: bytes of the queue since the beginning, those that "
            "were due and those that were sent."
        ),
        parts,
        height=queue.bottom + 42,
        legend=legend,
    )


# Experiment 5: both moves on one time axis

_MOVE_MEAN_SECONDS = 3


def move_plot(outcome: MoveOutcome) -> Plot:
    """What L0 got and what was moved, the throttle, and how far L0 came behind."""
    start = outcome.began_seconds
    across = Scale(0, outcome.ended_seconds - start, _LEFT, _RIGHT)
    rates = _Strip(across, Scale(0, _megabytes(NIC) * 1.12, 276, 42))
    ends = _Strip(across, Scale(0, _highest_foretold(outcome), 420, 318))
    moves = (outcome.unthrottled, outcome.followed)
    times = range(int(start) + 1, int(outcome.ended_seconds) + 1)
    shown = [time - start for time in times]
    read, sent = (
        [_megabytes(one.mean(time - _MOVE_MEAN_SECONDS, _MOVE_MEAN_SECONDS)) for time in times]
        for one in (outcome.read, outcome.nic)
    )
    nothing = [0.0] * len(shown)
    over = [max(low, high) for low, high in zip(read, sent, strict=True)]
    parts: list[Markup] = []
    for move, name, regime in zip(
        moves, ("Kafka alone", "Tidegate"), ("fixed", "max"), strict=True
    ):
        begin = move.requested_seconds - start
        end = begin + move.watched_seconds
        parts += [strip.span(begin, end, regime) for strip in (rates, ends)]
        middle = across.at((begin + end) / 2)
        took = "did not end" if move.seconds is None else f"{move.seconds:.0f} s"
        parts += [
            text(f"{name}: {took}", middle, 16, anchor="middle", class_="strong"),
            text(
                f"L0 gets {outcome.read_percent(move):.0f} %",
                middle,
                32,
                anchor="middle",
                class_="small",
            ),
        ]
    wanted, limit = _megabytes(READER.demand), _megabytes(NIC_LIMIT)
    parts += [
        rates.axis("MB/s"),
        area(rates.points(shown, over), rates.points(shown, read), class_="moved"),
        area(rates.points(shown, read), rates.points(shown, nothing), class_="l0"),
        rates.level(wanted, "promise dashed", f"L0 wants\n{wanted:g} MB/s"),
        rates.level(limit, "over dashed", f"limit\n{limit:g} MB/s"),
        *_throttle(outcome, rates),
        ends.axis("seconds until the end", _ticks(ends.upward, count=3)),
        *_foretold(outcome, ends),
        _time_axis(across, ends.bottom, ends.bottom + 4, "seconds since L0 began to read"),
    ]
    legend = [
        ("l0", f"L0 ({READER.user}), mean of {_MOVE_MEAN_SECONDS} s"),
        ("moved", f"everything else that broker {BROKER} sends: what is moved"),
        ("line quota", "rate that Tidegate allows to what is moved, on top of what L0 wants"),
        ("line return", "seconds until the end, as foretold"),
        ("line promise dashed", "as it was"),
    ]
    return plot(
        "move",
        f"Partitions are moved off broker {BROKER} while L0 reads from it.",
        (
            "Top: what the broker's NIC sends. Below: how many seconds the move under Tidegate "
            "still takes, as the operator's metrics say and as it was."
        ),
        parts,
        height=ends.bottom + 42,
        legend=legend,
    )


def _throttle(outcome: MoveOutcome, strip: _Strip) -> Iterator[Markup]:
    """The leader's rate while it was set, drawn from what L0 wants upwards."""
    start, wanted = outcome.began_seconds, READER.demand
    steps = outcome.rate_steps(BROKER, LEADER_RATE)
    points: list[Point] = []
    ends = [*(at for at, _ in steps[1:]), outcome.ended_seconds]
    for (at, rate), end in zip(steps, ends, strict=True):
        if rate is not None:
            top = min(_megabytes(wanted + rate), strip.upward.high)
            points += strip.points((at - start, end - start), (top, top))
        elif points:
            yield line(points, class_="quota")
            points = []
    if points:
        yield line(points, class_="quota")


def _highest_foretold(outcome: MoveOutcome) -> float:
    """The scale of times left: the estimates from the second on, and the move itself."""
    seconds = [one.seconds for one in outcome.foretold[1:]]
    return 1.1 * max([outcome.followed.watched_seconds, *seconds])


def _foretold(outcome: MoveOutcome, strip: _Strip) -> Iterator[Markup]:
    """Each estimate with the time at which it was made, and the time that was really left."""
    start, move = outcome.began_seconds, outcome.followed
    points = strip.points(
        [one.at_seconds - start for one in outcome.foretold],
        [min(one.seconds, strip.upward.high) for one in outcome.foretold],
    )
    if points:
        yield line(points, class_="return")
    if move.ended_seconds is not None:
        begin, end = move.requested_seconds - start, move.ended_seconds - start
        yield line(strip.points((begin, end), (end - begin, 0.0)), class_="promise dashed")
