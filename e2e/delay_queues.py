"""Producers and readers of a delay queue. Times are the brokers': those at which they appended."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from lab.kafka import BrokersLab
from lab.process import patience, wait_until

_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_DUE_HEADER, _TARGET_HEADER = "tidegate-due", "tidegate-target"


@dataclass(frozen=True)
class Arrival:
    """A record in the target: `number` within its level topic, and when it was due."""

    level: str
    number: int
    at_ms: int
    due_ms: int


@dataclass
class Traffic:
    """Numbered records of the queue `prefix`, whose default target is `target`.

    `due_ms` has every record that a broker took: level topic and number -> when it is due.
    """

    kafka: BrokersLab
    prefix: str
    due_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._servers = {"bootstrap.servers": self.kafka.bootstrap_servers}
        self._producer = Producer({**self._servers, "enable.idempotence": True, "linger.ms": 5})
        self.kafka.create_topic(self.target, assignment=[[1, 2]], config=_APPEND_TIME)

    @property
    def target(self) -> str:
        """The topic of what is due."""
        return f"{self.prefix}-due"

    def level(self, seconds: int, number: int = 0) -> str:
        """The name of a level topic."""
        return f"{self.prefix}.{seconds}.{number}"

    def write(self, level: str, count: int) -> None:
        """Write so many records; return once brokers have them all."""
        for _ in range(count):
            self._send(level)
        self._flush()

    def write_elsewhere(self, level: str, target: str) -> None:
        """Write one record to a target of its own."""
        self._producer.produce(level, b"elsewhere", headers={_TARGET_HEADER: target}, partition=0)
        self._flush()

    @contextmanager
    def flowing(self, levels: Sequence[str], *, every_seconds: float = 0.1) -> Iterator[None]:
        """Write a record to each of these topics again and again until the block is left."""
        ended = threading.Event()

        def flow() -> None:
            while not ended.wait(every_seconds):
                for level in levels:
                    self._send(level)
                self._producer.poll(0)

        thread = threading.Thread(target=flow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._flush()

    def arrivals(self) -> list[Arrival]:
        """Everything in the target by now, as consumers of committed records get it.

        While records flow in, a reader never comes to the end of the topic: what is there when it
        begins is enough.
        """
        settings = {
            **self._servers,
            "group.id": "e2e",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        partition = TopicPartition(self.target, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=patience(20))
        consumer.assign([partition])
        found: list[Arrival] = []
        try:
            while True:
                message = consumer.poll(patience(20))
                assert message is not None, f"{self.target} has not been read to its end"
                error = message.error()
                if error is None:
                    found.append(_arrival(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue
                if error is not None or message.offset() >= end - 1:
                    return found
        finally:
            consumer.close()

    def wait_for_all(self, *, timeout_seconds: float) -> None:
        """Return once everything written so far has arrived."""
        written = set(self.due_ms)
        arrived = partial(self._have_arrived, written)
        wait_until(
            arrived,
            f"the {len(written)} records of {self.prefix}",
            timeout_seconds=timeout_seconds,
            poll_seconds=1.0,
        )

    def judge(self, *, exactly_once: bool) -> None:
        """AssertionError if a record was lost, early, out of order, or more often than promised."""
        assert self._refused == []
        arrivals = self.arrivals()
        times = Counter((one.level, one.number) for one in arrivals)
        assert self.due_ms.keys() - times.keys() == set()
        assert times.keys() - self.due_ms.keys() == set()
        assert [one for one in arrivals if one.due_ms != self.due_ms[one.level, one.number]] == []
        assert [one for one in arrivals if one.at_ms < one.due_ms] == []
        if exactly_once:
            assert [record for record, count in times.items() if count > 1] == []
        first = list(dict.fromkeys((one.level, one.number) for one in arrivals))
        for level in self._counts:
            numbers = [number for of, number in first if of == level]
            assert numbers == sorted(numbers), level
        late_ms = sorted(one.at_ms - one.due_ms for one in arrivals)
        print(
            f"{self.prefix}: {len(times)} records, {len(arrivals) - len(times)} repeated; "
            f"half of them late by {late_ms[len(late_ms) // 2]} ms, at most {late_ms[-1]} ms"
        )

    def _have_arrived(self, written: set[tuple[str, int]]) -> bool:
        return written <= {(one.level, one.number) for one in self.arrivals()}

    def _send(self, level: str) -> None:
        number = self._counts[level]
        self._counts[level] += 1
        taken = partial(self._taken, level, number)
        self._producer.produce(level, f"{level} {number}", partition=0, on_delivery=taken)

    def _taken(self, level: str, number: int, error: KafkaError | None, message: Message) -> None:
        kind, at_ms = (None, 0) if error is not None else message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            self._refused.append(f"{level} {number}: {error or 'not of append time'}")
            return
        self.due_ms[level, number] = at_ms + int(level.split(".")[-2]) * 1000

    def _flush(self) -> None:
        assert self._producer.flush(patience(30)) == 0


def _arrival(message: Any) -> Arrival:
    level, _, number = message.value().decode().partition(" ")
    headers = dict(message.headers() or ())
    kind, at_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    return Arrival(level, int(number), at_ms, int(headers[_DUE_HEADER]))
