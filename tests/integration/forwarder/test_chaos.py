"""Forwarders are killed and stopped, brokers restart and sessions with ZooKeeper end, in a random
order, while numbered records flow over three brokers: at least once loses nothing and keeps order,
exactly once loses and doubles nothing.

`QUEUE_CHAOS=<number>` plays fewer or more events, `QUEUE_CHAOS_SEED=<number>` the same ones again;
the seed is printed. The long test plays fifty of them in a million records.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lab.errors import LabError
from lab.kafka import KafkaLab
from lab.process import Process, freeze, patience, started, wait_until
from lab.proxy import Proxy
from tests.integration.forwarder.forward_process import start_forwarder
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tests.integration.forwarder.test_kills import stopped
from tidegate.queues.names import DUE_HEADER, Guarantee

pytestmark = pytest.mark.integration

EVENTS = int(os.environ.get("QUEUE_CHAOS") or "50")
RECORDS = int(os.environ.get("QUEUE_CHAOS_RECORDS") or "1000000")
RECORDS_PER_SECOND = 6000
KINDS = {"kill": 18, "stop": 10, "session": 10, "broker": 12}  # of fifty
DELAYS = {1: 3, 2: 3}
LEVELS = sum(DELAYS.values())
KEYS = 97
FORWARDERS = 3
STOP_SECONDS = 10.0  # longer than a session
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
}


class Arrivals:
    """Reads the target, committed records only, and checks each record as it comes."""

    def __init__(self, queue: QueueWorld) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": queue.kafka.bootstrap_servers,
                "group.id": f"{queue.prefix}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 10,
            }
        )
        partitions = self._consumer.list_topics(queue.target, timeout=patience(20))
        self._consumer.assign(
            [TopicPartition(queue.target, p, 0) for p in partitions.topics[queue.target].partitions]
        )
        self._seen = bytearray()
        self._last: dict[tuple[int, int], int] = {}
        self.distinct = self.again = 0
        self.early: list[int] = []
        self.overtaken: list[int] = []
        self.newest_at = time.monotonic()

    def read(self) -> None:
        """Take what has come since the last call."""
        for message in self._consumer.consume(5000, 0.05):
            if message.error() is None:
                self._take(message)

    def has_all(self, feed: Feed) -> bool:
        """Whether each record has arrived that brokers acknowledged to the feed."""
        return self.distinct >= feed.sent - len(feed.refused) and all(
            number in feed.refused or (number < len(self._seen) and self._seen[number])
            for number in range(feed.sent)
        )

    def is_flowing(self) -> bool:
        """Whether a record came within the last second that had not come before."""
        return time.monotonic() - self.newest_at < 1.0

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: object) -> None:
        number, partition = int(message.value()), message.partition()  # type: ignore[attr-defined]
        headers = dict(message.headers())  # type: ignore[attr-defined]
        if message.timestamp()[1] < int(headers[DUE_HEADER]):  # type: ignore[attr-defined]
            self.early.append(number)
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 100_000 - len(self._seen)))
        if self._seen[number]:
            self.again += 1
            return
        self._seen[number] = 1
        self.distinct += 1
        self.newest_at = time.monotonic()
        place = (partition, number % LEVELS)
        if self._last.get(place, -1) > number:
            self.overtaken.append(number)
        self._last[place] = number


class Feed:
    """Writes numbered records to the level topics in turn, at a steady rate, until it is ended."""

    def __init__(self, queue: QueueWorld, levels: list[str], rate: int) -> None:
        self.sent = 0
        self.refused: set[int] = set()
        """Records that brokers did not acknowledge: nothing is promised of them."""
        self._levels, self._rate = levels, rate
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": queue.kafka.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "delivery.report.only.error": True,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write no more, and return once all that was written is acknowledged."""
        self._ending.set()
        self._thread.join(patience(120))
        assert not self._thread.is_alive()

    def _run(self) -> None:
        began, written = time.monotonic(), 0
        while not self._ending.wait(0.01):
            for number in range(written, int((time.monotonic() - began) * self._rate)):
                self._write(number)
                written = self.sent = number + 1
            self._producer.poll(0)
        assert self._producer.flush(patience(100)) == 0

    def _write(self, number: int) -> None:
        level, key = self._levels[number % LEVELS], b"%d" % (number % KEYS)
        while True:
            try:
                self._producer.produce(
                    level,
                    b"%d" % number,
                    key,
                    partition=0,
                    on_delivery=partial(self._answered, number),
                )
                return
            except BufferError:  # brokers are away
                self._producer.poll(0.1)
            except KafkaException as error:  # a broker that has just started knows no topic
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                    raise
                self._producer.poll(0.1)

    def _answered(self, number: int, error: object, _: object) -> None:
        if error is not None:
            self.refused.add(number)


