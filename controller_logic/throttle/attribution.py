"""Who moves the bytes of a broker that is over its limit: how much must go, whether quotas can help, and what a cut costs elsewhere.

Replication, L0 and foreign traffic cannot be cut. Where the rest could give too little, nothing is cut: that would hurt L3 for nothing.
How far each entity goes is decided in `throttle_targets.py`. All amounts are bytes per second.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from controller_logic.hidden_load import hidden_load
from controller_logic.model import Level
from controller_logic.scene import CUT_ORDER, Scene
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.pressure import Card, Pressure
from controller_logic.throttle.settings import MATTERS, MIN_RELIEF, RAMP, SATURATED


@dataclass(frozen=True, slots=True)
class Need:
    """What must go from one broker, and which levels may be asked for it, lowest first."""

    amount: float
    levels: tuple[Level, ...] = CUT_ORDER


@dataclass(frozen=True, slots=True)
class Helpless:
    """A broker over its limit where quotas cannot help: so much would have to go, so much could be given."""

    need: float
    can_give: float


@dataclass(frozen=True, slots=True)
class Needs:
    """`over`: brokers over their limit where a cut helps; `helpless`: where none does; `swaps`: a lower tier gives to a higher one.

    `spent`: where tiers are throttled already and what they could still give would not help.
    """

    over: Mapping[int, Need] = field(default_factory=dict)
    helpless: Mapping[int, Helpless] = field(default_factory=dict)
    spent: Mapping[int, Helpless] = field(default_factory=dict)
    swaps: Mapping[int, Need] = field(default_factory=dict)

    @property
    def all(self) -> dict[int, Need]:
        return {**self.swaps, **self.over}

    def shown_since(self, since_seconds: float | None, scene: Scene) -> "Needs":
        """Only what was measured after that moment, the last cut: an older reading does not know of it and must not cut twice."""
        if since_seconds is None:
            return self
        fresh = {broker for broker in self.all if (scene.cards[broker].at_seconds or 0.0) > since_seconds}
        over = {broker: need for broker, need in self.over.items() if broker in fresh}
        return replace(self, over=over, swaps={broker: need for broker, need in self.swaps.items() if broker in fresh})


def needs_of(scene: Scene) -> Needs:
    """What each broker of the scene needs."""
    over: dict[int, Need] = {}
    helpless: dict[int, Helpless] = {}
    spent: dict[int, Helpless] = {}
    binding = {broker for bucket in scene.throttled for broker in bucket.binding}
    for broker, card in scene.cards.items():
        if card.pressure is not Pressure.OVER:
            continue
        amount, can_give = card.above(scene.settings.aim_percent / 100) + hidden_load(scene, card), scene.can_give(broker)
        begun = broker in binding
        if can_give < least_relief(card, begun=begun) * amount:
            (spent if begun else helpless)[broker] = Helpless(amount, can_give)
        else:
            over[broker] = Need(amount)
    return Needs(over, helpless, spent, _swaps(scene, {*over, *helpless, *spent}))


def least_relief(card: Card, *, begun: bool) -> float:
    """The share of the excess that must be there to give.

    Little on a link that is full, where every byte helps L0, and where cuts have begun: half an order of tiers helps nobody.
    """
    return MATTERS if begun or is_saturated(card) else MIN_RELIEF


def is_saturated(card: Card) -> bool:
    return card.capacity is not None and card.bytes_per_second is not None and card.bytes_per_second > SATURATED * card.capacity


def _swaps(scene: Scene, over: Collection[int]) -> dict[int, Need]:
    """Where a tier is held down on a broker while a lower one still sends above its floors there: the lower one makes room.

    Also where there is room already: measured on bursts that return, asking for it only where there is none was 56 % more seconds and 64 %
    more bytes over the limit and 45 % more writes, for less backlog of L3.
    """
    swaps: dict[int, Need] = {}
    for level, lower in ((Level.L2, CUT_ORDER[:1]), (Level.L1, CUT_ORDER[:2])):
        for broker, wanted in _regains(scene, level).items():
            can_give = scene.can_give(broker, lower)
            if broker in over or not scene.cards[broker].known:
                continue
            if scene.matters(broker, wanted, MATTERS) and scene.matters(broker, can_give, 2 * MATTERS):
                swaps[broker] = Need(min(wanted, can_give), lower)
    return swaps


def _regains(scene: Scene, level: Level) -> dict[int, float]:
    """What one raise could give back to this level, on each broker where its caps bind."""
    wanted: dict[int, float] = {}
    for bucket in scene.tiers[level]:
        if not bucket.is_throttled:
            continue
        for broker in bucket.binding:
            if broker in scene.cards:
                wanted[broker] = wanted.get(broker, 0.0) + min(bucket.contract, RAMP * bucket.cap) - bucket.cap
    return wanted


@dataclass(frozen=True, slots=True)
class Effect:
    """What a lower value takes off: `relief` on the brokers in need, `collateral` on all others, where nobody asked for it."""

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
