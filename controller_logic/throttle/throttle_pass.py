"""The throttle's part of a pass: what load says of every rate, and what the plan therefore holds in place of contracts.

Without readings nothing moves: what the ledger shows as throttled stays so. Writes that the throttle wants are spread over a quota window;
those whose turn has not come stay what is in force. A policy that names no metrics throttles nobody, so everybody is at the contract.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller_logic.contracts.desired import Desired
from controller_logic.contracts.targets import Throttled
from controller_logic.entity import Entity
from controller_logic.model import Level, Mode, Observation, QuotaKey, StoredQuota
from controller_logic.readings import KEY_OF, Readings
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import StepKind, ThrottleDecision, ThrottleStep
from controller_logic.throttle.input import RateKey, ThrottleInput, ThrottleMemory
from controller_logic.throttle.settings import ThrottleSettings
from controller_logic.throttle.throttle import throttle
from controller_logic.throttle_rates import ManagedRates
from controller_logic.throttled import HeldDown
from controller_logic.write_pace import WritePace, paced

_SAME = 0.005  # of the contract: rounding, and a floor that binds on other leaders, are no new decision
_USUAL_SCRAPE_SECONDS = 15.0
_LEVELS = tuple(Level)


@dataclass(frozen=True, slots=True)
class ThrottlePass:
    """`held` are the keys that are held below their contracts, `due_in_seconds` is when the next write of the throttle may go out.

    `decision` None = load is not measured.
    """

    held: HeldDown = field(default_factory=dict)
    decision: ThrottleDecision | None = None
    memory: ThrottleMemory | None = None
    pace: WritePace | None = None
    due_in_seconds: float | None = None


def throttle_pass(
    observation: Observation,
    wanted: Desired,
    quotas: Mapping[Entity, StoredQuota],
    *,
    memory: ThrottleMemory | None,
    pace: WritePace | None,
) -> ThrottlePass:
    """Decide both directions of every member. The topology has to be known."""
    policy, topology, now_seconds = observation.policy, observation.topology, observation.now_seconds
    if policy.deleting or not policy.measured or topology is None:
        return ThrottlePass()
    rates = ManagedRates(wanted, quotas, policy, topology.brokers)
    given = ThrottleInput(
        now_seconds,
        observation.readings or Readings(now_seconds, _USUAL_SCRAPE_SECONDS),
        {broker: policy.limits.of(broker) for broker in topology.brokers},
        topology.brokers,
        rates.all(),
        ThrottleSettings.of(policy),
    )
    decision, remembered = throttle(given, memory)
    changes = [step for step in _in_turn(decision.steps.values()) if not step.ends_drain]
    turn = paced(changes, pace, policy.window, now_seconds=now_seconds)
    going = len(changes) if policy.mode is Mode.OBSERVE else turn.now
    waiting = {step.key for step in changes[going:]}
    due = [step.due_in_seconds for step in decision.steps.values() if step.due_in_seconds is not None]
    due += [] if turn.due_in_seconds is None else [turn.due_in_seconds]
    return ThrottlePass(_held_down(decision, waiting, rates), decision, remembered, turn.pace, min(due, default=None))


def _in_turn(steps: Iterable[ThrottleStep]) -> list[ThrottleStep]:
    """What changes by the throttle's own decision: lowerings of L3 first and the largest relief first; then raises, L1 first."""
    changes = [step for step in steps if step.value != _in_force(step) and _because(step) is not None]
    lowered = [step for step in changes if step.lowers]
    raised = [step for step in changes if not step.lowers]
    return [
        *sorted(lowered, key=lambda step: (-_LEVELS.index(step.level), -step.relief, step.entity.sort_key)),
        *sorted(raised, key=lambda step: (_LEVELS.index(step.level), step.entity.sort_key)),
    ]


def _held_down(decision: ThrottleDecision, waiting: set[RateKey], rates: ManagedRates) -> HeldDown:
    held: dict[Entity, dict[QuotaKey, Throttled]] = {}
    for key, step in decision.steps.items():
        is_waiting = key in waiting
        value = _in_force(step) if is_waiting else step.value
        if value < step.contract:
            floor = rates.floor(step.entity, step.direction)
            because = None if is_waiting else _because(step)
            mute_seconds = 0.0 if is_waiting else step.predicted_mute_seconds
            throttled = Throttled(value, step.contract, floor, because, _rises(step, because), mute_seconds)
            held.setdefault(step.entity, {})[KEY_OF[step.direction]] = throttled
    return held


def _in_force(step: ThrottleStep) -> int:
    """What stands now; a member without any quota counts as at its contract."""
    return step.contract if step.in_force is None else min(step.in_force, step.contract)


def _because(step: ThrottleStep) -> Reason | None:
    """Why the value changes: by a decision on load, or None = the same share of the contract on other leaders or after another writer."""
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
    was_raised = change is not None and change.previous is not None and in_force is not None and change.previous < in_force
    return because is Reason.RELAXING or (because is None and was_raised)