class Line(Proxy):
    """A forwarder's line to ZooKeeper. While it is cut, nobody answers."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._nobody = socket.create_server(("127.0.0.1", 0), backlog=1000)
        super().__init__(server)

    def cut(self) -> None:
        self._target = self._nobody.getsockname()

    def mend(self) -> None:
        self._target = self._server

    def lets_answer_pass(self) -> bool:
        return self._target == self._server

    def close(self) -> None:
        self.__exit__()
        self._nobody.close()


@dataclass
class Forwarder:
    """A process with its own line to ZooKeeper."""

    name: str
    process: Process
    line: Line
    is_away: bool = False


@dataclass
class Chaos:
    """A queue on three brokers with its forwarders, and what is done to them.

    `pending` are ends of events that were begun: what they wait for, and what is done then.
    """

    queue: QueueWorld
    kafka: KafkaLab
    folder: Path
    dice: random.Random
    arrivals: Arrivals
    zookeeper: KazooClient
    forwarders: list[Forwarder] = field(default_factory=list)
    pending: list[tuple[Callable[[], bool], Callable[[], None]]] = field(default_factory=list)
    played: Counter[str] = field(default_factory=Counter)
    flowing: int = 0
    _names: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        """Start one more forwarder."""
        host, _, port = self.kafka.zookeeper_connect.partition(":")
        name, line = f"f{next(self._names)}", Line((host, int(port)))
        address = f"127.0.0.1:{line.port}"
        process = start_forwarder(self.queue, name, self.folder, zookeeper=address)
        self.forwarders.append(Forwarder(name, process, line))

    def wait(self, condition: Callable[[], bool], what: str, *, timeout_seconds: float) -> None:
        """Read what arrives, and end events, until the condition holds."""

        def is_so() -> bool:
            self.arrivals.read()
            for event in [event for event in self.pending if event[0]()]:
                self.pending.remove(event)
                event[1]()
            return condition()

        wait_until(is_so, what, timeout_seconds=timeout_seconds, poll_seconds=0.0)

    def play(self, kind: str) -> None:
        """Begin one event, after more records have come."""
        wanted = self.arrivals.distinct + self.dice.randint(2000, 20_000)
        self.wait(
            lambda: self.arrivals.distinct >= wanted, f"{wanted} records", timeout_seconds=120
        )
        self.flowing += {
            "kill": self._kill,
            "stop": self._stop,
            "session": self._end_session,
            "broker": self._restart_broker,
        }[kind]()
        self.played[kind] += 1

    def settle(self) -> None:
        """Return once every event has ended."""
        self.wait(lambda: not self.pending, "every event to end", timeout_seconds=120)

    def owners(self) -> dict[str, str]:
        """The forwarder of each level topic that has one now."""
        root = f"{self.queue.names.zookeeper_root}/owners"
        found: dict[str, str] = {}
        for topic in self.zookeeper.get_children(root):
            try:
                found[topic] = self.zookeeper.get(f"{root}/{topic}")[0].decode().rpartition("-")[0]
            except NoNodeError:
                continue
        return found

    def _victim(self) -> Forwarder:
        """A forwarder that owns topics, at random."""
        found: list[Forwarder] = []

        def is_there() -> bool:
            owners = {*self.owners().values()}
            found[:] = [one for one in self.forwarders if one.name in owners and not one.is_away]
            return bool(found)

        self.wait(is_there, "a forwarder with topics", timeout_seconds=120)
        return self.dice.choice(found)

    def _kill(self) -> bool:
        victim, is_flowing = self._victim(), self.arrivals.is_flowing()
        victim.process.kill()
        self.forwarders.remove(victim)
        self.start()
        return is_flowing

    def _stop(self) -> bool:
        victim, is_flowing = self._victim(), self.arrivals.is_flowing()
        freeze(victim.process.pid)
        victim.is_away, until = True, time.monotonic() + STOP_SECONDS

        def go_on() -> None:
            os.kill(victim.process.pid, signal.SIGCONT)
            victim.is_away = False

        self.pending.append((lambda: time.monotonic() >= until, go_on))
        return is_flowing

    def _end_session(self) -> bool:
        """Cut the line until ZooKeeper has forgotten the forwarder, which still reaches Kafka."""
        victim, is_flowing = self._victim(), self.arrivals.is_flowing()
        victim.line.cut()
        victim.is_away = True

        def mend() -> None:
            victim.line.mend()
            victim.is_away = False

        self.pending.append((lambda: victim.name not in self.owners().values(), mend))
        return is_flowing

    def _restart_broker(self) -> bool:
        """Kill a broker as soon as every replica is in sync, and start it again a little later."""
        self.wait(self._is_in_sync, "all replicas in sync", timeout_seconds=180)
        broker, is_flowing = self.dice.choice(self.kafka.brokers), self.arrivals.is_flowing()
        broker.kill()
        node = f"/brokers/ids/{broker.broker_id}"
        # a broker ends at once where its last session is not over
        self.pending.append((lambda: self.zookeeper.exists(node) is None, broker.launch))
        return is_flowing

    def _is_in_sync(self) -> bool:
        away = [broker for broker in self.kafka.brokers if not broker.is_running()]
        if away and not any(action == away[0].launch for _, action in self.pending):
            raise LabError(f"a broker ended by itself. {away[0].process.log_tail()}")
        if away:
            return False
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        listed = admin.list_topics(timeout=patience(20)).topics.values()
        own = [one for one in listed if one.topic.startswith((self.queue.prefix, "__"))]
        places = [place for topic in own for place in topic.partitions.values()]
        return all(place.leader > 0 and len(place.isrs) == len(place.replicas) for place in places)

    def close(self) -> None:
        """End what is left, whatever state it is in."""
        for forwarder in self.forwarders:
            if forwarder.process.is_running():
                os.kill(forwarder.process.pid, signal.SIGCONT)
            forwarder.process.kill()
            forwarder.line.close()
        for broker in self.kafka.brokers:
            if not broker.is_running():
                broker.start()


def create(queue: QueueWorld) -> list[str]:
    """The queue's topics, each with a replica on every broker; returns the level topics."""
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    safe = {**APPEND_TIME, "min.insync.replicas": "2"}
    levels = [
        queue.names.level_topic(seconds, number).name
        for seconds, topics in DELAYS.items()
        for number in range(topics)
    ]
    for number, name in enumerate(levels):
        queue.kafka.create_topic(name, [replicas[number % 3]], config=safe)
    compact = {**safe, "cleanup.policy": "compact"}
    queue.kafka.create_topic(queue.names.control_topic, [replicas[0]], config=compact)
    queue.kafka.create_topic(queue.names.dead_topic, [replicas[1]], config=safe)
    queue.kafka.create_topic(queue.target, [*replicas, *replicas], config=safe)
    return levels


