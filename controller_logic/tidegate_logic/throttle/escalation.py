"""The state machine of one direction: may it cut or raise now, how long it holds, its phase.

NORMAL -> CUTTING while a broker is over its limit; EXHAUSTED where every tier gives what it can and
it is not enough; UNHELPABLE where cuts would not help; after a hold without any change RELAXING,
until nothing is throttled. A raise that was followed by too much load doubles the hold, and until
that is forgiven raises at most double a quota. Nothing usable at all: HELD. Who gives how much is
decided in `cuts.py`, who gets it back in `raises.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate_logic.model import Direction, Level, RateKey
from tidegate_logic.throttle.attribution import DirectionSnapshot, Needs, needs_of
from tidegate_logic.throttle.buckets import Bucket, floor_of
from tidegate_logic.throttle.cuts import (
    CutPlan,
    Outcome,
    SecondWrite,
    cut_step,
    plan_cuts,
    second_write,
    strides,
)
from tidegate_logic.throttle.decision import LimitedBy, Phase, StepKind, ThrottleStep
from tidegate_logic.throttle.input import (
    LEAP,
    RAMP,
    RELEASED,
    ActiveThrottle,
    DirectionMemory,
    Draining,
    ManagedRate,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from tidegate_logic.throttle.raises import RaisePlan, plan_raises


def escalate(
    scene: DirectionSnapshot, was: DirectionMemory, drains: Mapping[RateKey, Draining]
) -> Outcome:
    """One round of one direction. `drains` are those of this direction that are under way."""
    hold_seconds = _within(was.hold_seconds, scene.settings)
    was = replace(was, hold_seconds=hold_seconds, rounds=was.rounds + 1)
    if scene.all_blind and not scene.unknown_for_long:
        return Outcome(Phase.HELD, Needs(), CutPlan(), was, drains=drains)
    if scene.all_blind:
        # the second write of a drain lowers, and nothing may be lowered on unknown load
        drains = {}
    needs = needs_of(scene)
    memory = _backed_off(was, scene, is_over=bool(needs.over))
    ended, going = _second_writes(scene, drains)
    plan = _plan(scene, needs.shown_since(memory.cut_at_seconds, scene), memory)
    cuts = () if going else _cuts(scene, plan, needs, memory)
    cuts = (*ended, *(step for step in cuts if step.key not in {one.key for one in ended}))
    raises = _raises(scene, needs, memory, cuts)
    begun = {
        key: drain for key, drain in plan.drains.items() if any(cut.key == key for cut in cuts)
    }
    # the end of a drain belongs to the round that began it, so it starts no second dwell
    after = _after(memory, scene, plan, cuts=cuts[len(ended) :], raises=bool(raises.steps))
    phase = _phase(scene, needs, plan, after, moving=bool(cuts) or plan.moving)
    return Outcome(phase, needs, plan, after, (*cuts, *raises.steps), {**going, **begun}, raises)


def _plan(scene: DirectionSnapshot, needs: Needs, memory: DirectionMemory) -> CutPlan:
    """What the next round of cuts does; soon after a stride, only where no stride goes.

    Nothing to do there: the plan of all brokers, which waits.
    """
    if not _rests(scene, memory):
        return plan_cuts(scene, needs)
    strode = {
        broker
        for tier in scene.tiers.values()
        for bucket in tier
        if bucket.key in memory.goals
        for broker in bucket.flows.keys() | bucket.unmeasured
    }
    elsewhere = {broker: need for broker, need in needs.over.items() if broker not in strode}
    apart = replace(plan_cuts(scene, Needs(elsewhere)), is_apart=True)
    return apart if apart.steps else plan_cuts(scene, needs)


def _rests(scene: DirectionSnapshot, memory: DirectionMemory) -> bool:
    """Whether readings may still show mutes of strides."""
    return not _is_past(memory.strode_at_seconds, scene.rests_seconds(), scene)


def _cuts(
    scene: DirectionSnapshot, plan: CutPlan, needs: Needs, memory: DirectionMemory
) -> tuple[ThrottleStep, ...]:
    """A round where one is due, else strides towards the goals of the last ones.

    No stride where a round is due sooner than the stride after it, and would lower others, too:
    readings of each stride would put them off by another 14 s. L1, which takes no strides, counts
    by today's `needs` too, before readings show the last lowering.
    """
    settings = scene.settings
    may_cut = _is_past(memory.cut_at_seconds, settings.dwell_seconds, scene)
    if may_cut and plan.steps and (plan.is_apart or not _rests(scene, memory)):
        return plan.steps
    may_stride = all(
        _is_past(at, settings.stride_seconds, scene)
        for at in (memory.cut_at_seconds, memory.strode_at_seconds)
    )
    strode = strides(scene, memory) if may_stride else ()
    is_due_soon = _is_past(
        memory.cut_at_seconds, settings.dwell_seconds - settings.stride_seconds, scene
    )
    if not strode or not is_due_soon or not scene.rests_seconds():
        return strode
    others = {step.key for step in plan.steps} - {step.key for step in strode}
    asks_l1 = any(step.bucket.level is Level.L1 for step in plan_cuts(scene, needs).steps)
    return () if others or asks_l1 else strode


def _within(hold_seconds: float | None, settings: ThrottleSettings) -> float:
    """The hold, within what the policy says now."""
    if hold_seconds is None:
        return settings.hold_seconds
    return min(max(hold_seconds, settings.hold_seconds), settings.longest_hold_seconds)


def _is_past(since_seconds: float | None, seconds: float, scene: DirectionSnapshot) -> bool:
    """Whether so many seconds went by; a moment in the far future came from a wrong clock.

    It counts as past, too.
    """
    return (
        since_seconds is None
        or scene.now_seconds - since_seconds >= seconds
        or since_seconds > scene.now_seconds + seconds
    )


def _backed_off(
    was: DirectionMemory, scene: DirectionSnapshot, *, is_over: bool
) -> DirectionMemory:
    """Over the limit soon after a raise: hold twice as long. Quiet for four holds: half as long.

    At most doubled once per raise.
    """
    settings, now_seconds = scene.settings, scene.now_seconds
    hold_seconds = was.hold_seconds or settings.hold_seconds
    regretted = was.raised_at_seconds is not None and not _is_past(
        was.raised_at_seconds, settings.raise_backoff_seconds, scene
    )
    if (
        is_over
        and regretted
        and _is_past(was.failed_at_seconds, settings.raise_backoff_seconds, scene)
    ):
        return replace(
            was,
            hold_seconds=min(2 * hold_seconds, settings.longest_hold_seconds),
            failed_at_seconds=now_seconds,
        )
    quiet = all(
        _is_past(at, 4 * hold_seconds, scene) for at in (was.failed_at_seconds, was.cut_at_seconds)
    )
    if quiet and hold_seconds > settings.hold_seconds:
        return replace(
            was,
            hold_seconds=max(hold_seconds / 2, settings.hold_seconds),
            failed_at_seconds=now_seconds,
        )
    return was


def _second_writes(
    scene: DirectionSnapshot, drains: Mapping[RateKey, Draining]
) -> tuple[tuple[ThrottleStep, ...], dict[RateKey, Draining]]:
    """The drains that end now with a write, and those that go on.

    The others gave up, and the ladder goes on from where they stand.
    """
    steps: list[ThrottleStep] = []
    going: dict[RateKey, Draining] = {}
    for bucket in (
        bucket for tier in scene.tiers.values() for bucket in tier if bucket.key in drains
    ):
        drain = drains[bucket.key]
        second = second_write(bucket, drain, scene)
        if not second.ended:
            going[bucket.key] = drain
        elif second.value is not None:
            steps.append(_ending(bucket, drain, second, scene))
    return tuple(steps), going


def _ending(
    bucket: Bucket, drain: Draining, second: SecondWrite, scene: DirectionSnapshot
) -> ThrottleStep:
    step = cut_step(
        bucket, max(drain.target, bucket.floor.value), drain.target, frozenset(scene.nics), scene
    )
    return replace(step, draining=True, predicted_mute_seconds=second.predicted_mute_seconds)


def _raises(
    scene: DirectionSnapshot, needs: Needs, memory: DirectionMemory, cuts: tuple[ThrottleStep, ...]
) -> RaisePlan:
    """New raises, only with no broker in need and a whole remembered hold since the last change.

    Earlier ones that are not in force are reviewed in any case; with a broker in need all of them
    are withdrawn.
    """
    if needs.over:
        return RaisePlan(reduced={bucket.key: bucket.cap for bucket in scene.deciding})
    hold_seconds = memory.hold_seconds or scene.settings.hold_seconds
    calm = all(
        _is_past(at, hold_seconds, scene)
        for at in (
            memory.cut_at_seconds,
            memory.strode_at_seconds,
            memory.raised_at_seconds,
            memory.since_seconds,
        )
    )
    regretted = hold_seconds > scene.settings.hold_seconds
    # what producers send more is replicated, too, and the headroom does not show to whom
    leaps = not regretted and scene.direction is Direction.EGRESS
    return plan_raises(
        scene, {cut.key for cut in cuts}, most=LEAP if leaps else RAMP, may_begin=calm
    )


def _after(
    memory: DirectionMemory,
    scene: DirectionSnapshot,
    plan: CutPlan,
    *,
    cuts: Sequence[ThrottleStep],
    raises: bool,
) -> DirectionMemory:
    now_seconds = scene.now_seconds
    if raises:
        memory = replace(memory, raised_at_seconds=now_seconds, goals={})
    if any(step.in_stride for step in cuts):
        return replace(memory, strode_at_seconds=now_seconds)
    if not cuts:
        return memory
    goals = {
        bucket.key: ActiveThrottle(plan.targets[bucket.key], bucket.contract, now_seconds)
        for tier in scene.tiers.values()
        for bucket in tier
        if bucket.key in plan.targets
    }
    kept = memory.goals_at(now_seconds, scene.settings) if plan.is_apart else {}
    return replace(memory, cut_at_seconds=now_seconds, goals={**kept, **goals})


def _phase(
    scene: DirectionSnapshot, needs: Needs, plan: CutPlan, memory: DirectionMemory, *, moving: bool
) -> Phase:
    if needs.over:
        return Phase.EXHAUSTED if plan.exhausted and not moving else Phase.CUTTING
    if needs.spent:
        return Phase.EXHAUSTED
    if needs.helpless:
        return Phase.UNHELPABLE
    if not scene.by_load and not moving:
        return Phase.NORMAL
    held = memory.hold_seconds or scene.settings.hold_seconds
    return Phase.RELAXING if _is_past(memory.cut_at_seconds, held, scene) else Phase.CUTTING


# What was decided earlier: the same fraction, on today's leaders, as far as it is safe.
#
# A decision that was never put in force (no budget, Observe mode, a write that failed) is dropped
# once its reason is gone. Anything else in force than what was decided is drift, and what was
# decided stays wanted.


def settle(
    scene: DirectionSnapshot, outcome: Outcome
) -> tuple[dict[RateKey, ThrottleStep], dict[RateKey, ActiveThrottle]]:
    """Every step of this direction, old and new, and what is held from now on."""
    holds = {
        step.key: ActiveThrottle(
            step.value, step.contract, scene.now_seconds, in_stride=step.in_stride
        )
        for step in outcome.steps
    }
    steps = {step.key: _when_due(step, scene) for step in outcome.steps}
    for bucket in (
        bucket
        for tier in scene.tiers.values()
        for bucket in tier
        if bucket.held is not None and bucket.key not in steps
    ):
        held = _kept(bucket, scene, outcome)
        if held is not None:
            holds[bucket.key] = held
            steps[bucket.key] = _standing(bucket, held, scene, outcome)
    return steps, holds


def _when_due(step: ThrottleStep, scene: DirectionSnapshot) -> ThrottleStep:
    """Keep what is in force where a cut comes too soon after the last one of the same rate."""
    wait_seconds = (
        0.0
        if step.draining
        else step.bucket.seconds_until_lowered_again(scene.settings, scene.now_seconds)
    )
    if not step.lowers or not wait_seconds:
        return step
    return replace(
        step,
        value=step.bucket.cap,
        limited_by=LimitedBy.MAX_MUTE,
        predicted_mute_seconds=0.0,
        due_in_seconds=wait_seconds,
    )


def _kept(bucket: Bucket, scene: DirectionSnapshot, outcome: Outcome) -> ActiveThrottle | None:
    held, in_force = bucket.held, bucket.rate.in_force
    reduced = outcome.raises.reduced.get(bucket.key)
    if held is not None and reduced is not None and reduced > bucket.cap:
        return replace(held, value=reduced, contract=bucket.contract)
    if (
        held is None
        or held.applied
        or in_force is None
        or not _is_groundless(bucket, held, in_force, scene, outcome)
    ):
        return held
    if in_force >= RELEASED * bucket.contract:
        return None
    return ActiveThrottle(
        max(in_force, bucket.floor.value), bucket.contract, scene.now_seconds, applied=True
    )


def _is_groundless(
    bucket: Bucket, held: ActiveThrottle, in_force: int, scene: DirectionSnapshot, outcome: Outcome
) -> bool:
    """Whether a decision that is not in force lost its reason.

    A cut that is no longer needed, or a raise that was withdrawn.
    """
    if outcome.phase is Phase.HELD:
        return False
    if bucket.wanted < in_force:
        waited = scene.now_seconds - held.decided_at_seconds >= scene.settings.dwell_seconds
        return waited and not outcome.needs.all
    return bucket.key in outcome.raises.reduced


def _standing(
    bucket: Bucket, held: ActiveThrottle, scene: DirectionSnapshot, outcome: Outcome
) -> ThrottleStep:
    if held.in_stride and not held.applied:
        # its turn among the writes of its round has not come yet
        bucket = bucket.in_stride(scene.settings, scene.now_seconds)
    wanted = min(bucket.contract, max(bucket.floor.value, held.of(bucket.contract)))
    value = _safe_now(bucket, held, wanted, scene, drains=outcome.drains)
    limited = LimitedBy.MAX_MUTE if value > wanted else LimitedBy.NOTHING
    kind = (
        StepKind.RELEASE
        if value == bucket.contract and held.value >= held.contract
        else StepKind.HOLD
    )
    mute_seconds = bucket.predicted_mute_seconds(value, scene.settings)
    wait_seconds = (
        bucket.seconds_until_lowered_again(scene.settings, scene.now_seconds)
        if value > wanted
        else 0.0
    )
    return ThrottleStep(
        bucket,
        kind,
        value,
        wanted,
        limited,
        predicted_mute_seconds=mute_seconds,
        due_in_seconds=wait_seconds if wait_seconds else None,
    )


def _may_rise(bucket: Bucket, scene: DirectionSnapshot) -> bool:
    """Whether nothing that is unknown holds up a raise that was decided before."""
    return not bucket.rate.leads & scene.forbids_raises and (
        bool(scene.unknown_for_long) or not scene.all_blind
    )


def _safe_now(
    bucket: Bucket,
    held: ActiveThrottle,
    wanted: int,
    scene: DirectionSnapshot,
    *,
    drains: Mapping[RateKey, object],
) -> int:
    """`wanted`, or as far as it may go now.

    Without readings a decision that is not in force waits as it is.
    """
    in_force = bucket.rate.in_force
    if in_force is None or wanted == in_force or bucket.key in drains:
        return wanted
    if wanted > in_force and (held.applied or _may_rise(bucket, scene)):
        return wanted
    if not held.applied and (bucket.rate.leads & scene.blind or scene.all_blind):
        return in_force
    if bucket.seconds_until_lowered_again(scene.settings, scene.now_seconds):
        return in_force
    return min(in_force, max(wanted, bucket.safe_step(scene.settings)))


# What the throttle holds, and when it last cut and raised, at the start of a round.
#
# A restarted operator finds its fractions again in what is in force (or in what the ledger records
# of it), and the times of the last cut and raise in the ledger's times of writing; so losing the
# memory neither releases nor repeats anything.


def holds_of(given: ThrottleInput, memory: ThrottleMemory) -> dict[RateKey, ActiveThrottle]:
    """What is held now: as remembered, or for a rate that was never seen before, as found.

    What is gone or exempt is let go.
    """
    holds: dict[RateKey, ActiveThrottle] = {}
    for rate in given.rates:
        if not rate.throttleable:
            continue
        known = memory.held.get(rate.key)
        held = _seen_applied(known, rate) if known is not None else None
        if known is None and rate.key not in memory.seen:
            held = _found(rate, given)
        if held is not None:
            holds[rate.key] = held
    return holds


def _seen_applied(held: ActiveThrottle, rate: ManagedRate) -> ActiveThrottle | None:
    """Note that it is in force; a release that is in force is over."""
    if held.value >= held.contract:
        released = rate.in_force is None or rate.in_force >= rate.contract
        return None if released else held
    return (
        replace(held, applied=True)
        if not held.applied and rate.in_force == held.of(rate.contract)
        else held
    )


def _found(rate: ManagedRate, given: ThrottleInput) -> ActiveThrottle | None:
    if rate.in_force is None:
        return None
    floor = floor_of(rate, given.settings.floors).value
    if rate.recorded_fraction is not None:
        value = max(floor, round(min(1.0, max(0.0, rate.recorded_fraction)) * rate.contract))
        return (
            ActiveThrottle(value, rate.contract, given.now_seconds, applied=True)
            if value < rate.contract
            else None
        )
    if rate.in_force >= RELEASED * rate.contract:
        return None
    return ActiveThrottle(max(floor, rate.in_force), rate.contract, given.now_seconds, applied=True)


def direction_memory(
    given: ThrottleInput,
    memory: ThrottleMemory,
    direction: Direction,
    holds: Mapping[RateKey, ActiveThrottle],
) -> DirectionMemory:
    """As remembered; without memory, by when the ledger shows rates throttled and raised.

    Also one that is not held now: its leaders went, and its contract is below what it was cut to.
    """
    known = memory.directions.get(direction)
    if known is not None:
        return _with_late_raises(known, given, memory, direction)
    parts = direction.parts
    mine = [rate for rate in given.rates if rate.throttleable and rate.direction in parts]
    throttled = [rate for rate in mine if rate.key in holds or _may_be_throttled(rate)]
    return DirectionMemory(
        _latest(throttled, lambda _: True),
        _latest(throttled, _was_raise),
        since_seconds=given.now_seconds if any(rate.key in holds for rate in mine) else None,
    )


def _with_late_raises(
    known: DirectionMemory, given: ThrottleInput, memory: ThrottleMemory, direction: Direction
) -> DirectionMemory:
    """A raise that had to wait counts from when it was written: its load comes from then on."""
    waiting = {
        key: held
        for key, held in memory.held.items()
        if key[1] in direction.parts and not held.applied
    }
    if not waiting:
        return known
    written = [
        rate.last_change.at_seconds
        for rate in given.rates
        if rate.key in waiting
        and rate.last_change is not None
        and _was_raise(rate)
        and rate.last_change.at_seconds
        > waiting[rate.key].decided_at_seconds + given.settings.nic_mean_seconds
    ]
    if not written:
        return known
    return replace(known, raised_at_seconds=max([*written, known.raised_at_seconds or 0.0]))


def _may_be_throttled(rate: ManagedRate) -> bool:
    """Whether the ledger says so, or does not say that it is not."""
    return rate.recorded_fraction is None or rate.recorded_fraction < 1.0


def _latest(rates: Iterable[ManagedRate], is_meant: Callable[[ManagedRate], bool]) -> float | None:
    return max(
        (
            rate.last_change.at_seconds
            for rate in rates
            if rate.last_change is not None and is_meant(rate)
        ),
        default=None,
    )


def _was_raise(rate: ManagedRate) -> bool:
    change = rate.last_change
    return (
        change is not None
        and rate.in_force is not None
        and change.previous is not None
        and change.previous < rate.in_force
    )
