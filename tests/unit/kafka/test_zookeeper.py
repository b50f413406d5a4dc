"""The store in ZooKeeper: ledger records and claims, and errors of a client that does not start."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, KazooException

from tidegate import __version__
from tidegate.errors import ForeignContent, Unauthorized, Unreachable
from tidegate.kafka import quota_node
from tidegate.kafka.claim import claim_to_bytes, claimed_elsewhere, parse_claim
from tidegate.kafka.ledger import parse_record, record_to_bytes
from tidegate.kafka.quota_node import config_path
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper import nodes, session
from tidegate.kafka.zookeeper.multi_read import multi_reads
from tidegate.kafka.zookeeper.nodes import (
    EntityReader,
    ledger_path,
)
from tidegate.kafka.zookeeper.session import start_client
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Znode
from tidegate_logic.model import (
    Entity,
    LedgerEntry,
    LedgerRecord,
    Policy,
    QuotaKey,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.quotas.leaving import remembered
from tidegate_logic.quotas.steps import KeyRules, KeyState, MuteGuard, give_back
from tidegate_logic.reasons import Reason

# --- records and claims ---------------------------------------------------------------------------
# A ledger record or claim reads back as it was written, and anything else is refused.


ALICE = Entity("alice", "app 1")
ENTRY = LedgerEntry(
    "500", "2048", None, 1795265242.25, Reason.LEADERS_MOVED, "perPartition 10 MB/s, Größe ≤ 3"
)
RECORD = LedgerRecord(ALICE, "streaming/orders", "uid-1", {QuotaKey.PRODUCER_BYTE_RATE: ENTRY})
CLAIM = Claim("streaming/orders", "u", "tidegate-0_1_ab", 3, 1795265242.0, ("s", "t"))


def test_a_record_reads_back_exactly() -> None:
    assert parse_record(ALICE, record_to_bytes(RECORD)) == RECORD
    assert ledger_path(ALICE) == "/tidegate/ledger/users%2Falice%2Fclients%2Fapp%25201"


def test_a_throttle_reads_back_with_its_contract_and_a_contract_has_no_word_of_it() -> None:
    throttled = replace(
        RECORD, entries={QuotaKey.PRODUCER_BYTE_RATE: replace(ENTRY, of_contract=60_000_000)}
    )
    assert parse_record(ALICE, record_to_bytes(throttled)) == throttled
    assert b"of_contract" not in record_to_bytes(RECORD)


def test_a_claim_reads_back_exactly() -> None:
    assert parse_claim(claim_to_bytes(CLAIM), "/tidegate/claim in ZooKeeper") == CLAIM


def test_a_claim_of_version_0_1_has_no_epoch_holder_or_time() -> None:
    data = b'{"version":1,"policy_key":"a/b","policy_uid":"u"}'
    assert parse_claim(data, "/tidegate/claim in ZooKeeper") == Claim(
        "a/b", "u", holder="", epoch=0, since_seconds=0.0
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"version": 2},
        {"version": 1},
        {"lease_namespace": None},
        {"policy_uid": None},
        {"holder": None},
        {"since_seconds": "now"},
        {"former": "t"},
        {"former": [1]},
        {"more": 1},
    ]
    + [{"epoch": epoch} for epoch in (0, -1, True, 1.5, "2", None)],
)
def test_a_claim_of_another_shape_is_refused(change: dict[str, object]) -> None:
    content = {**json.loads(claim_to_bytes(CLAIM)), **change}
    with pytest.raises(ForeignContent, match="nothing is written"):
        parse_claim(json.dumps(content).encode(), "/tidegate/claim in ZooKeeper")


def test_a_claim_that_is_held_elsewhere_reads_like_this(golden: Callable[[str], None]) -> None:
    golden(
        "\n".join(
            (
                claimed_elsewhere(CLAIM, "other"),
                claimed_elsewhere(CLAIM, "t"),
                claimed_elsewhere(Claim("streaming/orders", "u"), "other"),
                claimed_elsewhere(replace(CLAIM, lease_namespace="tidegate"), "u"),
            )
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"policy_key": 5},
        {"entries": []},
        {"entries": {"unknown_key": {}}},
        {"entries": {"producer_byte_rate": {"before": None}}},
        {"more": 1},
    ],
)
def test_a_record_of_another_shape_is_refused(change: dict[str, object]) -> None:
    content = {**json.loads(record_to_bytes(RECORD)), **change}
    with pytest.raises(ForeignContent):
        parse_record(ALICE, json.dumps(content).encode())


def test_a_record_of_another_shape_reads_like_this(golden: Callable[[str], None]) -> None:
    content = {**json.loads(record_to_bytes(RECORD)), "version": 2}
    with pytest.raises(ForeignContent) as refused:
        parse_record(ALICE, json.dumps(content).encode())
    golden(refused.value.message)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reason", "a whim"),
        ("reason", ""),
        ("reason", 5),
        ("written_at_seconds", True),
        ("written_at_seconds", -1),
        ("written", 2048),
    ]
    + [("of_contract", value) for value in (0, -1, True, "60", None, 1.5)],
)
def test_an_entry_with_a_wrong_field_is_refused(field: str, value: object) -> None:
    content = json.loads(record_to_bytes(RECORD))
    content["entries"]["producer_byte_rate"][field] = value
    with pytest.raises(ForeignContent):
        parse_record(ALICE, json.dumps(content).encode())


# A record of a newer version: what is new in it is kept, and what it says otherwise is followed.


NEWER: dict[str, Any] = {
    **json.loads(record_to_bytes(RECORD)),
    "written_by": "0.9.0",
    "since": [1, 2],
}
NEWER["entries"]["consumer_byte_rate"] = {
    **NEWER["entries"]["producer_byte_rate"],
    "reason": "Dampened",
    "of_contract": 60_000_000,
    "damping": {"share": 1},
}


def _bytes(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def test_a_record_without_anything_new_is_byte_for_byte_what_every_version_writes() -> None:
    assert record_to_bytes(replace(RECORD, entity=Entity("bob"))) == (
        b'{"version":1,"policy_key":"streaming/orders","policy_uid":"uid-1","entries":'
        b'{"producer_byte_rate":{"before":"500","written":"2048","previous":null,'
        b'"written_at_seconds":1795265242.25,"reason":"LeadersMoved",'
        b'"basis":"perPartition 10 MB/s, Gr\\u00f6\\u00dfe \\u2264 3"}}}'
    )


def test_the_memory_of_a_restored_quota_is_a_record_that_every_version_reads() -> None:
    """An earlier one finds its `before` in force already, and drops the record."""
    memory = remembered(ENTRY, QuotaKey.PRODUCER_BYTE_RATE, None, now_seconds=1795265300.0)
    assert memory is not None
    record = replace(RECORD, entries={QuotaKey.PRODUCER_BYTE_RATE: memory})
    assert parse_record(ALICE, record_to_bytes(record)) == record
    assert record_to_bytes(record) == (
        b'{"version":1,"policy_key":"streaming/orders","policy_uid":"uid-1","entries":'
        b'{"producer_byte_rate":{"before":null,"written":null,"previous":"2048",'
        b'"written_at_seconds":1795265300.0,"reason":"GivenBack",'
        b'"basis":"perPartition 10 MB/s, Gr\\u00f6\\u00dfe \\u2264 3"}}}'
    )
    standing = KeyState(QuotaKey.PRODUCER_BYTE_RATE, None, memory)
    rules = KeyRules(1795265301.0, 10, MuteGuard.of(Policy("streaming/orders", "uid-1")))
    step = give_back(standing, rules)
    assert (step.kind, step.text, step.entry) == (WriteKind.RECORD, None, None)


def test_a_newer_reason_is_kept_as_a_text_with_or_without_the_version_that_wrote_it() -> None:
    record = parse_record(ALICE, _bytes(NEWER))
    entry = record.entries[QuotaKey.CONSUMER_BYTE_RATE]
    assert (entry.reason.value, entry.written, entry.of_contract) == (
        "Dampened",
        "2048",
        60_000_000,
    )
    assert "newer version" in entry.reason.meaning
    unsigned = json.loads(_bytes(NEWER))
    del unsigned["written_by"], unsigned["since"]
    del unsigned["entries"]["consumer_byte_rate"]["damping"]
    assert parse_record(ALICE, _bytes(unsigned)) == record
    assert record_to_bytes(record, _bytes(unsigned)) == record_to_bytes(record)
    assert json.loads(record_to_bytes(record)) == unsigned


def test_a_rewritten_record_keeps_what_a_newer_version_put_beside_it() -> None:
    before = _bytes(NEWER)
    record = parse_record(ALICE, before)
    assert json.loads(record_to_bytes(record, before)) == NEWER
    ours = replace(ENTRY, written="4096", reason=Reason.CONTRACT_CHANGED)
    changed = replace(record, entries={**record.entries, QuotaKey.PRODUCER_BYTE_RATE: ours})
    after = json.loads(record_to_bytes(changed, before))
    assert after["entries"].pop("producer_byte_rate")["written"] == "4096"
    assert after == {
        **NEWER,
        "entries": {"consumer_byte_rate": NEWER["entries"]["consumer_byte_rate"]},
    }


def test_a_new_entry_has_nothing_of_the_newer_one_that_it_replaces_and_the_writer_goes_last() -> (
    None
):
    before = _bytes({key: value for key, value in NEWER.items() if key != "since"})
    record = parse_record(ALICE, before)
    ours = replace(ENTRY, written="4096")
    changed = replace(record, entries={**record.entries, QuotaKey.CONSUMER_BYTE_RATE: ours})
    assert record_to_bytes(changed, before) == record_to_bytes(changed)
    assert b"written_by" not in record_to_bytes(changed)


def test_a_reason_that_not_every_version_knows_makes_the_record_name_its_writer() -> None:
    newer = replace(ENTRY, reason=Reason.ROLLUP_FAILED)
    data = record_to_bytes(replace(RECORD, entries={QuotaKey.PRODUCER_BYTE_RATE: newer}))
    assert json.loads(data)["written_by"] == __version__
    assert parse_record(ALICE, data).entries[QuotaKey.PRODUCER_BYTE_RATE] == newer


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2, "written_by": "0.9.0"}, "0.9.0"),
        ({"version": 2}, "newer"),
        ({"entries": {"connection_creation_rate": {}}, "written_by": "0.9.0"}, "0.9.0"),
    ],
)
def test_what_cannot_be_understood_names_the_version_that_wrote_it(
    change: dict[str, object], named: str, golden: Callable[[str], None]
) -> None:
    content = {**json.loads(record_to_bytes(RECORD)), **change}
    with pytest.raises(ForeignContent, match=named) as refused:
        parse_record(ALICE, _bytes(content))
    golden(refused.value.message)


def test_a_damaged_record_reads_like_this(golden: Callable[[str], None]) -> None:
    with pytest.raises(ForeignContent) as refused:
        parse_record(ALICE, b'{"version":1,')
    golden(refused.value.message)


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000], ids=lambda data: repr(data)[:20]
)
def test_what_is_no_json_object_is_refused(data: bytes | None) -> None:
    with pytest.raises(ForeignContent):
        parse_record(ALICE, data)
    with pytest.raises(ForeignContent, match="/tidegate/claim"):
        parse_claim(data, "/tidegate/claim in ZooKeeper")


# --- bulk reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "count", "requests"), [(10, 1200, 3), (10_000, 140, 3), (800_000, 2, 2), (10, 0, 0)]
)
def test_bulk_reads_are_bounded_by_count_and_by_bytes_and_keep_their_order(
    length: int, count: int, requests: int
) -> None:
    paths = [f"/{number:06}".ljust(length, "a") for number in range(count)]
    made = list(multi_reads(paths, wants_children=False))
    assert [path for request in made for path in request.paths] == paths
    assert len(made) == requests
    assert all(len(one.paths) <= 500 for one in made)
    assert all(len(one.serialize()) <= 700_000 for one in made if len(one.paths) > 1)


def test_a_request_may_be_as_large_as_the_bound_and_no_larger() -> None:
    per_path = 9 + 4 + 1
    paths = ["a" * ((700_000 - 9) // 7 - per_path)] * 7
    (one,) = multi_reads(paths, wants_children=False)
    assert len(one.serialize()) == 700_000 - (700_000 - 9) % 7
    assert len(list(multi_reads([*paths, "/"], wants_children=False))) == 2


# --- what a store keeps from one reading to the next ----------------------------------------------


class CountingTree:
    """Quotas and ledger records of `users` users of one cluster, to be read in bulk."""

    def __init__(self, cluster: str, users: int) -> None:
        self.entities = [Entity(f"{cluster}-{number}", "app 1") for number in range(users)]
        self.nodes: dict[str, bytes] = {}
        for entity in self.entities:
            self.nodes[config_path(entity)] = (
                b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
            )
            self.nodes[ledger_path(entity)] = record_to_bytes(replace(RECORD, entity=entity))

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        found = map(self.nodes.get, paths)
        return [None if data is None else Znode(data, 0, 0) for data in found]

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        return [[path.rpartition("/")[2] for path in self.nodes if "ledger" in path]]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a node's content was parsed, or a name read or spelled."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counting(*given: Any, **named: Any) -> Any:
            counted[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(module, name, counting)

    for name in ("parse_quota", "parse_record"):
        count(nodes, name)
    for name in ("encode_name", "decode_name"):
        count(quota_node, name)
    return counted


def _read_all(tree: CountingTree, store: ZooKeeperQuotaStore) -> Mapping[Entity, StoredQuota]:
    return store.read({*tree.entities} | store.ledger_entities())


def test_the_second_pass_of_each_of_two_large_policies_parses_nothing_that_has_not_changed(
    parsed: Counter[str],
) -> None:
    trees = [CountingTree(cluster, 5000) for cluster in ("one", "two")]
    stores = [ZooKeeperQuotaStore(tree) for tree in trees]  # type: ignore[arg-type]
    for tree, store in zip(trees, stores, strict=True):
        assert len(_read_all(tree, store)) == 5000
    parsed.clear()
    for tree, store in zip(trees, stores, strict=True):
        assert len(_read_all(tree, store)) == 5000
    assert not parsed


def test_one_policy_of_any_size_parses_only_what_has_changed(parsed: Counter[str]) -> None:
    tree = CountingTree("large", 9000)
    store = ZooKeeperQuotaStore(tree)  # type: ignore[arg-type]
    _read_all(tree, store)
    changed = tree.entities[17]
    tree.nodes[config_path(changed)] = b'{"version":1,"config":{"producer_byte_rate":"4096"}}'
    parsed.clear()
    assert _read_all(tree, store)[changed].values == {QuotaKey.PRODUCER_BYTE_RATE: "4096"}
    assert parsed == {"parse_quota": 1, "parse_record": 1}


def test_reading_a_part_once_more_keeps_the_rest_known(parsed: Counter[str]) -> None:
    tree = CountingTree("one", 100)
    store = ZooKeeperQuotaStore(tree)  # type: ignore[arg-type]
    _read_all(tree, store)
    store.read(tree.entities[:3])
    store.has_client_id_quotas()
    parsed.clear()
    _read_all(tree, store)
    assert not parsed


def test_what_is_no_longer_read_is_let_go_when_another_entity_comes(parsed: Counter[str]) -> None:
    tree = CountingTree("one", 3)
    reader = EntityReader(tree)  # type: ignore[arg-type]
    gone, *rest = tree.entities
    reader.read(tree.entities)
    reader.read([*rest, Entity("new")])
    parsed.clear()
    reader.read(rest)
    assert not parsed
    reader.read([gone])
    assert parsed["parse_record"] == 1


# --- starting a client ----------------------------------------------------------------------------
# Errors of a ZooKeeper client that does not start. Starts against real servers are in the
# integration tests.


LOGIN = SaslLogin(SaslMechanism.DIGEST_MD5, "kafka", "wrong")


@pytest.mark.parametrize(
    ("login", "error", "raised"),
    [
        (LOGIN, AuthFailedError(), Unauthorized),
        (LOGIN, ConnectionClosedError("Connection has been closed"), Unauthorized),
        (LOGIN, ConnectionLoss(), Unreachable),
        (None, ConnectionClosedError("Connection has been closed"), Unreachable),
    ],
)
def test_a_refused_login_is_distinguished_from_silence(
    login: SaslLogin | None,
    error: KazooException,
    raised: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(raised, match=r"127\.0\.0\.1:1"):
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=login), lambda _: None)


def test_a_refused_login_reads_like_this(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    def fails(*_: Any) -> None:
        raise AuthFailedError

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(Unauthorized) as refused:
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=LOGIN), lambda _: None)
    golden(refused.value.message)
