"""A quota store writes only over what it has read, only to its own cluster, and finds out the outcome of a write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller_logic.model import Entity, StoredQuota, WriteKind
from controller_logic.reasons import Reason
from tests.contract.quota_store_stage import (
    ALICE,
    BOB,
    CLUSTER,
    POLICY,
    PRODUCE,
    SCRAM,
    OtherWriter,
    StoreTests,
    elect,
    first,
    give_back,
)
from tests.doubles.quota_store import FaultyTree
from tidegate.errors import OutcomeUnknown, RetryLater, Unreachable, WriteRefused
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore


class SafetyContract(StoreTests):
    """Other writers, elections, other clusters and lost connections do no harm."""

    # --- comparing before writing ------------------------------------------------------------------------------------

    def test_a_conflict_stops_only_its_own_write(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        seen = store.read([ALICE, BOB])
        others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"9999"}}')
        outcomes = store.write([first(seen[ALICE], {PRODUCE: "4096"}), first(seen[BOB], {PRODUCE: "4096"})], CLUSTER)
        assert [(outcome.applied, outcome.reason) for outcome in outcomes] == [(False, Reason.CONFLICT), (True, None)]
        assert others.get("/config/users/alice") == b'{"version":1,"config":{"producer_byte_rate":"9999"}}'

    def test_a_node_made_anew_is_a_conflict_although_its_version_is_the_same(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"2048"}}')
        seen = store.read([ALICE])[ALICE]
        others.delete("/config/users/alice")
        others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"9999"}}')
        (outcome,) = store.write([first(seen, {PRODUCE: "4096"})], CLUSTER)
        assert outcome.reason is Reason.CONFLICT

    def test_credentials_that_arrive_between_reading_and_writing_survive(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        seen = store.read([ALICE])[ALICE]
        others.put("/config/users/alice", f'{{"version":1,"config":{{{SCRAM}}}}}'.encode())
        store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        self.write(store, ALICE, {PRODUCE: "2048"})
        assert SCRAM.encode() in (others.get("/config/users/alice") or b"")

    def test_a_batch_of_a_wrong_shape_is_refused_before_anything_is_read(self, store: ZooKeeperQuotaStore) -> None:
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(ValueError):
            store.write([first(seen, {PRODUCE: "2048"}), first(seen, {PRODUCE: "4096"})], CLUSTER)
        with pytest.raises(ValueError):
            store.write([first(StoredQuota(Entity(f"u{i}"), {}), {PRODUCE: "2048"}) for i in range(201)], CLUSTER)

    def test_a_record_that_would_change_a_quota_is_refused_before_anything_is_read(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        self.write(store, ALICE, {PRODUCE: "2048"})
        recorded = replace(first(store.read([ALICE])[ALICE], {PRODUCE: "4096"}), kind=WriteKind.RECORD)
        with pytest.raises(ValueError):
            store.write([recorded], CLUSTER)
        assert others.get("/config/users/alice") == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'

    # --- the cluster as a whole --------------------------------------------------------------------------------------

    def test_another_cluster_is_never_written(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(WriteRefused) as refused:
            store.write([first(seen, {PRODUCE: "2048"})], "cluster-two")
        assert refused.value.reason is Reason.WRONG_CLUSTER
        assert others.get("/config/users/alice") is None

    def test_nothing_is_written_during_a_migration_to_kraft(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
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

    def test_nothing_is_written_while_kafka_has_no_controller(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.delete("/controller")
        assert store.facts().controller_version is None
        with pytest.raises(RetryLater) as held:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert held.value.reason is Reason.CONTROLLER_ABSENT

    def test_a_new_controller_between_reading_and_writing_is_noticed(self, faults: FaultyTree, others: OtherWriter) -> None:
        class ElectionBeforeCommit(FaultyTree):
            def acls(self, paths):  # type: ignore[no-untyped-def]
                elect(others, kraft_epoch=3)
                return super().acls(paths)

        store = ZooKeeperQuotaStore(ElectionBeforeCommit(faults.inner))
        with pytest.raises(WriteRefused) as refused:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert refused.value.reason is Reason.MIGRATION_RUNNING
        assert others.get("/config/users/alice") is None

    def test_an_address_without_kafka_is_refused_with_the_path_to_check(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.delete("/cluster/id")
        with pytest.raises(WriteRefused, match=r"zookeeper\.connect"):
            store.facts()

    def test_only_one_policy_can_claim_a_cluster_and_release_waits_for_its_ledger(self, store: ZooKeeperQuotaStore) -> None:
        store.claim(POLICY, "uid-1")
        store.claim(POLICY, "uid-2")
        assert store.facts().owner_policy_uid == "uid-2"
        with pytest.raises(WriteRefused) as refused:
            store.claim("other/policy", "uid-3")
        assert refused.value.reason is Reason.CLUSTER_ALREADY_MANAGED
        self.write(store, ALICE, {PRODUCE: "2048"})
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key == POLICY
        store.write([give_back(store.read([ALICE])[ALICE], {PRODUCE: None})], CLUSTER)
        store.release_claim("other/policy")
        assert store.facts().owner_policy_key == POLICY
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key is None

    def test_a_batch_for_a_policy_without_the_claim_is_refused(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        store.claim("other/policy", "uid-3")
        with pytest.raises(WriteRefused) as refused:
            self.write(store, ALICE, {PRODUCE: "2048"})
        assert refused.value.reason is Reason.CLUSTER_ALREADY_MANAGED
        assert others.get("/config/users/alice") is None

    # --- lost connections --------------------------------------------------------------------------------------------

    def test_an_answer_lost_after_the_commit_counts_as_applied_and_brokers_are_notified_again(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, faults: FaultyTree
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        faults.lose_connection_after_commit()
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert outcome.applied
        assert others.get("/config/users/alice") == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
        assert len(others.children("/config/changes")) == 2

    def test_a_request_lost_before_the_commit_is_sent_again(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, faults: FaultyTree
    ) -> None:
        seen = store.read([ALICE])[ALICE]
        faults.lose_connection_before_commit()
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert outcome.applied
        assert len(others.children("/config/changes")) == 1

    def test_the_outcome_is_unknown_only_when_reading_back_fails_too(self, store: ZooKeeperQuotaStore, faults: FaultyTree) -> None:
        class SilentAfterCommit(FaultyTree):
            def sync(self) -> None:
                raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "gone")

        silent = SilentAfterCommit(faults.inner)
        silent.lose_connection_after_commit()
        seen = store.read([ALICE])[ALICE]
        with pytest.raises(OutcomeUnknown):
            ZooKeeperQuotaStore(silent).write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert store.read([ALICE])[ALICE].ledger is not None

    def test_a_broken_ledger_record_is_a_problem_of_its_entity_and_keeps_the_claim(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        store.claim(POLICY, "uid-1")
        self.write(store, ALICE, {PRODUCE: "2048"})
        others.put("/tidegate/ledger/users%2Falice", b'{"version":99}')
        quota = store.read([ALICE])[ALICE]
        assert quota.problem is not None
        assert "ledger" in quota.problem
        store.release_claim(POLICY)
        assert store.facts().owner_policy_key == POLICY

    def test_a_closed_store_raises(self, store: ZooKeeperQuotaStore) -> None:
        store.close()
        store.close()
        with pytest.raises(Unreachable):
            store.facts()

    def test_topic_names_are_those_that_kafka_has(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.put("/brokers/topics/clicks.de", b"{}")
        others.put("/brokers/topics/clicks.fr", b"{}")
        assert store.topic_names() == {"clicks.de", "clicks.fr"}
