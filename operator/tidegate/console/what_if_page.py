"""The pages What if and History: the result of a play, and lines of the audit trail.

Pure: from a result or lines to HTML.
"""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from markupsafe import Markup

from tidegate.console.markup import MOST_ROWS, joined, name, rate, table
from tidegate.console.parts import Page, Part
from tidegate.console.source import Trail
from tidegate.console.whatif import MemberResult, NicResult, Result
from tidegate_logic.model import Direction, Level


def what_if_page(result: Result, before: Result | None) -> Markup:
    """Whether it would be enough, who gives, and each NIC that matters."""
    verdict = (
        Markup("<strong>It would be enough</strong>: every broker is within its limit at the end.")
        if result.is_enough
        else Markup(
            "<strong>It would not be enough</strong>: {} over the limit at the end."
        ).format("1 NIC is" if len(result.over) == 1 else f"{len(result.over)} NICs are")
    )
    gives = joined(
        Markup("<li>{} gives {}</li>").format(level.value, rate(result.gives(level)))
        for level in sorted(Level, reverse=True)
        if result.gives(level) >= 1
    )
    mute = (
        Markup("<li>longest mute that is predicted: {}</li>").format(
            f"{result.longest_mute_seconds:.0f} s"
        )
        if result.longest_mute_seconds
        else Markup("")
    )
    head = Markup(
        '<div class="answer" role="status"><p>{}</p><ul>{}<li>{} {} lowered</li>{}</ul></div>'
    ).format(
        verdict,
        gives,
        len({(one.tier_key, one.member_name) for one in result.lowered}),
        "member is" if len({one.entity for one in result.lowered}) == 1 else "members are",
        mute,
    )
    was = {} if before is None else {(one.broker, one.direction): one for one in before.nics}
    nics = sorted(
        (one for one in result.nics if one.limit),
        key=lambda one: -(one.highest / (one.limit or 1)),
    )[:12]
    fullest = joined(_nic_result(one, was.get((one.broker, one.direction))) for one in nics)
    lowered = joined(_lowered(one) for one in result.lowered[:MOST_ROWS])
    remarks = joined(
        Markup("<li>{}</li>").format(one) for one in (*result.findings[:12], *result.remarks)
    )
    return joined(
        (
            head,
            table(_OF_BROKERS, fullest, label="Brokers", caption="Fullest brokers"),
            table(_OF_WHO_GIVES, lowered, label="Who gives", caption="Who gives")
            if lowered
            else Markup("<p>No one is lowered.</p>"),
            Markup('<ul class="problems" aria-label="Remarks">{}</ul>').format(remarks)
            if remarks
            else Markup(""),
        )
    )


_OF_BROKERS = (
    ("Broker", ""),
    ("Way", ""),
    ("Limit", "right"),
    ("At the end, as it is now", "right"),
    ("Highest", "right"),
    ("At the end", "right"),
    ("Over the limit", "right"),
)
_OF_WHO_GIVES = (
    ("Level", ""),
    ("Member", ""),
    ("Way", ""),
    ("Wants, all brokers", "right"),
    ("Moves at the end", "right"),
    ("Contract, each broker", "right"),
    ("Quota at the end", "right"),
    ("Longest mute", "right"),
    ("For broker", ""),
)


def _nic_result(one: NicResult, before: NicResult | None) -> Markup:
    return Markup(
        '<tr class="{}"><td>{}</td><td>{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td><td class="right">{}</td></tr>'
    ).format(
        "over" if one.is_over_at_end else "",
        one.broker,
        one.direction.value,
        rate(one.limit),
        rate(None if before is None else before.at_end),
        rate(one.highest),
        rate(one.at_end),
        f"{one.over_seconds} s" if one.over_seconds else "never",
    )


def _lowered(one: MemberResult) -> Markup:
    return Markup(
        '<tr><td>{}</td><td>{}</td><td>{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td><td class="right">{}</td>'
        "<td>{}</td></tr>"
    ).format(
        one.level.value,
        name(one.member_name),
        "fetch" if one.direction is Direction.EGRESS else "produce",
        rate(one.wants),
        rate(one.moves_at_end),
        rate(one.contract) if one.contract is not None else "unlimited",
        rate(one.at_end) if one.at_end is not None else "unlimited",
        f"{one.longest_mute_seconds:.0f} s",
        ", ".join(map(str, one.brokers)),
    )


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
            "list: they are left out, or what they say of these tiers is.</p>"
        ).format(left_out)
        page.append(Part("left-out", text))
    if trail.problem:
        text = Markup('<p class="unknown hatched">Not all is known: {}</p>').format(trail.problem)
        page.append(Part("problem", text))
    if not lines:
        return (*page, Part("count", Markup("<p>No line fits.</p>")))
    columns = [(words, "") for words in ("Time", "Policy", "Kind", "What", "Pass")]
    seen: Counter[AuditRow] = Counter()
    rows = []
    for line in lines:
        seen[line] += 1
        at, policy, kind, words, pass_id = line
        rows.append(
            Part(
                f"{crc32(' '.join(line).encode()):x}-{seen[line]}",
                Markup(
                    '<tr><td>{}</td><td>{}</td><td>{}</td><td class="why">{}</td>'
                    '<td class="pass">{}</td></tr>'
                ).format(at, name(policy), kind, words, pass_id),
            )
        )
    count = Markup("<p>{} of {} lines, the newest first</p>").format(len(lines), of)
    return (
        *page,
        Part("count", count),
        Part(
            "trail",
            table(columns, label="Audit trail"),
            tuple(rows),
        ),
    )
