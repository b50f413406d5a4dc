"""The delay queues of one policy at one moment, as the operator reported them.

Pure. None is unknown, never zero.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidegate.observe.declared import belongs_to, object_key
from tidegate.view.load import RawObject
from tidegate_logic.reasons import Reason

LATE_SECONDS: Final = 60  # a message that has been due for longer is late
_DEFAULT_FORWARDERS: Final = 2  # of spec.forwarders.replicas
_PASSING: Final = frozenset({Reason.STARTING.value, Reason.DRAINING.value})
_NO_FORWARDER: Final = frozenset({Reason.STARTING.value, Reason.FORWARDERS_MISSING.value})

_NOT_REPORTED: Final[RawObject] = {
    "status": "Unknown",
    "reason": "NotReported",
    "message": "The operator has not reported this queue. Its log says whether it serves delay "
    "queues (delayQueues.enabled of the chart).",
}


class Severity(IntEnum):
    """How bad it is; the larger, the worse."""

    FINE = 0
    WATCH = 1  # needs attention; messages are sent on, or will be soon
    UNKNOWN = 2
    BAD = 3  # messages are late, lost or not sent on


@dataclass(frozen=True, slots=True)
class QueueTrouble:
    """A condition that is not fine, with the operator's own reason and message, or lateness."""

    severity: Severity
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DelayNow:
    """The messages of a queue that wait equally long. Times are in seconds."""

    seconds: int
    topics: int
    waiting: int | None
    late_seconds: int | None
    per_second: int | None


@dataclass(frozen=True, slots=True)
class QueueNow:
    """One queue. `forwarders` are those that forwarded some topic last; `wanted` should run.

    `late_seconds` is how long its oldest message has been due; `dead` are messages whose target was
    refused. `troubles` are sorted, worst first.
    """

    key: str
    guarantee: str
    waiting: int | None
    late_seconds: int | None
    per_second: int | None
    forwarders: int | None
    wanted: int
    dead: int | None
    troubles: tuple[QueueTrouble, ...]
    delays: tuple[DelayNow, ...]

    @property
    def severity(self) -> Severity:
        return self.troubles[0].severity if self.troubles else Severity.FINE


def is_late(late_seconds: int | None) -> bool:
    return late_seconds is not None and late_seconds > LATE_SECONDS


def queues_now(queues: Iterable[RawObject], policy: RawObject) -> tuple[QueueNow, ...]:
    """Those of the policy, the worst first."""
    found = [_queue(raw) for raw in queues if belongs_to(raw, policy)]
    return tuple(sorted(found, key=_worst_first))


def _worst_first(queue: QueueNow) -> tuple[int, int, int, str]:
    return -queue.severity, -(queue.late_seconds or 0), -(queue.waiting or 0), queue.key


def _queue(raw: RawObject) -> QueueNow:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    summary = status.get("summary") or {}
    conditions = {str(said["type"]): said for said in status.get("conditions") or ()}
    delays = tuple(
        DelayNow(
            *(said["seconds"], said["topics"]),
            *(said.get(name) for name in ("waiting", "oldestLateSeconds", "perSecond")),
        )
        for said in status.get("delays") or ()
    )
    rates = [delay.per_second for delay in delays if delay.per_second is not None]
    late = summary.get("oldestLateSeconds")
    return QueueNow(
        object_key(raw),
        str(spec.get("guarantee") or ""),
        summary.get("waiting"),
        late,
        sum(rates) if delays and len(rates) == len(delays) else None,
        _forwarders(status, conditions),
        (spec.get("forwarders") or {}).get("replicas") or _DEFAULT_FORWARDERS,
        status.get("dead"),
        tuple(sorted(_troubles(conditions, late), key=lambda trouble: -trouble.severity)),
        delays,
    )


def _forwarders(status: RawObject, conditions: RawObject) -> int | None:
    """A forwarder that is gone stays in the list until another has its topics."""
    said = status.get("forwarders")
    if said is None:
        return None
    return 0 if conditions.get("Ready", {}).get("reason") in _NO_FORWARDER else len(said)


def _troubles(conditions: RawObject, late_seconds: int | None) -> Iterator[QueueTrouble]:
    ready = conditions.get("Ready", _NOT_REPORTED)
    severity = _severity_of_ready(ready)
    if severity is not Severity.FINE:
        yield _trouble(severity, ready)
    waits_for_brokers = conditions.get("Held", {}).get("status") == "True"
    if is_late(late_seconds) and severity is not Severity.BAD and not waits_for_brokers:
        words = f"A message has been due for more than {LATE_SECONDS} s."
        yield QueueTrouble(Severity.BAD, "Late", words)
    for kind, said in conditions.items():
        if kind not in ("Ready", "Stalled") and said.get("status") == "True":
            is_lost = kind == "RecordsLost"
            yield _trouble(Severity.BAD if is_lost else Severity.WATCH, said)


def _severity_of_ready(ready: RawObject) -> Severity:
    if ready.get("status") == "True":
        return Severity.FINE
    if ready.get("reason") in _PASSING:
        return Severity.WATCH
    return Severity.BAD if ready.get("status") == "False" else Severity.UNKNOWN


def _trouble(severity: Severity, said: RawObject) -> QueueTrouble:
    return QueueTrouble(severity, str(said.get("reason")), str(said.get("message")))
