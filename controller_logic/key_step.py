"""The next step of one quota key: what stands, what should stand, what the ledger says, and so what to write now.

A key is followed (towards a target) or given back (towards what stood there before Tidegate). Both ways lower byte rates
through the mute guard only. Whether an entity may be written at all, and what the budget allows, is decided elsewhere.
"""

from dataclasses import dataclass, replace

from controller_logic.desired import Target
from controller_logic.model import BYTE_RATE_KEYS, LedgerEntry, QuotaKey, WriteKind
from controller_logic.mute_guard import MuteGuard, Step
from controller_logic.quota_text import enforced_rate, number_of, same_quota
from controller_logic.reasons import Reason


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What holds for every key of one pass."""

    now_seconds: float
    minimum_change_percent: int
    guard: MuteGuard


@dataclass(frozen=True, slots=True)
class KeyStep:
    """One key after the pass. `kind` None = nothing is written for it.

    `text` is what will stand in Kafka (None = no quota), `seen` what stands there now, `entry` the ledger's entry after the
    write (None = the key is not ours any more). `arrived` is true when nothing is left to do. `due_in_seconds` says when the next
    step may follow; `because` is the cause of the write, or why there is none although the key has not arrived;
    `disturbed` is set where another writer's value is left to them.
    """

    key: QuotaKey
    seen: str | None
    text: str | None
    entry: LedgerEntry | None
    because: Reason
    kind: WriteKind | None = None
    charged: bool = False
    arrived: bool = True
    due_in_seconds: float | None = None
    predicted_mute_seconds: float = 0.0
    disturbed: bool = False

    @property
    def changes_quota(self) -> bool:
        return self.kind is not None and self.text != self.seen


def is_disturbed(entry: LedgerEntry | None, seen: str | None) -> bool:
    """Whether another writer changed the key since we wrote it."""
    return entry is not None and not same_quota(entry.written, seen)


def follow(key: QuotaKey, target: Target, seen: str | None, entry: LedgerEntry | None, *, rules: KeyRules) -> KeyStep:
    """The step towards a target. An equal number is never rewritten; the ledger learns that it is ours, if it does not know."""
    if seen == target.text or same_quota(seen, target.text):
        return _already_there(key, target, seen, entry, rules=rules)
    cause = _cause(target, seen, entry)
    if not target.certain and not _is_raise(seen, target):
        return KeyStep(key, seen, seen, entry, Reason.TOPOLOGY_INCOMPLETE, arrived=False)
    finishing = entry is not None and entry.reason is Reason.STEPPING
    if cause is Reason.LEADERS_MOVED and not finishing and _is_small(target, seen, rules.minimum_change_percent):
        return KeyStep(key, seen, seen, entry, Reason.MINIMUM_CHANGE)
    present = enforced_rate(seen) if key in BYTE_RATE_KEYS else None
    if present is not None and target.value < present:
        return _lower(key, target, seen, entry, rules=rules, cause=cause)
    written = _entry(target.text, seen, entry, rules=rules, reason=cause, basis=target.basis)
    kind, charged = _kind(cause, raises=_is_raise(seen, target))
    return KeyStep(key, seen, target.text, written, cause, kind, charged)


def give_back(key: QuotaKey, seen: str | None, entry: LedgerEntry, *, rules: KeyRules) -> KeyStep:
    """The step back to what stood there before us. If somebody changed the key since, theirs stays and the key is theirs."""
    disturbed = is_disturbed(entry, seen)
    if disturbed or seen == entry.before:
        return KeyStep(key, seen, seen, None, Reason.GIVEN_BACK, WriteKind.RECORD, disturbed=disturbed and seen != entry.before)
    present = enforced_rate(seen) if key in BYTE_RATE_KEYS else None
    goal = enforced_rate(entry.before)
    if present is None or goal is None or goal >= present:
        return KeyStep(key, seen, entry.before, None, Reason.GIVEN_BACK, WriteKind.GIVE_BACK, charged=True)
    step = rules.guard.step(goal, present, entry, now_seconds=rules.now_seconds)
    if step.value == present:
        return _waiting(key, seen, entry, step)
    if step.value == goal:
        text, left = entry.before, None
    else:
        text = str(step.value)
        left = _entry(text, seen, entry, rules=rules, reason=Reason.GIVEN_BACK, basis=entry.basis)
    return _lowered(KeyStep(key, seen, text, left, Reason.GIVEN_BACK, WriteKind.GIVE_BACK, True, left is None), step, rules)


def _already_there(key: QuotaKey, target: Target, seen: str | None, entry: LedgerEntry | None, *, rules: KeyRules) -> KeyStep:
    if entry is not None and (entry.written == seen or same_quota(entry.written, seen)):
        return KeyStep(key, seen, seen, entry, Reason.IN_SYNC)
    recorded = _entry(seen, seen, entry, rules=rules, reason=Reason.CONTRACT, basis=target.basis)
    return KeyStep(key, seen, seen, recorded, Reason.CONTRACT, WriteKind.RECORD)


def _lower(key: QuotaKey, target: Target, seen: str | None, entry: LedgerEntry | None, *, rules: KeyRules, cause: Reason) -> KeyStep:
    present = enforced_rate(seen) or 0
    step = rules.guard.step(target.value, present, entry, now_seconds=rules.now_seconds)
    if step.value == present:
        if step.wait_seconds or not is_disturbed(entry, seen):
            return _waiting(key, seen, entry, step)
        return _accepted_on_the_way(key, target, seen, entry, rules=rules)
    arrived = step.value == target.value
    text = target.text if arrived else str(step.value)
    kind, charged = _kind(cause, raises=False)
    reason = cause if arrived else Reason.STEPPING
    written = _entry(text, seen, entry, rules=rules, reason=reason, basis=target.basis)
    because = cause if cause is Reason.REPAIRED else reason
    return _lowered(KeyStep(key, seen, text, written, because, kind, charged, arrived), step, rules)


def _lowered(lowering: KeyStep, step: Step, rules: KeyRules) -> KeyStep:
    due_in_seconds = None if lowering.arrived else float(rules.guard.step_distance_seconds)
    predicted = rules.guard.predicted_mute_seconds(step)
    return replace(lowering, due_in_seconds=due_in_seconds, predicted_mute_seconds=predicted)


def _waiting(key: QuotaKey, seen: str | None, entry: LedgerEntry | None, step: Step) -> KeyStep:
    """Nothing now: the next step is due later, or (no wait) the policy's bound allows no step at all."""
    reason = Reason.STEPPING if step.wait_seconds else Reason.INVALID_SPEC
    return KeyStep(key, seen, seen, entry, reason, arrived=False, due_in_seconds=step.wait_seconds or None)


