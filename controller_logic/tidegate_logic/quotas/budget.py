"""The write budget: how many entities may change per period; each change notifies all brokers.

A sliding window, not a bucket that refills (control.md 3.6 g). First writes, records and recoveries
are free; of the rest, the last fifth is kept for lowerings, so that raises can never use up what
protects a broker. What only notifies brokers of quotas that stand as they should has half of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from operator import attrgetter
from typing import TypeVar

from tidegate_logic.model import (
    Entity,
    LedgerEntry,
    LedgerRecord,
    QuotaKey,
    QuotaWindow,
    QuotaWrite,
    WriteKind,
)
from tidegate_logic.quota_values import number_of
from tidegate_logic.quotas.leaving import Unwanted
from tidegate_logic.quotas.steps import FREE_RAISES

Charged = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """Writes in sending order that fit the budget, those that do not, and when room appears.

    `room_in_seconds` None = all fit.
    """

    writes: tuple[QuotaWrite, ...]
    deferred: tuple[QuotaWrite, ...] = ()
    room_in_seconds: float | None = None


_BY_ENTITY = attrgetter("entity.sort_key")


def in_sending_order(writes: Iterable[QuotaWrite]) -> list[QuotaWrite]:
    """Who starves first, then who must be protected, by `WriteKind`; users before their clients."""
    by_kind: dict[WriteKind, list[QuotaWrite]] = {kind: [] for kind in WriteKind}
    for write in writes:
        by_kind[write.kind].append(write)
    return [write for alike in by_kind.values() for write in sorted(alike, key=_BY_ENTITY)]


def admit(
    writes: Iterable[QuotaWrite],
    charged: Charged,
    limit: int,
    *,
    period_seconds: float,
    now_seconds: float,
) -> Admission:
    """Split writes into what fits now and what waits; `charged` as `unexpired` gives it."""
    used = sum(count for _, count in charged)
    kept_for_lowerings = limit - limit * 4 // 5
    for_notifications = limit // 2
    admitted: list[QuotaWrite] = []
    deferred: list[QuotaWrite] = []
    for write in in_sending_order(writes):
        if not write.charged:
            admitted.append(write)
        elif write.notifies and not write.values:
            if used < for_notifications:
                used += 1
                admitted.append(write)
            elif write.kind is not WriteKind.NOTIFY:  # the record at least; brokers come later
                admitted.append(replace(write, charged=False, notifies=False))
        elif used < (limit if write.kind is WriteKind.LOWERING else limit - kept_for_lowerings):
            used += 1
            admitted.append(write)
        else:
            deferred.append(write)
    if not deferred:
        return Admission(tuple(admitted))
    oldest_seconds = charged[0][0] if charged else now_seconds
    return Admission(
        tuple(admitted), tuple(deferred), max(1.0, oldest_seconds + period_seconds - now_seconds)
    )


NOTIFICATIONS_A_MINUTE = 20  # of those that only notify brokers; each makes all brokers read
NOTIFY_PERIOD_SECONDS = 60.0


def due_notifications(
    writes: Iterable[QuotaWrite], sent: Charged | None, *, now_seconds: float
) -> tuple[tuple[QuotaWrite, ...], Charged]:
    """Those that may go now, and what was sent in the last minute.

    None = not known, since the process has just begun: none goes for a minute, so that one which
    begins again and again disturbs nobody.
    """
    if sent is None:
        return (), ((now_seconds, NOTIFICATIONS_A_MINUTE),)
    sent = unexpired(sent, period_seconds=NOTIFY_PERIOD_SECONDS, now_seconds=now_seconds)
    left = NOTIFICATIONS_A_MINUTE - sum(count for _, count in sent)
    return tuple(sorted(writes, key=_BY_ENTITY)[: max(0, left)]), sent


def unexpired(charged: Charged, *, period_seconds: float, now_seconds: float) -> Charged:
    """Writes charged within the last period, oldest first.

    Those that lie in the future, because the clock was set back, count as spent now: they expire
    after one more period at most.
    """
    return tuple(
        (min(at_seconds, now_seconds), count)
        for at_seconds, count in charged
        if now_seconds - at_seconds < period_seconds
    )


def recovered(
    records: Iterable[LedgerRecord], *, period_seconds: float, now_seconds: float
) -> Charged:
    """What the ledger shows as spent, without memory: each entity's latest charged write.

    A lower bound: earlier writes of the same entity, and quotas restored in full, left no trace.
    """
    times: dict[float, int] = {}
    for record in records:
        spent = _latest_charged(record, period_seconds, now_seconds)
        if spent is not None:
            times[spent] = times.get(spent, 0) + 1
    return tuple(sorted(times.items()))


def _latest_charged(
    record: LedgerRecord, period_seconds: float, now_seconds: float
) -> float | None:
    latest: float | None = None
    for entry in record.entries.values():
        written_at = entry.written_at_seconds
        if (
            0 <= now_seconds - written_at < period_seconds
            and (latest is None or written_at > latest)
            and not _was_free(entry)
        ):
            latest = written_at
    return latest


def _was_free(entry: LedgerEntry) -> bool:
    """A record, a first write (what stood there before us was still there), or a recovery."""
    if entry.previous in (entry.written, entry.before):
        return True
    raised = (number_of(entry.previous) or 0) < (number_of(entry.written) or 0)
    return raised and entry.reason in FREE_RAISES


def spend(charged: Charged, writes: Sequence[QuotaWrite], *, now_seconds: float) -> Charged:
    """The budget after these writes were really applied."""
    count = sum(write.charged for write in writes)
    return (*charged, (now_seconds, count)) if count else charged


# How many writes of the throttle go out now: spread, so that clients do not burst in step.
#
# Cut in one moment, thirty flat-out clients sent their next window in the same second, 3.6 times
# the NIC's mean and more. Writes go one by one, the last of many one sawtooth period after the
# first (the rhythm of a throttled client), but no slower than one in each sample of the window.
# Those that are due within half a sample share a pass. Recoveries and contracts that follow leaders
# are not held up here.


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class WritePace:
    """A spread under way: the next write goes at `next_at_seconds`, the others `gap_seconds` apart.

    `left` were still waiting after the last one. It is over when a window has gone by since.
    """

    gap_seconds: float
    next_at_seconds: float
    left: int


@dataclass(frozen=True, slots=True)
class Paced:
    """How many of the waiting go now, and how soon the next slot comes (None = none is left)."""

    now: int
    due_in_seconds: float | None
    pace: WritePace | None


def paced(
    waiting: Sequence[Item], pace: WritePace | None, window: QuotaWindow, *, now_seconds: float
) -> Paced:
    """The share of `waiting` that goes now; all are gone after one sawtooth period."""
    count = len(waiting)
    if pace is not None and abs(now_seconds - pace.next_at_seconds) > window.seconds:
        pace = None  # an old spread, or a clock that was set back
    if not count:
        return Paced(0, None, None if pace is None else replace(pace, left=0))
    gap_seconds, next_at_seconds = _going(count, pace, window, now_seconds=now_seconds)
    late_seconds = now_seconds - next_at_seconds
    due = min(count, 1 + floor(late_seconds / gap_seconds)) if late_seconds >= 0 else 0
    next_at_seconds += due * gap_seconds
    again_seconds = (
        max(next_at_seconds - now_seconds, window.sample_seconds / 2) if due < count else None
    )
    return Paced(due, again_seconds, WritePace(gap_seconds, next_at_seconds, count - due))


def _going(
    count: int, pace: WritePace | None, window: QuotaWindow, *, now_seconds: float
) -> tuple[float, float]:
    """The gap between two writes, and when the next one goes.

    Time in which nothing waited is no credit for those who come later.
    """
    gap_seconds = min(float(window.sample_seconds), window.sawtooth_period_seconds / count)
    if pace is None:
        return gap_seconds, now_seconds
    if not pace.left:
        return gap_seconds, max(now_seconds, pace.next_at_seconds)
    return min(gap_seconds, pace.gap_seconds), pace.next_at_seconds


@dataclass(frozen=True, slots=True)
class RemovalMemory:
    """What the guard against mass removals remembers of the last quarter of an hour.

    `managed` has (time, count of managed entities), oldest and highest first; `left` since when
    each entity that was let go is leaving; `confirmed` are the quotas that a person confirmed for
    removal and that are not all restored yet; `used` is the confirmation that was used last.
    `unwanted` is how long each quota was seen without a contract (see `leaving.py`); none of it is
    kept over a pass that may not know all members.
    """

    managed: tuple[tuple[float, int], ...] = ()
    left: Mapping[Entity, float] = field(default_factory=dict)
    confirmed: frozenset[tuple[Entity, QuotaKey]] = frozenset()
    used: str = ""
    unwanted: Unwanted = field(default_factory=dict)
