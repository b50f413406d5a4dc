"""The lines of the audit trail as plain data, one function a kind: what was decided, what was written, what it did, what is held.

Rates are in bytes per second, times are UTC. Nothing that comes from a Secret is within reach of what a line is made of. When a line is
due is decided in `audit_story.py`; docs/operations.md explains every field to people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite

from controller_logic.decision import MemberReport
from controller_logic.model import Direction, Entity, Hold, Override, QuotaKey, QuotaWrite
from controller_logic.quotas.values import number_of
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import Round, StepKind, ThrottleStep
from controller_logic.throttle.record import as_mapping

Line = dict[str, object]

EVENT = "Audit"  # marks a line in a log that holds others too
DIRECTION_OF = {QuotaKey.CONSUMER_BYTE_RATE: Direction.EGRESS, QuotaKey.PRODUCER_BYTE_RATE: Direction.INGRESS}
KEY_OF = {direction: key for key, direction in DIRECTION_OF.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """Whose line it is: the policy (namespace/name), the Kafka cluster's id (None = it did not answer), and when."""

    policy_key: str
    cluster_id: str | None
    at_seconds: float
    _at: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_at", utc(self.at_seconds))

    def line(self, kind: str, **told: object) -> Line:
        line: Line = {"event": EVENT, "kind": kind, "t": self._at, "policy": self.policy_key, "cluster": self.cluster_id}
        for name, value in told.items():
            line[name] = tidy(value)
        return line


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a write: `applied`, `refused`, `unknown`, or `wouldWrite` in mode Observe; and why, where there is a reason."""

    outcome: str
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a write is: its member's report (None for Kafka's defaults and what is given back), and what the throttle says of it."""

    report: MemberReport | None
    steps: Mapping[Direction, ThrottleStep]
    round_ids: Mapping[Direction, str]


def utc(seconds: float) -> str:
    """`2026-11-21T11:00:15.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tidy(value: object) -> object:
    """The value for JSON: no infinities, and no more digits than were measured."""
    if value is None or isinstance(value, (str, int)):
        return value  # first, because there are thousands of them
    if isinstance(value, float):
        return (round(value) if abs(value) >= 1000 else round(value, 3)) if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): tidy(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(part) for part in value]
    return value


def round_id(record: Round) -> str:
    """Unique within a policy, although an operator that starts anew counts its rounds from one again."""
    return f"{record.direction.value}-{int(record.at_seconds)}-{record.number}"


def round_line(place: Place, record: Round) -> Line:
    """The observation record of one direction."""
    told = as_mapping(record)
    del told["t"]
    times = {
        name: None if at is None else utc(at)
        for name, at in (("nextCut", record.next_cut_at_seconds), ("nextRaise", record.next_raise_at_seconds))
    }
    here = replace(place, at_seconds=record.at_seconds)
    return here.line("round", id=round_id(record), **{**told, "actions": _actions(record, told["actions"]), **times})


def _actions(record: Round, told: object) -> list[Line]:
    """The actions as they are told, and how long those have to wait that come too soon after the last lowering of the same rate."""
    steps = [step for step in record.steps if step.kind is not StepKind.HOLD]
    actions: list[Line] = told if isinstance(told, list) else []
    return [
        action | ({} if step.due_in_seconds is None else {"waits_s": step.due_in_seconds})
        for step, action in zip(steps, actions, strict=True)
    ]


def write_lines(place: Place, write: QuotaWrite, fate: Fate, owner: Owner) -> list[Line]:
    """A line for each quota key that changes; one without a key where only the ledger changes."""
    why = {"why": fate.reason.value, "message": fate.message} if fate.reason is not None else {}
    return [
        place.line("write", entity=str(write.entity), **_change(write, key, owner), outcome=fate.outcome, **why)
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
        change |= {"level": report.level.value, "tier": report.tier_key, "member": report.member_name}
    contract = step.contract if step is not None else report.promise.values.get(key) if report is not None and key is not None else None
    change |= {"contract": contract, "predictedMute_s": write.predicted_mute_seconds}
    return {**change, "round": owner.round_ids.get(direction) if direction is not None else None}


def amount(text: str | None) -> int | str | None:
    """A whole number as one; anything else as it stands in Kafka; None = no quota."""
    number = number_of(text)
    return int(number) if number is not None and number == number.to_integral_value() else text


def hold_line(place: Place, hold: Hold, *, begins: bool) -> Line:
    """An input went missing, or somebody paused the policy; or it is over."""
    told: Line = {"state": "begins" if begins else "ends", "reason": hold.reason.value, "since": utc(hold.since_seconds)}
    return place.line("hold", **told, **({"message": hold.message} if begins else {"seconds": place.at_seconds - hold.since_seconds}))


def override_line(place: Place, override: Override, entities: Sequence[Entity], *, begins: bool) -> Line:
    """A person's override begins or ceases to apply to these entities. `why` is what the person wrote."""
    told: Line = {"state": "begins" if begins else "ends", "override": override.key, "target": override.target}
    told |= {"exempt": override.exempt, "until": utc(override.expires_at_seconds), "why": override.reason}
    return place.line("override", **told, entities=[str(entity) for entity in entities])
