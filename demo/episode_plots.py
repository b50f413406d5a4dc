"""The plots of experiments 2 and 3: what each tier got, its quota, and its pauses."""

from collections.abc import Callable, Iterator, Sequence

from demo.episode import Playing
from demo.script import BUSINESSES, CONTRACT, LEVELS, LIMIT, WANTED
from demo.strip import LEFT, RIGHT, Strip, megabytes, time_axis
from lab.episodes import NIC_MEAN_SECONDS
from lab.rates import SAWTOOTH_SECONDS, ByteSeries
from tidegate.report import svg

_NAME_HEIGHT = 13
_QUOTA_TICKS = (1, 2, 5, 10, 20, 60)


def episode_plot(episode: Playing, key: str, title: str, description: str) -> svg.Plot:
    """What each tier got, and its quota; names stand at the lines, and above them what to see."""
    since = _seconds_since_the_limit(episode)
    across = _episode_scale(episode)
    rates = Strip(across, svg.Scale(0, megabytes(WANTED) * 1.25, 272, 52))
    quotas = Strip(across, svg.Scale(0.8, 90, 430, 320, is_logarithmic=True))
    parts = [
        svg.text(_what_to_see(episode), 0, 16, class_="strong"),
        *_rates(episode, rates, since),
        quotas.axis("quota, MB/s", _QUOTA_TICKS),
        *_quotas(episode, quotas, since),
        *_limit_edges(episode, across, rates.top, quotas.bottom),
        time_axis(across, quotas.bottom, quotas.bottom + 4, "seconds since the limit was lowered"),
    ]
    return svg.plot(key, title, description, parts, height=quotas.bottom + 42)


def pauses_plot(episode: Playing, key: str, title: str, description: str) -> svg.Plot:
    """When clients received nothing; tier states too, if the policy's status was watched."""
    since, across = _seconds_since_the_limit(episode), _episode_scale(episode)
    silent, states = svg.Rows(17, top=24, left=LEFT), svg.Rows(17, top=130, left=LEFT)
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
        time_axis(across, bottom, bottom + 4, "seconds since the limit was lowered"),
    ]
    legend = [(state.lower(), state) for state in _STATES] if episode.tiers else []
    return svg.plot(key, title, description, parts, height=bottom + 42, legend=legend)


def _seconds_since_the_limit(episode: Playing) -> Callable[[float], float]:
    return lambda at_seconds: at_seconds - episode.limited_at_seconds


def _episode_scale(episode: Playing) -> svg.Scale:
    since = _seconds_since_the_limit(episode)
    return svg.Scale(since(episode.began_seconds), since(episode.ended_seconds), LEFT, RIGHT)


def _limit_edges(
    episode: Playing, across: svg.Scale, top: float, bottom: float
) -> Iterator[svg.Markup]:
    """When the limit was lowered, and when it was raised."""
    since = _seconds_since_the_limit(episode)
    for at in (0.0, since(episode.raised_at_seconds)):
        yield svg.vertical_line(across.at(at), top, bottom, class_="line promise dashed")


def _what_to_see(episode: Playing) -> str:
    """What L0 got while the limit was low, who was throttled, and the longest pause of anyone."""
    seconds = round(episode.raised_at_seconds - episode.limited_at_seconds)
    wanted = megabytes(episode.business_of("L0").demand)
    got = megabytes(episode.moved_by("L0").mean(episode.limited_at_seconds, seconds))
    *lower, last = [level for level in reversed(LEVELS) if episode.written(level)] or ["no tier"]
    throttled = f"{', '.join(lower)} and {last} are" if lower else f"{last} is"
    pause = max(episode.longest_silence(level) for level in LEVELS)
    return (
        f"L0 gets {got:.1f} of {wanted:g} MB/s while {throttled} throttled; no client pauses for "
        f"more than {pause} s"
    )


_Since = Callable[[float], float]
_STATES = ("Contract", "Stepping", "Throttled", "Relaxing")


