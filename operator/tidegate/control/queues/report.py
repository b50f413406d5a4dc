"""What a look at DelayQueues is about, and what is reported of each: its status and conditions.

Ready says whether messages are sent on when they are due. What needs attention and stops nothing
has a condition of its own: RecordsLost, ClockWrong and DeadLetters are True while there is some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.control.report.conditions import Truth, Verdict, listed, ready, sentence, shortened
from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import JsonObject
from tidegate.queue_metrics import QueueReading
from tidegate.queues.names import LevelTopic
from tidegate.resources.delay_queue import (
    MAX_DELAYS,
    MAX_SHOWN_FORWARDERS,
    DelayQueueStatus,
    DelayStatus,
    Forwarders,
    ForwarderStatus,
    QueueSummary,
)
from tidegate.resources.policy import PolicySpec
from tidegate_logic.model import Policy
from tidegate_logic.queues.levels import LevelDecision
from tidegate_logic.queues.shift import Pace, Shift
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted, rate_words

if TYPE_CHECKING:  # a policy without queues does without them
    from tidegate.control.queues.forwarders import ForwardersSeen
    from tidegate.kafka.delay_queues import LevelSeen

DRAIN_FINALIZER = "tidegate.io/drain"
STARTING_SECONDS = 120.0  # before a Deployment without an available Pod is an alarm
MOST_CLOCK_MS = 50


@dataclass(frozen=True, slots=True)
class QueueTask:
    """What a look is about: the policy, as it is followed now, and its queues.

    `crowded` are the brokers that have no room for messages that may wait, as of the last pass;
    None = not known.
    """

    policy: Policy
    spec: PolicySpec
    queues: tuple[JsonObject, ...]
    crowded: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class QueueFinding:
    """What one look found of one queue; what it did not come to is left out.

    `held_back` is why the policy lets nothing be changed now, None = it does. `forwarders` None =
    there is no Deployment; `forwarders_trouble` is what keeps it from being as wanted. `shift` is
    what the queue allows and the policy can use, None = nothing; `pace` what was announced to its
    forwarders. `waiting_helps` False = the queue allows what relieves no limit of the policy.
    """

    raw: JsonObject
    prefix: str | None = None
    trouble: TidegateError | None = None
    levels: Mapping[LevelTopic, LevelSeen] = field(default_factory=dict)
    decision: LevelDecision | None = None
    per_second: Mapping[int, float] = field(default_factory=dict)
    dead: int | None = None
    forwarders: ForwardersSeen | None = None
    forwarders_trouble: TidegateError | None = None
    held_back: tuple[Reason, str] | None = None
    shift: Shift | None = None
    pace: Pace | None = None
    waiting_helps: bool = True

    @property
    def is_deleting(self) -> bool:
        return bool(self.raw["metadata"].get("deletionTimestamp"))

    @property
    def waiting(self) -> int | None:
        """Messages that wait; None = not known of every topic."""
        known = [seen.found.waiting for seen in self.levels.values()]
        return None if None in known else sum(one for one in known if one is not None)

    @property
    def oldest_late_seconds(self) -> int | None:
        """How long the oldest of them has been due, 0 if none is; None = not known everywhere."""
        return _late_seconds(self.levels.values())


def status_of(finding: QueueFinding) -> DelayQueueStatus:
    """The status without its conditions."""
    if finding.decision is None:
        return DelayQueueStatus(topic_prefix=finding.prefix)
    by_delay: dict[int, list[LevelSeen]] = {}
    for level, seen in sorted(finding.levels.items()):
        by_delay.setdefault(level.delay_seconds, []).append(seen)
    delays = tuple(
        _delay_status(seconds, topics, finding.per_second.get(seconds))
        for seconds, topics in by_delay.items()
    )
    return DelayQueueStatus(
        topic_prefix=finding.prefix,
        delays=delays[: 2 * MAX_DELAYS],
        forwarders=_forwarders(finding.levels),
        dead=finding.dead,
        summary=QueueSummary(
            waiting=finding.waiting, oldest_late_seconds=finding.oldest_late_seconds
        ),
    )


def reading_of(finding: QueueFinding) -> QueueReading:
    """The figures of a look for metrics; a sum is known only where every part of it is."""
    if finding.decision is None:
        return QueueReading()
    notes = [seen.note for seen in finding.levels.values() if seen.note is not None]
    are_read = finding.waiting is not None and not any(
        seen.problem for seen in finding.levels.values()
    )
    seen = finding.forwarders
    return QueueReading(
        waiting=finding.waiting,
        oldest_late_seconds=finding.oldest_late_seconds,
        lost=sum(_lost_by_topic(finding.levels).values()) if are_read else None,
        dead=finding.dead,
        is_held=finding.pace is not None,
        forwarders_wanted=_wanted_forwarders(finding),
        forwarders_available=0 if seen is None else seen.available,
        clock_ms=max((note.clock_ms for note in notes if note.owner), key=abs, default=None),
    )


def _wanted_forwarders(finding: QueueFinding) -> int:
    """What the Deployment wants; where there is none, what is to be made, if anything may be."""
    if finding.forwarders is not None:
        return finding.forwarders.wanted
    spec = finding.raw["spec"].get("forwarders") or {}
    replicas = int(spec.get("replicas", Forwarders().replicas))
    return replicas if finding.held_back is None else 0


def verdicts_of(finding: QueueFinding) -> tuple[Verdict, ...]:
    """The conditions; those on messages and clocks only where they are known."""
    verdict = _ready(finding)
    if finding.decision is None:
        return (verdict,)
    found = (verdict, _lost(finding.levels), _clocks(finding.levels), _dead(finding))
    wants_to_wait = finding.shift is not None or not finding.waiting_helps
    return (*found, _held(finding)) if wants_to_wait else found


def _delay_status(
    seconds: int, topics: Sequence[LevelSeen], per_second: float | None
) -> DelayStatus:
    known = [seen.found.waiting for seen in topics]
    return DelayStatus(
        seconds=seconds,
        topics=len(topics),
        waiting=None if None in known else sum(one for one in known if one is not None),
        oldest_late_seconds=_late_seconds(topics),
        per_second=None if per_second is None else round(per_second),
    )


def _late_seconds(topics: Iterable[LevelSeen]) -> int | None:
    known = [seen.found.late_seconds for seen in topics]
    return None if None in known else round(max((one or 0.0 for one in known), default=0.0))


def _forwarders(levels: Mapping[LevelTopic, LevelSeen]) -> tuple[ForwarderStatus, ...]:
    owners = Counter(seen.note.owner for seen in levels.values() if seen.note is not None)
    owners.pop("", None)
    shown = sorted(owners.items())[:MAX_SHOWN_FORWARDERS]
    return tuple(ForwarderStatus(name=name[:253], topics=count) for name, count in shown)


# --- Ready ----------------------------------------------------------------------------------------


def _ready(finding: QueueFinding) -> Verdict:
    if finding.trouble is not None:
        return _of_error(finding.trouble)
    decision = finding.decision
    if decision is None:
        return ready(Truth.UNKNOWN, Reason.STARTING, "Not looked at yet")
    if decision.taken:
        return ready(Truth.FALSE, Reason.TOPIC_TAKEN, _taken_words(finding, decision))
    problems = [seen.problem for seen in finding.levels.values() if seen.problem is not None]
    if problems:
        return ready(
            Truth.FALSE, problems[0].reason, listed(sorted({one.message for one in problems}))
        )
    if finding.is_deleting:
        return ready(Truth.FALSE, Reason.DRAINING, _draining_words(finding))
    if finding.held_back is not None and (decision.create or decision.corrections):
        reason, why = finding.held_back
        return ready(Truth.FALSE, reason, f"{why}: {_undone_words(decision)}")
    if finding.forwarders_trouble is not None:
        return _of_error(finding.forwarders_trouble)
    if finding.forwarders is None or finding.forwarders.available == 0:
        return _no_forwarder(finding.forwarders, finding.waiting)
    errors = {
        f"{level.name}: {seen.note.error}"
        for level, seen in finding.levels.items()
        if seen.note is not None and seen.note.error
    }
    if errors:
        return ready(Truth.FALSE, Reason.FORWARDING_FAILS, listed(sorted(errors)))
    if decision.unknown or finding.waiting is None:
        what = (
            "Not every topic's position and settings could be read; those topics stay as they are"
        )
        return ready(Truth.UNKNOWN, Reason.BROKERS_UNREACHABLE, what)
    return ready(Truth.TRUE, Reason.FORWARDING, _forwarding_words(finding, decision))


def _of_error(error: TidegateError) -> Verdict:
    truth = Truth.UNKNOWN if isinstance(error, RetryLater) else Truth.FALSE
    return ready(truth, error.reason, error.message)


def _taken_words(finding: QueueFinding, decision: LevelDecision) -> str:
    texts = [
        f"topic {finding.prefix}.{level.seconds}.{level.number} does not belong to this queue: "
        f"{why}"
        for level, why in decision.taken.items()
    ]
    return (
        f"{listed(texts)}. It is left alone. Delete it if nobody needs it, or use another "
        "spec.topicPrefix; the other topics are forwarded"
    )


def _undone_words(decision: LevelDecision) -> str:
    parts = [
        f"{counted(len(decision.create), 'topic')} to create" if decision.create else "",
        f"{counted(len(decision.corrections), 'topic')} to correct" if decision.corrections else "",
    ]
    return " and ".join(part for part in parts if part)


def _draining_words(finding: QueueFinding) -> str:
    topics = counted(len(finding.levels), "topic")
    if finding.forwarders_trouble is not None:
        why = f"; forwarders: {finding.forwarders_trouble.message}"
    elif finding.forwarders is None or not finding.forwarders.available:
        why = "; no forwarder is available"
    else:
        why = ""
    waiting = (
        "an unknown number of messages waits"
        if finding.waiting is None
        else f"{counted(finding.waiting, 'message')} waiting"
    )
    return (
        f"The queue is being deleted and drained first: {waiting} in {topics}{why}. To delete it "
        "now and leave its topics as they are, set deletionPolicy to Keep"
    )


def _no_forwarder(seen: ForwardersSeen | None, waiting: int | None) -> Verdict:
    wanted = 0 if seen is None else seen.wanted
    waits = f"; {waiting} messages wait" if waiting else ""
    if seen is None or seen.age_seconds < STARTING_SECONDS:
        return ready(
            Truth.FALSE, Reason.STARTING, f"No forwarder is available yet: 0 of {wanted}{waits}"
        )
    return ready(
        Truth.FALSE,
        Reason.FORWARDERS_MISSING,
        f"No forwarder is available: 0 of {wanted}{waits}. See the Deployment's Pods",
    )


def _forwarding_words(finding: QueueFinding, decision: LevelDecision) -> str:
    seen = finding.forwarders
    pods = "" if seen is None else f"{seen.available} of {seen.wanted} forwarders are available, "
    drained = len(decision.draining) + len(decision.delete)
    also = f"; {counted(drained, 'topic')} of removed delays drained first" if drained else ""
    when = "when they are due" if finding.pace is None else "later than they are due (see Held)"
    return (
        f"Messages are sent on {when}: {pods}{counted(len(finding.levels), 'topic')}, "
        f"{counted(finding.waiting or 0, 'message')} waiting{also}"
    )


# --- what needs attention -------------------------------------------------------------------------


def _lost(levels: Mapping[LevelTopic, LevelSeen]) -> Verdict:
    lost = {name: count for name, count in _lost_by_topic(levels).items() if count}
    if not lost:
        return Verdict(
            "RecordsLost", Truth.FALSE, Reason.FORWARDING, "No message was deleted before its time"
        )
    texts = [f"{count} of topic {name}" for name, count in lost.items()]
    message = (
        f"Kafka deleted {counted(sum(lost.values()), 'message')} before they were sent on "
        f"({listed(texts)}). Raise spec.topics.graceSeconds above the longest outage of forwarders"
    )
    return Verdict("RecordsLost", Truth.TRUE, Reason.RECORDS_LOST, shortened(message))


def _lost_by_topic(levels: Mapping[LevelTopic, LevelSeen]) -> Mapping[str, int]:
    return {
        level.name: seen.found.lost + (0 if seen.note is None else seen.note.lost)
        for level, seen in sorted(levels.items())
    }


def _clocks(levels: Mapping[LevelTopic, LevelSeen]) -> Verdict:
    wrong: dict[str, int] = {}
    for seen in levels.values():
        if seen.note is not None and abs(seen.note.clock_ms) > MOST_CLOCK_MS:
            wrong[seen.note.owner] = seen.note.clock_ms
    if not wrong:
        return Verdict(
            "ClockWrong",
            Truth.FALSE,
            Reason.FORWARDING,
            f"Clocks of forwarders and brokers agree to {MOST_CLOCK_MS} ms",
        )
    texts = [f"{owner} by {ms:+d} ms" for owner, ms in sorted(wrong.items())]
    message = (
        f"Forwarders' clocks differ from the brokers': {listed(texts)}. They correct for that; "
        "synchronize the clocks of these nodes"
    )
    return Verdict("ClockWrong", Truth.TRUE, Reason.CLOCK_WRONG, shortened(message))


def _dead(finding: QueueFinding) -> Verdict:
    if not finding.dead:
        is_unknown = finding.dead is None
        return Verdict(
            "DeadLetters",
            Truth.UNKNOWN if is_unknown else Truth.FALSE,
            Reason.BROKERS_UNREACHABLE if is_unknown else Reason.FORWARDING,
            sentence("their number is unknown" if is_unknown else "every target was accepted"),
        )
    # the end of a transaction takes an offset as a message does
    is_bound = (finding.raw.get("spec") or {}).get("guarantee") == "ExactlyOnce"
    message = (
        f"{'At most ' if is_bound else ''}{counted(finding.dead, 'message')} could not be sent to "
        f"their target and are in {finding.prefix}.dead, each with the reason in its header "
        "tidegate-reason"
    )
    return Verdict("DeadLetters", Truth.TRUE, Reason.DEAD_LETTERS, shortened(message))


def _held(finding: QueueFinding) -> Verdict:
    """Whether due messages wait because brokers have no room."""
    if not finding.waiting_helps:
        message = (
            "The policy limits no broker's egress. Messages that wait were produced already, so "
            "spec.shift relieves no limit on ingress, and holds nothing. Remove it, or set an "
            "egress or combined limit in the policy"
        )
        return Verdict("Held", Truth.FALSE, Reason.SHIFT_CANNOT_HELP, message)
    pace = finding.pace
    if pace is None:
        return Verdict("Held", Truth.FALSE, Reason.FORWARDING, "No due message waits for brokers")
    rate = rate_words(pace.shift.bytes_per_second)
    if pace.over:
        brokers = ", ".join(str(broker) for broker in sorted(pace.over))
        message = (
            f"There is no room on {'broker' if len(pace.over) == 1 else 'brokers'} {brokers}: the "
            "egress is over the limit, or clients are throttled because it was. Due messages wait "
            f"if one of their targets is led there, each for {pace.shift.latest_seconds} s at "
            f"most. Afterwards they are sent at {rate}"
        )
        return Verdict("Held", Truth.TRUE, Reason.BROKERS_OVER_LIMIT, shortened(message))
    message = f"Brokers have room again. Messages that waited are sent at {rate}"
    return Verdict("Held", Truth.TRUE, Reason.SENDING_LATE, message)
