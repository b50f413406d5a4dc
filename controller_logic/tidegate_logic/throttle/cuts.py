"""The cuts of one round: which tier gives on which broker, and how far each entity goes now.

L3 first; the next tier only for what the lower ones cannot give even where they should end; L1 is
spared while the lower tiers are on their way down, see `_spares_l1`; L0 never. Every step passes
the mute guard. When a round may be made is decided in `escalation.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from operator import itemgetter

from tidegate_logic.model import Level, RateKey, Speed
from tidegate_logic.readings import BINDING, BINDING_MILLISECONDS
from tidegate_logic.throttle.attribution import (
    CUT_ORDER,
    DirectionSnapshot,
    Needs,
    effect_of,
    room_for_replication,
)
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.decision import LimitedBy, Phase, StepKind, ThrottleStep
from tidegate_logic.throttle.input import (
    FEW,
    FEW_ENTITIES,
    MATTERS,
    SMALL_GIVER,
    WORTH_CUTTING,
    WORTH_STRIDING,
    DirectionMemory,
    Draining,
)
from tidegate_logic.throttle.raises import RaisePlan


@dataclass(frozen=True, slots=True)
class CutPlan:
    """The cuts of one round. `steps` are those worth a write; `levels` were asked.

    `targets` is where each giver should end. `exhausted` says which brokers would stay over their
    limits with every entity at its target, and by how much (bytes/s); `drains` are the drains that
    the steps begin; `moving` = some entity is still on the way to the target, now or after its next
    step. `is_apart` = it is of brokers that the strides of earlier rounds leave alone.
    """

    steps: tuple[ThrottleStep, ...] = ()
    levels: tuple[Level, ...] = ()
    targets: Mapping[RateKey, int] = field(default_factory=dict)
    exhausted: Mapping[int, float] = field(default_factory=dict)
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)
    moving: bool = False
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one direction does now. `steps` are new cuts, releases and raises, in this order.

    `plan` also has those that must wait, `raises` what became of earlier ones.
    """

    phase: Phase
    needs: Needs
    plan: CutPlan
    memory: DirectionMemory
    steps: tuple[ThrottleStep, ...] = ()
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)
    raises: RaisePlan = field(default_factory=RaisePlan)


def plan_cuts(scene: DirectionSnapshot, needs: Needs) -> CutPlan:
    """The round as it should be made now, largest relief first."""
    planner = _Planner(scene, needs)
    for level in CUT_ORDER:
        planner.ask(level)
    return planner.plan()


