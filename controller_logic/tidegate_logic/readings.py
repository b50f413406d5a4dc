"""Client rates that may be used, by sender and broker; a missing rate is never zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from tidegate_logic.model import ClientRate, Direction, RateKey, Readings

# a cap binds from this share of it on: a throttled client runs at 0.5 to 0.92 of its quota, or more
BINDING: Final = 0.8
BINDING_MILLISECONDS: Final = 50.0  # or where Kafka reports so much throttle time


@dataclass(frozen=True, slots=True)
class Flows:
    """Usable client rates by entity and direction, and all senders' sum by broker, in bytes/s.

    A broker that is not in `totals` reports nothing of its clients: that is not the same as clients
    that send nothing.
    """

    by_key: Mapping[RateKey, Mapping[int, ClientRate]] = field(default_factory=dict)
    totals: Mapping[tuple[int, Direction], float] = field(default_factory=dict)

    def of(self, key: RateKey) -> Mapping[int, ClientRate]:
        return self.by_key.get(key, {})

    def is_measured(self, broker: int, direction: Direction) -> bool:
        return (broker, direction) in self.totals

    def total(self, broker: int, direction: Direction) -> float:
        return self.totals.get((broker, direction), 0.0)


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
    by_key: dict[RateKey, dict[int, ClientRate]] = {}
    totals: dict[tuple[int, Direction], float] = {}
    for (entity, broker, direction), rate in readings.clients.items():
        if not _is_usable(rate, now_seconds, stale_after_seconds):
            continue
        by_key.setdefault((entity, direction), {})[broker] = rate
        totals[broker, direction] = totals.get((broker, direction), 0.0) + rate.bytes_per_second
    return Flows(by_key, totals)


def _is_usable(rate: ClientRate, now_seconds: float, stale_after_seconds: float) -> bool:
    fresh = abs(now_seconds - rate.at_seconds) <= stale_after_seconds
    return fresh and isfinite(rate.bytes_per_second) and rate.bytes_per_second >= 0
