"""The one entry of the tide gate: readings, limits and what is in force in; what every rate should be out.

`throttle(input, memory) -> (decision, memory)` is a pure function. It decides which values are wanted and how far each may go now; what is
written, in which order and within which budget is the plan's. A rate without a step belongs at its contract.
"""

from dataclasses import dataclass

from controller_logic.model import Direction
from controller_logic.throttle.attribution import scene_of
from controller_logic.throttle.buckets import buckets_of, seen_of
from controller_logic.throttle.decision import Round, ThrottleDecision, ThrottleStep
from controller_logic.throttle.escalation import direction_memory, escalate, holds_of, settle
from controller_logic.throttle.input import DirectionMemory, Draining, Held, RateKey, ThrottleInput, ThrottleMemory, flows_of
from controller_logic.throttle.pressure import cards_of
from controller_logic.throttle.record import round_of


@dataclass
class _Result:
    """What the directions decided so far."""

    steps: dict[RateKey, ThrottleStep]
    held: dict[RateKey, Held]
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
    lied = dict(memory.lied)
    for direction in Direction:
        throttled = any(one.value < one.contract for key, one in held.items() if key[1] is direction)
        cards = cards_of(given, flows, direction, throttled=throttled, lied=lied)
        lied |= {(broker, direction): given.readings.nic[broker, direction][-1].at_seconds for broker, card in cards.items() if card.lies}
        scene = scene_of(given, direction, cards, buckets)
        drains = {key: drain for key, drain in memory.drains.items() if key[1] is direction and key in held}
        outcome = escalate(scene, direction_memory(given, memory, direction, held), drains)
        steps, holds = settle(scene, outcome)
        result.steps |= steps
        result.held |= holds
        result.drains |= outcome.drains
        result.directions[direction] = outcome.memory
        result.rounds.append(round_of(scene, outcome, steps, given.rates))
    decision = ThrottleDecision(result.steps, tuple(result.rounds))
    return decision, ThrottleMemory(result.held, seen, result.directions, result.drains, lied)