class _Planner:
    """Asks tier after tier; the next gives only what lower ones will not, even at their targets."""

    def __init__(self, scene: DirectionSnapshot, needs: Needs) -> None:
        self._scene = scene
        self._needs = needs.all
        self._over = needs.over
        self._left = {broker: need.amount for broker, need in self._needs.items()}
        # what lower tiers have still to give after this round's steps
        self._coming: dict[int, float] = {}
        self._waited: set[int] = set()
        self._steps: list[ThrottleStep] = []
        self._levels: list[Level] = []
        self._targets: dict[RateKey, int] = {}
        self._drains: dict[RateKey, Draining] = {}
        self._moving = False

    def ask(self, level: Level) -> None:
        """Let the buckets of this level give what is left to give."""
        asked = frozenset(broker for broker in self._left if self._is_asked(broker, level))
        if not asked:
            return
        self._levels.append(level)
        blind = asked & self._scene.unmeasured
        measured = {broker: self._left[broker] for broker in sorted(asked - blind)}
        tier = self._scene.tiers[level]
        targets = {**blind_targets(tier, blind), **targets_of(tier, measured)}
        for bucket in tier:
            if bucket.key in targets:
                self._give(bucket, targets[bucket.key], asked)
        # what this tier will give is not known there, so no other is asked in this round
        for broker in blind:
            self._left[broker] = 0.0

    def _is_asked(self, broker: int, level: Level) -> bool:
        if self._left[broker] <= 0 or level not in self._needs[broker].levels:
            return False
        if not self._scene.matters(broker, self._scene.can_give(broker, (level,)), MATTERS):
            return False
        if level is Level.L1 and self._spares_l1(broker):
            self._waited.add(broker)
            return False
        return True

    def _spares_l1(self, broker: int) -> bool:
        """Whether L1 waits, because lower tiers still have more to give than L1 would."""
        return self._coming.get(broker, 0.0) > self._left[broker]

    def _give(self, bucket: Bucket, target: float, asked: frozenset[int]) -> None:
        """Count what the bucket gives in the end, and step if that is worth a write now."""
        goal = max(bucket.floor.value, ceil(target))
        self._targets[bucket.key] = goal
        self._moving = self._moving or goal < WORTH_CUTTING * min(bucket.cap, bucket.contract)
        sending = [one for one in bucket.sending.items() if one[0] in asked and one[1] > target]
        for broker, sends in sending:
            self._left[broker] -= sends - target
        step = self._step(bucket, goal, asked)
        if step is not None:
            self._steps.append(step)
        if step is not None and step.draining:
            # its second write comes before the next round does: there is nothing to wait for
            return
        value = bucket.cap if step is None else step.value
        for broker, sends in sending:
            coming = min(sends, value) - goal
            if coming > 0:
                self._coming[broker] = self._coming.get(broker, 0.0) + coming

    def _step(self, bucket: Bucket, goal: int, asked: frozenset[int]) -> ThrottleStep | None:
        """The step now, also where it does not bite yet: the next one then starts lower.

        A member that was lowered late in the last round, because writes are spread, is decided on
        with the others and waits for its moment.
        """
        settings = self._scene.settings
        wait_seconds = bucket.seconds_until_lowered_again(settings, self._scene.now_seconds)
        if wait_seconds > settings.spread_seconds:
            return None
        value = max(
            goal, bucket.safe_step_later(settings) if wait_seconds else bucket.safe_step(settings)
        )
        drain = (
            first_write(bucket, goal, self._scene) if value > goal and not wait_seconds else None
        )
        if drain is not None:
            value = drain.first
        if value >= WORTH_CUTTING * min(bucket.cap, bucket.contract):
            return None
        step = cut_step(bucket, value, goal, asked, self._scene)
        if drain is None:
            return step
        self._drains[bucket.key] = drain
        return replace(step, draining=True, predicted_mute_seconds=drain.silence_seconds)

    def plan(self) -> CutPlan:
        steps = tuple(sorted(self._steps, key=lambda step: (-step.relief, step.entity.sort_key)))
        return CutPlan(
            steps, tuple(self._levels), self._targets, self._exhausted(), self._drains, self._moving
        )

    def _exhausted(self) -> dict[int, float]:
        """Where even the targets leave a broker over its limit, with no tier spared for later."""
        spare = 1 - self._scene.settings.cut_to_percent / 100
        return {
            broker: self._left[broker]
            for broker in self._over
            if broker not in self._waited
            and not self._scene.nics[broker].is_direct  # L1 was not asked
            and self._scene.matters(broker, self._left[broker], spare)
        }


def cut_step(
    bucket: Bucket, value: int, goal: int, needy: frozenset[int], scene: DirectionSnapshot
) -> ThrottleStep:
    """A cut in full words, with the mute that a write of the ladder may cause."""
    effect = effect_of(bucket, value, needy)
    limited = (
        LimitedBy.MAX_MUTE
        if value > goal
        else LimitedBy.FLOOR
        if value == bucket.floor.value
        else LimitedBy.TARGET
    )
    mute_seconds = bucket.predicted_mute_seconds(value, scene.settings)
    brokers = tuple(sorted(needy & bucket.giving.keys()))
    return ThrottleStep(
        bucket,
        StepKind.CUT,
        value,
        goal,
        limited,
        brokers,
        effect.relief,
        effect.collateral,
        effect.score,
        mute_seconds,
    )


