"""Reads of an audit trail what episodes are made of: quotas written, NICs over their limits, and mutes predicted and observed.

Only what was really written counts; what was decided but refused, or only would have been written, changed nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from controller_logic.model import BYTE_RATE_OF, DIRECTION_OF
from controller_logic.reasons import Reason
from tidegate.control.audit.lines import AuditLine as AuditLine
from tidegate.control.audit.lines import seconds_of

_BY_LOAD = frozenset({Reason.THROTTLED, Reason.RELAXING, Reason.RELEASED})
_DIRECTIONS = {DIRECTION_OF[key].value: word for word, key in BYTE_RATE_OF.items()}
_KEYS = {key.value: word for word, key in BYTE_RATE_OF.items()}


@dataclass(frozen=True, slots=True)
class Written:
    """A byte rate that was written at `at_ms`. None = unlimited; `contract` None = nothing is promised, so nothing is below it."""

    at_ms: int
    policy: str
    entity: str
    direction: str
    member: str
    tier: str
    level: str
    before: int | None
    after: int | None
    contract: int | None
    predicted_mute_seconds: float | None
    reason: str = ""

    @property
    def is_below(self) -> bool:
        return self.after is not None and self.contract is not None and self.after < self.contract

    @property
    def was_below(self) -> bool:
        return self.before is not None and self.contract is not None and self.before < self.contract

    @property
    def ends_hold(self) -> bool:
        """Whether what it replaced was a throttle, and no quota of somebody else's nor one for fewer leaders."""
        return self.was_below and self.reason in _BY_LOAD

    @property
    def is_cut(self) -> bool:
        return self.after is not None and (self.before is None or self.after < self.before)


@dataclass(frozen=True, slots=True)
class NicOver:
    """A broker's NIC that was over its limit, as a round of decisions read it. `over_rate` is None where the trail has none."""

    at_ms: int
    direction: str
    broker: int
    over_rate: float | None


@dataclass(frozen=True, slots=True)
class Muted:
    """The longest mute that Kafka reported after a round, of any client in it."""

    at_ms: int
    direction: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Trail:
    """What was read, each in order of time. `since_ms` is when it begins, None = it has no lines."""

    written: Sequence[Written] = field(default_factory=tuple)
    over: Sequence[NicOver] = field(default_factory=tuple)
    muted: Sequence[Muted] = field(default_factory=tuple)
    since_ms: int | None = None


def read_trail(lines: Iterable[AuditLine], policy: str, *, end_ms: int) -> Trail:
    """Lines of this policy ("" = of all) before `end_ms`; those before the period give the state in which it begins.

    Trails of several replicas may be given one after the other. What a line lacks is left out, never made up.
    """
    ours = sorted((line for line in lines if policy in ("", line.get("policy"))), key=_at_ms)
    ours = [line for line in ours if _at_ms(line) < end_ms]
    return Trail(
        tuple(one for line in ours if line.get("kind") == "write" for one in _written(line)),
        tuple(one for line in ours if line.get("kind") == "round" for one in _over(line)),
        tuple(one for line in ours if line.get("kind") == "effect" for one in _muted(line)),
        since_ms=_at_ms(ours[0]) if ours else None,
    )


def _at_ms(line: AuditLine) -> int:
    return round(seconds_of(line) * 1000)


def _written(line: AuditLine) -> Iterator[Written]:
    direction = _KEYS.get(str(line.get("key")))
    if direction is None or line.get("outcome") != "applied":
        return
    yield Written(
        at_ms=_at_ms(line),
        policy=str(line.get("policy")),
        entity=str(line.get("entity")),
        direction=direction,
        member=str(line.get("member") or ""),
        tier=str(line.get("tier") or ""),
        level=str(line.get("level") or ""),
        before=_rate(line.get("from")),
        after=_rate(line.get("to")),
        contract=_rate(line.get("contract")),
        predicted_mute_seconds=_seconds(line.get("predictedMute_s")),
        reason=str(line.get("reason") or ""),
    )


def _over(line: AuditLine) -> Iterator[NicOver]:
    for broker in line.get("brokers", ()):
        if broker.get("need"):
            nic, threshold = broker.get("nic"), broker.get("threshold")
            known = isinstance(nic, (int, float)) and isinstance(threshold, (int, float))
            yield NicOver(_at_ms(line), _direction(line), int(broker["id"]), max(0.0, nic - threshold) if known else None)


def _muted(line: AuditLine) -> Iterator[Muted]:
    observed = (_seconds(entity.get("observedMute_s")) for entity in line.get("entities", ()))
    known = [seconds for seconds in observed if seconds is not None]
    if known:
        yield Muted(_at_ms(line), _direction(line), max(known))


def _direction(line: AuditLine) -> str:
    return _DIRECTIONS.get(str(line.get("dir")), str(line.get("dir")))


def _rate(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
