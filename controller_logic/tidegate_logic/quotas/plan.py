"""From what is wanted and what stands to one plan: who is touched, who is left alone, and why.

Works on complete knowledge only; `decide.py` holds before it comes to this. The budget comes after
it.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import ceil

from tidegate_logic.contracts.desired import Desired
from tidegate_logic.contracts.targets import NOTHING, Promise, is_override_only
from tidegate_logic.model import (
    MAX_BYTE_RATE,
    DeletionPolicy,
    Entity,
    LedgerEntry,
    Mode,
    Note,
    Policy,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
)
from tidegate_logic.quota_values import KEY_WORDS, quota_words
from tidegate_logic.quotas.budget import RemovalMemory
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.quotas.entity_plan import (
    Beside,
    EntityPlan,
    EntityRules,
    Sent,
    first_write,
    forget,
    forget_memory,
    is_converged,
    notification,
    plan_entity,
)
from tidegate_logic.quotas.leaving import Grace, Restored, in_grace
from tidegate_logic.quotas.precedence import DefaultEntityQuotas, InheritedQuota
from tidegate_logic.quotas.sent_rates import SentRates
from tidegate_logic.quotas.steps import KeyRules, KeyStep, MuteGuard
from tidegate_logic.reasons import Reason
from tidegate_logic.words import clock_words


@dataclass(frozen=True, slots=True)
class Before:
    """The entities that are left alone now, and what the mass-removal guard remembers.

    `frozen` as in `model.Observation`. `owned` are entities of which the record is dropped, because
    a KafkaUser declares their quotas, each with the words for it. `restored` is what the ledger
    remembers of quotas that are none of ours any more: `quotas` of the pass are without it.
    """

    contended: Mapping[Entity, Contention] = field(default_factory=dict)
    removals: RemovalMemory = field(default_factory=RemovalMemory)
    frozen: Mapping[Entity, tuple[Reason, str]] = field(default_factory=dict)
    owned: Mapping[Entity, str] = field(default_factory=dict)
    restored: Restored = field(default_factory=Restored)


_NOTHING: Mapping[QuotaKey, InheritedQuota] = {}
_NO_GRACE: Mapping[QuotaKey, float] = {}
_UNREAD = Reason.ZOOKEEPER_UNREACHABLE, "its quota could not be read; it stays as it is"


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to every entity that will not stand as promised, and every write.

    `managed` counts those that have, or would have, a quota of ours, and those being restored.
    `leaving` is when the grace of those ends that wait to be (epoch seconds). `notifications` are
    for those of ours that have no write, and of which it is not known that brokers were notified.
    """

    entities: Mapping[Entity, EntityPlan]
    writes: Mapping[Entity, QuotaWrite] = field(default_factory=dict)
    notifications: tuple[QuotaWrite, ...] = ()
    managed: int = 0
    notes: tuple[Note, ...] = ()
    removals: RemovalMemory = field(default_factory=RemovalMemory)
    leaving: Mapping[Entity, float] = field(default_factory=dict)


def rules_of(
    policy: Policy, now_seconds: float, sent: Sent, *, selection_known: bool = True
) -> EntityRules:
    """What holds for every entity in a pass of this moment (seconds since the epoch)."""
    guard = MuteGuard.of(policy)
    keys = KeyRules(now_seconds, policy.minimum_change_percent, guard, selection_known)
    return EntityRules(policy, keys, sent)


def our_entities(quotas: Mapping[Entity, StoredQuota], policy: Policy) -> dict[Entity, StoredQuota]:
    """The entities that the ledger shows as this policy's."""
    return {entity: stored for entity, stored in quotas.items() if stored.is_of(policy)}


