"""Which hours a store lacks: not published, published before they were over, or published without the tables that are made of them.

A window that went out of retention is not missing. Nothing is read but manifests.
"""

from collections.abc import Iterator, Sequence

from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.lineage import outdated
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import RULES

_BY_HOUR = tuple(kind.name for kind in TABLES.values() if kind.published_ms == HOUR_MS)
_BY_DAY = tuple(kind.name for kind in TABLES.values() if kind.published_ms == DAY_MS)


def missing_hours(store: UsageStore, start_ms: int, end_ms: int) -> list[int]:
    """Starts of whole hours in [start_ms, end_ms) that a run should compute, oldest first.

    For a day whose hours are all there but whose own tables are not, that is its last hour. Raises what reading manifests raises.
    """
    hours = range(start_ms - start_ms % HOUR_MS, end_ms - end_ms % HOUR_MS, HOUR_MS)
    missing = {hour for table in _BY_HOUR for hour in _lacking(store, table, hours)}
    whole_days = range(hours.start - hours.start % DAY_MS, hours.stop - hours.stop % DAY_MS, DAY_MS)
    days = {day for table in _BY_DAY for day in _lacking(store, table, whole_days)}
    last_hours = {day + DAY_MS - HOUR_MS for day in days} & set(hours)
    return sorted(missing | last_hours)


def in_runs(hours: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The hours as spans of neighbours, none of which goes beyond its day: a run that is killed loses a day's work at most."""
    begin = None
    for hour in hours:
        begin = hour if begin is None else begin
        end = hour + HOUR_MS
        if end not in hours or end % DAY_MS == 0:
            yield begin, end
            begin = None


def _lacking(store: UsageStore, table: str, starts: range) -> set[int]:
    manifests = [one for one in store.manifests(table, starts.start, starts.stop) if not one.combines]
    whole = {one.window.start_ms for one in manifests if one.retired or one.published_at_ms >= one.window.end_ms}
    finer = sorted({rule.finer for rule in RULES if rule.coarser == table})
    whole -= {window.start_ms for window in outdated(store, table, finer, starts.start, starts.stop)}
    return {start_ms for start_ms in starts if start_ms not in whole}