def order_of_events(dice: random.Random, events: int) -> list[str]:
    """Each kind as often as its share says, once at least, in a random order."""
    share = events / sum(KINDS.values())
    order = [kind for kind, often in KINDS.items() for _ in range(max(1, round(often * share)))]
    dice.shuffle(order)
    return order


@contextmanager
def chaos(queue: QueueWorld, kafka: KafkaLab, folder: Path) -> Iterator[Chaos]:
    seed = int(os.environ.get("QUEUE_CHAOS_SEED") or random.randrange(10**6))
    print(f"QUEUE_CHAOS_SEED={seed}")
    zookeeper = KazooClient(kafka.zookeeper_connect)
    zookeeper.start()
    with closing(Arrivals(queue)) as arrivals:
        world = Chaos(queue, kafka, folder, random.Random(seed), arrivals, zookeeper)
        try:
            yield world
        finally:
            world.close()
            zookeeper.stop()
            zookeeper.close()


def play(
    queue: QueueWorld, kafka: KafkaLab, folder: Path, events: int, records: int, rate: int
) -> None:
    levels = create(queue)
    with chaos(queue, kafka, folder) as world:
        for _ in range(FORWARDERS):
            world.start()
        feed = Feed(queue, levels, rate)
        try:
            arrivals = world.arrivals
            world.wait(lambda: arrivals.distinct > 0, "the first record", timeout_seconds=120)
            began = time.monotonic()
            for kind in order_of_events(world.dice, events):
                world.play(kind)
            took_seconds, arrived = time.monotonic() - began, arrivals.distinct
            world.settle()
            world.wait(lambda: feed.sent >= records, f"{records} records", timeout_seconds=900)
        finally:
            feed.end()
        world.wait(
            lambda: arrivals.has_all(feed),
            f"all {feed.sent} records but the {len(feed.refused)} that were refused",
            timeout_seconds=180,
        )
        world.wait(lambda: not arrivals.is_flowing(), "nothing more", timeout_seconds=60)
        print(
            f"{queue.guarantee}: {feed.sent} records, {len(feed.refused)} of them never "
            f"acknowledged, {arrivals.distinct} arrived, "
            f"{arrivals.again} came twice, {len(arrivals.early)} early, "
            f"{len(arrivals.overtaken)} overtaken; {dict(world.played)} in {took_seconds:.0f} s, "
            f"records in flight at {world.flowing}, {arrived / took_seconds:.0f} records/s"
        )
        assert arrivals.has_all(feed)
        assert (arrivals.early, arrivals.overtaken) == ([], [])
        if queue.guarantee is Guarantee.EXACTLY_ONCE:
            assert arrivals.again == 0
        codes = [stopped(forwarder.process) for forwarder in world.forwarders]
    assert codes == [0] * FORWARDERS


