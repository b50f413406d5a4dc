"""The next step of one quota key, from what stands, what should stand and what the ledger says.

A key is followed (towards a target) or restored (towards what stood there before Tidegate). Both
ways lower byte rates through the mute guard only. Whether an entity may be written at all, and what
the budget allows, is decided elsewhere.

A quota where none was in force steps down from what its clients may have sent, where that is known
or to be feared (see `sent_rates.py`); else it is set at once. In force counts also what a default
entity says for the very same bucket, for there the same window goes on.
"""

from dataclasses import dataclass, replace

from tidegate_logic.contracts.targets import (
    Target,
    Throttled,
    by_reads,
    promised_by,
    racks_edited,
)
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    MIN_BYTE_RATE,
    LedgerEntry,
    Policy,
    QuotaKey,
    QuotaWindow,
    WriteKind,
)
from tidegate_logic.quota_values import enforced_rate, number_of, same_quota
from tidegate_logic.quotas.mute import largest_safe_step, predicted_mute_seconds
from tidegate_logic.quotas.precedence import InheritedQuota
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value

# How far and how soon a byte rate may be lowered, so that no client is muted for long.
#
# A broker mutes a client for bytes that it sent under the old quota, and no later raise frees it
# (control.md 0.2). So a lowering goes down in steps, each bounded by the highest quota that was in
# force while the window filled. The ledger carries what is needed, so a restarted operator goes on
# where the last one stopped. Not guarded: a quota where none was in force and nothing is known of
# what its clients send.


@dataclass(frozen=True, slots=True)
class MuteGuard:
    """The bounds of one policy: how long a client may be muted, given the brokers' quota window."""

    max_mute_seconds: int
    window: QuotaWindow
    step_distance_seconds: int

    @classmethod
    def of(cls, policy: Policy) -> "MuteGuard":
        return cls(policy.max_mute_seconds, policy.window, policy.window.step_distance_seconds)

    def step(
        self, target: int, in_force: int, entry: LedgerEntry | None, *, now_seconds: float
    ) -> "Step":
        """The next value on the way from `in_force` down to `target` (bytes/s), or the wait for it.

        `entry` is our last write of the key, None if there was none. From 1024 B/s and less the way
        is free: only quotas that stood there before us are that small, and whole bytes per second
        are too coarse to step among them. A value equal to `in_force` means that no step is safe:
        the policy allows shorter mutes than one sample of the window.
        """
        wait_seconds = self.wait_seconds(entry, now_seconds=now_seconds)
        if wait_seconds > 0:
            return Step(in_force, in_force, wait_seconds)
        exposure = max(in_force, _recent_rate(entry))
        if exposure <= MIN_BYTE_RATE:
            return Step(target, exposure)
        value = max(target, largest_safe_step(exposure, self.max_mute_seconds, self.window))
        if value != target:  # a value of ours, of which none is so small that stores refuse it
            value = max(value, MIN_BYTE_RATE)
        return Step(min(in_force, value), exposure)

    def wait_seconds(self, entry: LedgerEntry | None, *, now_seconds: float) -> float:
        """How long until the key may be lowered again: a step distance after our last change.

        Else 0. After a raise too: the burst that it allowed is then still in the window. A change
        that lies in the future by more than a step distance was stamped by a wrong clock, and does
        not hold anything up.
        """
        if entry is None or same_quota(entry.previous, entry.written):
            return 0.0
        since_seconds = now_seconds - entry.written_at_seconds
        if since_seconds < -self.step_distance_seconds:
            return 0.0
        return max(
            0.0, min(self.step_distance_seconds - since_seconds, float(self.step_distance_seconds))
        )

    def predicted_mute_seconds(self, step: "Step") -> float:
        return predicted_mute_seconds(step.exposure, step.value, self.window)


@dataclass(frozen=True, slots=True)
class Step:
    """One lowering to `value` (bytes/s) from a window that may hold `exposure`, or only a wait."""

    value: int
    exposure: int
    wait_seconds: float = 0.0


