"""Processes of `tidegate forward` are killed again and again while records flow: at least once loses
nothing and keeps order, exactly once loses and doubles nothing.

`QUEUE_KILLS=<number>` plays fewer or more, `QUEUE_KILLS_SEED=<number>` the same ones again; the seed
is printed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lab.kafka import KafkaLab
from lab.process import Process, patience, wait_until
from tests.integration.forwarder.forward_process import start_forwarder
from tests.integration.forwarder.queue_world import QueueWorld, Reader
from tidegate.queues.names import Guarantee

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("QUEUE_KILLS") or "4")
MANY_KILLS = int(os.environ.get("QUEUE_KILLS") or "50")
RECORDS_PER_SECOND = 2000
DELAYS = {1: 2, 2: 2}
KEYS = 97


# `make test-long` plays both guarantees with either membership
@pytest.mark.parametrize(
    ("queue", "membership"),
    [(Guarantee.EXACTLY_ONCE, "zookeeper"), (Guarantee.AT_LEAST_ONCE, "kafka")],
    indirect=["queue"],
    ids=str,
)
def test_kills_lose_nothing(
    queue: QueueWorld, kafka: KafkaLab, tmp_path: Path, membership: str
) -> None:
    zookeeper = kafka.zookeeper_connect if membership == "zookeeper" else None
    play(queue, tmp_path, zookeeper, KILLS)


@pytest.mark.long
@pytest.mark.parametrize("membership", ["zookeeper", "kafka"])
@pytest.mark.timeout(3600)
def test_many_kills_lose_nothing(
    queue: QueueWorld, kafka: KafkaLab, tmp_path: Path, membership: str
) -> None:
    zookeeper = kafka.zookeeper_connect if membership == "zookeeper" else None
    play(queue, tmp_path, zookeeper, MANY_KILLS)


def play(queue: QueueWorld, folder: Path, zookeeper: str | None, kills: int) -> None:
    """Kill one of two forwarders so many times, each time after records have come again."""
    seed = int(os.environ.get("QUEUE_KILLS_SEED") or random.randrange(10**6))
    print(f"QUEUE_KILLS_SEED={seed}")
    chance = random.Random(seed)
    levels = queue.create(DELAYS)
    names = (f"f{number}" for number in count())
    running = [start_forwarder(queue, next(names), folder, zookeeper=zookeeper) for _ in range(2)]
    try:
        with queue.reading() as reader, feeding(queue, levels) as feeder:
            reader.until(1, timeout_seconds=60)
            for _ in range(kills):
                before = len(reader.records)
                reader.until(before + chance.randint(500, 8000), timeout_seconds=60)
                victim = running.pop(chance.randrange(2))
                victim.kill()
                running.append(start_forwarder(queue, next(names), folder, zookeeper=zookeeper))
            feeder.stop()
            wait_until(
                lambda: bool(reader.read() or True) and len(ids(reader)) >= feeder.sent,
                f"all {feeder.sent} records",
                timeout_seconds=60,
            )
            reader.settled()
            check(queue, reader, feeder.sent)
    finally:
        codes = [stopped(process) for process in running]
    assert codes == [0, 0]


def stopped(process: Process) -> int:
    """End it as Kubernetes does; its exit code."""
    os.kill(process.pid, signal.SIGTERM)
    return process.wait(patience(30))


def ids(reader: Reader) -> set[bytes | None]:
    return {record.value for record in reader.records}


def check(queue: QueueWorld, reader: Reader, sent: int) -> None:
    """Nothing lost, nothing early, order kept by level topic; with exactly once nothing twice."""
    records = reader.records
    assert ids(reader) == {b"%d" % number for number in range(sent)}
    if queue.guarantee is Guarantee.EXACTLY_ONCE:
        assert len(records) == sent
    print(f"{queue.guarantee}: {sent} records, {len(records) - sent} came twice")
    seen: set[bytes | None] = set()
    last: dict[tuple[int, int], int] = {}
    for record in sorted(records, key=lambda r: (r.partition, r.offset)):
        if record.value in seen:
            continue
        seen.add(record.value)
        number = int(record.value or b"")
        place = (record.partition, number % sum(DELAYS.values()))
        assert last.get(place, -1) < number, "order was not kept"
        last[place] = number
        assert record.timestamp_ms >= int(record.header("tidegate-due") or b"")


class Feeder:
    """Writes numbered records to the level topics in turn until it is stopped."""

    def __init__(self, queue: QueueWorld, levels: list[str]) -> None:
        self.sent = 0
        self._queue, self._levels = queue, levels
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(patience(60))

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._queue.kafka.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        started = time.monotonic()
        while not self._ending.is_set():
            while self.sent < (time.monotonic() - started) * RECORDS_PER_SECOND:
                number = self.sent
                try:
                    producer.produce(
                        self._levels[number % len(self._levels)],
                        b"%d" % number,
                        b"%d" % (number % KEYS),
                        partition=0,
                    )
                except BufferError:  # brokers are slower than this
                    break
                self.sent += 1
            producer.poll(0.01)
        assert not producer.flush(patience(60))


@contextmanager
def feeding(queue: QueueWorld, levels: list[str]) -> Iterator[Feeder]:
    feeder = Feeder(queue, levels)
    try:
        yield feeder
    finally:
        feeder.stop()


def test_processes_that_were_stopped_do_no_harm_when_they_continue(
    queue: QueueWorld, kafka: KafkaLab, tmp_path: Path
) -> None:
    """They are stopped (SIGSTOP) while records flow, until others have taken over all topics."""
    levels = queue.create(DELAYS)
    zookeeper = kafka.zookeeper_connect
    running = [start_forwarder(queue, f"s{n}", tmp_path, zookeeper=zookeeper) for n in range(2)]
    try:
        with queue.reading() as reader, feeding(queue, levels) as feeder:
            for name, process in zip(("s0", "s1"), list(running), strict=True):
                reader.until(len(reader.records) + 2000, timeout_seconds=60)
                wait_until(
                    partial(owns, queue, levels, name),
                    f"{name} to own a topic",
                    timeout_seconds=60,
                )
                os.kill(process.pid, signal.SIGSTOP)
                wait_until(
                    partial(owns, queue, levels, name, any_topic=False),
                    f"the other to take over from {name}",
                    timeout_seconds=60,
                )
                os.kill(process.pid, signal.SIGCONT)
            feeder.stop()
            wait_until(
                lambda: bool(reader.read() or True) and len(ids(reader)) >= feeder.sent,
                f"all {feeder.sent} records",
                timeout_seconds=60,
            )
            reader.settled()
            check(queue, reader, feeder.sent)
    finally:
        for process in running:
            os.kill(process.pid, signal.SIGCONT)
        codes = [stopped(process) for process in running]
    assert codes == [0, 0]


def owns(queue: QueueWorld, levels: list[str], name: str, *, any_topic: bool = True) -> bool:
    """Whether a member of this name owns a topic, or with `any_topic` False whether none does."""
    owners = [queue.position(level)[1].owner for level in levels]
    return any(owner.startswith(name) for owner in owners) is any_topic
