"""The one entry of the core: decide(observation, memory) -> (decision, memory).

The order of a pass:

    0. admit       members whose entity the policy allows, and whose quotas no KafkaUser of
                   Strimzi declares; the others count as absent
                   contracts/allowed, quotas/strimzi
    1. advise      contracts that follow from usage, where the policy applies them
                   contracts/recommend
    2. hold        anything missing or a person's pause: report what is known, write nothing
                   holds_of
    3. target      contracts with overrides and within budgets, on the leaders, and Kafka's default
                   entities; no fetch quota where a share group reads
                   contracts/overrides, budgets, share_groups, desired
    4. throttle    which rates load holds below their contracts, how far each may go now
                   throttle/throttle_pass
    5. steps       per key: equal, raise at once, lower in safe steps, restore, leave alone
                   quotas/plan, steps
    6. removal     a bulk removal is held until a person confirms the count
                   quotas/plan
    7. budget      order the writes, defer what does not fit into the period
                   quotas/budget
    8. report      what every member has and should have, in numbers and words
                   reports
    9. watch       every live broker against its limits, for people
                   throttle/nic_status

`decide` assumes nothing of its writes. After they were sent, `settle` puts into memory what really
happened. The same observation and memory always give the same decision; a decision whose writes
were all applied is followed by one without writes, unless a step is due.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from tidegate_logic.contracts.adaptive import adaptations, measured_reads
from tidegate_logic.contracts.allowed import admit
from tidegate_logic.contracts.budgets import apply_budgets
from tidegate_logic.contracts.desired import (
    Desired,
    MemberReport,
    MemberState,
    desired,
    metering,
    standing_of,
)
from tidegate_logic.contracts.fetch_spread import Reads
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.contracts.overrides import apply_overrides
from tidegate_logic.contracts.recommend import AdviceBasis, Recommendations, advise
from tidegate_logic.contracts.share_groups import protect
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    Contract,
    Entity,
    Hold,
    Mode,
    Note,
    Observation,
    Policy,
    QuotaKey,
    RateForm,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.quotas import budget, contention
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.quotas.leaving import (
    LOOK_EVERY_SECONDS,
    Restored,
    staying_keys,
    without_restored,
)
from tidegate_logic.quotas.plan import (
    Before,
    Plan,
    as_stored,
    deletion_plan,
    make_plan,
    our_entities,
)
from tidegate_logic.quotas.precedence import DefaultEntityQuotas
from tidegate_logic.quotas.sent_rates import SentRates
from tidegate_logic.quotas.strimzi import forgotten, leave_to_strimzi, with_causes
from tidegate_logic.readings import Flows, flows_of
from tidegate_logic.reasons import Reason
from tidegate_logic.reports import Circumstances, level_reports, report
from tidegate_logic.throttle.calendar import level_calendars
from tidegate_logic.throttle.decision import ThrottleDecision
from tidegate_logic.throttle.nic_status import watch
from tidegate_logic.throttle.schedules import limits_now
from tidegate_logic.throttle.throttle_pass import ThrottlePass, throttle_pass
from tidegate_logic.words import counted

WARN_ABOVE_SKEW = 1.5
_OVERLAPPING = MemberState.OVERLAPPING
_NOT_NEEDED_TO_RESTORE = frozenset(
    {
        Reason.BROKERS_UNREACHABLE,
        Reason.BUDGETS_UNREAD,
        Reason.TOPOLOGY_INCOMPLETE,
        Reason.LIST_INCOMPLETE,
        Reason.TOPIC_NOT_FOUND,
    }
)


def decide(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
    """Decide what to write, report and remember; the module's docstring has the order of steps."""
    limits = limits_now(observation.policy, observation.tiers or (), observation.now_seconds)
    if limits is not None:
        observation = replace(observation, policy=observation.policy.with_limits(limits.limits))
    admission = leave_to_strimzi(admit(observation.policy, observation.tiers), observation.strimzi)
    observation, restored = _apart(replace(observation, tiers=admission.tiers))
    advised = _advised(observation, memory)
    memory = replace(memory, advised=advised)
    overridden = apply_overrides(advised.tiers, observation.overrides, observation.now_seconds)
    stale_after_seconds = observation.policy.stale_after_seconds
    flows = flows_of(
        observation.readings,
        now_seconds=observation.now_seconds,
        stale_after_seconds=stale_after_seconds,
    )
    observation, leaders = replace(observation, tiers=overridden.tiers), _leaders(observation)
    budgeted = apply_budgets(
        observation,
        leaders,
        flows,
        memory.budgets,
        charged=_spent(observation, memory) if observation.budgets else 0,
    )
    protection = protect(replace(observation, tiers=budgeted.tiers), memory.share_uses)
    memory = replace(memory, share_uses=protection.uses, budgets=budgeted.memory)
    decision, memory = _decide(
        replace(observation, tiers=protection.tiers), leaders, flows, restored, memory
    )
    if calendar := observation.policy.calendar:
        entries = level_calendars(calendar, observation.now_seconds)
        decision = replace(decision, calendar=entries)
    if limits is not None:
        decision = replace(decision, limits=limits)
        if limits.due_seconds is not None:
            due = limits.due_seconds - observation.now_seconds
            before = decision.next_pass_in_seconds
            due = due if before is None else min(due, before)
            decision = replace(decision, next_pass_in_seconds=due)
    throttle = decision.throttle or ThrottleDecision()
    watched = watch(observation, flows, memory.pressures, throttle.throttled, throttle.judged)
    levels, causes = level_reports(decision, memory.causes, now_seconds=observation.now_seconds)
    memory = replace(memory, causes=causes)
    decision = replace(
        decision,
        members=(*decision.members, *admission.refused),
        notes=(*decision.notes, *admission.notes()),
        overridden=admission.also_refused(
            overridden, observation.overrides, observation.now_seconds
        ),
        watched=watched,
        levels=levels,
        advice=advised.advice,
        budgets=budgeted.reports,
    )
    if watched is None:
        return decision, memory
    return decision, replace(memory, pressures={one.broker: one.pressure for one in watched})


