"""The pages What if and History: the result of a play, and lines of the audit trail.

Pure: from a result or lines to HTML.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

from markupsafe import Markup

from tidegate.console.markup import (
    MOST_ROWS,
    Column,
    Columns,
    joined,
    name,
    rate,
    table,
    table_row,
)
from tidegate.console.parts import Page, Part
from tidegate.console.source import Trail
from tidegate.console.whatif import MemberResult, NicResult, Result
from tidegate_logic.model import Direction, Level


def what_if_page(result: Result, before: Result | None) -> Markup:
    """Whether it would be enough, who would be throttled, and each NIC that matters."""
    verdict = (
        Markup("<strong>It would be enough</strong>: every broker is within its limit at the end.")
        if result.is_enough
        else Markup(
            "<strong>It would not be enough</strong>: {} over the limit at the end."
        ).format("1 NIC is" if len(result.over) == 1 else f"{len(result.over)} NICs are")
    )
    levels = joined(
        Markup("<li>{} is throttled by {}</li>").format(level.value, rate(result.gives(level)))
        for level in sorted(Level, reverse=True)
        if result.gives(level) >= 1
    )
    delay = (
        Markup("<li>longest predicted throttle delay: {}</li>").format(
            f"{result.longest_mute_seconds:.0f} s"
        )
        if result.longest_mute_seconds
        else Markup("")
    )
    head = Markup(
        '<div class="answer" role="status"><p>{}</p><ul>{}<li>{} {} throttled</li>{}</ul></div>'
    ).format(
        verdict,
        levels,
        len({(one.tier_key, one.member_name) for one in result.lowered}),
        "member is" if len({one.entity for one in result.lowered}) == 1 else "members are",
        delay,
    )
    was = {} if before is None else {(one.broker, one.direction): one for one in before.nics}
    nics = sorted(
        (one for one in result.nics if one.limit),
        key=lambda one: -(one.highest / (one.limit or 1)),
    )[:12]
    remarks = joined(
        Markup("<li>{}</li>").format(one) for one in (*result.findings[:12], *result.remarks)
    )
    return joined(
        (
            head,
            table(
                *(_of_brokers(was), nics),
                label="Brokers",
                caption="Fullest brokers",
                kind_of=lambda one: "over" if one.is_over_at_end else "",
            ),
            table(
                *(_OF_THROTTLED, result.lowered[:MOST_ROWS]), label="Throttled", caption="Throttled"
            )
            if result.lowered
            else Markup("<p>No member is throttled.</p>"),
            Markup('<ul class="problems" aria-label="Remarks">{}</ul>').format(remarks)
            if remarks
            else Markup(""),
        )
    )


def _of_brokers(before: Mapping[tuple[int, Direction], NicResult]) -> Columns[NicResult]:
    def at_end_before(one: NicResult) -> float | None:
        was = before.get((one.broker, one.direction))
        return None if was is None else was.at_end

    return (
        Column("Broker", lambda one: one.broker),
        Column("Way", lambda one: one.direction.value),
        Column("Limit", lambda one: rate(one.limit), "right"),
        Column("At the end, unedited", lambda one: rate(at_end_before(one)), "right"),
        Column("Highest", lambda one: rate(one.highest), "right"),
        Column("At the end", lambda one: rate(one.at_end), "right"),
        Column(
            "Over the limit",
            lambda one: f"{one.over_seconds} s" if one.over_seconds else "never",
            "right",
        ),
    )


_OF_THROTTLED: Final[Columns[MemberResult]] = (
    Column("Level", lambda one: one.level.value),
    Column("Member", lambda one: name(one.member_name)),
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