def _recent_rate(entry: LedgerEntry | None) -> int:
    """What we wrote last: it may have filled the window before another writer changed it."""
    if entry is None:
        return 0
    return enforced_rate(entry.written) or 0


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What holds for every key of one pass.

    `selection_known` is false while it is not known whether consumers read from followers.
    """

    now_seconds: float
    minimum_change_percent: int
    guard: MuteGuard
    selection_known: bool = True


@value(frozen=True, slots=True)
class KeyState:
    """One key as it stands: its text in Kafka (None = none), our ledger entry, the default's.

    `sent` is what clients may have sent lately in bytes/s where no rate was in force; None = that
    is not known, and nothing is to step down from.
    """

    key: QuotaKey
    seen: str | None
    entry: LedgerEntry | None
    inherited: InheritedQuota | None = None
    sent: int | None = None

    @property
    def rate_in_force(self) -> int | None:
        """The byte rate the bucket is held to; None = none is known, or the key is no byte rate."""
        if self.key not in BYTE_RATE_KEYS:
            return None
        if self.seen is None and self.inherited is not None:
            return enforced_rate(self.inherited.text)
        return enforced_rate(self.seen)

    @property
    def disturbed(self) -> bool:
        return is_disturbed(self.entry, self.seen)

    @property
    def last_change(self) -> LedgerEntry | None:
        """Our last write of what is in force now."""
        return (
            self.inherited.entry if self.seen is None and self.inherited is not None else self.entry
        )

    @property
    def rate_when_given_back(self) -> int | None:
        """The byte rate that will hold the bucket once we have let go; None = none is known."""
        before = self.entry.before if self.entry is not None else None
        if before is None and self.inherited is not None:
            return enforced_rate(self.inherited.text)
        return enforced_rate(before)


@value(frozen=True, slots=True)
class KeyStep:
    """One key after the pass. `kind` None = nothing is written for it.

    `text` is what will stand in Kafka (None = no quota), `seen` what stands there now, `entry` the
    ledger's entry after the write (None = nothing of the key is known any more). `arrived` is true
    when nothing is left to do. `due_in_seconds` says when the next step may follow; `because` is
    the cause of the write, or why there is none although the key has not arrived; `left_to_others`
    is set where another writer changed a key that we let go: theirs stays.
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
    left_to_others: bool = False

    @property
    def changes_quota(self) -> bool:
        return self.kind is not None and self.text != self.seen


def is_disturbed(entry: LedgerEntry | None, seen: str | None) -> bool:
    """Whether another writer changed the key since we wrote it."""
    return entry is not None and not same_quota(entry.written, seen)


def follow(standing: KeyState, target: Target, rules: KeyRules) -> KeyStep:
    """The step towards a target. An equal number is not rewritten, at most recorded as ours."""
    if same_quota(standing.seen, target.text):
        return _already_there(standing, target, rules)
    cause = _cause(standing, target)
    raises = _is_raise(standing.seen, target)
    if not raises and (not target.certain or _may_stand_on_reads(standing, rules)):
        return _kept(standing, Reason.TOPOLOGY_INCOMPLETE)
    finishing = standing.entry is not None and standing.entry.reason is Reason.STEPPING
    if (
        cause is Reason.LEADERS_MOVED
        and not finishing
        and _is_small(target, standing.seen, rules.minimum_change_percent)
    ):
        return _kept(standing, Reason.MINIMUM_CHANGE)
    if target.throttle is not None:
        return _throttle(standing, target, target.throttle, rules=rules, cause=cause)
    in_force = standing.rate_in_force
    if in_force is not None and target.value < in_force:
        return _lower(standing, target, in_force, rules=rules, cause=cause)
    if in_force is None and standing.sent is not None and target.value < standing.sent:
        step = rules.guard.step(target.value, standing.sent, None, now_seconds=rules.now_seconds)
        if step.value < standing.sent:  # else the policy allows no safe step, and one is as good
            return _step_down(standing, target, step, rules=rules, cause=cause)
    kind, charged = _kind(cause, raises=raises)
    entry = _entry(standing, target.text, rules=rules, reason=cause, basis=target.basis)
    return KeyStep(standing.key, standing.seen, target.text, entry, cause, kind, charged)


