"""Positions: retention that ate records, take-over, release, and sessions that ended."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from lab.process import patience, wait_until
from tests.doubles.membership import FixedMembership
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tidegate.forwarder.outbox import StartAgain
from tidegate.queues.names import Guarantee
from tidegate.queues.position import PositionNote

pytestmark = pytest.mark.integration


def delete_records(queue: QueueWorld, level: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": queue.kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(level, 0, before)]).values():
        done.result(patience(30))


def test_records_that_retention_deleted_are_counted_and_the_rest_goes_on(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.reading() as reader:
        with queue.forwarding():
            queue.send(level, [b"%d" % n for n in range(10)])
            reader.until(10)
        queue.send(level, [b"%d" % n for n in range(10, 30)])
        end = queue.position(level)[0]
        delete_records(queue, level, end + 15)
        with queue.forwarding():
            records = reader.until(15)
            wait_until(lambda: queue.position(level)[1].lost == 15, "15 lost", timeout_seconds=30)
    assert [int(r.value or b"") for r in sorted(records, key=lambda r: int(r.value or b""))] == [
        *range(10),
        *range(25, 30),
    ]
    assert counted(queue, "lost") == 15
    assert counted(queue, "forwarded") == 15  # none of those that were deleted


def counted(queue: QueueWorld, name: str) -> float | None:
    """What this process' metrics say of the queue's delay of a second."""
    labels = {"delay_seconds": "1"}
    return queue.metrics.registry.get_sample_value(f"tidegate_queue_{name}_total", labels)


@pytest.mark.parametrize("queue", [Guarantee.AT_LEAST_ONCE], indirect=True, ids=str)
def test_what_retention_itself_deleted_while_nobody_was_there_is_counted(
    queue: QueueWorld,
) -> None:
    queue.create({2: 1})
    short = {**APPEND_TIME, "retention.ms": "1000"}
    level = queue.topic(queue.names.level_topic(1, 0).name, config=short)
    admin = AdminClient({"bootstrap.servers": queue.kafka.bootstrap_servers})
    with queue.reading() as reader:
        with queue.forwarding():
            queue.send(level, [b"first"])
            reader.until(1)
        queue.send(level, [b"%d" % n for n in range(20)])
        wait_until(
            lambda: log_start(admin, level) == 21, "retention to delete them", timeout_seconds=60
        )
        with queue.forwarding():
            wait_until(lambda: queue.position(level)[1].lost == 20, "20 lost", timeout_seconds=30)
            queue.send(level, [b"after"])
            assert [r.value for r in reader.until(2)] == [b"first", b"after"]
    assert (counted(queue, "lost"), counted(queue, "forwarded")) == (20, 2)


def log_start(admin: AdminClient, topic: str) -> int:
    """The offset of the oldest record that is left, of the next one where none is."""
    place = TopicPartition(topic, 0)
    found = admin.list_offsets({place: OffsetSpec.earliest()}, request_timeout=patience(10))
    return int(found[place].result(patience(10)).offset)


def test_records_deleted_before_anybody_read_them_are_counted(queue: QueueWorld) -> None:
    (level,) = queue.create()
    queue.send(level, [b"%d" % n for n in range(10)])
    delete_records(queue, level, 4)
    with queue.forwarding(), queue.reading() as reader:
        assert len(reader.until(6)) == 6
    assert queue.position(level)[1].lost == 4


@pytest.mark.parametrize("queue", [Guarantee.AT_LEAST_ONCE], indirect=True, ids=str)
def test_a_level_topic_that_was_made_again_is_read_from_its_start(queue: QueueWorld) -> None:
    """Anyone who deletes it has deleted what waited; what comes later is sent, and nothing of it skipped."""
    (level,) = queue.create()
    with queue.reading() as reader:
        with queue.forwarding():
            queue.send(level, [b"%d" % n for n in range(10)])
            reader.until(10)
        queue.kafka.admin.delete_topic(level)
        queue.topic_again(level, config=APPEND_TIME)
        queue.send(level, [b"%d" % n for n in range(10, 30)])
        with queue.forwarding("two"):
            assert {int(r.value or b"") for r in reader.until(30)} == {*range(30)}
            assert len(reader.settled()) == 30


def test_a_released_level_goes_on_elsewhere(queue: QueueWorld) -> None:
    one, two = queue.create({1: 2})
    first, second = FixedMembership("first"), FixedMembership("second", own=())
    with (
        queue.reading() as reader,
        queue.forwarding(membership=first),
        queue.forwarding(membership=second),
    ):
        for number in range(20):
            queue.send(one, [b"1.%d" % number])
            queue.send(two, [b"2.%d" % number])
            if number == 10:
                first.own = frozenset({one})
                wait_until(lambda: first.released == [two], f"{two} released", timeout_seconds=20)
                second.own = frozenset({two})
        assert len(reader.until(40)) == 40
        assert len(reader.settled()) == 40
        assert queue.position(one)[1].owner == "first"
        assert queue.position(two)[1].owner == "second"


def test_a_lost_session_ends_the_member_and_another_goes_on(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.reading() as reader:
        with queue.forwarding("first") as running:
            queue.send(level, [b"1"])
            reader.until(1)
            running.membership.lost = True
            running.thread.join(patience(30))
        assert isinstance(running.failure, StartAgain)
        with queue.forwarding("second"):
            queue.send(level, [b"2"])
            wait_until(
                lambda: (
                    bool(reader.read() or True) and any(r.value == b"2" for r in reader.records)
                ),
                "the second record",
                timeout_seconds=30,
            )


def test_nothing_is_sent_while_the_session_gives_no_sign(queue: QueueWorld) -> None:
    (level,) = queue.create()
    membership = FixedMembership("one")
    with queue.reading() as reader, queue.forwarding(membership=membership):
        queue.send(level, [b"1"])
        reader.until(1)
        membership.alive = False
        queue.send(level, [b"2"])
        assert len(reader.settled()) == 1
        membership.alive = True
        assert len(reader.until(2)) == 2


def test_a_position_of_a_newer_version_is_left_alone(queue: QueueWorld) -> None:
    one, two = queue.create({1: 2})
    consumer = Consumer(
        {"bootstrap.servers": queue.kafka.bootstrap_servers, "group.id": queue.names.group}
    )
    newer = TopicPartition(one, 0, 0, '{"v":2,"owner":"newer"}')
    consumer.commit(offsets=[newer], asynchronous=False)
    with queue.reading() as reader, queue.forwarding():
        queue.send(one, [b"one"])
        queue.send(two, [b"two"])
        reader.until(1)
        assert [r.value for r in reader.settled()] == [b"two"]
    found = consumer.committed([TopicPartition(one, 0)], patience(10))[0]
    consumer.close()
    assert found.metadata == newer.metadata


@pytest.mark.parametrize("queue", [Guarantee.EXACTLY_ONCE], indirect=True)
def test_taking_over_fences_the_last_owner_and_ends_its_transaction(queue: QueueWorld) -> None:
    """Readers do not wait for the dead owner's transaction to time out."""
    (level,) = queue.create()
    queue.send(level, [b"0", b"1"])
    dead = Producer(
        {
            "bootstrap.servers": queue.kafka.bootstrap_servers,
            "transactional.id": queue.names.transactional_id("dead"),
            "transaction.timeout.ms": 600_000,
        }
    )
    consumer = Consumer(
        {"bootstrap.servers": queue.kafka.bootstrap_servers, "group.id": queue.names.group}
    )
    group = consumer.consumer_group_metadata()
    note = PositionNote(owner="dead").text()
    dead.init_transactions(patience(30))
    dead.begin_transaction()
    dead.send_offsets_to_transaction([TopicPartition(level, 0, 0, note)], group)
    dead.commit_transaction(patience(30))
    dead.begin_transaction()
    dead.produce(queue.target, b"half")
    dead.flush(patience(30))
    dead.send_offsets_to_transaction([TopicPartition(level, 0, 1, note)], group)
    started = time.monotonic()
    with queue.reading() as reader, queue.forwarding("heir"):
        reader.until(2, timeout_seconds=10)
        assert time.monotonic() - started < patience(10)
        assert sorted(r.value or b"" for r in reader.settled()) == [b"0", b"1"]
        assert queue.position(level)[1].owner == "heir"
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        dead.commit_transaction(patience(10))
    consumer.close()


@pytest.mark.parametrize("queue", [Guarantee.EXACTLY_ONCE], indirect=True)
def test_a_fenced_member_stops_and_sends_nothing_more(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.reading() as reader, queue.forwarding("first") as first:
        queue.send(level, [b"1"])
        reader.until(1)
        with queue.forwarding("second"):
            wait_until(
                lambda: queue.position(level)[1].owner == "second",
                "take-over",
                timeout_seconds=30,
            )
            queue.send(level, [b"2", b"3"])
            assert len(reader.until(3)) == 3
            first.thread.join(patience(30))
            assert isinstance(first.failure, StartAgain)
            assert len(reader.settled()) == 3