def _apart(observation: Observation) -> tuple[Observation, Restored]:
    """The observation with only what is ours in the ledger, and what else the ledger remembers.

    A policy that is being deleted keeps no memory: every record of it is to go.
    """
    if observation.quotas is None or observation.policy.deleting:
        return observation, Restored()
    quotas, restored = without_restored(observation.quotas)
    return replace(observation, quotas=quotas) if restored.keys else observation, restored


def _advised(observation: Observation, memory: Memory) -> Recommendations:
    """Contracts as usage makes them; as declared without usage or all tiers, or when deleting."""
    if observation.usage is None or observation.tiers is None or observation.policy.deleting:
        return Recommendations(observation.tiers)
    policy = observation.policy
    limits = policy.usual_limits  # a contract does not change with the time of day
    basis = AdviceBasis(
        observation.usage, observation.tiers, policy.advice, limits, observation.topology
    )
    return advise(basis, memory.advised)


def _decide(
    observation: Observation,
    leaders: Leaders | None,
    flows: Flows,
    restored: Restored,
    memory: Memory,
) -> tuple[Decision, Memory]:
    holds, memory = holds_of(observation, memory)
    if holds:  # a member that is absent may have been there meanwhile: its grace begins again
        memory = replace(memory, removals=replace(memory.removals, unwanted={}))
    reads = Reads.of_topology(leaders)
    memory = replace(
        memory,
        adaptations=adaptations(
            observation, leaders, flows, memory.adaptations, reads=reads, held=bool(holds)
        ),
        measured=measured_reads(
            observation, leaders, flows, memory.measured, reads=reads, held=bool(holds)
        ),
    )
    wanted, memory = _wanted(observation, leaders, reads, memory)
    if observation.policy.deleting and (
        observation.policy.paused or observation.policy.mode is Mode.OBSERVE
    ):
        return _leave_everything(observation, wanted, holds), memory
    if holds or observation.quotas is None:
        return _held(observation, wanted, holds), memory
    return _decide_complete(observation, wanted, flows, restored, memory)


