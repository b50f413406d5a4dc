"""One level topic that this process forwards: what was read of it, and how far it is sent."""

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from typing import Any

import structlog
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidegate.forwarder.settings import MOST_RECORDS
from tidegate.queues.names import LevelTopic
from tidegate.queues.position import PositionNote
from tidegate_logic.queues.due import count_due, due_times, next_look_ms

log = structlog.get_logger(__name__)

_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_TIMEOUT_SECONDS = 5.0
_LATE_SAMPLES = 1000
_LEAVING_MS = 10.0
_LOOK_AGAIN_MS = 50.0
_NOT_KNOWN_MS = 10_000.0  # before it is an error that cancellations are not known
_FEW_RECORDS = 128
# A topic that is sent as fast as it is read is looked at again so soon, for so long after its last
# records: librdkafka needs some milliseconds to fetch more.
_FETCHING_MS, _FETCHED_WITHIN_MS = 5.0, 500.0
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1000.0, 30_000.0


@dataclass(slots=True)
class Level:
    """The records of a level topic from the first one that is not committed yet.

    Going back to the last commit means to send `messages` again from the start: nothing is read
    twice. `position` is the offset to commit when nothing more is sent, `sent` the number of
    messages that are with the producer. Times are the brokers', in ms.
    """

    topic: LevelTopic
    consumer: Consumer
    position: int
    note: PositionNote
    read_ahead_bytes: int
    messages: list[Any] = field(default_factory=list)
    due_ms: list[int] = field(default_factory=list)
    sent: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    """Offsets of records that their target refused, with why: they go to the dead topic."""
    unreadable: set[int] = field(default_factory=set)
    """Offsets of records whose headers must not be asked for again."""
    careful_until: int = -1
    """Up to this offset records are sent one by one, to find the one that is refused."""
    stopped_until_ms: float = 0.0
    is_leaving: bool = False
    newly_lost: int = 0
    committed: tuple[object, ...] = ()
    committed_at_ms: float = 0.0
    _late_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_LATE_SAMPLES))
    _last_due_ms: int = 0
    _read_most: int = _FEW_RECORDS
    _read_at_ms: float = 0.0
    _has_found: bool = False
    """Whether the last read found records: when they are sent, others may have fallen due."""
    _pause_ms: float = _FIRST_PAUSE_MS

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def delay_ms(self) -> int:
        return self.topic.delay_seconds * 1000

    @property
    def is_careful(self) -> bool:
        """Whether the next record is to be sent alone."""
        return self.sent < len(self.messages) and (
            self.messages[self.sent].offset() < self.careful_until
        )

    def start(self) -> None:
        """Read from the position on."""
        self.consumer.assign([TopicPartition(self.name, 0, self.position)])

    def read_with(self, consumer: Consumer, read_ahead_bytes: int) -> None:
        """Read on with another consumer, whose memory is bounded otherwise."""
        self.consumer.close()
        self.consumer, self.read_ahead_bytes = consumer, read_ahead_bytes
        consumer.assign([TopicPartition(self.name, 0, self.offset_after(len(self.messages)))])

    def close(self) -> None:
        """Read no more."""
        self.consumer.close()

    def count_due(self, now_ms: float) -> int:
        """Up to which message all are due, at most a full chunk after those that are sent.

        It reads on when everything that was read is sent.
        """
        if now_ms < self.stopped_until_ms or self.is_leaving:
            return self.sent
        if self.sent == len(self.messages):
            self._read(now_ms)
        most = self.sent + (1 if self.is_careful else MOST_RECORDS)
        return min(most, count_due(self.due_ms, now_ms, start=self.sent))

    def next_ms(self, now_ms: float) -> float:
        """When to look at it again."""
        if now_ms < self.stopped_until_ms:
            return self.stopped_until_ms
        if self.is_leaving:
            return now_ms + _LEAVING_MS
        if self.sent < len(self.messages):
            return self.due_ms[self.sent]
        if self._has_found:
            return now_ms
        if self._read_most == MOST_RECORDS and now_ms - self._read_at_ms < _FETCHED_WITHIN_MS:
            return now_ms + _FETCHING_MS
        return next_look_ms(now_ms, self.delay_ms)

    def offset_after(self, count: int) -> int:
        """The position once the first `count` messages are committed."""
        return self.messages[count - 1].offset() + 1 if count else self.position

    def commit(self, count: int, *, dead: int) -> None:
        """Forget the first `count` messages, which arrived, `dead` of them in the dead topic."""
        self.position = self.offset_after(count)
        del self.messages[:count], self.due_ms[:count]
        self.sent -= count
        self.refused = {at: why for at, why in self.refused.items() if at >= self.position}
        self.unreadable = {at for at in self.unreadable if at >= self.position}
        if self.note.error or dead:
            self.note = replace(self.note, error="", dead=self.note.dead + dead)
        self._pause_ms = _FIRST_PAUSE_MS

    def note_sent(self, count: int, now_ms: float) -> None:
        """The next `count` messages are with the producer."""
        due = islice(self.due_ms, self.sent, self.sent + count, max(1, count // 16))
        self._late_ms.extend(max(0, int(now_ms - at)) for at in due)
        self.sent += count

    def go_back(self) -> None:
        """Send again what is not committed."""
        self.sent = 0

    def stop_for_a_while(self, error: str, now_ms: float) -> None:
        """Go back and wait, longer each time, until something was committed again."""
        self.go_back()
        self.note = self.note.with_error(error)
        self.stopped_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, _LONGEST_PAUSE_MS)
        log.warning(
            "level stopped, goes back to its last commit and tries again",
            topic=self.name,
            error=error,
            position=self.position,
        )

    def wait_for_cancellations(self, now_ms: float) -> None:
        """Look again soon: it is not known yet whether the next message was cancelled."""
        self.stopped_until_ms = now_ms + _LOOK_AGAIN_MS
        if now_ms - self.due_ms[self.sent] > _NOT_KNOWN_MS:
            self.note = self.note.with_error(
                f"topic {self.topic.prefix}.cancelled cannot be read; messages with an id wait"
            )

    def describe(self, owner: str, clock_ms: int) -> None:
        """Bring what the note tells of this process up to date."""
        if late := sorted(self._late_ms):
            self._late_ms.clear()
            p50, p99 = (late[int((len(late) - 1) * share)] for share in (0.5, 0.99))
            self.note = replace(self.note, late_ms=(p50, p99, late[-1]))
        self.note = replace(self.note, owner=owner, clock_ms=clock_ms)

    def offset(self, *, after: int = 0) -> TopicPartition:
        """The position after so many messages with its note, as it is committed."""
        return TopicPartition(self.name, 0, self.offset_after(after), self.note.text())

    def _read(self, now_ms: float) -> None:
        got = self.consumer.consume(self._read_most, 0)
        messages = [message for message in got if message.error() is None]
        self._has_found = bool(messages)
        if messages:
            appended = (_append_ms(message, now_ms) for message in messages)
            due = due_times(appended, self.delay_ms, after_ms=self._last_due_ms)
            self._last_due_ms = due[-1]
            self.messages += messages
            self.due_ms += due
            # what is not due costs less memory in librdkafka's queue than here
            self._read_most = MOST_RECORDS if due[-1] <= now_ms else _FEW_RECORDS
            self._read_at_ms = now_ms
        if len(messages) != len(got):
            for error in {m.error().code(): m.error() for m in got if m.error()}.values():
                self._failed(error)

    def _failed(self, error: Any) -> None:
        if error.code() in _OUT_OF_RANGE:
            self._skip_lost()
        else:
            self.note = self.note.with_error(error.str())
            log.warning("level topic cannot be read", topic=self.name, error=error.str())

    def _skip_lost(self) -> None:
        """Go on at the log's start after retention deleted records that were not read.

        Where the log ends before the position, it is another log or was cut off: then records may
        come twice rather than not at all.
        """
        read_to = self.offset_after(len(self.messages))
        try:
            first, end = self.consumer.get_watermark_offsets(
                TopicPartition(self.name, 0), timeout=_TIMEOUT_SECONDS, cached=False
            )
        except KafkaException as error:
            log.warning("start of the log is unknown", topic=self.name, error=str(error))
            self.consumer.assign([TopicPartition(self.name, 0, read_to)])  # fails again, later
            return
        lost = max(0, first - read_to)
        log.error(
            "records were deleted before they were due",
            topic=self.name,
            lost=lost,
            position=read_to,
            log_start=first,
            log_end=end,
        )
        self.note = replace(self.note, lost=self.note.lost + lost)
        self.newly_lost += lost
        if not self.messages:
            self.position = first
        self.consumer.assign([TopicPartition(self.name, 0, first)])


def _append_ms(message: Any, now_ms: float) -> int:
    """When a record was appended.

    Where the topic keeps its producers' times, nobody knows: at the latest when it was read. Such a
    record may be late after a change of its forwarder, but it is never early.
    """
    kind, at_ms = message.timestamp()
    return int(at_ms) if kind == TIMESTAMP_LOG_APPEND_TIME else ceil(now_ms)
