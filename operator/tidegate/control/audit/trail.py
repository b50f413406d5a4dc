"""The audit trail: append-only JSON lines of decisions, their readings, writes and effects.

Called after each pass, which it neither fails nor delays: lines that cannot be written are counted
and logged. After `AuditTrail` come the lines, then when each is due (`PolicyTrail`). `sink.py`
writes them; `tidegate audit` shows them. docs/operations.md explains every field.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import structlog

from tidegate.control.audit.sink import EVENT, AuditQueue, Nowhere, sink_at
from tidegate.control.reconcile import Applied
from tidegate.metrics import Telemetry
from tidegate.tracing import PASS_FIELD, current_pass
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    DIRECTION_OF,
    KEY_OF,
    Direction,
    Entity,
    Hold,
    Override,
    QuotaKey,
    QuotaWrite,
    RateKey,
    Readings,
)
from tidegate_logic.quota_values import number_of
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import (
    ACTIONS,
    Acts,
    Phase,
    Round,
    StepKind,
    ThrottleDecision,
    ThrottleStep,
    new_acts,
)
from tidegate_logic.throttle.record import as_mapping
from tidegate_logic.words import rfc3339

log = structlog.get_logger(__name__)


class AuditTrail:
    """The trail of one process, of all its policies. Each policy has one caller at a time."""

    def __init__(self, queue: AuditQueue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._trails: dict[str, PolicyTrail] = {}

    def note(
        self,
        policy_key: str,
        cluster_id: str | None,
        *,
        decision: Decision,
        applied: Applied,
        readings: Readings | None,
        now_seconds: float,
    ) -> None:
        """Note one decision and its writes. A pass notes each of its decisions, in order."""
        with self._lock:
            trail = self._trails.setdefault(policy_key, PolicyTrail())
        place, happened = (
            Place(policy_key, cluster_id, now_seconds, current_pass()),
            Happened(decision, applied, readings),
        )
        self._queue.put(lambda: _texts(trail, place, happened))

    def forget(self, policy_key: str) -> None:
        """Drop a policy that is another replica's, or gone."""
        with self._lock:
            self._trails.pop(policy_key, None)

    def close(self) -> None:
        """Deliver what waits."""
        self._queue.close()


def open_audit_trail(place: str, telemetry: Telemetry) -> AuditTrail:
    """The trail of a process: `place` is a file's path, or `-` for standard output."""

    def count(result: str, lines: int) -> None:
        telemetry.audit_lines.labels(result).inc(lines)

    return AuditTrail(AuditQueue(sink_at(place), place, count=count))


def unread_trail() -> AuditTrail:
    """A trail that is not kept, for a process without an audit file and standard output: a test."""
    return AuditTrail(AuditQueue(Nowhere(), "nowhere", count=lambda *_: None, beside=False))


# --- the lines as plain data, one function a kind -------------------------------------------------
#
# Rates are in bytes per second, times are UTC. No value of a Secret is in what a line is made of.

