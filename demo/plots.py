"""The report's pictures as SVG text, drawn by matplotlib from a finished outcome. It writes no file and computes only moving means."""

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demo.outcome import Mark, MarkKind, Outcome, PhaseResult
from demo.rates import SAWTOOTH_SECONDS, ByteSeries
from demo.script import HEALTHY_LEADERS, Regime

PARTITION_COLOURS = {0: "#0072b2", 1: "#d98200", 2: "#00835f"}
_REGIME_COLOURS = {Regime.FIXED: "#f3f0ea", Regime.MAX: "#e6f1f8", Regime.MEAN: "#eaf5ea"}
_KILL_COLOUR = "#c0392b"
_QUOTA_COLOUR = "#6c3483"
_STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def total_plot(outcome: Outcome) -> str:
    """The total over time with kills, leader moves and quota writes, against the promise."""
    promised = outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS) / 1e6
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 4.6), layout="constrained")
        axes = figure.add_subplot()
        times, rates = _moving_means(outcome, list(outcome.series.values()))
        axes.fill_between(times, rates, color="#34495e", alpha=0.12, linewidth=0)
        axes.plot(times, rates, color="#34495e", linewidth=2)
        axes.axhline(promised, color="#555", linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"promised: {promised:g}", (times[-1], promised), xytext=(-4, 4), textcoords="offset points", ha="right", color="#333"
        )
        _frame(axes, outcome, label="total, MB/s", top=max([*rates, promised]) * 1.32)
        _phase_names(axes, outcome)
        _marks(axes, outcome, named=True)
        axes.set_xlabel("seconds since the experiment began")
        return _svg(figure)


def partition_plot(outcome: Outcome) -> str:
    """The rate of each partition over time, one strip each."""
    contract = outcome.scale.contract_bytes_per_second / 1e6
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 5.4), layout="constrained")
        strips = figure.subplots(len(outcome.series), 1, sharex=True, sharey=True)
        for axes, (partition, series) in zip(strips, sorted(outcome.series.items()), strict=True):
            times, rates = _moving_means(outcome, [series])
            axes.plot(times, rates, color=PARTITION_COLOURS[partition], linewidth=2)
            axes.axhline(contract, color="#555", linewidth=1, linestyle=(0, (4, 3)))
            _frame(axes, outcome, label=f"partition {partition}\nMB/s", top=contract * 2.8)
            _marks(axes, outcome, named=False)
            _leaders(axes, outcome, partition)
        strips[-1].set_xlabel("seconds since the experiment began")
        return _svg(figure)


