"""Where the ledger is once it has moved from ZooKeeper, for policies that still name ZooKeeper.

ZooKeeper keeps its claim and its records from before the move for ever. The real quota store, the
real move and the real choice between the two places, on a tree and on a topic in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.quota_store_contract import ALICE, PRODUCE, first
from tests.doubles.quota_store import MemoryQuotaStore
from tests.unit.control.stage import Leaders, Stage
from tidegate.errors import ForeignContent, LedgerElsewhere, Unreachable, WriteRefused
from tidegate.kafka.adminapi import ledger as topic_ledger
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.journal import outcome
from tidegate.kafka.adminapi.log import Entry, Record
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.quota_store import Claim, LedgerFacts
from tidegate.kafka.settings import KafkaConnection
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.connections import open_cluster
from tidegate.observe.observation import KafkaCluster
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate_logic.reasons import Reason

KEY = "streaming/orders"
BEFORE = Claim(KEY, "uid-1", "operator-1", 1, 1000.0)
CLUSTER_ID = "memory-cluster"  # as the tree has it
BROKERS = KafkaConnection(("kafka-1:9092",))
SPEC = {"bootstrapServers": "kafka-1:9092", "zookeeper": {"connect": "zk-1:2181"}}


class MemoryLog:
    """The log of a topic in `records`, which its readers and writers share."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self._read = 0
        self.is_writer = False
        self.facts = LedgerFacts("__tidegate_ledger")

    def news(self) -> tuple[bool, list[Entry]]:
        start, self._read = self._read, len(self._records)
        fresh = self._records[start:]
        return False, [Entry(start + number, *record) for number, record in enumerate(fresh)]

    def become_writer(self) -> None:
        self.is_writer = True

    def give_up(self) -> None:
        self.is_writer = False

    def commit(self, records: Sequence[Record]) -> int:
        start = len(self._records)
        self._records += records
        self._read = len(self._records)
        return start


class MemoryClient(AdminClient):
    """Brokers that say who they are, and how they keep their metadata."""

    def __init__(self, cluster_id: str, *, kraft: bool) -> None:
        super().__init__(BROKERS)
        self._cluster_id = cluster_id
        self._kraft = kraft

    def is_kraft(self) -> bool:
        return self._kraft

    def metadata(self, topics: object = ()) -> Any:
        return SimpleNamespace(cluster_id=self._cluster_id, controller_id=1)

    def ask(self, request: object, at: object = None) -> Any:
        done = SimpleNamespace(error_code=0)
        return SimpleNamespace(entries=[done])  # an active controller checks a change


