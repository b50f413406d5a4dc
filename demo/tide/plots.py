"""The pictures of one episode over time: what each tier gets and the card against the limit, the quotas, silences and tier states.

They compute nothing but moving means; 0 on the time axis is when the limit was lowered.
"""

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from demo.palette import LEVELS as LEVEL_COLOURS
from demo.palette import TIER_STATES, Role
from demo.rates import SAWTOOTH_SECONDS, ByteSeries
from demo.svg import picture
from demo.tide.episode import Episode
from demo.tide.figures import CARD_MEAN_SECONDS, silences
from demo.tide.script import BUSINESSES, CONTRACT, LEVELS, LIMIT, WANTED

_DASHES = (0, (4, 3))
_QUOTA_TICKS = (1, 2, 5, 10, 20, 60)
_TOP = WANTED / 1e6 * 1.25
_BAR_HEIGHT = 0.62


def episode_plot(episode: Episode) -> str:
    """All strips of one episode; tier states only where somebody told them."""
    heights = [3.4, 1.9, 1.0] + ([1.0] if episode.tiers else [])
    with picture(height_inches=1.15 * sum(heights) + 1.1) as (figure, svg):
        strips = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
        _rates(strips[0], episode)
        _quotas(strips[1], episode)
        _silences(strips[2], episode)
        if episode.tiers:
            _states(strips[3], episode)
        for axes in strips:
            _limit_edges(axes, episode)
        strips[0].set_xlim(episode.began_seconds - episode.limited_at_seconds, _since(episode, episode.ended_seconds))
        strips[-1].set_xlabel("seconds since the limit was lowered")
        _legend(figure, episode)
    return svg.text


def _rates(axes: Axes, episode: Episode) -> None:
    """Tiers stacked as 12-second means, the card's single seconds and 24-second means over them, and the limit while it is low."""
    times = _whole_seconds(episode)
    shown = [_since(episode, time) for time in times]
    tiers = [_means(episode.arrived[level], times, seconds=SAWTOOTH_SECONDS) for level in LEVELS]
    axes.stackplot(shown, tiers, colors=[LEVEL_COLOURS[level] for level in LEVELS], alpha=0.75, linewidth=0)
    axes.plot(shown, _means(episode.card, times, seconds=1), color=Role.CARD, linewidth=0.6, alpha=0.55)
    axes.plot(shown, _means(episode.card, times, seconds=CARD_MEAN_SECONDS), color=Role.CARD, linewidth=2)
    low = (0.0, _since(episode, episode.raised_at_seconds))
    axes.plot(low, (LIMIT / 1e6,) * 2, color=Role.LIMIT, linewidth=1.8, linestyle=_DASHES)
    right = {"xycoords": ("axes fraction", "data"), "xytext": (5, 0), "textcoords": "offset points"}
    axes.annotate(f"limit\n{LIMIT / 1e6:g} MB/s", (1, LIMIT / 1e6), color=Role.LIMIT, va="center", fontsize=9, **right)  # type: ignore[arg-type]
    axes.set_ylim(0, _TOP)
    axes.set_ylabel("MB/s")
    axes.grid(axis="y", color=Role.RULE, linewidth=0.6)
    axes.set_axisbelow(True)


def _quotas(axes: Axes, episode: Episode) -> None:
    """Each tier's quota on a logarithmic scale, which shows halvings as equal steps."""
    for level in LEVELS:
        steps = [step for step in episode.quotas if step.level == level]
        times = [_since(episode, step.at_seconds) for step in steps] + [_since(episode, episode.ended_seconds)]
        values = [(step.after or CONTRACT) / 1e6 for step in steps]
        if values:
            axes.step(times, [*values, values[-1]], where="post", color=LEVEL_COLOURS[level], linewidth=2)
    axes.set_yscale("log")
    axes.set_ylim(0.8, 90)
    axes.yaxis.set_major_locator(FixedLocator(_QUOTA_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels([f"{tick:g}" for tick in _QUOTA_TICKS])
    axes.set_ylabel("quota\nMB/s")
    axes.grid(axis="y", color=Role.RULE, linewidth=0.6)


def _silences(axes: Axes, episode: Episode) -> None:
    """A bar for every second in which a tier's client got nothing."""
    for row, level in enumerate(LEVELS):
        bars = [(_since(episode, begin), float(seconds)) for begin, seconds in silences(episode, level)]
        axes.broken_barh(bars, (row - _BAR_HEIGHT / 2, _BAR_HEIGHT), color=LEVEL_COLOURS[level], linewidth=0)
    _rows(axes, "silent")


def _states(axes: Axes, episode: Episode) -> None:
    """What the policy's status said of each tier."""
    for row, level in enumerate(LEVELS):
        for begin, end, state in _stretches(episode, level):
            colour = TIER_STATES.get(state, Role.FAINT)
            axes.broken_barh([(begin, end - begin)], (row - _BAR_HEIGHT / 2, _BAR_HEIGHT), color=colour, linewidth=0)
    _rows(axes, "state")


def _stretches(episode: Episode, level: str) -> Iterator[tuple[float, float, str]]:
    steps = [step for step in episode.tiers if step.level == level]
    ends = [step.at_seconds for step in steps[1:]] + [episode.ended_seconds]
    for step, end in zip(steps, ends, strict=True):
        yield _since(episode, step.at_seconds), _since(episode, end), step.state


def _rows(axes: Axes, label: str) -> None:
    axes.set_yticks(range(len(LEVELS)), LEVELS)
    axes.set_ylim(len(LEVELS) - 0.5, -0.5)
    axes.set_ylabel(label)
    axes.tick_params(axis="y", length=0)


def _limit_edges(axes: Axes, episode: Episode) -> None:
    for at in (0.0, _since(episode, episode.raised_at_seconds)):
        axes.axvline(at, color=Role.FAINT, linewidth=1, linestyle=_DASHES)


def _legend(figure: Figure, episode: Episode) -> None:
    handles: list[Line2D | Patch] = [
        Patch(color=LEVEL_COLOURS[business.level], label=f"{business.level} ({business.user})") for business in BUSINESSES
    ]
    handles.append(Line2D([], [], color=Role.CARD, linewidth=2, label=f"card, mean of {CARD_MEAN_SECONDS} s (thin: each second)"))
    if episode.tiers:
        handles += [Patch(color=colour, label=state) for state, colour in TIER_STATES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9, columnspacing=1.4)


def _whole_seconds(episode: Episode) -> list[int]:
    return list(range(int(episode.began_seconds) + 1, int(episode.ended_seconds) + 1))


def _means(series: ByteSeries, times: list[int], *, seconds: int) -> list[float]:
    """The means of the last seconds before each time, in MB/s."""
    return [series.mean(time - seconds, seconds) / 1e6 for time in times]


def _since(episode: Episode, at_seconds: float) -> float:
    return at_seconds - episode.limited_at_seconds
