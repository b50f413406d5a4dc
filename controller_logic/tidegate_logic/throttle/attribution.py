"""Who moves the bytes of a broker over its limit: what must go, can quotas help, what it costs.

L0 and foreign traffic cannot be cut, and replication only where the policy throttles it below L3:
then it is cut first. Where the rest could give too little, nothing is cut: that would hurt L3 for
nothing. How far each entity goes is decided in `cuts.py`. All amounts are bytes per second.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tidegate_logic.model import Direction, Level, RateKey, ReplicationBeside
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.input import (
    FAR_OVER,
    MATTERS,
    MIN_RELIEF,
    RAMP,
    SATURATED,
    SEVERE,
    WORTH_CUTTING,
    ThrottleInput,
    ThrottleSettings,
)
from tidegate_logic.throttle.nic_status import NicStatus, Pressure
from tidegate_logic.value import value

# One direction at one moment: NICs, buckets, and who could give how much where.


CUT_ORDER = (Level.L3, Level.L2, Level.L1)
RAISE_ORDER = (Level.L1, Level.L2, Level.L3)
_NONE = ReplicationBeside()
_NOTHING_COMES: Mapping[int, float] = {}
_NO_CEILINGS: Mapping[RateKey, int] = {}


@dataclass(frozen=True, slots=True)
class DirectionSnapshot:
    """One direction at one moment, as cuts and raises see it.

    `tiers` are the buckets of this direction by level, `cuttable` what each level could give on
    each broker, in bytes/s. `unmeasured` are the brokers that lead for some of them and report no
    client rates; `blind` those of whose NIC nothing is known; `unknown_for_long` those blind ones
    that hold no raise up any more, because the policy asks for that. They still justify no cut.
    `forbids_raises` are the blind brokers on which nothing may be raised, `throttled` the buckets
    below their contracts by our decision, `by_load` those that the calendar alone does not explain.
    `deciding` are those whose raise was decided and is not in force. `coming` is what each NIC will
    carry beyond its reading, in bytes/s: see `coming.py`. `replication` is what is known of it on
    each broker that it passes. `ceilings` are the quotas in bytes/s that the calendar allows now,
    of the rates that it limits.
    """

    now_seconds: float
    direction: Direction
    settings: ThrottleSettings
    scrape_seconds: float
    nics: Mapping[int, NicStatus]
    tiers: Mapping[Level, tuple[Bucket, ...]]
    cuttable: Mapping[Level, Mapping[int, float]]
    unmeasured: frozenset[int] = frozenset()
    unknown_for_long: frozenset[int] = frozenset()
    replication: Mapping[int, ReplicationBeside] = field(default_factory=dict)
    coming: Mapping[int, float] = field(default_factory=dict)
    ceilings: Mapping[RateKey, int] = field(default_factory=dict)
    blind: frozenset[int] = field(init=False, repr=False, compare=False)
    forbids_raises: frozenset[int] = field(init=False, repr=False, compare=False)
    all_blind: bool = field(init=False, repr=False, compare=False)
    throttled: tuple[Bucket, ...] = field(init=False, repr=False, compare=False)
    by_load: tuple[Bucket, ...] = field(init=False, repr=False, compare=False)
    deciding: tuple[Bucket, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        blind = frozenset([broker for broker, nic in self.nics.items() if not nic.known])
        held = [
            bucket
            for level in RAISE_ORDER
            for bucket in self.tiers[level]
            if bucket.held is not None
        ]
        throttled = tuple([bucket for bucket in held if bucket.is_throttled])
        deciding = tuple([bucket for bucket in held if bucket.is_to_rise])
        object.__setattr__(self, "deciding", deciding)
        object.__setattr__(self, "blind", blind)
        object.__setattr__(self, "forbids_raises", blind - self.unknown_for_long)
        object.__setattr__(self, "all_blind", len(blind) == len(self.nics))
        object.__setattr__(self, "throttled", throttled)
        by_load = throttled
        if self.ceilings:
            by_load = tuple(
                [one for one in throttled if one.wanted < WORTH_CUTTING * self.ceiling_of(one)]
            )
        object.__setattr__(self, "by_load", by_load)

    def can_give(self, broker: int, levels: Iterable[Level] = CUT_ORDER) -> float:
        """What these levels send there above their floors, in bytes/s."""
        return sum([self.cuttable[level].get(broker, 0.0) for level in levels])

    def ceiling_of(self, bucket: Bucket) -> int:
        """The most that its quota may be now, in bytes/s: the contract, or less by the calendar."""
        return self.ceilings.get(bucket.key, bucket.contract)

    def is_at_ceiling(self, bucket: Bucket) -> bool:
        """Whether the calendar allows it no more that is worth a write."""
        ceiling = self.ceilings.get(bucket.key)
        return ceiling is not None and bucket.cap >= WORTH_CUTTING * ceiling

    def rests_seconds(self) -> float:
        """How long a round waits after the last stride, for readings of what that one did.

        Far over the limit, where L1 will have to give, it waits for none.
        """
        is_far_over = any(nic.above(FAR_OVER) > 0 for nic in self.nics.values())
        return 0.0 if is_far_over else self.settings.replan_seconds

    def matters(self, broker: int, bytes_per_second: float, share: float) -> bool:
        """Whether so much is more than this share of the broker's limit."""
        limit = self.nics[broker].limit
        return limit is not None and bytes_per_second > share * limit


