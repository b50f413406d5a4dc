"""Brokers on the page Now: tiles or a heat grid, always in the order of their ids, and a chart.

Pure. Up to seven brokers are tiles with their numbers; from eight on each is a square, coloured by
its fullest NIC. What is unknown is hatched, and can be picked out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from tidegate.console.charts import SHARE, Chart, Line, figure_of
from tidegate.console.choices import RANGES, Choices
from tidegate.console.history import History, Span
from tidegate.console.markup import address_of, asks, broker_link, joined, rate, section
from tidegate.console.parts import ROWS, Kept, Part
from tidegate.view.load import NicNow
from tidegate.view.policy import PolicyNow
from tidegate_logic.model import Level
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.words import UNKNOWN, age_words, clock_words

SQUARES_FROM: Final = 8
_FULL: Final = 1.25  # share of the limit at the end of a bar
_NEAR: Final = 0.9
_TITLE: Final = "Brokers against their limits"
_KEY: Final = Markup(
    '<p class="legend">The number is the broker, the colour its fullest NIC: pale up to 70 % of '
    "the limit, green up to 90 %, amber above, red over the limit; hatched is unknown.</p>"
)
_DIRECT: Final = Markup(' <small title="read from its exporter">direct</small>')
_WORDS: Final = {"over": "over the limit", "near": "above 90 %", "unknown": "unknown"}


def brokers_of(now: PolicyNow, history: History, kept: Kept, choices: Choices) -> Iterator[Part]:
    """The brokers as they are, and their lines over the chosen time."""
    by_broker = nics_by_broker(now)
    if not by_broker:
        inside = Markup('<p class="unknown">No live broker is known.</p>')
        yield Part("heat", section("heat", _TITLE, inside))
        return
    yield heat(now, kept, choices)
    nics = [nic for nics in by_broker.values() for nic in nics]
    if nics:
        yield shares_chart(now, nics, history, kept, choices, "brokers")


def nics_by_broker(now: PolicyNow) -> Mapping[int, Sequence[NicNow]]:
    found: dict[int, list[NicNow]] = {broker: [] for broker in now.brokers}
    for nic in now.nics:
        found.setdefault(nic.broker, []).append(nic)
    return dict(sorted(found.items()))


def heat(now: PolicyNow, kept: Kept, choices: Choices) -> Part:
    """A tile or a square for each broker."""
    by_broker = nics_by_broker(now)
    tones = {broker: _tone(nics) for broker, nics in by_broker.items()}
    worst = max(now.nics, key=lambda nic: nic.share or 0.0, default=None)
    ringed = None if worst is None or worst.share is None else worst.broker
    if len(by_broker) < SQUARES_FROM:
        html = Markup('<ul class="heat" aria-label="Brokers" data-rows>{}</ul>').format(ROWS)
        tiles = (
            _tile(now, broker, nics, kept, is_worst=broker == ringed)
            for broker, nics in by_broker.items()
        )
        return Part("heat", section("heat", _TITLE, html), tuple(tiles))
    shown = [one for one, tone in tones.items() if choices.brokers in ("all", tone)]
    inside = Markup(
        '<p class="asks" role="group" aria-label="Which brokers">{}</p>'
        '<ul class="heat squares" aria-label="Brokers" data-rows>{}</ul>{}'
    ).format(
        _filters(tones.values(), len(by_broker), choices),
        ROWS,
        _KEY if shown else Markup("<p>No broker is like that now.</p>"),
    )
    squares = (
        _square(now, broker, by_broker[broker], tones[broker], kept, is_worst=broker == ringed)
        for broker in shown
    )
    return Part("heat", section("heat", _TITLE, inside), tuple(squares))


def _filters(tones: Iterable[str], brokers: int, choices: Choices) -> Markup:
    counts = dict.fromkeys(_WORDS, 0)
    for tone in tones:
        if tone in counts:
            counts[tone] += 1
    every = asks(f"all {brokers}", "brokers", "all", is_chosen=choices.brokers == "all")
    others = (
        asks(f"{count} of {brokers} {_WORDS[tone]}", "brokers", tone, is_chosen=is_chosen)
        for tone, count in counts.items()
        if (is_chosen := choices.brokers == tone) or count
    )
    return joined((every, *others))


def _tone(nics: Sequence[NicNow]) -> str:
    """Of its worst NIC: what is over matters most, then what is not known."""
    if any(_nic_tone(nic) == "over" for nic in nics):
        return "over"
    if any(not nic.is_known for nic in nics):
        return "unknown"
    if any(_nic_tone(nic) == "near" for nic in nics):
        return "near"
    share = max((nic.share or 0.0 for nic in nics), default=0.0)
    return "within" if share > 0.7 else "calm"


def _nic_tone(nic: NicNow) -> str:
    """The operator's verdict is of a while; a reading that says otherwise makes it amber."""
    share, is_over = nic.share or 0.0, nic.pressure is Pressure.OVER
    if is_over and share > 1:
        return "over"
    return "near" if is_over or share > _NEAR else "within"


