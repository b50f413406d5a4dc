"""The one entry of the tide gate: readings, limits and what is in force in; what every rate should be out.

`throttle(input, memory) -> (decision, memory)` is a pure function. It decides which values are wanted and how far each may go now; what is
written, in which order and within which budget is the plan's. A rate without a step belongs at its contract.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.model import Direction
from controller_logic.throttle.attribution import scene_of
from controller_logic.throttle.buckets import buckets_of, seen_of
from controller_logic.throttle.decision import Round, ThrottleDecision, ThrottleStep
from controller_logic.throttle.escalation import direction_memory, escalate, holds_of, settle
from controller_logic.throttle.input import ActiveThrottle, DirectionMemory, Draining, RateKey, ThrottleInput, ThrottleMemory, flows_of
from controller_logic.throttle.pressure import nic_statuses
from controller_logic.throttle.record import round_of


@dataclass
class _Result:
    """What the directions decided so far."""

    steps: dict[RateKey, ThrottleStep]
    held: dict[RateKey, ActiveThrottle]
    drains: dict[RateKey, Draining]
    rounds: list[Round]
    directions: dict[Direction, DirectionMemory]


def throttle(given: ThrottleInput, memory: ThrottleMemory | None = None) -> tuple[ThrottleDecision, ThrottleMemory]:
    """Decide both directions. Without memory (a new operator) fractions and times come from what is in force and the ledger."""
    memory = memory if memory is not None else ThrottleMemory()
    flows = flows_of(given.readings, now_seconds=given.now_seconds, stale_after_seconds=given.settings.stale_after_seconds)
    held, seen = holds_of(given, memory), seen_of(given, flows, memory)
    buckets = buckets_of(given, flows, held, seen)
    result = _Result({}, {}, {}, [], {})
    distrusted_until = dict(memory.distrusted_until)
    unknown_since: dict[tuple[int, Direction], float] = {}
    for direction in Direction:
        throttled = any(one.value < one.contract for key, one in held.items() if key[1] is direction)
        nics = nic_statuses(given, flows, direction, throttled=throttled, distrusted_until=distrusted_until)
        distrusted_until |= {
            (broker, direction): given.readings.nic[broker, direction][-1].at_seconds for broker, nic in nics.items() if nic.lies
        }
        unknown_since |= {
            (broker, direction): min(memory.unknown_since.get((broker, direction), given.now_seconds), given.now_seconds)
            for broker, nic in nics.items()
            if not nic.known
        }
        scene = scene_of(given, direction, nics, buckets, _unknown_for_long(given, direction, unknown_since))
        drains = {key: drain for key, drain in memory.drains.items() if key[1] is direction and key in held}
        outcome = escalate(scene, direction_memory(given, memory, direction, held), drains)
        steps, holds = settle(scene, outcome)
        result.steps |= steps
        result.held |= holds
        result.drains |= outcome.drains
        result.directions[direction] = outcome.memory
        result.rounds.append(round_of(scene, outcome, steps, given.rates))
    decision = ThrottleDecision(result.steps, tuple(result.rounds))
    return decision, ThrottleMemory(result.held, seen, result.directions, result.drains, distrusted_until, unknown_since)


def _unknown_for_long(given: ThrottleInput, direction: Direction, since: Mapping[tuple[int, Direction], float]) -> frozenset[int]:
    """The brokers whose load has been unknown for so long that the policy wants no one throttled for them any more."""
    after_seconds = given.settings.release_after_seconds
    if after_seconds is None:
        return frozenset()
    return frozenset(broker for (broker, way), at in since.items() if way is direction and given.now_seconds - at >= after_seconds)