def give_back(standing: KeyState, rules: KeyRules) -> KeyStep:
    """The step back to what stood there before us.

    If another writer changed the key since, theirs stays and the key is theirs. Raises ValueError
    for a key that the ledger does not show as ours.
    """
    entry = standing.entry
    if entry is None:
        raise ValueError(f"{standing.key} is not in the ledger, so there is nothing to restore")
    if standing.disturbed or standing.seen == entry.before:
        others = standing.seen != entry.before
        return KeyStep(
            standing.key,
            standing.seen,
            standing.seen,
            None,
            Reason.GIVEN_BACK,
            WriteKind.RECORD,
            left_to_others=others,
        )
    in_force, goal = standing.rate_in_force, standing.rate_when_given_back
    if in_force is None or goal is None or goal >= in_force:
        return KeyStep(
            standing.key,
            standing.seen,
            entry.before,
            None,
            Reason.GIVEN_BACK,
            WriteKind.GIVE_BACK,
            charged=True,
        )
    return _lower_back(standing, entry, in_force, goal=goal, rules=rules)


def _lower_back(
    standing: KeyState, entry: LedgerEntry, in_force: int, *, goal: int, rules: KeyRules
) -> KeyStep:
    step = rules.guard.step(goal, in_force, entry, now_seconds=rules.now_seconds)
    if step.value == in_force:
        return _waiting(standing, step)
    text, left = entry.before, None
    if step.value != goal:
        text = str(step.value)
        left = _entry(standing, text, rules=rules, reason=Reason.GIVEN_BACK, basis=entry.basis)
    returned = KeyStep(
        standing.key,
        standing.seen,
        text,
        left,
        Reason.GIVEN_BACK,
        WriteKind.GIVE_BACK,
        True,
        left is None,
    )
    return _lowered(returned, step, rules)


def _throttle(
    standing: KeyState, target: Target, throttle: Throttled, *, rules: KeyRules, cause: Reason
) -> KeyStep:
    """The value is final: the throttle knows what the windows hold, which the guard does not."""
    in_force = standing.rate_in_force
    raises = in_force is not None and target.value > in_force
    kind, charged = _kind(cause, raises=raises)
    entry = replace(
        _entry(standing, target.text, rules=rules, reason=cause, basis=target.basis),
        of_contract=throttle.contract,
    )
    mute_seconds = 0.0 if raises else throttle.predicted_mute_seconds
    return KeyStep(
        standing.key,
        standing.seen,
        target.text,
        entry,
        cause,
        kind,
        charged,
        predicted_mute_seconds=mute_seconds,
    )


def is_recorded(entry: LedgerEntry, target: Target) -> bool:
    """Whether the ledger knows that the value is a throttle, or that it is none."""
    return (entry.of_contract is None) is (target.throttle is None)


def _already_there(standing: KeyState, target: Target, rules: KeyRules) -> KeyStep:
    entry, throttle = standing.entry, target.throttle
    # another writer's value, until it is safe to put ours back
    waits = throttle is not None and standing.disturbed
    if entry is not None and (waits or not standing.disturbed) and is_recorded(entry, target):
        return _kept(standing, Reason.IN_SYNC)
    reason = Reason.CONTRACT if throttle is None else Reason.THROTTLED
    recorded = _entry(standing, standing.seen, rules=rules, reason=reason, basis=target.basis)
    recorded = recorded if throttle is None else replace(recorded, of_contract=throttle.contract)
    return KeyStep(standing.key, standing.seen, standing.seen, recorded, reason, WriteKind.RECORD)


def _kept(standing: KeyState, because: Reason) -> KeyStep:
    """No write. The key has arrived, also within the minimum change; not if leaders are unknown."""
    arrived = because is not Reason.TOPOLOGY_INCOMPLETE
    return KeyStep(
        standing.key, standing.seen, standing.seen, standing.entry, because, arrived=arrived
    )


def _lower(
    standing: KeyState, target: Target, in_force: int, *, rules: KeyRules, cause: Reason
) -> KeyStep:
    step = rules.guard.step(
        target.value, in_force, standing.last_change, now_seconds=rules.now_seconds
    )
    if step.value == in_force:
        if step.wait_seconds or not standing.disturbed:
            return _waiting(standing, step)
        return _accepted_on_the_way(standing, target, rules)
    return _step_down(standing, target, step, rules=rules, cause=cause)


def _step_down(
    standing: KeyState, target: Target, step: Step, *, rules: KeyRules, cause: Reason
) -> KeyStep:
    arrived = step.value == target.value
    text = target.text if arrived else str(step.value)
    kind, charged = _kind(cause, raises=False)
    reason = cause if arrived else Reason.STEPPING
    entry = _entry(standing, text, rules=rules, reason=reason, basis=target.basis)
    because = cause if cause is Reason.REPAIRED else reason
    return _lowered(
        KeyStep(standing.key, standing.seen, text, entry, because, kind, charged, arrived),
        step,
        rules,
    )


