"""Throttle episodes as time lines: all of them in the period, and each one close up, a row a client, fuller for a lower quota."""

from collections.abc import Sequence

from tidegate.rollup.report.axes import Scale, horizontal_axis, seconds_of, time_ticks
from tidegate.rollup.report.drawing import NAMES_WIDTH, WIDTH, Words, bar, drawing, figure, legend, short
from tidegate.rollup.report.episode_figures import Episode, EpisodeSpan
from tidegate.rollup.report.figures import Period
from tidegate.rollup.report.markup import Markup, element
from tidegate.rollup.report.units import Kind, clock, duration, with_unit

_LEFT, _RIGHT, _ROW, _TOP = NAMES_WIDTH, WIDTH - 30, 24, 6
_SEEN = 3.0  # an episode of a minute in a month is still drawn this wide
_LEVELS = ("L0", "L1", "L2", "L3")


def overview_plot(period: Period, episodes: Sequence[Episode]) -> Markup:
    """A row a level and direction, with what was throttled in it. There must be an episode."""
    rows = sorted({(episode.direction, span.level) for episode in episodes for span in episode.spans})
    across = Scale(seconds_of(period.start), seconds_of(period.end), _LEFT, _RIGHT)
    bottom = _TOP + _ROW * len(rows)
    words = Words(
        "episodes", "Throttle episodes of the period.", "When quotas of a level stood below their contracts, from the audit trail, UTC."
    )
    drawn = [
        _overview(episode, level, across, top=_TOP + _ROW * row)
        for row, (direction, level) in enumerate(rows)
        for episode in episodes
        if episode.direction == direction and any(span.level == level for span in episode.spans)
    ]
    picture = drawing(
        words,
        horizontal_axis(across, list(time_ticks(across.low, across.high)), top=_TOP, bottom=bottom),
        *(_name(f"{level or 'no level'}, {direction}", row) for row, (direction, level) in enumerate(rows)),
        *drawn,
        height=bottom + 24,
    )
    return figure(words, picture)


def _overview(episode: Episode, level: str, across: Scale, *, top: float) -> Markup:
    spans = [span for span in episode.spans if span.level == level]
    begin, end = min((span.begin for span in spans), key=seconds_of), max((span.end for span in spans), key=seconds_of)
    left, right = across.at(seconds_of(begin)), across.at(seconds_of(end))
    tip = f"episode {episode.number}, {level} {episode.direction}\n{clock(begin)} to {clock(end)} UTC\n{_whom(spans)}"
    return bar(left, top + 4, max(right - left, _SEEN), _ROW - 8, class_=_colour(level), data_tip=tip)


def _whom(spans: Sequence[EpisodeSpan]) -> str:
    names = list(dict.fromkeys(span.member for span in spans))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def episode_plot(episode: Episode) -> Markup:
    """One episode from its beginning to its end. A bar's height is how much of the contract was taken away."""
    entities = list(dict.fromkeys((span.level, span.member, span.entity) for span in episode.spans))
    begin, end = seconds_of(episode.begin), seconds_of(episode.end)
    across = Scale(begin, max(end, begin + 1.0), _LEFT, _RIGHT)
    bottom = _TOP + _ROW * len(entities)
    words = Words(
        f"episode-{episode.number}",
        f"Episode {episode.number}: {episode.direction}, {duration(episode.seconds)}.",
        f"From {clock(episode.begin)} UTC. The fuller a row, the more of the contract was taken away.",
    )
    picture = drawing(
        words,
        horizontal_axis(across, list(time_ticks(across.low, across.high)), top=_TOP, bottom=bottom),
        *(_name(short(f"{member} ({level})"), row) for row, (level, member, _) in enumerate(entities)),
        *(_span(span, across, top=_TOP + _ROW * entities.index((span.level, span.member, span.entity))) for span in episode.spans),
        height=bottom + 24,
    )
    present = [level for level in _LEVELS if any(span.level == level for span in episode.spans)]
    return figure(words, picture, legend([(_colour(level), level) for level in present]))


def _span(span: EpisodeSpan, across: Scale, *, top: float) -> Markup:
    left, right = across.at(seconds_of(span.begin)), across.at(seconds_of(span.end))
    full = _ROW - 4
    taken = full * (1 - span.fraction)
    share, quota, contract = with_unit(Kind.SHARE, span.fraction), with_unit(Kind.RATE, span.quota), with_unit(Kind.RATE, span.contract)
    tip = f"{span.entity}, {span.level}\n{clock(span.begin)} to {clock(span.end)} UTC\n{quota} on each broker, {share} of {contract}"
    return element(
        "g",
        bar(left, top + 2, max(right - left, _SEEN), full, class_="contract"),
        bar(left, top + 2 + full - taken, max(right - left, _SEEN), taken, class_=_colour(span.level)),
        data_tip=tip,
    )


def _name(text: str, row: int) -> Markup:
    return element("text", text, x=_LEFT - 8, y=_TOP + _ROW * row + _ROW / 2 + 4, text_anchor="end")


def _colour(level: str) -> str:
    return f"l{_LEVELS.index(level)}" if level in _LEVELS else "others"
