"""What the throttle holds and what it has seen lately, brought up to date at the start of a round.

A restarted operator finds its fractions again in what is in force (or in what the ledger records of it), and the times of the last cut and
raise in the ledger's times of writing; so losing the memory neither releases nor repeats anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from controller_logic.flows import Flows
from controller_logic.readings import Direction
from controller_logic.throttle_floor import floor_of
from controller_logic.throttle_input import DirectionMemory, Held, ManagedRate, RateKey, Seen, ThrottleInput, ThrottleMemory
from controller_logic.throttle_settings import RELEASED, ThrottleSettings


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


def seen_of(given: ThrottleInput, flows: Flows, memory: ThrottleMemory) -> dict[RateKey, Seen]:
    """What was seen of every rate that may be throttled, this moment included."""
    return {
        rate.key: _seen(rate, flows, memory.seen.get(rate.key, Seen()), given.settings, given.now_seconds)
        for rate in given.rates
        if rate.throttleable
    }


def _seen(rate: ManagedRate, flows: Flows, was: Seen, settings: ThrottleSettings, now_seconds: float) -> Seen:
    mine = flows.of(rate.key).values()
    highest = max((flow.bytes_per_second for flow in mine), default=0.0)
    read_seconds = max((flow.at_seconds for flow in mine), default=now_seconds)
    rates = was.rates if not mine or (was.rates and was.rates[-1][0] >= read_seconds) else (*was.rates[-1:], (read_seconds, highest))
    since_seconds = now_seconds if was.since_seconds is None else was.since_seconds
    caps, peaks = _caps(rate, was, settings, now_seconds), _peaks(was, highest, settings, now_seconds)
    return Seen(caps, peaks, rates, since_seconds, now_seconds - since_seconds)


def _caps(rate: ManagedRate, was: Seen, settings: ThrottleSettings, now_seconds: float) -> tuple[tuple[float, int], ...]:
    """Values in force within a dwell; also the one before our last write, which a new memory has not seen."""
    caps = [(at, value) for at, value in was.caps if now_seconds - at < settings.dwell_seconds and value != rate.in_force]
    change = rate.last_change
    recent = change is not None and abs(now_seconds - change.at_seconds) < settings.dwell_seconds
    if change is not None and recent and change.previous not in (None, rate.in_force, *(value for _, value in caps)):
        caps.append((change.at_seconds, change.previous or 0))
    if rate.in_force is not None:
        caps.append((now_seconds, rate.in_force))
    return tuple(caps)


def _peaks(was: Seen, highest: float, settings: ThrottleSettings, now_seconds: float) -> tuple[tuple[float, float], ...]:
    """The highest rates by slots of half a dwell, so that it stays short whatever the interval of the rounds."""
    slot_seconds = settings.dwell_seconds / 2
    kept = tuple((begin, rate) for begin, rate in was.peaks if now_seconds - begin < settings.peak_seconds + slot_seconds)
    if kept and 0 <= now_seconds - kept[-1][0] < slot_seconds:
        begin, rate = kept[-1]
        return (*kept[:-1], (begin, max(rate, highest)))
    return (*kept, (now_seconds, highest))


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
