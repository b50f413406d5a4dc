"""What one throttle decision says: the value of each rate, the state of each broker, and why.

Everything that a person sees of a throttle comes from here. Rates are bytes per second; times are
seconds since the epoch.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate_logic.model import Direction, Entity, Level, RateKey
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.input import WORTH_CUTTING
from tidegate_logic.throttle.nic_status import NicStatus
from tidegate_logic.value import value


class StepKind(StrEnum):
    """What happens to one rate, in the order in which writes should be sent."""

    CUT = "cut"
    RELEASE = "release"  # back to exactly the contract
    RAISE = "raise"
    HOLD = "hold"  # nothing new; the value follows the leaders, or repeats what is not in force yet


class LimitedBy(StrEnum):
    """Why a cut or a raise goes no further."""

    TARGET = "target"
    MAX_MUTE = "maxMute"
    FLOOR = "floor"
    HEADROOM = "headroom"
    CONTRACT = "contract"
    RAMP = "ramp"
    CALENDAR = "calendar"
    NOTHING = "nothing"


class Phase(StrEnum):
    """The state of one direction."""

    NORMAL = "Normal"
    CUTTING = "Cutting"
    RELAXING = "Relaxing"
    EXHAUSTED = "Exhausted"
    UNHELPABLE = "Unhelpable"
    HELD = "Held"


@value(frozen=True, slots=True)
class ThrottleStep:
    """The wanted value of one rate: `value` should be in force now, `target` is where it ends.

    `relief` and `collateral` are what a cut takes off the brokers in need and off all others, as
    measured; `predicted_mute_seconds` comes from what the bucket's window may hold; `brokers` are
    those in need, or those where a raised cap binds. `due_in_seconds` is how
    long what was decided still has to wait, None = it waits for nothing. `fraction` is of the
    contract, 1.0 = released. `lowers` = the value is below what is in force, from no quota at all
    too. `ends_drain` = it is the second write of a drain: safe only while its clients are silent,
    so it waits for no other write.
    """

    bucket: Bucket
    kind: StepKind
    value: int
    target: int
    limited_by: LimitedBy = LimitedBy.NOTHING
    brokers: tuple[int, ...] = ()
    relief: float = 0.0
    collateral: float = 0.0
    score: float = 1.0
    predicted_mute_seconds: float = 0.0
    headroom: Mapping[int, float] = field(default_factory=dict)
    draining: bool = False
    in_stride: bool = False
    due_in_seconds: float | None = None
    key: RateKey = field(init=False, repr=False, compare=False)
    entity: Entity = field(init=False, repr=False, compare=False)
    direction: Direction = field(init=False, repr=False, compare=False)
    level: Level = field(init=False, repr=False, compare=False)
    in_force: int | None = field(init=False, repr=False, compare=False)
    contract: int = field(init=False, repr=False, compare=False)
    fraction: float = field(init=False, repr=False, compare=False)
    lowers: bool = field(init=False, repr=False, compare=False)
    ends_drain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rate = self.bucket.rate
        object.__setattr__(self, "key", rate.key)
        object.__setattr__(self, "entity", rate.entity)
        object.__setattr__(self, "direction", rate.direction)
        object.__setattr__(self, "level", rate.level)
        object.__setattr__(self, "in_force", rate.in_force)
        object.__setattr__(self, "contract", rate.contract)
        object.__setattr__(self, "fraction", self.value / rate.contract)
        object.__setattr__(self, "lowers", rate.in_force is None or self.value < rate.in_force)
        object.__setattr__(
            self,
            "ends_drain",
            self.draining and self.value <= max(self.target, self.bucket.floor.value),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know about one direction: a reason, its words, and which broker or entity."""

    reason: Reason
    message: str
    broker: int | None = None
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker in one direction: its NIC, its need (0 = none), and what each level could give.

    `room_for` is the level that lower ones make room for there, `for_replication` = they make it
    for replication; neither = it is over its limit. `promised` are bytes/s that clients may use
    soon, by raises that are on their way or that the NIC does not show yet.
    """

    nic: NicStatus
    need: float = 0.0
    room_for: Level | None = None
    for_replication: bool = False
    cuttable: Mapping[Level, float] = field(default_factory=dict)
    promised: float = 0.0


@dataclass(frozen=True, slots=True)
class SkippedEntity:
    """An entity that leads on a broker in need and was left alone, and why."""

    entity: Entity
    why: str


@dataclass(frozen=True, slots=True)
class Round:
    """One direction's observation record: what was seen, decided and left undone.

    `next_cut_at_seconds` and `next_raise_at_seconds` are the earliest moments; None = none is
    expected. `not_done` names a few. `by_newest` = all NICs were judged by their newest readings:
    nothing was throttled, and no reading distrusted.
    """

    at_seconds: float
    direction: Direction
    number: int
    phase: Phase
    hold_seconds: float
    brokers: tuple[BrokerView, ...] = ()
    tiers_planned: tuple[Level, ...] = ()
    steps: tuple[ThrottleStep, ...] = ()
    not_done: tuple[SkippedEntity, ...] = ()
    findings: tuple[Finding, ...] = ()
    next_cut_at_seconds: float | None = None
    next_raise_at_seconds: float | None = None
    by_newest: bool = False

    @property
    def blind(self) -> tuple[int, ...]:
        return tuple(view.nic.broker for view in self.brokers if not view.nic.known)


@dataclass(frozen=True, slots=True)
class ThrottleDecision:
    """Every rate that is, or is to be, below its contract, or on its way back.

    A rate without a step belongs at its contract. `ceilings` are the quotas in bytes/s that the
    calendar allows now, of the rates that it limits.
    """

    steps: Mapping[RateKey, ThrottleStep] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()
    ceilings: Mapping[RateKey, int] = field(default_factory=dict)

    def by_calendar(self, step: ThrottleStep) -> bool:
        """Whether only the calendar keeps the rate below its contract: load asks for no less."""
        ceiling = self.ceilings.get(step.key)
        return ceiling is not None and step.target >= WORTH_CUTTING * ceiling

    @property
    def judged(self) -> Mapping[Direction, Mapping[int, NicStatus]]:
        """The NICs of each direction."""
        return {
            one.direction: {view.nic.broker: view.nic for view in one.brokers}
            for one in self.rounds
        }

    @property
    def throttled(self) -> Set[Direction]:
        """The directions in which something is throttled, so that means count."""
        return {one.direction for one in self.rounds if not one.by_newest}

    def round_of(self, direction: Direction) -> Round:
        """The round of one direction. Raises StopIteration if it was not decided.

        That cannot happen for a decision of `throttle`.
        """
        return next(one for one in self.rounds if one.direction is direction)


# What a throttle decision does that it did not do already, so that each act is counted once.
#
# A cut that waits for its moment, for the write budget, or for mode Observe to end is decided again
# and again; it is one act.


ACTIONS = frozenset({StepKind.CUT, StepKind.RAISE, StepKind.RELEASE})

Act = tuple[StepKind, int, int | None]  # what is done, to which value, from what is in force
Acts = Mapping[RateKey, Act]


def new_acts(throttle: ThrottleDecision, known: Acts) -> tuple[tuple[ThrottleStep, ...], Acts]:
    """The steps that do something new, and the last act on each rate not back at its contract."""
    steps = tuple(
        step
        for step in throttle.steps.values()
        if step.kind in ACTIONS and known.get(step.key) != _act(step)
    )
    after = {**known, **{step.key: _act(step) for step in steps}}
    return steps, {key: act for key, act in after.items() if key in throttle.steps}


def _act(step: ThrottleStep) -> Act:
    return (step.kind, step.value, step.in_force)
