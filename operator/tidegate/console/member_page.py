"""The page Member: one member's state, its hours, its brokers, and which of Kafka's quotas applies.

Pure: from what is known of one policy to the parts of a page.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tidegate.console.charts import RATE, Chart, Line, figure_of
from tidegate.console.choices import Choices
from tidegate.console.history import History
from tidegate.console.markup import (
    HEAD,
    Column,
    Columns,
    asks,
    broker_link,
    joined,
    name,
    rate,
    table,
)
from tidegate.console.members_part import member_columns, member_parts
from tidegate.console.parts import Kept, Page, Part
from tidegate.console.sentences import cause_of
from tidegate.view.policy import MemberNow, PolicyNow
from tidegate_logic.model import QuotaKey
from tidegate_logic.quota_values import quota_words
from tidegate_logic.quotas.precedence import PrecedenceLevel
from tidegate_logic.words import UNKNOWN, age_words, rate_words


def member_page(
    now: PolicyNow,
    ways: Sequence[MemberNow],
    history: History,
    levels: Markup,
    choices: Choices | None = None,
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
    level = next((known for known in now.levels if known.level is first.level), None)
    cause = cause_of(now, level) if level and any(one.is_throttled for one in ways) else ""
    why = Markup("<p>Why: {}.</p>").format(cause) if cause else Markup("")
    head = Markup("<div><h2>{} <small>{} of tier {}</small></h2><p>{}</p>{}{}{}</div>").format(
        name(first.name),
        first.level.value,
        name(first.tier_key),
        Markup('<bdi class="name">{}</bdi>').format(str(first.entity)),
        why,
        leaders,
        override,
    )
    facts = Markup("<div>{}</div>").format(table(member_columns(now), label="Members"))
    scale = (choices or Choices()).scale
    return (
        Part("head", head),
        Part("facts", facts, member_parts(now, ways, Kept())),
        *(Part(f"chart {one.way}", _member_chart(now, one, history, scale)) for one in ways),
        *(Part(f"brokers {one.way}", _by_broker(now, one)) for one in ways if one.by_broker),
        Part("levels", Markup("<div>{}</div>").format(levels)),
    )


def _counted(leaders: int) -> str:
    return "1 leader" if leaders == 1 else f"{leaders} leaders"


def _member_chart(now: PolicyNow, one: MemberNow, history: History, scale: str) -> Markup:
    """Its rate and quota; its contract where there is room for it, or on demand."""
    points = list(history.member(now.key, one.key, one.direction))
    title = one.way.capitalize()
    if len(points) < 2:
        text = "<div><h3>{}</h3><p>Its rate is drawn from the second reading on.</p></div>"
        return Markup(text).format(title)  # noqa: S704  # a literal
    # by the points and not by the clock: it changes when there is something new
    begin, end = points[0][0], points[-1][0]
    seconds = max(60.0, end - begin)
    lines = [
        Line("rate", [(at, sends) for at, sends, _ in points], "rate"),
        Line("quota", [(at, quota) for at, _, quota in points], "quota"),
    ]
    sent = max([value for _, value, _ in points if value], default=0.0)
    near = 1.25 * max(sent, *[quota or 0.0 for _, _, quota in points[-1:]], 1.0)
    highest = max([float(one.contract or 0), *[quota or 0.0 for _, _, quota in points], sent])
    is_far = highest > 2 * near  # on a scale up to the contract nobody sees the rest
    choose = Markup("")
    if is_far:
        choose = Markup('<div class="asks" role="group" aria-label="Scale">{}{}</div>').format(
            asks("Scale to the rate", "scale", "quota", is_chosen=scale == "quota"),
            asks("Scale to the contract", "scale", "contract", is_chosen=scale == "contract"),
        )
    if one.contract is not None:
        contract = float(one.contract)
        lines.append(Line("contract", [(begin, contract), (end, contract)], "contract"))
    words = f"{one.way} over the last {age_words(seconds)}, all brokers together"
    chart = Chart(
        f"member {one.way}",
        f"{words}: highest {rate_words(sent)}; the left and right arrows go through it",
        RATE,
        end - seconds,
        end,
        lines,
        ceiling=near if is_far and scale == "quota" else None,
    )
    return Markup("<div><h3>{}</h3>{}{}</div>").format(
        title, choose, figure_of(chart, Markup("{}.").format(words))
    )


def _by_broker(now: PolicyNow, one: MemberNow) -> Markup:
    """A bar for each broker, against the one on which it transfers most."""
    over = {nic.broker for nic in now.over if one.direction in nic.direction.parts}
    most = max(*one.by_broker.values(), 1.0)
    cells = joined(
        Markup(
            '<li class="{}">{} <span class="bar" aria-hidden="true"><i style="width:{}%"></i>'
            "</span> {}</li>"
        ).format(
            "over" if broker in over else "",
            broker_link(now.key, broker, "broker {}"),
            f"{100 * value / most:.0f}",
            rate(value),
        )
        for broker, value in one.by_broker.items()
    )
    return Markup(
        '<div><h3>{} on each broker</h3><ul class="bars" aria-label="{}">{}</ul></div>'
    ).format(one.way.capitalize(), f"{one.way} on each broker", cells)


def quota_levels(document: Mapping[str, Any]) -> Markup:
    """The eight quota levels of `tidegate explain` for each quota key: which one applies."""
    keys = joined(_key_levels(key, one) for key, one in (document.get("keys") or {}).items())
    warnings = joined(Markup("<li>{}</li>").format(str(w)) for w in document.get("warnings") or ())
    return Markup("<h3>Which quota applies</h3>{}{}").format(
        keys, Markup('<ul class="problems">{}</ul>').format(warnings) if warnings else Markup("")
    )


class _Set(NamedTuple):
    """A quota that someone set for one of the eight levels."""

    level: PrecedenceLevel
    state: str
    entry: Mapping[str, Any]


def _key_levels(key: str, one: Mapping[str, Any]) -> Markup:
    """The levels that have a quota, the one that applies first; the others are named below."""
    found: dict[str, _Set] = {}
    levels = {str(level.value): level for level in PrecedenceLevel}

    def note(state: str, entry: Mapping[str, Any]) -> None:
        level = str(entry.get("level"))
        if level in levels:
            found.setdefault(level, _Set(levels[level], state, entry))

    if one.get("limited"):
        note("applies", one)
        for hidden in one.get("shadows") or ():
            note("shadowed", hidden)
    columns: Columns[_Set] = (
        Column("Level", lambda row: f"{row.level.value}. {_level_words(row.level)}", HEAD),
        Column("Entity", lambda row: name(_entity(row.entry))),
        Column("Value", lambda row: quota_words(QuotaKey(key), row.entry.get("value")), "right"),
        Column("State", lambda row: row.state),
        Column(
            "Source",
            lambda row: "set by Tidegate" if row.entry.get("setByTidegate") else "set by others",
        ),
    )
    unset = [level for value, level in levels.items() if value not in found]
    folded = Markup(
        '<details data-key="{}"><summary>{} of {} levels have no quota</summary><p>{}</p></details>'
    ).format(f"unset {key}", len(unset), len(levels), "; ".join(map(_level_words, unset)) or "none")
    html = Markup('<h4>{}{}</h4><div class="levels">{}{}</div>')
    rows = table(columns, found.values(), label=key, kind_of=lambda row: row.state)
    return html.format(
        key, "" if one.get("limited") else ": unlimited", rows if found else "", folded
    )


def _level_words(level: PrecedenceLevel) -> str:
    return level.name.lower().replace("_", " ")


def _entity(entry: Mapping[str, Any]) -> str:
    entity = entry.get("entity")
    return ", ".join(f"{k}={v}" for k, v in entity.items()) if isinstance(entity, Mapping) else ""


def not_looked_at(why: str) -> Markup:
    return Markup(
        '<h3>Which quota applies</h3><p class="unknown hatched">The eight quota levels are unknown '
        "here: {}</p>"
    ).format(why)
