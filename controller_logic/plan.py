"""From what is wanted and what stands to one plan for all entities: who is touched, who is left alone, and why.

Works on complete knowledge only; `decide.py` holds before it comes to this. The budget comes after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller_logic import contention, removal
from controller_logic.common_ground import CommonGround
from controller_logic.decision import Memory, Note, Repairs
from controller_logic.desired import NOTHING, Promise, Wanted
from controller_logic.entity_plan import IN_SYNC, EntityPlan, EntityRules, forget, has_arrived, is_ours, plan_entity
from controller_logic.key_step import KeyRules, is_disturbed
from controller_logic.model import DeletionPolicy, Entity, Policy, QuotaWrite, StoredQuota
from controller_logic.mute_guard import MuteGuard
from controller_logic.quota_text import quota_words, same_quota
from controller_logic.reasons import Reason

_UNREAD = EntityPlan(refused=Reason.ZOOKEEPER_UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every entity that is wanted or in the ledger, with what happens to it; `repairs` is the memory of contention."""

    entities: Mapping[Entity, EntityPlan]
    notes: tuple[Note, ...] = ()
    repairs: Mapping[Entity, Repairs] = field(default_factory=dict)
    confirmed_removals: frozenset[Entity] = frozenset()

    @property
    def writes(self) -> list[QuotaWrite]:
        return [plan.write for plan in self.entities.values() if plan.write is not None]


def rules_of(policy: Policy, now_seconds: float) -> EntityRules:
    return EntityRules(policy, KeyRules(now_seconds, policy.minimum_change_percent, MuteGuard.of(policy)))


def our_entities(quotas: Mapping[Entity, StoredQuota], policy: Policy) -> dict[Entity, StoredQuota]:
    """The entities that the ledger shows as this policy's."""
    return {entity: stored for entity, stored in quotas.items() if stored.ledger is not None and is_ours(stored, policy)}


def make_plan(
    wanted: Iterable[Wanted], quotas: Mapping[Entity, StoredQuota], policy: Policy, *, memory: Memory, now_seconds: float
) -> Plan:
    """Plan every entity that is wanted, then those that only the ledger knows any more, which are given back."""
    promises = {want.entity: want.promise for want in wanted if want.taken_by is None}
    ours = our_entities(quotas, policy)
    rules = rules_of(policy, now_seconds)
    leaving = removal.leaving_entities(ours, {entity: promise.keys for entity, promise in promises.items()})
    judged = removal.judge(policy, leaving, len(ours), memory)
    repairs = _reviewed_repairs(promises, quotas, memory, now_seconds=now_seconds)
    ground = CommonGround(quotas, policy, promises)
    entities: dict[Entity, EntityPlan] = {}
    for entity in (*promises, *(entity for entity in ours if entity not in promises)):
        stored, promise = quotas.get(entity), promises.get(entity, NOTHING)
        if stored is None:
            entities[entity] = _UNREAD
        elif has_arrived(stored, promise, policy):
            entities[entity] = IN_SYNC
        else:
            suspended = entity in repairs and contention.is_suspended(repairs[entity], now_seconds=now_seconds)
            entities[entity] = plan_entity(
                stored,
                promise,
                rules,
                may_give_back=entity not in judged.held,
                contended=suspended and _needs_repair(stored, promise),
                beneath=ground.beneath(entity),
            )
    notes = (judged.note,) if judged.note is not None else ()
    return Plan(entities, (*notes, *_entity_notes(entities, quotas)), repairs, judged.confirmed)


def deletion_plan(quotas: Mapping[Entity, StoredQuota], policy: Policy, *, memory: Memory, now_seconds: float) -> Plan:
    """What a policy that is being deleted still has to do: give everything back, or with Keep only forget its records."""
    if policy.deletion is DeletionPolicy.RESTORE:
        return make_plan((), quotas, policy, memory=memory, now_seconds=now_seconds)
    return Plan({entity: forget(stored) for entity, stored in our_entities(quotas, policy).items()})


def _reviewed_repairs(
    promises: Mapping[Entity, Promise], quotas: Mapping[Entity, StoredQuota], memory: Memory, *, now_seconds: float
) -> dict[Entity, Repairs]:
    kept: dict[Entity, Repairs] = {}
    for entity, repairs in memory.repairs.items():
        stored = quotas.get(entity)
        if stored is None or entity not in promises:
            continue
        after = contention.reviewed(repairs, disturbed=_needs_repair(stored, promises[entity]), now_seconds=now_seconds)
        if after is not None:
            kept[entity] = after
    return kept


def _needs_repair(stored: StoredQuota, promise: Promise) -> bool:
    """Whether another writer changed a key to something else than it should be."""
    if stored.ledger is None:
        return False
    return any(
        is_disturbed(stored.ledger.entries.get(key), stored.values.get(key)) and not same_quota(target.text, stored.values.get(key))
        for key, target in promise.targets.items()
    )


def _entity_notes(entities: Mapping[Entity, EntityPlan], quotas: Mapping[Entity, StoredQuota]) -> Iterable[Note]:
    for entity, plan in entities.items():
        if plan.refused is not None:
            yield Note(plan.refused, _refusal_words(entity, plan.refused, quotas.get(entity)), entity)
        for step in plan.steps:
            if step.left_to_others:
                text = quota_words(step.key, step.seen)
                message = f"{entity}: {step.key} is not managed any more, but another writer set it to {text}; that stays"
                yield Note(Reason.GIVEN_BACK, message, entity)


def _refusal_words(entity: Entity, reason: Reason, stored: StoredQuota | None) -> str:
    """What people are told of an entity that is left alone: what happened, and what to do."""
    if reason is Reason.FOREIGN_CONTENT:
        problem = stored.problem if stored is not None else ""
        return f"{entity}: its znode cannot be read safely ({problem}); it is left as it is until somebody mends or removes it"
    if reason is Reason.CONTENDED:
        return (
            f"{entity}: another writer keeps changing the quota that Tidegate set; it is left alone for a while. "
            "Find the other writer, or take the entity out of its tier"
        )
    if reason is Reason.CLUSTER_ALREADY_MANAGED:
        owner = stored.ledger.policy_key if stored is not None and stored.ledger is not None else "another policy"
        return f"{entity}: the ledger shows it as managed by policy {owner}; it is left alone until that policy gives it back"
    return f"{entity}: its quota could not be read; it stays as it is until the next pass reads it"
