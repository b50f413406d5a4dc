"""A producer and a consumer in memory, for the order of calls and what errors lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition

from tidegate.forwarder.level import Level
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.outbox import Outbox
from tidegate.forwarder.settings import MOST_RECORDS, ForwarderSettings
from tidegate.forwarder.targets import Targets
from tidegate.queues.names import Guarantee, LevelTopic, QueueNames
from tidegate.queues.position import PositionNote, parse_note

TARGET, DEAD = "target", "shop.dead"


@dataclass
class Message:
    """A record, as confluent-kafka has it."""

    at: int
    appended_ms: int = 0
    headers_: list[tuple[str, bytes | None]] | None = None
    size: int = 1
    kind: int = TIMESTAMP_LOG_APPEND_TIME

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.appended_ms

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def value(self) -> bytes:
        return b"v" * self.size

    def key(self) -> None:
        return None

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return TARGET


@dataclass(eq=False)
class Sent:
    topic: str
    headers: list[tuple[str, bytes | None]]
    report: Callable[[Any, Any], None]

    @property
    def due_ms(self) -> int:
        return int(dict(self.headers)["tidegate-due"] or b"")


@dataclass
class ProducerTwin:
    """Reports what a test answers, at the next poll."""

    open: list[Sent] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    room: int = 10**9
    answers: list[tuple[Sent, int | None]] = field(default_factory=list)

    def produce(
        self, topic: str, value: bytes, key: Any, *, on_delivery: Any, headers: Any
    ) -> None:
        if len(self.open) >= self.room:
            raise BufferError
        one = Sent(topic, headers, on_delivery)
        self.open.append(one)
        self.sent.append(one)

    def answer(self, which: Sequence[int], error: int | None = None) -> None:
        """Records that are on their way, by their place, have arrived or not."""
        chosen = {self.open[place]: None for place in which}
        self.open = [one for one in self.open if one not in chosen]
        self.answers += [(one, error) for one in chosen]

    def answer_all(self, error: int | None = None) -> None:
        self.answer(range(len(self.open)), error)

    def poll(self, _seconds: float) -> int:
        answers, self.answers = self.answers, []
        for one, error in answers:
            one.report(None if error is None else KafkaError(error), _Of(one.topic))
        return len(answers)


@dataclass(frozen=True)
class _Of:
    name: str

    def topic(self) -> str:
        return self.name


@dataclass
class ConsumerTwin:
    waiting: list[Message] = field(default_factory=list)
    commits: list[TopicPartition] = field(default_factory=list)

    def consume(self, most: int, _timeout: float) -> list[Message]:
        got, self.waiting = self.waiting[:most], self.waiting[most:]
        return got

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.commits += offsets

    @property
    def committed(self) -> list[int]:
        return [one.offset for one in self.commits]

    @property
    def note(self) -> PositionNote:
        return parse_note(self.commits[-1].metadata)


def level(number: int = 0, *, records: int = 0, size: int = 1) -> Level:
    """A level of one second with so many records, all appended at 0."""
    consumer = ConsumerTwin([Message(at, size=size) for at in range(records)])
    place = LevelTopic("shop", 1, number)
    return Level(place, consumer, 0, PositionNote(), 1, _read_most=MOST_RECORDS)


def outbox(producer: ProducerTwin) -> Outbox:
    settings = ForwarderSettings(QueueNames("shop"), Guarantee.AT_LEAST_ONCE, ("*",), TARGET, {})
    targets = Targets(settings, now_seconds=lambda: 0.0)
    targets.list(frozenset({TARGET, DEAD}))
    return Outbox(producer, targets, ForwarderMetrics(), lambda: True)
