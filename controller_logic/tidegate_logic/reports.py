"""What the status says of every member: state, numbers and a sentence for people.

Sentences change only when something changed, so that a pass that changes nothing writes no status:
they carry rates and distances, never a countdown.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter

from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.contracts.targets import HeldKeys, Promise, Target, ThrottledTargets
from tidegate_logic.decision import Cause, Decision, LevelReport, LevelState
from tidegate_logic.model import Entity, Hold, Level, Policy, QuotaKey, QuotaWrite, StoredQuota
from tidegate_logic.quota_values import KEY_WORDS, number_of, quota_words
from tidegate_logic.quotas.entity_plan import AS_PROMISED, EntityPlan
from tidegate_logic.quotas.leaving import GRACE_SECONDS
from tidegate_logic.quotas.steps import KeyStep, MuteGuard
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.calendar import LIMITED_BY_CALENDAR
from tidegate_logic.throttle.decision import BrokerView, Round, StepKind, ThrottleDecision
from tidegate_logic.throttle.nic_status import NicKey, NicStatus
from tidegate_logic.words import UNKNOWN, clock_words, rate_of_words, rate_words

# What the policy says of each level: its state, which broker's load began its throttling, and what
# that broker carries now.
#
# The cause is noted when a level is first throttled and stays until it is back at its contracts, so
# that it names what began the episode. Where its first cut waits for its turn among the writes, the
# cause is that of the pass that decided the cut: when it is written, nothing may be in need any
# more.


_NAMED_NICS = 3  # of a cause; the worst come first


def level_reports(
    decision: Decision, before: Mapping[Level, Cause], *, now_seconds: float
) -> tuple[tuple[LevelReport, ...], Mapping[Level, Cause]]:
    """Every level that has members, L0 first, and the causes of those that are throttled.

    None while the pass is held: it is not known then. `before` are the causes of the last pass.
    """
    if decision.holds:
        return (), before
    counts: dict[Level, Counter[tuple[MemberState, Reason]]] = {level: Counter() for level in Level}
    for tier, members in groupby(decision.members, key=_TIER):
        counts[tier.level].update(map(_STATE, members))
    reports: list[LevelReport] = []
    causes: dict[Level, Cause] = {}
    waiting = _levels_to_lower(decision.throttle)
    for level in Level:
        if not counts[level]:
            continue
        one = _report(level, counts[level])
        if one.below_contract or level in waiting:
            cause = before.get(level)
            if cause is None or cause.is_waiting:
                cause = cause_of(decision.throttle, level, now_seconds=now_seconds) or cause
            if cause is not None:
                cause = replace(cause, is_waiting=not one.below_contract)
                causes[level] = cause = _seen_again(cause, decision.throttle)
            if one.below_contract:
                one = _with_cause(one, cause, decision)
        reports.append(one)
    return tuple(reports), causes


def _with_cause(one: LevelReport, cause: Cause | None, decision: Decision) -> LevelReport:
    if cause is not None:
        one = replace(one, because=cause.words, since_seconds=cause.at_seconds, by_calendar=False)
    elif one.by_calendar:
        words = [level.words for level in decision.calendar if level.level is one.level]
        return replace(one, because="".join(words))
    return replace(one, now=_now_words(cause, decision.throttle))


def _levels_to_lower(throttle: ThrottleDecision | None) -> frozenset[Level]:
    """The levels with a member whose quota is to be lowered and is not yet."""
    steps = () if throttle is None else throttle.steps.values()
    return frozenset(step.level for step in steps if step.lowers)


def _report(level: Level, states: Mapping[tuple[MemberState, Reason], int]) -> LevelReport:
    """One level, from how many of its members are in each state for each reason."""
    members = sum(states.values())
    throttled = {
        reason: count for (state, reason), count in states.items() if state is MemberState.THROTTLED
    }
    if throttled:
        state = (
            LevelState.RELAXING if throttled.keys() == {Reason.RELAXING} else LevelState.THROTTLED
        )
        by_calendar = throttled.keys() == {Reason.CALENDAR}
        below = sum(throttled.values())
        return LevelReport(
            level, state, members=members, below_contract=below, by_calendar=by_calendar
        )
    stepping = any(state is MemberState.STEPPING for state, _ in states)
    state = LevelState.STEPPING if stepping else LevelState.CONTRACT
    return LevelReport(level, state, members=members)


def cause_of(
    throttle: ThrottleDecision | None, level: Level, *, now_seconds: float
) -> Cause | None:
    """The brokers in need for which this level is cut, the worst first; None = there is none."""
    needy = [(one, view) for one in _rounds(throttle) for view in one.brokers if view.need > 0]
    cut_for = {
        (broker, step.direction)
        for one in _rounds(throttle)
        for step in one.steps
        if step.level is level and step.kind is StepKind.CUT
        for broker in step.brokers
    }
    chosen = [found for found in needy if _nic_key(*found) in cut_for] or [
        (one, view) for one, view in needy if view.room_for is None or view.room_for < level
    ]
    if not chosen:
        return None
    chosen.sort(key=lambda found: (-found[1].need, found[1].nic.broker))
    words = [_need_words(one, view) for one, view in chosen[:_NAMED_NICS]]
    more = len(chosen) - len(words)
    words += [f"{more} more"] if more else []
    nics = tuple(_nic_key(one, view) for one, view in chosen[:_NAMED_NICS])
    return Cause(", ".join(words), now_seconds, nics)


def _need_words(one: Round, view: BrokerView) -> str:
    """`broker 2 egress 58.1 of 50 MB/s`; for a broker within its limit, who needs the room."""
    broker, way = _nic_key(one, view)
    if view.for_replication:
        return (
            f"room for {rate_words(view.need)} of replication on broker {broker} "
            f"{way.value} ({_of_limit(view.nic)})"
        )
    if view.room_for is None:
        return _load_words((broker, way), view.nic)
    return (
        f"room for {rate_words(view.need)} of {view.room_for.value}, which is below its "
        f"contract, on broker {broker} {way.value} ({_of_limit(view.nic)})"
    )


def _load_words(key: NicKey, nic: NicStatus) -> str:
    broker, way = key
    if nic.bytes_per_second is None or nic.limit is None:
        return f"broker {broker} {way.value} unknown"
    return f"broker {broker} {way.value} {_of_limit(nic)}"


def _of_limit(nic: NicStatus) -> str:
    carries, limit = nic.bytes_per_second or 0.0, nic.limit or 0
    return rate_of_words(carries, limit)


def _seen_again(cause: Cause, throttle: ThrottleDecision | None) -> Cause:
    """The cause with what its NICs carry now, and of those that are unknown what they did."""
    nics = _nics(throttle)
    seen = {
        key: (nic.bytes_per_second, nic.at_seconds)
        for key in cause.nics
        if (nic := nics.get(key)) is not None
        and nic.bytes_per_second is not None
        and nic.at_seconds is not None
    }
    return replace(cause, seen={**cause.seen, **seen})


def _now_words(cause: Cause | None, throttle: ThrottleDecision | None) -> str:
    """`now 9.3 MB/s`, a rate for each NIC of the cause; `as of 14:05:09 UTC` where it is
    not known now.

    Without a cause (the operator was restarted): the NIC that is nearest to its limit.
    """
    nics = _nics(throttle)
    if cause is not None:
        words = [_carries_words(nics.get(key), cause.seen.get(key)) for key in cause.nics]
        return f"now {', '.join(words)}"
    shares = {
        key: nic.bytes_per_second / nic.limit
        for key, nic in nics.items()
        if nic.limit and nic.bytes_per_second is not None
    }
    if not shares:
        return "now unknown, no broker has a reading"
    nearest = max(shares, key=lambda key: shares[key])
    return f"now {_load_words(nearest, nics[nearest])}"


def _carries_words(nic: NicStatus | None, seen: tuple[float, float] | None) -> str:
    if nic is not None and nic.bytes_per_second is not None:
        return rate_words(nic.bytes_per_second)
    if seen is None:
        return UNKNOWN
    return f"{UNKNOWN} ({rate_words(seen[0])} as of {clock_words(seen[1])} UTC)"


def _rounds(throttle: ThrottleDecision | None) -> tuple[Round, ...]:
    return throttle.rounds if throttle is not None else ()


def _nic_key(one: Round, view: BrokerView) -> NicKey:
    return view.nic.broker, one.direction


def _nics(throttle: ThrottleDecision | None) -> Mapping[NicKey, NicStatus]:
    return {_nic_key(one, view): view.nic for one in _rounds(throttle) for view in one.brokers}


_TIER, _STATE = attrgetter("tier"), attrgetter("state", "reason")
_KEYS = tuple(QuotaKey)
_UNTOUCHED = {
    Reason.FOREIGN_CONTENT: (
        MemberState.FOREIGN_CONTENT,
        "the entity's znode cannot be read safely; it is left as it is",
    ),
    Reason.CLUSTER_ALREADY_MANAGED: (
        MemberState.HELD,
        "the ledger shows the entity as another policy's; left as it is",
    ),
}
_BY_LOAD = frozenset({Reason.THROTTLED, Reason.CALENDAR, Reason.RELAXING, Reason.RELEASED})
_KEPT = {
    Reason.TOPOLOGY_INCOMPLETE: "not all leaders are known, and nothing is lowered until they are",
    Reason.REMOVAL_HELD: "restoring quotas is held until exactly these are confirmed",
    Reason.INVALID_SPEC: "escalation.maxMuteSeconds is too short for the brokers' quota window: "
    "no lowering is safe",
}

Verdict = tuple[MemberState, Reason, str | None]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What applies to all members of one pass.

    `unwritten` are entities whose write waits for the budget, or for Enforce; `held` are those that
    load holds below their contracts.
    """

    policy: Policy
    quotas: Mapping[Entity, StoredQuota] | None
    hold: Hold | None = None
    writes: Mapping[Entity, QuotaWrite] = field(default_factory=dict)
    unwritten: frozenset[Entity] = frozenset()
    unwritten_because: Reason = Reason.WRITE_BUDGET_SPENT
    held: ThrottledTargets = field(default_factory=dict)


