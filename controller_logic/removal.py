"""Whether quotas may be given back in this pass: a mistake that empties a list must not free a whole cluster at once.

What is being given back in steps already was decided earlier and is never held up. A policy that is being deleted is
not capped, because deleting it is explicit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controller_logic.contracts.targets import Promise, is_lent
from controller_logic.decision import Memory, Note
from controller_logic.model import MAX_BYTE_RATE, Entity, LedgerEntry, Policy, StoredQuota
from controller_logic.reasons import Reason


@dataclass(frozen=True, slots=True)
class Removal:
    """Which entities would lose a quota of ours (`held` = and must not yet), with the note that says so."""

    held: frozenset[Entity] = frozenset()
    confirmed: frozenset[Entity] = frozenset()
    note: Note | None = None


def judge(policy: Policy, leaving: frozenset[Entity], managed: int, memory: Memory) -> Removal:
    """Hold all of `leaving` if it is more than the policy's share of the `managed` entities and nobody confirmed the count.

    A confirmation lasts until the confirmed entities are gone, over as many passes as steps and budget need; it is lost
    with the memory, and then asked for again with the count that is left.
    """
    if policy.deleting or len(leaving) * 100 <= policy.max_removal_percent * managed:
        return Removal()
    if policy.confirmed_removals == len(leaving) or leaving <= memory.confirmed_removals:
        return Removal(confirmed=leaving)
    return Removal(held=leaving, note=_held_note(policy, len(leaving), managed))


def loses_a_key(stored: StoredQuota, promise: Promise) -> bool:
    """Whether the ledger has a key that nobody wants any more; a throttle that ends where nothing is promised takes nothing away."""
    if stored.ledger is None:
        return False
    return any(key not in promise.keys and entry.of_contract is None for key, entry in stored.ledger.entries.items())


def leaving_entities(losing: Iterable[tuple[StoredQuota, Promise]]) -> frozenset[Entity]:
    """Those of the entities that lose a key of ours for which it is new: no such key is on its way back already."""
    leaving = []
    for stored, promise in losing:
        entries = stored.ledger.entries if stored.ledger is not None and stored.problem is None else {}
        if any(_frees_somebody(entries[key]) for key in entries.keys() - promise.keys):
            leaving.append(stored.entity)
    return frozenset(leaving)


def _frees_somebody(entry: LedgerEntry) -> bool:
    """Not what is on its way back already, nor a quota that never binds (see `metering.py`), nor what an override lent."""
    return entry.reason is not Reason.GIVEN_BACK and entry.written != str(MAX_BYTE_RATE) and not is_lent(entry.basis)


def _held_note(policy: Policy, count: int, managed: int) -> Note:
    namespace, _, name = policy.key.rpartition("/")
    command = f"kubectl annotate bbp {name} -n {namespace} tidegate.io/confirm-removal={count} --overwrite"
    message = (
        f"{count} of {managed} managed quotas would be given back at once, more than removal.maxPercentPerPass "
        f"({policy.max_removal_percent} %) allows; none of them is, all others follow their contracts. "
        f"If this is meant, confirm the count: {command}"
    )
    return Note(Reason.REMOVAL_HELD, message)
