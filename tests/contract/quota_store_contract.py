"""The contract of `tidegate.kafka.quota_store.QuotaStore`, as tests.

`EveryStoreContract` is what every store passes; a subclass gives the fixtures `store` and `world`.
`ZooKeeperStoreContract` is more, for ZooKeeper and the in-memory double; a subclass of it gives the
fixtures `faults` (the tree under the store, with faults on demand) and `others` (another writer
that, like Kafka itself, reads, changes and writes without comparing). Each way in which a writer of ZooKeeper can break brokers has a test that this
store does not do it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import pytest

from tests.doubles.quota_store import FaultyTree
from tidegate.errors import (
    Conflict,
    LeaseLost,
    OutcomeUnknown,
    RetryLater,
    Unreachable,
    WriteRefused,
)
from tidegate.kafka.quota_node import config_path, parse_quota
from tidegate.kafka.quota_store import Claim, QuotaStore, WriteOutcome
from tidegate.kafka.zookeeper.nodes import ledger_path
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Check, Delete, Failure, Operation, Rejected, SetData
from tidegate_logic.model import (
    Default,
    Entity,
    LedgerEntry,
    LedgerRecord,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.quotas.leaving import remembered
from tidegate_logic.reasons import Reason

# --- a Kafka tree ---------------------------------------------------------------------------------
# Another writer of it, and writes to try.


CLUSTER = "cluster-one"
POLICY = "streaming/orders"
PRODUCE, FETCH, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)
ALICE = Entity("alice")
ALICE_APP = Entity("alice", "app")
BOB = Entity("bob")
SCRAM = r'"SCRAM-SHA-256":"salt=MTIz\/+==,stored_key=a\u002bb=,server_key=c=,iterations=4096"'
KAFKA_PATHS = (
    "/brokers/ids",
    "/brokers/topics",
    "/cluster",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/topics",
    "/config/users",
)


class OtherWriter(Protocol):
    """Kafka and its tools, which write without comparing."""

    def get(self, path: str) -> bytes | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...
    def children(self, path: str) -> list[str]: ...


def lay_out_kafka(others: OtherWriter) -> None:
    """The nodes that a started Kafka has."""
    for path in KAFKA_PATHS:
        others.put(path, b"")
    others.put("/cluster/id", json.dumps({"version": "1", "id": CLUSTER}).encode())
    others.put("/controller_epoch", b"1")
    elect(others)


def elect(others: OtherWriter, kraft_epoch: int = -1) -> None:
    """Another controller: the node is made again at version 0 and the epoch counts on, as Kafka
    does it.
    """
    others.delete("/controller")
    others.put("/controller_epoch", str(int(others.get("/controller_epoch") or b"0") + 1).encode())
    controller = {
        "version": 2,
        "brokerid": 1,
        "timestamp": "0",
        "kraftControllerEpoch": kraft_epoch,
    }
    others.put("/controller", json.dumps(controller).encode())


def record(
    entity: Entity,
    values: Mapping[QuotaKey, str | None],
    *,
    before: str | None = None,
    at: float = 1.0,
) -> LedgerRecord:
    entries = {
        key: LedgerEntry(before, value, None, at, Reason.FIRST_QUOTA, "basis")
        for key, value in values.items()
    }
    return LedgerRecord(entity, POLICY, "uid-1", entries)


def first(
    seen: StoredQuota, values: Mapping[QuotaKey, str | None], *, at: float = 1.0
) -> QuotaWrite:
    ledger = record(seen.entity, values, at=at)
    return QuotaWrite(
        seen.entity, values, seen, ledger, WriteKind.FIRST, Reason.FIRST_QUOTA, "", charged=False
    )


def give_back(seen: StoredQuota, values: Mapping[QuotaKey, str | None]) -> QuotaWrite:
    return QuotaWrite(
        seen.entity, values, seen, None, WriteKind.GIVE_BACK, Reason.GIVEN_BACK, "", charged=True
    )


def path_of(name: str) -> str:
    return f"/config/{name}"


class StoreWorld(Protocol):
    """What is around the store under test: the cluster as others see it, and faults on demand."""

    cluster_id: str

    def quotas(self, entity: Entity) -> Mapping[QuotaKey, str]:
        """The quotas that Kafka has."""
        ...

    def put(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        """Change a quota as Kafka's own tools do, without comparing."""
        ...

    def changes(self) -> int:
        """How many entities' changes the store has sent to brokers."""
        ...

    def claim(self) -> bytes | None:
        """The claim, as it is stored."""
        ...

    def break_record(self, entity: Entity) -> None:
        """Make the entity's ledger record one that cannot be read."""
        ...

    def lose_next_request(self) -> None:
        """Let the store's next commit be lost on its way: not done, outcome unknown."""
        ...

    def lose_next_answer(self) -> None:
        """Let the answer to the store's next commit be lost: done, outcome unknown."""
        ...

    def before_next_commit(self, action: Callable[[], object]) -> None:
        """Let others do this when the store has read and decided, and is about to commit."""
        ...

    def another_store(self) -> QuotaStore:
        """A store of another process on the same cluster."""
        ...


class StoreTests:
    """The store under test."""

    def write(
        self,
        store: QuotaStore,
        entity: Entity,
        values: Mapping[QuotaKey, str | None],
        *,
        at: float = 1.0,
    ) -> WriteOutcome:
        cluster_id = store.facts().cluster_id
        (outcome,) = store.write([first(store.read([entity])[entity], values, at=at)], cluster_id)
        return outcome

    def conflicts(
        self, store: QuotaStore, batch: list[QuotaWrite], world: StoreWorld, owner: Claim
    ) -> bool:
        """Whether all of the batch is refused, as something else was done since it was decided."""
        try:
            outcomes = store.write(batch, world.cluster_id, owner)
        except Conflict:
            return True
        return all(one.reason is Reason.CONFLICT for one in outcomes)


# --- every store ----------------------------------------------------------------------------------


