"""The write budget: how many entities may be changed in any quarter of an hour, since every notification costs all brokers.

A sliding window, not a bucket that refills (control.md 3.6 g). First writes, records and recoveries are free; of the
rest, the last fifth is kept for lowerings, so that raises can never use up what protects a broker.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller_logic.model import LedgerEntry, LedgerRecord, QuotaWrite, WriteKind
from controller_logic.quotas.values import number_of
from controller_logic.reasons import Reason

BUDGET_SECONDS = 15 * 60

Charged = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """Writes in sending order that fit the budget, those that do not, and when the first room appears (None = all fit)."""

    writes: tuple[QuotaWrite, ...]
    deferred: tuple[QuotaWrite, ...] = ()
    room_in_seconds: float | None = None


def in_sending_order(writes: Iterable[QuotaWrite]) -> list[QuotaWrite]:
    """Who starves first, then who must be protected, then the rest; within a kind users before their clients."""
    by_kind: dict[WriteKind, list[QuotaWrite]] = {kind: [] for kind in WriteKind}
    for write in writes:
        by_kind[write.kind].append(write)
    return [write for alike in by_kind.values() for write in sorted(alike, key=_by_entity)]


def _by_entity(write: QuotaWrite) -> str:
    return write.entity.sort_key


def admit(writes: Iterable[QuotaWrite], charged: Charged, limit: int, *, now_seconds: float) -> Admission:
    """Split writes into what fits now and what must wait. `charged` is what was spent, as `unexpired` gives it."""
    used = sum(count for _, count in charged)
    kept_for_lowerings = limit - limit * 4 // 5
    admitted: list[QuotaWrite] = []
    deferred: list[QuotaWrite] = []
    for write in in_sending_order(writes):
        if not write.charged:
            admitted.append(write)
        elif used < (limit if write.kind is WriteKind.LOWERING else limit - kept_for_lowerings):
            used += 1
            admitted.append(write)
        else:
            deferred.append(write)
    if not deferred:
        return Admission(tuple(admitted))
    oldest_seconds = charged[0][0] if charged else now_seconds
    return Admission(tuple(admitted), tuple(deferred), max(1.0, oldest_seconds + BUDGET_SECONDS - now_seconds))


def unexpired(charged: Charged, *, now_seconds: float) -> Charged:
    """What was spent within the last quarter of an hour, oldest first."""
    return tuple(spent for spent in charged if now_seconds - spent[0] < BUDGET_SECONDS)


def recovered(records: Iterable[LedgerRecord], *, now_seconds: float) -> Charged:
    """What the ledger shows as spent, for an operator whose memory is gone: each entity's latest charged write.

    A lower bound: earlier writes of the same entity and what was given back in full have left no trace.
    """
    times: dict[float, int] = {}
    for record in records:
        spent = _latest_charged(record, now_seconds)
        if spent is not None:
            times[spent] = times.get(spent, 0) + 1
    return tuple(sorted(times.items()))


def _latest_charged(record: LedgerRecord, now_seconds: float) -> float | None:
    latest: float | None = None
    for entry in record.entries.values():
        written_at = entry.written_at_seconds
        if 0 <= now_seconds - written_at < BUDGET_SECONDS and (latest is None or written_at > latest) and not _was_free(entry):
            latest = written_at
    return latest


def _was_free(entry: LedgerEntry) -> bool:
    """A record, a first write (what stood there before us was still there), or a recovery."""
    if entry.previous in (entry.written, entry.before):
        return True
    raised = (number_of(entry.previous) or 0) < (number_of(entry.written) or 0)
    return raised and entry.reason is Reason.LEADERS_MOVED


def spend(charged: Charged, writes: Sequence[QuotaWrite], *, now_seconds: float) -> Charged:
    """The budget after these writes were really applied."""
    count = sum(write.charged for write in writes)
    kept = unexpired(charged, now_seconds=now_seconds)
    return (*kept, (now_seconds, count)) if count else kept
