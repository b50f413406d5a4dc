"""What finance asks of a bill: how far its estimates may be off, and whether anything is missing.

Kafka counts the bytes of a broker, and of its clients it has only gauges. So the sum of all lines
is exact and each line is an estimate. Its tolerance is the sum of three parts:

- the error that was measured on simulated brokers whose every byte is known (docs/usage.md),
- how far the client's gauges had to be scaled to add up to the broker's count,
- the part of the time without samples.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import tzinfo
from typing import Final

import pyarrow.compute as pc

from tidegate.report.figures import (
    BillLine,
    Charge,
    MemberFigures,
    Reconciliation,
    TierTotal,
    Total,
)
from tidegate.report.period import PeriodTables, grouped, share_of
from tidegate.report.rate_card import RateCard
from tidegate.report.request import total_of
from tidegate.rollup.fold.broker import FactorBounds
from tidegate_logic.words import rfc3339_ms

# Within these were 95 of 100 clients in an hour; the second is of clients that are throttled.
MEASURED_ERROR: Final = 0.008
MEASURED_ERROR_THROTTLED: Final = 0.023
PEAK_ERROR: Final = 0.18  # a throttled client's gauge reads up to so much above its quota

Who = tuple[str, str, str]  # user, client id, direction
_WHO: Final = ("user", "client_id", "direction")
_WAYS: Final = ("fetch", "produce")


def tolerances(tables: PeriodTables, bounds: FactorBounds) -> Mapping[Who, float]:
    """By client and direction how far its bytes may be off, as a fraction of them."""
    scaled = _scaled(tables, bounds)
    widest = _widest(bounds)
    found = {}
    for row in grouped(tables.usage, _WHO, sum=("bytes", "throttled_seconds"), mean=("coverage",)):
        who = row["user"], row["client_id"], row["direction"]
        known_bytes, off_bytes = scaled.get(who, (0, 0))
        unknown_bytes = max(0, row["bytes"] - known_bytes)
        if row["bytes"]:
            measured = MEASURED_ERROR_THROTTLED if row["throttled_seconds"] else MEASURED_ERROR
            scaling = (off_bytes + unknown_bytes * widest) / (known_bytes + unknown_bytes)
            found[who] = min(1.0, round(measured + scaling + 1 - row["coverage"], 6))
    return found


def _widest(bounds: FactorBounds) -> float:
    """What is assumed of a factor that is unknown: the farthest within the bounds."""
    return max(bounds.most - 1, 1 - bounds.least)


def _scaled(tables: PeriodTables, bounds: FactorBounds) -> Mapping[Who, tuple[int, int]]:
    """Bytes with a row of 5 minutes, and how many of them scaling added or took away."""
    rows = tables.known_5m
    if rows is None:
        return {}
    # what is beyond the highest factor is unattributed, and in no client's bytes
    factor = pc.min_element_wise(rows["calibration"], bounds.most, skip_nulls=False)
    share = pc.fill_null(pc.abs(pc.subtract(factor, 1.0)), _widest(bounds))
    # whole bytes, whose sum does not depend on the order of the rows
    off = pc.cast(pc.round(pc.multiply(pc.cast(rows["bytes"], "double"), share)), "int64")
    return {
        (row["user"], row["client_id"], row["direction"]): (row["bytes"], row["off"])
        for row in grouped(rows.append_column("off", off), _WHO, sum=("bytes", "off"))
    }


def tolerance_of(known: Mapping[Who, float], moved: Iterable[tuple[Who, int]]) -> float | None:
    """Of several clients together, as if all were off in the same way; None without bytes."""
    parts = [(count, known[who]) for who, count in moved if count and who in known]
    total = sum(count for count, _ in parts)
    return round(sum(count * share for count, share in parts) / total, 6) if total else None


def bill_lines(
    charges: Sequence[Charge],
    known: Mapping[Who, float],
    card: RateCard,
    tables: PeriodTables,
    zone: tzinfo,
) -> tuple[BillLine, ...]:
    """The charges with their tolerances; a line of no member, or by contract, is exact."""
    shared_by = {
        rfc3339_ms(start_ms): rates.share_by
        for start_ms, _, rates in card.spans(tables.start_ms, tables.end_ms, zone)
        if rates.cost_per_month is not None
    }
    return tuple(
        BillLine(
            **{field.name: getattr(one, field.name) for field in fields(Charge)},
            tolerance=_line_tolerance(one, known, shared_by.get(one.start, "")),
        )
        for one in charges
    )


def _line_tolerance(one: Charge, known: Mapping[Who, float], shared_by: str) -> float | None:
    found = known.get((one.user, one.client_id, one.direction))
    if not one.member or found is None or (one.per_gib is None and shared_by == "Contract"):
        return None
    is_by_peak = one.per_gib is None and shared_by == "Peak"
    return max(found, PEAK_ERROR) if is_by_peak else found


def reconciliation(
    totals: Sequence[Total], charges: Sequence[Charge]
) -> tuple[Reconciliation, ...]:
    """Billed and unattributed bytes against what brokers counted, and their amounts."""
    lines = []
    for one in totals:
        charged = [line for line in charges if line.direction == one.direction]
        unattributed = [line.amount for line in charged if line.kind == "Unattributed"]
        lines.append(
            Reconciliation(
                direction=one.direction,
                billed_bytes=one.bytes,
                unattributed_bytes=one.unattributed_bytes,
                counted_bytes=one.counted_bytes,
                difference_bytes=one.counted_bytes - one.bytes - one.unattributed_bytes,
                unattributed_amount=one.unattributed_amount,
                unattributed_charged=total_of(unattributed),
            )
        )
    return (*lines, _together(lines))


def _together(lines: Sequence[Reconciliation]) -> Reconciliation:
    return Reconciliation(
        direction="both",
        billed_bytes=sum(one.billed_bytes for one in lines),
        unattributed_bytes=sum(one.unattributed_bytes for one in lines),
        counted_bytes=sum(one.counted_bytes for one in lines),
        difference_bytes=sum(one.difference_bytes for one in lines),
        unattributed_amount=total_of(one.unattributed_amount for one in lines),
        unattributed_charged=total_of(one.unattributed_charged for one in lines),
    )


def tier_totals(
    members: Sequence[MemberFigures], known: Mapping[Who, float]
) -> tuple[TierTotal, ...]:
    """A line for each tier over both directions, most important level first."""
    groups: defaultdict[str, list[MemberFigures]] = defaultdict(list)
    for one in members:
        groups[one.tier].append(one)
    total = sum(one.bytes for one in members)
    found = [_tier_total(tier, ours, total, known) for tier, ours in groups.items()]
    return tuple(sorted(found, key=lambda one: (one.level or "~", one.tier)))


def _tier_total(
    tier: str, members: Sequence[MemberFigures], total_bytes: int, known: Mapping[Who, float]
) -> TierTotal:
    moved = {way: sum(one.bytes for one in members if one.direction == way) for way in _WAYS}
    both = sum(moved.values())
    return TierTotal(
        tier=tier,
        level=members[0].level,
        members=len({(one.user, one.client_id) for one in members}),
        fetch_bytes=moved["fetch"],
        produce_bytes=moved["produce"],
        bytes=both,
        share=share_of(both, total_bytes),
        tolerance=tolerance_of(known, _moved(members)),
        amount=total_of(one.amount for one in members),
    )


def _moved(members: Iterable[MemberFigures]) -> Iterator[tuple[Who, int]]:
    for one in members:
        yield (one.user, one.client_id, one.direction), one.bytes