class EveryStoreContract(StoreTests):
    """What holds for every quota store, in the cluster that the fixture `world` gives."""

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *(
                (PRODUCE, text)
                for text in (
                    "100000.5",
                    "1e6",
                    " 100000",
                    "",
                    "0",
                    "-5",
                    "1023",
                    "+2048",
                    "02048",
                    "9223372036854775808",
                    "٢٠٤٨",
                )
            ),
            *((REQUEST, text) for text in ("", "0", "-1", "NaN", "Infinity", "1d", "0x1p3", " 5")),
        ],
    )
    def test_a_value_that_harms_brokers_is_not_written(
        self, store: QuotaStore, world: StoreWorld, key: QuotaKey, value: str
    ) -> None:
        outcome = self.write(store, ALICE, {key: value})
        assert (outcome.applied, outcome.reason) == (False, Reason.FOREIGN_CONTENT)
        assert world.quotas(ALICE) == {}
        assert world.changes() == 0

    def test_an_entity_and_its_own_child_fit_into_one_batch(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        seen = store.read([ALICE, ALICE_APP])
        outcomes = store.write(
            [first(seen[ALICE_APP], {PRODUCE: "2048"}), first(seen[ALICE], {FETCH: "4096"})],
            world.cluster_id,
        )
        assert [outcome.applied for outcome in outcomes] == [True, True]
        assert world.quotas(ALICE) == {FETCH: "4096"}
        assert world.quotas(ALICE_APP) == {PRODUCE: "2048"}

    def test_a_record_changes_only_the_ledger(self, store: QuotaStore, world: StoreWorld) -> None:
        world.put(ALICE, {PRODUCE: "2048"})
        seen = store.read([ALICE])[ALICE]
        assert self.write(store, ALICE, {PRODUCE: "2048"}).applied
        now = store.read([ALICE])[ALICE]
        assert now.version == seen.version
        assert now.ledger == record(ALICE, {PRODUCE: "2048"})
        assert world.changes() == 0

    def test_what_stood_there_before_is_given_back_even_if_we_would_not_choose_it(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        world.put(ALICE, {PRODUCE: "500"})
        seen = store.read([ALICE])[ALICE]
        ledger = record(ALICE, {PRODUCE: "2048"}, before="500")
        store.write(
            [
                QuotaWrite(
                    ALICE,
                    {PRODUCE: "2048"},
                    seen,
                    ledger,
                    WriteKind.FIRST,
                    Reason.FIRST_QUOTA,
                    "",
                    charged=False,
                )
            ],
            world.cluster_id,
        )
        (outcome,) = store.write(
            [give_back(store.read([ALICE])[ALICE], {PRODUCE: "500"})], world.cluster_id
        )
        assert outcome.applied
        assert world.quotas(ALICE) == {PRODUCE: "500"}

    @pytest.mark.parametrize("name", [".", "..", "\ud800"])
    def test_a_name_that_no_znode_can_have_is_a_problem_of_that_entity_only(
        self, store: QuotaStore, world: StoreWorld, name: str
    ) -> None:
        seen = store.read([Entity(name), BOB])
        assert seen[Entity(name)].problem is not None
        assert seen[BOB].problem is None
        (outcome,) = store.write([first(seen[Entity(name)], {PRODUCE: "2048"})], world.cluster_id)
        assert outcome.reason is Reason.FOREIGN_CONTENT

    def test_a_conflict_stops_only_its_own_write(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        seen = store.read([ALICE, BOB])
        world.put(ALICE, {PRODUCE: "9999"})
        outcomes = store.write(
            [first(seen[ALICE], {PRODUCE: "4096"}), first(seen[BOB], {PRODUCE: "4096"})],
            world.cluster_id,
        )
        assert [(outcome.applied, outcome.reason) for outcome in outcomes] == [
            (False, Reason.CONFLICT),
            (True, None),
        ]
        assert world.quotas(ALICE) == {PRODUCE: "9999"}

    def test_a_node_made_anew_is_a_conflict_although_its_version_is_the_same(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        world.put(ALICE, {PRODUCE: "2048"})
        seen = store.read([ALICE])[ALICE]
        world.put(ALICE, {PRODUCE: None})
        world.put(ALICE, {PRODUCE: "9999"})
        (outcome,) = store.write([first(seen, {PRODUCE: "4096"})], world.cluster_id)
        assert outcome.reason is Reason.CONFLICT

    def test_a_batch_of_a_wrong_shape_is_refused_before_anything_is_read(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(ValueError):
            store.write(
                [first(seen, {PRODUCE: "2048"}), first(seen, {PRODUCE: "4096"})], world.cluster_id
            )
        with pytest.raises(ValueError):
            store.write(
                [
                    first(StoredQuota(Entity(f"u{i}"), {}), {PRODUCE: "2048"})
                    for i in range(store.most_writes + 1)
                ],
                world.cluster_id,
            )

    def test_a_record_that_would_change_a_quota_is_refused_before_anything_is_read(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        recorded = replace(
            first(store.read([ALICE])[ALICE], {PRODUCE: "4096"}), kind=WriteKind.RECORD
        )
        with pytest.raises(ValueError):
            store.write([recorded], world.cluster_id)
        assert world.quotas(ALICE) == {PRODUCE: "2048"}

    def test_another_cluster_is_never_written(self, store: QuotaStore, world: StoreWorld) -> None:
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(WriteRefused) as refused:
            store.write([first(seen, {PRODUCE: "2048"})], "cluster-two")
        assert refused.value.reason is Reason.WRONG_CLUSTER
        assert world.quotas(ALICE) == {}

    def test_a_ledger_is_mended_where_it_lacks_something(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        world.put(ALICE, {PRODUCE: "4096"})
        self.write(store, BOB, {PRODUCE: "2048"})
        before = world.changes()
        ours = record(ALICE, {PRODUCE: "4096"}, before="512")
        theirs = record(BOB, {PRODUCE: "1024"})
        claim = Claim(POLICY, "uid-1", epoch=7)
        for _ in range(2):  # an answer that was lost
            store.mend_ledger(
                claim, {ALICE: ours, BOB: theirs}, world.cluster_id, throttles=b"throttles"
            )
        found = store.read([ALICE, BOB])
        assert found[ALICE].ledger == ours
        assert found[BOB].ledger is not None
        assert found[BOB].ledger != theirs
        assert store.facts().claim == claim
        assert store.throttle_record() == b"throttles"
        assert world.changes() == before
        assert (world.quotas(ALICE), world.quotas(BOB)) == ({PRODUCE: "4096"}, {PRODUCE: "2048"})

    def test_no_other_ones_ledger_is_mended(self, store: QuotaStore, world: StoreWorld) -> None:
        mended = Claim(POLICY, "uid-1", epoch=7)
        with pytest.raises(WriteRefused):
            store.mend_ledger(mended, {}, "cluster-two")
        for other in (Claim("other/policy", "uid-3"), Claim(POLICY, "uid-2")):
            kept = store.claim(other)
            with pytest.raises(WriteRefused):
                store.mend_ledger(mended, {}, world.cluster_id)
            assert store.facts().claim == kept
            store.release_claim(other.policy_key)

    def test_a_release_leaves_a_note_and_a_next_claim_goes_on_counting(
        self, store: QuotaStore
    ) -> None:
        assert store.facts().ledger.released_epoch == 0
        store.claim(Claim(POLICY, "uid-1", epoch=4))
        store.release_claim(POLICY)
        assert store.facts().ledger.released_epoch == 5
        assert store.claim(Claim("other/policy", "uid-3")).epoch == 6
        store.release_claim("other/policy")
        assert store.facts().ledger.released_epoch == 6

    def test_only_one_policy_can_claim_a_cluster_and_release_waits_for_its_ledger(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        with pytest.raises(WriteRefused) as refused:
            store.claim(Claim("other/policy", "uid-3"))
        assert refused.value.reason is Reason.CLUSTER_ALREADY_MANAGED
        self.write(store, ALICE, {PRODUCE: "2048"})
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key == POLICY
        store.write([give_back(store.read([ALICE])[ALICE], {PRODUCE: None})], world.cluster_id)
        store.release_claim("other/policy")
        assert store.facts().owner_policy_key == POLICY
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key is None

    def test_another_uid_of_the_same_name_is_refused_until_it_names_whom_it_replaces(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        ours = store.claim(Claim(POLICY, "uid-1", "operator-1", since_seconds=5.0))
        held = world.claim()
        for replaces in ("", "uid-2", "uid-1@2"):
            with pytest.raises(WriteRefused) as refused:
                store.claim(Claim(POLICY, "uid-2", "operator-2"), replaces)
            assert refused.value.reason is Reason.CLAIMED_ELSEWHERE
        assert world.claim() == held
        assert ours == Claim(POLICY, "uid-1", "operator-1", 1, 5.0)

        theirs = store.claim(Claim(POLICY, "uid-2", "operator-2", since_seconds=9.0), "uid-1")
        assert theirs == Claim(POLICY, "uid-2", "operator-2", 2, 9.0, ("uid-1",))
        assert store.facts().claim == theirs

    def test_the_same_process_keeps_the_claim_and_another_one_gets_the_next_epoch(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        first_claim = store.claim(Claim(POLICY, "uid-1", "operator-1", since_seconds=5.0))
        held = world.claim()
        assert store.claim(Claim(POLICY, "uid-1", "operator-1", since_seconds=9.0)) == first_claim
        assert world.claim() == held
        taken = world.another_store().claim(Claim(POLICY, "uid-1", "operator-2", since_seconds=9.0))
        assert taken == Claim(POLICY, "uid-1", "operator-2", 2, 9.0)
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        assert self.conflicts(store, batch, world, first_claim)
        assert (world.quotas(ALICE), world.changes()) == ({}, 0)

    def test_a_claim_that_was_released_is_not_renewed(self, store: QuotaStore) -> None:
        renewed = Claim(POLICY, "uid-1", "operator-2")
        with pytest.raises(Conflict):
            store.claim(renewed, renews=True)
        store.claim(Claim(POLICY, "uid-1", "operator-1"))
        assert store.claim(renewed, renews=True).epoch == 2

    def test_nothing_is_written_without_the_lease(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        ours = store.claim(Claim(POLICY, "uid-1", "operator-1"))
        seen = store.read([ALICE])[ALICE]
        held = world.claim()
        store.only_while(lambda: False)
        for write in (
            lambda: store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id, ours),
            lambda: store.keep_throttle_record(b"{}", world.cluster_id, ours, seen=None),
            lambda: store.claim(Claim(POLICY, "uid-1", "operator-2")),
            lambda: store.release_claim(POLICY),
        ):
            with pytest.raises(LeaseLost):
                write()
        assert (world.changes(), world.claim()) == (0, held)
        assert (store.read([ALICE])[ALICE], store.throttle_record()) == (seen, None)

    def test_a_lease_that_is_lost_between_two_requests_of_a_batch_ends_it(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        ours = store.claim(Claim(POLICY, "uid-1", "operator-1"))
        seen = store.read([ALICE])[ALICE]
        held = [True]
        store.only_while(lambda: held[0])
        world.before_next_commit(lambda: held.__setitem__(0, False))
        world.lose_next_request()
        with pytest.raises(LeaseLost):
            store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id, ours)
        assert (world.quotas(ALICE), world.changes()) == ({}, 0)

    def test_what_the_next_holder_restored_is_not_written_by_a_batch_from_before(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        """Restored looks like never written, so comparing quotas and records does not help."""
        ours = store.claim(Claim(POLICY, "uid-1", "operator-1"))
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        other = world.another_store()

        def take_over() -> None:
            theirs = other.claim(Claim(POLICY, "uid-1", "operator-2"))
            for value in ("4096", None):
                now = other.read([ALICE])[ALICE]
                values = {PRODUCE: value}
                write = first(now, values) if value else give_back(now, values)
                assert other.write([write], world.cluster_id, theirs)[0].applied

        world.before_next_commit(take_over)
        assert self.conflicts(store, batch, world, ours)
        assert world.quotas(ALICE) == {}
        now = other.read([ALICE])[ALICE]
        assert (now.values, now.ledger) == ({}, None)

    def test_an_annotation_left_behind_takes_nothing_back(self, store: QuotaStore) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        store.claim(Claim(POLICY, "uid-2"), "uid-1")
        with pytest.raises(WriteRefused, match="uid-2@2"):
            store.claim(Claim(POLICY, "uid-1"), "uid-2")
        assert store.claim(Claim(POLICY, "uid-1"), "uid-2@2").epoch == 3
        for stale in ("uid-1", "uid-1@1", "uid-1@2"):
            with pytest.raises(WriteRefused, match="uid-1@3"):
                store.claim(Claim(POLICY, "uid-2"), stale)

    def test_another_operator_of_the_same_policy_is_refused_until_it_names_the_epoch(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        ours = store.claim(Claim(POLICY, "uid-1", "operator-1", lease_namespace="tidegate"))
        held = world.claim()
        wanted = Claim(POLICY, "uid-1", "operator-2", lease_namespace="laptop")
        for replaces in ("", "uid-1", "uid-1@2"):
            with pytest.raises(WriteRefused, match="Leases in namespace tidegate") as refused:
                store.claim(wanted, replaces)
            assert refused.value.reason is Reason.CLAIMED_ELSEWHERE
            assert "tidegate.io/replace-claim=uid-1@1 " in refused.value.message
        assert world.claim() == held
        theirs = store.claim(wanted, "uid-1@1")
        assert (theirs.epoch, theirs.lease_namespace, theirs.former) == (2, "laptop", ())
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        with pytest.raises(Conflict):
            store.write(batch, world.cluster_id, ours)
        with pytest.raises(WriteRefused):  # the annotation stays, and both operators see it
            store.claim(Claim(POLICY, "uid-1", lease_namespace="tidegate"), "uid-1@1")

    def test_a_claim_whose_answer_was_lost_is_read_back(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        world.lose_next_answer()
        assert store.claim(Claim(POLICY, "uid-1")) == store.facts().claim
        world.lose_next_request()
        assert store.claim(Claim(POLICY, "uid-2"), "uid-1").epoch == 2

    def test_a_record_of_throttles_is_kept_under_the_claim_and_keeps_the_claim(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        assert store.throttle_record() is None
        ours = store.claim(Claim(POLICY, "uid-1"))
        seen = None
        for content in (b'{"version":1}', b'{"version":1,"entries":{}}'):
            store.keep_throttle_record(content, world.cluster_id, ours, seen=seen)
            seen = store.throttle_record()
            assert seen == content
        another = Claim("other/policy", "uid-3")
        with pytest.raises(WriteRefused) as refused:
            store.keep_throttle_record(b"theirs", world.cluster_id, another, seen=seen)
        assert refused.value.reason is Reason.CLUSTER_ALREADY_MANAGED
        with pytest.raises(WriteRefused) as refused:
            store.keep_throttle_record(b"elsewhere", "another-cluster", ours, seen=seen)
        assert refused.value.reason is Reason.WRONG_CLUSTER
        for stale in (None, b'{"version":1}'):  # somebody else has kept another one since
            with pytest.raises(Conflict):
                store.keep_throttle_record(b"late", world.cluster_id, ours, seen=stale)
        assert store.throttle_record() == b'{"version":1,"entries":{}}'
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key == POLICY
        store.keep_throttle_record(None, world.cluster_id, ours, seen=seen)
        store.keep_throttle_record(None, world.cluster_id, ours, seen=seen)
        assert store.throttle_record() is None
        assert not store.unreadable_nodes()
        store.release_claim(POLICY)
        assert store.facts().claim is None

    def test_a_claim_is_released_by_its_own_uid_only(self, store: QuotaStore) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        store.release_claim(POLICY, "uid-2")
        assert store.facts().owner_policy_key == POLICY
        store.release_claim(POLICY, "uid-1")
        assert store.facts().claim is None

    def test_a_batch_under_a_claim_that_is_in_force_no_more_is_refused(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        before = store.claim(Claim(POLICY, "uid-1"))
        store.claim(Claim(POLICY, "uid-2"), "uid-1")
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        with pytest.raises(WriteRefused) as refused:
            store.write(batch, world.cluster_id, before)
        assert refused.value.reason is Reason.CLAIMED_ELSEWHERE
        again = store.claim(Claim(POLICY, "uid-1"), "uid-2@2")
        with pytest.raises(Conflict):
            store.write(batch, world.cluster_id, before)
        store.release_claim(POLICY)
        with pytest.raises(Conflict):
            store.write(batch, world.cluster_id, again)
        assert world.quotas(ALICE) == {}
        assert store.write(batch, world.cluster_id, Claim(POLICY, "uid-1"))[0].applied

    def test_a_take_over_between_reading_and_writing_is_noticed(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        ours = store.claim(Claim(POLICY, "uid-1"))
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        other = world.another_store()
        world.before_next_commit(lambda: other.claim(Claim(POLICY, "uid-2"), "uid-1"))
        with pytest.raises(WriteRefused) as refused:
            store.write(batch, world.cluster_id, ours)
        assert refused.value.reason is Reason.CLAIMED_ELSEWHERE
        assert world.quotas(ALICE) == {}

    def test_a_batch_for_a_policy_without_the_claim_is_refused(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        store.claim(Claim("other/policy", "uid-3"))
        with pytest.raises(WriteRefused) as refused:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert refused.value.reason is Reason.CLUSTER_ALREADY_MANAGED
        assert world.quotas(ALICE) == {}

    def test_a_request_lost_before_the_commit_is_sent_again(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        world.lose_next_request()
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id)
        assert outcome.applied
        assert world.changes() == 1

    def test_a_broken_ledger_record_is_a_problem_of_its_entity_and_keeps_the_claim(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        self.write(store, ALICE, {PRODUCE: "2048"})
        world.break_record(ALICE)
        quota = store.read([ALICE])[ALICE]
        assert quota.problem is not None
        assert "ledger" in quota.problem
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key == POLICY

    def test_a_closed_store_raises(self, store: QuotaStore) -> None:
        store.close()
        store.close()
        with pytest.raises(Unreachable):
            store.facts()

    def test_an_answer_lost_after_the_commit_counts_as_applied(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        world.lose_next_answer()
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id)
        assert outcome.applied
        assert world.quotas(ALICE) == {PRODUCE: "2048"}
        assert store.read([ALICE])[ALICE].ledger == record(ALICE, {PRODUCE: "2048"})

    @pytest.mark.parametrize(
        "entity",
        [
            Entity("alice w*+~"),
            Entity(Default.DEFAULT),
            Entity("<default>"),
            Entity("bob", "c 1"),
            Entity(None, Default.DEFAULT),
            Entity(Default.DEFAULT, Default.DEFAULT),
            Entity("größe", Default.DEFAULT),
        ],
        ids=str,
    )
    def test_a_quota_of_every_kind_of_entity_reads_as_it_was_written(
        self, store: QuotaStore, world: StoreWorld, entity: Entity
    ) -> None:
        wanted = {PRODUCE: "1048576", FETCH: str(2**53 - 1), REQUEST: "12.5"}
        assert self.write(store, entity, wanted).applied
        assert world.quotas(entity) == wanted
        assert store.read([entity])[entity].values == wanted
        assert store.read_everything()[entity].values == wanted
        assert store.ledger_entities() == {entity}
        assert world.changes() == 1

    def test_what_is_remembered_of_a_restored_quota_stays_beside_none_and_goes_alone(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        entry = record(ALICE, {PRODUCE: "2048"}).entries[PRODUCE]
        memory = remembered(entry, PRODUCE, None, now_seconds=2.0)
        assert memory is not None
        restored = LedgerRecord(ALICE, POLICY, "uid-1", {PRODUCE: memory})
        write = replace(give_back(store.read([ALICE])[ALICE], {PRODUCE: None}), ledger=restored)
        assert store.write([write], world.cluster_id)[0].applied
        other = world.another_store()
        seen, changes = other.read([ALICE])[ALICE], world.changes()
        assert (world.quotas(ALICE), seen.ledger) == ({}, restored)
        assert store.ledger_entities() == frozenset({ALICE})
        dropped = replace(give_back(store.read([ALICE])[ALICE], {}), kind=WriteKind.RECORD)
        assert store.write([dropped], world.cluster_id)[0].applied
        assert (store.ledger_entities(), world.changes()) == (frozenset(), changes)

    def test_a_member_that_comes_back_is_written_over_what_was_remembered(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        entry = record(ALICE, {PRODUCE: "2048"}).entries[PRODUCE]
        memory = remembered(entry, PRODUCE, None, now_seconds=2.0)
        assert memory is not None
        restored = LedgerRecord(ALICE, POLICY, "uid-1", {PRODUCE: memory})
        write = replace(give_back(store.read([ALICE])[ALICE], {PRODUCE: None}), ledger=restored)
        store.write([write], world.cluster_id)
        assert self.write(store, ALICE, {PRODUCE: "4096"}, at=3.0).applied
        now = store.read([ALICE])[ALICE]
        assert (world.quotas(ALICE), now.ledger) == (
            {PRODUCE: "4096"},
            record(ALICE, {PRODUCE: "4096"}, at=3.0),
        )

    def test_a_quota_that_is_given_back_leaves_nothing_but_what_others_set(
        self, store: QuotaStore, world: StoreWorld
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        self.write(store, BOB, {PRODUCE: "2048"})
        world.put(BOB, {FETCH: "4096"})
        seen = store.read([ALICE, BOB])
        outcomes = store.write(
            [give_back(quota, {PRODUCE: None}) for quota in seen.values()], world.cluster_id
        )
        assert [outcome.applied for outcome in outcomes] == [True, True]
        assert (world.quotas(ALICE), world.quotas(BOB)) == ({}, {FETCH: "4096"})
        assert store.ledger_entities() == frozenset()

    @pytest.mark.parametrize(
        ("entity", "key", "limits"),
        [
            (Entity(None, "app"), PRODUCE, True),
            (Entity(None, Default.DEFAULT), FETCH, True),
            (Entity(None, "app"), REQUEST, False),
            (ALICE_APP, PRODUCE, False),
        ],
        ids=str,
    )
    def test_a_byte_rate_on_a_client_id_without_a_user_is_found(
        self, store: QuotaStore, world: StoreWorld, entity: Entity, key: QuotaKey, limits: bool
    ) -> None:
        assert not store.has_client_id_quotas()
        world.put(entity, {key: "2048"})
        assert store.has_client_id_quotas() is limits


# --- ZooKeeper ------------------------------------------------------------------------------------


class ZooKeeperWorld:
    """The world of a store on a tree of znodes."""

    cluster_id = CLUSTER

    def __init__(self, faults: FaultyTree, others: OtherWriter) -> None:
        self._faults = faults
        self._others = others

    def quotas(self, entity: Entity) -> Mapping[QuotaKey, str]:
        data = self._others.get(config_path(entity))
        if data is None:
            return {}
        content = parse_quota(data)
        assert content.to_bytes() == data, "as a broker writes it"
        return content.quotas

    def put(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        data = self._others.get(config_path(entity))
        content = parse_quota(data or None).changed(values)
        if content.settings:
            self._others.put(config_path(entity), content.to_bytes())
        else:
            self._others.delete(config_path(entity))

    def changes(self) -> int:
        return len(self._others.children("/config/changes"))

    def claim(self) -> bytes | None:
        return self._others.get("/tidegate/claim")

    def break_record(self, entity: Entity) -> None:
        self._others.put(ledger_path(entity), b'{"version":99}')

    def lose_next_request(self) -> None:
        self._faults.lose_connection_before_commit()

    def lose_next_answer(self) -> None:
        self._faults.lose_connection_after_commit()

    def before_next_commit(self, action: Callable[[], object]) -> None:
        self._faults.before_next_commit(action)

    def another_store(self) -> ZooKeeperQuotaStore:
        return ZooKeeperQuotaStore(self._faults.inner)


class ZooKeeperTests(StoreTests):
    """The store on the tree that the fixture `faults` gives."""

    @pytest.fixture
    def store(self, faults: FaultyTree) -> ZooKeeperQuotaStore:
        return ZooKeeperQuotaStore(faults)

    @pytest.fixture
    def world(self, faults: FaultyTree, others: OtherWriter) -> ZooKeeperWorld:
        return ZooKeeperWorld(faults, others)


# --- bytes ----------------------------------------------------------------------------------------
# The bytes that a quota store writes, and those that it never lets reach a broker.


class BytesContract(ZooKeeperTests):
    """Nodes as a broker writes them, and nothing that a broker cannot read."""

    # --- names and bytes
    # ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("entity", "path"),
        [
            (Entity("alice w*+~"), "users/alice%20w%2A%2B%7E"),
            (Entity(Default.DEFAULT), "users/<default>"),
            (Entity("<default>"), "users/%3Cdefault%3E"),
            (Entity("bob", "c 1"), "users/bob/clients/c%201"),
            (Entity(None, Default.DEFAULT), "clients/<default>"),
            (Entity(Default.DEFAULT, Default.DEFAULT), "users/<default>/clients/<default>"),
        ],
    )
    def test_a_quota_is_written_as_a_broker_writes_it(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, entity: Entity, path: str
    ) -> None:
        assert self.write(store, entity, {PRODUCE: "1048576"}).applied
        assert (
            others.get(path_of(path)) == b'{"version":1,"config":{"producer_byte_rate":"1048576"}}'
        )
        (name,) = others.children("/config/changes")
        assert re.fullmatch(r"config_change_[0-9]{10}", name)
        assert (
            others.get(f"/config/changes/{name}")
            == f'{{"version":2,"entity_path":"{path}"}}'.encode()
        )
        assert store.read([entity])[entity].values == {PRODUCE: "1048576"}

    def test_a_parent_made_for_a_child_reads_as_having_no_quota(
        self, store: ZooKeeperQuotaStore
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        self.write(store, ALICE_APP, {PRODUCE: "2048"})
        now = store.read([ALICE])[ALICE]
        assert (dict(now.values), now.problem) == ({}, None)
        (outcome,) = store.write([first(seen, {FETCH: "4096"})], CLUSTER)
        assert outcome.applied, "a node that appeared empty is no conflict"

    def test_foreign_keys_keep_every_byte_and_their_place(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.put(
            "/config/users/alice",
            f'{{"version":1,"config":{{{SCRAM},"producer_byte_rate":"7000","later":"x"}}}}'.encode(),
        )
        assert self.write(store, ALICE, {PRODUCE: "1024", FETCH: "2048"}).applied
        expected = f'{{"version":1,"config":{{{SCRAM},"producer_byte_rate":"1024","later":"x","consumer_byte_rate":"2048"}}}}'
        assert others.get("/config/users/alice") == expected.encode()

    def test_an_empty_quota_is_deleted_unless_something_else_needs_the_node(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.put("/config/users/carol", f'{{"version":1,"config":{{{SCRAM}}}}}'.encode())
        entities = [ALICE, ALICE_APP, BOB, Entity("carol")]
        store.write(
            [first(quota, {PRODUCE: "2048"}) for quota in store.read(entities).values()], CLUSTER
        )
        store.write(
            [give_back(quota, {PRODUCE: None}) for quota in store.read(entities).values()], CLUSTER
        )
        assert others.get("/config/users/alice") == b'{"version":1,"config":{}}'
        assert others.get("/config/users/alice/clients/app") is None
        assert others.get("/config/users/bob") is None
        assert others.get("/config/users/carol") == f'{{"version":1,"config":{{{SCRAM}}}}}'.encode()
        assert store.ledger_entities() == frozenset()

    # --- what must never reach a broker
    # ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"not json",
            b"[]",
            b'{"version":1}',
            b'{"version":1,"config":[]}',
            b'{"version":2,"config":{}}',
            b'{"version":1,"config":{},"more":1}',
            b'{"version":1,"config":{"producer_byte_rate":2048}}',
            b'{"version":1,"config":{"producer_byte_rate":"1e6"}}',
            b'{"version":1,"config":{"a":"1","a":"2"}}',
            b'{"version":1,"config":{"a":"\xff"}}',
            b"[" * 100_000,
        ],
        ids=lambda content: repr(content[:50]),
    )
    def test_what_cannot_be_read_safely_is_reported_and_left_alone(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, content: bytes
    ) -> None:
        others.put("/config/users/alice", content)
        seen = store.read([ALICE, BOB])
        assert seen[ALICE].problem is not None
        assert seen[ALICE].values == {}
        assert seen[BOB].problem is None
        outcomes = store.write(
            [first(seen[ALICE], {PRODUCE: "2048"}), first(seen[BOB], {PRODUCE: "2048"})], CLUSTER
        )
        assert [(outcome.applied, outcome.reason) for outcome in outcomes] == [
            (False, Reason.FOREIGN_CONTENT),
            (True, None),
        ]
        assert others.get("/config/users/alice") == content

    def test_node_names_of_no_entity_are_reported_not_read(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        for name in ("users/a b", "clients/a%zz", "users/%41"):
            others.put(path_of(name), b"{}")
        self.write(store, BOB, {PRODUCE: "2048"})
        others.put("/tidegate/ledger/a b", b"{}")
        assert set(store.read_everything()) == {BOB}
        assert set(store.unreadable_nodes()) == {
            *(
                "/config/users/a b",
                "/config/clients/a%zz",
                "/config/users/%41",
                "/tidegate/ledger/a b",
            ),
        }

    @pytest.mark.parametrize(
        ("path", "data", "limits"),
        [
            ("clients/app", b'{"version":1,"config":{"producer_byte_rate":"2048"}}', True),
            ("clients/<default>", b'{"version":1,"config":{"consumer_byte_rate":"2048"}}', True),
            ("clients/app", b"not JSON", True),
            ("clients/app", b'{"version":1,"config":{"request_percentage":"50"}}', False),
            ("clients/app", b'{"version":1,"config":{}}', False),
            (
                "users/alice/clients/app",
                b'{"version":1,"config":{"producer_byte_rate":"2048"}}',
                False,
            ),
            ("clients/a%zz", b'{"version":1,"config":{"producer_byte_rate":"2048"}}', False),
        ],
        ids=[
            "a client id",
            "the default one",
            "unreadable",
            "another key",
            "nothing left",
            "of a user",
            "no name",
        ],
    )
    def test_a_byte_rate_on_a_client_id_alone_is_found(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, path: str, data: bytes, limits: bool
    ) -> None:
        assert not store.has_client_id_quotas()
        others.put(path_of(path), data)
        assert store.has_client_id_quotas() is limits

    def test_own_nodes_stay_out_of_kafkas_tree_and_notifications_are_never_deleted(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        for at in range(3):
            self.write(store, ALICE, {PRODUCE: str(2048 + at)}, at=at)
        assert sorted(others.children("/config")) == [
            "brokers",
            "changes",
            "clients",
            "topics",
            "users",
        ]
        assert sorted(others.children("/tidegate")) == ["claim", "ledger"]
        assert sorted(others.children("/config/changes")) == [
            f"config_change_{number:010d}" for number in range(3)
        ]


# --- safety ---------------------------------------------------------------------------------------
# A quota store writes only over what it has read, only to its own cluster, and finds out the
# outcome of a write.


class SafetyContract(ZooKeeperTests):
    """Other writers, elections, other clusters and lost connections do no harm."""

    # --- comparing before writing
    # ------------------------------------------------------------------------------------

    def test_credentials_that_arrive_between_reading_and_writing_survive(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        others.put("/config/users/alice", f'{{"version":1,"config":{{{SCRAM}}}}}'.encode())
        store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        self.write(store, ALICE, {PRODUCE: "2048"})
        assert SCRAM.encode() in (others.get("/config/users/alice") or b"")

    # --- the cluster as a whole
    # --------------------------------------------------------------------------------------

    def test_nothing_is_written_during_a_migration_to_kraft(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        elect(others, kraft_epoch=3)
        assert store.facts().migration_running
        with pytest.raises(WriteRefused) as refused:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert refused.value.reason is Reason.MIGRATION_RUNNING

    def test_the_mark_of_a_migration_that_does_not_run_is_seen_and_stops_no_write(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        assert not store.facts().migration_prepared
        others.put("/migration", b'{"version":0,"kraft_controller_id":3000}')
        assert store.facts().migration_prepared
        assert self.write(store, ALICE, {PRODUCE: "2048"}).applied

    def test_nothing_is_written_while_kafka_has_no_controller(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.delete("/controller")
        assert store.facts().controller_version is None
        with pytest.raises(RetryLater) as held:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert held.value.reason is Reason.CONTROLLER_ABSENT

    def test_a_new_controller_between_reading_and_writing_is_noticed(
        self, faults: FaultyTree, others: OtherWriter
    ) -> None:
        class ElectionBeforeCommit(FaultyTree):
            def acls(self, paths):  # type: ignore[no-untyped-def]
                elect(others, kraft_epoch=3)
                return super().acls(paths)

        store = ZooKeeperQuotaStore(ElectionBeforeCommit(faults.inner))
        with pytest.raises(WriteRefused) as refused:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert refused.value.reason is Reason.MIGRATION_RUNNING
        assert others.get("/config/users/alice") is None

    def test_an_address_without_kafka_is_refused_with_the_path_to_check(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.delete("/cluster/id")
        with pytest.raises(WriteRefused, match=r"zookeeper\.connect"):
            store.facts()

    def test_the_claim_of_version_0_1_is_adopted_by_its_uid_and_by_no_other(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        old = b'{"version":1,"policy_key":"streaming/orders","policy_uid":"uid-1"}'
        others.put("/tidegate/claim", old)
        assert store.facts().claim == Claim(POLICY, "uid-1")
        with pytest.raises(WriteRefused, match="operator of version 0") as refused:
            store.claim(Claim(POLICY, "uid-2", "operator-2"))
        assert refused.value.reason is Reason.CLAIMED_ELSEWHERE
        assert others.get("/tidegate/claim") == old
        adopted = Claim(POLICY, "uid-1", "operator-1", 1, 5.0)
        assert (
            store.claim(Claim(POLICY, "uid-1", "operator-1", since_seconds=5.0))
            == adopted
            == store.facts().claim
        )

    def test_a_claim_without_the_place_of_leases_is_taken_anew_and_ends_its_holders_writes(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        content = {"policy_key": POLICY, "policy_uid": "uid-1", "holder": "operator-1"}
        content |= {"version": 2, "epoch": 4, "since_seconds": 5.0, "former": ["uid-0"]}
        others.put("/tidegate/claim", json.dumps(content).encode())
        before = store.facts().claim
        assert before == Claim(POLICY, "uid-1", "operator-1", 4, 5.0, ("uid-0",))
        batch = [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})]
        wanted = Claim(POLICY, "uid-1", "operator-2", since_seconds=9.0, lease_namespace="tidegate")
        ours = store.claim(wanted)
        assert ours == Claim(POLICY, "uid-1", "operator-2", 5, 9.0, ("uid-0",), "tidegate")
        with pytest.raises(Conflict):
            store.write(batch, CLUSTER, before)
        assert store.write(batch, CLUSTER, ours)[0].applied

    # --- lost connections
    # --------------------------------------------------------------------------------------------

    def test_an_answer_lost_after_the_commit_counts_as_applied_and_brokers_are_notified_again(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, faults: FaultyTree
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        faults.lose_connection_after_commit()
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert outcome.applied
        assert (
            others.get("/config/users/alice")
            == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
        )
        assert len(others.children("/config/changes")) == 2

    def test_the_outcome_is_unknown_only_when_reading_back_fails_too(
        self, store: ZooKeeperQuotaStore, faults: FaultyTree
    ) -> None:
        class SilentAfterCommit(FaultyTree):
            def sync(self) -> None:
                raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "gone")

        silent = SilentAfterCommit(faults.inner)
        silent.lose_connection_after_commit()
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(OutcomeUnknown):
            ZooKeeperQuotaStore(silent).write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert store.read([ALICE])[ALICE].ledger is not None

    def test_topic_names_are_those_that_kafka_has(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.put("/brokers/topics/clicks.de", b"{}")
        others.put("/brokers/topics/clicks.fr", b"{}")
        assert store.topic_names() == {"clicks.de", "clicks.fr"}


# --- versions -------------------------------------------------------------------------------------
# Between the last reading and the commit nothing but the versions in the transaction compares.


class VersionsContract(ZooKeeperTests):
    """Each operation of a transaction has the version of the node that it was planned on."""

    @pytest.mark.parametrize("operation", [SetData, Delete, Check])
    def test_a_tree_compares_versions_and_minus_one_is_any(
        self, faults: FaultyTree, others: OtherWriter, operation: type
    ) -> None:
        def at(version: int) -> Operation:
            data = (b"ours",) if operation is SetData else ()
            made: Operation = operation("/config/users/alice", *data, version)
            return made

        others.put("/config/users/alice", b"theirs")
        (node,) = faults.read(["/config/users/alice"])
        assert node is not None
        for wrong in (node.version + 1, node.version - 1 if node.version else 7):
            with pytest.raises(Rejected) as rejected:
                faults.commit([at(wrong)])
            assert rejected.value.failure is Failure.BAD_VERSION
        faults.commit([at(-1)])
        if operation is Delete:
            assert others.get("/config/users/alice") is None
            with pytest.raises(Rejected) as rejected:
                faults.commit([at(-1)])
            assert rejected.value.failure is Failure.NO_NODE
            others.put("/config/users/alice", b"theirs")
        (node,) = faults.read(["/config/users/alice"])
        assert node is not None
        faults.commit([at(node.version)])

    def test_a_quota_that_others_change_before_the_commit_is_not_written_over(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld
    ) -> None:
        """It is set: the other key stays as the other writer left it."""
        world.put(ALICE, {FETCH: "5000"})
        seen = store.read([ALICE])[ALICE]
        world.before_next_commit(lambda: world.put(ALICE, {FETCH: "6000"}))
        outcomes = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert world.quotas(ALICE)[FETCH] == "6000"
        assert [one.reason for one in outcomes] == [Reason.CONFLICT]

    def test_a_quota_that_others_change_before_the_commit_is_not_removed(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld
    ) -> None:
        assert self.write(store, ALICE, {PRODUCE: "2048"}).applied
        seen = store.read([ALICE])[ALICE]
        world.before_next_commit(lambda: world.put(ALICE, {FETCH: "6000"}))
        store.write([give_back(seen, {PRODUCE: None})], CLUSTER)
        assert world.quotas(ALICE)[FETCH] == "6000"

    def test_a_quota_that_others_change_before_the_commit_is_not_recorded_as_it_was(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld
    ) -> None:
        """Only the ledger is written, and the quota's node is compared all the same."""
        world.put(ALICE, {PRODUCE: "2048"})
        seen = store.read([ALICE])[ALICE]
        world.before_next_commit(lambda: world.put(ALICE, {PRODUCE: "9999"}))
        outcomes = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert [one.reason for one in outcomes] == [Reason.CONFLICT]
        assert store.read([ALICE])[ALICE].ledger is None

    @pytest.mark.parametrize("is_restored", [False, True])
    def test_a_record_that_another_store_writes_before_the_commit_stays(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld, is_restored: bool
    ) -> None:
        assert self.write(store, ALICE, {PRODUCE: "2048"}).applied
        other = world.another_store()
        seen = store.read([ALICE])[ALICE]
        write = give_back(seen, {PRODUCE: None}) if is_restored else first(seen, {PRODUCE: "8192"})
        world.before_next_commit(
            lambda: other.write([first(seen, {PRODUCE: "2048"}, at=7.0)], CLUSTER)
        )
        (outcome,) = store.write([write], CLUSTER)
        assert outcome.reason is Reason.CONFLICT
        now = store.read([ALICE])[ALICE]
        assert now.values == {PRODUCE: "2048"}
        assert now.ledger == record(ALICE, {PRODUCE: "2048"}, at=7.0)

    @pytest.mark.parametrize("content", [b"ours", None])
    def test_a_record_of_throttles_that_is_kept_before_the_commit_stays(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld, content: bytes | None
    ) -> None:
        store.keep_throttle_record(b"first", CLUSTER, seen=None)
        other = world.another_store()
        world.before_next_commit(
            lambda: other.keep_throttle_record(b"theirs", CLUSTER, seen=b"first")
        )
        with pytest.raises(Conflict):
            store.keep_throttle_record(content, CLUSTER, seen=b"first")
        assert store.throttle_record() == b"theirs"

    def test_a_claim_that_is_taken_over_before_the_commit_is_neither_released_nor_taken_again(
        self, store: ZooKeeperQuotaStore, world: ZooKeeperWorld
    ) -> None:
        store.claim(Claim(POLICY, "uid-1"))
        other = world.another_store()
        world.before_next_commit(lambda: other.claim(Claim(POLICY, "uid-2"), "uid-1"))
        store.release_claim(POLICY)
        assert store.facts().claim == other.claim(Claim(POLICY, "uid-2"))
        world.before_next_commit(lambda: other.claim(Claim(POLICY, "uid-3"), "uid-2"))
        with pytest.raises(WriteRefused):
            store.claim(Claim(POLICY, "uid-1"), "uid-2@2")
        assert store.facts().claim == other.claim(Claim(POLICY, "uid-3"))


# --- what brokers know ----------------------------------------------------------------------------
# ZooKeeper does not say whether brokers were notified of a quota. A store knows it of its own
# transactions, for as long as nobody else writes the quota.


def adopt(seen: StoredQuota, *, notifies: bool, at: float = 1.0) -> QuotaWrite:
    ledger = record(seen.entity, seen.values, at=at)
    return QuotaWrite(
        *(seen.entity, {}, seen, ledger, WriteKind.RECORD, Reason.CONTRACT, ""),
        charged=notifies,
        notifies=notifies,
    )


def put_silently(others: OtherWriter, value: str = "2048") -> None:
    """A quota as a tool writes it that knows nothing of notifications."""
    others.put(
        "/config/users/alice",
        b'{"version":1,"config":{"producer_byte_rate":"%s"}}' % value.encode(),
    )


class NotificationContract(StoreTests):
    """Of what brokers were notified by us."""

    def is_notified(self, store: ZooKeeperQuotaStore) -> bool:
        return store.read([ALICE])[ALICE].notified

    def apply(self, store: ZooKeeperQuotaStore, write: QuotaWrite) -> None:
        (outcome,) = store.write([write], CLUSTER)
        assert outcome.applied

    @pytest.mark.parametrize("notifies", [True, False])
    def test_a_quota_that_is_taken_over_is_known_to_brokers_once_they_were_notified(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, notifies: bool
    ) -> None:
        put_silently(others)
        data = others.get("/config/users/alice")
        assert not self.is_notified(store)
        self.apply(store, adopt(store.read([ALICE])[ALICE], notifies=notifies))
        assert self.is_notified(store) is notifies
        assert len(others.children("/config/changes")) == notifies
        seen = store.read([ALICE])[ALICE]
        assert seen.ledger is not None
        self.apply(store, replace(adopt(seen, notifies=True), kind=WriteKind.NOTIFY))
        assert self.is_notified(store)
        assert len(others.children("/config/changes")) == 1 + notifies
        assert json.loads(others.get("/config/changes/config_change_0000000000") or b"") == {
            "version": 2,
            "entity_path": "users/alice",
        }
        assert others.get("/config/users/alice") == data

    def test_brokers_know_what_was_written_also_after_the_ledger_alone_changed(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        assert self.is_notified(store)
        self.apply(store, adopt(store.read([ALICE])[ALICE], notifies=False, at=2.0))
        assert self.is_notified(store)
        assert len(others.children("/config/changes")) == 1
        self.write(store, ALICE, {PRODUCE: "4096"}, at=3.0)
        assert self.is_notified(store)

    @pytest.mark.parametrize("how", ["same", "made again", "ledger"])
    def test_what_others_wrote_since_is_not_known_to_brokers(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, how: str
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        path = ledger_path(ALICE)
        kept, before = others.get(path) or b"", store.read([ALICE])[ALICE]
        if how == "same":
            put_silently(others)
        elif how == "made again":
            others.delete("/config/users/alice")
            put_silently(others)
        else:  # an earlier version wrote the record alone
            others.put(path, kept)
        after = store.read([ALICE])[ALICE]
        assert (after.values, after.ledger) == (before.values, before.ledger)
        assert not after.notified
        self.apply(store, adopt(after, notifies=False, at=2.0))
        assert not self.is_notified(store)
        self.apply(store, adopt(store.read([ALICE])[ALICE], notifies=True, at=3.0))
        assert self.is_notified(store)

    def test_a_quota_that_is_left_without_a_record_is_notified_with_that(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        put_silently(others)
        self.apply(store, adopt(store.read([ALICE])[ALICE], notifies=False))
        seen = store.read([ALICE])[ALICE]
        self.apply(store, replace(adopt(seen, notifies=True), ledger=None))
        assert others.get(ledger_path(ALICE)) is None
        assert len(others.children("/config/changes")) == 1

    def test_without_a_quota_there_is_nothing_to_notify_of(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        assert seen.notified
        self.apply(store, adopt(seen, notifies=True))
        assert others.children("/config/changes") == []


class ZooKeeperStoreContract(
    BytesContract, SafetyContract, VersionsContract, NotificationContract, EveryStoreContract
):
    """The whole contract of a store on ZooKeeper."""