def scene_of(
    given: ThrottleInput,
    direction: Direction,
    nics: Mapping[int, NicStatus],
    buckets: Sequence[Bucket],
    unknown_for_long: frozenset[int] = frozenset(),
    coming: Mapping[int, float] = _NOTHING_COMES,
    ceilings: Mapping[RateKey, int] = _NO_CEILINGS,
) -> DirectionSnapshot:
    """The scene of one direction; `buckets` may be of others too."""
    parts = direction.parts
    mine = [bucket for bucket in buckets if bucket.rate.direction in parts]
    tiers = {
        level: tuple([bucket for bucket in mine if bucket.level is level]) for level in CUT_ORDER
    }
    unmeasured = frozenset([broker for bucket in mine for broker in bucket.unmeasured])
    scrape_seconds = given.readings.scrape_seconds
    return DirectionSnapshot(
        given.now_seconds,
        direction,
        given.settings,
        scrape_seconds,
        nics,
        tiers,
        {level: _cuttable(tier) for level, tier in tiers.items()},
        unmeasured,
        unknown_for_long,
        _replication(given, direction),
        coming,
        ceilings,
    )


def _replication(given: ThrottleInput, direction: Direction) -> dict[int, ReplicationBeside]:
    """By broker; of both directions combined the sum that gives, and the least that is left."""
    found: dict[int, ReplicationBeside] = {}
    for (broker, way), one in given.replication.items():
        if way not in direction.parts:
            continue
        other = found.get(broker)
        found[broker] = one
        if other is not None:
            leaves = {
                level: min(one.leaves.get(level, inf), other.leaves.get(level, inf))
                for level in one.leaves.keys() | other.leaves.keys()
            }
            found[broker] = ReplicationBeside(one.gives + other.gives, leaves)
    return found


def _cuttable(buckets: Iterable[Bucket]) -> dict[int, float]:
    given: dict[int, float] = {}
    for bucket in buckets:
        for broker, gives in bucket.giving.items():
            given[broker] = given.get(broker, 0.0) + gives
    return given


# What a NIC's mean does not show: clients muted for a part of it, that send again from now on.
#
# After a cut a client is silent while Kafka forgets what it had sent. A mean over that time is
# lower than what comes, so that the next tier would be asked for too little, and again a round
# later. It sizes what is needed; whether a broker is over its limit it does not touch.


def hidden_loads(scene: DirectionSnapshot, nics: Iterable[NicStatus]) -> dict[int, float]:
    """Bytes/s that the mean of these NICs lacks, by broker: clients were muted for a part of it.

    Absent = nothing, as where a scrape is as long as a client's whole rhythm.
    """
    if scene.scrape_seconds >= scene.settings.sawtooth_period_seconds:
        return {}
    spans = {
        nic.broker: (nic.at_seconds, nic.span_seconds)
        for nic in nics
        if nic.at_seconds is not None and nic.span_seconds is not None
    }
    hidden: dict[int, float] = {}
    for bucket in scene.throttled if spans else ():
        for broker in bucket.binding:
            if broker in bucket.flows and broker in spans:
                until_seconds, span_seconds = spans[broker]
                muted = bucket.cap * _muted_seconds(bucket, scene, until_seconds, span_seconds)
                hidden[broker] = hidden.get(broker, 0.0) + muted
    return {broker: muted / spans[broker][1] for broker, muted in hidden.items()}


