"""The tables cut to the period of a report, and whether the 5-minute ones tell of all of it."""

from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import InvalidResource
from tidegate.rollup.report.finer_usage import in_tiers_of_hours
from tidegate.rollup.report.grouping import windows_of, within
from tidegate.rollup.report.request import GRAIN_WORDS, ReportRequest, moment
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

_SHORT_MS = 6 * HOUR_MS  # 72 windows of 5 minutes: bars that a finger still hits, and figures below that one can read through


@dataclass(frozen=True, slots=True)
class PeriodTables:
    """Tables whose `window_start` is whole milliseconds within the period. The 5-minute ones are None unless they cover all of it."""

    start_ms: int
    end_ms: int
    grain_ms: int
    usage: pa.Table
    brokers: pa.Table
    tiers: pa.Table
    usage_5m: pa.Table | None
    broker_5m: pa.Table | None

    @property
    def is_short(self) -> bool:
        """Whether it is drawn by the shortest windows that there are."""
        return self.end_ms - self.start_ms <= _SHORT_MS

    @property
    def drawn_usage(self) -> tuple[pa.Table, int]:
        """Usage with tiers for what is drawn over time, and how long its windows are in ms. Either way it is the same bytes."""
        told = self.usage_5m if self.is_short else None
        finer = None if told is None else in_tiers_of_hours(told, self.usage, start_ms=self.start_ms)
        return (self.usage, self.grain_ms) if finer is None else (finer, FIVE_MINUTES_MS)

    @property
    def finest_brokers(self) -> tuple[pa.Table, int]:
        """The broker table with the shortest windows, and how long they are in ms."""
        return (self.brokers, self.grain_ms) if self.broker_5m is None else (self.broker_5m, FIVE_MINUTES_MS)

    @property
    def windows_with_rows(self) -> int:
        return len(windows_of(self.usage, self.grain_ms, origin_ms=self.start_ms))


def period_tables(request: ReportRequest) -> PeriodTables:
    """Raises InvalidResource where the period is empty or cuts a window in two: half of its bytes cannot be told."""
    _check(request)
    start_ms, end_ms, tables = request.start_ms, request.end_ms, request.tables
    usage, brokers, tiers = (within(table, start_ms, end_ms) for table in (tables.usage, tables.brokers, tables.tiers))
    return PeriodTables(
        *(start_ms, end_ms, tables.grain_ms, usage, brokers, tiers),
        usage_5m=_covering(tables.usage_5m, usage, request),
        broker_5m=_covering(tables.broker_5m, brokers, request),
    )


def _covering(finer: pa.Table | None, table: pa.Table, request: ReportRequest) -> pa.Table | None:
    """The finer table, if it has rows in every window in which the coarser one has some."""
    if finer is None:
        return None
    grain_ms, start_ms = request.tables.grain_ms, request.start_ms
    cut = within(finer, start_ms, request.end_ms)
    missing = windows_of(table, grain_ms, origin_ms=start_ms) - windows_of(cut, grain_ms, origin_ms=start_ms)
    return None if missing else cut


def _check(request: ReportRequest) -> None:
    start_ms, end_ms, grain_ms = request.start_ms, request.end_ms, request.tables.grain_ms
    if start_ms >= end_ms:
        raise InvalidResource(f"The report's period is empty: it ends at {moment(end_ms)} and begins at {moment(start_ms)}.")
    if start_ms % grain_ms or end_ms % grain_ms:
        raise InvalidResource(
            f"The report's period {moment(start_ms)} to {moment(end_ms)} must begin and end with a whole {GRAIN_WORDS[grain_ms]} of UTC, "
            "because the tables hold no parts of one."
        )
