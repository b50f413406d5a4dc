"""Plays experiment 6 beside 2 and 3: a delay queue whose messages may wait while brokers are busy.

There are no nodes in the demo, so the forwarder that the operator asks for with a Deployment runs
here as a process, with the same arguments. It judges nothing.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from demo.parts import NAMESPACE, Parts
from demo.script import BROKER
from demo.shift_outcome import DELAY_SECONDS, MESSAGE_BYTES, MESSAGES_PER_SECOND, Arrival
from lab import process
from lab.process import repeated, wait_until
from tidegate.queues.names import DUE_HEADER, QueueNames

SHIFT_RESOURCES = Path(__file__).parent / "shift.yaml"
QUEUE, TARGET = "digests", "digests-due"
LEVEL_TOPIC = QueueNames(f"{NAMESPACE}.{QUEUE}").level_topic(DELAY_SECONDS, 0).name
_BATCH_SECONDS = 0.2
_START_SECONDS = 60


class Digests:
    """The queue's producer and the reader of its target; both run while `running` is open."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "demo-digests",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._produced: list[float] = []
        self._arrivals: list[Arrival] = []
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write a few messages a second, and read what arrives from now on."""
        wait_until(self._has_topics, f"the topics of queue {QUEUE}", timeout_seconds=_START_SECONDS)
        end = self._reader.get_watermark_offsets(TopicPartition(TARGET, 0))[1]
        self._reader.assign([TopicPartition(TARGET, 0, end)])
        try:
            with repeated(self._read, seconds=0.1), repeated(self._produce, seconds=_BATCH_SECONDS):
                yield
        finally:
            self._reader.close()
            self._producer.flush(_START_SECONDS)

    def produced(self) -> tuple[float, ...]:
        """When each message was written, by its number; seconds since the epoch."""
        with self._lock:
            return tuple(self._produced)

    def arrivals(self) -> tuple[Arrival, ...]:
        """What has arrived, in the order of the target."""
        with self._lock:
            return tuple(self._arrivals)

    def is_punctual(self) -> bool:
        """Whether the newest message arrived on time, so that nothing older waits."""
        newest = self.arrivals()[-1:]
        return (
            bool(newest) and newest[0].late_seconds < 1 and newest[0].at_seconds > time.time() - 2
        )

    def _has_topics(self) -> bool:
        topics = self._reader.list_topics(timeout=_START_SECONDS).topics
        return {LEVEL_TOPIC, TARGET} <= set(topics)

    def _produce(self) -> None:
        now = time.time()
        with self._lock:
            began = self._produced[0] if self._produced else now
            wanted = int((now - began) * MESSAGES_PER_SECOND) + 1
            for number in range(len(self._produced), wanted):
                self._produced.append(now)
                self._producer.produce(LEVEL_TOPIC, b"%d".ljust(MESSAGE_BYTES) % number)
        self._producer.poll(0)

    def _read(self) -> None:
        for message in self._reader.consume(1000, 0.1):
            if message.error() is None:
                due = dict(message.headers() or ())[DUE_HEADER]
                found = Arrival(
                    int(message.value()), int(due) / 1000, message.timestamp()[1] / 1000
                )
                with self._lock:
                    self._arrivals.append(found)


def create_target(parts: Parts) -> None:
    """The topic that the messages are for, led by the broker whose limit drops."""
    config = {"message.timestamp.type": "LogAppendTime"}
    parts.kafka.create_topic(TARGET, ((BROKER,),), config=config)


@contextmanager
def digests(parts: Parts, *, run: str) -> Iterator[Digests]:
    """Declare the queue, forward its messages, and write and read them; then delete the queue.

    Messages and topics stay. `run` makes the name of the forwarder's log unique.
    """
    parts.kube.kubectl("apply", "-f", str(SHIFT_RESOURCES))
    messages = Digests(parts.kafka.bootstrap_servers)
    try:
        arguments = _arguments(parts)
        argv = [sys.executable, "-m", "tidegate", *arguments]
        log = parts.kafka.run.path / f"forwarder-{run}.log"
        with process.start("forwarder", argv, log_path=log), messages.running():
            _say_that_it_runs(parts)
            yield messages
    finally:
        parts.kubectl("delete", "dq", QUEUE, "--wait", "--timeout=60s")


def _say_that_it_runs(parts: Parts) -> None:
    """Write into the Deployment's status what Kubernetes' controllers would."""
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    parts.kubectl(
        *("patch", "deployment", f"{QUEUE}-forwarders", "--type", "merge"),
        *("--subresource", "status", "-p", json.dumps({"status": status})),
    )


def _arguments(parts: Parts) -> list[str]:
    """What the Deployment's container is to run, with any free port for its metrics."""
    found: list[list[str]] = []

    def is_there() -> bool:
        label = f"tidegate.io/queue={QUEUE}"
        text = parts.kubectl("get", "deployments", "-o", "json", "-l", label)
        for one in json.loads(text)["items"]:
            found.append(one["spec"]["template"]["spec"]["containers"][0]["args"])
        return bool(found)

    wait_until(is_there, f"the Deployment of queue {QUEUE}", timeout_seconds=_START_SECONDS)
    return [
        "--metrics-port=0"
        if one.startswith("--metrics-port=")
        else one.replace("$(POD_NAME)", "demo").replace("$$(", "$(")
        for one in found[0]
    ]
