"""One entity: the steps of its keys, gathered into one write that changes quota and ledger.

Whose entity it is, and whether it may be touched at all, is asked here; what the budget allows is
not.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_logic.contracts.targets import Promise, QuotaScaling, quotas_of
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Contract,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Policy,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.quota_values import KEY_WORDS, enforced_rate, quota_words
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.quotas.leaving import (
    RestoredKeys,
    is_end_of_throttle,
    is_restored,
    remembered,
)
from tidegate_logic.quotas.mute import shortest_bound
from tidegate_logic.quotas.precedence import InheritedQuota
from tidegate_logic.quotas.steps import (
    KeyRules,
    KeyState,
    KeyStep,
    follow,
    give_back,
    is_recorded,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value

# an enum's member costs ten times as much to look up as a name of this module
_REPAIRED, _FIRST_QUOTA, _FIRST_WRITE = Reason.REPAIRED, Reason.FIRST_QUOTA, WriteKind.FIRST
_KIND_ORDER = {kind: place for place, kind in enumerate(WriteKind)}
_KEY_ORDER = {key: place for place, key in enumerate(QuotaKey)}
_NO_ENTRIES: Mapping[QuotaKey, LedgerEntry] = {}

InheritedQuotas = Mapping[QuotaKey, InheritedQuota]
Sent = Callable[[Entity, QuotaKey], int | None]


@value(frozen=True, slots=True)
class EntityPlan:
    """What happens to one entity. `refused` = why it must not be touched; it has no steps then.

    `why` says so in words where the reason alone does not, `contention` where that is because
    another writer keeps changing it.
    """

    steps: tuple[KeyStep, ...] = ()
    refused: Reason | None = None
    why: str = ""
    contention: Contention | None = None

    @property
    def arrives(self) -> bool:
        """Whether nothing is left to do for the entity once its write is applied."""
        return self.refused is None and all(step.arrived for step in self.steps)


# the plan of an entity that stands, or will stand after its write, at what is promised
AS_PROMISED = EntityPlan()

Planned = tuple[EntityPlan, QuotaWrite | None]


@dataclass(frozen=True, slots=True)
class EntityRules:
    """What holds for every entity of one pass; `policy` is who signs the ledger.

    `sent` says what clients may have sent where no quota held them: see `sent_rates.py`.
    """

    policy: Policy
    keys: KeyRules
    sent: Sent

    def within(self, longest_mute_seconds: int | None) -> "EntityRules":
        """The same for an entity that no lowering may mute for longer; None = no bound of its own.

        Never so short that no step would be safe.
        """
        guard = self.keys.guard
        if longest_mute_seconds is None:
            return self
        bound = shortest_bound(longest_mute_seconds, guard.window)
        bounded = replace(guard, max_mute_seconds=min(bound, guard.max_mute_seconds))
        return replace(self, keys=replace(self.keys, guard=bounded))


@dataclass(frozen=True, slots=True)
class Beside:
    """What bears on one entity, beside its own quota and record.

    `inherited` holds what default entities say for the same bucket, per byte-rate key; `in_grace`
    until when (epoch seconds) quotas wait that no contract names; `is_held` keeps them all;
    `restored` is what the record remembers.
    """

    contention: Contention | None = None
    inherited: InheritedQuotas = field(default_factory=dict)
    in_grace: Mapping[QuotaKey, float] = field(default_factory=dict)
    is_held: bool = False
    restored: RestoredKeys = field(default_factory=dict)


def plan_entity(
    stored: StoredQuota, promise: Promise, rules: EntityRules, beside: Beside
) -> Planned:
    """The next steps of one entity, and the write that makes them.

    Foreign content, another policy's record and a contended entity are left as they are.
    """
    if stored.problem is not None:
        return EntityPlan(refused=Reason.FOREIGN_CONTENT), None
    if stored.ledger is not None and not stored.is_of(rules.policy):
        return EntityPlan(refused=Reason.CLUSTER_ALREADY_MANAGED), None
    entries = _NO_ENTRIES if stored.ledger is None else stored.ledger.entries
    if beside.contention is not None:
        return EntityPlan(refused=Reason.CONTENDED, contention=beside.contention), None
    inherited = beside.inherited
    steps = [
        follow(
            KeyState(
                key,
                text := stored.values.get(key),
                entries.get(key),
                inherited.get(key),
                rules.sent(stored.entity, key) if enforced_rate(text) is None else None,
            ),
            target,
            rules.keys,
        )
        for key, target in promise.targets.items()
    ]
    for key, entry in entries.items():
        if key not in promise.keys:
            standing = KeyState(key, stored.values.get(key), entry, inherited.get(key))
            steps.append(_let_go(standing, promise, rules, beside))
    return EntityPlan(tuple(steps)), _write(
        stored, steps, {**beside.restored, **entries}, policy=rules.policy
    )


def _let_go(standing: KeyState, promise: Promise, rules: EntityRules, beside: Beside) -> KeyStep:
    """The step of a key that is not wanted: it stays for now, or is restored and remembered."""
    if beside.is_held:
        return _kept(standing, Reason.REMOVAL_HELD, arrived=False)
    if (until_seconds := beside.in_grace.get(standing.key)) is not None:
        due_in_seconds = until_seconds - rules.keys.now_seconds
        return _kept(standing, Reason.RESTORE_WAITS, arrived=True, due_in_seconds=due_in_seconds)
    step, entry = give_back(standing, rules.keys), standing.entry
    if entry is None or step.entry is not None or rules.policy.deleting:
        return step
    if is_end_of_throttle(entry, promise):
        return step
    memory = remembered(entry, step.key, step.text, now_seconds=rules.keys.now_seconds)
    return step if memory is None else replace(step, entry=memory)


def _kept(
    standing: KeyState, because: Reason, *, arrived: bool, due_in_seconds: float | None = None
) -> KeyStep:
    return KeyStep(
        standing.key,
        standing.seen,
        standing.seen,
        standing.entry,
        because,
        arrived=arrived,
        due_in_seconds=due_in_seconds,
    )


def first_write(
    stored: StoredQuota, contract: Contract | None, scaling: QuotaScaling | None, rules: EntityRules
) -> QuotaWrite | None:
    """All keys in one write, where the entity has neither quota nor ledger record.

    The same as `plan_entity` makes key by key; a cluster that Tidegate meets for the first time has
    thousands of these. None = it takes a plan. Not for an entity that load holds below its
    contract, nor for one that a default entity's quota holds already (see `precedence.py`), nor for
    one whose clients may have sent something that is known.
    """
    if stored.values or stored.ledger is not None or stored.problem is not None:
        return None
    if (
        contract is None
        or contract.is_empty
        or scaling is None
        or not scaling.known
        or not scaling.certain
    ):
        return None
    now_seconds, entity, policy = rules.keys.now_seconds, stored.entity, rules.policy
    texts: dict[QuotaKey, str | None] = {}
    entries: dict[QuotaKey, LedgerEntry] = {}
    for key, number, rate, on in quotas_of(contract, scaling):
        text = texts[key] = str(number)
        entries[key] = LedgerEntry(None, text, None, now_seconds, _FIRST_QUOTA, on.basis(rate))
    record = LedgerRecord(entity, policy.key, policy.uid, entries)
    return QuotaWrite(entity, texts, stored, record, _FIRST_WRITE, _FIRST_QUOTA, first_words, False)


def forget(
    stored: StoredQuota, because: Reason = Reason.GIVEN_BACK, message: str = ""
) -> QuotaWrite:
    """Drop the ledger record and leave the quota as it is."""
    message = message or (
        f"{stored.entity}: the quota stays as it is and is no longer recorded as Tidegate's"
    )
    return QuotaWrite(
        stored.entity,
        {},
        stored,
        None,
        WriteKind.RECORD,
        because,
        message,
        charged=False,
        notifies=not stored.notified,
    )


def notification(stored: StoredQuota) -> QuotaWrite | None:
    """Notify brokers of quotas that stand as we wrote or recorded them; None = they do not."""
    record = stored.ledger
    if record is None or not record.entries or stored.problem is not None:
        return None
    if any(stored.values.get(key) != entry.written for key, entry in record.entries.items()):
        return None
    message = (
        f"{stored.entity}: its quotas stay as they are; brokers are notified of them once, because "
        "they may not know them yet"
    )
    return QuotaWrite(
        stored.entity,
        {},
        stored,
        record,
        WriteKind.NOTIFY,
        Reason.BROKERS_NOTIFIED,
        message,
        charged=True,
        notifies=True,
    )


def forget_memory(stored: StoredQuota, kept: RestoredKeys) -> QuotaWrite:
    """Drop what the record remembers of restored quotas, but for what is `kept`; Kafka's stays."""
    entries = stored.ledger.entries if stored.ledger is not None else _NO_ENTRIES
    left = {key: one for key, one in entries.items() if key in kept or not is_restored(one)}
    record = replace(stored.ledger, entries=left) if stored.ledger is not None and left else None
    words = f"{stored.entity}: restored a quarter of an hour ago; the ledger no longer remembers it"
    return QuotaWrite(
        stored.entity, {}, stored, record, WriteKind.RECORD, Reason.GIVEN_BACK, words, charged=False
    )