def settle(
    memory: Memory, decision: Decision, applied: Collection[Entity], *, now_seconds: float
) -> Memory:
    """The memory after the writes to `applied` happened: budget charged, repairs counted."""
    written = [write for write in decision.writes if write.entity in applied]
    if not written:
        return memory
    repairs = dict(memory.repairs)
    notified = [write for write in written if write.kind is WriteKind.NOTIFY]
    for write in written:
        if write.reason is Reason.REPAIRED:
            repairs[write.entity] = contention.repaired(
                repairs.get(write.entity), now_seconds=now_seconds
            )
    return replace(
        memory,
        charged=budget.spend(memory.charged, written, now_seconds=now_seconds),
        notified=budget.spend(memory.notified or (), notified, now_seconds=now_seconds),
        repairs=repairs,
    )


def holds_of(observation: Observation, memory: Memory) -> tuple[tuple[Hold, ...], Memory]:
    """Every reason to write nothing in this pass, with the memory of since when each lasts.

    Restoring needs the quota store only, so a policy that is being deleted is not held up by
    missing leaders or resources.
    """
    given = {reason for reason, _ in observation.missing}
    found = (
        *observation.missing,
        *((reason, message) for reason, message in _missing(observation) if reason not in given),
    )
    since = {reason: memory.held_since.get(reason, observation.now_seconds) for reason, _ in found}
    holds = tuple([Hold(reason, message, since[reason]) for reason, message in found])
    if observation.policy.deleting:
        holds = tuple([hold for hold in holds if hold.reason not in _NOT_NEEDED_TO_RESTORE])
    return holds, replace(memory, held_since=since) if since != memory.held_since else memory


def _missing(observation: Observation) -> Iterator[tuple[Reason, str]]:
    stays = "every quota stays as it is"
    if observation.policy.paused:
        yield (
            Reason.PAUSED,
            f"paused by {' and '.join(observation.policy.paused_by)}; {stays} until that ends",
        )
    if observation.missing:
        return
    if observation.quotas is None:
        yield Reason.ZOOKEEPER_UNREACHABLE, f"the quotas in place are not known; {stays}"
    if observation.tiers is None:
        yield Reason.LIST_INCOMPLETE, f"the BusinessTiers are not known in full; {stays}"
    if observation.topology is None or not observation.topology.brokers:
        yield Reason.BROKERS_UNREACHABLE, f"brokers and leaders are not known; {stays}"


def _leaders(observation: Observation) -> Leaders | None:
    topology = observation.topology
    return Leaders(topology) if topology is not None and topology.brokers else None


def _wanted(
    observation: Observation, leaders: Leaders | None, reads: Reads | None, memory: Memory
) -> tuple[Desired, Memory]:
    metered, tiers = metering(observation), observation.tiers or ()
    if memory.adaptations or memory.measured:
        standing = None
        wanted = desired(
            metered.policy,
            tiers,
            leaders,
            adaptations=memory.adaptations,
            reads=reads,
            measured=memory.measured,
        )
    else:
        standing = standing_of(metered.policy, tiers, leaders, reads, memory.standing)
        wanted = standing.wanted
    memory = replace(memory, standing=standing)
    notes = tuple(_rack_notes(wanted, reads)) if reads is not None else ()
    if metered.note is not None:
        notes = (metered.note, *notes)
    return replace(wanted, notes=notes) if notes else wanted, memory


def _rack_notes(wanted: Desired, reads: Reads) -> Iterator[Note]:
    """Declared racks in which no broker is."""
    known = reads.racks
    for owner in wanted.owners.values():
        if unknown := sorted({*owner.member.racks} - known):
            message = (
                f"member {owner.member_name}: no live broker is in rack {', '.join(unknown)} "
                f"(racks are {', '.join(sorted(known)) or 'not set'}), so consumers there read "
                "from leaders"
            )
            yield Note(Reason.RACK_UNKNOWN, message, owner.entity, owner.tier_key)


