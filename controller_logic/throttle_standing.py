"""What is wanted of a rate that was decided on earlier: the same fraction, on today's leaders, as far as it is safe.

A decision that was never put in force (no budget, Observe mode, a write that failed) is dropped once its reason is gone. Anything else in
force than what was decided is drift, and what was decided stays wanted. New decisions are made in `escalation.py`.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller_logic.scene import Scene
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.decision import LimitedBy, Phase, StepKind, ThrottleStep
from controller_logic.throttle.escalation import Outcome
from controller_logic.throttle.input import Held, RateKey
from controller_logic.throttle.settings import RELEASED


def settle(scene: Scene, outcome: Outcome) -> tuple[dict[RateKey, ThrottleStep], dict[RateKey, Held]]:
    """Every step of this direction, old and new, and what is held from now on."""
    holds = {step.key: Held(step.value, step.contract, scene.now_seconds) for step in outcome.steps}
    steps = {step.key: _when_due(step, scene) for step in outcome.steps}
    for bucket in (bucket for tier in scene.tiers.values() for bucket in tier if bucket.held is not None and bucket.key not in steps):
        held = _kept(bucket, scene, outcome)
        if held is not None:
            holds[bucket.key] = held
            steps[bucket.key] = _standing(bucket, held, scene, outcome)
    return steps, holds


def _when_due(step: ThrottleStep, scene: Scene) -> ThrottleStep:
    """A cut that comes too soon after the last one of the same rate stays what is in force until its moment."""
    wait_seconds = 0.0 if step.draining else step.bucket.seconds_until_lowered_again(scene.settings, scene.now_seconds)
    if not step.lowers or not wait_seconds:
        return step
    return replace(step, value=step.bucket.cap, limited_by=LimitedBy.MAX_MUTE, predicted_mute_seconds=0.0, due_in_seconds=wait_seconds)


def _kept(bucket: Bucket, scene: Scene, outcome: Outcome) -> Held | None:
    held, in_force = bucket.held, bucket.rate.in_force
    if held is None or held.applied or in_force is None or not _is_groundless(bucket, held, in_force, scene, outcome):
        return held
    if in_force >= RELEASED * bucket.contract:
        return None
    return Held(max(in_force, bucket.floor.value), bucket.contract, scene.now_seconds, applied=True)


def _is_groundless(bucket: Bucket, held: Held, in_force: int, scene: Scene, outcome: Outcome) -> bool:
    """Whether a decision that is not in force lost its reason: a cut that nobody needs any more, a raise while a broker is over."""
    if outcome.phase is Phase.HELD:
        return False
    if bucket.wanted < in_force:
        waited = scene.now_seconds - held.decided_at_seconds >= scene.settings.dwell_seconds
        return waited and not outcome.needs.all
    return bool(outcome.needs.over)


def _standing(bucket: Bucket, held: Held, scene: Scene, outcome: Outcome) -> ThrottleStep:
    wanted = min(bucket.contract, max(bucket.floor.value, held.of(bucket.contract)))
    value = _safe_now(bucket, held, wanted, scene, drains=outcome.drains)
    limited = LimitedBy.MAX_MUTE if value > wanted else LimitedBy.NOTHING
    kind = StepKind.RELEASE if value == bucket.contract and held.value >= held.contract else StepKind.HOLD
    mute_seconds = bucket.predicted_mute_seconds(value, scene.settings)
    wait_seconds = bucket.seconds_until_lowered_again(scene.settings, scene.now_seconds) if value > wanted else 0.0
    return ThrottleStep(
        bucket, kind, value, wanted, limited, predicted_mute_seconds=mute_seconds, due_in_seconds=wait_seconds if wait_seconds else None
    )


def _safe_now(bucket: Bucket, held: Held, wanted: int, scene: Scene, *, drains: Mapping[RateKey, object]) -> int:
    """`wanted`, or as far as it may go now. Without readings a decision that is not in force waits as it is."""
    in_force = bucket.rate.in_force
    if in_force is None or wanted == in_force or bucket.key in drains:
        return wanted
    if not held.applied and (bucket.rate.leads & scene.blind or scene.all_blind):
        return in_force
    if wanted > in_force:
        return wanted
    if bucket.was_lowered_within(scene.settings.dwell_seconds, scene.now_seconds):
        return in_force
    return min(in_force, max(wanted, bucket.safe_step(scene.settings)))
