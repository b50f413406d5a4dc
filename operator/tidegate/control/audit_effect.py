"""What a round of cuts or raises did: cards, rates and mutes before it, and two rhythms of a throttled client after it.

The observed mute is the highest throttle time that Kafka told of in between, in any reading: a mean over up to a minute, so one long mute
among short ones shows less, and an earlier one may still be in it. What nobody measured is None, never zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller_logic.model import QuotaWrite, Readings
from controller_logic.throttle.decision import ACTIONS, Round, ThrottleDecision, ThrottleStep
from controller_logic.throttle.input import RateKey
from tidegate.control.audit_record import KEY_OF, Line, Place, amount, round_id

_PATIENCE_SECONDS = 60.0  # for a reading after the moment; later ones would tell of something else


@dataclass(slots=True)
class PendingEffect:
    """One round whose effect is not told yet. `written` has the last write of each of its rates, `mutes` the longest seen, in s.

    `superseded` are those that a later round changed again, so that what is seen is not this round's effect alone.
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
        window_seconds = max((step.bucket.window_seconds for step in self.record.steps), default=0.0)
        return self.record.at_seconds + 2 * (window_seconds + 1)

    def watch(self, readings: Readings) -> None:
        """Take note of the throttle times that Kafka tells."""
        for (entity, _, direction), rate in readings.clients.items():
            key = (entity, direction)
            if key in self.written and rate.throttle_milliseconds is not None and rate.at_seconds > self.record.at_seconds:
                self.mutes[key] = max(self.mutes.get(key, 0.0), rate.throttle_milliseconds / 1000)

    def is_due(self, readings: Readings | None, now_seconds: float) -> bool:
        told = readings is not None and readings.read_at_seconds >= self.due_seconds
        return told or now_seconds >= self.due_seconds + _PATIENCE_SECONDS

    def line(self, place: Place, throttle: ThrottleDecision | None, readings: Readings | None) -> Line:
        """Before and after. A reading that came too late, or not at all, leaves what is after unknown."""
        fresh = readings if readings is not None and readings.read_at_seconds >= self.due_seconds else None
        return place.line(
            "effect",
            round=round_id(self.record),
            dir=self.record.direction.value,
            seconds=place.at_seconds - self.record.at_seconds,
            brokers=self._brokers(throttle if fresh is not None else None),
            entities=[self._entity(step, fresh) for key, step in self.steps.items() if key in self.written],
        )

    def _brokers(self, throttle: ThrottleDecision | None) -> list[Line]:
        after = _cards(next((one for one in throttle.rounds if one.direction is self.record.direction), None)) if throttle else {}
        concerned = {broker for step in self.steps.values() for broker in step.brokers}
        views = [view for view in self.record.brokers if view.need > 0 or view.card.broker in concerned]
        return [
            {
                "id": view.card.broker,
                "threshold": view.card.limit,
                "nicBefore": view.card.bytes_per_second,
                "nicAfter": after.get(view.card.broker),
            }
            for view in views
        ]

    def _entity(self, step: ThrottleStep, readings: Readings | None) -> Line:
        write = self.written[step.key]  # what was decided may have waited, and gone out smaller or larger
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


def _cards(record: Round | None) -> Mapping[int, float | None]:
    return {} if record is None else {view.card.broker: view.card.bytes_per_second for view in record.brokers}


def _rate(step: ThrottleStep, readings: Readings | None) -> float | None:
    clients = readings.clients.items() if readings is not None else ()
    return _sum(rate.bytes_per_second for (entity, _, direction), rate in clients if (entity, direction) == step.key)


def _sum(rates: Iterable[float]) -> float | None:
    """None where there is nothing to add up: that is not the same as a rate of zero."""
    found = list(rates)
    return sum(found) if found else None