def _decide_complete(
    observation: Observation, wanted: Desired, flows: Flows, restored: Restored, memory: Memory
) -> tuple[Decision, Memory]:
    """Everything is known: who is left alone, who is throttled, what that means for each quota, and
    how much of it may be written now.
    """
    policy, quotas = observation.policy, observation.quotas or {}
    ours = our_entities(quotas, policy)
    memory, resynced = _resynced(policy, memory)
    memory = replace(memory, charged=_charged(observation, ours, memory))
    memory, contended = _contended(observation, wanted, memory)
    inherited = DefaultEntityQuotas(
        quotas, policy, lambda entity: _kept_keys(quotas[entity], wanted, memory, observation)
    )
    load = throttle_pass(
        observation,
        wanted,
        quotas,
        inherited,
        flows,
        memory=memory.throttle,
        pace=memory.pace,
        contended=contended.keys(),
    )
    wanted = replace(wanted, held=load.held)
    before = Before(
        contended,
        memory.removals,
        observation.frozen,
        forgotten(ours, observation.strimzi),
        restored,
    )
    sent = SentRates(observation, flows, restored)
    plan = _planned(observation, wanted, ours, inherited, before, sent)
    plan = replace(plan, notes=_of_tiers(plan.notes, memory.tier_of))
    memory = replace(
        memory,
        removals=plan.removals,
        tier_of=_tiers_of(wanted, plan, memory),
        throttle=load.memory,
        pace=load.pace,
    )

    def reported(unwritten: Iterable[Entity], because: Reason, load: ThrottlePass) -> Decision:
        seen = Circumstances(
            policy, quotas, None, plan.writes, frozenset(unwritten), because, held=load.held
        )
        return _reported(
            wanted, plan, seen, load, contended=contended, now_seconds=observation.now_seconds
        )

    if policy.mode is Mode.OBSERVE:
        decision = replace(
            reported(plan.writes, Reason.OBSERVING, load),
            would_write=tuple(budget.in_sending_order(plan.writes.values())),
        )
    else:
        decision, memory = _admitted(observation, plan, load, memory, reported)
    finished = policy.deleting and not ours
    return replace(decision, finished_deleting=finished, resynced=resynced), memory


def _charged(
    observation: Observation, ours: Mapping[Entity, StoredQuota], memory: Memory
) -> tuple[tuple[float, int], ...]:
    """What the write budget's period has paid for; by the ledger where nothing is remembered."""
    period_seconds = observation.policy.write_budget_period_seconds
    return budget.unexpired(
        memory.charged, period_seconds=period_seconds, now_seconds=observation.now_seconds
    ) or budget.recovered(
        [stored.ledger for stored in ours.values() if stored.ledger is not None],
        period_seconds=period_seconds,
        now_seconds=observation.now_seconds,
    )


def _spent(observation: Observation, memory: Memory) -> int:
    """How many writes the write budget's period has paid for, as far as that is remembered."""
    period_seconds = observation.policy.write_budget_period_seconds
    charged = budget.unexpired(
        memory.charged, period_seconds=period_seconds, now_seconds=observation.now_seconds
    )
    return sum(count for _, count in charged)


def _contended(
    observation: Observation, wanted: Desired, memory: Memory
) -> tuple[Memory, Mapping[Entity, Contention]]:
    """Who is left alone because another writer keeps changing the quota.

    In mode Observe nothing is put back, and restoring is no fight: no one is left alone.
    """
    policy, quotas = observation.policy, observation.quotas or {}
    repairs = (
        {}
        if policy.mode is Mode.OBSERVE or policy.deleting
        else contention.review(
            memory.repairs, wanted.promise_of, quotas, now_seconds=observation.now_seconds
        )
    )
    left_alone = contention.left_alone(
        repairs, wanted.promise_of, quotas, now_seconds=observation.now_seconds
    )
    return replace(memory, repairs=repairs), with_causes(left_alone, observation.strimzi)


def _planned(
    observation: Observation,
    wanted: Desired,
    ours: Mapping[Entity, StoredQuota],
    inherited: DefaultEntityQuotas,
    before: Before,
    sent: SentRates,
) -> Plan:
    policy, quotas, now_seconds = (
        observation.policy,
        observation.quotas or {},
        observation.now_seconds,
    )
    planned = deletion_plan if policy.deleting else make_plan
    plan = planned(
        wanted,
        ours,
        quotas,
        policy=policy,
        inherited=inherited,
        before=before,
        now_seconds=now_seconds,
        sent=sent,
    )
    return as_stored(plan, before.restored)


