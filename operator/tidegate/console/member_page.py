"""The page Member: one member's state, its hours, its brokers, and which of Kafka's quotas applies.

Pure: from what is known of one policy to the parts of a page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tidegate.console.history import History
from tidegate.console.markup import joined, name, polylines, rate
from tidegate.console.now_page import members_table
from tidegate.console.parts import Kept, Page, Part
from tidegate.view.policy import MemberNow, PolicyNow
from tidegate_logic.model import QuotaKey
from tidegate_logic.quota_values import quota_words
from tidegate_logic.quotas.precedence import PrecedenceLevel
from tidegate_logic.words import UNKNOWN, age_words


def member_page(
    now: PolicyNow, ways: Sequence[MemberNow], history: History, levels: Markup
) -> Page:
    """One member: its state, hours of its rate, what it moves on each broker, its quota levels."""
    first = ways[0]
    leaders = (
        Markup(
            "<p>{}, skew {}: the contract is {} over all brokers, and quotas permit {} while "
            "it is not throttled.</p>"
        ).format(
            _counted(first.leaders),
            first.skew or UNKNOWN,
            rate(first.contract),
            rate(first.permitted),
        )
        if first.leaders is not None and first.contract is not None
        else Markup("")
    )
    override = (
        Markup("<p>Override in force: {}</p>").format(name(first.override))
        if first.override
        else Markup("")
    )
    head = Markup("<div><h2>{} <small>{} of tier {}</small></h2><p>{}</p>{}{}</div>").format(
        name(first.name),
        first.level.value,
        name(first.tier_key),
        Markup('<bdi class="name">{}</bdi>').format(str(first.entity)),
        leaders,
        override,
    )
    html, rows = members_table(now, ways, "", Kept())
    return (
        Part("head", head),
        Part("facts", Markup("<div>{}</div>").format(html), rows),
        *(Part(f"chart {one.way}", _member_chart(now, one, history)) for one in ways),
        *(Part(f"brokers {one.way}", _by_broker(now, one)) for one in ways if one.by_broker),
        Part("levels", Markup("<div>{}</div>").format(levels)),
    )


def _counted(leaders: int) -> str:
    return "1 leader" if leaders == 1 else f"{leaders} leaders"


def _member_chart(now: PolicyNow, one: MemberNow, history: History) -> Markup:
    points = list(history.member(now.key, one.key, one.direction))
    # by the points and not by the clock: it changes when there is something new
    begin, end = (points[0][0], points[-1][0]) if points else (now.now_seconds, now.now_seconds)
    seconds = max(60.0, end - begin)
    highest = max(
        [value for _, sends, quota in points for value in (sends, quota) if value is not None],
        default=1.0,
    )
    highest = max(highest, float(one.contract or 0), 1.0) * 1.1
    width, height = 720, 120

    def y(value: float | None) -> float | None:
        return None if value is None else height - height * value / highest

    def line(pick: int, kind: str) -> Markup:
        placed = ((width * (point[0] - begin) / seconds, y(point[pick])) for point in points)
        return polylines(placed, kind)

    contract = ""
    if one.contract is not None:
        contract = Markup('<line class="contract" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            width, *[f"{y(one.contract):.1f}"] * 2
        )
    return Markup(
        '<figure><svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}{}{}</svg>'
        "<figcaption>{} over the last {}, all brokers together: rate (solid), quota (dashed), "
        "contract (dotted); highest {}</figcaption></figure>"
    ).format(
        width,
        height,
        f"{one.way} over the last {age_words(seconds)}",
        line(1, "rate"),
        line(2, "quota"),
        contract,
        one.way,
        age_words(seconds),
        rate(highest / 1.1),
    )


def _by_broker(now: PolicyNow, one: MemberNow) -> Markup:
    over = {nic.broker for nic in now.over if nic.direction is one.direction}
    cells = joined(
        Markup('<li class="{}">broker {} <span>{}</span></li>').format(
            "over" if broker in over else "", broker, rate(value)
        )
        for broker, value in one.by_broker.items()
    )
    return Markup(
        '<div><h3>{} on each broker</h3><ul class="brokers" aria-label="{}">{}</ul></div>'
    ).format(one.way.capitalize(), f"{one.way} on each broker", cells)


def quota_levels(document: Mapping[str, Any]) -> Markup:
    """The eight quota levels of `tidegate explain` for each quota key: which one applies."""
    keys = joined(_key_levels(key, one) for key, one in (document.get("keys") or {}).items())
    warnings = joined(Markup("<li>{}</li>").format(str(w)) for w in document.get("warnings") or ())
    return Markup("<h3>Which quota applies</h3>{}{}").format(
        keys, Markup('<ul class="problems">{}</ul>').format(warnings) if warnings else Markup("")
    )


def _key_levels(key: str, one: Mapping[str, Any]) -> Markup:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    if one.get("limited"):
        found[str(one.get("level"))] = ("applies", one)
        for hidden in one.get("shadows") or ():
            found.setdefault(str(hidden.get("level")), ("shadowed", hidden))
    rows = joined(
        _level_row(key, level, *found.get(str(level.value), ("none", {})))
        for level in PrecedenceLevel
    )
    return Markup('<h4>{}{}</h4><ol class="levels" aria-label="{}">{}</ol>').format(
        key, "" if one.get("limited") else ": unlimited", key, rows
    )


def _level_row(key: str, level: PrecedenceLevel, state: str, entry: Mapping[str, Any]) -> Markup:
    words = level.name.lower().replace("_", " ")
    if state == "none":
        return Markup('<li class="none">{} <span class="word">no quota</span></li>').format(words)
    entity = entry.get("entity")
    named = ", ".join(f"{k}={v}" for k, v in entity.items()) if isinstance(entity, Mapping) else ""
    return Markup('<li class="{}">{} <span class="word">{}, {}</span> {}: {}</li>').format(
        state,
        words,
        state,
        "set by Tidegate" if entry.get("setByTidegate") else "set by others",
        name(named),
        quota_words(QuotaKey(key), entry.get("value")),
    )


def not_looked_at(why: str) -> Markup:
    return Markup(
        '<h3>Which quota applies</h3><p class="unknown hatched">The eight quota levels are unknown '
        "here: {}</p>"
    ).format(why)