class _Planner:
    """Plans one entity after the other under the rules of this pass; `count` counts them."""

    def __init__(self, rules: EntityRules, before: Before, inherited: DefaultEntityQuotas) -> None:
        self._rules = rules
        self._before = before
        self._inherited = inherited
        self.entities: dict[Entity, EntityPlan] = {}
        self.writes: dict[Entity, QuotaWrite] = {}
        self.count = 0

    def plan(
        self,
        stored: StoredQuota,
        promise: Promise,
        *,
        in_grace: Mapping[QuotaKey, float] = _NO_GRACE,
        is_held: bool = False,
        longest_mute_seconds: int | None = None,
    ) -> None:
        """Plan this one, and keep what has to be said of it and written for it."""
        entity, before = stored.entity, self._before
        rules = self._rules.within(longest_mute_seconds)
        beside = Beside(
            before.contended.get(entity),
            self._inherited.below(entity) if self._inherited else _NOTHING,
            in_grace,
            is_held,
            before.restored.recent(entity, self._rules.keys.now_seconds),
        )
        plan, write = plan_entity(stored, promise, rules, beside)
        self.count += 1
        self.entities[entity] = plan
        if write is not None:
            self.writes[entity] = write

    def leave(self, entity: Entity, plan: EntityPlan) -> None:
        """Nothing is written for this one, for the reason that its plan gives."""
        self.count += 1
        self.entities[entity] = plan


def make_plan(
    wanted: Desired,
    ours: Mapping[Entity, StoredQuota],
    quotas: Mapping[Entity, StoredQuota],
    *,
    policy: Policy,
    inherited: DefaultEntityQuotas,
    before: Before,
    now_seconds: float,
    sent: SentRates,
) -> Plan:
    """Plan every entity that is not as promised, last those that would lose a key.

    Those are all counted first, because the guard against mass removals judges their number.
    """
    scalings = wanted.scalings
    rules = rules_of(
        policy,
        now_seconds,
        sent.of,
        selection_known=scalings is None or scalings.selection_known,
    )
    planner = _Planner(rules, before, inherited)
    losing = [
        (stored, NOTHING)
        for entity, stored in ours.items()
        if entity not in wanted.owners
        and entity not in wanted.defaults
        and entity not in before.owned
        and not is_converged(stored, NOTHING, policy)
    ]
    forgotten = {
        entity: forget(ours[entity], Reason.OWNED_BY_STRIMZI, words)
        for entity, words in before.owned.items()
    }
    settled = 0
    first = _first_writes(wanted, quotas, inherited, rules, sent)
    for entity, promise in wanted.promises(without=first):
        stored = quotas.get(entity)
        if stored is None:
            reason, why = before.frozen.get(entity, _UNREAD)
            planner.leave(entity, EntityPlan(refused=reason, why=why))
        elif is_converged(stored, promise, policy):
            settled += bool(promise.targets)
        elif entity in ours and loses_a_key(stored, promise, wanted.protected_keys(entity)):
            losing.append((stored, promise))
        else:
            longest = wanted.longest_mute_seconds(entity)
            planner.plan(stored, promise, longest_mute_seconds=longest)
    leaving = leaving_entities(losing)
    removals = _without_returned(before.removals, leaving, ours)
    judged = judge(policy, leaving, ours, removals, now_seconds=now_seconds)
    grace = Grace() if policy.deleting else in_grace(losing, removals.unwanted, now_seconds)
    if policy.mode is Mode.OBSERVE:  # nothing is restored, so nothing waits for it either
        grace = replace(grace, until={})
    for stored, promise in losing:
        planner.plan(
            stored,
            promise,
            in_grace=grace.of(stored.entity),
            is_held=stored.entity in judged.held,
        )
    notes = (judged.note,) if judged.note is not None else ()
    notes = (*notes, *_entity_notes(planner.entities, quotas, now_seconds))
    writes = {**forgotten, **first, **planner.writes}
    writes = {**_memories_over(planner, before, writes.keys(), rules), **writes}
    silent = [
        stored
        for entity, stored in ours.items()
        if not stored.notified and entity not in writes and entity not in before.contended
    ]
    return Plan(
        planner.entities,
        writes,
        tuple([write for one in silent if (write := notification(one)) is not None]),
        settled + len(forgotten) + len(first) + planner.count,
        notes,
        replace(judged.memory, unwanted=grace.unwanted),
        {
            entity: max(ends.values())
            for entity, ends in grace.until.items()
            if entity not in judged.held
        },
    )


def _memories_over(
    planner: _Planner, before: Before, written: Collection[Entity], rules: EntityRules
) -> dict[Entity, QuotaWrite]:
    """The records that need not remember a restored quota any longer, where nothing else is due."""
    found: dict[Entity, QuotaWrite] = {}
    if rules.policy.mode is Mode.OBSERVE:
        return found
    for stored in before.restored.forgettable(rules.policy, rules.keys.now_seconds):
        plan = planner.entities.get(stored.entity)
        if stored.entity not in written and (plan is None or plan.refused is None):
            kept = before.restored.recent(stored.entity, rules.keys.now_seconds)
            found[stored.entity] = forget_memory(stored, kept)
    return found