def _lowered(lowering: KeyStep, step: Step, rules: KeyRules) -> KeyStep:
    due_in_seconds = None if lowering.arrived else float(rules.guard.step_distance_seconds)
    predicted = rules.guard.predicted_mute_seconds(step)
    return replace(lowering, due_in_seconds=due_in_seconds, predicted_mute_seconds=predicted)


def _waiting(standing: KeyState, step: Step) -> KeyStep:
    """Nothing now: the next step is due later, or (no wait) the policy's bound allows none."""
    reason = Reason.STEPPING if step.wait_seconds else Reason.INVALID_SPEC
    due_in_seconds = step.wait_seconds or None
    return KeyStep(
        standing.key,
        standing.seen,
        standing.seen,
        standing.entry,
        reason,
        arrived=False,
        due_in_seconds=due_in_seconds,
    )


def _accepted_on_the_way(standing: KeyState, target: Target, rules: KeyRules) -> KeyStep:
    """Note another writer's value as a step and go on from it when it is safe.

    It is lower than a safe step from our own value.
    """
    ours = standing.entry.written if standing.entry is not None else None
    noted = replace(
        _entry(standing, standing.seen, rules=rules, reason=Reason.STEPPING, basis=target.basis),
        previous=ours,
    )
    due_in_seconds = float(rules.guard.step_distance_seconds)
    return KeyStep(
        standing.key,
        standing.seen,
        standing.seen,
        noted,
        Reason.REPAIRED,
        WriteKind.RECORD,
        arrived=False,
        due_in_seconds=due_in_seconds,
    )


def _may_stand_on_reads(standing: KeyState, rules: KeyRules) -> bool:
    """Whether it was set for reads from followers, and it is not known now whether there are any.

    So it is after a start, until the brokers have answered what their settings are.
    """
    entry = standing.entry
    return not rules.selection_known and entry is not None and by_reads(entry.basis)


# a raise for one of these restores a contract on other brokers, so no budget has to pay for it
FREE_RAISES = frozenset({Reason.LEADERS_MOVED, Reason.RACKS_CHANGED})


def _cause(standing: KeyState, target: Target) -> Reason:
    entry, throttle = standing.entry, target.throttle
    if throttle is not None and throttle.because is not None and not standing.disturbed:
        return throttle.because
    if entry is None:
        return Reason.FIRST_QUOTA if standing.seen is None else Reason.ADOPTED
    if standing.disturbed:
        return Reason.REPAIRED
    if entry.of_contract is not None and throttle is None:
        return Reason.RELEASED
    if entry.basis != target.basis and promised_by(entry.basis) != promised_by(target.basis):
        return Reason.CONTRACT_CHANGED
    if racks_edited(entry.basis, target.basis):
        return Reason.RACKS_CHANGED
    on_its_way_down = entry.reason is Reason.STEPPING and not _is_raise(standing.seen, target)
    if on_its_way_down or entry.reason is Reason.GIVEN_BACK:
        return Reason.CONTRACT
    return Reason.ADAPTED if standing.key in target.scaling.moving else Reason.LEADERS_MOVED


def _kind(cause: Reason, *, raises: bool) -> tuple[WriteKind, bool]:
    """The kind of a write and whether the budget pays for it.

    A first write and a recovery are free (control.md 3.6 e).
    """
    if cause in (Reason.FIRST_QUOTA, Reason.ADOPTED):
        return WriteKind.FIRST, False
    if not raises:
        return WriteKind.LOWERING, True
    return (WriteKind.RECOVERY, False) if cause in FREE_RAISES else (WriteKind.RAISE, True)


def _is_raise(seen: str | None, target: Target) -> bool:
    """Whether the target allows more than what stands; from unlimited nothing is a raise."""
    present = number_of(seen)
    return present is not None and 0 < present < target.value


def _is_small(target: Target, seen: str | None, minimum_change_percent: int) -> bool:
    present = number_of(seen)
    return (
        present is not None and abs(target.value - present) * 100 < minimum_change_percent * present
    )


def _entry(
    standing: KeyState, written: str | None, *, rules: KeyRules, reason: Reason, basis: str
) -> LedgerEntry:
    before = standing.seen if standing.entry is None else standing.entry.before
    return LedgerEntry(before, written, standing.seen, rules.now_seconds, reason, basis)