def _rates(episode: Playing, strip: Strip, since: _Since) -> Iterator[svg.Markup]:
    """Tiers stacked as 12-second means, the NIC over them, and the limit while it is low.

    The NIC is drawn in single seconds and as 24-second means.
    """
    times = range(int(episode.began_seconds) + 1, int(episode.ended_seconds) + 1)
    shown = [since(time) for time in times]

    def means(series: ByteSeries, seconds: int) -> list[float]:
        """Of the last seconds before each time, in MB/s."""
        return [megabytes(series.mean(time - seconds, seconds)) for time in times]

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
        yield svg.area(strip.points(shown, top), strip.points(shown, base), class_=level.lower())
        base = top
        middles.append((base[-1] + lower) / 2)
    nic = means(episode.nic, NIC_MEAN_SECONDS)
    yield svg.line(strip.points(shown, means(episode.nic, 1)), class_="nic thin")
    yield svg.line(strip.points(shown, nic), class_="nic")
    names = [f"{business.level} {business.user}" for business in BUSINESSES]
    yield from _names_at_the_end(
        strip, [*zip([*middles, nic[-1]], [*names, "NIC"], [*LEVELS, "nic"], strict=True)]
    )
    limit = megabytes(LIMIT)
    y, left, right = (
        strip.upward.at(limit),
        *(strip.across.at(at) for at in (0.0, since(episode.raised_at_seconds))),
    )
    yield svg.horizontal_line(y, left, right, class_="line over dashed")
    yield svg.text(f"limit {limit:g} MB/s", left + 6, y - 5, class_="over small halo")


def _names_at_the_end(
    strip: Strip, names: Sequence[tuple[float, str, str]]
) -> Iterator[svg.Markup]:
    """The name of each value at the right, from the lowest up, none over another."""
    above = strip.bottom
    for value, name, class_ in names:
        above = min(strip.upward.at(value) + 4, above - _NAME_HEIGHT)
        yield svg.text(name, RIGHT + 6, above, class_=f"{class_.lower()} named small")


def _quotas(episode: Playing, strip: Strip, since: _Since) -> Iterator[svg.Markup]:
    """Each tier's quota on a logarithmic scale, which shows halvings as equal steps."""
    for level in LEVELS:
        steps = episode.writes_of(level)
        times = [since(step.at_seconds) for step in steps] + [since(episode.ended_seconds)]
        points: list[svg.Point] = []
        for step, begin, end in zip(steps, times, times[1:], strict=False):
            quota = megabytes(step.after or CONTRACT)
            points += strip.points((max(begin, strip.across.low), end), (quota, quota))
        if points:
            yield svg.line(points, class_=level.lower())
        if episode.written(level):
            lowest = min(episode.written(level), key=lambda step: step.after or CONTRACT)
            quota = megabytes(lowest.after or CONTRACT)
            ((x, y),) = strip.points((since(lowest.at_seconds),), (quota,))
            yield svg.text(
                f"{level} {quota:.3g}", x + 6, y - 5, class_=f"{level.lower()} named small halo"
            )


def _silences(
    episode: Playing, rows: svg.Rows, across: svg.Scale, since: _Since
) -> Iterator[svg.Markup]:
    """A bar for every second in which a tier's client received nothing."""
    for row, level in enumerate(LEVELS):
        for begin, seconds in episode.silences(level):
            yield _time_bar(
                across, since(begin), since(begin) + seconds, rows.at(row), level.lower()
            )


def _states(
    episode: Playing, rows: svg.Rows, across: svg.Scale, since: _Since
) -> Iterator[svg.Markup]:
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


def _time_bar(across: svg.Scale, begin: float, end: float, top: float, class_: str) -> svg.Markup:
    return svg.bar(across.at(begin), top + 3, across.at(end) - across.at(begin), 11, class_=class_)


def _level_names(rows: svg.Rows, title: str) -> Iterator[svg.Markup]:
    yield svg.text(title, 0, rows.top - 9, class_="axis-title")
    for row, level in enumerate(LEVELS):
        yield rows.name(level, row)
