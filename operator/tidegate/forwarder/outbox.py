"""Records of a level go to the producer here, and what became of them comes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.forwarder.cancellations import Cancellations
from tidegate.forwarder.level import Level
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.settings import MOST_RECORDS
from tidegate.forwarder.targets import DeadReason, Targets
from tidegate.queues.names import DUE_HEADER, ID_HEADER, REASON_HEADER, TARGET_HEADER

_OF_TARGET = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION})
# Of a broker that has just started, it says nothing: a listing tells whether the topic is missing.
_UNKNOWN = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_OF_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_FATAL = frozenset({KafkaError._FATAL, KafkaError._FENCED})
_LISTING_MS = 20.0  # until a listing of topics that was asked for is looked at
_OF_ABORT = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


_Headers = list[tuple[str, bytes | None]]


class StartAgain(Exception):
    """This process is no longer the member that it was: it starts again with another name."""


class Chunk:
    """Records of one level that were given to the producer together."""

    __slots__ = (
        *("cancelled", "count", "dead", "failures", "hops", "is_full", "left"),
        *("level", "opened_ms", "size_bytes"),
    )

    def __init__(self, level: Level, opened_ms: float) -> None:
        self.level = level
        self.opened_ms = opened_ms
        self.count = self.left = self.cancelled = self.hops = self.size_bytes = 0
        self.is_full = False
        self.dead: list[DeadReason] = []
        self.failures: list[Failure] = []

    def done(self, error: Any, message: Any) -> None:
        """The delivery report of one record."""
        self.left -= 1
        if error is not None:
            self.failures.append(Failure(error, message.topic()))

    @property
    def has_failed(self) -> bool:
        """Whether a record of it did not arrive for a reason of its own."""
        return any(failure.error.code() not in _OF_ABORT for failure in self.failures)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record did not arrive. `topic` is where it was sent; None = it is not known."""

    error: Any
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Outbox:
    """Gives records of levels to the producer, each to its target or to the dead topic."""

    producer: Producer
    targets: Targets
    metrics: ForwarderMetrics
    has_new_listing: Callable[[], bool]
    """Whether topics were listed so lately that a missing one is missing; if not, it asks."""
    cancellations: Cancellations | None = None
    """None = the queue's messages cannot be cancelled."""

    def put(self, level: Level, end: int, now_ms: float, *, most_bytes: int) -> Chunk:
        """Give `level.messages[level.sent:end]` to the producer, in order.

        It stops early at `most_bytes`, at a full producer, and where a target has to be looked for.
        The chunk has what was taken.
        """
        chunk, start = Chunk(level, now_ms), level.sent
        judge, produce, report = self.targets.judge, self.producer.produce, chunk.done
        cancellations = self.cancellations
        size = 0
        headers: _Headers
        for index in range(start, end):
            message = level.messages[index]
            if level.unreadable and message.offset() in level.unreadable:
                headers, key, due, verdict = [], None, None, self.targets.unreadable
            else:
                try:
                    headers, target, key, due = _headers_of(message)
                    verdict = judge(target)
                except (SystemError, UnicodeDecodeError):  # as confluent-kafka says it
                    headers, key, due, verdict = [], None, None, self.targets.unreadable
                    # its answer to a second call has a hole, which ends the process
                    level.unreadable.add(message.offset())
            if cancellations is not None and key is not None:
                if not cancellations.is_known(level.due_ms[index]):
                    level.wait_for_cancellations(now_ms)
                    break
                if cancellations.has(key):
                    chunk.count += 1
                    chunk.cancelled += 1
                    continue
            hop = self.targets.hop(due, message.offset(), now_ms)
            if hop is not None and verdict.reason in (None, DeadReason.NOT_FOUND):
                verdict = hop
            if verdict.reason is DeadReason.NOT_FOUND and not self.has_new_listing():
                level.stopped_until_ms = now_ms + _LISTING_MS
                break
            if level.refused and (why := level.refused.get(message.offset())) is not None:
                verdict = self.targets.dead(DeadReason.REFUSED, why)
            own_due = due if self.targets.hops else None
            headers.append((DUE_HEADER, own_due or b"%d" % level.due_ms[index]))
            if verdict.reason is not None:
                headers.append((REASON_HEADER, verdict.explanation.encode()))
            value = message.value()
            try:
                produce(verdict.topic, value, message.key(), on_delivery=report, headers=headers)
            except BufferError:
                break
            except KafkaException as failed:  # before it was queued: there is no report of it
                chunk.failures.append(Failure(failed.args[0], verdict.topic))
                break
            if verdict.reason is not None:
                chunk.dead.append(verdict.reason)
            chunk.hops += verdict is hop and verdict.reason is None
            chunk.count += 1
            size += len(value or b"")
            if size >= most_bytes:
                break
        chunk.left, chunk.size_bytes = chunk.count - chunk.cancelled, size
        chunk.is_full = chunk.count >= MOST_RECORDS or size >= most_bytes
        self.metrics.late.observe(
            level.topic.delay_seconds, level.due_ms[start : start + chunk.count], now_ms
        )
        level.note_sent(chunk.count, now_ms)
        return chunk

    def arrived(self, chunk: Chunk) -> None:
        """The chunk's records are where they belong, for good; they are the first of its level."""
        level = chunk.level
        arrived = chunk.count - chunk.cancelled - chunk.hops
        self.metrics.hops.labels(level.topic.delay_seconds).inc(chunk.hops)
        self.metrics.forwarded.labels(level.topic.delay_seconds).inc(arrived)
        self.metrics.cancelled.labels(level.topic.delay_seconds).inc(chunk.cancelled)
        for reason in chunk.dead:
            self.metrics.dead.labels(reason).inc()
        level.commit(chunk.count, dead=len(chunk.dead))

    def recover(
        self, level: Level, failures: Sequence[Failure], now_ms: float, *, is_alone: bool
    ) -> None:
        """Go back to the last commit, because records of the level did not arrive.

        What the target refuses is kept from it next time, without a pause. Any other error stops
        the level for a while. `is_alone` tells that the failures are of its next record, and of no
        other. Raises StartAgain for an error that ends the producer.
        """
        sent = max(1, level.sent)
        self.metrics.retries.labels(level.topic.delay_seconds).inc()
        level.go_back()
        found = [one for one in failures if one.error.code() not in _OF_ABORT]
        for one in found:
            if one.error.fatal() or one.error.code() in _FATAL:
                raise StartAgain(one.error.str())
        dead_topic = self.targets.dead_topic
        other = [
            one
            for one in found
            if self.targets.is_own(one.topic or "")
            or one.error.code() not in _OF_TARGET | _OF_RECORD
        ]
        if other:
            if other[0].error.code() in _UNKNOWN:
                self.has_new_listing()  # asks for one
            level.stop_for_a_while(other[0].error.str(), now_ms)
        elif all(one.topic is not None and one.error.code() in _OF_TARGET for one in found):
            for one in found:
                self.targets.refuse(str(one.topic), one.error.str())
        elif found and is_alone:
            why = found[0].error.str()
            level.refused[level.messages[0].offset()] = why
            if found[0].error.code() in _OF_TARGET:  # a transaction's error names no topic
                for topic in {one.topic for one in failures} - {None, dead_topic}:
                    self.targets.refuse(str(topic), why)
        elif found:
            level.careful_until = level.offset_after(sent)


# Where a name is not UTF-8, it returns a list with a hole and an error at the same time. Python's
# own fast path for calls overlooks the error, and the hole ends the process; this call checks.
_raw_headers = methodcaller("headers")


def _headers_of(message: Any) -> tuple[_Headers, bytes | None, bytes | None, bytes | None]:
    """The record's headers without a due time, its target, its id, and its due time.

    Raises SystemError or UnicodeDecodeError for a header whose name is not UTF-8.
    """
    found, target, own_id, due, has_due = _raw_headers(message) or [], None, None, None, False
    for key, value in found:
        if key == TARGET_HEADER:
            target = value if value is not None else b""
        elif key == ID_HEADER:
            own_id = value
        elif key == DUE_HEADER:
            due, has_due = value, True
    if not has_due:
        return list(found), target, own_id, due
    return [header for header in found if header[0] != DUE_HEADER], target, own_id, due
