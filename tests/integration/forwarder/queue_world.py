"""A queue on real brokers, with what producers, readers and forwarders do with it in tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lab.kafka import BrokersLab
from lab.process import patience, wait_until
from tests.doubles.membership import FixedMembership
from tidegate.forwarder.brokers import Brokers
from tidegate.forwarder.forwarder import Forwarder, forward
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.settings import ForwarderSettings
from tidegate.queues.names import TARGET_HEADER, Guarantee, QueueNames
from tidegate.queues.position import PositionNote, parse_note

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Record:
    """A record as it arrived."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int

    def header(self, name: str) -> bytes | None:
        found = [value for key, value in self.headers if key == name]
        return found[-1] if found else None


@dataclass
class QueueWorld:
    """A queue of its own prefix; `delays` has its levels with their number of topics."""

    kafka: BrokersLab
    prefix: str
    guarantee: Guarantee
    names: QueueNames = field(init=False)
    metrics: ForwarderMetrics = field(default_factory=ForwarderMetrics)
    _producer: Producer | None = None
    _positions: Consumer | None = None

    def __post_init__(self) -> None:
        self.names = QueueNames(self.prefix)

    @property
    def target(self) -> str:
        return f"{self.prefix}-target"

    def create(self, delays: Mapping[int, int] | None = None, *, partitions: int = 3) -> list[str]:
        """The topics of the queue and its default target; returns the level topics."""
        levels = [
            self.names.level_topic(seconds, number).name
            for seconds, count in (delays or {1: 1}).items()
            for number in range(count)
        ]
        for name in levels:
            self.topic(name, config=APPEND_TIME)
        self.topic(self.names.control_topic, config={**APPEND_TIME, "cleanup.policy": "compact"})
        self.topic(self.names.dead_topic)
        self.topic(self.target, partitions=partitions, config=APPEND_TIME)
        return levels

    def topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        ids = [broker.broker_id for broker in self.kafka.brokers]
        assignment = [[ids[number % len(ids)]] for number in range(partitions)]
        self.kafka.create_topic(name, assignment, config=config)
        return name

    def topic_again(self, name: str, *, config: Mapping[str, str] | None = None) -> None:
        """Make a topic that was just deleted: brokers delete it a little after their answer."""

        def is_made() -> bool:
            try:
                self.topic(name, config=config)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        wait_until(is_made, f"the end of the first topic {name}", timeout_seconds=60)

    def settings(self, **changes: Any) -> ForwarderSettings:
        return ForwarderSettings(
            **{
                "names": self.names,
                "guarantee": self.guarantee,
                "allowed": (f"{self.prefix}-*", "missing-*"),
                "default_target": self.target,
                "client": {"bootstrap.servers": self.kafka.bootstrap_servers},
                **changes,
            }
        )

    def send(
        self,
        level: str,
        values: Sequence[bytes | None],
        *,
        key: Callable[[int], bytes | None] = lambda _: None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        target: str | bytes | None = None,
    ) -> None:
        """Write records to a level topic, in order."""
        producer = self._producer = self._producer or Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        given = list(headers)
        if target is not None:
            given.append((TARGET_HEADER, target.encode() if isinstance(target, str) else target))
        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(level, value, key(number), partition=0, headers=given)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert not producer.flush(patience(30))

    @contextmanager
    def reading(self, topic: str | None = None) -> Iterator[Reader]:
        reader = Reader(self, topic or self.target)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def forwarding(
        self,
        member: str = "one",
        *,
        membership: FixedMembership | None = None,
        brokers: Callable[[ForwarderSettings], Brokers] = Brokers,
        starts_again: bool = False,
        **changes: Any,
    ) -> Iterator[Running]:
        """A forwarder in a thread of this process, until the block is left.

        It is one member, or with `starts_again` a new one whenever that ends, as the command is.
        """
        settings = self.settings(**changes)
        found = membership or FixedMembership(member)
        run: Callable[[threading.Event], None] = (
            partial(forward, FixedMembership, member, settings, self.metrics)
            if starts_again
            else Forwarder(settings, found, self.metrics, brokers=brokers(settings)).run
        )
        running = Running(run, found)
        running.thread.start()
        try:
            yield running
        finally:
            running.stop.set()
            running.thread.join(patience(60))
        assert not running.thread.is_alive()

    def position(self, level: str) -> tuple[int, PositionNote]:
        """The committed offset and its note."""
        consumer = self._positions = self._positions or Consumer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": self.names.group}
        )
        found = consumer.committed([TopicPartition(level, 0)], patience(20))[0]
        return found.offset, parse_note(found.metadata)

    def coordinator(self) -> int:
        """The broker that keeps the positions."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        group = self.names.group
        found = admin.describe_consumer_groups([group], request_timeout=patience(20))[group]
        return int(found.result(patience(20)).coordinator.id)


class Running:
    """A forwarder's thread; `failure` is the error that ended it."""

    def __init__(self, run: Callable[[threading.Event], None], membership: FixedMembership) -> None:
        self.membership = membership
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(run,), daemon=True)

    def _run(self, run: Callable[[threading.Event], None]) -> None:
        try:
            run(self.stop)
        except BaseException as error:
            self.failure = error


class Reader:
    """Reads a topic from its start, committed records only."""

    def __init__(self, world: QueueWorld, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": world.kafka.bootstrap_servers,
                "group.id": f"{world.prefix}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 10,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=patience(20)).topics[topic]
        self._consumer.assign([TopicPartition(topic, p, 0) for p in partitions.partitions])
        self.records: list[Record] = []

    def read(self, seconds: float = 0.1) -> list[Record]:
        """What has come since the last call."""
        got = [
            Record(
                m.topic(),
                m.partition(),
                m.offset(),
                m.key(),
                m.value(),
                m.headers() or [],
                m.timestamp()[1],
            )
            for m in self._consumer.consume(5000, seconds)
            if m.error() is None
        ]
        self.records += got
        return got

    def until(self, count: int, *, timeout_seconds: float = 30.0) -> list[Record]:
        """All records, once there are so many."""
        wait_until(
            lambda: bool(self.read() or True) and len(self.records) >= count,
            f"{count} records (now {len(self.records)})",
            timeout_seconds=timeout_seconds,
        )
        return self.records

    def settled(self, *, quiet_seconds: float = 2.0) -> list[Record]:
        """All records, once nothing has come for a while."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < quiet_seconds:
            if self.read(0.2):
                quiet_since = time.monotonic()
        return self.records

    def close(self) -> None:
        self._consumer.close()
