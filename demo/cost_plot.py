"""The report's picture of what each regime gave every partition, stacked to the total, against the promise."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from demo.outcome import Outcome, PhaseResult
from demo.palette import PARTITIONS, Role
from demo.script import HEALTHY_LEADERS
from demo.svg import picture

_DASHES = (0, (4, 3))


def cost_plot(outcome: Outcome) -> str:
    """One bar a phase."""
    promised = outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS) / 1e6
    with picture(height_inches=0.62 * len(outcome.results) + 1.7) as (figure, svg):
        axes = figure.add_subplot()
        axes.axvline(promised, color=Role.FAINT, linewidth=1, linestyle=_DASHES)
        for row, result in enumerate(outcome.results):
            _stack(axes, row, result)
        axes.annotate(f"promised: {promised:g} MB/s", (promised, -0.62), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_yticks(range(len(outcome.results)), [result.phase.title for result in outcome.results])
        axes.set_ylim(len(outcome.results) - 0.5, -0.85)
        axes.set_xlabel("delivered, MB/s")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.08)
        handles = [Patch(color=colour, label=f"partition {partition}") for partition, colour in PARTITIONS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return svg.text


def _stack(axes: Axes, row: int, result: PhaseResult) -> None:
    left = 0.0
    for partition, rate in sorted(result.by_partition.items()):
        width = rate / 1e6
        axes.barh(row, width, left=left, height=0.62, color=PARTITIONS[partition], edgecolor=Role.PAGE)
        axes.text(left + width / 2, row, f"{width:.1f}", ha="center", va="center", color=Role.ON_BAR, fontweight="bold")
        left += width
    beside = {"boxstyle": "square,pad=0.15", "facecolor": Role.PAGE, "edgecolor": "none"}
    axes.annotate(f"{left:.1f}", (left, row), xytext=(6, 0), textcoords="offset points", va="center", fontweight="bold", bbox=beside)
