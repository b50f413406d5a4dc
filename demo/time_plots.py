"""The report's pictures over time: the total and each partition as 12-second means, with the kills, the quota writes and the measured
windows marked. They compute nothing but moving means.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from demo.marks import Mark, MarkKind
from demo.outcome import Outcome
from demo.palette import PARTITIONS, REGIMES, Role
from demo.rates import SAWTOOTH_SECONDS, ByteSeries
from demo.script import HEALTHY_LEADERS, VICTIM, Regime
from demo.svg import picture

_DASHES = (0, (4, 3))
_DOTS = (0, (1, 1.5))
# The lines of text above the axes, from the axes upwards, as parts of the axes' height.
_BROKER_LINE, _QUOTA_LINE, _REGIME_LINE = 1.02, 1.09, 1.17
_MARKS = {
    MarkKind.KILL: (Role.KILL, "-", _BROKER_LINE, "left"),
    MarkKind.RETURN: (Role.RETURN, "-", _BROKER_LINE, "right"),
    MarkKind.QUOTA: (Role.QUOTA, _DOTS, _QUOTA_LINE, "left"),
}


def total_plot(outcome: Outcome) -> str:
    """The total over time with kills, returns and quota writes, against the promise."""
    promised = outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS) / 1e6
    with picture(height_inches=5.2) as (figure, svg):
        axes = figure.add_subplot()
        times, rates = _moving_means(outcome, list(outcome.series.values()))
        axes.plot(times, rates, color=Role.TOTAL, linewidth=2)
        axes.fill_between(times, rates, color=Role.TOTAL, alpha=0.12, linewidth=0)
        _promise(axes, promised, f"promised\n{promised:g} MB/s")
        _frame(axes, outcome, label="total, MB/s", top=max([*rates, promised]) * 1.08)
        _regime_names(axes, outcome)
        _measured_windows(axes, outcome)
        _marks(axes, outcome)
        _mark_names(axes, outcome)
        axes.set_xlabel("seconds since the experiment began")
        _legend(figure, [Line2D([], [], color=Role.TOTAL, linewidth=2, label="total, mean of the last 12 s")])
    return svg.text


def partition_plot(outcome: Outcome) -> str:
    """The rate of each partition over time, one strip each."""
    contract = outcome.scale.contract_bytes_per_second / 1e6
    with picture(height_inches=6.2) as (figure, svg):
        strips = figure.subplots(len(outcome.series), 1, sharex=True, sharey=True)
        for axes, (partition, series) in zip(strips, sorted(outcome.series.items()), strict=True):
            times, rates = _moving_means(outcome, [series])
            axes.plot(times, rates, color=PARTITIONS[partition], linewidth=2)
            _promise(axes, contract, f"promised\n{contract:g} MB/s")
            _frame(axes, outcome, label=f"partition {partition}\nMB/s", top=contract * 2.8)
            _marks(axes, outcome)
            _leaders(axes, outcome, partition)
        _regime_names(strips[0], outcome, above=1.03)
        strips[-1].set_xlabel("seconds since the experiment began")
        _legend(figure, [])
    return svg.text


def _moving_means(outcome: Outcome, series: Sequence[ByteSeries]) -> tuple[list[float], list[float]]:
    """Means of the last 12 seconds in MB/s, twice a second, over the whole run; times in seconds since its start."""
    start, end = _span(outcome)
    count = int((end - start - SAWTOOTH_SECONDS) * 2)
    times = [SAWTOOTH_SECONDS + step / 2 for step in range(max(1, count + 1))]
    rates = [sum(one.mean(start + time - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS) for one in series) / 1e6 for time in times]
    return times, rates


def _span(outcome: Outcome) -> tuple[float, float]:
    return outcome.results[0].begin_seconds, outcome.results[-1].end_seconds


def _frame(axes: Axes, outcome: Outcome, *, label: str, top: float) -> None:
    start, end = _span(outcome)
    axes.set_xlim(0, end - start)
    axes.set_ylim(0, top)
    axes.set_ylabel(label)
    axes.grid(axis="y", color=Role.RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    for regime, (begin, finish) in _stretches(outcome).items():
        axes.axvspan(begin, finish, color=REGIMES[regime], linewidth=0, zorder=0)


def _promise(axes: Axes, rate: float, text: str) -> None:
    axes.axhline(rate, color=Role.FAINT, linewidth=1, linestyle=_DASHES)
    axes.annotate(text, (1, rate), xycoords=("axes fraction", "data"), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)


def _stretches(outcome: Outcome) -> dict[Regime, tuple[float, float]]:
    """From when to when each regime ruled, in seconds since the start; a regime's phases follow each other."""
    start, end = _span(outcome)
    begins: dict[Regime, float] = {}
    for result in outcome.results:
        begins.setdefault(result.phase.regime, result.begin_seconds - start)
    ends = [*list(begins.values())[1:], end - start]
    return {regime: (begin, finish) for (regime, begin), finish in zip(begins.items(), ends, strict=True)}


