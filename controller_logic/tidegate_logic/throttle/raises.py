"""The raises of one round: what is restored, to whom, into which measured headroom.

A raise costs what can bind: lifting a cap that does not bind adds nothing, lifting one that binds
adds at most the difference on each broker where it binds. So raises fill headroom and cannot
overshoot unless new demand comes. L1 first; the next tier only once nothing of this one is
throttled. When a round may be made is decided in `escalation.py`. All amounts are bytes per second.

Whatever keeps a raise from being in force (the write budget, its turn, a store that is unreachable,
a broker whose load is unknown), its share of the headroom is taken. In each pass such raises are
held against the headroom of that moment, and what no longer fits is withdrawn; so the sum of what
is decided and not in force never exceeds it.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf

from tidegate_logic.model import Level, RateKey
from tidegate_logic.throttle.attribution import CUT_ORDER, RAISE_ORDER, DirectionSnapshot
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.decision import LimitedBy, StepKind, ThrottleStep
from tidegate_logic.throttle.input import (
    FREE,
    RELEASED,
    SMALL,
    WORTH_RAISING,
)

_HALVINGS = 25


@dataclass(frozen=True, slots=True)
class RaisePlan:
    """New raises, releases first, and what earlier ones, not in force yet, are reduced to.

    One that is reduced to what is in force is withdrawn. `takes` is what all of them together take
    of each broker's headroom.
    """

    steps: tuple[ThrottleStep, ...] = ()
    reduced: Mapping[RateKey, int] = field(default_factory=dict)
    takes: Mapping[int, float] = field(default_factory=dict)


def plan_raises(
    scene: DirectionSnapshot, busy: Collection[RateKey], *, most: float, may_begin: bool = True
) -> RaisePlan:
    """The round as it could be made now; `busy` are cut in the same round.

    No cap that binds grows by a larger factor than `most`. Unless it `may_begin`, nothing new is
    raised, and only earlier raises are reviewed.
    """
    if not scene.deciding and not (may_begin and scene.throttled):
        return RaisePlan()
    raiser = _Raiser(scene, busy, most)
    for level in RAISE_ORDER:
        raiser.review(level)
        may_begin = may_begin and raiser.raise_tier(level)
    steps = sorted(
        raiser.steps.values(),
        key=lambda step: (step.kind is StepKind.RAISE, step.level, step.entity.sort_key),
    )
    return RaisePlan(tuple(steps), raiser.reduced, raiser.spent)


def headroom_of(scene: DirectionSnapshot) -> dict[int, float]:
    """How many bytes/s more each broker may carry; 0 or less = nothing.

    A broker without a limit is absent, a blind one has 0. One that has been blind for so long that
    the policy wants no one throttled for it is absent, too.

    A jump of load counts as soon as the newest sawtooth period shows it, although the mean of two
    lags behind it. A NIC that says less than what Kafka moves for clients there is not believed
    here, even where it still passes as a reading.
    """
    share = scene.settings.raise_to_percent / 100
    room: dict[int, float] = {}
    for broker, nic in scene.nics.items():
        if broker in scene.forbids_raises:
            room[broker] = 0.0
        elif nic.limit is not None and nic.bytes_per_second is not None:
            carried = max(nic.bytes_per_second, nic.newest_period_bytes_per_second, nic.clients)
            room[broker] = share * nic.limit - carried
    return room


class _Raiser:
    """Spends the headroom, tier after tier."""

    def __init__(self, scene: DirectionSnapshot, busy: Collection[RateKey], most: float) -> None:
        self._scene = scene
        self._busy = busy
        self._most = most
        self._room = headroom_of(scene)
        self.spent: dict[int, float] = {}
        self.steps: dict[RateKey, ThrottleStep] = {}
        self.reduced: dict[RateKey, int] = {}

    def review(self, level: Level) -> None:
        """Take what earlier raises of this level will use, and reduce those that do not fit.

        To what is in force, where the rest is not worth a write. A broker of which nothing is known
        reduces none; it keeps them waiting.
        """
        self._leave_to_replication(level)
        blind = self._scene.forbids_raises
        for bucket in self._scene.deciding:
            if bucket.level is not level or bucket.key in self._busy:
                continue
            rooms = [
                self._room.get(broker, inf) for broker in _binding(bucket) if broker not in blind
            ]
            most = min(bucket.wanted, self._scene.ceiling_of(bucket))
            value = int(min(most, bucket.cap + max(0.0, min(rooms, default=inf))))
            if value < bucket.wanted:
                value = value if value >= WORTH_RAISING * bucket.cap else bucket.cap
                self.reduced[bucket.key] = value
            self._spend(bucket, value)

    def raise_tier(self, level: Level) -> bool:
        """Raise what may be raised. Returns whether all is released: the next tier may follow."""
        mine = {bucket.key for bucket in self._scene.deciding if bucket.level is level}
        throttled = [bucket for bucket in self._scene.tiers[level] if bucket.is_throttled]
        open_ones = [
            bucket
            for bucket in throttled
            if bucket.key not in self._busy
            and bucket.key not in mine
            and not self._is_pinned(bucket)
            and not _is_above(bucket)
            and not self._scene.is_at_ceiling(bucket)
        ]
        for bucket in open_ones:
            if bucket.is_free and self._has_room_everywhere(bucket):
                self._release(bucket)
        binding = [bucket for bucket in open_ones if _binding(bucket)]
        self._release_small(binding)
        self._grow([bucket for bucket in binding if bucket.key not in self.steps])
        return not mine & self.reduced.keys() and all(
            self._scene.is_at_ceiling(bucket)
            or (
                bucket.key in self.steps
                and self.steps[bucket.key].value == self._scene.ceiling_of(bucket)
            )
            for bucket in throttled
        )

    def _leave_to_replication(self, level: Level) -> None:
        """Bound the headroom of this level by what more important replication leaves it.

        Else what it gave would be asked back from it as soon as replication moves more.
        """
        below = CUT_ORDER[: CUT_ORDER.index(level) + 1]
        for broker, one in self._scene.replication.items():
            if level in one.leaves and broker in self._room:
                sent = self._scene.can_give(broker, below) + self.spent.get(broker, 0.0)
                self._room[broker] = min(self._room[broker], one.leaves[level] - sent)

    def _left(self, broker: int) -> float:
        """The headroom for new raises: not what readings do not show yet.

        Earlier raises are held against readings alone. They were decided together, so those that
        are written take no room from the others.
        """
        return self._room.get(broker, inf) - self._scene.coming.get(broker, 0.0)

    def _is_pinned(self, bucket: Bucket) -> bool:
        """Whether one of its brokers is full or blind.

        On a full link no cap seems to bind, which is no reason to lift one; of a blind broker
        nothing is known.
        """
        brokers = _brokers(bucket)
        is_full = any(
            self._scene.nics[broker].is_full for broker in brokers if broker in self._scene.nics
        )
        return is_full or any(broker in self._scene.forbids_raises for broker in brokers)

    def _has_room_everywhere(self, bucket: Bucket) -> bool:
        return all(self._left(broker) > 0 for broker in _brokers(bucket))

    def _release(self, bucket: Bucket) -> None:
        ceiling = self._scene.ceiling_of(bucket)
        limited = LimitedBy.CONTRACT if ceiling == bucket.contract else LimitedBy.CALENDAR
        self.steps[bucket.key] = _raise_step(
            bucket, ceiling, limited, self._seen_room(_binding(bucket))
        )
        self._spend(bucket, ceiling)

    def _release_small(self, binding: Sequence[Bucket]) -> None:
        """Whole and in one write, the smallest first, what takes little of the headroom."""
        at_first = {broker: self._left(broker) for broker in self._room}
        ceiling_of = self._scene.ceiling_of
        for bucket in sorted(binding, key=lambda one: ceiling_of(one) - one.cap):
            more = ceiling_of(bucket) - bucket.cap
            fits = all(
                more <= SMALL * at_first.get(broker, inf) and more <= self._left(broker)
                for broker in _binding(bucket)
            )
            if fits:
                self._release(bucket)

    def _grow(self, binding: Sequence[Bucket]) -> None:
        """All others by one common factor."""
        factor = self._common_factor(binding)
        if factor < WORTH_RAISING:
            return
        for bucket in binding:
            ceiling = self._scene.ceiling_of(bucket)
            value = min(ceiling, int(bucket.cap * factor))
            if value >= RELEASED * ceiling:
                self._release(bucket)
            elif value > bucket.cap:
                limited = LimitedBy.RAMP if factor >= self._most else LimitedBy.HEADROOM
                self.steps[bucket.key] = _raise_step(
                    bucket, value, limited, self._seen_room(_binding(bucket))
                )
                self._spend(bucket, value)

    def _common_factor(self, binding: Sequence[Bucket]) -> float:
        """The largest factor that fits on every broker where a cap binds."""
        if self._fits(binding, self._most):
            return self._most
        low, high = 1.0, self._most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._fits(binding, middle) else (low, middle)
        return low

    def _fits(self, binding: Sequence[Bucket], factor: float) -> bool:
        use: dict[int, float] = {}
        for bucket in binding:
            ceiling = float(self._scene.ceiling_of(bucket))
            more = min(ceiling, bucket.cap * factor) - bucket.cap
            for broker in _binding(bucket):
                use[broker] = use.get(broker, 0.0) + more
        return all(amount <= max(0.0, self._left(broker)) for broker, amount in use.items())

    def _spend(self, bucket: Bucket, value: int) -> None:
        for broker in _binding(bucket):
            if broker in self._room:
                self._room[broker] -= value - bucket.cap
                self.spent[broker] = self.spent.get(broker, 0.0) + value - bucket.cap

    def _seen_room(self, brokers: Sequence[int]) -> dict[int, float]:
        return {broker: self._left(broker) for broker in brokers if broker in self._room}


def _is_above(bucket: Bucket) -> bool:
    """Whether it still steps down to a contract that leaders made smaller.

    Nothing is raised until then.
    """
    return bucket.cap > bucket.contract


def _binding(bucket: Bucket) -> tuple[int, ...]:
    """The brokers where its cap binds, or may bind once it is higher.

    A client that uses a little less than its cap is neither limited nor free; it is raised as if it
    were limited there, or it would stay as it is for ever.
    """
    return bucket.binding or tuple(
        broker for broker in sorted(bucket.flows) if FREE * bucket.sends(broker) > bucket.cap
    )


def _brokers(bucket: Bucket) -> Set[int]:
    return bucket.rate.leads | bucket.flows.keys()


def _raise_step(
    bucket: Bucket, value: int, limited: LimitedBy, room: dict[int, float]
) -> ThrottleStep:
    kind = StepKind.RELEASE if value == bucket.contract else StepKind.RAISE
    return ThrottleStep(
        bucket, kind, value, bucket.contract, limited, tuple(sorted(room)), headroom=room
    )