def report(
    promised: MemberReport, plan: EntityPlan | None, circumstances: Circumstances
) -> MemberReport:
    """The report of one member: as promised, unless its plan or the circumstances differ.

    `plan` None = the member ends as promised.
    """
    unusual = promised.entity in circumstances.unwritten or promised.entity in circumstances.held
    if plan is None and circumstances.hold is None and not unusual:
        return promised
    if promised.state is MemberState.OVERLAPPING:
        return promised
    plan = plan or AS_PROMISED
    state, reason, wording = _verdict(promised, plan, circumstances)
    in_force = _in_force(promised, plan, circumstances)
    return MemberReport(
        promised.tier, promised.member, promised.scaling, state, reason, wording, in_force
    )


def _verdict(promised: MemberReport, plan: EntityPlan, circumstances: Circumstances) -> Verdict:
    # not a chain of named checks as `Ready` is: ten calls for each of 5000 members cost a decision
    # several milliseconds
    if circumstances.hold is not None:
        return MemberState.HELD, circumstances.hold.reason, circumstances.hold.message
    if plan.contention is not None:
        contention, policy_key = plan.contention, circumstances.policy.key
        words = (
            f"another writer keeps changing the quota: {contention.words}. "
            f"{contention.ended_by(policy_key)}"
        )
        return MemberState.CONTENDED, Reason.CONTENDED, words
    if plan.refused is not None and plan.why:
        return MemberState.HELD, plan.refused, plan.why
    if plan.refused is not None:
        state, words = _UNTOUCHED[plan.refused]
        stored = (circumstances.quotas or {}).get(promised.entity)
        problem = stored.problem if stored is not None else None
        return state, plan.refused, f"{words}: {problem}" if problem else words
    if promised.state is MemberState.TOPIC_NOT_FOUND:
        return promised.state, promised.reason, promised.wording
    if promised.entity in circumstances.unwritten:
        words = _unwritten_words(circumstances.writes[promised.entity], circumstances)
        return MemberState.HELD, circumstances.unwritten_because, words
    return _verdict_of_steps(promised, plan, circumstances)


