"""The bytes that a quota store writes, and those that it never lets reach a broker."""

from __future__ import annotations

import re

import pytest

from controller_logic.model import Default, Entity, QuotaKey, QuotaWrite, WriteKind
from controller_logic.reasons import Reason
from tests.contract.quota_store_stage import (
    ALICE,
    ALICE_APP,
    BOB,
    CLUSTER,
    FETCH,
    POLICY,
    PRODUCE,
    REQUEST,
    SCRAM,
    OtherWriter,
    StoreTests,
    first,
    give_back,
    path_of,
    record,
)
from tests.doubles.quota_store import FaultyTree
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore


class BytesContract(StoreTests):
    """Nodes as a broker writes them, and nothing that a broker cannot read."""

    # --- names and bytes ---------------------------------------------------------------------------------------------

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
        assert others.get(path_of(path)) == b'{"version":1,"config":{"producer_byte_rate":"1048576"}}'
        (name,) = others.children("/config/changes")
        assert re.fullmatch(r"config_change_[0-9]{10}", name)
        assert others.get(f"/config/changes/{name}") == f'{{"version":2,"entity_path":"{path}"}}'.encode()
        assert store.read([entity])[entity].values == {PRODUCE: "1048576"}

    def test_an_entity_and_its_own_child_fit_into_one_batch(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        seen = store.read([ALICE, ALICE_APP])
        outcomes = store.write([first(seen[ALICE_APP], {PRODUCE: "2048"}), first(seen[ALICE], {FETCH: "4096"})], CLUSTER)
        assert [outcome.applied for outcome in outcomes] == [True, True]
        assert others.get("/config/users/alice") == b'{"version":1,"config":{"consumer_byte_rate":"4096"}}'
        assert others.get("/config/users/alice/clients/app") == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'

    def test_a_parent_made_for_a_child_reads_as_having_no_quota(self, store: ZooKeeperQuotaStore) -> None:
        seen = store.read([ALICE])[ALICE]
        self.write(store, ALICE_APP, {PRODUCE: "2048"})
        now = store.read([ALICE])[ALICE]
        assert (dict(now.values), now.problem) == ({}, None)
        (outcome,) = store.write([first(seen, {FETCH: "4096"})], CLUSTER)
        assert outcome.applied, "a node that appeared empty is no conflict"

    def test_foreign_keys_keep_every_byte_and_their_place(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.put("/config/users/alice", f'{{"version":1,"config":{{{SCRAM},"producer_byte_rate":"7000","later":"x"}}}}'.encode())
        assert self.write(store, ALICE, {PRODUCE: "1024", FETCH: "2048"}).applied
        expected = f'{{"version":1,"config":{{{SCRAM},"producer_byte_rate":"1024","later":"x","consumer_byte_rate":"2048"}}}}'
        assert others.get("/config/users/alice") == expected.encode()

    def test_an_empty_quota_is_deleted_unless_something_else_needs_the_node(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        others.put("/config/users/carol", f'{{"version":1,"config":{{{SCRAM}}}}}'.encode())
        entities = [ALICE, ALICE_APP, BOB, Entity("carol")]
        store.write([first(quota, {PRODUCE: "2048"}) for quota in store.read(entities).values()], CLUSTER)
        store.write([give_back(quota, {PRODUCE: None}) for quota in store.read(entities).values()], CLUSTER)
        assert others.get("/config/users/alice") == b'{"version":1,"config":{}}'
        assert others.get("/config/users/alice/clients/app") is None
        assert others.get("/config/users/bob") is None
        assert others.get("/config/users/carol") == f'{{"version":1,"config":{{{SCRAM}}}}}'.encode()
        assert store.ledger_entities() == frozenset()

    def test_a_record_changes_only_the_ledger(self, store: ZooKeeperQuotaStore, others: OtherWriter, faults: FaultyTree) -> None:
        others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"2048"}}')
        seen = store.read([ALICE])[ALICE]
        assert self.write(store, ALICE, {PRODUCE: "2048"}).applied
        now = store.read([ALICE])[ALICE]
        assert now.version == seen.version
        assert now.ledger == record(ALICE, {PRODUCE: "2048"})
        assert others.children("/config/changes") == []

    # --- what must never reach a broker ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *(
                (PRODUCE, text)
                for text in ("100000.5", "1e6", " 100000", "", "0", "-5", "1023", "+2048", "02048", "9223372036854775808", "٢٠٤٨")
            ),
            *((REQUEST, text) for text in ("", "0", "-1", "NaN", "Infinity", "1d", "0x1p3", " 5")),
        ],
    )
    def test_a_value_that_harms_brokers_is_not_written(
        self, store: ZooKeeperQuotaStore, others: OtherWriter, key: QuotaKey, value: str
    ) -> None:
        outcome = self.write(store, ALICE, {key: value})
        assert (outcome.applied, outcome.reason) == (False, Reason.FOREIGN_CONTENT)
        assert others.get("/config/users/alice") is None
        assert others.children("/config/changes") == []

    def test_what_stood_there_before_is_given_back_even_if_we_would_not_choose_it(
        self, store: ZooKeeperQuotaStore, others: OtherWriter
    ) -> None:
        others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"500"}}')
        seen = store.read([ALICE])[ALICE]
        ledger = record(ALICE, {PRODUCE: "2048"}, before="500")
        store.write([QuotaWrite(ALICE, {PRODUCE: "2048"}, seen, ledger, WriteKind.FIRST, Reason.FIRST_QUOTA, "", charged=False)], CLUSTER)
        (outcome,) = store.write([give_back(store.read([ALICE])[ALICE], {PRODUCE: "500"})], CLUSTER)
        assert outcome.applied
        assert others.get("/config/users/alice") == b'{"version":1,"config":{"producer_byte_rate":"500"}}'

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
        outcomes = store.write([first(seen[ALICE], {PRODUCE: "2048"}), first(seen[BOB], {PRODUCE: "2048"})], CLUSTER)
        assert [(outcome.applied, outcome.reason) for outcome in outcomes] == [(False, Reason.FOREIGN_CONTENT), (True, None)]
        assert others.get("/config/users/alice") == content

    @pytest.mark.parametrize("name", [".", "..", "\ud800"])
    def test_a_name_that_no_node_can_have_is_a_problem_of_that_entity_only(self, store: ZooKeeperQuotaStore, name: str) -> None:
        seen = store.read([Entity(name), BOB])
        assert seen[Entity(name)].problem is not None
        assert seen[BOB].problem is None
        (outcome,) = store.write([first(seen[Entity(name)], {PRODUCE: "2048"})], CLUSTER)
        assert outcome.reason is Reason.FOREIGN_CONTENT

    def test_node_names_of_no_entity_are_reported_not_read(self, store: ZooKeeperQuotaStore, others: OtherWriter) -> None:
        for name in ("users/a b", "clients/a%zz", "users/%41"):
            others.put(path_of(name), b"{}")
        self.write(store, BOB, {PRODUCE: "2048"})
        others.put("/tidegate/ledger/a b", b"{}")
        assert set(store.read_everything()) == {BOB}
        assert set(store.unreadable_nodes()) == {
            *("/config/users/a b", "/config/clients/a%zz", "/config/users/%41", "/tidegate/ledger/a b"),
        }

    @pytest.mark.parametrize(
        ("path", "data", "limits"),
        [
            ("clients/app", b'{"version":1,"config":{"producer_byte_rate":"2048"}}', True),
            ("clients/<default>", b'{"version":1,"config":{"consumer_byte_rate":"2048"}}', True),
            ("clients/app", b"not JSON", True),
            ("clients/app", b'{"version":1,"config":{"request_percentage":"50"}}', False),
            ("clients/app", b'{"version":1,"config":{}}', False),
            ("users/alice/clients/app", b'{"version":1,"config":{"producer_byte_rate":"2048"}}', False),
            ("clients/a%zz", b'{"version":1,"config":{"producer_byte_rate":"2048"}}', False),
        ],
        ids=["a client id", "the default one", "unreadable", "another key", "nothing left", "of a user", "no name"],
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
        store.claim(POLICY, "uid-1")
        for at in range(3):
            self.write(store, ALICE, {PRODUCE: str(2048 + at)}, at=at)
        assert sorted(others.children("/config")) == ["brokers", "changes", "clients", "topics", "users"]
        assert sorted(others.children("/tidegate")) == ["claim", "ledger"]
        assert sorted(others.children("/config/changes")) == [f"config_change_{number:010d}" for number in range(3)]
