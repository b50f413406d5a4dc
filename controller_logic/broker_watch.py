"""Every live broker against its limits, for people: Over, Within or Unknown, without changing its mind at every sample.

Whether a broker may be cut for is `pressure.py`'s, and follows the load more closely. A broker counts as over its limit from the moment
that is established until no sample of two whole rhythms of a throttled client, three scrapes at least, is above it: so a load that swings
around the limit is one episode, however often it is scraped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller_logic.flows import flows_of
from controller_logic.model import Observation
from controller_logic.readings import Direction, NicSpan
from controller_logic.throttle.input import ThrottleInput
from controller_logic.throttle.pressure import Card, Pressure, cards_of
from controller_logic.throttle.settings import OF_SAMPLES, ThrottleSettings


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
    calm_after_seconds = max(settings.nic_mean_seconds, OF_SAMPLES * readings.scrape_seconds)
    watched = []
    for broker in sorted(topology.brokers):
        limited = {way: card for way in Direction if (card := cards[way][broker]).limit is not None}
        was_hot = any(_was_above(card, readings.nic.get((broker, way), ()), calm_after_seconds) for way, card in limited.items())
        watched.append(WatchedBroker(broker, _pressure(limited, swings=was_hot and before.get(broker) is Pressure.OVER), limited))
    return tuple(watched)


def _was_above(card: Card, spans: Sequence[NicSpan], seconds: float) -> bool:
    """Whether any sample was above the limit in so many seconds before the newest one."""
    return card.limit is not None and any(
        span.bytes_per_second > card.limit for span in spans if spans[-1].at_seconds - span.at_seconds < seconds
    )


def _pressure(cards: Mapping[Direction, Card], *, swings: bool) -> Pressure:
    said = {card.pressure for card in cards.values()}
    if Pressure.OVER in said:
        return Pressure.OVER
    if Pressure.UNKNOWN in said:
        return Pressure.UNKNOWN
    return Pressure.OVER if swings else Pressure.WITHIN