def _square(
    now: PolicyNow, broker: int, nics: Sequence[NicNow], tone: str, kept: Kept, *, is_worst: bool
) -> Part:
    def made() -> Part:
        words = "; ".join(_words(nic) for nic in nics) or "no limit"
        words += "; read directly" if any(nic.is_direct for nic in nics) else ""
        return Part(
            str(broker),
            Markup(
                '<li class="tile tone-{}{}"><a href="{}" title="{}" aria-label="{}">{}</a></li>'
            ).format(
                tone,
                " worst" if is_worst else "",
                address_of("/broker", now.key, broker=str(broker)),
                words,
                f"broker {broker}: {words}",
                broker,
            ),
        )

    return kept.piece(f"heat {broker}", (tuple(nics), tone, is_worst), made)


def _words(nic: NicNow) -> str:
    if nic.share is None:
        return f"{nic.direction.value} {UNKNOWN}{f' ({nic.why})' if nic.why else ''}"
    return f"{nic.direction.value} {100 * nic.share:.0f} %"


def _tile(
    now: PolicyNow, broker: int, nics: Sequence[NicNow], kept: Kept, *, is_worst: bool
) -> Part:
    def made() -> Part:
        rows = joined(_nic(now, nic) for nic in nics) or Markup('<div class="nic">no limit</div>')
        return Part(
            str(broker),
            Markup('<li class="tile{}"><span class="broker">{}</span>{}{}</li>').format(
                " worst" if is_worst else "",
                broker_link(now.key, broker, "broker {}"),
                read_directly(nics),
                rows,
            ),
        )

    # only the age of what is unknown goes on by itself
    at = None if all(nic.is_known for nic in nics) else now.now_seconds
    return kept.piece(f"heat {broker}", (tuple(nics), is_worst, at), made)


def read_directly(nics: Sequence[NicNow]) -> Markup:
    """A small word beside a broker that the operator reads from its exporter now."""
    return _DIRECT if any(nic.is_direct for nic in nics) else Markup("")


def _nic(now: PolicyNow, nic: NicNow) -> Markup:
    if not nic.is_known or nic.share is None:
        age = (
            "never read"
            if nic.at_seconds is None
            else f"last {age_words(now.now_seconds - nic.at_seconds)} ago"
        )
        return Markup(
            '<div class="nic hatched" data-state="Unknown" title="{}">'
            '<span class="way">{}</span><span class="share">{}</span>'
            '<span class="word"></span><span class="detail">{}</span></div>'
        ).format(nic.why, nic.direction.value, UNKNOWN, age)
    state = nic.pressure.value
    tone = word = _nic_tone(nic)
    if tone == "near" and nic.pressure is Pressure.OVER:
        word = "was over"
    elif tone == "near" and nic.share > 1:
        word = "above, for now"
    return Markup(
        '<div class="nic {}" data-state="{}"><span class="way">{}</span>'
        '<span class="share">{} %</span><span class="word">{}</span>'
        '<span class="detail">{} of {}</span>'
        '<span class="bar" aria-hidden="true"><i style="width:{}%"></i></span></div>'
    ).format(
        tone,
        state,
        nic.direction.value,
        f"{100 * nic.share:.0f}",
        word,
        rate(nic.bytes_per_second),
        rate(nic.limit),
        f"{min(100.0, 100 * nic.share / _FULL):.0f}",
    )


