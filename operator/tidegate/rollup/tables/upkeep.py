"""What a run does for the store once its windows are published: put ended days together, let old windows go, remove garbage.

Each of it may be cut short or left out; the next run takes it up. It changes where rows lie and never what they say.
"""

from dataclasses import dataclass

from tidegate.rollup.schemas import HOUR_MS, TABLES
from tidegate.rollup.tables.cleanup import Swept, sweep
from tidegate.rollup.tables.compaction import compact_days
from tidegate.rollup.tables.retention import Retention, retire
from tidegate.rollup.tables.staging import discard_staging
from tidegate.rollup.tables.store import UsageStore

SETTLED_MS = 3 * HOUR_MS  # after its end, a day's last hours have been rolled up again for late samples


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done: days put together, windows let go, and what was removed."""

    days: int
    retired: int
    swept: Swept


def keep_up(store: UsageStore, retention: Retention, *, run_id: str, now_ms: int) -> Upkeep:
    """Do all of it, and drop what this run staged. Call it after the last publication of the run.

    Raises RetryLater where the storage does not answer, NeedsMending for tables that are damaged or of another version; what is published
    stays.
    """
    discard_staging(store, run_id)
    days = [day for table in TABLES for day in compact_days(store, table, before_ms=now_ms - SETTLED_MS, run_id=run_id, now_ms=now_ms)]
    retired = retire(store, retention, run_id=run_id, now_ms=now_ms)
    return Upkeep(len(days), len(retired), sweep(store, now_ms=now_ms))
