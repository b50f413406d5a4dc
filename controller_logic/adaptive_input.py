"""What adaptive scaling is decided on, and what it remembers, as immutable values.

Rates that are promised or set are integers in bytes per second; measured ones are floats. All are per broker, but for a contract's total.
Times are seconds since the epoch as the caller's clock gave them. Nothing here decides: see `adaptive.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller_logic.contracts.leaders import ADAPTIVE_SHARES, LeaderSpread, adaptive_scale
from controller_logic.entity import Entity
from controller_logic.model import QuotaWindow
from controller_logic.readings import Direction, Readings
from controller_logic.throttle.input import RateKey
from controller_logic.value import value


@value(frozen=True, slots=True)
class Scene:
    """What a measurement depends on: when any of it changes, what was measured before says nothing any more."""

    in_force: int | None
    promised: int
    spread: LeaderSpread
    leads: frozenset[int]
    throttled: bool


@value(frozen=True, slots=True)
class AdaptiveRate:
    """One entity's promise per partition in one direction, where its leaders are, and what stands.

    `in_force` None = no quota stands. `leads` are the brokers that lead partitions for it. `throttled` is true while the tide gate holds it
    below its contract; then `in_force` is that contract, as the ledger has it.
    """

    entity: Entity
    direction: Direction
    promised: int
    spread: LeaderSpread
    leads: frozenset[int]
    in_force: int | None
    throttled: bool = False

    @property
    def key(self) -> RateKey:
        return (self.entity, self.direction)

    @property
    def total(self) -> int:
        """What the contract promises over all brokers."""
        return self.promised * self.spread.partitions

    @property
    def lowest(self) -> int:
        """What Mean would set."""
        return self.value_at(0)

    @property
    def highest(self) -> int:
        """What Max would set."""
        return self.value_at(ADAPTIVE_SHARES)

    @property
    def scene(self) -> Scene:
        return Scene(self.in_force, self.promised, self.spread, self.leads, self.throttled)

    @property
    def has_choice(self) -> bool:
        """Whether Mean and Max differ."""
        return self.spread.largest * self.spread.brokers > self.spread.partitions

    def value_at(self, share: int) -> int:
        """What this share of the way from Mean to Max would set."""
        return adaptive_scale(self.spread, share).of(self.promised)


@dataclass(frozen=True, slots=True)
class AdaptiveInput:
    """Everything that one decision knows."""

    now_seconds: float
    readings: Readings
    rates: tuple[AdaptiveRate, ...]
    window: QuotaWindow = field(default_factory=QuotaWindow)
    minimum_change_percent: int = 10
    stale_after_seconds: float = 45.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """All leading brokers at once: bytes/s on each, not above the quota in force, and those that throttled of late by Kafka's own word."""

    at_seconds: float
    rates: Mapping[int, float]
    throttled: frozenset[int]


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Where one rate stands between Mean (share 0) and Max (share ADAPTIVE_SHARES), and what was measured since anything changed.

    `moved_at_seconds` is when the share was last moved, None = never; `moved_up` which way.
    """

    share: int
    scene: Scene
    steady_since_seconds: float
    sightings: tuple[Sighting, ...] = ()
    moved_at_seconds: float | None = None
    moved_up: bool = False

    @property
    def is_moving(self) -> bool:
        """Whether the share was moved, and nothing else has changed since: not even what is in force."""
        return self.moved_at_seconds is not None and self.moved_at_seconds == self.steady_since_seconds


Adaptations = Mapping[RateKey, Adaptation]