def _admitted(
    observation: Observation,
    plan: Plan,
    load: ThrottlePass,
    memory: Memory,
    reported: Callable[[Iterable[Entity], Reason, ThrottlePass], Decision],
) -> tuple[Decision, Memory]:
    """What the write budget and the distance of notifications let through; the rest is deferred."""
    policy, now_seconds = observation.policy, observation.now_seconds
    notifications, notified = budget.due_notifications(
        plan.notifications, memory.notified, now_seconds=now_seconds
    )
    admission = budget.admit(
        (*plan.writes.values(), *notifications),
        memory.charged,
        policy.write_budget_changes,
        period_seconds=policy.write_budget_period_seconds,
        now_seconds=now_seconds,
    )
    deferred = frozenset(write.entity for write in admission.deferred)
    load = load.without(deferred)
    decision = replace(
        reported(deferred, Reason.WRITE_BUDGET_SPENT, load),
        writes=admission.writes,
        unnotified=len(plan.notifications),
    )
    return _with_deferred(decision, admission), replace(memory, notified=notified, pace=load.pace)


def _kept_keys(
    stored: StoredQuota, wanted: Desired, memory: Memory, observation: Observation
) -> Set[QuotaKey]:
    """The keys that the entity keeps in this pass: those that are wanted, and those in grace."""
    keys = wanted.keys_of(stored.entity)
    if observation.policy.deleting:
        return keys
    return keys | staying_keys(stored, memory.removals.unwanted, observation.now_seconds)


def _tiers_of(wanted: Desired, plan: Plan, memory: Memory) -> Mapping[Entity, str]:
    """Which tier names each entity, and which did those whose quota waits to be restored."""
    return {
        **{entity: owner.tier_key for entity, owner in wanted.owners.items()},
        **{
            entity: memory.tier_of[entity]
            for entity in plan.leaving
            if entity in memory.tier_of and entity not in wanted.owners
        },
    }


def _of_tiers(notes: tuple[Note, ...], tier_of: Mapping[Entity, str]) -> tuple[Note, ...]:
    """The notes, those of quotas that wait to be restored with the tier that named them last."""
    return tuple(
        replace(note, tier_key=tier_of.get(note.entity))
        if note.reason is Reason.RESTORE_WAITS and note.entity is not None
        else note
        for note in notes
    )


def _resynced(policy: Policy, memory: Memory) -> tuple[Memory, str]:
    """The memory without what a person wants forgotten, and what to say of it; once a value.

    What is there when the process begins is not asked of it: it remembers nothing yet.
    """
    if policy.resync == memory.resync:
        return memory, ""
    is_first = memory.resync is None
    memory = replace(memory, resync=policy.resync)
    if is_first or not policy.resync:
        return memory, ""
    repairs, ended = contention.resynced(memory.repairs, policy.resync)
    return replace(memory, repairs=repairs), contention.resynced_words(policy.resync, ended)


def _reported(
    wanted: Desired,
    plan: Plan,
    circumstances: Circumstances,
    load: ThrottlePass,
    *,
    contended: Mapping[Entity, Contention],
    now_seconds: float,
) -> Decision:
    """Everything but the writes: reports, notes, counts, and when the next step is due."""
    members = _member_reports(wanted, plan, circumstances)
    skews = [
        member.scaling.spread.skew
        if member.scaling is not None and member.scaling.spread is not None
        else None
        for member in members
    ]
    late = circumstances.unwritten | {
        entity for entity, entity_plan in plan.entities.items() if not entity_plan.arrives
    }
    due = [
        step.due_in_seconds
        for entity_plan in plan.entities.values()
        for step in entity_plan.steps
        if step.due_in_seconds
    ]
    due += [
        seconds
        for seconds in (load.due_in_seconds, load.next_turn_in_seconds)
        if seconds is not None
    ]
    due += [one.until_seconds - now_seconds for one in contended.values()]
    if plan.leaving:
        due.append(LOOK_EVERY_SECONDS)
    return Decision(
        members=members,
        notes=(*wanted.notes, *plan.notes, *_member_notes(members, skews)),
        managed=plan.managed,
        leaving=plan.leaving,
        in_sync=plan.managed - len(late),
        contended=contended,
        largest_leader_skew=max([skew for skew in skews if skew is not None], default=None),
        next_pass_in_seconds=min(due, default=None),
        throttle=load.decision,
    )