@pytest.fixture(scope="module")
def replicated() -> Iterator[KafkaLab]:
    """Three brokers whose internal topics have a replica on each."""
    with started(lambda: KafkaLab(brokers=3, server_properties=REPLICATED)) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_a_million_records_survive_fifty_events(
    replicated: KafkaLab, unique_name: str, tmp_path: Path, guarantee: Guarantee
) -> None:
    queue = QueueWorld(replicated, unique_name, guarantee)
    play(queue, replicated, tmp_path, EVENTS, RECORDS, RECORDS_PER_SECOND)


def test_records_survive_the_end_of_a_session_with_zookeeper(
    queue: QueueWorld, kafka: KafkaLab, tmp_path: Path
) -> None:
    """The forwarder still reaches Kafka, while others take over its topics."""
    levels = create(queue)
    with chaos(queue, kafka, tmp_path) as world:
        for _ in range(2):
            world.start()
        feed = Feed(queue, levels, 2000)
        try:
            world.play("session")
            world.settle()
        finally:
            feed.end()
        arrivals = world.arrivals
        world.wait(lambda: arrivals.has_all(feed), "all records", timeout_seconds=60)
        world.wait(lambda: not arrivals.is_flowing(), "nothing more", timeout_seconds=30)
        assert arrivals.has_all(feed)
        assert (arrivals.early, arrivals.overtaken) == ([], [])
        if queue.guarantee is Guarantee.EXACTLY_ONCE:
            assert arrivals.again == 0
