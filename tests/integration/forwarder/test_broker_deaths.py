"""Brokers die and come back while records flow: the forwarder goes on by itself."""

from __future__ import annotations

import pytest

from lab.kraft import KraftLab
from lab.process import wait_until
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tests.integration.forwarder.test_kills import Feeder, check, ids
from tidegate.queues.names import Guarantee

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_a_broker_that_dies_and_comes_back_loses_nothing(
    kraft_of_three: KraftLab, unique_name: str, guarantee: Guarantee
) -> None:
    """It coordinates the positions, and leads a level topic and a partition of the target.

    Positions and transactions have replicas on this cluster: without, they wait for their broker.
    """
    queue = QueueWorld(kraft_of_three, unique_name, guarantee)
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    safe = {**APPEND_TIME, "min.insync.replicas": "2"}
    levels = [queue.names.level_topic(1, number).name for number in range(4)]
    for number, name in enumerate(levels):
        queue.kafka.create_topic(name, [replicas[number % 3]], config=safe)
    compact = {**APPEND_TIME, "cleanup.policy": "compact"}
    queue.kafka.create_topic(queue.names.control_topic, [[1, 2, 3]], config=compact)
    queue.kafka.create_topic(queue.names.dead_topic, [[1, 2, 3]])
    queue.kafka.create_topic(queue.target, replicas, config=safe)
    with queue.reading() as reader, queue.forwarding(starts_again=True) as running:
        feeder = Feeder(queue, levels)
        broker = queue.kafka.broker(1)
        try:
            reader.until(3000, timeout_seconds=60)
            broker = queue.kafka.broker(queue.coordinator())
            broker.kill()
            before = len(reader.records)
            reader.until(before + 3000, timeout_seconds=120)
        finally:
            if not broker.is_running():
                broker.start()
            feeder.stop()
        wait_until(
            lambda: bool(reader.read() or True) and len(ids(reader)) >= feeder.sent,
            f"all {feeder.sent} records",
            timeout_seconds=120,
        )
        reader.settled()
        assert running.failure is None
        check(queue, reader, feeder.sent)