def strides(scene: DirectionSnapshot, memory: DirectionMemory) -> tuple[ThrottleStep, ...]:
    """The next steps between two rounds, of those that the last round lowered.

    Where one of its brokers is over its limit, a client goes on to the goal of that round. Where
    replication needs room its goal is made again each time, for what replication leaves does not
    depend on how far clients are on their way. A step goes as far as a window allows that holds
    nothing from before the last one. Not for L1, which lower levels may yet spare. Nor where many
    of a level give: their writes are spread over a whole sawtooth period, and each saves little.
    """
    settings, now_seconds = scene.settings, scene.now_seconds
    steps: list[ThrottleStep] = []
    goals = memory.goals_at(now_seconds, settings)
    since_seconds = max(memory.cut_at_seconds or 0.0, memory.strode_at_seconds or 0.0)
    read_since = [
        broker for broker, nic in scene.nics.items() if (nic.at_seconds or 0.0) > since_seconds
    ]
    full = frozenset([broker for broker in read_since if scene.nics[broker].is_full])
    needs = Needs(
        swaps={
            broker: need
            for broker in read_since
            if (need := room_for_replication(scene, broker)) is not None
        }
    )
    renewed = plan_cuts(scene, needs).targets if memory.goals and needs.swaps else {}
    needy = full | needs.swaps.keys()
    for level in CUT_ORDER[:2]:
        giving = [bucket for bucket in scene.tiers[level] if bucket.key in memory.goals]
        if len(giving) > FEW_ENTITIES:
            continue
        for bucket in giving:
            wanted = [renewed[bucket.key]] if bucket.key in renewed else []
            if bucket.key in goals and bucket.rate.leads & full:
                wanted.append(goals[bucket.key].of(bucket.contract))
            late = bucket.in_stride(settings, now_seconds)
            wait_seconds = late.seconds_until_lowered_again(settings, now_seconds)
            if not wanted or not bucket.is_throttled or wait_seconds > settings.spread_seconds:
                continue
            goal = max(bucket.floor.value, min(wanted))
            step = late.safe_step_later(settings) if wait_seconds else late.safe_step(settings)
            value = max(goal, step)
            if value < WORTH_STRIDING * min(bucket.cap, bucket.contract):
                steps.append(replace(cut_step(late, value, goal, needy, scene), in_stride=True))
    return tuple(sorted(steps, key=lambda step: (-step.relief, step.entity.sort_key)))


# Where each entity of one tier should end: a water-fill, weighted by contracts.
#
# On each broker the largest givers come down to a common share of their contracts; over all brokers
# the lowest such value counts, because a native quota is one number. Targets say nothing about
# speed. All amounts are bytes per second.


# so that rounding asks for no byte too few; on a share of 1 TB/s it is a hundredth of a byte
_JUST_BELOW = 1 - 2.0**-46


def targets_of(tier: Sequence[Bucket], needs: Mapping[int, float]) -> dict[RateKey, float]:
    """The value that each giver of the tier should end at; entities that need not give are absent.

    `needs` has brokers that report what their clients send; see `blind_targets` for the others.
    """
    targets: dict[RateKey, float] = {}
    giving: dict[int, list[_Giver]] = {broker: [] for broker in needs}
    for bucket in tier:
        for broker, gives in bucket.giving.items():
            if broker in giving:
                giving[broker].append((gives, bucket))
    for broker, need in needs.items():
        givers = largest_givers(giving[broker], need)
        share = common_share(givers, broker, need)
        for bucket in givers:
            value = max(bucket.floor.value, share * bucket.contract)
            if value < bucket.sends(broker):
                targets[bucket.key] = min(value, targets.get(bucket.key, value))
    return targets


_Giver = tuple[float, Bucket]  # bytes/s that it can give on one broker, above 0


def largest_givers(giving: Sequence[_Giver], need: float) -> list[Bucket]:
    """Those who can give FEW times the need, at least twelve.

    Few are cut deep instead of all a little, because writes are expensive. Those that free next to
    nothing are spared, unless the others of the level cannot free enough.
    """
    givers = sorted(giving, key=itemgetter(0), reverse=True)
    large = [one for one in givers if one[0] >= SMALL_GIVER * need]
    chosen: list[Bucket] = []
    given = 0.0
    for gives, bucket in large if sum([gives for gives, _ in large]) >= need else givers:
        if given >= FEW * need and len(chosen) >= FEW_ENTITIES:
            break
        chosen.append(bucket)
        given += gives
    return chosen


