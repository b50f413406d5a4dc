"""Traffic over time in few enough steps to draw: by tier, and by broker's card."""

from collections.abc import Mapping, Sequence
from math import ceil

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.report.figures import BrokerFigures, LoadPoint, TrafficPoint
from tidegate.rollup.report.grouping import Row, Wanted, floored, grouped
from tidegate.rollup.report.members import share_of
from tidegate.rollup.report.period_tables import PeriodTables
from tidegate.rollup.report.request import moment

_TRAFFIC_STEPS = 120
_FEWEST_STEPS = 24
_TRAFFIC_POINTS = 2000  # of both directions: more would only make the page large
_LOAD_STEPS = 48
_CARDS_SHOWN = 24


def traffic_points(tables: PeriodTables) -> tuple[TrafficPoint, ...]:
    """What each tier moved, by direction, time and tier. A step is a whole number of windows; the last one may be shorter."""
    usage, window_ms = tables.drawn_usage
    lines = 2 * max(1, len(usage["tier"].unique()))
    step_ms = _step_ms(tables, window_ms, max(_FEWEST_STEPS, min(_TRAFFIC_STEPS, _TRAFFIC_POINTS // lines)))
    stepped = floored(usage, step_ms, origin_ms=tables.start_ms)
    rows = list(grouped(stepped, ("window_start", "tier", "direction"), Wanted(sums=("bytes",))))
    rows.sort(key=lambda row: (row["direction"], row["window_start"], row["tier"]))
    return tuple(_traffic(row, _seconds(row, tables, step_ms)) for row in rows)


def _traffic(row: Row, seconds: float) -> TrafficPoint:
    return TrafficPoint(moment(row["window_start"]), seconds, row["tier"], row["direction"], row["bytes"], row["bytes"] / seconds)


def load_points(tables: PeriodTables, brokers: Sequence[BrokerFigures]) -> tuple[LoadPoint, ...]:
    """What the cards nearest to their limits carried, by broker, direction and time; at most 24 cards, and none without a limit."""
    limits = _shown(brokers)
    finest, window_ms = tables.finest_brokers
    step_ms = _step_ms(tables, window_ms, _LOAD_STEPS)
    stepped = floored(_of_brokers(finest, {broker for broker, _ in limits}), step_ms, origin_ms=tables.start_ms)
    named = stepped.append_column("busiest", stepped["nic_bytes"])
    rows = list(grouped(named, ("window_start", "broker", "direction"), Wanted(sums=("nic_bytes",), highest=("busiest",))))
    rows = [row | {"seconds": _seconds(row, tables, step_ms)} for row in rows if (row["broker"], row["direction"]) in limits]
    rows.sort(key=lambda row: (row["broker"], row["direction"], row["window_start"]))
    return tuple(_load(row, window_ms / 1000, limits[row["broker"], row["direction"]]) for row in rows)


def _load(row: Row, window_seconds: float, limit: int) -> LoadPoint:
    rate, busiest = row["nic_bytes"] / row["seconds"], row["busiest"] / window_seconds
    return LoadPoint(
        start=moment(row["window_start"]),
        seconds=row["seconds"],
        broker=row["broker"],
        direction=row["direction"],
        nic_bytes=row["nic_bytes"],
        rate=rate,
        share=share_of(rate, limit),
        busiest_rate=busiest,
        busiest_share=share_of(busiest, limit),
    )


def _shown(brokers: Sequence[BrokerFigures]) -> Mapping[tuple[int, str], int]:
    """The cards to draw, with their limits."""
    fullest = sorted((one for one in brokers if one.busiest_share is not None), key=lambda one: -(one.busiest_share or 0))
    return {(one.broker, one.direction): one.limit for one in fullest[:_CARDS_SHOWN] if one.limit is not None}


def _of_brokers(table: pa.Table, brokers: set[int]) -> pa.Table:
    return table.filter(pc.is_in(table["broker"], value_set=pa.array(sorted(brokers), pa.int32())))


def _step_ms(tables: PeriodTables, window_ms: int, steps: int) -> int:
    """A window where the period is short; else whole windows of the tables, so many that there are at most so many steps."""
    if tables.is_short:
        return window_ms
    windows = ceil((tables.end_ms - tables.start_ms) / tables.grain_ms)
    return tables.grain_ms * ceil(windows / steps)


def _seconds(row: Row, tables: PeriodTables, step_ms: int) -> float:
    start_ms: int = row["window_start"]
    return min(step_ms, tables.end_ms - start_ms) / 1000
