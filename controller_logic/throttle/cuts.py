"""The cuts of one round: which tier is asked on which broker, and how far each entity goes now on its way to its target.

L3 first; the next tier only for what the lower ones cannot give even where they should end; L1 is spared while the lower tiers are on their
way down, see `_spares_l1`; L0 never. Every step passes the mute guard. When a round may be made is decided in `escalation.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from controller_logic.drain import first_write
from controller_logic.model import Level
from controller_logic.scene import CUT_ORDER, Scene
from controller_logic.throttle.attribution import Need, Needs, effect_of
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.decision import LimitedBy, StepKind, ThrottleStep
from controller_logic.throttle.input import Draining, RateKey
from controller_logic.throttle.settings import MATTERS, SEVERE, WORTH_CUTTING
from controller_logic.throttle_targets import blind_targets, targets_of


@dataclass(frozen=True, slots=True)
class CutPlan:
    """`steps` are the cuts that are worth a write; `levels` were asked; `targets` is where each giver should end.

    `exhausted` says which brokers would stay over their limits with everybody at the target, and by how much (bytes/s); `drains` are the
    drains that the steps begin; `moving` = somebody is still on the way to the target, now or after its next step.
    """

    steps: tuple[ThrottleStep, ...] = ()
    levels: tuple[Level, ...] = ()
    targets: Mapping[RateKey, int] = field(default_factory=dict)
    exhausted: Mapping[int, float] = field(default_factory=dict)
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)
    moving: bool = False


def plan_cuts(scene: Scene, needs: Needs) -> CutPlan:
    """The round as it should be made now, largest relief first."""
    planner = _Planner(scene, needs)
    for level in CUT_ORDER:
        planner.ask(level)
    return planner.plan()


class _Planner:
    """Asks tier after tier. What an entity will give at its target counts at once, so that the next tier gives only the rest."""

    def __init__(self, scene: Scene, needs: Needs) -> None:
        self._scene = scene
        self._needs: dict[int, Need] = needs.all
        self._over = needs.over
        self._left = {broker: need.amount for broker, need in self._needs.items()}
        self._coming: dict[int, float] = {}  # what lower tiers have still to give after this round's steps
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
        for broker in blind:  # nobody knows what this tier will give, so nobody else is asked in this round
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
        """While the lower tiers have more to give than L1 would; and as long as they give anything, where the overload is not severe."""
        severe = self._scene.cards[broker].above(SEVERE) > 0
        return self._coming.get(broker, 0.0) > (self._left[broker] if severe else 0.0)

    def _give(self, bucket: Bucket, target: float, asked: frozenset[int]) -> None:
        """Count what the bucket gives in the end, and step if that is worth a write now."""
        goal = max(bucket.floor.value, ceil(target))
        self._targets[bucket.key] = goal
        self._moving = self._moving or goal < WORTH_CUTTING * min(bucket.cap, bucket.contract)
        for broker in asked:
            self._left[broker] -= max(0.0, bucket.sends(broker) - target)
        step = self._step(bucket, goal, asked)
        if step is not None:
            self._steps.append(step)
        if step is not None and step.draining:
            return  # its second write comes before the next round does: there is nothing to wait for
        value = bucket.cap if step is None else step.value
        for broker in asked:
            self._coming[broker] = self._coming.get(broker, 0.0) + max(0.0, min(bucket.sends(broker), value) - goal)

    def _step(self, bucket: Bucket, goal: int, asked: frozenset[int]) -> ThrottleStep | None:
        """The step now, also where it does not bite yet: the next one then starts lower.

        Whoever was lowered late in the last round, because writes are spread, is decided on with the others and waits for its moment.
        """
        settings = self._scene.settings
        wait_seconds = bucket.seconds_until_lowered_again(settings, self._scene.now_seconds)
        if wait_seconds > settings.spread_seconds:
            return None
        value = max(goal, bucket.safe_step_later(settings) if wait_seconds else bucket.safe_step(settings))
        drain = first_write(bucket, goal, self._scene) if value > goal and not wait_seconds else None
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
        return CutPlan(steps, tuple(self._levels), self._targets, self._exhausted(), self._drains, self._moving)

    def _exhausted(self) -> dict[int, float]:
        """Where even the targets leave a broker over its limit, although nobody was spared for later."""
        spare = 1 - self._scene.settings.aim_percent / 100
        return {
            broker: self._left[broker]
            for broker in self._over
            if broker not in self._waited and self._scene.matters(broker, self._left[broker], spare)
        }


def cut_step(bucket: Bucket, value: int, goal: int, needy: frozenset[int], scene: Scene) -> ThrottleStep:
    """A cut in full words, with the mute that a write of the ladder may cause."""
    effect = effect_of(bucket, value, needy)
    limited = LimitedBy.MAX_MUTE if value > goal else LimitedBy.FLOOR if value == bucket.floor.value else LimitedBy.TARGET
    mute_seconds = bucket.predicted_mute_seconds(value, scene.settings)
    brokers = tuple(sorted(broker for broker in needy if bucket.gives(broker) > 0))
    return ThrottleStep(bucket, StepKind.CUT, value, goal, limited, brokers, effect.relief, effect.collateral, effect.score, mute_seconds)