def common_share(givers: Sequence[Bucket], broker: int, need: float) -> float:
    """theta: the share of their contracts at which the givers together send `need` less.

    0 where even their floors are too much.
    """
    all_of_it = [bucket.sends(broker) for bucket in givers]
    left = sum(all_of_it) - need - sum([bucket.floor.value for bucket in givers])
    if left <= 0:
        return 0.0
    # from `floor / contract` on the share raises what it sends, until that is all it wants
    turns = [(bucket.floor.value / bucket.contract, bucket.contract) for bucket in givers]
    turns += [
        (sends / bucket.contract, -bucket.contract)
        for sends, bucket in zip(all_of_it, givers, strict=True)
    ]
    turns.sort()
    slope, at = 0, 0.0
    for share, more in turns:
        if slope and left <= slope * (share - at):
            break
        left -= slope * (share - at)
        slope, at = slope + more, share
    return (at + left / slope if slope else at) * _JUST_BELOW


def blind_targets(tier: Sequence[Bucket], brokers: frozenset[int]) -> dict[RateKey, float]:
    """The floors of the whole tier that leads on brokers that report no client rates.

    It goes there one safe step after the other.
    """
    return {
        bucket.key: float(bucket.floor.value)
        for bucket in tier
        if bucket.unmeasured & brokers and bucket.cap > bucket.floor.value
    }


# Drain-then-set: two writes that reach any target with one silence, where that is safe.
#
# The first write is low enough that every client on every leading broker waits; while all wait,
# their windows empty, and a fresh reading that shows it allows the second write, to the target. A
# client that is throttled already must not be drained: its window is one burst that may leave at
# any moment (control study, 9.1 to 9.3). Rates are bytes per second. When a round may be made is
# decided in `escalation.py`.


_LONGEST_SCRAPE_SECONDS = 5.0  # at 15 s the scrapes of several brokers differ too much in phase
_FRESH_SECONDS = 10.0
_LEAST_RATIO = 5.0  # nearer targets are one or two steps of the ladder away
_LAG_SECONDS = 2.5  # from a sample to the effect of the write that it caused
_NOISE = 1.05
_SURELY = 0.9  # of the computed silence
_SPARE_SECONDS = 3.0
_GIVE_UP_SECONDS = 5.0

# window in seconds: shortest and longest safe silence of the first write, exact model (9.1)
_MEASURED_SILENCES = ((2, 10.0, 12.0), (5, 14.0, 14.0), (11, 16.0, 18.0))


def silence_seconds(scene: DirectionSnapshot) -> float | None:
    """Xmax: how long the first write silences the busiest clients; None = not measured.

    Silences were measured for some lengths of the window only.
    """
    window = scene.settings.window
    bounds = _silence_bounds(window.seconds)
    if bounds is None:
        return None
    least, most = bounds
    return min(
        most,
        max(
            least,
            (window.seconds + window.sample_seconds + scene.scrape_seconds + _LAG_SECONDS)
            / _SURELY,
        ),
    )


def _silence_bounds(window_seconds: int) -> tuple[float, float] | None:
    for (shorter, low_a, high_a), (longer, low_b, high_b) in pairwise(_MEASURED_SILENCES):
        if shorter <= window_seconds <= longer:
            share = (window_seconds - shorter) / (longer - shorter)
            return low_a + share * (low_b - low_a), high_a + share * (high_b - high_a)
    return None


