"""The pages What if and History: the result of a play, and lines of the audit trail.

Pure: from a result or lines to HTML.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from markupsafe import Markup

from tidegate.console.markup import (
    HEAD,
    MOST_ROWS,
    Column,
    Columns,
    broker_link,
    joined,
    member_link,
    name,
    rate,
    table,
    table_row,
)
from tidegate.console.parts import Page, Part
from tidegate.console.source import Trail
from tidegate.console.whatif import MemberResult, NicResult, Result
from tidegate_logic.model import Direction, Level


def what_if_page(policy_key: str, result: Result, before: Result | None) -> Markup:
    """Whether it would be enough, who would be throttled, and each NIC that matters.

    `before` is the same ten minutes without edits; None = there are none.
    """
    remarks = joined(
        Markup("<li>{}</li>").format(one) for one in (*result.findings[:12], *result.remarks)
    )
    nics = sorted(
        (one for one in result.nics if one.limit),
        key=lambda one: -(one.highest / (one.limit or 1)),
    )[:12]
    return joined(
        (
            _verdict(result),
            _compared(result, before),
            table(
                *(_of_brokers(policy_key, before), nics),
                label="Brokers",
                caption="Fullest brokers",
                kind_of=lambda one: "over" if one.is_over_at_end else "",
            ),
            table(
                *(_of_throttled(policy_key), result.lowered[:MOST_ROWS]),
                label="Throttled",
                caption="Throttled",
            )
            if result.lowered
            else Markup("<p>No member is throttled.</p>"),
            Markup('<ul class="problems" aria-label="Remarks">{}</ul>').format(remarks)
            if remarks
            else Markup(""),
        )
    )


def _verdict(result: Result) -> Markup:
    over = len(result.over)
    words = (
        Markup("<strong>It would be enough</strong>: every broker is within its limit at the end.")
        if result.is_enough
        else Markup(
            "<strong>It would not be enough</strong>: {} over the limit at the end."
        ).format("1 NIC is" if over == 1 else f"{over} NICs are")
    )
    levels = joined(
        Markup("<li>{} is throttled by {}</li>").format(level.value, rate(result.gives(level)))
        for level in sorted(Level, reverse=True)
        if result.gives(level) >= 1
    )
    return Markup(
        '<div class="banner tone-{}"><div class="answer" role="status"><p>{}</p><ul>{}</ul></div>'
        "</div>"
    ).format("within" if result.is_enough else "over", words, levels)


class _Compared(NamedTuple):
    """One figure of both plays, of which less is better; `unit` is "B/s", "s" or ""."""

    name: str
    today: float | None
    then: float
    unit: str


def _compared(result: Result, before: Result | None) -> Markup:
    """Today beside with your change. Less of each figure is better."""

    def row(name_: str, of: Callable[[Result], float], unit: str) -> _Compared:
        return _Compared(name_, None if before is None else of(before), of(result), unit)

    rows = [
        row("NICs over the limit at the end", lambda one: len(one.over), ""),
        row("Longest time over a limit", _longest_over, "s"),
        row("Members throttled", _throttled, ""),
        *(
            row(f"{level.value} throttled by", partial(_throttled_by, level=level), "B/s")
            for level in sorted(Level, reverse=True)
        ),
        row("Longest predicted throttle delay", lambda one: one.longest_mute_seconds, "s"),
    ]
    if before is None:
        columns: Columns[_Compared] = (
            Column("", lambda one: one.name, HEAD),
            Column("Today", lambda one: _figure(one.then, one.unit), "right"),
        )
    else:
        columns = (
            Column("", lambda one: one.name, HEAD),
            Column("Today", lambda one: _figure(one.today or 0.0, one.unit), "right"),
            Column("With your change", lambda one: _figure(one.then, one.unit), "right"),
            Column("Difference", _difference, "right"),
        )
    return table(columns, rows, label="Compared", caption="Ten minutes from now")


def _longest_over(result: Result) -> float:
    return max((one.over_seconds for one in result.nics), default=0)


def _throttled(result: Result) -> float:
    return len({(one.tier_key, one.member_name) for one in result.lowered})


def _throttled_by(result: Result, level: Level) -> float:
    return result.gives(level)


def _figure(value: float, unit: str) -> Markup:
    if unit == "B/s":
        return rate(value)
    return Markup('<span class="number">{}</span>').format(f"{value:.0f} {unit}".strip())


def _difference(one: _Compared) -> Markup:
    """By its sign and in words, and in a colour besides."""
    change = one.then - (one.today or 0.0)
    if abs(change) < (1.0 if one.unit == "B/s" else 0.5):
        return Markup("same")
    sign, tone, word = ("+", "worse", "more") if change > 0 else ("-", "better", "less")
    return Markup('<span class="delta {}">{}{} <small>{}</small></span>').format(
        tone, sign, _figure(abs(change), one.unit), word
    )


def _of_brokers(policy_key: str, before: Result | None) -> Columns[NicResult]:
    was = {} if before is None else {(one.broker, one.direction): one for one in before.nics}

    def today(one: NicResult) -> Markup:
        found = was.get((one.broker, one.direction))
        return rate(None if found is None else found.at_end)

    def difference(one: NicResult) -> Markup:
        found = was.get((one.broker, one.direction))
        if found is None:
            return rate(None)
        return _difference(_Compared("", found.at_end, one.at_end, "B/s"))

    compared: Columns[NicResult] = (
        Column("Today, at the end", today, "right"),
        Column("With your change, at the end", lambda one: rate(one.at_end), "right"),
        Column("Difference", difference, "right"),
    )
    alone: Columns[NicResult] = (Column("At the end", lambda one: rate(one.at_end), "right"),)
    return (
        Column("Broker", lambda one: broker_link(policy_key, one.broker, "{}")),
        Column("Way", lambda one: one.direction.value),
        Column("Limit", lambda one: rate(one.limit), "right"),
        *(alone if before is None else compared),
        Column("Highest", lambda one: rate(one.highest), "right"),
        Column(
            "Over the limit",
            lambda one: f"{one.over_seconds} s" if one.over_seconds else "never",
            "right",
        ),
    )


def _of_throttled(policy_key: str) -> Columns[MemberResult]:
    def linked(one: MemberResult) -> Markup:
        return member_link(policy_key, f"{one.tier_key}/{one.member_name}", one.member_name)

    return (
        Column("Level", lambda one: one.level.value),
        Column("Member", linked),
        Column("Way", lambda one: "fetch" if one.direction is Direction.EGRESS else "produce"),
        Column("Demand, all brokers", lambda one: rate(one.wants), "right"),
        Column("Rate at the end", lambda one: rate(one.moves_at_end), "right"),
        Column("Contract, each broker", lambda one: _limited(one.contract), "right"),
        Column("Quota at the end", lambda one: _limited(one.at_end), "right"),
        Column("Longest delay", lambda one: f"{one.longest_mute_seconds:.0f} s", "right"),
        Column("Because of broker", lambda one: ", ".join(map(str, one.brokers))),
    )


def _limited(quota: int | None) -> Markup | str:
    return "unlimited" if quota is None else rate(quota)


# The page History


AuditRow = tuple[str, str, str, str, str]  # time, policy, kind, words, pass


def history_page(trail: Trail, lines: Sequence[AuditRow], *, of: int, left_out: int = 0) -> Page:
    """Lines of the audit trail; `of` is how many of this policy the viewer may read.

    `left_out` is how many more there are, and of how many a part is left out.
    """
    page: list[Part] = []
    if left_out:
        text = Markup(
            '<p class="unknown">{} more lines of this policy are about tiers that you may not '
            "list: they are left out or shortened.</p>"
        ).format(left_out)
        page.append(Part("left-out", text))
    if trail.problem:
        text = Markup('<p class="unknown hatched">Incomplete: {}</p>').format(trail.problem)
        page.append(Part("problem", text))
    if not lines:
        return (*page, Part("count", Markup("<p>No matching line.</p>")))
    seen: Counter[AuditRow] = Counter()
    rows = []
    for line in lines:
        seen[line] += 1
        crc = crc32(" ".join(line).encode())
        rows.append(Part(f"{crc:x}-{seen[line]}", table_row(_TRAIL, line)))
    count = Markup("<p>{} of {} lines, newest first</p>").format(len(lines), of)
    return (
        *page,
        Part("count", count),
        Part("trail", table(_TRAIL, label="Audit trail"), tuple(rows)),
    )


_TRAIL: Final[Columns[AuditRow]] = (
    Column("Time", lambda line: line[0]),
    Column("Policy", lambda line: name(line[1])),
    Column("Kind", lambda line: line[2]),
    Column("What", lambda line: line[3], "why"),
    Column("Pass", lambda line: line[4], "pass"),
)
