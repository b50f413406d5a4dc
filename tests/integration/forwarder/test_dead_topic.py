"""What cannot go to its target goes to the dead topic with the reason, and the rest goes on."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer

from lab.process import patience, wait_until
from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.forwarder.targets import DeadReason
from tidegate.queues.names import DUE_HEADER, REASON_HEADER, TARGET_HEADER, Guarantee

pytestmark = pytest.mark.integration


def test_targets_that_may_not_be_are_refused_each_with_its_reason(queue: QueueWorld) -> None:
    (level,) = queue.create()
    cases: list[tuple[str | bytes, DeadReason]] = [
        ("other.topic", DeadReason.NOT_ALLOWED),
        ("__consumer_offsets", DeadReason.INTERNAL_TARGET),
        (level, DeadReason.OWN_TOPIC),
        (f"{queue.prefix}.99.7", DeadReason.OWN_TOPIC),
        (queue.names.dead_topic, DeadReason.OWN_TOPIC),
        (queue.names.control_topic, DeadReason.OWN_TOPIC),
        ("missing-topic", DeadReason.NOT_FOUND),
        ("no topic's name", DeadReason.INVALID_TARGET),
        (b"\xff\xfe", DeadReason.INVALID_TARGET),
        ("", DeadReason.INVALID_TARGET),
    ]
    with (
        queue.forwarding(),
        queue.reading() as reader,
        queue.reading(queue.names.dead_topic) as dead,
    ):
        for number, (target, _) in enumerate(cases):
            queue.send(
                level, [b"%d" % number], key=lambda _: b"k", headers=[("h", b"1")], target=target
            )
        queue.send(level, [b"good"])
        assert [r.value for r in reader.until(1)] == [b"good"]
        records = dead.until(len(cases))
    for number, ((target, reason), record) in enumerate(zip(cases, records, strict=True)):
        assert (record.key, record.value) == (b"k", b"%d" % number)
        assert (record.header(REASON_HEADER) or b"").startswith(reason.encode() + b": ")
        assert record.headers[0] == ("h", b"1")
        assert record.header(TARGET_HEADER) == (
            target.encode() if isinstance(target, str) else target
        )
        assert record.header(DUE_HEADER) is not None
    offset, note = queue.position(level)
    assert (offset, note.dead) == (len(cases) + 1, len(cases)) or queue.guarantee == "ExactlyOnce"
    assert note.dead == len(cases)
    assert queue.kafka.leaders("missing-topic") == {}, "a target was created"


def test_without_target_and_default_a_record_is_dead(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.forwarding(default_target=None), queue.reading(queue.names.dead_topic) as dead:
        queue.send(level, [b"x"])
        (record,) = dead.until(1)
    assert (record.header(REASON_HEADER) or b"").startswith(b"NoTarget: ")


def test_a_record_that_its_target_refuses_is_dead_alone(queue: QueueWorld) -> None:
    """The target takes small records only, and those with a key: of a batch one is at fault."""
    (level,) = queue.create()
    small = queue.topic(f"{queue.prefix}-small", config={"max.message.bytes": "2000"})
    compacted = queue.topic(f"{queue.prefix}-compacted", config={"cleanup.policy": "compact"})
    with (
        queue.forwarding(),
        queue.reading(small) as of_small,
        queue.reading(compacted) as of_compacted,
        queue.reading(queue.names.dead_topic) as dead,
    ):
        queue.send(level, [b"%d" % n if n != 5 else b"l" * 5000 for n in range(10)], target=small)
        queue.send(
            level,
            [b"%d" % n for n in range(10)],
            key=lambda n: b"k%d" % n if n != 5 else None,
            target=compacted,
        )
        refused = dead.until(2, timeout_seconds=60)
        of_small.until(9)
        of_compacted.until(9)
        of_small.settled()
        of_compacted.settled()
        queue.send(level, [b"after"], target=compacted, key=lambda _: b"k")
        wait_until(
            lambda: (
                bool(of_compacted.read() or True) and of_compacted.records[-1].value == b"after"
            ),
            "the record after those that were refused",
            timeout_seconds=30,
        )
    assert [r.value for r in refused] == [b"l" * 5000, b"5"]
    assert all((r.header(REASON_HEADER) or b"").startswith(b"TargetRefused: ") for r in refused)
    assert {r.value for r in of_small.records} == {b"%d" % n for n in range(10)} - {b"5"}
    if queue.guarantee == "ExactlyOnce":
        assert len(of_small.records) == 9


def test_a_target_that_appears_later_is_used(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.forwarding(), queue.reading(queue.names.dead_topic) as dead:
        queue.send(level, [b"early"], target=f"{queue.prefix}-later")
        dead.until(1)
        later = queue.topic(f"{queue.prefix}-later")
        with queue.reading(later) as reader:
            queue.send(level, [b"now"], target=later)
            assert [r.value for r in reader.until(1)] == [b"now"]


@pytest.mark.parametrize("queue", [Guarantee.EXACTLY_ONCE], indirect=True, ids=str)
def test_messages_whose_target_was_deleted_while_they_waited_are_dead_and_the_rest_goes_on(
    queue: QueueWorld,
) -> None:
    play_deleted_target(queue, delay_seconds=8)


@pytest.mark.long
def test_messages_whose_target_is_deleted_just_when_they_are_sent_are_dead_too(
    queue: QueueWorld,
) -> None:
    """The forwarder has not heard of it then: librdkafka looks for the topic for half a minute."""
    play_deleted_target(queue, delay_seconds=2)


def play_deleted_target(queue: QueueWorld, *, delay_seconds: int) -> None:
    """Every message is in the dead topic or in the target, also when that is made again."""
    one, two = queue.create({1: 1, delay_seconds: 1})
    gone = queue.topic(f"{queue.prefix}-gone")
    with queue.forwarding() as running, queue.reading(queue.names.dead_topic) as dead:
        with queue.reading(gone) as before:
            queue.send(one, [b"before"], target=gone)
            before.until(1)
        queue.send(two, [b"%d" % n for n in range(50)], target=gone)
        queue.send(two, [b"good"])
        queue.kafka.admin.delete_topic(gone)
        with queue.reading() as reader:
            assert [r.value for r in reader.until(1, timeout_seconds=90)] == [b"good"]
        records = dead.until(50)
        assert [r.value for r in records] == [b"%d" % n for n in range(50)]
        assert all(
            (r.header(REASON_HEADER) or b"").startswith((b"TargetNotFound: ", b"TargetRefused: "))
            for r in records
        )
        wait_until(
            lambda: queue.position(two)[1].error == "", "no error any more", timeout_seconds=30
        )
        queue.topic_again(gone)
        sent = 0
        with queue.reading(gone) as after:

            def arrives() -> bool:
                nonlocal sent
                queue.send(one, [b"after %d" % sent], target=gone)
                sent += 1
                return bool(after.read(2.0))

            # what was refused is refused for half a minute
            wait_until(arrives, "a message in the new topic", timeout_seconds=90)
            assert len(after.settled()) + len(dead.settled()) == 50 + sent
        assert running.failure is None


class NotUtf8(str):
    """A header's name that other clients can send."""

    def encode(self, *_: str, **__: str) -> bytes:
        return b"\xff\xfe"


def test_headers_that_cannot_be_read_block_nothing(queue: QueueWorld) -> None:
    (level,) = queue.create()
    producer = KafkaProducer(bootstrap_servers=queue.kafka.bootstrap_servers)
    producer.send(level, b"odd", headers=[(NotUtf8("odd"), b"1")]).get(patience(30))
    producer.close()
    with (
        queue.forwarding(),
        queue.reading() as reader,
        queue.reading(queue.names.dead_topic) as dead,
    ):
        queue.send(level, [b"good"], headers=[("", b"no name")])
        assert [(r.value, r.headers[0]) for r in reader.until(1)] == [(b"good", ("", b"no name"))]
        (record,) = dead.until(1)
    assert record.value == b"odd"
    assert (record.header(REASON_HEADER) or b"").startswith(b"UnreadableHeaders: ")
