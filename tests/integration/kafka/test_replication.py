"""Reassignments, sizes of logs and throttles of real brokers, with ZooKeeper and with KRaft."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience, slowness, wait_until
from tests.integration.connections import connection_of
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.errors import Incomplete
from tidegate.kafka.replication import KafkaReplication
from tidegate.kafka.throttle_record import record_to_bytes
from tidegate.observe.connections import open_cluster
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate_logic.replication.moves import MoveKind, ReplicaKey, moves_of
from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Configs,
    Operation,
    Resource,
    broker_resource,
    topic_resource,
)

pytestmark = pytest.mark.integration
FILL_BYTES = 16_384  # of a record, each in a batch of its own
MIB = 1024 * 1024


class World:
    """One cluster, and what the tests do with it."""

    def __init__(self, kafka: BrokersLab) -> None:
        self.kafka = kafka
        self.replication = KafkaReplication(connection_of(kafka.bootstrap_servers))

    def fill(self, topic: str, size: int, partition: int = 0) -> None:
        """Put so many bytes into a partition, with all replicas in sync at the end."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": FILL_BYTES,
                "queue.buffering.max.kbytes": 4096,
            }
        )
        for _ in range(size // FILL_BYTES):
            while True:
                with contextlib.suppress(BufferError):
                    producer.produce(topic, bytes(FILL_BYTES), partition=partition)
                    break
                producer.poll(0.1)
        assert producer.flush(patience(60)) == 0

    @contextlib.contextmanager
    def producing(self, topic: str, bytes_per_second: int) -> Iterator[None]:
        """Produce to a topic's first partition at this rate, until the block is left."""
        producer = Producer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "batch.size": FILL_BYTES}
        )
        over = threading.Event()

        def produce() -> None:
            began, sent = time.monotonic(), 0
            while not over.wait(0.05):
                while sent < bytes_per_second * (time.monotonic() - began):
                    with contextlib.suppress(BufferError):
                        producer.produce(topic, bytes(FILL_BYTES), partition=0)
                        sent += FILL_BYTES
                    producer.poll(0)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            producer.flush(patience(30))

    def set(self, resource: Resource, key: str, operation: Operation, value: str = "") -> None:
        """Change one value; again where a broker of a busy machine was silent for 3 s."""
        change = ConfigChange(resource, key, operation, value)
        failed: dict[Resource, str] = {}

        def was_answered() -> bool:
            nonlocal failed
            failed = dict(self.replication.alter([change]))
            return failed != {resource: "it did not answer"}

        wait_until(was_answered, f"an answer of {resource}", timeout_seconds=15)
        assert failed == {}

    def wait_for(self, resource: Resource, values: dict[str, str]) -> None:
        wait_until(
            lambda: self.replication.configs([resource]) == {resource: values},
            f"{resource} to have {values}",
            timeout_seconds=10,
            poll_seconds=0.1,
        )

    def everywhere(self, resources: Collection[Resource]) -> dict[int, Configs]:
        """What each broker has, once all have answered: one of a busy machine may be silent."""

        def answers() -> dict[int, Configs] | None:
            found = self.replication.everywhere(resources)
            known = {broker: configs for broker, configs in found.items() if configs is not None}
            return known if len(known) == len(self.kafka.brokers) else None

        return wait_until(answers, "an answer of each broker", timeout_seconds=15) or {}

    def left(self) -> Configs:
        return self.replication.scan()


@pytest.fixture
def on_zookeeper(kafka: KafkaLab) -> Iterator[World]:
    yield from around(kafka)


@pytest.fixture
def on_kraft(kraft_of_three: KraftLab) -> Iterator[World]:
    yield from around(kraft_of_three)


def around(kafka: BrokersLab) -> Iterator[World]:
    world = World(kafka)
    world.replication.read(with_recovery=False)
    yield world
    world.replication.close()


