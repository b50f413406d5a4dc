"""What each tier used, and how long it was in which state."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.rollup.report.figures import MemberFigures, TierFigures
from tidegate.rollup.report.grouping import Row, Wanted, grouped
from tidegate.rollup.report.members import share_of
from tidegate.rollup.report.pricing import total_of

_STATES = ("seconds_contract", "seconds_stepping", "seconds_throttled", "seconds_relaxing")
_WANTED = Wanted(sums=("throttle_episodes", *_STATES), highest=("peak_rate", "p95"))


@dataclass(frozen=True, slots=True)
class _Group:
    tier: str
    direction: str
    members: Sequence[MemberFigures]
    row: Row


def tier_figures(tiers: pa.Table, members: Sequence[MemberFigures]) -> tuple[TierFigures, ...]:
    """A line for each tier and direction of which a member was seen, most important level first.

    Bytes and amounts are the sums of its members' lines; peaks and states come from the tier table and are None where it has no row.
    """
    groups: defaultdict[tuple[str, str], list[MemberFigures]] = defaultdict(list)
    totals: defaultdict[str, int] = defaultdict(int)
    for one in members:
        groups[one.tier, one.direction].append(one)
        totals[one.direction] += one.bytes
    rows = {(row["tier"], row["direction"]): row for row in grouped(tiers, ("tier", "direction"), _WANTED)}
    unknown = dict.fromkeys((*_WANTED.sums, *_WANTED.highest))
    found = [_Group(*key, part, rows.get(key, unknown)) for key, part in groups.items()]
    figures = [_figures(group, totals[group.direction]) for group in found]
    return tuple(sorted(figures, key=lambda one: (one.level or "~", one.tier, one.direction)))


def _figures(group: _Group, total_bytes: int) -> TierFigures:
    members = group.members
    used = sum(one.bytes for one in members)
    return TierFigures(
        tier=group.tier,
        level=members[0].level,
        direction=group.direction,
        members=len(members),
        bytes=used,
        share=share_of(used, total_bytes),
        amount=total_of(one.amount for one in members),
        throttled_seconds=sum(one.throttled_seconds for one in members),
        deferred_bytes=sum(one.deferred_bytes for one in members),
        peak_rate=group.row["peak_rate"],
        highest_p95_rate=group.row["p95"],
        throttle_episodes=group.row["throttle_episodes"],
        **{state: group.row[state] for state in _STATES},
    )
