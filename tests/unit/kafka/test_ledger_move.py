"""When the ledger leaves ZooKeeper, and what keeps it there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.contract.quota_store_contract import ALICE, BOB, PRODUCE, first
from tests.doubles.quota_store import OPEN_ACL, MemoryQuotaStore
from tidegate.errors import LeaseLost, TidegateError
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.quota_store import Claim, ClusterFacts, require_lease
from tidegate.kafka.zookeeper.nodes import LEDGER_ROOT, MIGRATION_PATH, ledger_path
from tidegate.kafka.zookeeper.tree import Create, SetData
from tidegate_logic.model import Entity
from tidegate_logic.reasons import Reason

OURS = Claim("streaming/orders", "uid-1", "operator-1", 1, 1000.0)


@dataclass
class Brokers:
    """A quota store on brokers that takes a ledger and keeps it."""

    cluster_id: str = "memory-cluster"
    kraft: bool = True
    controller: bool = True
    topic: str = "__tidegate_ledger"
    address: str = "kafka-1:9092"
    ledger: tuple[Claim, Mapping[Entity, bytes]] | None = None
    on_change: Callable[[], None] = lambda: None
    closed: int = 0
    throttles: bytes | None = None
    may_write: Callable[[], bool] = lambda: True

    def only_while(self, may_write: Callable[[], bool]) -> None:
        self.may_write = may_write

    def is_kraft(self) -> bool:
        return self.kraft

    def has_controller(self) -> bool:
        return self.controller

    def facts(self) -> ClusterFacts:
        return ClusterFacts(self.cluster_id, 0, migration_running=False, claim=None)

    def begin_ledger(
        self,
        claim: Claim,
        records: Mapping[Entity, bytes],
        *,
        throttles: bytes | None,
        only_if: Callable[[], None],
    ) -> None:
        self.on_change()
        only_if()
        require_lease(self.may_write)
        self.throttles = throttles
        self.ledger = (claim, dict(records))

    def close(self) -> None:
        self.closed += 1


@dataclass
class World:
    """A cluster whose controllers have left ZooKeeper, with a ledger of two there."""

    store: MemoryQuotaStore = field(default_factory=MemoryQuotaStore)
    brokers: Brokers = field(default_factory=Brokers)
    now_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.store.claim(OURS)
        for entity in (ALICE, BOB):
            seen = self.store.read([entity])[entity]
            self.store.write([first(seen, {PRODUCE: "2048"})], "memory-cluster")
        self.store.elect_controller(kraft_epoch=3)
        self.store.prepare_migration()
        self.move = LedgerMove(
            self.store.tree,
            lambda: self.brokers,  # type: ignore[arg-type, return-value]
            quiet_seconds=60.0,
            monotonic=lambda: self.now_seconds,
        )

    def note(self) -> None:
        """A controller notes how far it has come."""
        (node,) = self.store.tree.read([MIGRATION_PATH])
        assert node is not None
        self.store.tree.commit([SetData(MIGRATION_PATH, b"{}", node.version)])

    def after(self, seconds: float, wanted: Claim = OURS) -> str | None:
        self.now_seconds += seconds
        return self.move.attempt(wanted)

    def without_lease(self) -> TidegateError:
        """The move that is due, by a replica that has lost its Lease meanwhile."""
        self.begin()
        self.now_seconds += 60
        with pytest.raises(TidegateError) as error:
            self.move.attempt(OURS, may_write=lambda: False)
        return error.value

    def begin(self) -> None:
        """The first look, to have a note to compare with, and the one that begins the minute."""
        assert self.after(0) is None
        assert self.after(0) is None

    def refused(self, wanted: Claim = OURS) -> TidegateError:
        self.begin()
        self.brokers.closed = 0
        with pytest.raises(TidegateError) as error:
            self.after(60, wanted)
        assert self.brokers.ledger is None
        assert self.brokers.closed == 1
        return error.value


@pytest.fixture
def world() -> World:
    return World()


def test_without_the_lease_it_stays_where_it_is() -> None:
    world = World()
    assert isinstance(world.without_lease(), LeaseLost)
    assert (world.brokers.ledger, world.brokers.closed > 0) == (None, True)


def test_it_moves_when_none_has_written_to_zookeeper_for_a_minute(world: World) -> None:
    world.begin()
    assert world.after(59.9) is None
    assert world.after(0.1) == (
        "The ledger of 2 quotas moved from ZooKeeper memory to the topic __tidegate_ledger; from "
        "now on quotas are written through the brokers. ZooKeeper is not needed any more: remove "
        "spec.kafka.zookeeper"
    )
    assert world.brokers.ledger is not None
    claim, records = world.brokers.ledger
    assert claim == world.store.facts().claim
    assert records.keys() == {ALICE, BOB}
    for entity, record in records.items():
        (node,) = world.store.tree.read([ledger_path(entity)])
        assert node is not None
        assert node.data == record
        assert json.loads(record)["entries"][PRODUCE.value]["written"] == "2048"
    assert world.brokers.closed == 3  # once for each look that asked a controller


def test_each_note_of_a_controller_begins_the_minute_anew(world: World) -> None:
    for _ in range(20):
        assert world.after(30) is None
        world.note()
    world.begin()
    assert world.after(59) is None
    assert world.brokers.ledger is None
    assert world.after(1) is not None


def test_controllers_that_are_away_for_a_minute_have_not_left_zookeeper(world: World) -> None:
    world.begin()
    world.brokers.controller = False  # nobody is there to note anything
    for _ in range(20):
        assert world.after(30) is None
    world.brokers.controller = True
    assert world.after(30) is None
    world.note()
    for _ in range(20):
        assert world.after(30) is None
        world.note()
    assert world.brokers.ledger is None


def test_the_minute_begins_with_a_controllers_answer(world: World) -> None:
    world.brokers.controller = False
    world.begin()
    assert world.after(3600) is None
    world.brokers.controller = True
    assert world.after(0) is None
    assert world.after(59) is None
    assert world.after(1) is not None


def test_a_note_that_comes_with_a_change_of_the_cluster_keeps_it_there(world: World) -> None:
    world.brokers.on_change = world.note
    error = world.refused()
    assert error.reason is Reason.MIGRATION_RUNNING
    assert error.message == (
        "Kafka's controllers still write to ZooKeeper memory; the ledger moves when they have "
        "left it."
    )
    world.brokers.on_change = lambda: None
    world.begin()
    assert world.after(60) is not None


def test_brokers_that_use_zookeeper_keep_it_there(world: World) -> None:
    world.brokers.kraft = False
    world.begin()
    assert world.after(3600) is None
    assert world.brokers.ledger is None


def test_another_cluster_gets_no_ledger(world: World) -> None:
    world.brokers.cluster_id = "another"
    error = world.refused()
    assert error.reason is Reason.WRONG_CLUSTER
    assert error.message == (
        "The cluster at kafka-1:9092 has id another, not memory-cluster as ZooKeeper memory says. "
        "The ledger stays where it is. Correct spec.kafka.bootstrapServers or "
        "spec.kafka.zookeeper.connect."
    )


def test_another_policys_ledger_is_left_to_it(world: World) -> None:
    error = world.refused(Claim("streaming/orders", "uid-2"))
    assert error.reason is Reason.CLAIMED_ELSEWHERE
    assert error.message == (
        "The ledger in ZooKeeper memory is that of policy streaming/orders with uid uid-1; it "
        "stays where it is."
    )


def test_a_record_that_cannot_be_read_keeps_all_of_it_there(world: World) -> None:
    (node,) = world.store.tree.read([ledger_path(BOB)])
    assert node is not None
    world.store.tree.commit(
        [
            SetData(ledger_path(BOB), b'{"version":99}', node.version),
            Create(f"{LEDGER_ROOT}/no-entity", b"", OPEN_ACL),
        ]
    )
    error = world.refused()
    assert error.reason is Reason.FOREIGN_CONTENT
    assert error.message == (
        "The ledger in ZooKeeper memory has 2 records that cannot be read "
        f"({LEDGER_ROOT}/no-entity, user=bob), so it stays where it is. `tidegate explain` says "
        "what is wrong with each; correct or delete them."
    )


def test_a_quota_that_cannot_be_read_stops_no_ledger(world: World) -> None:
    world.store.put_raw(ALICE, b"no JSON")
    world.begin()
    assert world.after(60) is not None
    assert world.brokers.ledger is not None
    assert ALICE in world.brokers.ledger[1]


def test_where_tidegate_wrote_nothing_the_policy_claims_the_topic() -> None:
    world = World(MemoryQuotaStore())
    store = MemoryQuotaStore()
    store.elect_controller(kraft_epoch=3)
    world.move = LedgerMove(
        store.tree,
        lambda: world.brokers,  # type: ignore[arg-type, return-value]
        monotonic=lambda: world.now_seconds,
    )
    world.begin()
    assert world.after(60, replace(OURS, epoch=0)) is not None
    assert world.brokers.ledger is not None
    claim, records = world.brokers.ledger
    assert (claim.policy_uid, claim.epoch, records) == ("uid-1", 1, {})
