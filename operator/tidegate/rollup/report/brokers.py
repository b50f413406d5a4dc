"""How full each broker's card was, in the mean and in its busiest window, against its limit."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.report.figures import BrokerFigures
from tidegate.rollup.report.grouping import Row, Wanted, at_highest, grouped
from tidegate.rollup.report.members import share_of
from tidegate.rollup.report.period_tables import PeriodTables
from tidegate.rollup.report.request import moment

_CARD = ("broker", "direction")
_BYTES = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
_WANTED = Wanted(sums=(*_BYTES, "over_limit_seconds"), distinct=("window_start",))

_Card = tuple[Any, ...]  # broker, direction


def broker_figures(tables: PeriodTables) -> tuple[BrokerFigures, ...]:
    """A line for each card and direction, by broker. Means are over the windows that the table has, not over gaps."""
    finest, step_ms = tables.finest_brokers
    busiest, limits = at_highest(finest, _CARD, "nic_bytes"), _last_limits(tables.brokers)
    rows = sorted(grouped(tables.brokers, _CARD, _WANTED), key=lambda row: (row["broker"], row["direction"]))
    return tuple(
        _figures(row, tables.grain_ms / 1000, busiest=(busiest[_card(row)], step_ms), limit=limits.get(_card(row))) for row in rows
    )


def _card(row: Row) -> _Card:
    return row["broker"], row["direction"]


def _figures(row: Row, grain_seconds: float, *, busiest: tuple[Row, int], limit: int | None) -> BrokerFigures:
    window, step_ms = busiest
    mean_rate = row["nic_bytes"] / (row["window_start"] * grain_seconds)
    busiest_rate = window["nic_bytes"] / (step_ms / 1000)
    return BrokerFigures(
        **{name: row[name] for name in (*_CARD, *_BYTES, "over_limit_seconds")},
        limit=limit,
        mean_rate=mean_rate,
        mean_share=share_of(mean_rate, limit),
        busiest_start=moment(window["window_start"]),
        busiest_seconds=step_ms // 1000,
        busiest_rate=busiest_rate,
        busiest_share=share_of(busiest_rate, limit),
        headroom_rate=None if limit is None else limit - busiest_rate,
    )


def _last_limits(table: pa.Table) -> Mapping[_Card, int]:
    """Of each card the limit of its last window that has one."""
    known = table.filter(pc.is_valid(table["limit"]))
    last = at_highest(known, _CARD, "window_start")
    rows = grouped(known, (*_CARD, "window_start"), Wanted(highest=("limit",)))
    return {_card(row): row["limit"] for row in rows if row["window_start"] == last[_card(row)]["window_start"]}
