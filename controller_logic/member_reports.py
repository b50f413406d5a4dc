"""What the status says of every member: state, numbers and a sentence for people.

Sentences change only when something changed, so that a pass that changes nothing writes no status: they carry rates and
distances, never a countdown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.decision import MemberReport, MemberState
from controller_logic.desired import Promise, Wanted
from controller_logic.entity_plan import IN_SYNC, EntityPlan
from controller_logic.key_step import KeyStep
from controller_logic.leader_scaling import LeaderSpread
from controller_logic.model import BYTE_RATE_KEYS, Entity, Hold, Level, Policy, QuotaKey, StoredQuota
from controller_logic.mute_guard import MuteGuard
from controller_logic.quota_text import KEY_WORDS, number_of, quota_words, rate_words
from controller_logic.reasons import Reason

_UNTOUCHED = {
    Reason.FOREIGN_CONTENT: (MemberState.FOREIGN_CONTENT, "the entity's znode cannot be read safely; it is left as it is"),
    Reason.CONTENDED: (MemberState.CONTENDED, "another writer keeps changing the quota; left alone for a while"),
    Reason.CLUSTER_ALREADY_MANAGED: (MemberState.HELD, "the ledger shows the entity as another policy's; left as it is"),
    Reason.ZOOKEEPER_UNREACHABLE: (MemberState.HELD, "the quota could not be read; it stays as it is"),
}
_KEPT = {
    Reason.TOPOLOGY_INCOMPLETE: "leaders are not known in full, and nothing is lowered on such knowledge",
    Reason.REMOVAL_HELD: "giving quotas back is held until the count is confirmed",
    Reason.INVALID_SPEC: "escalation.maxMuteSeconds is too short for the brokers' quota window: no lowering is safe",
}

Verdict = tuple[MemberState, Reason, str]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What applies to all members of one pass. `unwritten` are entities whose write waits for the budget, or for Enforce."""

    policy: Policy
    quotas: Mapping[Entity, StoredQuota] | None
    hold: Hold | None = None
    unwritten: frozenset[Entity] = frozenset()
    unwritten_because: Reason = Reason.WRITE_BUDGET_SPENT


def report(wanted: Wanted, plan: EntityPlan, circumstances: Circumstances) -> MemberReport:
    """The report of one member; raises ValueError for a default entity, which is no member."""
    if wanted.member is None or wanted.tier is None:
        raise ValueError(f"{wanted.entity} is a default of the policy, not a member of a tier")
    promise, spread = wanted.promise, wanted.promise.spread
    state, reason, message = _verdict(wanted, plan, circumstances)
    return MemberReport(
        wanted.tier.key,
        wanted.member.name,
        wanted.entity,
        wanted.tier.level,
        state,
        reason,
        message,
        spread.leaders if spread is not None else None,
        spread.brokers if spread is not None else None,
        spread.skew if spread is not None else None,
        _in_force(wanted, plan, circumstances),
        promise.values,
        promise.contract_total,
        promise.permitted_total,
    )


def _verdict(wanted: Wanted, plan: EntityPlan, circumstances: Circumstances) -> Verdict:
    if wanted.taken_by is not None:
        words = f"{wanted.entity} is managed by {wanted.taken_by} already; this member changes nothing"
        return MemberState.OVERLAPPING, Reason.OVERLAPPING, words
    if circumstances.hold is not None:
        return MemberState.HELD, circumstances.hold.reason, circumstances.hold.message
    if plan.refused is not None:
        state, words = _UNTOUCHED[plan.refused]
        return state, plan.refused, words
    if wanted.promise.spread is not None and wanted.promise.spread.missing:
        return MemberState.TOPIC_NOT_FOUND, Reason.TOPIC_NOT_FOUND, _missing_words(wanted.promise, wanted.promise.spread)
    if plan.write is not None and wanted.entity in circumstances.unwritten:
        return MemberState.HELD, circumstances.unwritten_because, _unwritten_words(plan, circumstances)
    return _verdict_of_steps(wanted, plan, circumstances.policy)