def _muted_seconds(
    bucket: Bucket, scene: DirectionSnapshot, until_seconds: float, span_seconds: float
) -> float:
    """For how much of the span its last lowering muted it, at the most as long as a step may."""
    change, settings = bucket.rate.last_change, scene.settings
    if change is None or change.previous is None or not change.previous > bucket.cap > 0:
        return 0.0
    held = min(change.previous, bucket.seen.peak)
    mute_seconds = min(settings.max_mute_seconds, settings.window.seconds * (held / bucket.cap - 1))
    end_seconds = min(until_seconds, change.at_seconds + mute_seconds)
    return max(0.0, end_seconds - max(until_seconds - span_seconds, change.at_seconds))


def _last_lowerings(scene: DirectionSnapshot) -> dict[int, float]:
    """When the last of those who send on each broker was lowered, in seconds.

    A client that leads there and has no series, although the broker has others', sends nothing.
    """
    lowered: dict[int, float] = {}
    for bucket in scene.throttled:
        change = bucket.rate.last_change
        if (
            change is None
            or change.previous is None
            or change.previous <= bucket.cap
            or change.at_seconds > scene.now_seconds
        ):
            continue
        for broker in bucket.flows.keys() | bucket.unmeasured:
            lowered[broker] = max(change.at_seconds, lowered.get(broker, change.at_seconds))
    return lowered


@dataclass(frozen=True, slots=True)
class Need:
    """What must go from one broker, and which levels may be asked for it, lowest first."""

    amount: float
    levels: tuple[Level, ...] = CUT_ORDER
    for_replication: bool = False