@dataclass
class World:
    """A cluster that has left ZooKeeper with a ledger of one there, and moves it."""

    folder: Path
    zookeeper: MemoryQuotaStore = field(default_factory=MemoryQuotaStore)
    topic: list[Record] = field(default_factory=list)
    cluster_id: str = CLUSTER_ID
    kraft: bool = True
    before: Claim = BEFORE

    def __post_init__(self) -> None:
        self.zookeeper.claim(self.before)
        self.zookeeper.write(
            [first(self.zookeeper.read([ALICE])[ALICE], {PRODUCE: "2048"})], CLUSTER_ID
        )
        self.zookeeper.elect_controller(kraft_epoch=3)
        self.zookeeper.prepare_migration()

    def brokers(self, *_: object, **__: object) -> AdminQuotaStore:
        client = MemoryClient(self.cluster_id, kraft=self.kraft)
        return AdminQuotaStore(BROKERS, client=client)

    def move(self, wanted: Claim = BEFORE) -> str | None:
        move = LedgerMove(self.zookeeper.tree, self.brokers, quiet_seconds=0.0)
        return move.attempt(wanted) or move.attempt(wanted)  # a first look may only note the note

    def give_back(self) -> None:
        """What the end of a policy, or `tidegate restore`, leaves of the topic's ledger."""
        store = self.brokers()
        store._ledger.as_writer(lambda: store._ledger.commit([outcome(ALICE, None)]))
        store.release_claim(KEY)
        assert (store.facts().claim, store.ledger_entities()) == (None, frozenset())

    def open(self) -> KafkaCluster:
        def topology(*_: Any, topic_names: Callable[[], frozenset[str]], **__: Any) -> Any:
            return topic_names

        return open_cluster(
            KafkaSpec.model_validate(SPEC),
            secrets=Secrets(),
            folder=self.folder,
            open_tree=lambda *_, **__: self.zookeeper.tree,
            open_admin_store=self.brokers,
            open_topology=topology,
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(topic_ledger, "LedgerLog", lambda *_: MemoryLog(world.topic))
    return world


def test_a_policy_that_is_made_anew_is_not_held_by_the_claim_in_zookeeper(world: World) -> None:
    moved = world.move()
    assert moved is not None
    assert moved.startswith("The ledger of 1 quota moved from ZooKeeper memory")
    world.give_back()
    cluster = world.open()
    assert isinstance(cluster.store, AdminQuotaStore)
    assert cluster.ledger_move is None
    anew = cluster.store.claim(Claim(KEY, "uid-2", "operator-1", since_seconds=2000.0))
    assert anew.policy_uid == "uid-2"
    claim = world.zookeeper.facts().claim  # which counts no more
    assert claim is not None
    assert claim.policy_uid == "uid-1"


def test_a_ledger_that_was_given_back_does_not_come_again_from_zookeeper(world: World) -> None:
    world.move()
    world.give_back()
    before = list(world.topic)
    with pytest.raises(LedgerElsewhere) as refused:
        world.move()
    assert refused.value.message == (
        "The topic __tidegate_ledger got this cluster's ledger when Kafka left ZooKeeper, and what "
        "ZooKeeper has is out of date since, so it is not moved again. Quotas are written through "
        "the brokers: remove spec.kafka.zookeeper."
    )
    assert world.topic == before


def test_a_replica_that_looked_before_the_move_looks_again(world: World) -> None:
    stage = Stage()
    policy = stage.policy()
    uid = stage.kubernetes.get(policy)["metadata"]["uid"]
    of_policy = replace(BEFORE, policy_uid=uid)
    world = replace(world, zookeeper=MemoryQuotaStore(), before=of_policy)
    move = LedgerMove(world.zookeeper.tree, world.brokers, quiet_seconds=0.0)
    clusters = [KafkaCluster("memory", world.zookeeper, Leaders(), move)]
    opened: list[KafkaCluster | None] = []

    def opener(*_: object, **__: object) -> KafkaCluster:
        opened.append(clusters.pop() if clusters else None)
        if opened[-1] is None:
            raise Unreachable(Reason.BROKERS_UNREACHABLE, "the brokers are asked again")
        return opened[-1]

    stage.world = replace(stage.world, open_cluster=opener)
    stage.run()  # it notes how far the controllers are; meanwhile another replica moves the ledger
    world.move(of_policy)
    world.give_back()
    stage.now += 60
    stage.run()
    assert len(opened) == 1
    stage.now += 60
    stage.run()
    assert len(opened) == 2
    assert "The brokers are asked again" in stage.message(policy)


def test_a_topic_with_a_claim_is_in_charge(world: World) -> None:
    world.move()
    assert isinstance(world.open().store, AdminQuotaStore)


def test_a_ledger_that_moved_without_a_record_has_moved_too(world: World) -> None:
    world.zookeeper = MemoryQuotaStore()  # Tidegate never wrote there
    world.zookeeper.elect_controller(kraft_epoch=3)
    assert world.move() is not None
    world.brokers().release_claim(KEY)
    assert isinstance(world.open().store, AdminQuotaStore)


def test_while_the_move_is_not_over_zookeeper_is_in_charge(world: World) -> None:
    cluster = world.open()
    assert isinstance(cluster.store, ZooKeeperQuotaStore)
    assert cluster.ledger_move is not None
    # a topic that was used and emptied before the move says nothing of it
    world.brokers().claim(Claim(KEY, "uid-0"))
    world.brokers().release_claim(KEY)
    assert world.topic
    assert isinstance(world.open().store, ZooKeeperQuotaStore)
    assert world.move() is not None
    assert isinstance(world.open().store, AdminQuotaStore)


def test_after_a_way_back_zookeeper_is_in_charge(world: World) -> None:
    world.move()
    world.kraft = False
    assert isinstance(world.open().store, ZooKeeperQuotaStore)


def test_a_topic_that_was_copied_from_another_cluster_says_nothing_of_this_one(
    world: World,
) -> None:
    world.move()
    world.give_back()
    world.cluster_id = "copy"  # the same topic, as a mirror of it has it
    assert isinstance(world.open().store, ZooKeeperQuotaStore)
    with pytest.raises(WriteRefused) as refused:
        world.move()
    assert refused.value.reason is Reason.WRONG_CLUSTER


def test_a_mark_that_cannot_be_read_holds_everything(world: World) -> None:
    world.topic.append((b"moved", b'{"version":99}'))
    with pytest.raises(ForeignContent) as held:
        world.open()
    assert held.value.message == (
        "The topic __tidegate_ledger says in a way that cannot be read (its format is 99, only 1 "
        "is known) whether the ledger moved there from ZooKeeper, so nothing is written. If a "
        "newer Tidegate wrote it, use that version."
    )
