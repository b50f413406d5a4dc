"""The delay queue on one broker: throughput of one level topic, how late records are, and memory.

The forwarder is a process of its own, `tidegate forward`; figures are of the brokers' append times.
Beside it, in the same run, a program of Kafka's own Java clients that polls, sleeps and sends.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.results import Figure, percentile
from lab.java import class_path
from lab.kafka import KafkaLab
from lab.packages import kafka_jars
from lab.process import Process, patience, start, wait_until
from tidegate.queues.names import DUE_HEADER, TARGET_HEADER, Guarantee, QueueNames

_ROUNDS = {10: 1_000_000, 2000: 200_000}
_LEAST_PER_SECOND = {
    (10, Guarantee.AT_LEAST_ONCE): 200_000.0,
    (10, Guarantee.EXACTLY_ONCE): 120_000.0,
    (2000, Guarantee.AT_LEAST_ONCE): 50_000.0,
    (2000, Guarantee.EXACTLY_ONCE): 35_000.0,
}
_LATE_DELAYS = (1, 2, 3, 4, 5, 6, 7, 8)
_LATE_PER_SECOND, _LATE_SECONDS = 1000, 30
_LATE_MS = {Guarantee.AT_LEAST_ONCE: (0.0, 10.0), Guarantee.EXACTLY_ONCE: (8.0, 50.0)}
_MEMORY_TOPICS, _MEMORY_RECORDS = 64, 1000
_TARGET = "bench-target"
_PEER = Path(__file__).with_name("QueuePeer.java")
_LEVEL = {
    "message.timestamp.type": "LogAppendTime",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
}


def queue_figures() -> list[Figure]:
    """Throughput and lateness of both guarantees, and memory with 64 level topics."""
    found: list[Figure] = []
    with KafkaLab(brokers=1) as kafka:
        for (size, guarantee), least in _LEAST_PER_SECOND.items():
            found.append(_throughput(kafka, size, guarantee, least, by=_forwarding))
            found.append(_throughput(kafka, size, guarantee, None, by=_peer))
        for guarantee in Guarantee:
            found += _lateness(kafka, guarantee, by=_forwarding)
            found += _lateness(kafka, guarantee, by=_peer)
        found.append(_memory(kafka))
    return found


def _throughput(
    kafka: KafkaLab, size: int, guarantee: Guarantee, least: float | None, *, by: "_By"
) -> Figure:
    queue = _queue(kafka, f"bench-{size}-{guarantee}{_mark(by)}", [1])
    level, records = queue.level_topic(1, 0).name, _ROUNDS[size]
    _fill(kafka, [level], records, b"v" * size, f"{queue.prefix}.{_TARGET}")
    reader = _reader(kafka, f"{queue.prefix}.{_TARGET}")
    with by(kafka, queue, guarantee, [level]):
        first_ms = last_ms = count = 0
        while count < records:
            for message in reader.consume(10_000, 1.0):
                last_ms = message.timestamp()[1]
                first_ms = first_ms or last_ms
                count += 1
    reader.close()
    per_second = count * 1000 / max(1, last_ms - first_ms)
    return Figure(
        f"delay queue: a record of {size} B with headers, one level topic, {guarantee}{_words(by)}",
        1e6 / per_second,
        "us",
        None if least is None else 1e6 / least,
        f"{per_second:,.0f} records/s, {count:,} records that are due",
    )


def _lateness(kafka: KafkaLab, guarantee: Guarantee, *, by: "_By") -> Iterator[Figure]:
    queue = _queue(kafka, f"bench-late-{guarantee}{_mark(by)}", _LATE_DELAYS)
    levels = [queue.level_topic(delay, 0).name for delay in _LATE_DELAYS]
    reader = _reader(kafka, f"{queue.prefix}.{_TARGET}")
    records = _LATE_PER_SECOND * _LATE_SECONDS
    late: list[int] = []
    with by(kafka, queue, guarantee, levels):
        _wait_for_first(kafka, queue, reader)
        _feed(kafka, levels, records, f"{queue.prefix}.{_TARGET}")
        while len(late) < records:
            for message in reader.consume(1000, 1.0):
                due_ms = int(dict(message.headers())[DUE_HEADER])
                late.append(message.timestamp()[1] - due_ms)
    reader.close()
    within = sum(1 for one in late if one <= 1) / len(late)
    p50, p99 = _LATE_MS[guarantee] if by is _forwarding else (None, None)
    about = f"earliest {min(late)} ms, {100 * within:.1f} % within 1 ms, latest {max(late)} ms"
    name = f"delay queue: how late at 1000/s on 8 level topics, {guarantee}{_words(by)}"
    yield Figure(f"{name}, P50", percentile(late, 50), "ms", p50, about)
    yield Figure(f"{name}, P99", percentile(late, 99), "ms", p99)


def _memory(kafka: KafkaLab) -> Figure:
    queue = QueueNames("bench-memory")
    _queue(kafka, queue.prefix, [], topics=0)
    levels = [queue.level_topic(3600, number).name for number in range(_MEMORY_TOPICS)]
    for level in levels:
        kafka.create_topic(level, [[1]], config=_LEVEL)
    _fill(kafka, levels, _MEMORY_TOPICS * _MEMORY_RECORDS, b"v" * 2000, _TARGET)
    with _forwarding(kafka, queue, Guarantee.AT_LEAST_ONCE, levels) as process:
        before, resident = -1.0, psutil.Process(process.pid).memory_info
        while (now := resident().rss / 2**20) > before + 1 or now < 60:
            before = now
            time.sleep(5)
    return Figure(f"delay queue: memory with {_MEMORY_TOPICS} full level topics", now, "MB", 200.0)


def _queue(kafka: KafkaLab, prefix: str, delays: Sequence[int], *, topics: int = 1) -> QueueNames:
    queue = QueueNames(prefix)
    for delay in delays:
        for number in range(topics):
            kafka.create_topic(queue.level_topic(delay, number).name, [[1]], config=_LEVEL)
    compact = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    kafka.create_topic(queue.control_topic, [[1]], config=compact)
    kafka.create_topic(queue.dead_topic, [[1]])
    kafka.create_topic(f"{prefix}.{_TARGET}", [[1]], config=_LEVEL)
    return queue


def _fill(kafka: KafkaLab, levels: Sequence[str], records: int, value: bytes, target: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    headers: list[tuple[str, Any]] = [(TARGET_HEADER, target.encode()), ("app", b"x" * 20)]
    for number in range(records):
        while True:
            try:
                producer.produce(levels[number % len(levels)], value, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(patience(120))


def _feed(kafka: KafkaLab, levels: Sequence[str], records: int, target: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    headers: list[tuple[str, Any]] = [(TARGET_HEADER, target.encode()), ("app", b"x" * 20)]
    began, sent = time.perf_counter(), 0
    while sent < records:
        while sent < min(records, (time.perf_counter() - began) * _LATE_PER_SECOND):
            producer.produce(levels[sent % len(levels)], b"%08d" % sent, headers=headers)
            sent += 1
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(patience(30))


def _wait_for_first(kafka: KafkaLab, queue: QueueNames, reader: Consumer) -> None:
    """Until the forwarder has taken its topics: their first records are not counted."""
    levels = [queue.level_topic(delay, 0).name for delay in _LATE_DELAYS]
    _fill(kafka, levels, len(levels), b"first", f"{queue.prefix}.{_TARGET}")
    got = 0

    def has_all() -> bool:
        nonlocal got
        got += len(reader.consume(100, 0.1))
        return got == len(levels)

    wait_until(has_all, "a first record of each level", timeout_seconds=60)


def _reader(kafka: KafkaLab, topic: str) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "bench",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    return reader


_By = Callable[[KafkaLab, QueueNames, Guarantee, Sequence[str]], AbstractContextManager[Process]]


@contextmanager
def _forwarding(
    kafka: KafkaLab,
    queue: QueueNames,
    guarantee: Guarantee,
    levels: Sequence[str],  # noqa: ARG001  # it finds them
) -> Iterator[Process]:
    command = [
        *(sys.executable, "-m", "tidegate", "forward"),
        *("--prefix", queue.prefix, "--guarantee", guarantee, "--allowed", "bench-*"),
        *("--bootstrap-servers", kafka.bootstrap_servers),
        *("--zookeeper", kafka.zookeeper_connect, "--metrics-port", "0"),
    ]
    with _started(command) as process:
        yield process


@contextmanager
def _peer(
    kafka: KafkaLab, queue: QueueNames, guarantee: Guarantee, levels: Sequence[str]
) -> Iterator[Process]:
    command = [
        *("java", "-cp", class_path(kafka_jars()), str(_PEER)),
        *(kafka.bootstrap_servers, queue.prefix, guarantee, *levels),
    ]
    with _started(command) as process:
        yield process


@contextmanager
def _started(command: Sequence[str]) -> Iterator[Process]:
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with start("forwarder", command, log_path=log, niceness=0) as process:
            yield process


def _mark(by: _By) -> str:
    return "" if by is _forwarding else "-peer"


def _words(by: _By) -> str:
    return "" if by is _forwarding else ", Java clients that poll, sleep and send"