def _member_reports(
    wanted: Desired, plan: Plan, circumstances: Circumstances
) -> tuple[MemberReport, ...]:
    plans = plan.entities
    if (
        not plans
        and not circumstances.unwritten
        and not circumstances.held
        and circumstances.hold is None
    ):
        return wanted.members  # all end as promised
    return tuple(
        [report(promised, plans.get(promised.entity), circumstances) for promised in wanted.members]
    )


def _member_notes(
    members: tuple[MemberReport, ...], skews: Sequence[float | None]
) -> Iterator[Note]:
    """Overlaps, and leaders too uneven for one number per broker where it depends on them."""
    for member, skew in zip(members, skews, strict=True):
        if member.state is _OVERLAPPING:
            yield Note(
                Reason.OVERLAPPING,
                f"member {member.member_name}: {member.message}",
                member.entity,
                member.tier_key,
            )
        elif (
            skew is not None
            and skew > WARN_ABOVE_SKEW
            and _depends_on_leaders(member.member.contract)
        ):
            message = (
                f"member {member.member_name}: leaders are uneven (skew {skew:.2f}), so one number "
                "for all brokers fits badly; a preferred leader election or a reassignment of "
                "its partitions would help"
            )
            yield Note(Reason.HIGH_SKEW, message, member.entity, member.tier_key)


def _depends_on_leaders(contract: Contract | None) -> bool:
    return contract is not None and contract.form is not RateForm.PER_BROKER


def _with_deferred(decision: Decision, admission: budget.Admission) -> Decision:
    """Say how many writes wait for the budget, and come back when it has room."""
    if admission.room_in_seconds is None:
        return decision
    due = [
        seconds
        for seconds in (decision.next_pass_in_seconds, admission.room_in_seconds)
        if seconds is not None
    ]
    message = (
        f"{len(admission.deferred)} changes wait: the write budget (spec.writeBudget) is spent"
    )
    notes = (*decision.notes, Note(Reason.WRITE_BUDGET_SPENT, message))
    return replace(
        decision,
        notes=notes,
        deferred_writes=len(admission.deferred),
        next_pass_in_seconds=min(due),
    )


def _held(observation: Observation, wanted: Desired, holds: tuple[Hold, ...]) -> Decision:
    """Reports and no write. A deleting policy is not finished while it is held."""
    hold = holds[0] if holds else None
    circumstances = Circumstances(observation.policy, observation.quotas, hold)
    members = _member_reports(wanted, Plan({}), circumstances)
    return Decision(
        members=members,
        holds=holds,
        managed=sum(bool(promise.keys) for _, promise in wanted.promises()),
        in_sync=sum(bool(member.target) and member.quota == member.target for member in members),
        largest_leader_skew=max(
            (member.leader_skew for member in members if member.leader_skew is not None),
            default=None,
        ),
    )


def _leave_everything(
    observation: Observation, wanted: Desired, holds: tuple[Hold, ...]
) -> Decision:
    """A policy that may not write is deleted: give nothing back, and note the command that does."""
    policy = observation.policy
    left = None
    if observation.quotas is not None:
        left = len(our_entities(without_restored(observation.quotas)[0], policy))
    why = "paused" if policy.paused else "in mode Observe"
    decision = _held(observation, wanted, holds)
    if left == 0:
        return replace(decision, finished_deleting=True)
    stay = "an unknown number of quotas" if left is None else counted(left, "quota")
    message = (
        f"policy {policy.key} was deleted while {why} and leaves {stay} in Kafka; `tidegate "
        f"restore` restores what was there before"
    )
    return replace(
        decision, notes=(Note(Reason.RESTORE_INCOMPLETE, message),), finished_deleting=True
    )
