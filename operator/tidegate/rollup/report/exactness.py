"""What is counted, what is estimated, and how far estimates were moved to add up to what is counted."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import pyarrow as pa

from tidegate.rollup.report.figures import BrokerFigures, Calibration, DoubtfulMember, MemberFigures
from tidegate.rollup.report.grouping import Row, Wanted, grouped
from tidegate.rollup.report.members import CLIENT, share_of
from tidegate.rollup.report.period_tables import PeriodTables

LOWEST_FACTOR, HIGHEST_FACTOR = 0.5, 2.0  # a factor outside says that something else is wrong
ENOUGH_COVERAGE = 0.95

_Card = tuple[int, str]


def calibrations(usage_5m: pa.Table | None, brokers: Sequence[BrokerFigures]) -> tuple[Calibration, ...]:
    """A line for each broker and direction; without the 5-minute rows the factors are not known."""
    factors = {} if usage_5m is None else _factors(usage_5m)
    return tuple(_calibration(one, factors.get((one.broker, one.direction), [])) for one in brokers)


def _factors(usage_5m: pa.Table) -> Mapping[_Card, list[float | None]]:
    """The factor of each window, which is the same for every user of it; None where there was none."""
    found: dict[_Card, list[float | None]] = {}
    for row in grouped(usage_5m, ("broker", "direction", "window_start"), Wanted(highest=("calibration",))):
        found.setdefault((row["broker"], row["direction"]), []).append(row["calibration"])
    return found


def _calibration(card: BrokerFigures, factors: Sequence[float | None]) -> Calibration:
    known = [factor for factor in factors if factor is not None]
    return Calibration(
        broker=card.broker,
        direction=card.direction,
        windows=len(factors),
        unscaled_windows=len(factors) - len(known),
        bounded_windows=sum(not LOWEST_FACTOR < factor < HIGHEST_FACTOR for factor in known),
        lowest_factor=min(known, default=None),
        median_factor=median(known) if known else None,
        highest_factor=max(known, default=None),
        unattributed_bytes=card.unattributed_bytes,
        unattributed_share=share_of(card.unattributed_bytes, card.client_bytes),
    )


def doubtful_members(tables: PeriodTables, members: Sequence[MemberFigures]) -> tuple[DoubtfulMember, ...]:
    """Those whose usage was never scaled to a broker's count, or who have a window with under 95 % of its samples; most bytes first."""
    lowest = {_line(row): row["coverage"] for row in grouped(tables.usage, (*CLIENT, "direction"), Wanted(lowest=("coverage",)))}
    unscaled = set() if tables.usage_5m is None else set(_never_scaled(tables.usage_5m))
    found = [_doubtful(one, lowest[one.tier, one.user, one.client_id, one.direction], unscaled) for one in members]
    return tuple(one for one in found if one.never_scaled or one.lowest_coverage < ENOUGH_COVERAGE)


def _line(row: Row) -> tuple[str, str, str, str]:
    return row["tier"], row["user"], row["client_id"], row["direction"]


def _never_scaled(usage_5m: pa.Table) -> Iterator[tuple[str, str, str]]:
    for row in grouped(usage_5m, ("user", "client_id", "direction"), Wanted(highest=("calibration",))):
        if row["calibration"] is None:
            yield row["user"], row["client_id"], row["direction"]


def _doubtful(one: MemberFigures, coverage: float, unscaled: set[tuple[str, str, str]]) -> DoubtfulMember:
    never_scaled = (one.user, one.client_id, one.direction) in unscaled
    return DoubtfulMember(one.member, one.tier, one.direction, one.bytes, coverage, never_scaled)
