"""Due messages wait while the operator says that brokers have no room, and leave slowly later."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from lab.process import patience, wait_until
from tests.integration.connections import connection_of
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tidegate.forwarder import pacing
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.prefix_claims import PrefixClaims
from tidegate.queues.names import DUE_HEADER, Guarantee
from tidegate_logic.queues.shift import Pace, Shift

pytestmark = pytest.mark.integration

_SHIFT = Shift(latest_seconds=3600, bytes_per_second=100_000)
_LONG_SECONDS = 2.5  # beyond its due time, for a message that waits


@pytest.fixture
def operator(queue: QueueWorld) -> Iterator[PrefixClaims]:
    """The operator's side of the control topic; the queue has its topics."""
    client = AdminClient(connection_of(queue.kafka.bootstrap_servers))
    claims = PrefixClaims(client)
    queue.topic(queue.names.control_topic, config={**APPEND_TIME, "cleanup.policy": "compact"})
    claims.claim(queue.names, "uid", "shop/unpaid")
    queue.topic(queue.names.level_topic(1, 0).name, config=APPEND_TIME)
    queue.topic(queue.names.dead_topic)
    queue.topic(queue.target, config=APPEND_TIME)
    yield claims
    client.close()


def leaders(queue: QueueWorld) -> frozenset[int]:
    """The brokers that lead the queue's target."""
    admin = ConfluentAdmin({"bootstrap.servers": queue.kafka.bootstrap_servers})
    listed = admin.list_topics(queue.target, timeout=patience(20)).topics[queue.target]
    return frozenset(one.leader for one in listed.partitions.values())


def test_due_messages_wait_and_then_leave_in_order_at_the_rate(
    queue: QueueWorld, operator: PrefixClaims
) -> None:
    level = queue.names.level_topic(1, 0).name
    values = [b"%05d" % number + b"x" * 995 for number in range(300)]
    with queue.reading() as reader:
        over = leaders(queue)
        operator.announce(queue.names, Pace(_SHIFT, over))  # before there is a forwarder
        with queue.forwarding():
            queue.send(level, values)
            wait_until(
                lambda: queue.metrics.held._value.get() == 1.0, "the hold", timeout_seconds=30
            )
            time.sleep(1 + _LONG_SECONDS)
            assert reader.read() == []
            operator.announce(queue.names, Pace(_SHIFT))
            reader.until(len(values), timeout_seconds=60)
            assert [record.value for record in reader.records] == values
            seconds = (reader.records[-1].timestamp_ms - reader.records[0].timestamp_ms) / 1000
            assert seconds >= 0.9 * (300_000 / _SHIFT.bytes_per_second - pacing._BURST_SECONDS)
            assert queue.metrics.held._value.get() == 0.0
            operator.announce(queue.names, None)
            queue.send(level, values)
            reader.until(2 * len(values), timeout_seconds=30)


def test_a_queue_waits_only_for_brokers_that_lead_its_targets(
    queue: QueueWorld, operator: PrefixClaims
) -> None:
    shift = Shift(latest_seconds=3600, bytes_per_second=1024)
    operator.announce(queue.names, Pace(shift, frozenset({9999})))
    with queue.reading() as reader, queue.forwarding():
        queue.send(queue.names.level_topic(1, 0).name, [b"x" * 1000] * 300)
        reader.until(300)
        took_ms = reader.records[-1].timestamp_ms - reader.records[0].timestamp_ms
        assert took_ms < 200_000  # at the rate it would be 300 s


def test_no_message_waits_longer_than_the_queue_allows(
    queue: QueueWorld, operator: PrefixClaims
) -> None:
    with queue.reading() as reader, queue.forwarding():
        over = leaders(queue)
        operator.announce(queue.names, Pace(Shift(3, 1000), over))
        wait_until(lambda: queue.metrics.held._value.get() == 1.0, "the hold", timeout_seconds=30)
        queue.send(queue.names.level_topic(1, 0).name, [b"x"])
        (record,) = reader.until(1)
        late_ms = record.timestamp_ms - int(record.header(DUE_HEADER) or 0)
        assert late_ms >= 3000
        assert queue.metrics.held._value.get() == 1.0


def test_nothing_waits_for_an_operator_that_is_gone(
    queue: QueueWorld, operator: PrefixClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "HOLD_SECONDS", 4.0)
    with queue.reading() as reader, queue.forwarding():
        over = leaders(queue)
        operator.announce(queue.names, Pace(_SHIFT, over))
        queue.send(queue.names.level_topic(1, 0).name, [b"x"])
        (record,) = reader.until(1, timeout_seconds=60)
        assert record.timestamp_ms - int(record.header(DUE_HEADER) or 0) >= 1000
        assert queue.metrics.held._value.get() == 0.0
    # and a member that starts later does not obey what is old
    with queue.reading() as reader, queue.forwarding("two"):
        queue.send(queue.names.level_topic(1, 0).name, [b"y"])
        reader.until(2)


@pytest.mark.parametrize("queue", [Guarantee.AT_LEAST_ONCE], indirect=True, ids=str)
def test_an_operator_that_comes_back_is_obeyed_again_and_messages_keep_their_order(
    queue: QueueWorld, operator: PrefixClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unreachable for longer than what it said holds: what waited is sent, and what comes later waits
    for it again.
    """
    monkeypatch.setattr(pacing, "HOLD_SECONDS", 6.0)
    level = queue.names.level_topic(1, 0).name
    with queue.reading() as reader, queue.forwarding():
        held = Pace(_SHIFT, leaders(queue))
        operator.announce(queue.names, held)
        wait_until(lambda: queue.metrics.held._value.get() == 1.0, "the hold", timeout_seconds=30)
        queue.send(level, [b"%d" % number for number in range(5)])
        operator.announce(queue.names, held)  # as it does while it is there
        announced_ms = time.time() * 1000
        reader.until(5, timeout_seconds=60)
        # brokers and this process have one clock
        assert reader.records[0].timestamp_ms >= announced_ms + 5000
        assert queue.metrics.held._value.get() == 0.0
        operator.announce(queue.names, held)
        wait_until(lambda: queue.metrics.held._value.get() == 1.0, "the hold", timeout_seconds=30)
        queue.send(level, [b"%d" % number for number in range(5, 10)])
        operator.announce(queue.names, None)
        reader.until(10, timeout_seconds=30)
        assert [int(r.value or b"") for r in reader.records] == [*range(10)]
