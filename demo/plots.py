"""The plots of the demo's report. They compute nothing but moving means.

Drawn by the usage report's own module of SVG, so that both pages look alike. Those of experiments 2
and 3 are in `episode_plots`.
"""

from collections.abc import Iterator, Sequence

from demo import script
from demo.episode import Playing
from demo.move_outcome import LEADER_RATE, MoveOutcome
from demo.outcome import Outcome
from demo.shift_outcome import DELAY_SECONDS, ShiftOutcome
from demo.strip import LEFT, RIGHT, Strip, megabytes, ticks_of, time_axis
from demo.words import Mark, MarkKind
from lab.episodes import NIC_MEAN_SECONDS
from lab.rates import SAWTOOTH_SECONDS
from tidegate.report import svg

_MARKS = {
    MarkKind.KILL: ("kill", "start"),
    MarkKind.RETURN: ("return", "end"),
    MarkKind.QUOTA: ("quota dotted", "start"),
}


def total_plot(outcome: Outcome) -> svg.Plot:
    """The total over time with kills, returns and quota writes, against the promise."""
    promised = _promised(outcome)
    times, rates = _moving_means(outcome)
    strip = Strip(_run_scale(outcome), svg.Scale(0, max([*rates, promised]) * 1.08, 330, 62))
    upper = strip.points(times, rates)
    marks = _shown_marks(outcome)
    parts = [
        *_regimes(outcome, strip),
        strip.axis("MB/s"),
        time_axis(
            strip.across, strip.bottom, strip.bottom + 4, "seconds since the experiment began"
        ),
        svg.area(upper, strip.points((times[0], times[-1]), (0, 0)), class_="total faint"),
        svg.line(upper, class_="total"),
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
        ("line kill", f"broker {script.VICTIM} killed"),
        ("line return", f"broker {script.VICTIM} leads again"),
        ("line quota dotted", "quota written in Kafka"),
        ("line measured", "measured here"),
    ]
    return svg.plot(
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
    return megabytes(outcome.scale.contract_bytes_per_second * len(script.HEALTHY_LEADERS))


def _span(outcome: Outcome) -> tuple[float, float]:
    return outcome.results[0].begin_seconds, outcome.results[-1].end_seconds


def _run_scale(outcome: Outcome) -> svg.Scale:
    start, end = _span(outcome)
    return svg.Scale(0, end - start, LEFT, RIGHT)


def _moving_means(outcome: Outcome) -> tuple[list[float], list[float]]:
    """Times in seconds since the run's start, and the total's means of the last 12 s before each.

    In MB/s, twice a second, over the whole run.
    """
    start, end = _span(outcome)
    count = int((end - start - SAWTOOTH_SECONDS) * 2)
    times = [SAWTOOTH_SECONDS + step / 2 for step in range(max(1, count + 1))]
    return times, [
        megabytes(
            sum(
                series.mean(start + time - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS)
                for series in outcome.series.values()
            )
        )
        for time in times
    ]


def _regimes(outcome: Outcome, strip: Strip) -> Iterator[svg.Markup]:
    """A background for the time in which each regime decided the quota.

    A regime's phases follow each other.
    """
    start, end = _span(outcome)
    begins: dict[script.Regime, float] = {}
    for result in outcome.results:
        begins.setdefault(result.phase.regime, result.begin_seconds - start)
    ends = [*list(begins.values())[1:], end - start]
    for (regime, begin), finish in zip(begins.items(), ends, strict=True):
        yield strip.span(begin, finish, regime.name.lower())
        middle = strip.across.at((begin + finish) / 2)
        yield svg.text(regime.value, middle, 16, anchor="middle", class_="strong")


def _measured_windows(outcome: Outcome, strip: Strip) -> Iterator[svg.Markup]:
    """A line over every measured window, with its steady mean."""
    start, y = _span(outcome)[0], strip.bottom - 8
    for result in outcome.results:
        begin, finish = (
            strip.across.at(at - start) for at in (result.measured_from_seconds, result.end_seconds)
        )
        yield svg.horizontal_line(y, begin, finish, class_="line measured")
        yield svg.text(
            f"{megabytes(result.total):.1f} MB/s",
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


def _mark_names(outcome: Outcome, strip: Strip, marks: Sequence[Mark]) -> Iterator[svg.Markup]:
    """The name of each line above it.

    Of quota writes close together (a lowering in steps) only the last is named.
    """
    start, end = _span(outcome)
    names = {MarkKind.KILL: f"broker {script.VICTIM} killed", MarkKind.RETURN: "back"}
    for number, mark in enumerate(marks):
        later = marks[number + 1 : number + 2]
        if any(
            one.kind is mark.kind and one.at_seconds - mark.at_seconds < 0.1 * (end - start)
            for one in later
        ):
            continue
        colour, anchor = _MARKS[mark.kind]
        y = strip.top - (22 if mark.kind is MarkKind.QUOTA else 6)
        yield svg.text(
            names.get(mark.kind, mark.text),
            strip.across.at(mark.at_seconds - start),
            y,
            anchor=anchor,
            class_=f"{colour} small",
        )


def shift_plot(outcome: ShiftOutcome, episode: Playing) -> svg.Plot:
    """The NIC against its limit, and the queue's bytes that were due and that were sent."""
    start = outcome.limited_at_seconds
    times = range(int(outcome.began_seconds) + 1, int(outcome.ended_seconds) + 1)
    shown = [time - start for time in times]
    across = svg.Scale(shown[0], outcome.ended_seconds - start, LEFT, RIGHT)
    nic = Strip(across, svg.Scale(0, megabytes(script.WANTED) * 1.15, 146, 26))
    due, sent = (
        [megabytes(series.delivered_until(time)) for time in times]
        for series in (outcome.due_series(), outcome.sent_series())
    )
    queue = Strip(across, svg.Scale(0, max(*due, *sent, 0.1) * 1.1, 340, 190))
    raised, limit = outcome.raised_at_seconds - start, megabytes(script.LIMIT)
    released = outcome.released_seconds()
    waits = [
        strip.span(first - start, (released or outcome.ended_seconds) - start, "fixed")
        for first in [outcome.held_from_seconds]
        if first is not None
        for strip in (nic, queue)
    ]
    means = [
        megabytes(episode.nic.mean(time - NIC_MEAN_SECONDS, NIC_MEAN_SECONDS)) for time in times
    ]
    parts = [
        *waits,
        nic.axis("MB/s"),
        svg.line(nic.points(shown, means), class_="nic"),
        nic.level(limit, "over dashed", f"limit\n{limit:g} MB/s", begin=0.0, end=raised),
        queue.axis("MB of the queue"),
        svg.area(queue.points(shown, due), queue.points(shown, sent), class_="moved"),
        svg.line(queue.points(shown, due), class_="promise dashed"),
        svg.line(queue.points(shown, sent), class_="return"),
        time_axis(across, queue.bottom, queue.bottom + 4, "seconds since the limit was lowered"),
    ]
    legend = [
        ("line nic", f"NIC of broker {script.BROKER}, mean of {NIC_MEAN_SECONDS} s"),
        ("line promise dashed", f"due: written {DELAY_SECONDS} s before"),
        ("line return", "sent to their topic"),
        ("moved", "due, and waiting"),
        ("fixed", "from the first quota until messages are sent again"),
    ]
    return svg.plot(
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


_MOVE_MEAN_SECONDS = 3


def move_plot(outcome: MoveOutcome) -> svg.Plot:
    """What L0 got and what was moved, the throttle, and how far L0 came behind."""
    start = outcome.began_seconds
    across = svg.Scale(0, outcome.ended_seconds - start, LEFT, RIGHT)
    rates = Strip(across, svg.Scale(0, megabytes(script.NIC) * 1.12, 276, 42))
    ends = Strip(across, svg.Scale(0, _highest_foretold(outcome), 420, 318))
    moves = (outcome.unthrottled, outcome.followed)
    times = range(int(start) + 1, int(outcome.ended_seconds) + 1)
    shown = [time - start for time in times]
    read, sent = (
        [megabytes(one.mean(time - _MOVE_MEAN_SECONDS, _MOVE_MEAN_SECONDS)) for time in times]
        for one in (outcome.read, outcome.nic)
    )
    nothing = [0.0] * len(shown)
    over = [max(low, high) for low, high in zip(read, sent, strict=True)]
    parts: list[svg.Markup] = []
    for move, name, regime in zip(
        moves, ("Kafka alone", "Tidegate"), ("fixed", "max"), strict=True
    ):
        begin = move.requested_seconds - start
        end = begin + move.watched_seconds
        parts += [strip.span(begin, end, regime) for strip in (rates, ends)]
        middle = across.at((begin + end) / 2)
        took = "did not end" if move.seconds is None else f"{move.seconds:.0f} s"
        parts += [
            svg.text(f"{name}: {took}", middle, 16, anchor="middle", class_="strong"),
            svg.text(
                f"L0 gets {outcome.read_percent(move):.0f} %",
                middle,
                32,
                anchor="middle",
                class_="small",
            ),
        ]
    wanted, limit = megabytes(script.READER.demand), megabytes(script.NIC_LIMIT)
    parts += [
        rates.axis("MB/s"),
        svg.area(rates.points(shown, over), rates.points(shown, read), class_="moved"),
        svg.area(rates.points(shown, read), rates.points(shown, nothing), class_="l0"),
        rates.level(wanted, "promise dashed", f"L0 wants\n{wanted:g} MB/s"),
        rates.level(limit, "over dashed", f"limit\n{limit:g} MB/s"),
        *_throttle(outcome, rates),
        ends.axis("seconds until the end", ticks_of(ends.upward, count=3)),
        *_foretold(outcome, ends),
        time_axis(across, ends.bottom, ends.bottom + 4, "seconds since L0 began to read"),
    ]
    legend = [
        ("l0", f"L0 ({script.READER.user}), mean of {_MOVE_MEAN_SECONDS} s"),
        ("moved", f"everything else that broker {script.BROKER} sends: what is moved"),
        ("line quota", "rate that Tidegate allows to what is moved, on top of what L0 wants"),
        ("line return", "seconds until the end, as foretold"),
        ("line promise dashed", "as it was"),
    ]
    return svg.plot(
        "move",
        f"Partitions are moved off broker {script.BROKER} while L0 reads from it.",
        (
            "Top: what the broker's NIC sends. Below: how many seconds the move under Tidegate "
            "still takes, as the operator's metrics say and as it was."
        ),
        parts,
        height=ends.bottom + 42,
        legend=legend,
    )


def _throttle(outcome: MoveOutcome, strip: Strip) -> Iterator[svg.Markup]:
    """The leader's rate while it was set, drawn from what L0 wants upwards."""
    start, wanted = outcome.began_seconds, script.READER.demand
    steps = outcome.rate_steps(script.BROKER, LEADER_RATE)
    points: list[svg.Point] = []
    ends = [*(at for at, _ in steps[1:]), outcome.ended_seconds]
    for (at, rate), end in zip(steps, ends, strict=True):
        if rate is not None:
            top = min(megabytes(wanted + rate), strip.upward.high)
            points += strip.points((at - start, end - start), (top, top))
        elif points:
            yield svg.line(points, class_="quota")
            points = []
    if points:
        yield svg.line(points, class_="quota")


def _highest_foretold(outcome: MoveOutcome) -> float:
    """The scale of times left: the estimates from the second on, and the move itself."""
    seconds = [one.seconds for one in outcome.foretold[1:]]
    return 1.1 * max([outcome.followed.watched_seconds, *seconds])


def _foretold(outcome: MoveOutcome, strip: Strip) -> Iterator[svg.Markup]:
    """Each estimate with the time at which it was made, and the time that was really left."""
    start, move = outcome.began_seconds, outcome.followed
    points = strip.points(
        [one.at_seconds - start for one in outcome.foretold],
        [min(one.seconds, strip.upward.high) for one in outcome.foretold],
    )
    if points:
        yield svg.line(points, class_="return")
    if move.ended_seconds is not None:
        begin, end = move.requested_seconds - start, move.ended_seconds - start
        yield svg.line(strip.points((begin, end), (end - begin, 0.0)), class_="promise dashed")
