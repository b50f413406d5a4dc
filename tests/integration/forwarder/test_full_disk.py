"""The disk of one of three brokers is full: Kafka gives up that broker, and nothing is lost.

It needs root: the disk is a small one in memory, which is mounted where the broker has its data.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab.kafka import Broker
from lab.kraft import KraftLab
from lab.process import started, wait_until
from tests.integration.connections import connection_of
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tests.integration.forwarder.test_chaos import LEVELS, Arrivals, Feed
from tidegate.control.queues.forwarders import ForwardersSeen
from tidegate.control.queues.report import QueueFinding, verdicts_of
from tidegate.kafka.delay_queues import QueueTopics
from tidegate.queues.names import Guarantee
from tidegate_logic.queues.levels import LevelDecision
from tidegate_logic.reasons import Reason

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own for a broker needs root"),
]

DISK = "64m"
RECORDS_PER_SECOND = 2000


@pytest.fixture
def kraft_of_three() -> Iterator[KraftLab]:
    with started(lambda: KraftLab(brokers=3)) as cluster:
        yield cluster


@contextmanager
def on_small_disk(broker: Broker) -> Iterator[Path]:
    """The broker goes on with its data on a small disk; returns where that is mounted."""
    data, copy = broker.plan.directory / "data", broker.plan.directory / "copy"
    broker.stop()
    data.rename(copy)
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", data], check=True)
    try:
        subprocess.run(["cp", "-a", "--sparse=always", f"{copy}/.", data], check=True)
        broker.start()
        yield data
    finally:
        broker.kill()
        subprocess.run(["umount", "--lazy", data], check=True)


def fill(disk: Path) -> Path:
    """Take all the space that is left; returns the file that has it."""
    ballast = disk.parent / "data" / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return ballast


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_a_full_disk_of_one_broker_loses_nothing_that_was_acknowledged(
    kraft_of_three: KraftLab, unique_name: str, guarantee: Guarantee
) -> None:
    """One target has its only replica there: the reason says that it fails, and it goes on when
    there is space again.
    """
    kafka = kraft_of_three
    queue = QueueWorld(kafka, unique_name, guarantee)
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    safe = {**APPEND_TIME, "min.insync.replicas": "2"}
    levels = [queue.names.level_topic(1, number).name for number in range(LEVELS + 1)]
    for number, name in enumerate(levels):
        kafka.create_topic(name, [replicas[number % 3]], config=safe)
    compact = {**APPEND_TIME, "cleanup.policy": "compact"}
    kafka.create_topic(queue.names.control_topic, [replicas[0]], config=compact)
    kafka.create_topic(queue.names.dead_topic, [replicas[0]])
    kafka.create_topic(queue.target, replicas, config=safe)
    full = kafka.broker(2)
    only_there = f"{queue.prefix}-there"
    kafka.create_topic(only_there, [[2]], config=APPEND_TIME)
    fed, apart = levels[:-1], levels[-1]
    with (
        on_small_disk(full) as disk,
        closing(Arrivals(queue)) as arrivals,
        queue.forwarding(starts_again=True) as running,
    ):
        feed = Feed(queue, fed, RECORDS_PER_SECOND)
        try:
            until(arrivals, 5000)
            since = full.log_size_bytes()
            ballast = fill(disk)
            wait_until(lambda: not full.is_running(), "the broker to end", timeout_seconds=120)
            assert "No space left on device" in full.log_text(since)
            queue.send(apart, [b"%d" % number for number in range(20)], target=only_there)
            until(arrivals, arrivals.distinct + 5000)
            wait_until(
                lambda: bool(read(arrivals) and queue.position(apart)[1].error),
                "the error that people are shown",
                timeout_seconds=120,
            )
            assert reason(queue) is Reason.FORWARDING_FAILS
            until(arrivals, arrivals.distinct + 2000)
            ballast.unlink()
            full.start()
            until(arrivals, arrivals.distinct + 5000)
        finally:
            feed.end()
        until(arrivals, feed.sent - len(feed.refused))
        wait_until(lambda: not read(arrivals).is_flowing(), "nothing more", timeout_seconds=60)
        with queue.reading(only_there) as reader:
            assert {record.value for record in reader.until(20, timeout_seconds=120)} == {
                b"%d" % number for number in range(20)
            }
        wait_until(
            lambda: not queue.position(apart)[1].error, "no error any more", timeout_seconds=60
        )
        print(f"{guarantee}: {feed.sent} records, {arrivals.again} came twice")
        assert running.failure is None
        assert arrivals.has_all(feed)
        assert (arrivals.early, arrivals.overtaken) == ([], [])
        if guarantee is Guarantee.EXACTLY_ONCE:
            assert arrivals.again == 0


def read(arrivals: Arrivals) -> Arrivals:
    arrivals.read()
    return arrivals


def until(arrivals: Arrivals, count: int) -> None:
    """Return once so many different records have arrived."""
    wait_until(
        lambda: read(arrivals).distinct >= count,
        f"{count} records (now {arrivals.distinct})",
        timeout_seconds=180,
        poll_seconds=0.0,
    )


def reason(queue: QueueWorld) -> Reason:
    """What the operator says of the queue, when its forwarders are available."""
    with closing(QueueTopics(connection_of(queue.kafka.bootstrap_servers))) as topics:
        levels = topics.levels(queue.names, topics.listing())
    raw = {"metadata": {"uid": "u", "name": "q", "namespace": "n"}, "spec": {}}
    seen = ForwardersSeen(wanted=1, available=1, age_seconds=1.0)
    finding = QueueFinding(raw, levels=levels, decision=LevelDecision(), forwarders=seen)
    return verdicts_of(finding)[0].reason
