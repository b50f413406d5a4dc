"""Which client rates may be used, sorted by who sends and by which broker. A missing rate stays missing: it is never zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from controller_logic.readings import ClientRate, Direction, Readings
from controller_logic.throttle.input import RateKey


@dataclass(frozen=True, slots=True)
class Flows:
    """Usable client rates by entity and direction, and their sum in bytes/s by broker and direction, whoever sends.

    A broker that is not in `totals` tells nothing of its clients: that is not the same as clients that send nothing.
    """

    by_key: Mapping[RateKey, Mapping[int, ClientRate]] = field(default_factory=dict)
    totals: Mapping[tuple[int, Direction], float] = field(default_factory=dict)

    def of(self, key: RateKey) -> Mapping[int, ClientRate]:
        return self.by_key.get(key, {})

    def is_measured(self, broker: int, direction: Direction) -> bool:
        return (broker, direction) in self.totals

    def total(self, broker: int, direction: Direction) -> float:
        return self.totals.get((broker, direction), 0.0)


def flows_of(readings: Readings, *, now_seconds: float, stale_after_seconds: float) -> Flows:
    """Only finite rates of at least 0 that are fresh enough; in bytes/s."""
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