def _verdict_of_steps(wanted: Wanted, plan: EntityPlan, policy: Policy) -> Verdict:
    short = [step for step in plan.steps if not step.arrived]
    stepping = [step for step in short if step.due_in_seconds is not None]
    if stepping:
        return MemberState.STEPPING, Reason.STEPPING, _stepping_words(wanted.promise, stepping, policy)
    if short:
        return MemberState.HELD, short[0].because, f"quota stays as it is: {_KEPT[short[0].because]}"
    if not wanted.promise.keys and policy.deleting:
        return MemberState.UNLIMITED, Reason.GIVEN_BACK, "the policy is being deleted: the quota is what it was before Tidegate"
    if not wanted.promise.keys:
        exempt = " and never throttled" if wanted.tier is not None and wanted.tier.level is Level.L0 else ""
        reason = Reason.GIVEN_BACK if plan.write is not None else Reason.IN_SYNC
        return MemberState.UNLIMITED, reason, f"no contract: not limited by Tidegate{exempt}"
    if any(step.because is Reason.MINIMUM_CHANGE for step in plan.steps):
        words = f"leaders moved by less than {policy.minimum_change_percent} %: quota stays as it is; {_promise_words(wanted.promise)}"
        return MemberState.CONTRACT, Reason.MINIMUM_CHANGE, words
    return MemberState.CONTRACT, Reason.CONTRACT, _promise_words(wanted.promise)


def _in_force(wanted: Wanted, plan: EntityPlan, circumstances: Circumstances) -> Mapping[QuotaKey, int]:
    """What stands for the managed keys once the writes of the pass are applied; keys without a quota are absent."""
    if plan is IN_SYNC and circumstances.hold is None:
        return wanted.promise.values
    stored = circumstances.quotas.get(wanted.entity) if circumstances.quotas is not None else None
    values: dict[QuotaKey, str | None] = dict(stored.values) if stored is not None else {}
    if plan.write is not None and wanted.entity not in circumstances.unwritten:
        values.update(plan.write.values)
    numbers = {key: number_of(values.get(key)) for key in QuotaKey if key in wanted.promise.keys}
    return {key: int(number) for key, number in numbers.items() if number is not None}


def _promise_words(promise: Promise) -> str:
    rates = ", ".join([f"{KEY_WORDS[key]} {_value_words(key, value)}" for key, value in promise.values.items()])
    spread = promise.spread
    if spread is None:
        return f"{rates} per broker"
    if not spread.leaders:
        return f"{rates} per broker; none of its topics has a leader now"
    return f"{rates} per broker; {spread.leaders} partitions led by {spread.brokers} brokers, skew {spread.skew:.2f}"


def _value_words(key: QuotaKey, value: int) -> str:
    return rate_words(value) if key in BYTE_RATE_KEYS else quota_words(key, str(value))


def _missing_words(promise: Promise, spread: LeaderSpread) -> str:
    names = ", ".join(spread.missing[:3]) + (f" and {len(spread.missing) - 3} more" if len(spread.missing) > 3 else "")
    if not promise.targets:
        return f"topic {names} does not exist; the member's quota stays as it is until it does"
    return f"topic {names} does not exist; until it does the quota may be raised, never lowered, towards {_promise_words(promise)}"


def _stepping_words(promise: Promise, steps: list[KeyStep], policy: Policy) -> str:
    distance = MuteGuard.of(policy).step_distance_seconds
    parts = []
    for step in steps:
        target = promise.targets.get(step.key)
        goal = target.text if target is not None else (step.entry.before if step.entry is not None else None)
        way = f"{quota_words(step.key, goal)}, by way of {quota_words(step.key, step.text)}"
        parts.append(f"{KEY_WORDS[step.key]} on its way down to {way}")
    return f"{'; '.join(parts)}; safe steps of at most {policy.max_mute_seconds} s mute, {distance} s apart"


def _unwritten_words(plan: EntityPlan, circumstances: Circumstances) -> str:
    change = plan.write.message if plan.write is not None else ""
    if circumstances.unwritten_because is Reason.OBSERVING:
        return f"mode is Observe, nothing is written; Enforce would write {change}"
    return f"the write budget of this quarter of an hour is spent; later: {change}"