def _verdict_of_steps(
    promised: MemberReport, plan: EntityPlan, circumstances: Circumstances
) -> Verdict:
    policy = circumstances.policy
    short = [step for step in plan.steps if not step.arrived]
    if short:
        return _verdict_on_the_way(promised.promise, short, policy)
    if promised.entity in circumstances.held:
        return _verdict_on_throttled(circumstances.held[promised.entity])
    if promised.state is MemberState.UNLIMITED:
        given_back = promised.entity in circumstances.writes
        return (
            promised.state,
            Reason.GIVEN_BACK if given_back else promised.reason,
            promised.wording,
        )
    waits = [step for step in plan.steps if step.because is Reason.RESTORE_WAITS]
    if waits:
        keys = " and ".join(KEY_WORDS[step.key] for step in waits)
        words = (
            f"{promised.message}; {keys} without a contract, restored within "
            f"{GRACE_SECONDS:.0f} s unless the contract names it again"
        )
        return promised.state, Reason.RESTORE_WAITS, words
    if any(step.because is Reason.MINIMUM_CHANGE for step in plan.steps):
        words = (
            f"leaders moved by less than {policy.minimum_change_percent} %: quota stays as it "
            f"is; {promised.promise}"
        )
        return MemberState.CONTRACT, Reason.MINIMUM_CHANGE, words
    return promised.state, promised.reason, promised.wording


