"""Messages with a due time of their own: from topic to topic, never early, and little late."""

from __future__ import annotations

import random
import time

import pytest

from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.queues.names import DUE_HEADER, REASON_HEADER

pytestmark = pytest.mark.integration

_HOPS = {1: 2, 2: 1, 4: 1}


@pytest.fixture
def first(queue: QueueWorld) -> str:
    """The topic that producers write to; the queue has its topics."""
    queue.create(_HOPS, partitions=1)
    return queue.names.level_topic(1, 0).name


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_each_arrives_once_at_its_time_in_whatever_order_they_were_sent(
    queue: QueueWorld, first: str
) -> None:
    chosen = random.Random(7)
    # later where a hop takes seconds, so that most are not yet due after one
    latest_ms = int(min(patience_ms(8000), 40_000))
    with queue.reading() as reader, queue.forwarding(hop_topics=_HOPS):
        wanted = {}
        for number in range(60):
            due_ms = now_ms() + chosen.randrange(0, latest_ms)
            wanted[b"%d" % number] = due_ms
            queue.send(first, [b"%d" % number], headers=[(DUE_HEADER, b"%d" % due_ms)])
        begun_ms = now_ms()
        reader.until(len(wanted), timeout_seconds=100)
        arrived = {record.value: record for record in reader.settled()}
    assert len(reader.records) == len(wanted)
    assert arrived.keys() == wanted.keys()
    for value, record in arrived.items():
        due_ms = wanted[value or b""]
        assert record.header(DUE_HEADER) == b"%d" % due_ms
        assert record.timestamp_ms >= due_ms
        # the first topic takes a second in any case, and the shortest wait is one as well
        assert record.timestamp_ms < max(due_ms, begun_ms) + patience_ms(2500)
    hops = sum(queue.metrics.hops.labels(seconds)._value.get() for seconds in _HOPS)
    assert hops > len(wanted)
    assert queue.metrics.forwarded.labels(1)._value.get() <= len(wanted)


def patience_ms(quiet_ms: int) -> float:
    from lab.process import patience

    return patience(quiet_ms / 1000) * 1000


def test_a_due_time_that_is_no_number_goes_to_the_dead_topic_and_a_past_one_is_due(
    queue: QueueWorld, first: str
) -> None:
    with (
        queue.reading() as reader,
        queue.reading(queue.names.dead_topic) as dead,
        queue.forwarding(hop_topics=_HOPS),
    ):
        queue.send(first, [b"tomorrow"], headers=[(DUE_HEADER, b"tomorrow")])
        queue.send(first, [b"past"], headers=[(DUE_HEADER, b"1000")])
        queue.send(first, [b"none"])
        reader.until(2)
        dead.until(1)
        assert [record.value for record in reader.records] == [b"past", b"none"]
        assert (dead.records[0].header(REASON_HEADER) or b"").startswith(b"InvalidDue: ")


def test_without_hops_the_header_has_no_meaning(queue: QueueWorld, first: str) -> None:
    later = now_ms() + 3_600_000
    with queue.reading() as reader, queue.forwarding():
        queue.send(first, [b"x"], headers=[(DUE_HEADER, b"%d" % later)])
        (record,) = reader.until(1)
        assert int(record.header(DUE_HEADER) or 0) < later
