"""Levels on the page Now: a lane for each of the four, with its states over time, and Events.

Pure. A level's state comes from `LevelNow` alone, so that the page never shows two.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from tidegate.console.choices import RANGES, Choices
from tidegate.console.history import History, Span
from tidegate.console.markup import (
    HEAD,
    Column,
    Columns,
    joined,
    section,
    since,
    state,
    table,
    table_row,
)
from tidegate.console.parts import Part
from tidegate.console.sentences import age_of, cause_of
from tidegate.view.load import RELAXING
from tidegate.view.policy import KAFKA, KUBERNETES, EventNow, LevelNow, PolicyNow
from tidegate_logic.model import Level
from tidegate_logic.words import UNKNOWN, clock_words

_WORDS_OF_LEVEL: Final = {
    "Contract": "at the contracted rate",
    "Stepping": "stepping down to an edited contract",
    "Throttled": "throttled because a broker is over its limit",
    RELAXING: "raised step by step to its contracts",
    "Contended": "another writer keeps changing a quota",
}
_NO_TIER: Final = "no tier"
_TICKS: Final = 5


def lanes(now: PolicyNow, history: History, choices: Choices) -> Part:
    """One lane for each level: its states over the chosen time; Events as marks below them."""
    known = history.levels(now.key)
    seconds = float(choices.seconds)
    begin = now.now_seconds - seconds
    columns: Columns[LevelNow] = (
        Column("Level", lambda one: one.level.value, HEAD),
        Column("State", lambda one: state(one.state, UNKNOWN)),
        Column("Since", lambda one: since(one.since, now.now_seconds)),
        Column(
            "Below contract",
            lambda one: f"{UNKNOWN if one.below is None else one.below} of {one.members}",
        ),
        Column(
            f"Last {RANGES[choices.seconds]}",
            lambda one: _track(
                _span(span, begin, seconds)
                for span in known.get(one.level, ())
                if span.end >= begin
            ),
            "lane",
        ),
        Column(
            "Because",
            lambda one: cause_of(now, one) or _WORDS_OF_LEVEL.get(one.state, ""),
            "why",
        ),
    )
    there = {one.level: one for one in now.levels}
    if there:
        rows = [
            Part(level.value, table_row(columns, there[level]))
            if level in there
            else Part(level.value, _without_tier(level))
            for level in Level
        ]
    else:
        text = '<tr><td colspan="6" class="unknown">The state of levels is unknown.</td></tr>'
        rows = [Part("none", Markup(text))]  # noqa: S704  # a literal
    marks = [one for one in now.events if begin <= one.at_seconds <= now.now_seconds]
    if marks:
        rows.append(_event_lane(marks, begin, seconds))
    rows.append(_ticks(begin, seconds))
    inside = table(columns, labelled_by="lanes") + _LEGEND
    age = age_of(now, KUBERNETES, KAFKA)
    return Part("lanes", section("lanes", "Levels", inside, age=age), tuple(rows))


def _without_tier(level: Level) -> Markup:
    return Markup('<tr class="absent"><th scope="row">{}</th><td colspan="5">{}</td></tr>').format(
        level.value, _NO_TIER
    )


_LEGEND: Final = Markup('<p class="legend" aria-hidden="true">{}</p>').format(
    joined(
        Markup('<span><i class="state-{}"></i>{}</span>').format(one.lower(), words)
        for one, words in (
            ("Contract", "contracted rate"),
            ("Throttled", "throttled"),
            (RELAXING, "recovering"),
            ("Stepping", "stepping down"),
            ("Contended", "contended"),
            ("none", "not known"),
        )
    )
)


def _ticks(begin: float, seconds: float) -> Part:
    """Times below the lanes, so that a state has its time without a pointer."""
    marks = joined(
        Markup('<b style="left:{}%">{}</b>').format(
            f"{100 * n / (_TICKS - 1):.0f}", clock_words(begin + seconds * n / (_TICKS - 1))[:5]
        )
        for n in range(_TICKS)
    )
    return Part(
        "ticks",
        Markup(
            '<tr class="ticks" aria-hidden="true"><td colspan="4"></td>'
            '<td class="lane"><span class="axis">{}</span></td><td></td></tr>'
        ).format(marks),
    )


def _track(marks: Iterable[Markup]) -> Markup:
    return Markup('<span class="track" aria-hidden="true">{}</span>').format(joined(marks))


def _event_lane(marks: Sequence[EventNow], begin: float, seconds: float) -> Part:
    drawn = _track(
        Markup('<i class="mark mark-{}" style="left:{}%" title="{}"></i>').format(
            one.type.lower(),
            f"{100 * (one.at_seconds - begin) / seconds:.1f}",
            f"{clock_words(one.at_seconds)} {one.reason}: {one.note}",
        )
        for one in reversed(marks)
    )
    warnings = sum(one.type == "Warning" for one in marks)
    return Part(
        "events",
        Markup(
            '<tr><th scope="row" colspan="4">Events</th>'
            '<td class="lane">{}</td><td>{} Events, {} of them warnings</td></tr>'
        ).format(drawn, len(marks), warnings),
    )


def _span(span: Span, begin: float, seconds: float) -> Markup:
    left = 100 * max(0.0, span.begin - begin) / seconds
    width = 100 * (span.end - max(span.begin, begin)) / seconds
    return Markup('<i class="state-{}" style="left:{}%;width:{}%"></i>').format(
        span.state.lower(), f"{left:.2f}", f"{max(width, 0.4):.2f}"
    )
