"""The throttle's part of a pass: what load says of every rate, and what is held below contracts.

Without readings nothing moves: what the ledger shows as throttled stays so. Writes that the
throttle wants are spread over a quota window; those whose turn has not come stay what is in force.
A policy that names no metrics throttles nothing, so every client is at its contracted rate.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from tidegate_logic.contracts.desired import Desired, MemberReport
from tidegate_logic.contracts.targets import (
    NOTHING,
    Promise,
    Target,
    Throttled,
    ThrottledTargets,
)
from tidegate_logic.model import (
    KEY_OF,
    MAX_BYTE_RATE,
    Direction,
    Entity,
    LedgerEntry,
    Level,
    Mode,
    Observation,
    Policy,
    QuotaKey,
    RateKey,
    Readings,
    StoredQuota,
    metered,
)
from tidegate_logic.quota_values import enforced_rate, same_quota
from tidegate_logic.quotas.budget import WritePace, paced
from tidegate_logic.quotas.precedence import DefaultEntityQuotas
from tidegate_logic.readings import Flows
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.attribution import scene_of
from tidegate_logic.throttle.buckets import buckets_of, sawteeth_of, seen_of
from tidegate_logic.throttle.calendar import ceilings_of, due_in_seconds, with_calendar
from tidegate_logic.throttle.coming import load_to_come
from tidegate_logic.throttle.decision import (
    Round,
    StepKind,
    ThrottleDecision,
    ThrottleStep,
)
from tidegate_logic.throttle.escalation import (
    direction_memory,
    escalate,
    holds_of,
    settle,
)
from tidegate_logic.throttle.input import (
    ActiveThrottle,
    DirectionMemory,
    Draining,
    LastChange,
    ManagedRate,
    StandingRate,
    StandingRates,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from tidegate_logic.throttle.nic_status import nic_statuses
from tidegate_logic.throttle.record import round_of

# The managed rates: every member in both directions, on today's leaders, with what stands.
#
# What must not be written (another policy's, or a znode that does not read) and what may never be
# throttled have no floor. A rate whose contract cannot be known now is left out; what was decided
# on it is found again in the ledger.


class ManagedRates:
    """What one pass knows of rates; `live` are the brokers that the cluster lists.

    `contended` are the entities that are left alone, because another writer keeps changing them.
    """

    def __init__(
        self,
        wanted: Desired,
        quotas: Mapping[Entity, StoredQuota],
        policy: Policy,
        live: frozenset[int],
        inherited: DefaultEntityQuotas,
        contended: Set[Entity] = frozenset(),
    ) -> None:
        self._wanted = wanted
        self._contended = contended
        self._quotas = quotas
        self._policy = policy
        self._live = live
        self._inherited = inherited
        self._basis = policy, live, inherited.defaults
        # at all times: what stands for a contract must not change with the time of day
        limits = [one.of(broker) for one in policy.limits_of_all_times for broker in live]
        self._largest = {
            way: max((limit.limit_of_rates(way) or 0 for limit in limits), default=0)
            for way in KEY_OF
        }

    def all(self, last: StandingRates) -> tuple[tuple[ManagedRate, ...], StandingRates]:
        """Every rate with a contract or a floor, in the order of the tiers.

        Those of the `last` pass are taken where they would be made the same.
        """
        known = last.of if last.basis == self._basis else {}
        found: list[ManagedRate] = []
        standing: dict[Entity, StandingRate] = {}
        for entity, owner in self._wanted.owners.items():
            if entity in self._contended:
                found += self._of(owner)
                continue
            stored, one = self._quotas.get(entity), known.get(entity)
            if (
                one is None
                or one.owner is not owner
                or not (one.stored is stored or one.stored == stored)
            ):
                one = StandingRate(owner, stored, tuple(self._of(owner)))
            standing[entity] = one
            found += one.rates
        return tuple(found), StandingRates(self._basis, standing)

    def floor(self, entity: Entity, direction: Direction) -> Target:
        """What the tier throttles it to. Raises KeyError if it is never throttled."""
        return self._wanted.floor_of(self._wanted.owners[entity]).targets[KEY_OF[direction]]

    def _of(self, owner: MemberReport) -> Iterator[ManagedRate]:
        stored = self._quotas.get(owner.entity)
        promise = owner.promise
        floors = (
            self._wanted.floor_of(owner)
            if stored is not None and self._may_write(stored)
            else NOTHING
        )
        for direction, key in KEY_OF.items():
            contract = self._contract(promise, floors, direction)
            if contract:
                yield self._rate(
                    owner, stored, direction, contract=contract, floor=floors.targets.get(key)
                )

    def _may_write(self, stored: StoredQuota) -> bool:
        return stored.problem is None and (stored.ledger is None or stored.is_of(self._policy))

    def _contract(self, promise: Promise, floors: Promise, direction: Direction) -> int:
        """What is promised on each broker; 0 = unknown.

        Without a contract, for the arithmetic, as much as any broker may carry.
        """
        key = KEY_OF[direction]
        target = promise.targets.get(key)
        if target is not None:
            return target.value
        return (
            self._largest[direction] if key in floors.targets and key not in promise.unknown else 0
        )

    def _rate(
        self,
        owner: MemberReport,
        stored: StoredQuota | None,
        direction: Direction,
        *,
        contract: int,
        floor: Target | None,
    ) -> ManagedRate:
        key = KEY_OF[direction]
        entry = (
            stored.ledger.entries.get(key)
            if stored is not None and stored.ledger is not None
            else None
        )
        serving, in_force = owner.serving(direction), self._in_force(stored, key)
        return ManagedRate(
            owner.entity,
            direction,
            owner.level,
            contract,
            None if floor is None else floor.value,
            in_force,
            self._live if serving is None else serving,
            last_change=_last_change(entry),
            recorded_fraction=_recorded_fraction(entry),
            # one bucket shows only that there is a producer
            producers=int(direction is Direction.INGRESS),
            contended=owner.entity in self._contended,
            owed=self._owed(owner, stored, in_force, contract=contract, key=key),
            longest_mute_seconds=owner.member.longest_mute_seconds
            if direction is Direction.EGRESS
            else None,
        )

    def _owed(
        self,
        owner: MemberReport,
        stored: StoredQuota | None,
        in_force: int | None,
        *,
        contract: int,
        key: QuotaKey,
    ) -> int:
        """The contract where it is above what is in force and will be written; else 0."""
        if in_force is None or stored is None or in_force >= contract:
            return 0
        is_small = (contract - in_force) * 100 < self._policy.minimum_change_percent * in_force
        will_be_written = (
            key in owner.promise.targets
            and owner.entity not in self._contended
            and self._may_write(stored)
        )
        return contract if will_be_written and not is_small else 0

    def _in_force(self, stored: StoredQuota | None, key: QuotaKey) -> int | None:
        if stored is None:
            return None
        if key in stored.values:
            return enforced_rate(stored.values[key])
        inherited = self._inherited.below(stored.entity).get(key)
        rate = None if inherited is None else enforced_rate(inherited.text)
        # a default that only meters limits nothing
        return rate if rate is not None and rate < MAX_BYTE_RATE else None


def _last_change(entry: LedgerEntry | None) -> LastChange | None:
    if entry is None or same_quota(entry.previous, entry.written):
        return None
    return LastChange(entry.written_at_seconds, enforced_rate(entry.previous))


def _recorded_fraction(entry: LedgerEntry | None) -> float:
    """The recorded share of the contract; 1.0 unless we wrote the value as a throttle."""
    written = enforced_rate(entry.written) if entry is not None else None
    if entry is None or not entry.of_contract or written is None:
        return 1.0
    return written / entry.of_contract


# of the contract: rounding, and a floor that binds on other leaders, are no new decision
_SAME = 0.005
_USUAL_SCRAPE_SECONDS = 15.0
_LEVELS = tuple(Level)


@dataclass(frozen=True, slots=True)
class ThrottlePass:
    """What load does in one pass; `held` are the keys that are held below their contracts.

    `due_in_seconds` is when a step of it may follow, `next_turn_in_seconds` when the next of its
    writes that wait for their turn may go; `going` are those whose turn it is. `decision` None =
    load is not measured.
    """

    held: ThrottledTargets = field(default_factory=dict)
    decision: ThrottleDecision | None = None
    memory: ThrottleMemory | None = None
    pace: WritePace | None = None
    due_in_seconds: float | None = None
    next_turn_in_seconds: float | None = None
    going: frozenset[Entity] = frozenset()

    def without(self, deferred: Set[Entity]) -> "ThrottlePass":
        """The same where the write budget has no room for these.

        Where one of them had its turn, those after it would find no room either: they come with
        the room, or with the next reading, and not a pass for each turn.
        """
        if self.pace is None or self.going.isdisjoint(deferred):
            return self
        return replace(self, next_turn_in_seconds=None, pace=replace(self.pace, left=0))


def throttle_pass(
    observation: Observation,
    wanted: Desired,
    quotas: Mapping[Entity, StoredQuota],
    inherited: DefaultEntityQuotas,
    flows: Flows,
    *,
    memory: ThrottleMemory | None,
    pace: WritePace | None,
    contended: Set[Entity] = frozenset(),
) -> ThrottlePass:
    """Decide every byte rate of every member. The topology has to be known.

    Nothing is written for the `contended`, so nothing is expected of them.
    """
    policy, topology, now_seconds = (
        observation.policy,
        observation.topology,
        observation.now_seconds,
    )
    if policy.deleting or not policy.measured or topology is None:
        return ThrottlePass()
    rates = ManagedRates(wanted, quotas, policy, topology.brokers, inherited, contended)
    memory = memory or ThrottleMemory()
    managed, standing = rates.all(memory.rates)
    given = ThrottleInput(
        now_seconds,
        observation.readings or Readings(now_seconds, _USUAL_SCRAPE_SECONDS),
        {broker: policy.limits.of(broker) for broker in topology.brokers},
        topology.brokers,
        managed,
        ThrottleSettings.of(policy),
        observation.replication,
        policy.calendar,
    )
    decision, remembered = throttle(given, flows, memory)
    changes = [step for step in _in_write_order(decision.steps.values()) if not step.ends_drain]
    turn = paced(changes, pace, policy.window, now_seconds=now_seconds)
    going = len(changes) if policy.mode is Mode.OBSERVE else turn.now
    waiting = {step.key for step in changes[going:]}
    due = [
        step.due_in_seconds for step in decision.steps.values() if step.due_in_seconds is not None
    ]
    calendar_due = due_in_seconds(policy.calendar, given.settings, now_seconds)
    due += [] if calendar_due is None else [calendar_due]
    return ThrottlePass(
        _held_down(decision, waiting, rates),
        decision,
        replace(remembered, rates=standing),
        turn.pace,
        min(due, default=None),
        turn.due_in_seconds,
        frozenset(step.entity for step in changes[:going]),
    )


def _in_write_order(steps: Iterable[ThrottleStep]) -> list[ThrottleStep]:
    """The throttle's own changes: lowerings, L3 and largest relief first; then raises, L1 first."""
    changes = [
        step for step in steps if step.value != _in_force(step) and _because(step) is not None
    ]
    lowered = [step for step in changes if step.lowers]
    raised = [step for step in changes if not step.lowers]
    return [
        *sorted(
            lowered,
            key=lambda step: (-_LEVELS.index(step.level), -step.relief, step.entity.sort_key),
        ),
        *sorted(raised, key=lambda step: (_LEVELS.index(step.level), step.entity.sort_key)),
    ]


