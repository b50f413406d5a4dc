"""What one throttle decision is made on, and what it remembers, as immutable values.

Rates that are set are integers in bytes per second and per broker; measured ones are floats. Times are seconds since the epoch as the
caller's clock gave them. Nothing here computes a decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from controller_logic.model import BrokerLimit as BrokerLimit
from controller_logic.model import ClientRate, Direction, Entity, Level, Readings
from controller_logic.throttle.settings import ThrottleSettings

RateKey = tuple[Entity, Direction]


@dataclass(frozen=True, slots=True)
class LastChange:
    """Our last write that changed the value in force, as the ledger tells: when, and what was in force before (None = nothing)."""

    at_seconds: float
    previous: int | None


@dataclass(frozen=True, slots=True)
class ManagedRate:
    """One entity's byte rate in one direction: what it is promised, what it may drop to, and what stands.

    `contract` and `floor` are scaled by the same leaders. `floor` None = never throttled (L0, an exemption, a tier that gives no such
    rate). `in_force` None = no quota stands. `leads` are the brokers that lead partitions for it. `recorded_fraction` is what the ledger
    says of the value in force (1.0 = a contract); None = not recorded. `producers` are the known producers behind it.
    """

    entity: Entity
    direction: Direction
    level: Level
    contract: int
    floor: int | None
    in_force: int | None
    leads: frozenset[int]
    last_change: LastChange | None = None
    recorded_fraction: float | None = None
    producers: int = 0

    @property
    def key(self) -> RateKey:
        return (self.entity, self.direction)

    @property
    def throttleable(self) -> bool:
        return self.level is not Level.L0 and self.floor is not None


@dataclass(frozen=True, slots=True)
class ThrottleInput:
    """Everything that one decision knows. `live` are the brokers that the cluster lists now."""

    now_seconds: float
    readings: Readings
    brokers: Mapping[int, BrokerLimit]
    live: frozenset[int]
    rates: tuple[ManagedRate, ...]
    settings: ThrottleSettings = field(default_factory=ThrottleSettings)


@dataclass(frozen=True, slots=True)
class ActiveThrottle:
    """What was decided for one rate: `value` of a contract that was `contract` then, so that the fraction survives leader moves exactly.

    A value equal to the contract is a release that is not in force yet. `applied` turns true once it was seen in force.
    """

    value: int
    contract: int
    decided_at_seconds: float
    applied: bool = False

    @property
    def fraction(self) -> float:
        return self.value / self.contract

    def of(self, contract: int) -> int:
        """The same fraction of another contract, rounded up."""
        return -(-self.value * contract // self.contract)


@dataclass(frozen=True, slots=True)
class RateHistory:
    """What was seen of one rate lately, each as (seconds, bytes/s).

    `caps` are values in force within a dwell, by when they were last seen; `peaks` the highest rate on any broker, by the time from which
    each counts; `rates` the last two such rates, by when they were read. `known_seconds` is for how long it has been watched.
    """

    caps: tuple[tuple[float, int], ...] = ()
    peaks: tuple[tuple[float, float], ...] = ()
    rates: tuple[tuple[float, float], ...] = ()
    since_seconds: float | None = None
    known_seconds: float = 0.0

    @property
    def peak(self) -> float:
        return max((rate for _, rate in self.peaks), default=0.0)


@dataclass(frozen=True, slots=True)
class Draining:
    """A drain-then-set under way: where it ends, when its first write was decided, and until when all clients surely wait.

    `silence_seconds` is how long the first write silences the busiest of them.
    """

    target: int
    first: int
    started_at_seconds: float
    silent_until_seconds: float
    silence_seconds: float


@dataclass(frozen=True, slots=True)
class DirectionMemory:
    """One direction: when it last cut, raised, and raised too early; how long it holds now (None = as set); rounds so far.

    `since_seconds` is when this memory began: what was measured before, nobody remembers.
    """

    cut_at_seconds: float | None = None
    raised_at_seconds: float | None = None
    failed_at_seconds: float | None = None
    hold_seconds: float | None = None
    since_seconds: float | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class ThrottleMemory:
    """What one decision hands to the next. Losing it is safe: fractions and times of writes come back from what is in force.

    `lied` is the time of the newest sample with which a NIC contradicted Kafka; `unknown_since` since when a broker's load is not known.
    """

    held: Mapping[RateKey, ActiveThrottle] = field(default_factory=dict)
    seen: Mapping[RateKey, RateHistory] = field(default_factory=dict)
    directions: Mapping[Direction, DirectionMemory] = field(default_factory=dict)
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)
    distrusted_until: Mapping[tuple[int, Direction], float] = field(default_factory=dict)
    unknown_since: Mapping[tuple[int, Direction], float] = field(default_factory=dict)


# Which client rates may be used, sorted by who sends and by which broker. A missing rate stays
# missing: it is never zero.


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
