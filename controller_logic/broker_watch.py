"""Every live broker against its limits, for people: Over, Within or Unknown, without changing its mind at every sample.

Whether a broker may be cut for is `pressure.py`'s, and follows the load more closely. A broker counts as over its limit from the moment
that is established until none of the last few samples is above it, so a load that swings around the limit is one episode.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.flows import flows_of
from controller_logic.model import Observation
from controller_logic.pressure import Card, Pressure, cards_of
from controller_logic.readings import Direction
from controller_logic.throttle_input import ThrottleInput
from controller_logic.throttle_settings import ThrottleSettings


@dataclass(frozen=True, slots=True)
class WatchedBroker:
    """One live broker. `cards` has the directions in which it has a limit."""

    broker: int
    pressure: Pressure
    cards: Mapping[Direction, Card]


Watched = tuple[WatchedBroker, ...]


def watch(observation: Observation, before: Mapping[int, Pressure]) -> Watched | None:
    """Every live broker by id, given what was said of each last time; None where load or brokers are not known at all."""
    topology, readings = observation.topology, observation.readings
    if topology is None or readings is None:
        return None
    limits = {broker: observation.policy.limits.of(broker) for broker in topology.brokers}
    settings = ThrottleSettings(observation.policy.window, stale_after_seconds=observation.policy.stale_after_seconds)
    given = ThrottleInput(observation.now_seconds, readings, limits, topology.brokers, (), settings)
    flows = flows_of(readings, now_seconds=observation.now_seconds, stale_after_seconds=settings.stale_after_seconds)
    cards = {way: cards_of(given, flows, way, throttled=False) for way in Direction}
    return tuple(
        _watched(broker, {way: cards[way][broker] for way in Direction if cards[way][broker].limit is not None}, before.get(broker))
        for broker in sorted(topology.brokers)
    )


def _watched(broker: int, cards: Mapping[Direction, Card], before: Pressure | None) -> WatchedBroker:
    return WatchedBroker(broker, _pressure(cards, before), cards)


def _pressure(cards: Mapping[Direction, Card], before: Pressure | None) -> Pressure:
    said = {card.pressure for card in cards.values()}
    if Pressure.OVER in said:
        return Pressure.OVER
    if Pressure.UNKNOWN in said:
        return Pressure.UNKNOWN
    still_hot = any(card.hot_samples for card in cards.values())
    return Pressure.OVER if still_hot and before is Pressure.OVER else Pressure.WITHIN
