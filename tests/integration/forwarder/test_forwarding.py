"""Records arrive as they were sent, never early, in order, whatever the guarantee."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial

import pytest

from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.forwarder.brokers import Brokers
from tidegate.queues.names import DUE_HEADER, TARGET_HEADER

pytestmark = pytest.mark.integration


def test_key_value_and_headers_arrive_with_the_due_time(queue: QueueWorld) -> None:
    (level,) = queue.create()
    given = [("a", b"1"), ("a", b"2"), ("empty", None), ("binary", b"\xff\x00")]
    with queue.forwarding(), queue.reading() as reader:
        queue.send(
            level, [b"x", None, b""], key=lambda n: b"k%d" % n, headers=given, target=queue.target
        )
        records = reader.until(3)
    assert {(r.key, r.value) for r in records} == {(b"k0", b"x"), (b"k1", None), (b"k2", b"")}
    for record in records:
        assert record.headers[:-1] == [*given, (TARGET_HEADER, queue.target.encode())]
        assert record.headers[-1][0] == DUE_HEADER
        assert record.timestamp_ms >= int(record.header(DUE_HEADER) or b"0")


def test_each_record_is_due_a_delay_after_its_append_and_never_sent_early(
    queue: QueueWorld,
) -> None:
    one, two = queue.create({1: 1, 2: 1})
    with queue.forwarding(), queue.reading() as reader:
        for number in range(40):
            queue.send(one, [b"1.%d" % number])
            queue.send(two, [b"2.%d" % number])
        records = reader.until(80)
    late = [r.timestamp_ms - int(r.header(DUE_HEADER) or b"0") for r in records]
    assert min(late) >= 0


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_wrong_clock_of_the_forwarder_makes_nothing_early_or_late(
    queue: QueueWorld, minutes: int
) -> None:
    (level,) = queue.create()

    def wrong_ms() -> float:
        return (time.time() + minutes * 60) * 1000

    wrong = partial(Brokers, own_ms=wrong_ms, machine_ms=wrong_ms)
    with queue.forwarding(brokers=wrong), queue.reading() as reader:
        queue.send(level, [b"%d" % n for n in range(20)])
        records = reader.until(20)
    late = [r.timestamp_ms - int(r.header(DUE_HEADER) or b"0") for r in records]
    assert min(late) >= 0
    clock_ms = queue.position(level)[1].clock_ms
    assert abs(clock_ms - minutes * 60_000) < 60_000


def test_order_is_kept_and_nothing_is_lost_or_doubled(queue: QueueWorld) -> None:
    levels = queue.create({1: 2})
    with queue.forwarding(), queue.reading() as reader:
        for level in levels:
            queue.send(
                level,
                [b"%s/%d" % (level.encode(), n) for n in range(25_000)],
                key=lambda n: b"%d" % (n % 97),
            )
        records = reader.until(50_000, timeout_seconds=60)
    assert len({r.value for r in records}) == len(records) == 50_000
    seen: dict[tuple[int, bytes], int] = defaultdict(lambda: -1)
    for record in records:
        level_name, _, number = (record.value or b"").partition(b"/")
        assert seen[record.partition, level_name] < int(number)
        seen[record.partition, level_name] = int(number)


def test_a_stopped_forwarder_has_committed_what_it_sent(queue: QueueWorld) -> None:
    (level,) = queue.create()
    with queue.reading() as reader:
        with queue.forwarding("first") as running:
            queue.send(level, [b"%d" % n for n in range(1000)])
            reader.until(1000)
        assert running.failure is None
        assert running.membership.closed
        offset, note = queue.position(level)
        assert (offset, note.owner, note.lost, note.dead, note.error) == (1000, "", 0, 0, "")
        with queue.forwarding("second"):
            queue.send(level, [b"last"])
            reader.until(1001)
            assert len(reader.settled()) == 1001
            assert queue.position(level)[1].owner == "second"