def _accepted_on_the_way(key: QuotaKey, target: Target, seen: str | None, entry: LedgerEntry | None, *, rules: KeyRules) -> KeyStep:
    """Another writer went lower than a safe step from our value: note theirs as a step, and go on from it when it is safe."""
    noted = _entry(seen, entry.written if entry else None, entry, rules=rules, reason=Reason.STEPPING, basis=target.basis)
    due_in_seconds = float(rules.guard.step_distance_seconds)
    return KeyStep(key, seen, seen, noted, Reason.REPAIRED, WriteKind.RECORD, arrived=False, due_in_seconds=due_in_seconds)


def _cause(target: Target, seen: str | None, entry: LedgerEntry | None) -> Reason:
    if entry is None:
        return Reason.FIRST_QUOTA
    if is_disturbed(entry, seen):
        return Reason.REPAIRED
    if entry.basis != target.basis:
        return Reason.CONTRACT_CHANGED
    on_its_way_down = entry.reason is Reason.STEPPING and not _is_raise(seen, target)
    return Reason.CONTRACT if on_its_way_down or entry.reason is Reason.GIVEN_BACK else Reason.LEADERS_MOVED


def _kind(cause: Reason, *, raises: bool) -> tuple[WriteKind, bool]:
    """The kind of a write and whether the budget pays: a first write and a recovery are free (control.md 3.6 e)."""
    if cause is Reason.FIRST_QUOTA:
        return WriteKind.FIRST, False
    if not raises:
        return WriteKind.LOWERING, True
    return (WriteKind.RECOVERY, False) if cause is Reason.LEADERS_MOVED else (WriteKind.RAISE, True)


def _is_raise(seen: str | None, target: Target) -> bool:
    """Whether the target allows more than what stands; from unlimited nothing is a raise."""
    present = number_of(seen)
    return present is not None and 0 < present < target.value


def _is_small(target: Target, seen: str | None, minimum_change_percent: int) -> bool:
    present = number_of(seen)
    return present is not None and abs(target.value - present) * 100 < minimum_change_percent * present


def _entry(
    written: str | None, previous: str | None, entry: LedgerEntry | None, *, rules: KeyRules, reason: Reason, basis: str
) -> LedgerEntry:
    before = previous if entry is None else entry.before
    return LedgerEntry(before, written, previous, rules.now_seconds, reason, basis)
