"""What the throttle holds, and when it last cut and raised, brought up to date at the start of a round.

A restarted operator finds its fractions again in what is in force (or in what the ledger records of it), and the times of the last cut and
raise in the ledger's times of writing; so losing the memory neither releases nor repeats anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from controller_logic.readings import Direction
from controller_logic.throttle.input import DirectionMemory, Held, ManagedRate, RateKey, ThrottleInput, ThrottleMemory
from controller_logic.throttle.settings import RELEASED
from controller_logic.throttle_floor import floor_of


def holds_of(given: ThrottleInput, memory: ThrottleMemory) -> dict[RateKey, Held]:
    """What is held now: as remembered, or for a rate that was never seen before, as found. What is gone or exempt is let go."""
    holds: dict[RateKey, Held] = {}
    for rate in given.rates:
        if not rate.throttleable:
            continue
        known = memory.held.get(rate.key)
        held = _seen_applied(known, rate) if known is not None else None
        if known is None and rate.key not in memory.seen:
            held = _found(rate, given)
        if held is not None:
            holds[rate.key] = held
    return holds


def _seen_applied(held: Held, rate: ManagedRate) -> Held | None:
    """Note that it is in force; a release that is in force is over."""
    if held.value >= held.contract:
        released = rate.in_force is None or rate.in_force >= rate.contract
        return None if released else held
    return replace(held, applied=True) if not held.applied and rate.in_force == held.of(rate.contract) else held


def _found(rate: ManagedRate, given: ThrottleInput) -> Held | None:
    if rate.in_force is None:
        return None
    floor = floor_of(rate, given.settings.floors).value
    if rate.recorded_fraction is not None:
        value = max(floor, round(min(1.0, max(0.0, rate.recorded_fraction)) * rate.contract))
        return Held(value, rate.contract, given.now_seconds, applied=True) if value < rate.contract else None
    if rate.in_force >= RELEASED * rate.contract:
        return None
    return Held(max(floor, rate.in_force), rate.contract, given.now_seconds, applied=True)


def direction_memory(given: ThrottleInput, memory: ThrottleMemory, direction: Direction, holds: Mapping[RateKey, Held]) -> DirectionMemory:
    """As remembered; without memory, when the ledger says that held rates were last changed and raised."""
    known = memory.directions.get(direction)
    if known is not None:
        return known
    mine = [rate for rate in given.rates if rate.key in holds and rate.direction is direction]
    return DirectionMemory(_latest(mine, lambda _: True), _latest(mine, _was_raise), since_seconds=given.now_seconds if mine else None)


def _latest(rates: Iterable[ManagedRate], is_meant: Callable[[ManagedRate], bool]) -> float | None:
    return max((rate.last_change.at_seconds for rate in rates if rate.last_change is not None and is_meant(rate)), default=None)


def _was_raise(rate: ManagedRate) -> bool:
    change = rate.last_change
    return change is not None and rate.in_force is not None and change.previous is not None and change.previous < rate.in_force