def is_converged(stored: StoredQuota, promise: Promise, policy: Policy) -> bool:
    """Whether every key stands as we wrote it and as it should be; the usual case, asked first."""
    targets, ledger = promise.targets, stored.ledger
    if stored.problem is not None or promise.unknown:
        return False
    if ledger is None:
        return not targets
    if ledger.policy_key != policy.key or len(ledger.entries) != len(targets):
        return False
    for key, target in targets.items():
        entry = ledger.entries.get(key)
        if (
            entry is None
            or entry.written != target.text
            or stored.values.get(key) != target.text
            or not is_recorded(entry, target)
        ):
            return False
    return True


def _write(
    stored: StoredQuota,
    steps: list[KeyStep],
    entries: Mapping[QuotaKey, LedgerEntry],
    *,
    policy: Policy,
) -> QuotaWrite | None:
    active = tuple([step for step in steps if step.kind is not None])
    if not active:
        return None
    lead, reason, charged, mute_seconds = active[0], None, False, 0.0
    values: dict[QuotaKey, str | None] = {}
    for step in active:
        if step.kind is not lead.kind or step.because is not lead.because:
            lead = min(lead, step, key=_importance)
        if step.text != step.seen:
            values[step.key] = step.text
        if step.because is _REPAIRED:
            reason = _REPAIRED
        charged = charged or step.charged
        mute_seconds = max(mute_seconds, step.predicted_mute_seconds)
    record = _record(stored, steps, entries, policy=policy)
    notifies = not values and not stored.notified
    return QuotaWrite(
        stored.entity,
        values,
        stored,
        record,
        lead.kind or WriteKind.RECORD,
        reason or lead.because,
        ChangeWords(active),
        # without a record there is no later time for it
        charged or (notifies and record is not None),
        mute_seconds,
        notifies,
    )