def _held_down(
    decision: ThrottleDecision, waiting: set[RateKey], rates: ManagedRates
) -> ThrottledTargets:
    held: dict[Entity, dict[QuotaKey, Throttled]] = {}
    for key, step in decision.steps.items():
        is_waiting = key in waiting
        value = _in_force(step) if is_waiting else step.value
        if value < step.contract:
            floor = rates.floor(step.entity, step.direction)
            by_calendar = decision.by_calendar(step)
            because = None if is_waiting else _because(step)
            rises = _rises(step, because)
            if because is Reason.THROTTLED and by_calendar:
                because = Reason.CALENDAR
            mute_seconds = 0.0 if is_waiting else step.predicted_mute_seconds
            throttled = Throttled(
                value, step.contract, floor, because, rises, mute_seconds, by_calendar
            )
            held.setdefault(step.entity, {})[KEY_OF[step.direction]] = throttled
    return held


def _in_force(step: ThrottleStep) -> int:
    """What stands now; a member without any quota counts as at its contract."""
    return step.contract if step.in_force is None else min(step.in_force, step.contract)


def _because(step: ThrottleStep) -> Reason | None:
    """Why the value changes by a decision on load; None = it does not.

    It is then the same share of the contract, on other leaders or after another writer.
    """
    held = step.bucket.held
    if step.kind is StepKind.HOLD and held is not None and held.applied:
        return None
    recorded = step.bucket.rate.recorded_fraction
    before = 1.0 if recorded is None else recorded
    if abs(step.fraction - before) <= _SAME:
        return None
    if step.fraction < before:
        return Reason.THROTTLED
    return Reason.RELEASED if step.value >= step.contract else Reason.RELAXING


