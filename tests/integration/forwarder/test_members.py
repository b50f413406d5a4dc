"""Membership on a real ZooKeeper, and on a real Kafka without one, fulfils its contract."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from kazoo.security import make_acl

from lab.kraft import KraftLab
from lab.process import freeze, wait_until
from lab.zookeeper import ZooKeeperLab
from tests.contract.membership_contract import LONG_SECONDS, MembershipContract
from tidegate.errors import Conflict, Unreachable, WriteRefused
from tidegate.forwarder import kafka_members
from tidegate.forwarder.kafka_members import KafkaMembers
from tidegate.forwarder.zookeeper_members import ZooKeeperMembers
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.queues.names import QueueNames

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def _frozen(pid: int) -> Iterator[None]:
    freeze(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class ZooKeeperWorld:
    """A queue in a chroot of its own."""

    def __init__(self, server: ZooKeeperLab, chroot: str) -> None:
        self._server, self.chroot = server, chroot
        self.prefix = "shop"

    def create(self, topics: Collection[str]) -> None:
        """ZooKeeper does not know them."""

    def join(
        self,
        member: str,
        *,
        prefix: str = "",
        timeout_seconds: float = LONG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> ZooKeeperMembers:
        connection = ZooKeeperConnection(self.chroot, session_timeout_seconds=timeout_seconds)
        return ZooKeeperMembers(connection, prefix or self.prefix, member, clock)

    def arguments(self) -> list[str]:
        return ["zookeeper", self.chroot, self.prefix]

    def silent(self) -> contextlib.AbstractContextManager[None]:
        return _frozen(self._server.process.pid)


class KafkaWorld:
    """A queue with a prefix of its own."""

    def __init__(self, kafka: KraftLab, prefix: str) -> None:
        self._kafka, self.prefix = kafka, prefix
        self._made: set[str] = set()

    def create(self, topics: Collection[str]) -> None:
        for topic in sorted(set(topics) - self._made):
            self._kafka.create_topic(topic, [[1]])
        self._made.update(topics)

    def join(
        self,
        member: str,
        *,
        prefix: str = "",
        timeout_seconds: float = LONG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> KafkaMembers:
        config = {"bootstrap.servers": self._kafka.bootstrap_servers}
        return KafkaMembers(config, prefix or self.prefix, member, timeout_seconds, clock)

    def arguments(self) -> list[str]:
        return ["kafka", self._kafka.bootstrap_servers, self.prefix]

    def silent(self) -> contextlib.AbstractContextManager[None]:
        return _frozen(self._kafka.broker(1).process.pid)


class TestZooKeeperMembers(MembershipContract):
    """Members are sessions of ZooKeeper."""

    @pytest.fixture
    def world(
        self, zookeeper: ZooKeeperLab, chroot: str, chroot_client: KazooClient
    ) -> ZooKeeperWorld:
        chroot_client.ensure_path("/config/users")
        return ZooKeeperWorld(zookeeper, chroot)

    def test_an_expired_session_is_lost_and_what_it_had_is_taken_over(
        self, world: ZooKeeperWorld
    ) -> None:
        first, second = world.join("first"), world.join("second")
        for member in (first, second):
            member.topics(["shop.5.0"])
        wait_until(lambda: first.take("shop.5.0"), "the topic", timeout_seconds=20)
        session = KazooClient(world.chroot, client_id=first._client.client_id)
        session.start()
        session.stop()  # ends the session of both
        session.close()
        wait_until(first.is_lost, "the first to lose its session", timeout_seconds=20)
        assert not first.may_send()
        assert first.wanted() == set()
        assert not first.take("shop.5.0")
        wait_until(lambda: second.take("shop.5.0"), "the second to take it", timeout_seconds=20)
        first.close()
        second.close()

    def test_a_newer_assignment_is_left_alone(
        self, world: ZooKeeperWorld, chroot_client: KazooClient
    ) -> None:
        root = QueueNames(world.prefix).zookeeper_root
        member = world.join("only")
        member.topics(["shop.5.0"])
        wait_until(lambda: member.take("shop.5.0"), "the topic", timeout_seconds=20)
        newer = json.dumps({"v": 2, "somehow": {"only": ["shop.5.0"]}}).encode()
        chroot_client.set(f"{root}/assignment", newer)
        wait_until(lambda: not member.wanted(), "it to want nothing", timeout_seconds=20)
        member.release("shop.5.0")
        wait_until(
            lambda: not chroot_client.get_children(f"{root}/owners"),
            "it to let the topic go",
            timeout_seconds=20,
        )
        assert chroot_client.get(f"{root}/assignment")[0] == newer
        assert not member.is_lost()
        chroot_client.delete(f"{root}/assignment")
        wait_until(lambda: member.take("shop.5.0"), "the topic again", timeout_seconds=20)
        member.close()

    def test_nodes_say_who_has_what_and_are_as_closed_as_the_users(
        self, world: ZooKeeperWorld, chroot_client: KazooClient
    ) -> None:
        closed = [
            make_acl("ip", "127.0.0.1", all=True),
            make_acl("world", "anyone", read=True),
        ]
        chroot_client.set_acls("/config/users", closed)
        root = QueueNames(world.prefix).zookeeper_root
        member = world.join("only")
        member.topics(["shop.5.0"])
        wait_until(lambda: member.take("shop.5.0"), "the topic", timeout_seconds=20)
        assert chroot_client.get(f"{root}/owners/shop.5.0")[0] == b"only"
        assert json.loads(chroot_client.get(f"{root}/assignment")[0]) == {
            "v": 1,
            "topics": {"only": ["shop.5.0"]},
        }
        for path in (
            *("", "/members", "/members/only", "/lock"),
            *("/assignment", "/owners", "/owners/shop.5.0"),
        ):
            assert set(chroot_client.get_acls(root + path)[0]) == set(closed), path
        member.close()
        assert chroot_client.get_children(f"{root}/owners") == []
        assert chroot_client.get_children(f"{root}/members") == []

    @pytest.mark.parametrize("node", ["owners/shop.5.0", "members/only"])
    def test_a_member_whose_node_somebody_deletes_starts_again(
        self, world: ZooKeeperWorld, chroot_client: KazooClient, node: str
    ) -> None:
        member = world.join("only")
        member.topics(["shop.5.0"])
        wait_until(lambda: member.take("shop.5.0"), "the topic", timeout_seconds=20)
        chroot_client.delete(f"{QueueNames(world.prefix).zookeeper_root}/{node}")
        wait_until(member.is_lost, "it to be lost", timeout_seconds=20)
        member.close()

    def test_a_second_member_of_the_same_name_is_refused(self, world: ZooKeeperWorld) -> None:
        member = world.join("same")
        with pytest.raises(Conflict, match="same"):
            world.join("same")
        member.close()
        world.join("same").close()

    def test_a_wrong_chroot_or_address_is_said(self, world: ZooKeeperWorld) -> None:
        with pytest.raises(WriteRefused, match="/config/users"):
            ZooKeeperMembers(ZooKeeperConnection(f"{world.chroot}/elsewhere"), "shop", "only")
        silent = ZooKeeperConnection("127.0.0.1:1", start_timeout_seconds=1)
        with pytest.raises(Unreachable):
            ZooKeeperMembers(silent, "shop", "only")


class TestKafkaMembers(MembershipContract):
    """Members are those of a consumer group."""

    @pytest.fixture
    def world(self, kraft: KraftLab, unique_name: str) -> KafkaWorld:
        return KafkaWorld(kraft, unique_name)

    def test_positions_are_committed_to_another_group_than_that_of_the_members(
        self, world: KafkaWorld, kraft: KraftLab
    ) -> None:
        """A group with active members refuses them, so these must be two."""
        topic = f"{world.prefix}.5.0"
        world.create([topic])
        member = world.join("only")
        member.topics([topic])
        wait_until(member.may_send, "the member to be active", timeout_seconds=20)
        names = QueueNames(world.prefix)
        position = TopicPartition(topic, 0, 7)
        for group, is_accepted in ((names.group, True), (names.members_group, False)):
            consumer = Consumer({"bootstrap.servers": kraft.bootstrap_servers, "group.id": group})
            consumer.assign([TopicPartition(topic, 0, 0)])
            with (
                contextlib.nullcontext()
                if is_accepted
                else pytest.raises(Exception, match="UNKNOWN_MEMBER")
            ):
                consumer.commit(offsets=[position], asynchronous=False)
            consumer.close()
        member.close()

    def test_a_member_that_does_not_release_in_time_is_lost_and_holds_up_nobody(
        self, world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kafka_members, "_RELEASE_SECONDS", 0.5)
        topics = [f"{world.prefix}.5.{number}" for number in range(2)]
        world.create(topics)
        first = world.join("first")
        first.topics(topics)
        wait_until(lambda: all(map(first.take, topics)), "both topics", timeout_seconds=20)
        second = world.join("second")
        second.topics(topics)
        wait_until(lambda: all(map(second.take, topics)), "both topics again", timeout_seconds=20)
        assert first.is_lost()
        assert not first.may_send()
        first.close()
        second.close()