def _verdict_on_throttled(held: HeldKeys) -> Verdict:
    parts = [
        f"{KEY_WORDS[key]} {rate_words(one.value)} of the contract's {rate_words(one.contract)} "
        f"per broker"
        f"{'' if one.value <= one.floor.value else f', never below {rate_words(one.floor.value)}'}"
        for key, one in held.items()
    ]
    if all(one.by_calendar for one in held.values()):
        return MemberState.THROTTLED, Reason.CALENDAR, f"{'; '.join(parts)}; {LIMITED_BY_CALENDAR}"
    reason = Reason.RELAXING if all(one.rises for one in held.values()) else Reason.THROTTLED
    return MemberState.THROTTLED, reason, "; ".join(parts)


def _verdict_on_the_way(promise: Promise, short: list[KeyStep], policy: Policy) -> Verdict:
    stepping = [step for step in short if step.due_in_seconds is not None]
    if stepping:
        return MemberState.STEPPING, Reason.STEPPING, _stepping_words(promise, stepping, policy)
    return MemberState.HELD, short[0].because, f"quota stays as it is: {_KEPT[short[0].because]}"


def _in_force(
    promised: MemberReport, plan: EntityPlan, circumstances: Circumstances
) -> Mapping[QuotaKey, int] | None:
    """What stands for the managed keys after the writes; keys without a quota are absent.

    None = what was promised.
    """
    written = promised.entity not in circumstances.unwritten
    promise = promised.promise
    if circumstances.hold is None and written and _ends_as_promised(plan.steps, promise.targets):
        return None
    stored = circumstances.quotas.get(promised.entity) if circumstances.quotas is not None else None
    texts: dict[QuotaKey, str | None] = dict(stored.values) if stored is not None else {}
    if written and (write := circumstances.writes.get(promised.entity)) is not None:
        texts.update(write.values)
    numbers = {key: number_of(texts.get(key)) for key in _KEYS if key in promise.keys}
    return {key: int(number) for key, number in numbers.items() if number is not None}


def _ends_as_promised(steps: tuple[KeyStep, ...], targets: Mapping[QuotaKey, Target]) -> bool:
    """Whether every promised key has a target and will stand at its own text."""
    if not targets or len(steps) != len(targets):
        return False
    for step in steps:
        target = targets.get(step.key)
        if target is None or step.text != target.text:
            return False
    return True


def _stepping_words(promise: Promise, steps: list[KeyStep], policy: Policy) -> str:
    distance = MuteGuard.of(policy).step_distance_seconds
    parts = []
    for step in steps:
        target = promise.targets.get(step.key)
        goal = (
            target.text
            if target is not None
            else (step.entry.before if step.entry is not None else None)
        )
        way = f"{quota_words(step.key, goal)}, by way of {quota_words(step.key, step.text)}"
        parts.append(f"{KEY_WORDS[step.key]} on its way down to {way}")
    return (
        f"{'; '.join(parts)}; safe steps of at most {policy.max_mute_seconds} s mute, "
        f"{distance} s apart"
    )


def _unwritten_words(write: QuotaWrite, circumstances: Circumstances) -> str:
    if circumstances.unwritten_because is Reason.OBSERVING and write.reason in _BY_LOAD:
        why = (
            "the policy's calendar limits its level"
            if write.reason is Reason.CALENDAR
            else "a broker is over its limit"
        )
        return f"mode is Observe, nothing is written; Enforce would throttle it, because {why}"
    if circumstances.unwritten_because is Reason.OBSERVING:
        return f"mode is Observe, nothing is written; Enforce would write {write.message}"
    return f"the write budget is spent; later: {write.message}"
