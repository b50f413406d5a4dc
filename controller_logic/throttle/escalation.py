"""The state machine of one direction: may it cut now, may it raise now, how long does it hold, and what is it called.

NORMAL -> CUTTING while a broker is over its limit; EXHAUSTED where every tier gives what it can and it is not enough; UNHELPABLE where cuts
would not help; after a hold without any change RELAXING, until nothing is throttled. A raise that was followed by too much load doubles the
hold. Nothing usable at all: HELD. Who gives how much is decided in `throttle_cuts.py`, who gets it back in `throttle_raises.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller_logic.drain import SecondWrite, second_write
from controller_logic.scene import Scene
from controller_logic.throttle.attribution import Needs, needs_of
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.cuts import CutPlan, cut_step, plan_cuts
from controller_logic.throttle.decision import Phase, ThrottleStep
from controller_logic.throttle.input import DirectionMemory, Draining, RateKey
from controller_logic.throttle.raises import plan_raises
from controller_logic.throttle.settings import ThrottleSettings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one direction does now. `steps` are new cuts, releases and raises, in this order; `plan` also has those that must wait."""

    phase: Phase
    needs: Needs
    plan: CutPlan
    memory: DirectionMemory
    steps: tuple[ThrottleStep, ...] = ()
    drains: Mapping[RateKey, Draining] = field(default_factory=dict)

    @property
    def hold_seconds(self) -> float:
        return self.memory.hold_seconds or 0.0


def escalate(scene: Scene, was: DirectionMemory, drains: Mapping[RateKey, Draining]) -> Outcome:
    """One round of one direction. `drains` are those of this direction that are under way."""
    hold_seconds = _within(was.hold_seconds, scene.settings)
    was = replace(was, hold_seconds=hold_seconds, rounds=was.rounds + 1)
    if scene.all_blind:
        return Outcome(Phase.HELD, Needs(), CutPlan(), was, drains=drains)
    needs = needs_of(scene)
    memory = _backed_off(was, scene, is_over=bool(needs.over))
    ended, going = _second_writes(scene, drains)
    plan = plan_cuts(scene, needs.shown_since(memory.cut_at_seconds, scene))
    cuts = plan.steps if not going and _is_past(memory.cut_at_seconds, scene.settings.dwell_seconds, scene) else ()
    cuts = (*ended, *(step for step in cuts if step.key not in {one.key for one in ended}))
    raises = _raises(scene, needs, memory, cuts)
    begun = {key: drain for key, drain in plan.drains.items() if any(cut.key == key for cut in cuts)}
    # the end of a drain belongs to the round that began it: the next round waits for no second dwell
    after = _after(memory, scene, cuts=len(cuts) > len(ended), raises=bool(raises))
    phase = _phase(scene, needs, plan, after, moving=bool(cuts) or plan.moving)
    return Outcome(phase, needs, plan, after, (*cuts, *raises), {**going, **begun})


def _within(hold_seconds: float | None, settings: ThrottleSettings) -> float:
    """The hold, within what the policy says now."""
    if hold_seconds is None:
        return settings.hold_seconds
    return min(max(hold_seconds, settings.hold_seconds), settings.longest_hold_seconds)


def _is_past(since_seconds: float | None, seconds: float, scene: Scene) -> bool:
    """Whether so many seconds went by. A moment in the future came from a wrong clock and counts as now at the latest."""
    return since_seconds is None or scene.now_seconds - since_seconds >= seconds or since_seconds > scene.now_seconds + seconds


def _backed_off(was: DirectionMemory, scene: Scene, *, is_over: bool) -> DirectionMemory:
    """Over the limit soon after a raise: hold twice as long, at most once per raise. Quiet for four holds: half as long again."""
    settings, now_seconds = scene.settings, scene.now_seconds
    hold_seconds = was.hold_seconds or settings.hold_seconds
    regretted = was.raised_at_seconds is not None and not _is_past(was.raised_at_seconds, settings.regret_seconds, scene)
    if is_over and regretted and _is_past(was.failed_at_seconds, settings.regret_seconds, scene):
        return replace(was, hold_seconds=min(2 * hold_seconds, settings.longest_hold_seconds), failed_at_seconds=now_seconds)
    quiet = all(_is_past(at, 4 * hold_seconds, scene) for at in (was.failed_at_seconds, was.cut_at_seconds))
    if quiet and hold_seconds > settings.hold_seconds:
        return replace(was, hold_seconds=max(hold_seconds / 2, settings.hold_seconds), failed_at_seconds=now_seconds)
    return was


def _second_writes(scene: Scene, drains: Mapping[RateKey, Draining]) -> tuple[tuple[ThrottleStep, ...], dict[RateKey, Draining]]:
    """The drains that end now with a write, and those that go on; the others gave up, and the ladder goes on from where they stand."""
    steps: list[ThrottleStep] = []
    going: dict[RateKey, Draining] = {}
    for bucket in (bucket for tier in scene.tiers.values() for bucket in tier if bucket.key in drains):
        drain = drains[bucket.key]
        second = second_write(bucket, drain, scene)
        if not second.ended:
            going[bucket.key] = drain
        elif second.value is not None:
            steps.append(_ending(bucket, drain, second, scene))
    return tuple(steps), going


def _ending(bucket: Bucket, drain: Draining, second: SecondWrite, scene: Scene) -> ThrottleStep:
    step = cut_step(bucket, max(drain.target, bucket.floor.value), drain.target, frozenset(scene.cards), scene)
    return replace(step, draining=True, predicted_mute_seconds=second.predicted_mute_seconds)


def _raises(scene: Scene, needs: Needs, memory: DirectionMemory, cuts: tuple[ThrottleStep, ...]) -> tuple[ThrottleStep, ...]:
    """Only with no broker in need and a hold since the last change of this direction, all of it remembered."""
    hold_seconds = memory.hold_seconds or scene.settings.hold_seconds
    calm = all(_is_past(at, hold_seconds, scene) for at in (memory.cut_at_seconds, memory.raised_at_seconds, memory.since_seconds))
    return plan_raises(scene, {cut.key for cut in cuts}) if calm and not needs.over else ()


def _after(memory: DirectionMemory, scene: Scene, *, cuts: bool, raises: bool) -> DirectionMemory:
    return replace(
        memory,
        cut_at_seconds=scene.now_seconds if cuts else memory.cut_at_seconds,
        raised_at_seconds=scene.now_seconds if raises else memory.raised_at_seconds,
    )


def _phase(scene: Scene, needs: Needs, plan: CutPlan, memory: DirectionMemory, *, moving: bool) -> Phase:
    if needs.over:
        return Phase.EXHAUSTED if plan.exhausted and not moving else Phase.CUTTING
    if needs.spent:
        return Phase.EXHAUSTED
    if needs.helpless:
        return Phase.UNHELPABLE
    if not scene.throttled and not moving:
        return Phase.NORMAL
    held = memory.hold_seconds or scene.settings.hold_seconds
    return Phase.RELAXING if _is_past(memory.cut_at_seconds, held, scene) else Phase.CUTTING
