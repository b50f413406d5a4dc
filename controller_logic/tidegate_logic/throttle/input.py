"""What one throttle decision is made on, and what it remembers, as immutable values.

Rates that are set are integers in bytes per second and per broker; measured ones are floats. Times
are seconds since the epoch as the caller's clock gave them. Nothing here computes a decision.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.model import (
    CONSUMER_FLOOR_BYTES_PER_SECOND,
    PRODUCER_FLOOR_BYTES_PER_SECOND,
    BrokerLimit,
    CalendarEntry,
    Direction,
    Entity,
    Level,
    Policy,
    QuotaWindow,
    RateKey,
    Readings,
    ReplicationOnNics,
    Speed,
    StoredQuota,
)
from tidegate_logic.value import value

# --- readings ---
# k: so many of the newest OF_SAMPLES must be over (one false sample must not cut anybody)
OVER_SAMPLES: Final = 2
OF_SAMPLES: Final = 3  # n
SEVERE: Final = 1.10  # one sample so far above the limit is enough: a step load
FAR_OVER: Final = 1.25  # so far above the limit nothing is waited for that may make needs smaller
# a broker's own exporter is read this often; a direct reading that is older or longer is not used
DIRECT_SECONDS: Final = 2.0
DIRECT_STALE_SECONDS: Final = 3.5 * DIRECT_SECONDS
DIRECT_LONGEST_SECONDS: Final = 2.5 * DIRECT_SECONDS
PLAUSIBLE: Final = 1.2  # a NIC that says more than this times its capacity is not believed
# nor one that says less than this share of what clients move there (zeros when an exporter returns)
LYING: Final = 0.5

# --- who gives ---
MIN_RELIEF: Final = 0.20  # below this share of the excess a cut would hurt without helping
# of capacity: from there on every byte freed helps L0, so MATTERS counts instead of MIN_RELIEF
SATURATED: Final = 0.95
# share of the limit (or of a need on a full link) below which bytes do not matter
MATTERS: Final = 0.01
# only the largest givers are cut, until they can give so many times the need: writes are dear
FEW: Final = 1.5
FEW_ENTITIES: Final = 12  # but at least so many
# who gives less than this share of the need is spared while others of the level give it all
SMALL_GIVER: Final = 0.01

# --- how far ---
GROWTH: Final = 1.25  # what an unthrottled client may have grown between the reading and the write
# a cut to more than this share of what is in force is not worth a write
WORTH_CUTTING: Final = 0.97
WORTH_STRIDING: Final = 0.9  # nor, between two rounds, a cut to more than this share
WORTH_RAISING: Final = 1.1  # nor a raise by a smaller factor
# no binding cap grows by more in one raise, which measured headroom bounds anyway ...
LEAP: Final = 8.0
RAMP: Final = 2.0  # ... nor by more than this after a raise that was followed by too much load
SMALL: Final = 0.1  # a raise within this share of the headroom is given whole, in one write
FREE: Final = 1.3  # a cap this much above the highest rate of late does not bind
# from this share of the contract on, a raise is a release to exactly the contract
RELEASED: Final = 0.995

LONGEST_HOLD_SECONDS: Final = 480.0
_STRIDE_DWELLS = 1.5  # for so long after a round its targets are still good
_APPLIED_WITHIN_SECONDS = 2  # from our write until every broker obeys, slow ones too


@dataclass(frozen=True, slots=True)
class ClientFloors:
    """Bytes/s below which clients break, whatever a tier says; 0 = none.

    Per known producer, and per consumer entity.
    """

    per_producer: int = PRODUCER_FLOOR_BYTES_PER_SECOND
    consumer: int = CONSUMER_FLOOR_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """What a policy sets, and the times that follow from the brokers' quota window.

    - `sawtooth_period_seconds`: the period of a throttled client's sawtooth.
    - `nic_mean_seconds`: two of those, since shorter means made false cuts.
    - `dwell_seconds`: between two cuts of a direction. A second step sooner meets the burst that
      follows a mute, and no clean sample.
    - `stride_seconds`: between two steps of one client to a target that is known: its window then
      holds nothing from before the first, also where a broker took that 2 s later.
    - `strides_end_seconds`: no such step later than that after the round that set the target.
    - `replan_seconds`: from such a step to the next round: readings must not show its mutes.
    - `spread_seconds`: how long the writes of one round may take, so that many clients do not burst
      in step.
    - `peak_seconds`: how long a client's highest rate counts: 60 s with 11 x 1.
    - `raise_backoff_seconds`: over the limit so soon after a raise, the raise was too early: 90 s
      with 11 x 1.
    """

    window: QuotaWindow = field(default_factory=QuotaWindow)
    # a halving with 11 x 1; real mutes stay below 22 s, under the clients' 30 s request timeout
    max_mute_seconds: int = 12
    cut_to_percent: int = 97
    raise_to_percent: int = 95
    hold_seconds: float = 45.0
    stale_after_seconds: float = 45.0
    release_after_seconds: float | None = None  # of unknown load; None = throttles stay as they are
    speed: Speed = Speed.LADDER
    floors: ClientFloors = field(default_factory=ClientFloors)
    sawtooth_period_seconds: int = field(init=False, compare=False)
    nic_mean_seconds: int = field(init=False, compare=False)
    dwell_seconds: float = field(init=False, compare=False)
    stride_seconds: float = field(init=False, compare=False)
    strides_end_seconds: float = field(init=False, compare=False)
    replan_seconds: float = field(init=False, compare=False)
    spread_seconds: float = field(init=False, compare=False)
    peak_seconds: float = field(init=False, compare=False)
    raise_backoff_seconds: float = field(init=False, compare=False)
    longest_hold_seconds: float = field(init=False, compare=False)

    @classmethod
    def of(cls, policy: Policy) -> "ThrottleSettings":
        """What the policy sets; the floors of clients are not its to set."""
        return cls(
            window=policy.window,
            max_mute_seconds=policy.max_mute_seconds,
            cut_to_percent=policy.cut_to_percent,
            raise_to_percent=policy.raise_to_percent,
            hold_seconds=policy.hold_seconds,
            stale_after_seconds=policy.stale_after_seconds,
            release_after_seconds=policy.release_after_seconds,
            speed=policy.speed,
        )

    def __post_init__(self) -> None:
        window = self.window
        distance_seconds = float(window.step_distance_seconds)
        times = {
            "sawtooth_period_seconds": window.sawtooth_period_seconds,
            "nic_mean_seconds": 2 * window.sawtooth_period_seconds,
            "dwell_seconds": distance_seconds,
            "stride_seconds": float(window.sawtooth_period_seconds + _APPLIED_WITHIN_SECONDS),
            "strides_end_seconds": _STRIDE_DWELLS * distance_seconds,
            "replan_seconds": float(2 * window.sawtooth_period_seconds + window.sample_seconds),
            "spread_seconds": float(window.seconds),
            "peak_seconds": 2 * distance_seconds,
            "raise_backoff_seconds": 3 * distance_seconds,
            "longest_hold_seconds": max(LONGEST_HOLD_SECONDS, 2 * self.hold_seconds),
        }
        for name, seconds in times.items():
            object.__setattr__(self, name, seconds)


@value(frozen=True, slots=True)
class LastChange:
    """Our last write that changed the value in force; `previous` None = none was in force."""

    at_seconds: float
    previous: int | None


@value(frozen=True, slots=True)
class ManagedRate:
    """One entity's byte rate in one direction: its promise, its floor, and what stands.

    `contract` and `floor` are scaled by the same leaders. `floor` None = never throttled (L0, an
    exemption, a tier that gives no such rate). `in_force` None = no quota stands. `leads` are the
    brokers that lead partitions for it. `recorded_fraction` is what the ledger says of the value in
    force (1.0 = a contract); None = not recorded. `producers` are the known producers behind it.
    Nothing is expected of one that is `contended`: another writer keeps changing its quota. `owed`
    is what the quota is still to be raised to whatever the load is (its contract was edited,
    leaders moved, an override ended); 0 = nothing. `longest_mute_seconds` bounds a cut beside what
    the policy allows, for a share group.
    """

    entity: Entity
    direction: Direction
    level: Level
    contract: int
    floor: int | None
    in_force: int | None
    leads: Set[int]
    last_change: LastChange | None = None
    recorded_fraction: float | None = None
    producers: int = 0
    contended: bool = False
    owed: int = 0
    longest_mute_seconds: int | None = None
    key: RateKey = field(init=False, repr=False, compare=False)
    throttleable: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.entity, self.direction))
        throttleable = self.level is not Level.L0 and self.floor is not None and not self.contended
        object.__setattr__(self, "throttleable", throttleable)


@value(frozen=True, slots=True)
class StandingRate:
    """The rates of one member, made from this report and these quotas."""

    owner: MemberReport
    stored: StoredQuota | None
    rates: tuple[ManagedRate, ...]


@dataclass(frozen=True, slots=True)
class StandingRates:
    """The rates of the last pass, which stay while report, quotas and `basis` do.

    `basis` is all else that they follow from. A lost memory costs time only.
    """

    basis: tuple[object, ...] = ()
    of: Mapping[Entity, StandingRate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThrottleInput:
    """Everything that one decision knows. `live` are the brokers that the cluster lists now."""

    now_seconds: float
    readings: Readings
    brokers: Mapping[int, BrokerLimit]
    live: frozenset[int]
    rates: tuple[ManagedRate, ...]
    settings: ThrottleSettings = field(default_factory=ThrottleSettings)
    replication: ReplicationOnNics = field(default_factory=dict)
    calendar: tuple[CalendarEntry, ...] = ()


@value(frozen=True, slots=True)
class ActiveThrottle:
    """What was decided for one rate: `value` of a contract that was `contract` then.

    So the fraction survives leader moves exactly. A value equal to the contract is a release that
    is not in force yet. `applied` turns true once it was seen in force; `in_stride` = it is a step
    between two rounds.
    """

    value: int
    contract: int
    decided_at_seconds: float
    applied: bool = False
    in_stride: bool = False

    @property
    def fraction(self) -> float:
        return self.value / self.contract

    def of(self, contract: int) -> int:
        """The same fraction of another contract, rounded up."""
        return -(-self.value * contract // self.contract)


@value(frozen=True, slots=True)
class RateHistory:
    """What was seen of one rate lately, each as (seconds, bytes/s).

    `caps` are values in force within a dwell, by when they were last seen; `peaks` the highest rate
    on any broker, by the time from which each counts; `rates` the last two such rates, by when they
    were read. `known_seconds` is for how long it has been watched.
    """

    caps: tuple[tuple[float, int], ...] = ()
    peaks: tuple[tuple[float, float], ...] = ()
    rates: tuple[tuple[float, float], ...] = ()
    since_seconds: float | None = None
    known_seconds: float = 0.0
    peak: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak", max([rate for _, rate in self.peaks], default=0.0))


@dataclass(frozen=True, slots=True)
class Draining:
    """A drain-then-set under way: where it ends, when it began, until when all clients wait.

    `silence_seconds` is how long the first write silences the busiest of them.
    """

    target: int
    first: int
    started_at_seconds: float
    silent_until_seconds: float
    silence_seconds: float


@dataclass(frozen=True, slots=True)
class DirectionMemory:
    """When one direction last cut, raised, and raised too early; rounds so far.

    `hold_seconds` is how long it holds now, None = as set. `since_seconds` is when this memory
    began: what was measured before is not remembered. `goals` is where the last round of cuts wants
    each rate to end, and `strode_at_seconds` when the last step went there between two rounds.
    """

    cut_at_seconds: float | None = None
    raised_at_seconds: float | None = None
    failed_at_seconds: float | None = None
    hold_seconds: float | None = None
    since_seconds: float | None = None
    rounds: int = 0
    strode_at_seconds: float | None = None
    goals: Mapping[RateKey, ActiveThrottle] = field(default_factory=dict)

    def goals_at(
        self, now_seconds: float, settings: ThrottleSettings
    ) -> Mapping[RateKey, ActiveThrottle]:
        """Those of rounds that are not too long ago for a stride."""
        return {
            key: goal
            for key, goal in self.goals.items()
            if abs(now_seconds - goal.decided_at_seconds) < settings.strides_end_seconds
        }


@dataclass(frozen=True, slots=True)
class ThrottleMemory:
    """What one decision hands to the next; if lost, it comes back from what is in force.

    `distrusted_until` is the time of the newest sample with which a NIC contradicted Kafka, and
    `unknown_since` is since when a broker's load has not been known. `rates` saves making them
    again while nothing that they follow from changes.
    """

    held: Mapping[RateKey, ActiveThrottle] = field(default_factory=dict)
    seen: Mapping[RateKey, RateHistory] = field(default_factory=dict)
    directions: Mapping[Direction, DirectionMemory] = field(default_factory=dict)
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)
    distrusted_until: Mapping[tuple[int, Direction], float] = field(default_factory=dict)
    unknown_since: Mapping[tuple[int, Direction], float] = field(default_factory=dict)
    rates: StandingRates = field(default_factory=StandingRates, repr=False, compare=False)