def _first_writes(
    wanted: Desired,
    quotas: Mapping[Entity, StoredQuota],
    inherited: DefaultEntityQuotas,
    rules: EntityRules,
    sent: SentRates,
) -> dict[Entity, QuotaWrite]:
    """The writes of the members that get their first quota."""
    found: dict[Entity, QuotaWrite] = {}
    held, defaults = wanted.held, bool(inherited)
    for entity, owner in wanted.owners.items():
        stored = quotas.get(entity)
        if stored is None or entity in held or (defaults and inherited.below(entity)):
            continue
        if stored.ledger is None and not stored.values and sent.knows(entity):
            continue
        write = first_write(stored, owner.member.contract, owner.scaling, rules)
        if write is not None:
            found[entity] = write
    return found


def as_stored(plan: Plan, restored: Restored) -> Plan:
    """The plan whose writes were decided on what the store has, with what its records remember."""
    if restored.stored.keys().isdisjoint(plan.writes):
        return plan
    writes = {
        entity: replace(write, seen=restored.stored.get(entity, write.seen))
        for entity, write in plan.writes.items()
    }
    return replace(plan, writes=writes)


def deletion_plan(
    _wanted: Desired,
    ours: Mapping[Entity, StoredQuota],
    quotas: Mapping[Entity, StoredQuota],
    *,
    policy: Policy,
    inherited: DefaultEntityQuotas,
    before: Before,
    now_seconds: float,
    sent: SentRates,
) -> Plan:
    """What a policy in deletion still does: give all back, or with Retain forget its records.

    The write budget pays for nothing of it. The policy is about to go, and a quota that waits for
    the next period would be left behind.
    """
    if policy.deletion_policy is DeletionPolicy.RETAIN:
        kept = {entity: forget(stored) for entity, stored in ours.items()}
        return Plan({}, kept, managed=len(ours))
    plan = make_plan(
        Desired(),
        ours,
        quotas,
        policy=policy,
        inherited=inherited,
        before=before,
        now_seconds=now_seconds,
        sent=sent,
    )
    free = {entity: replace(write, charged=False) for entity, write in plan.writes.items()}
    return replace(plan, writes=free)


def _entity_notes(
    entities: Mapping[Entity, EntityPlan],
    quotas: Mapping[Entity, StoredQuota],
    now_seconds: float,
) -> Iterable[Note]:
    for entity, plan in entities.items():
        if plan.refused is not None:
            words = (
                f"{entity}: {plan.contention.words}"
                if plan.contention is not None
                else f"{entity}: {plan.why or _refusal_words(plan.refused, quotas.get(entity))}"
            )
            yield Note(plan.refused, words, entity)
        for step in plan.steps:
            if step.because is Reason.RESTORE_WAITS:
                words = f"{entity}: {_leaving_words(step, now_seconds)}"
                yield Note(Reason.RESTORE_WAITS, words, entity)
            if step.left_to_others:
                text = quota_words(step.key, step.seen)
                message = (
                    f"{entity}: {step.key} is not managed any more, but another writer set "
                    f"it to {text}; that stays"
                )
                yield Note(Reason.GIVEN_BACK, message, entity)


def _leaving_words(step: KeyStep, now_seconds: float) -> str:
    """What stands without a contract, what it is restored to, when, and what prevents that."""
    before = step.entry.before if step.entry is not None else None
    ends = clock_words(ceil(now_seconds + (step.due_in_seconds or 0.0)))  # never too early
    return (
        f"no contract covers {KEY_WORDS[step.key]} any more; {quota_words(step.key, step.seen)} is "
        f"restored to {quota_words(step.key, before)} at {ends} UTC, unless one covers it again"
    )


def _refusal_words(reason: Reason, stored: StoredQuota | None) -> str:
    """What is said of an entity that is left alone: what happened, and what to do."""
    if reason is Reason.FOREIGN_CONTENT:
        problem = stored.problem if stored is not None else ""
        return (
            f"its znode cannot be read safely ({problem}); it is left as it is until it can be read"
        )
    owner = (
        stored.ledger.policy_key
        if stored is not None and stored.ledger is not None
        else "another policy"
    )
    return (
        f"the ledger shows it as managed by policy {owner}; it is left alone until that policy "
        "restores it"
    )