def _importance(step: KeyStep) -> tuple[int, int]:
    return (_KIND_ORDER[step.kind or WriteKind.RECORD], _KEY_ORDER[step.key])


def _record(
    stored: StoredQuota,
    steps: list[KeyStep],
    entries: Mapping[QuotaKey, LedgerEntry],
    *,
    policy: Policy,
) -> LedgerRecord | None:
    """The ledger after the write; None = nothing is left.

    Entries without a step are kept: their target is not known now.
    """
    after = dict(entries)
    for step in steps:
        if step.entry is None:
            after.pop(step.key, None)
        else:
            after[step.key] = step.entry
    return LedgerRecord(stored.entity, policy.key, policy.uid, after) if after else None


# The sentence of a write: which keys change, from what to what, why, and what a client may notice.


_WHY = {
    Reason.FIRST_QUOTA: "first quota of a member",
    Reason.ADOPTED: "taken over from another writer, whose value is kept in the ledger",
    Reason.CONTRACT_CHANGED: "the contract was changed",
    Reason.LEADERS_MOVED: "partition leaders moved",
    Reason.RACKS_CHANGED: "the racks that it reads in were changed",
    Reason.ADAPTED: "measured rates call for it, to keep their total at the contracted rate",
    Reason.CONTRACT: "last step to the contracted rate",
    Reason.REPAIRED: "another writer changed it",
    Reason.THROTTLED: "throttled because a broker is over its limit",
    Reason.CALENDAR: "limited by the policy's calendar",
    Reason.RELAXING: "raised into measured headroom",
    Reason.RELEASED: "back at the contracted rate",
    Reason.GIVEN_BACK: "restored to what it was before Tidegate",
}


@value(frozen=True, slots=True)
class ChangeWords:
    """Puts the sentence of a write together from the steps that it makes, when it is read.

    Thousands of writes have one in a pass, and an Event names three of them.
    """

    steps: tuple[KeyStep, ...]

    def __call__(self, write: QuotaWrite) -> str:
        return f"{write.entity}: {_words(self.steps)}"


def first_words(write: QuotaWrite) -> str:
    """The same sentence about first quotas, of which the ledger record says everything."""
    entries = write.ledger.entries if write.ledger is not None else {}
    steps = [
        KeyStep(key, None, entry.written, entry, Reason.FIRST_QUOTA, WriteKind.FIRST)
        for key, entry in entries.items()
    ]
    return ChangeWords(tuple(steps))(write)


def _words(steps: Iterable[KeyStep]) -> str:
    """What happens to each key and why; keys with the same reason share one explanation."""
    explained: dict[str, list[str]] = {}
    for step in steps:
        explained.setdefault(_why(step), []).append(_change(step))
    return "; ".join(f"{' and '.join(changes)}{why}" for why, changes in explained.items())


def _change(step: KeyStep) -> str:
    if not step.changes_quota:
        return f"{KEY_WORDS[step.key]} stays {quota_words(step.key, step.text)}"
    return (
        f"{KEY_WORDS[step.key]} from {quota_words(step.key, step.seen)} to "
        f"{quota_words(step.key, step.text)}"
    )


def _why(step: KeyStep) -> str:
    if not step.changes_quota:
        return f", {_record_words(step)}"
    if step.due_in_seconds is not None:
        return f" per broker, one step on its way down, next in {step.due_in_seconds:.0f} s"
    if step.predicted_mute_seconds:
        return (
            f" per broker, {_WHY[step.because]}; a busy client may be delayed for up to "
            f"{step.predicted_mute_seconds:.1f} s"
        )
    return f" per broker, {_WHY[step.because]}{_unguarded_words(step)}"


def _record_words(step: KeyStep) -> str:
    return (
        "no longer recorded as Tidegate's"
        if step.entry is None or is_restored(step.entry)
        else "recorded as Tidegate's from now on"
    )


def _unguarded_words(step: KeyStep) -> str:
    """Why a first quota takes no steps: without one in force, clients' rates are not known yet."""
    if step.seen is not None or step.key not in BYTE_RATE_KEYS:
        return ""
    return "; set at once, since no rate was in force to step down from"