Line = dict[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """A line's policy (namespace/name), Kafka cluster id (None = it did not answer), and time.

    `pass_id` "" = of no pass.
    """

    policy_key: str
    cluster_id: str | None
    at_seconds: float
    pass_id: str = ""
    _at: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_at", utc(self.at_seconds))

    def line(self, kind: str, **fields: object) -> Line:
        line: Line = {
            "event": EVENT,
            "kind": kind,
            "t": self._at,
            "policy": self.policy_key,
            "cluster": self.cluster_id,
            **({PASS_FIELD: self.pass_id} if self.pass_id else {}),
        }
        for name, value in fields.items():
            line[name] = tidy(value)
        return line


@dataclass(frozen=True, slots=True)
class Fate:
    """A write's outcome, and why: `applied`, `refused`, `unknown`, in mode Observe `wouldWrite`."""

    outcome: str
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """The member of a write, and the throttle's steps of it.

    `report` None = a default of Kafka, or a quota that is being restored.
    """

    report: MemberReport | None
    steps: Mapping[Direction, ThrottleStep]
    round_ids: Mapping[Direction, str]


def utc(seconds: float) -> str:
    """`2026-11-21T11:00:15.250Z`."""
    return rfc3339(seconds, "milliseconds")


def tidy(value: object) -> object:
    """The value for JSON: no infinities, and no more digits than were measured."""
    if value is None or isinstance(value, (str, int)):
        return value  # first, because there are thousands of them
    if isinstance(value, float):
        return (
            (round(value) if abs(value) >= 1000 else round(value, 3)) if isfinite(value) else None
        )
    if isinstance(value, Mapping):
        return {str(name): tidy(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(part) for part in value]
    return value


def round_id(record: Round) -> str:
    """An id unique within a policy: a restarted operator counts its rounds from one again."""
    return f"{record.direction.value}-{int(record.at_seconds)}-{record.number}"


def round_line(place: Place, record: Round) -> Line:
    """The observation record of one direction."""
    fields = as_mapping(record)
    del fields["t"]
    times = {
        name: None if at is None else utc(at)
        for name, at in (
            ("nextCut", record.next_cut_at_seconds),
            ("nextRaise", record.next_raise_at_seconds),
        )
    }
    here = replace(place, at_seconds=record.at_seconds)
    return here.line(
        "round",
        id=round_id(record),
        **{**fields, "actions": _actions(record, fields["actions"]), **times},
    )


def _actions(record: Round, recorded: object) -> list[Line]:
    """The recorded actions, with the wait of those too soon after the rate's last lowering."""
    steps = [step for step in record.steps if step.kind is not StepKind.HOLD]
    actions: list[Line] = recorded if isinstance(recorded, list) else []
    return [
        action | ({} if step.due_in_seconds is None else {"waits_s": step.due_in_seconds})
        for step, action in zip(steps, actions, strict=True)
    ]


def write_lines(place: Place, write: QuotaWrite, fate: Fate, owner: Owner) -> list[Line]:
    """A line for each quota key that changes; one without a key where only the ledger changes."""
    why = {"why": fate.reason.value, "message": fate.message} if fate.reason is not None else {}
    return [
        place.line(
            "write",
            entity=str(write.entity),
            **_change(write, key, owner),
            outcome=fate.outcome,
            **why,
        )
        for key in write.values or (None,)
    ]


def _change(write: QuotaWrite, key: QuotaKey | None, owner: Owner) -> Line:
    report, direction = owner.report, DIRECTION_OF.get(key) if key is not None else None
    step = owner.steps.get(direction) if direction is not None else None
    change: Line = {"key": None if key is None else key.value}
    if key is not None:
        change |= {"from": amount(write.seen.values.get(key)), "to": amount(write.values[key])}
    change |= {"reason": write.reason.value, "writeKind": write.kind.value}
    if report is not None:
        change |= {
            "level": report.level.value,
            "tier": report.tier_key,
            "member": report.member_name,
        }
    contract = (
        step.contract
        if step is not None
        else report.promise.values.get(key)
        if report is not None and key is not None
        else None
    )
    change |= {"contract": contract, "predictedMute_s": write.predicted_mute_seconds}
    return {**change, "round": owner.round_ids.get(direction) if direction is not None else None}


def amount(text: str | None) -> int | str | None:
    """A whole number as an integer; anything else as Kafka has it; None = no quota."""
    number = number_of(text)
    return int(number) if number is not None and number == number.to_integral_value() else text


def hold_line(place: Place, hold: Hold, *, begins: bool) -> Line:
    """A hold begins or ends: an input is missing, or the policy is paused."""
    fields: Line = {
        "state": "begins" if begins else "ends",
        "reason": hold.reason.value,
        "since": utc(hold.since_seconds),
    }
    return place.line(
        "hold",
        **fields,
        **(
            {"message": hold.message}
            if begins
            else {"seconds": place.at_seconds - hold.since_seconds}
        ),
    )


def override_line(
    place: Place, override: Override, entities: Sequence[Entity], *, begins: bool
) -> Line:
    """An override begins or ceases to apply to these entities. `why` is what its author wrote."""
    fields: Line = {
        "state": "begins" if begins else "ends",
        "override": override.key,
        "target": override.target,
    }
    fields |= {
        "exempt": override.exempt,
        "until": utc(override.until_seconds(place.at_seconds)),
        "why": override.reason,
    }
    return place.line("override", **fields, entities=[str(entity) for entity in entities])


# --- the effect of a round: NICs, rates and mutes before it, and two quota windows after it -------
#
# The observed mute is the highest throttle time that Kafka reported in between, in any reading. It
# is a mean over up to a minute, so one long mute among short ones shows less, and an earlier one
# may still be in it. A value that was not measured is None, never zero.

_PATIENCE_SECONDS = 60.0  # for a reading after the moment; later ones would show other effects


@dataclass(slots=True)
class PendingEffect:
    """One round whose effect has no line yet.

    `written` has the last write of each of its rates, `mutes` the longest seen, in s. `superseded`
    are those that a later round changed again, so that what is seen is not this round's effect
    alone.
    """

    record: Round
    written: dict[RateKey, QuotaWrite] = field(default_factory=dict)
    mutes: dict[RateKey, float] = field(default_factory=dict)
    superseded: set[RateKey] = field(default_factory=set)

    @property
    def steps(self) -> dict[RateKey, ThrottleStep]:
        return {step.key: step for step in self.record.steps if step.kind in ACTIONS}

    @property
    def due_seconds(self) -> float:
        window_seconds = max(
            (step.bucket.window_seconds for step in self.record.steps), default=0.0
        )
        return self.record.at_seconds + 2 * (window_seconds + 1)

    def watch(self, readings: Readings) -> None:
        """Take note of the throttle times that Kafka reports."""
        for (entity, _, direction), rate in readings.clients.items():
            key = (entity, direction)
            if (
                key in self.written
                and rate.throttle_milliseconds is not None
                and rate.at_seconds > self.record.at_seconds
            ):
                self.mutes[key] = max(self.mutes.get(key, 0.0), rate.throttle_milliseconds / 1000)

    def is_due(self, readings: Readings | None, now_seconds: float) -> bool:
        is_read = readings is not None and readings.read_at_seconds >= self.due_seconds
        return is_read or now_seconds >= self.due_seconds + _PATIENCE_SECONDS

    def line(
        self, place: Place, throttle: ThrottleDecision | None, readings: Readings | None
    ) -> Line:
        """Values before and after. Without a reading in time those after are None."""
        fresh = (
            readings
            if readings is not None and readings.read_at_seconds >= self.due_seconds
            else None
        )
        return place.line(
            "effect",
            round=round_id(self.record),
            dir=self.record.direction.value,
            seconds=place.at_seconds - self.record.at_seconds,
            brokers=self._brokers(throttle if fresh is not None else None),
            entities=[
                self._entity(step, fresh) for key, step in self.steps.items() if key in self.written
            ],
        )

    def _brokers(self, throttle: ThrottleDecision | None) -> list[Line]:
        after = (
            _nics(
                next(
                    (one for one in throttle.rounds if one.direction is self.record.direction), None
                )
            )
            if throttle
            else {}
        )
        concerned = {broker for step in self.steps.values() for broker in step.brokers}
        views = [
            view for view in self.record.brokers if view.need > 0 or view.nic.broker in concerned
        ]
        return [
            {
                "id": view.nic.broker,
                "threshold": view.nic.limit,
                "nicBefore": view.nic.bytes_per_second,
                "nicAfter": after.get(view.nic.broker),
            }
            for view in views
        ]

    def _entity(self, step: ThrottleStep, readings: Readings | None) -> Line:
        # what was decided may have waited, and gone out smaller or larger
        write = self.written[step.key]
        return {
            "entity": str(step.entity),
            "tier": step.level.value,
            "kind": step.kind.value,
            "to": amount(write.values.get(KEY_OF[step.direction])),
            "rateBefore": _sum(flow.bytes_per_second for flow in step.bucket.flows.values()),
            "rateAfter": _rate(step, readings),
            "predictedMute_s": write.predicted_mute_seconds,
            "observedMute_s": self.mutes.get(step.key),
            "changedSince": step.key in self.superseded,
        }


def _nics(record: Round | None) -> Mapping[int, float | None]:
    return (
        {}
        if record is None
        else {view.nic.broker: view.nic.bytes_per_second for view in record.brokers}
    )


def _rate(step: ThrottleStep, readings: Readings | None) -> float | None:
    clients = readings.clients.items() if readings is not None else ()
    return _sum(
        rate.bytes_per_second
        for (entity, _, direction), rate in clients
        if (entity, direction) == step.key
    )


def _sum(rates: Iterable[float]) -> float | None:
    """None if there is nothing to add up: that is not the same as a rate of zero."""
    found = list(rates)
    return sum(found) if found else None


# --- the lines that are due: a cluster at rest writes none ----------------------------------------
#
# After a restart a line may come twice. Only the effects of rounds that were under way are lost.

_APPLIED, _REFUSED, _UNKNOWN, _WOULD = "applied", "refused", "unknown", "wouldWrite"
_THROTTLING = frozenset({Reason.THROTTLED, Reason.CALENDAR, Reason.RELAXING, Reason.RELEASED})
_NEVER_SENT = frozenset({Reason.NOT_LEADER})


@dataclass(frozen=True, slots=True)
class Happened:
    """One decision, the outcome of its writes, and the readings that it was made on."""

    decision: Decision
    applied: Applied
    readings: Readings | None


_AT_REST: object = (Phase.NORMAL, frozenset[object]())


@dataclass(slots=True)
class PolicyTrail:
    """The last lines of one policy, so that none is repeated."""

    _last_news: dict[Direction, object] = field(default_factory=dict)
    _acts: Acts = field(default_factory=dict)
    _round_ids: dict[RateKey, str] = field(default_factory=dict)
    _effects: list[PendingEffect] = field(default_factory=list)
    _holds: dict[Reason, Hold] = field(default_factory=dict)
    _overrides: dict[str, tuple[Override, tuple[Entity, ...]]] = field(default_factory=dict)
    _would: dict[Entity, Mapping[QuotaKey, str | None]] = field(default_factory=dict)

    def lines(self, place: Place, happened: Happened) -> list[Line]:
        """The lines that are due, in the order in which things happened."""
        return [
            *self._effect_lines(place, happened),
            *self._hold_lines(place, happened.decision.holds),
            *self._override_lines(place, happened.decision.overridden),
            *self._round_lines(place, happened),
            *self._write_lines(place, happened),
        ]

    def _effect_lines(self, place: Place, happened: Happened) -> Iterator[Line]:
        readings = happened.readings
        if readings is not None:
            for effect in self._effects:
                effect.watch(readings)
        due = [effect for effect in self._effects if effect.is_due(readings, place.at_seconds)]
        self._effects = [effect for effect in self._effects if effect not in due]
        for effect in due:
            if effect.written:
                yield effect.line(place, happened.decision.throttle, readings)

    def _hold_lines(self, place: Place, holds: Sequence[Hold]) -> Iterator[Line]:
        now = {hold.reason: hold for hold in reversed(holds)}
        yield from (
            hold_line(place, hold, begins=False)
            for reason, hold in self._holds.items()
            if reason not in now
        )
        yield from (
            hold_line(place, hold, begins=True)
            for reason, hold in now.items()
            if reason not in self._holds
        )
        self._holds = now

    def _override_lines(self, place: Place, overridden: Overridden) -> Iterator[Line]:
        if overridden.tiers is None:
            return  # whom they apply to is not known, which ends nothing
        found: dict[str, list[Entity]] = defaultdict(list)
        for entity, override in overridden.applied.items():
            found[override.key].append(entity)
        overrides = {override.key: override for override in overridden.applied.values()}
        now = {key: (overrides[key], tuple(entities)) for key, entities in found.items()}
        ended = [applied for key, applied in self._overrides.items() if now.get(key) != applied]
        begun = [applied for key, applied in now.items() if self._overrides.get(key) != applied]
        yield from (override_line(place, *applied, begins=False) for applied in ended)
        yield from (override_line(place, *applied, begins=True) for applied in begun)
        self._overrides = now

    def _round_lines(self, place: Place, happened: Happened) -> Iterator[Line]:
        throttle = happened.decision.throttle
        if throttle is None or happened.readings is None:
            return  # no reading has come yet, so nothing was decided on load
        moved, self._acts = new_acts(throttle, self._acts)
        for record in throttle.rounds:
            steps = [step for step in moved if step.direction in record.direction.parts]
            news, news_before = _news_of(record), self._last_news.get(record.direction, _AT_REST)
            self._last_news[record.direction] = news
            if steps:
                self._remember(record, steps)
            if steps or news != news_before:
                yield round_line(place, record)
        self._round_ids = {
            key: known for key, known in self._round_ids.items() if key in throttle.steps
        }

    def _remember(self, record: Round, moved: Sequence[ThrottleStep]) -> None:
        self._round_ids.update({step.key: round_id(record) for step in moved})
        self._effects.append(PendingEffect(record))

    def _write_lines(self, place: Place, happened: Happened) -> Iterator[Line]:
        decision = happened.decision
        fates = list(_fates(decision, happened.applied))
        would = {write.entity: write.values for write in decision.would_write}
        fates += [
            (write, Fate(_WOULD))
            for write in decision.would_write
            if self._would.get(write.entity) != write.values
        ]
        self._would = would
        if not fates:
            return
        owners = {report.entity: report for report in decision.members if report.counts}
        for write, fate in fates:
            if fate.outcome == _APPLIED:
                self._mark_written(write)
            yield from write_lines(
                place, write, fate, self._owner(write.entity, owners.get(write.entity), decision)
            )

    def _owner(self, entity: Entity, report: MemberReport | None, decision: Decision) -> Owner:
        steps = decision.throttle.steps if decision.throttle is not None else {}
        keys = {way: (entity, way) for way in Direction}
        return Owner(
            report,
            {way: steps[key] for way, key in keys.items() if key in steps},
            {way: self._round_ids[key] for way, key in keys.items() if key in self._round_ids},
        )

    def _mark_written(self, write: QuotaWrite) -> None:
        """Note the write in the effect of its round; in all others its rates are superseded."""
        for key in (
            (write.entity, DIRECTION_OF[each]) for each in write.values if each in DIRECTION_OF
        ):
            wanted = self._round_ids.get(key)
            for effect in self._effects:
                carries_out = round_id(effect.record) == wanted and (
                    write.reason in _THROTTLING or key not in effect.written
                )
                if carries_out:
                    effect.written[key] = write
                else:
                    effect.superseded.add(key)


def _news_of(record: Round) -> object:
    """The part of a round that makes a line when it changes: the phase and the findings."""
    return (
        record.phase,
        frozenset((finding.reason, finding.broker, finding.entity) for finding in record.findings),
    )


def _fates(decision: Decision, applied: Applied) -> Iterator[tuple[QuotaWrite, Fate]]:
    """The outcome of each write that was sent. The others are decided on again and have no line."""
    refused = {outcome.entity: outcome for outcome in applied.refused}
    done = {write.entity for write in applied.done}
    unsettled = [
        write
        for write in decision.writes
        if write.entity not in done and write.entity not in refused
    ]
    for write in decision.writes:
        if write.entity in done:
            yield write, Fate(_APPLIED)
        elif (outcome := refused.get(write.entity)) is not None:
            yield write, Fate(_REFUSED, outcome.reason, outcome.message)
    error = applied.error
    if error is not None and error.reason not in _NEVER_SENT:
        yield from (
            (write, Fate(_UNKNOWN, error.reason, error.message))
            for write in unsettled[: applied.most_writes]
        )


# an infinity that slipped through is an error, not a line that no parser can read
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _texts(trail: PolicyTrail, place: Place, happened: Happened) -> list[str]:
    """The lines as JSON; none, and an error in the log, where there is a bug in them."""
    try:
        return [_ENCODER.encode(line) for line in trail.lines(place, happened)]
    except Exception:
        log.exception("Audit lines abandoned", policy=place.policy_key)
        return []