def _regime_names(axes: Axes, outcome: Outcome, *, above: float = _REGIME_LINE) -> None:
    for regime, edges in _stretches(outcome).items():
        axes.text(sum(edges) / 2, above, regime.value, transform=axes.get_xaxis_transform(), ha="center", fontweight="bold")


def _measured_windows(axes: Axes, outcome: Outcome) -> None:
    """A bar over every measured window, with its steady mean."""
    start, top = _span(outcome)[0], axes.get_ylim()[1]
    for result in outcome.results:
        begin, finish = result.measured_from_seconds - start, result.end_seconds - start
        axes.plot((begin, finish), (top * 0.03,) * 2, color=Role.INK, linewidth=3, solid_capstyle="butt")
        axes.text((begin + finish) / 2, top * 0.05, f"{result.total / 1e6:.1f} MB/s", ha="center", va="bottom", fontweight="bold")


def _shown(outcome: Outcome) -> list[Mark]:
    """Kills, returns and quota writes of the experiment itself."""
    start, end = _span(outcome)
    return [mark for mark in outcome.marks if mark.kind in _MARKS and start <= mark.at_seconds <= end]


def _marks(axes: Axes, outcome: Outcome) -> None:
    for mark in _shown(outcome):
        colour, style, _, _ = _MARKS[mark.kind]
        axes.axvline(mark.at_seconds - _span(outcome)[0], color=colour, linewidth=1.4, linestyle=style)


def _mark_names(axes: Axes, outcome: Outcome) -> None:
    """What each line is, above it; of quota writes close together (a lowering in steps) the last one is named."""
    start, end = _span(outcome)
    marks = _shown(outcome)
    for number, mark in enumerate(marks):
        later = marks[number + 1 : number + 2]
        hidden = any(one.kind is mark.kind and one.at_seconds - mark.at_seconds < 0.1 * (end - start) for one in later)
        if not hidden:
            colour, _, line, side = _MARKS[mark.kind]
            at = mark.at_seconds - start
            axes.text(at, line, _short(mark), transform=axes.get_xaxis_transform(), color=colour, ha=side, fontsize=9)


def _short(mark: Mark) -> str:
    return {MarkKind.KILL: f"broker {VICTIM} killed", MarkKind.RETURN: f"broker {VICTIM} back"}.get(mark.kind, mark.text)


def _leaders(axes: Axes, outcome: Outcome, partition: int) -> None:
    """Who led the partition, written over each measured window."""
    start, top = _span(outcome)[0], axes.get_ylim()[1]
    for result in outcome.results:
        middle = (result.measured_from_seconds + result.end_seconds) / 2 - start
        text = f"{result.by_partition[partition] / 1e6:.1f} on broker {result.leaders[partition]}"
        axes.text(middle, top * 0.97, text, ha="center", va="top", fontsize=9)


def _legend(figure: Figure, first: list[Line2D]) -> None:
    lines = [
        *first,
        Line2D([], [], color=Role.FAINT, linewidth=1, linestyle=_DASHES, label="promised"),
        Line2D([], [], color=Role.KILL, linewidth=1.4, label=f"broker {VICTIM} killed"),
        Line2D([], [], color=Role.RETURN, linewidth=1.4, label=f"broker {VICTIM} leads again"),
        Line2D([], [], color=Role.QUOTA, linewidth=1.4, linestyle=_DOTS, label="quota written in ZooKeeper"),
    ]
    if first:
        lines.append(Line2D([], [], color=Role.INK, linewidth=3, label="measured here"))
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9, columnspacing=1.4)