@dataclass(frozen=True, slots=True)
class NotReducible:
    """A broker over its limit where quotas cannot help: what must go, and what could be given.

    The need no longer includes what replication is slowed down by.
    """

    need: float
    can_give: float
    replication: float = 0.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What brokers need: `over` their limit where a cut helps, `helpless` where none does.

    `swaps`: a lower tier gives to a higher one, or to replication. `spent`: where tiers are
    throttled already and what they could still give would not help.
    """

    over: Mapping[int, Need] = field(default_factory=dict)
    helpless: Mapping[int, NotReducible] = field(default_factory=dict)
    spent: Mapping[int, NotReducible] = field(default_factory=dict)
    swaps: Mapping[int, Need] = field(default_factory=dict)
    all: Mapping[int, Need] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "all", {**self.swaps, **self.over})

    def shown_since(self, since_seconds: float | None, scene: DirectionSnapshot) -> "Needs":
        """Only what was measured after that moment, the last cut.

        An older reading does not know of it and must not cut twice. Nor may a mean over a time in
        which clients still sent what was taken from them since, unless it is far above the limit.
        """
        if since_seconds is None or not self.all:
            return self
        lowered = _last_lowerings(scene)
        fresh = {
            broker
            for broker in self.all
            if ((nic := scene.nics[broker]).at_seconds or 0.0) > since_seconds
            and (
                nic.above(SEVERE) > 0
                or (nic.at_seconds or 0.0) - (nic.span_seconds or 0.0) >= lowered.get(broker, -inf)
            )
        }
        over = {broker: need for broker, need in self.over.items() if broker in fresh}
        return replace(
            self,
            over=over,
            swaps={broker: need for broker, need in self.swaps.items() if broker in fresh},
        )


def needs_of(scene: DirectionSnapshot) -> Needs:
    """What each broker of the scene needs."""
    over: dict[int, Need] = {}
    gives_way: set[int] = set()
    helpless: dict[int, NotReducible] = {}
    spent: dict[int, NotReducible] = {}
    binding = {broker for bucket in scene.by_load for broker in bucket.binding}
    full = [nic for nic in scene.nics.values() if nic.pressure is Pressure.OVER]
    hidden = hidden_loads(scene, full)
    for nic in full:
        broker = nic.broker
        amount = nic.above(scene.settings.cut_to_percent / 100) + hidden.get(broker, 0.0)
        # whose rates grew is not known yet: L1 waits for the next scrape, which may spare it
        levels = CUT_ORDER[:2] if nic.is_direct else CUT_ORDER
        can_give = scene.can_give(broker, levels)
        replication = min(max(0.0, amount), scene.replication.get(broker, _NONE).gives)
        amount -= replication
        if replication and not amount:
            gives_way.add(broker)
            continue
        begun = broker in binding
        if can_give < least_relief(nic, begun=begun) * amount:
            if not nic.is_direct:
                left = NotReducible(amount, can_give, replication)
                (spent if begun else helpless)[broker] = left
        else:
            wanted = room_for_replication(scene, broker)
            needed = Need(amount, levels)
            over[broker] = wanted if wanted is not None and wanted.amount > amount else needed
    swaps = _make_room_for_higher_tiers(scene, {*over, *helpless, *spent, *gives_way})
    for broker in scene.replication.keys() & scene.nics.keys():
        wanted = room_for_replication(scene, broker)
        if (
            wanted is not None
            and scene.nics[broker].pressure is Pressure.WITHIN
            and (broker not in swaps or wanted.amount > swaps[broker].amount)
        ):
            swaps[broker] = wanted
    return Needs(over, helpless, spent, swaps)


def room_for_replication(scene: DirectionSnapshot, broker: int) -> Need | None:
    """What lower levels give to replication that is more important; None = nothing that matters.

    They give what they send now beyond what it leaves them. Whether the broker is over its limit
    does not count: clients that fill a NIC just below it would hold up a broker that comes back for
    as long as it takes.
    """
    leaves = scene.replication.get(broker, _NONE).leaves
    if not scene.nics[broker].known or broker in scene.unmeasured:
        return None
    amount, sent, levels = 0.0, 0.0, []
    for level in CUT_ORDER:
        can_give = scene.can_give(broker, (level,))
        sent += can_give
        gives = min(can_give, sent - leaves.get(level, inf) - amount)
        if gives > 0:
            amount += gives
            levels.append(level)
    if not scene.matters(broker, amount, 2 * MATTERS):
        return None
    return Need(amount, tuple(levels), for_replication=True)


def least_relief(nic: NicStatus, *, begun: bool) -> float:
    """The share of the excess that must be there to give.

    Little on a link that is full, where every byte helps L0, and where cuts have begun: half an
    order of tiers helps no one.
    """
    return MATTERS if begun or is_saturated(nic) else MIN_RELIEF


def is_saturated(nic: NicStatus) -> bool:
    return (
        nic.capacity is not None
        and nic.bytes_per_second is not None
        and nic.bytes_per_second > SATURATED * nic.capacity
    )


def _make_room_for_higher_tiers(scene: DirectionSnapshot, over: Collection[int]) -> dict[int, Need]:
    """Where a higher tier is held down on a broker, what lower ones can give for it there.

    Also where there is room already: measured on bursts that return, asking for it only where there
    is none was 56 % more seconds and 64 % more bytes over the limit and 45 % more writes, for less
    backlog of L3.
    """
    swaps: dict[int, Need] = {}
    for level, lower in ((Level.L2, CUT_ORDER[:1]), (Level.L1, CUT_ORDER[:2])):
        for broker, wanted in _regains(scene, level).items():
            can_give = scene.can_give(broker, lower)
            if broker in over or not scene.nics[broker].known:
                continue
            if scene.matters(broker, wanted, MATTERS) and scene.matters(
                broker, can_give, 2 * MATTERS
            ):
                swaps[broker] = Need(min(wanted, can_give), lower)
    return swaps


def _regains(scene: DirectionSnapshot, level: Level) -> dict[int, float]:
    """What one raise could restore to this level, on each broker where its caps bind."""
    wanted: dict[int, float] = {}
    for bucket in scene.tiers[level]:
        if not bucket.is_throttled or scene.is_at_ceiling(bucket):
            continue
        more = min(scene.ceiling_of(bucket), RAMP * bucket.cap) - bucket.cap
        for broker in bucket.binding:
            if broker in scene.nics:
                wanted[broker] = wanted.get(broker, 0.0) + more
    return wanted


@value(frozen=True, slots=True)
class Effect:
    """What a lower value takes off: `relief` on the brokers in need, `collateral` on all others."""

    relief: float
    collateral: float

    @property
    def score(self) -> float:
        """The share that helps; 1.0 where nothing is taken at all."""
        total = self.relief + self.collateral
        return self.relief / total if total > 0 else 1.0


def effect_of(bucket: Bucket, value: int, needy: Collection[int]) -> Effect:
    """What the bucket would send less, as measured, if it were held at `value`."""
    cut = {broker: max(0.0, flow.bytes_per_second - value) for broker, flow in bucket.flows.items()}
    relief = sum(amount for broker, amount in cut.items() if broker in needy)
    return Effect(relief, sum(cut.values()) - relief)
