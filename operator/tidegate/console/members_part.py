"""Members on the page Now: who is not at the contracted rate, by tier and one by one.

Pure. Ten rows at first; a filter finds any other, and heads sort.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from markupsafe import Markup

from tidegate.console.choices import Choices
from tidegate.console.markup import (
    MOST_ROWS,
    Column,
    Columns,
    asks,
    member_link,
    name,
    rate,
    section,
    state,
    table,
    table_row,
    unknown,
)
from tidegate.console.parts import Kept, Part
from tidegate.console.sentences import age_of, began, nobody_elsewhere
from tidegate.view.load import state_words
from tidegate.view.policy import KUBERNETES, MemberNow, PolicyNow
from tidegate_logic.model import Level, Mode
from tidegate_logic.words import counted, rate_of_words

_TOP: Final = 10
_FIND: Final = Markup(
    '<p class="find"><label>Filter members <input type="search" data-choice="text" '
    'autocomplete="off" placeholder="a part of a name, tier, user or state"></label></p>'
)


def below(now: PolicyNow, kept: Kept, choices: Choices) -> Iterator[Part]:
    """Who is not at the contracted rate; in mode Observe whose quota would change."""
    title, empty = "Not at the contracted rate", nobody_elsewhere(now)
    age = age_of(now, KUBERNETES)
    if not any(one.is_known for one in now.members):
        said = f" {now.members[0].message}" if now.members else ""
        inside = Markup('<p class="unknown hatched">{}{}</p>').format(
            "Unknown for every member." if now.members else "No member is known.", said
        )
        yield Part("below", section("below", title, inside, age=age))
        return
    members = now.elsewhere
    if now.mode == Mode.OBSERVE:
        title, empty = "What Enforce would change", "Enforce would change nothing."
        known = {(one.key, one.way) for one in now.would_change}
        members = (*now.would_change, *(one for one in members if (one.key, one.way) not in known))
    if not members:
        inside = Markup("<p>{}</p>").format(empty)
        yield Part("below", section("below", title, inside, age=age))
        return
    if len(members) > _TOP:
        yield Part("below", section("below", title, _by_tier(now, members), age=age))
        yield Part("find", _FIND)
        yield from _found(now, members, kept, choices)
        return
    inside = table(member_columns(now, choices), label="Members")
    rows = member_parts(now, _sorted(members, choices), kept)
    yield Part("below", section("below", title, inside, age=age), rows)


def _found(
    now: PolicyNow, members: Sequence[MemberNow], kept: Kept, choices: Choices
) -> Iterator[Part]:
    """How many match the filter, and the first of them: apart, so that a row is sent alone."""
    wanted = choices.text.strip().casefold()
    found = [one for one in members if wanted in _searched(one)] if wanted else members
    most = MOST_ROWS if choices.rows == "all" else _TOP
    shown = _sorted(found, choices)[:most]
    other = "top" if choices.rows == "all" else "all"
    words = f"Show the first {_TOP}" if other == "top" else f"Show up to {MOST_ROWS}"
    text = '<p class="count" data-count="{}"><span role="status">{} of {} shown.</span> {}</p>'
    yield Part(
        "count",
        Markup(text).format(  # noqa: S704  # a literal
            len(found),
            len(shown),
            counted(len(found), "row"),
            asks(words, "rows", other, is_chosen=False) if len(found) > _TOP else "",
        ),
    )
    heads = table(member_columns(now, choices), label="Members")
    yield Part("members", heads, member_parts(now, shown, kept))


def _searched(one: MemberNow) -> str:
    state_ = state_words(one.state)
    return f"{one.name} {one.tier_key} {one.entity} {state_} {one.level.value}".casefold()


def member_parts(now: PolicyNow, members: Sequence[MemberNow], kept: Kept) -> tuple[Part, ...]:
    """A row for each member and way."""
    columns, causes = member_columns(now, Choices()), _causes(now)

    def row(one: MemberNow) -> Part:
        return Part(f"{one.key} {one.way}", table_row(columns, one))

    return tuple(
        kept.piece(
            f"member {one.key} {one.way}",
            (now.key, one, causes.get(one.level)),
            partial(row, one),
        )
        for one in members
    )


def _causes(now: PolicyNow) -> Mapping[Level, str]:
    return {level.level: began(now, level) for level in now.levels}


_SORTED_BY: Final[Mapping[str, Callable[[MemberNow], tuple[object, ...]]]] = {
    "level": lambda one: (one.level.value, one.sends or 0.0),
    "member": lambda one: (one.name, one.tier_key),
    "rate": lambda one: (one.sends or 0.0,),
    "quota": lambda one: (one.quota or 0,),
    "contract": lambda one: (one.contract or 0,),
    "delay": lambda one: (one.delayed_seconds or 0.0,),
    "state": lambda one: (one.state,),
}


def _sorted(members: Sequence[MemberNow], choices: Choices) -> Sequence[MemberNow]:
    by = _SORTED_BY.get(choices.sort)
    return members if by is None else sorted(members, key=by, reverse=not choices.is_ascending)


def member_columns(now: PolicyNow, choices: Choices | None = None) -> Columns[MemberNow]:
    """With `choices`, their heads sort."""
    causes = _causes(now)

    def why(one: MemberNow) -> str:
        """What it is throttled for, before what that means for its quota."""
        cause = causes.get(one.level) if one.is_throttled else ""
        return f"{cause}; {one.message}" if cause else one.message

    def column(
        head: str, cell: Callable[[MemberNow], object], sort: str = "", kind: str = ""
    ) -> Column[MemberNow]:
        if choices is None or not sort:
            return Column(head, cell, kind)
        way = "ascending" if choices.is_ascending else "descending"
        return Column(head, cell, kind, sort, way if choices.sort == sort else "")

    return (
        column("Level", lambda one: one.level.value, "level"),
        column("Member", lambda one: member_link(now.key, one.key, one.name), "member"),
        column("Way", lambda one: one.way),
        column("Rate, all brokers", lambda one: rate(one.sends), "rate", "right"),
        column("Quota, each broker", _quota, "quota", "right"),
        column("Contract, all brokers", _contract, "contract", "right"),
        column("Delayed by Kafka", lambda one: _delayed(one.delayed_seconds), "delay", "right"),
        column("State", lambda one: state(one.state, "unknown"), "state"),
        column("Why", why, "", "why"),
    )


def _delayed(seconds: float | None) -> Markup:
    return unknown() if seconds is None else Markup("{}").format(f"{seconds:.1f} s")


def _quota(one: MemberNow) -> Markup:
    if one.quota is not None:
        return rate(one.quota)
    return Markup("{}").format("unlimited") if one.is_known else rate(None)


def _contract(one: MemberNow) -> Markup:
    if one.contract is not None:
        return rate(one.contract)
    return Markup("{}").format("none") if one.is_known else rate(None)


def _by_tier(now: PolicyNow, members: Sequence[MemberNow]) -> Markup:
    """How many members of each tier these are, and what they send of their contracts."""
    by_tier: dict[str, list[MemberNow]] = defaultdict(list)
    for one in members:
        by_tier[one.tier_key].append(one)
    sizes: dict[str, set[str]] = defaultdict(set)
    for one in now.members:
        sizes[one.tier_key].add(one.key)

    def how_many(tier: str) -> str:
        return f"{len({one.key for one in by_tier[tier]})} of {len(sizes[tier])}"

    def sum_of(way: str) -> Callable[[str], str]:
        def summed(tier: str) -> str:
            mine = [one for one in by_tier[tier] if one.way == way]
            if not mine:
                return "-"
            sends, contracts = [one.sends for one in mine], [one.contract for one in mine]
            return rate_of_words(_sum(sends), _sum(contracts))

        return summed

    columns: Columns[str] = (
        Column("Tier", name),
        Column("Level", lambda tier: by_tier[tier][0].level.value),
        Column("Members", how_many, "right"),
        Column("Fetch, rate of contracts", sum_of("fetch"), "right"),
        Column("Produce, rate of contracts", sum_of("produce"), "right"),
    )
    order = sorted(by_tier, key=lambda tier: (by_tier[tier][0].level.value, tier), reverse=True)
    return table(columns, order, label="Totals by tier")


def _sum(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None