class EveryCluster:
    """What holds on both."""

    def test_a_move_is_seen_with_what_is_left_until_it_is_done(
        self, world: World, unique_name: str
    ) -> None:
        topic = topic_resource(unique_name)
        world.kafka.create_topic(unique_name, [[1]])
        world.fill(unique_name, 24 * MIB)
        for resource, key, value in (
            (topic, LEADER_LIST, "0:1"),
            (topic, FOLLOWER_LIST, "0:2"),
            (broker_resource(1), LEADER_RATE, str(MIB)),
            (broker_resource(2), FOLLOWER_RATE, str(MIB)),
        ):
            world.set(resource, key, Operation.SET, value)
        # a broker shows a change a moment after the controller took it
        world.wait_for(topic, {LEADER_LIST: "0:1", FOLLOWER_LIST: "0:2"})
        world.wait_for(broker_resource(1), {LEADER_RATE: str(MIB)})
        world.wait_for(broker_resource(2), {FOLLOWER_RATE: str(MIB)})
        assert not world.replication.has_changed(), "it was never read"
        world.replication.read(with_recovery=False)
        assert not world.replication.has_changed()
        world.kafka.admin.reassign({(unique_name, 0): [2]})
        wait_until(world.replication.has_changed, "the news", timeout_seconds=5, poll_seconds=0.2)
        assert not world.replication.has_changed(), "news is reported once"

        def begun() -> Any:
            seen = world.replication.read(with_recovery=False)
            (move,), progress = moves_of(seen, {})
            left = move.bytes_left
            return (seen, move, progress) if left is not None and left < 24 * MIB else None

        seen, move, progress = wait_until(begun, "bytes to arrive", timeout_seconds=10)
        (partition,) = seen.partitions
        assert partition.adding == {2}
        assert partition.removing == {1}
        assert partition.old_replicas == (1,)
        assert move.kind is MoveKind.REASSIGNMENT
        assert move.source == 1
        assert move.bytes_left > 5 * MIB

        def measured() -> Any:
            (later,), _ = moves_of(world.replication.read(with_recovery=False), progress)
            return later if later.speed() is not None else None

        later = wait_until(measured, "a speed", timeout_seconds=20, poll_seconds=0.5)
        # brokers of a busy machine may be slower than their throttle, and never faster
        assert 0.5 * MIB / slowness() < later.speed() < 1.5 * MIB
        assert later.inflow() == 0
        world.set(broker_resource(2), FOLLOWER_RATE, Operation.DELETE)
        world.set(broker_resource(1), LEADER_RATE, Operation.DELETE)
        wait_until(
            lambda: not world.replication.read(with_recovery=False).partitions,
            "the move to end",
            timeout_seconds=30,
        )
        assert not world.replication.has_changed(), "the end was read"
        assert world.left() == {topic: {LEADER_LIST: "0:1", FOLLOWER_LIST: "0:2"}}
        world.set(topic, LEADER_LIST, Operation.DELETE)
        world.set(topic, FOLLOWER_LIST, Operation.DELETE)
        wait_until(lambda: not world.left(), "no throttle", timeout_seconds=10)

    def test_items_of_lists_come_and_go_without_touching_others(
        self, world: World, unique_name: str
    ) -> None:
        topic = topic_resource(unique_name)
        world.kafka.create_topic(unique_name, [[1], [2]])
        world.set(topic, LEADER_LIST, Operation.SET, "1:2")
        world.set(topic, LEADER_LIST, Operation.APPEND, "0:1,0:3")
        world.wait_for(topic, {LEADER_LIST: "1:2,0:1,0:3"})
        world.set(topic, LEADER_LIST, Operation.SUBTRACT, "0:1,0:3")
        world.wait_for(topic, {LEADER_LIST: "1:2"})
        world.set(topic, LEADER_LIST, Operation.DELETE)
        world.wait_for(topic, {})

    def test_restore_takes_away_what_the_record_has_and_no_more(
        self, world: World, unique_name: str, tmp_path: Path
    ) -> None:
        topic = topic_resource(unique_name)
        world.kafka.create_topic(unique_name, [[1], [2]])
        world.set(topic, LEADER_LIST, Operation.SET, "0:1,1:2")
        world.set(broker_resource(1), LEADER_RATE, Operation.SET, "5000000")
        world.set(broker_resource(2), LEADER_RATE, Operation.SET, "7000000")
        ours = {
            topic: {LEADER_LIST: frozenset({"0:1"})},
            broker_resource(1): {LEADER_RATE: frozenset({"5000000"})},
        }

        def on_each(topics: dict[str, str], first: dict[str, str]) -> dict[int, Configs]:
            return {
                broker.broker_id: {topic: topics}
                | ({broker_resource(1): first} if broker.broker_id == 1 else {})
                for broker in world.kafka.brokers
            }

        # each broker takes a change a moment after the controller; after `restore` none is waited for
        before = on_each({LEADER_LIST: "0:1,1:2"}, {LEADER_RATE: "5000000"})
        wait_until(
            lambda: world.everywhere(ours.keys()) == before,
            "every broker to have the throttles",
            timeout_seconds=15,
            poll_seconds=0.1,
        )
        spec: dict[str, Any] = {"bootstrapServers": world.kafka.bootstrap_servers}
        addresses = ["--bootstrap-servers", world.kafka.bootstrap_servers]
        if isinstance(world.kafka, KafkaLab):
            connect = {"connect": world.kafka.zookeeper_connect}
            spec |= {"quotaStore": "ZooKeeper", "zookeeper": connect}
            addresses += ["--zookeeper", world.kafka.zookeeper_connect]
        declared = KafkaSpec.model_validate(spec)
        with closing(open_cluster(declared, secrets=Secrets(), folder=tmp_path)) as cluster:
            store = cluster.store
            store.keep_throttle_record(
                record_to_bytes(ours, "streaming/orders"), store.facts().cluster_id, seen=None
            )
            said = io.StringIO()
            code = main(["restore", *addresses, "--yes"], CommandContext(out=said, err=said))
            assert code == 0, said.getvalue()
            assert "Removed 2 replication throttles." in said.getvalue()
            assert store.throttle_record() is None
        # each broker by itself agrees, without waiting
        assert world.everywhere(ours.keys()) == on_each({LEADER_LIST: "1:2"}, {})
        foreign = {topic: {LEADER_LIST: "1:2"}, broker_resource(2): {LEADER_RATE: "7000000"}}
        assert world.left() == foreign
        for resource in foreign:
            for key in foreign[resource]:
                world.set(resource, key, Operation.DELETE)

    def test_a_topic_that_does_not_exist_has_no_throttle_and_takes_a_change_as_done(
        self, world: World, unique_name: str
    ) -> None:
        topic = topic_resource(unique_name)
        assert world.replication.configs([topic]) == {topic: {}}
        assert world.replication.alter([ConfigChange(topic, LEADER_LIST, Operation.DELETE)]) == {}

    def test_a_broker_that_does_not_exist_is_not_known_and_refuses_nothing_silently(
        self, world: World
    ) -> None:
        nobody = broker_resource(99)
        assert world.replication.configs([nobody]) == {}
        failed = world.replication.alter([ConfigChange(nobody, LEADER_RATE, Operation.SET, "1")])
        assert failed == {nobody: "it did not answer"}

    def test_a_broker_that_comes_back_is_seen_catching_up(
        self, world: World, unique_name: str
    ) -> None:
        topic = topic_resource(unique_name)
        world.kafka.create_topic(unique_name, [[1, 3]])
        # The leader's side holds it: a broker that starts may fetch before it knows of its own rate.
        slow = (
            (topic, LEADER_LIST, "0:1"),
            (broker_resource(1), LEADER_RATE, "100000"),
        )
        for resource, key, value in slow:
            world.set(resource, key, Operation.SET, value)
        world.kafka.broker(3).kill()

        def is_missed() -> bool:
            try:
                return 3 not in world.replication.read(with_recovery=True).brokers
            except Incomplete:  # it was the controller
                return False

        wait_until(is_missed, "broker 3 to be missed", timeout_seconds=60)
        world.fill(unique_name, 8 * MIB)
        down = world.replication.read(with_recovery=True)
        assert not [one for one in moves_of(down, {})[0] if one.key.topic == unique_name]
        assert broker_resource(3) not in world.replication.configs([broker_resource(3)])
        world.kafka.broker(3).start()
        key = ReplicaKey(unique_name, 0, 3)

        def behind() -> bool:
            moves, _ = moves_of(world.replication.read(with_recovery=True), {})
            left = {one.key: one.bytes_left for one in moves if one.kind is MoveKind.RECOVERY}
            return MIB < (left.get(key) or 0) <= 9 * MIB

        wait_until(behind, "the replica to catch up", timeout_seconds=30)
        for resource, key, _ in slow:
            world.set(resource, key, Operation.DELETE)
        wait_until(
            lambda: not world.replication.read(with_recovery=True).partitions,
            "everybody in sync",
            timeout_seconds=30,
        )


class TestWithZooKeeper(EveryCluster):
    @pytest.fixture
    def world(self, on_zookeeper: World) -> World:
        return on_zookeeper


@pytest.mark.kraft
class TestWithKraft(EveryCluster):
    @pytest.fixture
    def world(self, on_kraft: World) -> World:
        return on_kraft
