"""Sends a decision's writes to the quota store, batch by batch, and says honestly what became of them.

It decides nothing and repeats nothing: what was not applied is found again by the next look at the store. Being killed
anywhere in here is safe, because each entity changes together with its ledger record or not at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller_logic.model import QuotaWrite
from controller_logic.reasons import Reason
from tidegate.errors import RetryLater, TidegateError
from tidegate.kafka.quota_store import MAX_WRITES_PER_BATCH, QuotaStore, WriteOutcome


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the writes: `done` happened, `refused` did not (with outcome), `error` ended the sending early."""

    done: tuple[QuotaWrite, ...] = ()
    refused: tuple[WriteOutcome, ...] = ()
    error: TidegateError | None = None
    batches: int = 0

    @property
    def complete(self) -> bool:
        return self.error is None and not self.refused


@dataclass(slots=True)
class _Tally:
    done: list[QuotaWrite] = field(default_factory=list)
    refused: list[WriteOutcome] = field(default_factory=list)
    batches: int = 0


def apply_writes(writes: Sequence[QuotaWrite], store: QuotaStore, *, cluster_id: str, may_write: Callable[[], bool]) -> Applied:
    """Send the writes in order, at most 200 entities a transaction. `may_write` is asked before each batch (the Lease).

    Never raises a TidegateError: the first one ends the sending and is handed back with what was done until then.
    """
    tally = _Tally()
    for start in range(0, len(writes), MAX_WRITES_PER_BATCH):
        error = _send(writes[start : start + MAX_WRITES_PER_BATCH], store, cluster_id=cluster_id, may_write=may_write, tally=tally)
        if error is not None:
            return Applied(tuple(tally.done), tuple(tally.refused), error, tally.batches)
    return Applied(tuple(tally.done), tuple(tally.refused), None, tally.batches)


def _send(
    batch: Sequence[QuotaWrite], store: QuotaStore, *, cluster_id: str, may_write: Callable[[], bool], tally: _Tally
) -> TidegateError | None:
    if not may_write():
        return RetryLater(
            Reason.NOT_LEADER,
            "The Lease of this policy may be lost, so no further quota is written; the replica that holds it carries on",
        )
    try:
        outcomes = store.write(batch, cluster_id)
    except TidegateError as error:
        return error
    tally.batches += 1
    for write, outcome in zip(batch, outcomes, strict=True):
        if outcome.applied:
            tally.done.append(write)
        else:
            tally.refused.append(outcome)
    return None