def _rises(step: ThrottleStep, because: Reason | None) -> bool:
    """Whether it is on its way back: raised now, or not changed since it was raised."""
    change, in_force = step.bucket.rate.last_change, step.in_force
    was_raised = (
        change is not None
        and change.previous is not None
        and in_force is not None
        and change.previous < in_force
    )
    return because is Reason.RELAXING or (because is None and was_raised)


@dataclass
class _Result:
    """What the directions decided so far."""

    steps: dict[RateKey, ThrottleStep]
    held: dict[RateKey, ActiveThrottle]
    drains: dict[RateKey, Draining]
    rounds: list[Round]
    directions: dict[Direction, DirectionMemory]


def throttle(
    given: ThrottleInput, flows: Flows, memory: ThrottleMemory | None = None
) -> tuple[ThrottleDecision, ThrottleMemory]:
    """Decide each direction, or both as one. `flows` are the usable client rates of the readings.

    Without memory (a new operator) fractions and times come from what is in force and the ledger.
    """
    memory = memory if memory is not None else ThrottleMemory()
    held, seen = holds_of(given, memory), seen_of(given, flows, memory)
    buckets = buckets_of(given, flows, held, seen)
    ceilings = ceilings_of(given.calendar, buckets, given.settings, given.now_seconds)
    result = _Result({}, {}, {}, [], {})
    distrusted_until = dict(memory.distrusted_until)
    unknown_since: dict[tuple[int, Direction], float] = {}
    for direction in metered(given.brokers.values()):
        throttled = any(
            one.value < one.contract for key, one in held.items() if key[1] in direction.parts
        )
        by_newest = not throttled and not distrusted_until
        nics = nic_statuses(
            given,
            flows,
            direction,
            throttled=throttled,
            sawteeth=sawteeth_of(buckets, direction),
            distrusted_until=distrusted_until,
        )
        distrusted_until |= {
            (broker, direction): given.readings.spans(broker, direction)[-1].at_seconds
            for broker, nic in nics.items()
            if nic.lies
        }
        unknown_since |= {
            (broker, direction): min(
                memory.unknown_since.get((broker, direction), given.now_seconds), given.now_seconds
            )
            for broker, nic in nics.items()
            if not nic.known
        }
        scene = scene_of(
            given,
            direction,
            nics,
            buckets,
            _unknown_for_long(given, direction, unknown_since),
            load_to_come(given, flows, direction, nics, held),
            ceilings,
        )
        drains = {
            key: drain
            for key, drain in memory.drains.items()
            if key[1] in direction.parts and key in held
        }
        outcome = escalate(scene, direction_memory(given, memory, direction, held), drains)
        outcome = with_calendar(scene, outcome)
        steps, holds = settle(scene, outcome)
        result.steps |= steps
        result.held |= holds
        result.drains |= outcome.drains
        result.directions[direction] = outcome.memory
        result.rounds.append(round_of(scene, outcome, steps, given.rates, by_newest=by_newest))
    decision = ThrottleDecision(result.steps, tuple(result.rounds), ceilings)
    return decision, ThrottleMemory(
        result.held, seen, result.directions, result.drains, distrusted_until, unknown_since
    )


def _unknown_for_long(
    given: ThrottleInput, direction: Direction, since: Mapping[tuple[int, Direction], float]
) -> frozenset[int]:
    """Brokers whose load was unknown so long that by policy no one is throttled for them."""
    after_seconds = given.settings.release_after_seconds
    if after_seconds is None:
        return frozenset()
    return frozenset(
        broker
        for (broker, way), at in since.items()
        if way is direction and given.now_seconds - at >= after_seconds
    )