def shares_chart(
    now: PolicyNow,
    nics: Sequence[NicNow],
    history: History,
    kept: Kept,
    choices: Choices,
    key: str,
) -> Part:
    """These NICs against their limits. Drawn again when a reading makes a difference."""
    end = history.newest_seconds(now.key) or now.now_seconds
    step = max(1.0, choices.seconds / 360)
    spans = tuple(throttled_spans(history, now.key))
    marks = tuple(
        (one.at_seconds, one.type, f"{clock_words(one.at_seconds)} {one.reason}: {one.note}"[:160])
        for one in now.events
        if end - choices.seconds <= one.at_seconds <= end
    )
    is_many = len(nics) >= SQUARES_FROM
    over = frozenset((nic.broker, nic.direction) for nic in now.over) if is_many else frozenset()
    groups = {broker: n for n, broker in enumerate(dict.fromkeys(nic.broker for nic in nics))}

    def made() -> Part:
        lines = [
            Line(
                f"broker {nic.broker} {nic.direction.value}",
                history.nic(now.key, (nic.broker, nic.direction), choices.seconds),
                ("over" if (nic.broker, nic.direction) in over else "quiet") if is_many else "",
                groups[nic.broker] if len(groups) > 1 else n,
                nic.limit,
            )
            for n, nic in enumerate(nics)
        ]
        chart = Chart(
            key,
            f"{_TITLE}, last {RANGES[choices.seconds]}; the left and right arrows go through it",
            SHARE,
            end - choices.seconds,
            end,
            lines,
            limit=1.0,
            floor=1.25,
            shaded=[(name, one) for name, one in spans if one.end >= end - choices.seconds],
            marks=marks,
        )
        caption = Markup(
            "Share of the limit{}. Shaded: a level is throttled. Dotted: an Event."
        ).format(_how_thin(choices.seconds))
        return Part(
            f"chart {key}",
            Markup(
                '<section aria-label="Brokers over time"><div class="asks">{}</div>{}</section>'
            ).format(ranges(choices), figure_of(chart, caption)),
        )

    of = (choices.seconds, int(end / step), len(spans), marks, over, len(nics))
    return kept.piece(f"chart {key}", of, made)


def _how_thin(seconds: int) -> str:
    return "" if seconds <= 3600 else f", the highest of each {age_words(seconds / 360)}"


def ranges(choices: Choices) -> Markup:
    """Buttons for how long charts reach back."""
    return Markup('<span role="group" aria-label="Time shown">{}</span>').format(
        joined(
            asks(words, "seconds", str(seconds), is_chosen=choices.seconds == seconds)
            for seconds, words in RANGES.items()
        )
    )


def throttled_spans(history: History, policy_key: str) -> Iterator[tuple[str, Span]]:
    """When any level was throttled, named by the most important one of each span."""
    spans = sorted(
        (one.begin, one.end, level.value)
        for level, found in history.levels(policy_key).items()
        for one in found
        if one.state == "Throttled" and level is not Level.L0
    )
    joint: list[tuple[float, float, str]] = []
    for begin, end, level in spans:
        if joint and begin <= joint[-1][1]:
            last = joint[-1]
            joint[-1] = last[0], max(last[1], end), min(last[2], level)
        else:
            joint.append((begin, end, level))
    for begin, end, level in joint:
        yield (
            f"{level} throttled" if level == "L3" else f"{level}-L3 throttled",
            Span("Throttled", begin, end),
        )
