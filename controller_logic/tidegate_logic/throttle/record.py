"""The record of one direction's round, for status, audit and people. It decides nothing."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite

from tidegate_logic.model import Level, RateKey
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.attribution import CUT_ORDER, DirectionSnapshot, Need
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.cuts import Outcome
from tidegate_logic.throttle.decision import (
    BrokerView,
    Finding,
    Phase,
    Round,
    SkippedEntity,
    StepKind,
    ThrottleStep,
)
from tidegate_logic.throttle.input import ManagedRate
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.words import rate_words

# why an entity was left alone
NEVER_THROTTLED = "L0 is never throttled"
CONTENDED = "another writer keeps changing its quota, so nothing is expected of it"
NO_THROTTLED_RATE = "it is exempt, or its tier has no throttled rate"
NOTHING_TO_GIVE = "it sends no more than its floor on the brokers over their limits"
NOT_DUE = "its next step is not due yet, or not worth a write"
OTHERS_GIVE_ENOUGH = "others give enough"
LOWER_TIERS_FIRST = "lower tiers give first"

_POOR_SCORE = 0.3  # below it leaders are in the wrong places: no quota fixes that
_NAMED = 20  # entities that were left alone are named for understanding, not counted


def round_of(
    scene: DirectionSnapshot,
    outcome: Outcome,
    steps: Mapping[RateKey, ThrottleStep],
    rates: Iterable[ManagedRate],
    *,
    by_newest: bool,
) -> Round:
    """The record. `rates` are all managed rates, those that are never throttled too."""
    return Round(
        at_seconds=scene.now_seconds,
        direction=scene.direction,
        number=outcome.memory.rounds,
        phase=outcome.phase,
        hold_seconds=outcome.memory.hold_seconds or 0.0,
        brokers=_views(scene, outcome),
        tiers_planned=outcome.plan.levels,
        steps=tuple(steps.values()),
        not_done=_not_done(scene, outcome, steps, rates),
        findings=(
            *_of_brokers(scene, outcome),
            *_of_contended(scene, rates),
            *_of_entities(steps.values()),
        ),
        next_cut_at_seconds=_next_round(scene, outcome) if outcome.needs.over else None,
        next_raise_at_seconds=_next_raise(scene, outcome)
        if any(step.fraction < 1 for step in steps.values())
        else None,
        by_newest=by_newest,
    )


def _views(scene: DirectionSnapshot, outcome: Outcome) -> tuple[BrokerView, ...]:
    needs = {broker: need.amount for broker, need in outcome.needs.all.items()}
    needs |= {
        broker: helpless.need
        for broker, helpless in {**outcome.needs.helpless, **outcome.needs.spent}.items()
    }
    return tuple(
        BrokerView(
            nic,
            needs.get(broker, 0.0),
            _next_above(outcome.needs.swaps.get(broker)),
            (swap := outcome.needs.swaps.get(broker)) is not None and swap.for_replication,
            {level: scene.can_give(broker, (level,)) for level in CUT_ORDER},
            scene.coming.get(broker, 0.0) + outcome.raises.takes.get(broker, 0.0),
        )
        for broker, nic in scene.nics.items()
    )


def _next_above(swap: Need | None) -> Level | None:
    """The level for which those that are asked make room."""
    return None if swap is None or swap.for_replication else CUT_ORDER[len(swap.levels)]


def _after(since_seconds: float | None, seconds: float, scene: DirectionSnapshot) -> float:
    return (
        scene.now_seconds
        if since_seconds is None
        else max(scene.now_seconds, since_seconds + seconds)
    )


def _next_round(scene: DirectionSnapshot, outcome: Outcome) -> float:
    memory = outcome.memory
    return max(
        _after(memory.cut_at_seconds, scene.settings.dwell_seconds, scene),
        _after(memory.strode_at_seconds, scene.rests_seconds(), scene),
    )


def _next_raise(scene: DirectionSnapshot, outcome: Outcome) -> float:
    memory = outcome.memory
    times = (memory.cut_at_seconds, memory.strode_at_seconds, memory.raised_at_seconds)
    return max(_after(at, (memory.hold_seconds or 0.0), scene) for at in times)


def _not_done(
    scene: DirectionSnapshot,
    outcome: Outcome,
    steps: Mapping[RateKey, ThrottleStep],
    rates: Iterable[ManagedRate],
) -> tuple[SkippedEntity, ...]:
    """Who leads on a broker that is over its limit and was left alone, and why."""
    over = outcome.needs.over.keys()
    if not over:
        return ()
    parts = scene.direction.parts
    alone = islice(
        (
            rate
            for rate in rates
            if rate.direction in parts and rate.key not in steps and not rate.leads.isdisjoint(over)
        ),
        _NAMED,
    )
    buckets = {bucket.key: bucket for tier in scene.tiers.values() for bucket in tier}
    return tuple(
        [
            SkippedEntity(rate.entity, _why(rate, buckets.get(rate.key), over, outcome))
            for rate in alone
        ]
    )


def _why(rate: ManagedRate, bucket: Bucket | None, over: Iterable[int], outcome: Outcome) -> str:
    if rate.contended:
        return CONTENDED
    if rate.level is Level.L0:
        return NEVER_THROTTLED
    if bucket is None:
        return NO_THROTTLED_RATE
    if not any(bucket.gives(broker) > 0 for broker in over):
        return NOTHING_TO_GIVE
    if bucket.key in outcome.plan.targets:
        return NOT_DUE
    return OTHERS_GIVE_ENOUGH if rate.level in outcome.plan.levels else LOWER_TIERS_FIRST


def _of_brokers(scene: DirectionSnapshot, outcome: Outcome) -> list[Finding]:
    way = scene.direction.value
    found = [
        Finding(Reason.STALE_DATA, f"broker {broker} {way}: {nic.why}", broker)
        for broker, nic in scene.nics.items()
        if not nic.known
    ]
    for broker in sorted(scene.unknown_for_long):
        words = (
            f"broker {broker} {way}: unknown for "
            f"{scene.settings.release_after_seconds or 0:.0f} s or longer, so no one is "
            f"throttled for it"
        )
        found.append(Finding(Reason.RELEASED_UNMEASURED, words, broker))
    for broker, helpless in outcome.needs.helpless.items():
        words = (
            f"broker {broker} {way} is {rate_words(helpless.need + helpless.replication)} above "
            f"its aim, {_replication_words(helpless.replication)}L1 to L3 could give "
            f"{rate_words(helpless.can_give)} there"
        )
        found.append(Finding(Reason.QUOTA_CANNOT_HELP, words, broker))
    spent = {
        broker: helpless.need - helpless.can_give
        for broker, helpless in outcome.needs.spent.items()
    }
    exhausted = outcome.plan.exhausted if outcome.phase is Phase.EXHAUSTED else {}
    for broker, amount in {**spent, **exhausted}.items():
        found.append(
            Finding(
                Reason.QUOTA_EXHAUSTED,
                f"broker {broker} {way}: {rate_words(amount)} too much with every tier at its "
                "target",
                broker,
            )
        )
    for broker in sorted(outcome.needs.over.keys() & scene.unmeasured):
        found.append(
            Finding(
                Reason.CLIENT_RATES_UNKNOWN,
                f"broker {broker} {way}: no metric reports what its clients send",
                broker,
            )
        )
    return found


def _replication_words(bytes_per_second: float) -> str:
    """What replication gives, where it gives anything."""
    return (
        f"replication is slowed down by {rate_words(bytes_per_second)}, "
        if bytes_per_second
        else ""
    )


def _of_contended(scene: DirectionSnapshot, rates: Iterable[ManagedRate]) -> Iterator[Finding]:
    """Who is left alone and leads on a broker that others give way on; of any level, L0 too."""
    relieved = {broker for broker, nic in scene.nics.items() if nic.pressure is Pressure.OVER}
    relieved |= {broker for bucket in scene.throttled for broker in bucket.binding}
    parts = scene.direction.parts
    for rate in rates:
        if not rate.contended or rate.direction not in parts:
            continue
        if brokers := sorted(rate.leads & relieved):
            words = f"{rate.entity} ({rate.level.value}): {CONTENDED}"
            yield Finding(Reason.CONTENDED, words, brokers[0], rate.entity)


def _of_entities(steps: Iterable[ThrottleStep]) -> list[Finding]:
    found: list[Finding] = []
    for step in steps:
        if step.kind is StepKind.CUT and step.score < _POOR_SCORE:
            words = (
                f"{step.entity}: the cut takes {rate_words(step.relief)} off brokers in need and "
                f"{rate_words(step.collateral)} off others"
            )
            found.append(Finding(Reason.POOR_FIT, words, entity=step.entity))
        floor = step.bucket.floor
        if floor.because and step.value == floor.value:
            words = f"{step.entity} goes no lower than {rate_words(floor.value)}: {floor.because}"
            found.append(Finding(Reason.FLOOR_RAISED, words, entity=step.entity))
    return found


def as_mapping(record: Round) -> dict[str, object]:
    """The record for JSON: rates in bytes/s, times in seconds, names as in the control study."""
    return {
        "t": record.at_seconds,
        "dir": record.direction.value,
        "round": record.number,
        "phase": record.phase.value,
        "hold_s": record.hold_seconds,
        "brokers": [_broker(view, record) for view in record.brokers if view.nic.known],
        "blind": list(record.blind),
        "tiersPlanned": [level.value for level in record.tiers_planned],
        "actions": [_action(step) for step in record.steps if step.kind is not StepKind.HOLD],
        "held": sum(step.kind is StepKind.HOLD for step in record.steps),
        "notDone": [{"entity": str(one.entity), "why": one.why} for one in record.not_done],
        "conditions": [
            {"reason": one.reason.value, "message": one.message} for one in record.findings
        ],
        "nextCut": record.next_cut_at_seconds,
        "nextRaise": record.next_raise_at_seconds,
    }


def _broker(view: BrokerView, record: Round) -> dict[str, object]:
    nic = view.nic
    document: dict[str, object] = {
        "id": nic.broker,
        "threshold": nic.limit,
        "capacity": nic.capacity,
        "need": view.need,
    }
    if nic.bytes_per_second is not None and nic.at_seconds is not None:
        document |= {
            "nic": nic.bytes_per_second,
            "sampleAge_s": record.at_seconds - nic.at_seconds,
            "span_s": nic.span_seconds,
            "hotSamples": f"{nic.hot_samples}/{nic.samples}",
            "clientShare": nic.clients / nic.bytes_per_second if nic.bytes_per_second else 0.0,
            "replicationAndOther": max(0.0, nic.bytes_per_second - nic.clients),
        }
    if nic.is_direct:
        document["direct"] = True
    return document | {"cuttable": {level.value: amount for level, amount in view.cuttable.items()}}


def _action(step: ThrottleStep) -> dict[str, object]:
    return {
        "entity": str(step.entity),
        "tier": step.level.value,
        "kind": step.kind.value,
        "from": step.in_force,
        "to": step.value,
        "target": step.target,
        "limitedBy": step.limited_by.value,
        "rateOnHot": sum(step.bucket.sends(broker) for broker in step.brokers),
        "brokers": list(step.brokers),
        "relief": step.relief,
        "collateral": step.collateral,
        "score": step.score,
        "predictedMute_s": step.predicted_mute_seconds,
        "contract": step.contract,
        "fraction": step.fraction,
        "headroom": {str(broker): room for broker, room in step.headroom.items() if isfinite(room)},
    }
