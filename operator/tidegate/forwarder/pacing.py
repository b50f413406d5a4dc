"""Due messages wait here while brokers have no room, and leave slowly afterwards.

The operator's word is the newest record `pace` in the control topic. It holds for two minutes from
its append time, so that nothing waits for an operator that is gone. A queue waits as a whole: held
one by one, messages of one level topic would overtake each other. No message waits for longer than
the queue allows, whatever the load.
"""

import time
from collections.abc import Mapping
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidegate.forwarder.level import Level
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.settings import ForwarderSettings, any_client_settings, report
from tidegate.forwarder.targets import Targets
from tidegate.limiter.bucket import Bucket
from tidegate.queues.pace import PACE_KEY, parse_pace
from tidegate_logic.queues.due import count_due
from tidegate_logic.queues.shift import HOLD_SECONDS, Pace

log = structlog.get_logger(__name__)

_NEWEST_RECORDS = -2000 - 5000  # librdkafka's logical offset: the last 5000, most of them clocks
_READ_AT_ONCE = 1000
_FIRST_SECONDS = 10.0  # to read what was announced; later, messages do not wait for that any more
_BURST_SECONDS = 0.1
_DEBT_SECONDS = 60.0  # one message may be larger than a refill


class Pacing:
    """Whether due messages may be sent. One thread at a time may use it."""

    def __init__(
        self, settings: ForwarderSettings, targets: Targets, metrics: ForwarderMetrics
    ) -> None:
        self._targets = targets
        self._metrics = metrics
        self._consumer = Consumer(
            {
                **any_client_settings(settings),
                "group.id": settings.names.group,  # nothing is committed
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 1024,
            }
        )
        place = TopicPartition(settings.names.control_topic, 0, _NEWEST_RECORDS)
        self._consumer.assign([place])
        self._is_at_the_end = False
        self._begun_seconds = time.monotonic()
        self._announced: Pace | None = None
        self._until_ms = float("-inf")
        self._leaders: Mapping[str, frozenset[int]] = {}
        self._is_held = self._has_held = False
        self._bucket: Bucket | None = None

    def list(self, leaders: Mapping[str, frozenset[int]]) -> None:
        """Which brokers lead each topic now."""
        self._leaders = leaders
        self._judge()

    def look(self, now_ms: float, share: float) -> None:
        """Hear what the operator says; this process has a `share` (0 to 1) of the level topics."""
        for message in self._consumer.consume(_READ_AT_ONCE, 0):
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._is_at_the_end = True
                else:
                    report(error)
            elif message.key() == PACE_KEY:
                self._hear(message, now_ms)
        if self._announced is not None and now_ms > self._until_ms:
            log.warning("the operator says nothing any more about when to wait: nothing waits")
            self._announced = None
            self._judge()
        if self._announced is None or self._is_held or not self._has_held or not share:
            self._bucket = None
            return
        rate, now_seconds = self._announced.shift.bytes_per_second * share, time.monotonic()
        if self._bucket is None:
            self._bucket = Bucket(
                rate,
                now_seconds=now_seconds,
                burst_seconds=_BURST_SECONDS,
                debt_seconds=_DEBT_SECONDS,
            )
        elif rate != self._bucket.rate:
            self._bucket.set_rate(rate, now_seconds)
        self._bucket.advance(now_seconds)

    def allowed(self, level: Level, due: int, now_ms: float) -> int:
        """Up to which message of a level may be sent, when those before `due` are due."""
        if not self._is_at_the_end:  # until then, what the operator says is not known
            return level.sent if time.monotonic() - self._begun_seconds < _FIRST_SECONDS else due
        if self._announced is None or (not self._is_held and self._bucket is None):
            return due
        latest_ms = now_ms - self._announced.shift.latest_seconds * 1000
        end = min(due, count_due(level.due_ms, latest_ms, start=level.sent))
        if self._bucket is None:
            return end
        while end < due and self._bucket.tokens > 0:
            self._bucket.take(_size_bytes(level.messages[end]), tier=0)
            end += 1
        return end

    def close(self) -> None:
        """Hear no more."""
        self._consumer.close()

    def _hear(self, message: Any, now_ms: float) -> None:
        _, at_ms = message.timestamp()
        until_ms = at_ms + HOLD_SECONDS * 1000
        announced = parse_pace(message.value()) if until_ms > now_ms else None
        self._until_ms = until_ms
        if announced != self._announced:
            self._announced = announced
            self._judge()

    def _judge(self) -> None:
        """Find out whether the queue waits."""
        over = self._announced.over if self._announced is not None else frozenset()
        was_held, self._is_held = self._is_held, self._leads_target(over)
        # what has waited leaves slowly, until the operator says that nothing is late any more
        self._has_held = self._announced is not None and (
            self._has_held or self._is_held or not self._announced.over
        )
        self._metrics.held.set(self._is_held)
        if was_held != self._is_held:
            words = "due messages wait" if self._is_held else "due messages wait no more"
            log.info(words, brokers_over_limit=sorted(over))

    def _leads_target(self, over: frozenset[int]) -> bool:
        return bool(over) and any(
            not over.isdisjoint(leaders)
            for topic, leaders in self._leaders.items()
            if self._targets.is_possible(topic)
        )


def _size_bytes(message: Any) -> int:
    return len(message.value() or b"") + len(message.key() or b"")