def first_write(bucket: Bucket, target: int, scene: DirectionSnapshot) -> Draining | None:
    """The first write towards `target`, or None if only the ladder is safe."""
    silence = silence_seconds(scene)
    if (
        scene.settings.speed is not Speed.DRAIN
        or silence is None
        or not _may_drain(bucket, target, scene)
    ):
        return None
    window_seconds, now_seconds = scene.settings.window.seconds, scene.now_seconds
    ratio = 1 + silence / window_seconds
    estimate = _estimate(bucket, now_seconds)
    first = ceil(estimate / ratio)
    if first <= target:
        return Draining(
            target, target, now_seconds, now_seconds, window_seconds * (estimate / target - 1)
        )
    rates = [flow.bytes_per_second for flow in bucket.flows.values()]
    safe = target * ratio
    least = min((window_seconds * (rate / first - 1) for rate in rates if rate > safe), default=0.0)
    if _SURELY * least < window_seconds * (1 - safe / max(rates)) + _SPARE_SECONDS:
        return None  # the brokers are too unequal to be empty at the same time
    return Draining(target, first, now_seconds, now_seconds + 1 + _SURELY * least, silence)


def _may_drain(bucket: Bucket, target: int, scene: DirectionSnapshot) -> bool:
    flows = [bucket.flows.get(broker) for broker in bucket.rate.leads]
    fresh = all(
        flow is not None and scene.now_seconds - flow.at_seconds <= _FRESH_SECONDS for flow in flows
    )
    if (
        not flows
        or not fresh
        or bucket.rate.longest_mute_seconds is not None
        or bucket.unseen  # a drain goes by what the busiest sends
        or scene.scrape_seconds > _LONGEST_SCRAPE_SECONDS
        or bucket.exposure < _LEAST_RATIO * target
    ):
        return False
    near = BINDING * bucket.cap if bucket.rate.in_force is not None else inf
    return all(
        (flow.throttle_milliseconds or 0.0) <= BINDING_MILLISECONDS and flow.bytes_per_second < near
        for flow in bucket.flows.values()
    )


def _estimate(bucket: Bucket, now_seconds: float) -> float:
    """The most a window may hold when the write takes effect, by rate, growth and sample age."""
    rate = max(flow.bytes_per_second for flow in bucket.flows.values())
    oldest_seconds = min(flow.at_seconds for flow in bucket.flows.values())
    growth = 0.0
    if len(bucket.seen.rates) > 1:
        (earlier_seconds, earlier), (later_seconds, later) = bucket.seen.rates[-2:]
        growth = max(0.0, (later - earlier) / max(later_seconds - earlier_seconds, 1.0))
    return min(
        float(bucket.exposure),
        _NOISE * (rate + growth * (now_seconds - oldest_seconds + _LAG_SECONDS)),
    )


@dataclass(frozen=True, slots=True)
class SecondWrite:
    """Whether the drain ends now, and with which value (None = it gives up, or waits)."""

    ended: bool
    value: int | None = None
    predicted_mute_seconds: float = 0.0


def second_write(bucket: Bucket, drain: Draining, scene: DirectionSnapshot) -> SecondWrite:
    """The second write once fresh readings of all leading brokers allow it; later, the ladder."""
    silence = silence_seconds(scene)
    started_seconds = drain.started_at_seconds
    if (
        silence is None
        or bucket.cap <= drain.target
        or scene.now_seconds > started_seconds + silence + _GIVE_UP_SECONDS
    ):
        return SecondWrite(ended=True)
    flows = [bucket.flows.get(broker) for broker in bucket.rate.leads]
    written = bucket.rate.in_force == drain.first
    if not written or any(flow is None or flow.at_seconds <= started_seconds + 1 for flow in flows):
        return SecondWrite(ended=False)
    window = scene.settings.window
    rate, allowed_seconds = max(flow.bytes_per_second for flow in bucket.flows.values()), silence
    # then a client may be awake: its bucket may be full at the first value
    if scene.now_seconds + 1 > drain.silent_until_seconds:
        rate, allowed_seconds = (
            max(rate, float(bucket.cap)),
            float((window.samples - 1) * window.sample_seconds),
        )
    mute_seconds = max(0.0, window.seconds * (rate / drain.target - 1))
    return (
        SecondWrite(True, drain.target, mute_seconds)
        if mute_seconds <= allowed_seconds
        else SecondWrite(ended=False)
    )