# Whether quotas may be restored now: a list emptied by mistake must not free a whole cluster.
#
# What leaves is counted over a quarter of an hour, against the most entities that were managed in
# that time. What is being restored in steps was decided earlier and is never held up. A policy that
# is being deleted is not capped, because deleting it is explicit.


REMOVAL_WINDOW_SECONDS = 15 * 60
CONFIRM_REMOVAL = "tidegate.io/confirm-removal"
IF_INTENDED = "If that is intended"
_SHOWN_CHARACTERS = 40

# the ledger entries of the keys that each entity loses
Leaving = Mapping[Entity, Mapping[QuotaKey, LedgerEntry]]


@dataclass(frozen=True, slots=True)
class Removal:
    """Which entities may not lose a quota of ours yet, the note about it, and what to remember."""

    held: frozenset[Entity] = frozenset()
    memory: RemovalMemory = field(default_factory=RemovalMemory)
    note: Note | None = None


def judge(
    policy: Policy,
    leaving: Leaving,
    ours: Collection[Entity],
    before: RemovalMemory,
    *,
    now_seconds: float,
) -> Removal:
    """Hold what begins to leave if too much left lately and no one confirmed that.

    Too much is more than the policy's share, with what left lately. `ours` are all entities that
    are managed now. A confirmation lasts until the confirmed entities are gone, over as many passes
    as steps and budget need; they count no more, neither as left nor as managed. It is lost with
    the memory, and then asked for again for what is left. While something is held nothing is
    forgotten, so that time alone never frees it.
    """
    if policy.deleting:
        return Removal(memory=before)
    still = _quotas_of(leaving) & before.confirmed
    confirmed = {entity for entity, lost in leaving.items() if _quotas_of({entity: lost}) <= still}
    fresh = leaving.keys() - confirmed
    was = _recent(before, now_seconds)
    managed = len(frozenset(ours) - confirmed)
    most = max([managed, *(count for _, count in was.managed)])
    new, left = fresh - was.left.keys(), was.left.keys() | fresh
    kept = replace(was, confirmed=still)
    if (
        not new
        or policy.max_removal_percent >= 100
        or len(left) * 100 <= policy.max_removal_percent * most
    ):
        lately = {entity: was.left.get(entity, now_seconds) for entity in left}
        counts = _with_count(was.managed, managed, now_seconds)
        return Removal(memory=replace(kept, managed=counts, left=lately))
    token = _confirmation({entity: leaving[entity] for entity in new}, before.used)
    if policy.confirmed_removal == token:
        rest = ((now_seconds, managed - len(fresh)),)
        return Removal(
            memory=RemovalMemory(rest, {}, _quotas_of(leaving), token),
            note=Note(
                Reason.GIVEN_BACK,
                f"{len(new)} quotas are restored, as the annotation {CONFIRM_REMOVAL}={token} "
                "confirms. It is valid once: later removals need another",
            ),
        )
    kept = replace(kept, managed=((now_seconds, most),), left=dict.fromkeys(was.left, now_seconds))
    return Removal(
        frozenset(new), kept, _held_note(policy, token, len(new), lately=len(was.left), most=most)
    )


def _without_returned(
    before: RemovalMemory, leaving: Leaving, ours: Mapping[Entity, StoredQuota]
) -> RemovalMemory:
    """The memory without members that came back in their grace: nothing of them has left.

    One that lost a quota and keeps another has not come back, nor one that is on its way back to
    what it had before.
    """
    waited = {entity for entity, _ in before.unwanted if entity in ours and entity not in leaving}
    lost = {
        entity
        for entity, key in before.unwanted
        if entity in waited and not _stays(key, ours[entity])
    }
    returned = waited - lost
    if returned.isdisjoint(before.left):
        return before
    left = {entity: at for entity, at in before.left.items() if entity not in returned}
    return replace(before, left=left)


def _stays(key: QuotaKey, stored: StoredQuota) -> bool:
    """Whether the quota is ours, and no step of restoring what was there before was taken."""
    entry = None if stored.ledger is None else stored.ledger.entries.get(key)
    return entry is not None and entry.reason is not Reason.GIVEN_BACK


