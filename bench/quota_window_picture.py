"""The picture of docs/quota-window.md: for each window a 5 MB/s consumer that is cut to a fifth, and the broker's NIC at rest."""

from collections.abc import Mapping, Sequence
from statistics import mean

from matplotlib.axes import Axes

from bench.pictures import Colour, picture
from bench.quota_window_clients import Client, Kind
from bench.quota_window_rows import QUOTA_SHARE, Phase, Second, of_phase

SHOWN = Client(Kind.CONSUMER, 5_000_000)
_BEFORE_SECONDS, _AFTER_SECONDS = 12, 60


def window_picture(runs: Mapping[int, Sequence[Second]]) -> str:
    """A whole SVG file with a column for each window, the smallest first."""
    with picture(height_inches=4.6) as (figure, svg):
        axes = figure.subplots(2, len(runs), sharey="row", squeeze=False)
        for column, (samples, rows) in enumerate(sorted(runs.items())):
            _cut(axes[0][column], rows)
            _card(axes[1][column], rows)
            axes[0][column].set_title(f"{samples} x 1 s", fontsize=10)
        axes[0][0].set_ylabel("5 MB/s consumer,\ncut to 1 MB/s at 0\nMB/s")
        axes[1][0].set_ylabel("NIC egress,\nnothing changed\nMB/s")
    return svg.text


def _cut(axes: Axes, rows: Sequence[Second]) -> None:
    cut = of_phase(rows, Phase.FIFTH)[0].second
    shown = [row for row in rows if -_BEFORE_SECONDS <= row.second - cut < _AFTER_SECONDS]
    times = [row.second - cut for row in shown]
    axes.stairs([row.of(SHOWN) / 1e6 for row in shown], [*times, times[-1] + 1], fill=True, color=Colour.LEVEL_1)
    quotas = [SHOWN.quota * QUOTA_SHARE[row.phase] / 1e6 for row in shown]
    axes.step(times, quotas, where="post", color=Colour.LIMIT, linewidth=1.4)
    axes.set_xlim(-_BEFORE_SECONDS, _AFTER_SECONDS)
    axes.set_xlabel("seconds", fontsize=8)


def _card(axes: Axes, rows: Sequence[Second]) -> None:
    steady = of_phase(rows, Phase.STEADY)
    sent = [row.egress / 1e6 for row in steady]
    axes.stairs(sent, fill=True, color=Colour.NIC)
    axes.axhline(mean(sent), color=Colour.LIMIT, linewidth=1.4)
    axes.set_xlim(0, len(sent))
    axes.set_xlabel("seconds", fontsize=8)
