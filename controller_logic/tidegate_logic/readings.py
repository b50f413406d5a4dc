"""Client rates that may be used, by sender and broker; a missing rate is never zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_logic.model import (
    ClientRate,
    Direction,
    RateKey,
    Readings,
    busiest_of,
    by_sender_and_broker,
)

# a cap binds from this share of it on: a throttled client runs at 0.5 to 0.92 of its quota, or more
BINDING: Final = 0.8
BINDING_MILLISECONDS: Final = 50.0  # or where Kafka reports so much throttle time


@dataclass(frozen=True, slots=True)
class Flows:
    """Usable client rates by entity and direction, and all senders' sum by broker, in bytes/s.

    A broker that is not in `totals` reports nothing of its clients: that is not the same as clients
    that send nothing. `busiest` has the highest of each sender's rates; see `Readings`.
    """

    by_key: Mapping[RateKey, Mapping[int, ClientRate]] = field(default_factory=dict)
    totals: Mapping[tuple[int, Direction], float] = field(default_factory=dict)
    busiest: Mapping[RateKey, ClientRate] = field(default_factory=dict)

    def of(self, key: RateKey) -> Mapping[int, ClientRate]:
        return self.by_key.get(key, {})

    def is_measured(self, broker: int, direction: Direction) -> bool:
        return (broker, direction) in self.totals

    def total(self, broker: int, direction: Direction) -> float:
        return sum([self.totals.get((broker, part), 0.0) for part in direction.parts])


def is_throttled(flow: ClientRate) -> bool:
    """Whether Kafka itself reports that it throttles the client."""
    return (
        flow.throttle_milliseconds is not None and flow.throttle_milliseconds > BINDING_MILLISECONDS
    )


def is_limited(flow: ClientRate, cap: int) -> bool:
    """Whether Kafka throttles it, or it sends near the cap: throttled, it runs below its quota."""
    return flow.bytes_per_second >= BINDING * cap or is_throttled(flow)


def flows_of(readings: Readings | None, *, now_seconds: float, stale_after_seconds: float) -> Flows:
    """The rates in bytes/s that are finite, at least 0 and fresh. A pass works them out once."""
    if readings is None:
        return Flows()

    def is_fresh(at_seconds: float) -> bool:
        return abs(now_seconds - at_seconds) <= stale_after_seconds

    if all(is_fresh(at) for at in readings.clients_read_seconds):
        return Flows(readings.by_sender, readings.totals, readings.busiest)
    fresh = {sender: rate for sender, rate in readings.clients.items() if is_fresh(rate.at_seconds)}
    by_sender, totals = by_sender_and_broker(fresh)
    return Flows(by_sender, totals, busiest_of(by_sender))