def _quotas_of(leaving: Leaving) -> frozenset[tuple[Entity, QuotaKey]]:
    return frozenset((entity, key) for entity, lost in leaving.items() for key in lost)


def _confirmation(leaving: Leaving, used: str) -> str:
    """What a person confirms: how many quotas leave, and a short hash of which ones.

    When each was written is part of it. Members that come back and are removed again have another
    one, also for an operator that was restarted since. Those that came back before anything was
    restored still have the same quotas; only the memory of what was `used` keeps these apart.
    """
    lost = sorted(
        f"{entity.sort_key}\0{key}\0{entry.written}\0{entry.written_at_seconds!r}"
        for entity, entries in leaving.items()
        for key, entry in entries.items()
    )
    token = _hashed(len(leaving), lost)
    return token if token != used else _hashed(len(leaving), [*lost, used])


def _hashed(count: int, parts: Iterable[str]) -> str:
    return f"{count}-{sha256(chr(10).join(parts).encode(errors='surrogatepass')).hexdigest()[:8]}"


def _recent(memory: RemovalMemory, now_seconds: float) -> RemovalMemory:
    """What is not older than the window; a moment in the future was stamped by a wrong clock."""
    left = {
        entity: at
        for entity, at in memory.left.items()
        if abs(now_seconds - at) < REMOVAL_WINDOW_SECONDS
    }
    return replace(
        memory,
        managed=tuple(
            one for one in memory.managed if abs(now_seconds - one[0]) < REMOVAL_WINDOW_SECONDS
        ),
        left=left,
    )


def _with_count(
    counts: tuple[tuple[float, int], ...], count: int, now_seconds: float
) -> tuple[tuple[float, int], ...]:
    """Only counts that may still become the highest: each is above all later ones."""
    return (*(one for one in counts if one[1] > count), (now_seconds, count))


def loses_a_key(
    stored: StoredQuota, promise: Promise, protected: Set[QuotaKey] = frozenset()
) -> bool:
    """Whether the ledger has a key that is no longer wanted and is no throttle.

    A throttle that ends where nothing is promised takes nothing away. Nor does a list that was
    emptied by mistake take a key that is `protected`: brokers report the share group.
    """
    if stored.ledger is None:
        return False
    return any(
        key not in promise.keys and key not in protected and entry.of_contract is None
        for key, entry in stored.ledger.entries.items()
    )


def leaving_entities(losing: Iterable[tuple[StoredQuota, Promise]]) -> Leaving:
    """The entities that lose a key for which it is new and lifts a limit."""
    leaving = {}
    for stored, promise in losing:
        entries = (
            stored.ledger.entries if stored.ledger is not None and stored.problem is None else {}
        )
        lost = {key: entry for key, entry in entries.items() if key not in promise.keys}
        if any(_frees_somebody(entry) for entry in lost.values()):
            leaving[stored.entity] = lost
    return leaving


def _frees_somebody(entry: LedgerEntry) -> bool:
    """Whether giving the key back lifts a limit that clients have now.

    Not what is on its way back already, nor a quota that never binds (see `contracts/desired.py`),
    nor what an override gave.
    """
    return (
        entry.reason is not Reason.GIVEN_BACK
        and entry.written != str(MAX_BYTE_RATE)
        and not is_override_only(entry.basis)
    )


def _held_note(policy: Policy, token: str, count: int, *, lately: int, most: int) -> Note:
    namespace, _, name = policy.key.rpartition("/")
    command = f"kubectl annotate bbp {name} -n {namespace} {CONFIRM_REMOVAL}={token} --overwrite"
    before = f", after {lately} in the last quarter of an hour" if lately else ""
    other = policy.confirmed_removal[:_SHOWN_CHARACTERS]
    message = (
        f"{count} of {most} managed quotas would be restored{before}, more than removal.maxPercent "
        f"({policy.max_removal_percent} %) allows. These {count} stay as they are; all others "
        f"follow their contracts. {IF_INTENDED}, confirm these {count}, once: {command}"
    )
    if other:
        message += f" (its value now, {other}, does not confirm this removal)"
    return Note(Reason.REMOVAL_HELD, message)
