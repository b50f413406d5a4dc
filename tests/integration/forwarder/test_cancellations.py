"""Messages that were cancelled are not sent, and nobody waits for cancellations without an id."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from lab.process import patience, wait_until
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tidegate.forwarder.cancellations import NOTICE_MS, Cancellations
from tidegate.queues.names import ID_HEADER, Guarantee

pytestmark = pytest.mark.integration

_SETTINGS = {**APPEND_TIME, "cleanup.policy": "compact,delete"}


@pytest.fixture
def level(queue: QueueWorld) -> str:
    """A level of the queue, long enough to send and to cancel; it has its topics."""
    seconds = math.ceil(NOTICE_MS / 1000 + patience(0.5))
    topic = queue.topic(queue.names.level_topic(seconds, 0).name, config=APPEND_TIME)
    queue.topic(queue.names.control_topic, config={**APPEND_TIME, "cleanup.policy": "compact"})
    queue.topic(queue.names.dead_topic)
    queue.topic(queue.names.cancelled_topic, config=_SETTINGS)
    queue.topic(queue.target)
    return topic


def write(queue: QueueWorld, keys: Sequence[bytes], value: bytes | None = b"x") -> None:
    """Write ids to the topic of cancellations."""
    queue.send(queue.names.cancelled_topic, [value] * len(keys), key=keys.__getitem__)


def cancelled(queue: QueueWorld, level: str) -> float:
    """How many messages of the level were not sent."""
    return float(queue.metrics.cancelled.labels(seconds_of(level))._value.get())


def seconds_of(level: str) -> int:
    return int(level.rsplit(".", 2)[1])


def send(queue: QueueWorld, level: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        queue.send(level, [b"%d" % number], headers=[(ID_HEADER, b"id-%d" % number)])


def test_a_cancelled_message_is_not_sent_and_all_others_are_in_order(
    queue: QueueWorld, level: str
) -> None:
    write(queue, [b"id-1"])  # before there is a message
    with queue.reading() as reader, queue.forwarding(cancellable=True):
        send(queue, level, range(10))
        queue.send(level, [b"without an id"])
        write(queue, [b"id-4", b"id-9", b"id-7"])
        write(queue, [b"id-7"], None)  # it is wanted after all
        expected = [b"%d" % number for number in range(10) if number not in (1, 4, 9)]
        reader.until(8, timeout_seconds=60)
        assert [one.value for one in reader.settled()] == [*expected, b"without an id"]
        assert cancelled(queue, level) == 3
        wait_until(
            lambda: queue.position(level)[0] >= 11, "the position behind all", timeout_seconds=20
        )


def test_where_cancellations_cannot_be_read_messages_with_an_id_wait_and_others_go_on(
    queue: QueueWorld, level: str
) -> None:
    other = queue.topic(queue.names.level_topic(seconds_of(level), 1).name, config=APPEND_TIME)
    producer = Producer(
        {
            "bootstrap.servers": queue.kafka.bootstrap_servers,
            "transactional.id": queue.prefix,
            "transaction.timeout.ms": 600_000,  # the delay is as much longer as the machine slower
        }
    )
    producer.init_transactions(patience(30))
    producer.begin_transaction()
    producer.produce(queue.names.cancelled_topic, b"x", b"another", partition=0)
    producer.flush(patience(30))  # nobody can read on before it ends
    with queue.reading() as reader, queue.forwarding(cancellable=True):
        send(queue, level, [1])
        write(queue, [b"id-1"])
        queue.send(other, [b"without an id"])
        reader.until(1, timeout_seconds=60)
        assert [one.value for one in reader.settled()] == [b"without an id"]
        producer.commit_transaction(patience(30))
        wait_until(
            lambda: cancelled(queue, level) == 1,
            "the cancellation",
            timeout_seconds=30,
        )
        send(queue, level, [2])
        reader.until(2, timeout_seconds=60)
        assert [one.value for one in reader.records] == [b"without an id", b"2"]


@pytest.mark.parametrize("queue", [Guarantee.AT_LEAST_ONCE], indirect=True, ids=str)
def test_a_million_ids_are_known_within_100_mb(queue: QueueWorld, level: str) -> None:
    keys = [b"order-%036d" % number for number in range(1_000_000)]
    write(queue, keys)
    before = resident_bytes()
    cancellations = Cancellations(queue.settings(), lambda: time.time() * 1000)
    cancellations.start()
    try:
        now_ms = time.time() * 1000
        wait_until(lambda: cancellations.is_known(now_ms), "all ids", timeout_seconds=120)
        assert cancellations.has(keys[0])
        assert cancellations.has(keys[-1])
        assert not cancellations.has(b"order-x")
        assert resident_bytes() - before < 100e6
    finally:
        cancellations.end()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
