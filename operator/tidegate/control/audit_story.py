"""One policy's audit trail: which lines each pass is worth, so that a cluster at rest writes none.

It keeps what was told last and repeats nothing. Forgetting it (a restart) costs a line that is told twice, never one that is not told,
except for the effects of rounds that were under way.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller_logic.contracts.overrides import Overridden
from controller_logic.decision import Decision, MemberReport, MemberState
from controller_logic.model import Direction, Entity, Hold, Override, QuotaKey, QuotaWrite, Readings
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import Acts, Phase, Round, ThrottleStep, new_acts
from controller_logic.throttle.input import RateKey
from tidegate.control.apply import Applied
from tidegate.control.audit_effect import PendingEffect
from tidegate.control.audit_record import (
    DIRECTION_OF,
    Fate,
    Line,
    Owner,
    Place,
    hold_line,
    override_line,
    round_id,
    round_line,
    write_lines,
)
from tidegate.kafka.quota_store import MAX_WRITES_PER_BATCH

_APPLIED, _REFUSED, _UNKNOWN, _WOULD = "applied", "refused", "unknown", "wouldWrite"
_THROTTLING = frozenset({Reason.THROTTLED, Reason.RELAXING, Reason.RELEASED})
_NEVER_SENT = frozenset({Reason.NOT_LEADER})


@dataclass(frozen=True, slots=True)
class Happened:
    """What one look at the world led to: the decision, what became of its writes, and the readings that it was made on."""

    decision: Decision
    applied: Applied
    readings: Readings | None


_AT_REST: object = (Phase.NORMAL, frozenset[object]())


@dataclass(slots=True)
class AuditStory:
    """What was told of one policy: what each direction's last round said, and of each rate what was done to it last."""

    _said: dict[Direction, object] = field(default_factory=dict)
    _acts: Acts = field(default_factory=dict)
    _round_ids: dict[RateKey, str] = field(default_factory=dict)
    _effects: list[PendingEffect] = field(default_factory=list)
    _holds: dict[Reason, Hold] = field(default_factory=dict)
    _overrides: dict[str, tuple[Override, tuple[Entity, ...]]] = field(default_factory=dict)
    _would: dict[Entity, Mapping[QuotaKey, str | None]] = field(default_factory=dict)

    def lines(self, place: Place, happened: Happened) -> list[Line]:
        """The lines that this is worth, in the order in which things happened."""
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
        yield from (hold_line(place, hold, begins=False) for reason, hold in self._holds.items() if reason not in now)
        yield from (hold_line(place, hold, begins=True) for reason, hold in now.items() if reason not in self._holds)
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
            return  # no reading has come yet: nothing can be said of load, and nothing is decided on it
        moved, self._acts = new_acts(throttle, self._acts)
        for record in throttle.rounds:
            steps = [step for step in moved if step.direction is record.direction]
            said, said_before = _said(record), self._said.get(record.direction, _AT_REST)
            self._said[record.direction] = said
            if steps:
                self._remember(record, steps)
            if steps or said != said_before:
                yield round_line(place, record)
        self._round_ids = {key: known for key, known in self._round_ids.items() if key in throttle.steps}

    def _remember(self, record: Round, moved: Sequence[ThrottleStep]) -> None:
        self._round_ids.update({step.key: round_id(record) for step in moved})
        self._effects.append(PendingEffect(record))

    def _write_lines(self, place: Place, happened: Happened) -> Iterator[Line]:
        decision = happened.decision
        fates = list(_fates(decision, happened.applied))
        would = {write.entity: write.values for write in decision.would_write}
        fates += [(write, Fate(_WOULD)) for write in decision.would_write if self._would.get(write.entity) != write.values]
        self._would = would
        if not fates:
            return
        owners = {report.entity: report for report in decision.members if report.state is not MemberState.OVERLAPPING}
        for write, fate in fates:
            if fate.outcome == _APPLIED:
                self._mark_written(write)
            yield from write_lines(place, write, fate, self._owner(write.entity, owners.get(write.entity), decision))

    def _owner(self, entity: Entity, report: MemberReport | None, decision: Decision) -> Owner:
        steps = decision.throttle.steps if decision.throttle is not None else {}
        keys = {way: (entity, way) for way in Direction}
        return Owner(
            report,
            {way: steps[key] for way, key in keys.items() if key in steps},
            {way: self._round_ids[key] for way, key in keys.items() if key in self._round_ids},
        )

    def _mark_written(self, write: QuotaWrite) -> None:
        """Its rates that a round moved have an effect from now on; anything that moves them after it is not this round's alone."""
        for key in ((write.entity, DIRECTION_OF[each]) for each in write.values if each in DIRECTION_OF):
            wanted = self._round_ids.get(key)
            for effect in self._effects:
                carries_out = round_id(effect.record) == wanted and (write.reason in _THROTTLING or key not in effect.written)
                if carries_out:
                    effect.written[key] = write
                else:
                    effect.superseded.add(key)


def _said(record: Round) -> object:
    """What people should know beside that: the phase, and what was found of whom."""
    return (record.phase, frozenset((finding.reason, finding.broker, finding.entity) for finding in record.findings))


def _fates(decision: Decision, applied: Applied) -> Iterator[tuple[QuotaWrite, Fate]]:
    """What became of each write that was sent; what was never sent is decided on again and is no write."""
    refused = {outcome.entity: outcome for outcome in applied.refused}
    done = {write.entity for write in applied.done}
    unsettled = [write for write in decision.writes if write.entity not in done and write.entity not in refused]
    for write in decision.writes:
        if write.entity in done:
            yield write, Fate(_APPLIED)
        elif (outcome := refused.get(write.entity)) is not None:
            yield write, Fate(_REFUSED, outcome.reason, outcome.message)
    error = applied.error
    if error is not None and error.reason not in _NEVER_SENT:
        yield from ((write, Fate(_UNKNOWN, error.reason, error.message)) for write in unsettled[:MAX_WRITES_PER_BATCH])