def cost_plot(outcome: Outcome) -> str:
    """What each regime gave every partition, stacked to the total, against the promise."""
    promised = outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS) / 1e6
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 0.62 * len(outcome.results) + 1.2), layout="constrained")
        axes = figure.add_subplot()
        for row, result in enumerate(outcome.results):
            _stack(axes, row, result)
        axes.axvline(promised, color="#555", linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(f"promised: {promised:g}", (promised, -0.62), xytext=(4, 0), textcoords="offset points", va="center", color="#333")
        axes.set_yticks(range(len(outcome.results)), [result.phase.title for result in outcome.results])
        axes.set_ylim(len(outcome.results) - 0.5, -0.85)
        axes.set_xlabel("MB/s delivered by partition 0, 1 and 2 (left to right)")
        axes.tick_params(axis="y", length=0)
        return _svg(figure)


def _stack(axes: Axes, row: int, result: PhaseResult) -> None:
    left = 0.0
    for partition, rate in sorted(result.by_partition.items()):
        width = rate / 1e6
        axes.barh(row, width, left=left, height=0.62, color=PARTITION_COLOURS[partition], edgecolor="white")
        axes.text(left + width / 2, row, f"{width:.1f}", ha="center", va="center", color="white", fontweight="bold")
        left += width
    axes.text(left, row, f"  {left:.1f}", va="center", fontweight="bold")


def _moving_means(outcome: Outcome, series: Sequence[ByteSeries]) -> tuple[list[float], list[float]]:
    """Means of the last 12 seconds in MB/s, twice a second, over the whole run; times in seconds since its start."""
    start, end = _span(outcome)
    count = int((end - start - SAWTOOTH_SECONDS) * 2)
    times = [SAWTOOTH_SECONDS + step / 2 for step in range(max(1, count))]
    rates = [sum(one.mean(start + time - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS) for one in series) / 1e6 for time in times]
    return times, rates


def _span(outcome: Outcome) -> tuple[float, float]:
    return outcome.results[0].begin_seconds, outcome.results[-1].end_seconds


def _frame(axes: Axes, outcome: Outcome, *, label: str, top: float) -> None:
    start, end = _span(outcome)
    axes.set_xlim(0, end - start)
    axes.set_ylim(0, top)
    axes.set_ylabel(label)
    axes.grid(axis="y", color="#ddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for begin, finish, regime in _regimes(outcome):
        axes.axvspan(begin - start, finish - start, color=_REGIME_COLOURS[regime], linewidth=0, zorder=0)


def _regimes(outcome: Outcome) -> list[tuple[float, float, Regime]]:
    begins = [result.begin_seconds for result in outcome.results]
    ends = [*begins[1:], outcome.results[-1].end_seconds]
    return [(begin, end, result.phase.regime) for begin, end, result in zip(begins, ends, outcome.results, strict=True)]


def _phase_names(axes: Axes, outcome: Outcome) -> None:
    """The regime once over its stretch, and a bracket over every measured window with its steady mean."""
    start, _ = _span(outcome)
    top = axes.get_ylim()[1]
    stretches: dict[Regime, list[float]] = {}
    for begin, finish, regime in _regimes(outcome):
        stretches.setdefault(regime, []).extend((begin - start, finish - start))
    for regime, edges in stretches.items():
        axes.text((min(edges) + max(edges)) / 2, top * 0.985, regime.value, ha="center", va="top", fontweight="bold")
    for result in outcome.results:
        begin, finish = result.measured_from_seconds - start, result.end_seconds - start
        axes.plot((begin, finish), (top * 0.04,) * 2, color="#222", linewidth=3, solid_capstyle="butt")
        axes.text((begin + finish) / 2, top * 0.065, f"{result.total / 1e6:.1f}", ha="center", va="bottom", fontweight="bold")


def _marks(axes: Axes, outcome: Outcome, *, named: bool) -> None:
    start, _ = _span(outcome)
    top = axes.get_ylim()[1]
    for mark in _shown(outcome.marks):
        kill = mark.kind is MarkKind.KILL
        colour = _KILL_COLOUR if kill else _QUOTA_COLOUR
        at = mark.at_seconds - start
        axes.axvline(at, color=colour, linewidth=1.4, linestyle="-" if kill else (0, (1, 1.5)))
        if named:
            axes.text(at + 1, top * (0.91 if kill else 0.845), _short(mark), color=colour, ha="left", va="top", fontsize=9)


def _shown(marks: Sequence[Mark]) -> list[Mark]:
    return [mark for mark in marks if mark.kind in (MarkKind.KILL, MarkKind.QUOTA)]


def _short(mark: Mark) -> str:
    return "broker 3 killed" if mark.kind is MarkKind.KILL else mark.text.removeprefix("ZooKeeper: ")


def _leaders(axes: Axes, outcome: Outcome, partition: int) -> None:
    """Who led the partition, written over each phase."""
    start, _ = _span(outcome)
    top = axes.get_ylim()[1]
    for result in outcome.results:
        middle = (result.measured_from_seconds + result.end_seconds) / 2 - start
        text = f"{result.by_partition[partition] / 1e6:.1f} on broker {result.leaders[partition]}"
        axes.text(middle, top * 0.97, text, ha="center", va="top", fontsize=9, color="#333")


def _svg(figure: Figure) -> str:
    """The figure as an `<svg>` element that can stand inside HTML: no XML prologue, no fixed size, no date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    element = text.getvalue()
    start = element.index("<svg")
    end = element.index(">", start)
    return re.sub(r' (width|height)="[^"]*pt"', "", element[start:end]) + element[end:]


_NO_METADATA: Mapping[str, str | None] = {"Date": None, "Creator": None, "Type": None, "Format": None}
