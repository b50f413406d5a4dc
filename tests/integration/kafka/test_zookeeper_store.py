"""The store on a real ZooKeeper fulfils the contract: with and without bulk reads, lost
connections, expired sessions, ACLs.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from lab.process import patience, started, wait_until
from lab.proxy import Proxy
from lab.zookeeper import DigestLogin, ZooKeeperLab
from tests.contract.quota_store_contract import (
    ALICE,
    ALICE_APP,
    CLUSTER,
    FETCH,
    PRODUCE,
    OtherWriter,
    ZooKeeperStoreContract,
    elect,
    first,
    lay_out_kafka,
)
from tests.doubles.quota_store import FaultyTree
from tests.unit.control.stage import Leaders, Stage
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Operation
from tidegate.kube.api import ObjectRef
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration


class KazooWriter:
    """Kafka and its tools on a real ZooKeeper."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def get(self, path: str) -> bytes | None:
        return self._client.get(path)[0] if self._client.exists(path) else None

    def put(self, path: str, data: bytes) -> None:
        self._client.ensure_path(path)
        self._client.set(path, data)

    def delete(self, path: str) -> None:
        if self._client.exists(path):
            self._client.delete(path)

    def children(self, path: str) -> list[str]:
        return self._client.get_children(path)


@pytest.fixture
def others(chroot_client: KazooClient) -> OtherWriter:
    writer = KazooWriter(chroot_client)
    lay_out_kafka(writer)
    return writer


@pytest.fixture
def session(chroot: str, others: OtherWriter) -> Iterator[ZooKeeperSession]:
    opened = ZooKeeperSession(ZooKeeperConnection(chroot))
    yield opened
    opened.close()


@pytest.fixture
def faults(session: ZooKeeperSession) -> FaultyTree:
    return FaultyTree(session)


class TestZooKeeperStore(ZooKeeperStoreContract):
    """All of the contract, with MultiRead."""


def test_single_reads_of_old_servers_give_the_same_answers(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    others.put("/config/users/alice", b"{}")
    paths = ["/config/users/alice", "/config/users/missing", "/config/users"]
    expected = session.read(paths), session.children(paths)
    session._knows_multi_read = False
    assert (session.read(paths), session.children(paths)) == expected
    assert expected[0][1] is None


def test_who_watches_is_woken_by_brokers_and_elections(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    woken = threading.Event()
    session.watch(woken.set)
    # separate requests set the watches, and a change before them is found by the first read instead
    session.sync()
    others.put("/brokers/ids/1", b"{}")
    assert woken.wait(patience(5))
    woken.clear()
    elect(others)
    assert woken.wait(patience(5))


def test_without_an_answer_the_error_names_every_address_and_its_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        store = ZooKeeperQuotaStore(
            ZooKeeperSession(
                ZooKeeperConnection(
                    f"127.0.0.1:{port},nowhere.invalid:2181/kafka", start_timeout_seconds=1
                )
            )
        )
        with pytest.raises(Unreachable) as silent:
            store.facts()
    assert f"127.0.0.1:{port}: " in silent.value.message
    assert "nowhere.invalid:2181: " in silent.value.message


def test_a_crashed_zookeeper_is_unreachable_and_works_again_when_it_is_back() -> None:
    with started(ZooKeeperLab) as server:
        client = KazooClient(server.connect)
        client.start()
        lay_out_kafka(KazooWriter(client))
        store = ZooKeeperQuotaStore(
            ZooKeeperSession(ZooKeeperConnection(server.connect, request_timeout_seconds=5))
        )
        woken = threading.Event()
        store.watch(woken.set)
        seen = store.read([ALICE])[ALICE]
        server.kill()
        with pytest.raises(Unreachable):
            store.facts()
        server.start()
        assert woken.wait(patience(20)), "the watches come back with the connection"
        wait_until(lambda: _answers(store), "the store's first answer", timeout_seconds=20)
        (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        assert outcome.applied
        store.close()
        client.stop()
        client.close()


def test_a_killed_session_is_replaced(session: ZooKeeperSession) -> None:
    store = ZooKeeperQuotaStore(session)
    store.facts()
    assert session._kazoo is not None
    session._kazoo.stop()
    assert store.facts().cluster_id == CLUSTER


def test_new_nodes_are_as_closed_as_their_parents_and_strangers_are_refused() -> None:
    kafka_login, stranger = (
        DigestLogin("kafka", "kafka-secret"),
        DigestLogin("mallory", "mallory-secret"),
    )
    with started(lambda: ZooKeeperLab(logins=(kafka_login, stranger))) as server:
        client = KazooClient(
            server.connect,
            sasl_options={
                "mechanism": "DIGEST-MD5",
                "username": kafka_login.user,
                "password": kafka_login.password,
            },
        )
        client.start()
        lay_out_kafka(KazooWriter(client))
        closed = [make_acl("sasl", "kafka", all=True)]
        readable = [*closed, make_acl("world", "anyone", read=True)]
        client.set_acls("/config/users", closed)
        client.set_acls("/config/changes", readable)
        store = ZooKeeperQuotaStore(ZooKeeperSession(_as(server, kafka_login)))
        seen = store.read([ALICE_APP])[ALICE_APP]
        store.claim(Claim("streaming/orders", "uid-1"))
        store.write([first(seen, {PRODUCE: "2048"})], CLUSTER)
        (notification,) = client.get_children("/config/changes")
        for path in (
            *(
                "/config/users/alice",
                "/config/users/alice/clients",
                "/config/users/alice/clients/app",
            ),
            *(
                "/tidegate",
                "/tidegate/claim",
                "/tidegate/ledger",
                "/tidegate/ledger/users%2Falice%2Fclients%2Fapp",
            ),
        ):
            assert client.get_acls(path)[0] == closed, path
        assert client.get_acls(f"/config/changes/{notification}")[0] == readable
        assert client.get("/config/users/alice")[0] in (None, b"")
        for connection in (_as(server, stranger), ZooKeeperConnection(server.connect)):
            with pytest.raises(Unauthorized, match="/config/users/alice"):
                ZooKeeperQuotaStore(ZooKeeperSession(connection)).read([ALICE])
        with pytest.raises(Unauthorized, match="kafka"):
            ZooKeeperQuotaStore(
                ZooKeeperSession(_as(server, DigestLogin("kafka", "wrong")))
            ).facts()
        store.close()
        client.stop()
        client.close()


def test_two_hundred_writes_in_one_batch_and_a_thousand_reads_at_once(
    session: ZooKeeperSession,
) -> None:
    store = ZooKeeperQuotaStore(session)
    entities = [Entity(f"user-{number}") for number in range(1000)]
    seen = store.read(entities)
    outcomes = store.write(
        [first(seen[entity], {PRODUCE: "2048"}) for entity in entities[:200]], CLUSTER
    )
    assert all(outcome.applied for outcome in outcomes)
    assert len(store.read_everything()) == 200
    assert {quota.problem for quota in store.read(entities).values()} == {None}


def test_seventy_names_of_256_emoji_are_written_read_and_listed(session: ZooKeeperSession) -> None:
    store = ZooKeeperQuotaStore(session)
    # 6 kB each as a quota node and 10 kB as a ledger node: in one request more than ZooKeeper takes
    waves = "\N{WATER WAVE}" * 255
    entities = [Entity(waves + chr(0x1F300 + number), f"{waves}~") for number in range(70)]
    seen = store.read(entities)
    outcomes = store.write([first(seen[entity], {PRODUCE: "2048"}) for entity in entities], CLUSTER)
    assert all(outcome.applied for outcome in outcomes)
    assert {stored.values[PRODUCE] for stored in store.read(entities).values()} == {"2048"}
    assert set(store.read_everything()) >= set(entities)


def test_paths_of_more_bytes_than_one_request_takes_are_asked_for_their_children(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    others.put("/config/users/alice/clients/app", b"{}")
    missing = [f"/config/users/{'%F0%9F%8C%8A' * 256}{number:06}" for number in range(400)]
    answers = session.children([*missing, "/config/users/alice/clients"])
    assert answers == [None] * 400 + [["app"]]


_LEDGER = "/tidegate/ledger/users%2Falice"


def _from_a_newer_version(others: OtherWriter, **changes: object) -> bytes:
    """Give alice's ledger record a reason of the future and a fetch quota with a field of it."""
    record = json.loads(others.get(_LEDGER) or b"")
    produce = record["entries"]["producer_byte_rate"]
    produce["reason"] = "Dampened"
    record["entries"]["consumer_byte_rate"] = {
        **produce,
        "written": "4096",
        "before": "5000",
        "damping": [0.5, 2],
    }
    others.put(
        "/config/users/alice",
        json.dumps(
            {
                "version": 1,
                "config": {"producer_byte_rate": produce["written"], "consumer_byte_rate": "4096"},
            }
        ).encode(),
    )
    data = json.dumps({**record, "written_by": "0.9.0", "since": 7, **changes}).encode()
    others.put(_LEDGER, data)
    return data


def _stage_on(session: ZooKeeperSession) -> tuple[Stage, ObjectRef]:
    store = ZooKeeperQuotaStore(session)
    stage = Stage(store=store, leaders=Leaders({"acc": {1: 1, 2: 1, 3: 1}}, cluster_id=CLUSTER))
    stage.policy(removal={"maxPercent": 100})
    tier = stage.tier()
    stage.run()
    assert stage.produce() == "10000000"
    stage.restart()
    return stage, tier


def test_a_record_of_a_newer_version_stays_byte_for_byte_and_its_entity_follows_the_leaders(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    stage, _ = _stage_on(session)
    data = _from_a_newer_version(others)
    others.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"10000000"}}')
    record = json.loads(data)
    del record["entries"]["consumer_byte_rate"]
    kept = json.dumps(record).encode()
    others.put(_LEDGER, kept)
    stage.run()
    stage.run()
    assert others.get(_LEDGER) == kept, "nothing is to be done, so it is not rewritten"
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    stage.run()
    assert stage.produce() == "20000000"
    after = json.loads(others.get(_LEDGER) or b"")
    assert (after["since"], after["written_by"]) == (7, "0.9.0")
    assert after["entries"]["producer_byte_rate"]["reason"] == "LeadersMoved"
    assert after["entries"]["producer_byte_rate"]["before"] is None


def test_what_a_newer_version_wrote_is_given_back_as_it_was_before(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    stage, _ = _stage_on(session)
    _from_a_newer_version(others)
    stage.run()
    stage.run_past_grace()
    alice = stage.store.read([ALICE])[ALICE]
    assert alice.problem is None
    assert alice.values == {PRODUCE: "10000000", FETCH: "5000"}, "no contract names the fetch quota"
    after = json.loads(others.get(_LEDGER) or b"")
    assert list(after["entries"]) == ["producer_byte_rate"]
    assert after["entries"]["producer_byte_rate"]["reason"] == "Dampened"


def test_a_record_in_a_newer_format_is_left_alone_and_reported_with_its_version(
    session: ZooKeeperSession, others: OtherWriter
) -> None:
    stage, tier = _stage_on(session)
    data = _from_a_newer_version(others, version=2)
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    stage.run()
    assert others.get(_LEDGER) == data
    assert b'"10000000"' in (others.get("/config/users/alice") or b"")
    assert stage.condition(tier) == ("False", "ForeignContent")
    (reported,) = stage.kubernetes.get(tier)["status"]["members"]
    assert "Tidegate 0.9.0" in reported["message"]
    assert "Tidegate 0.9.0" in stage.message(tier)


def _as(server: ZooKeeperLab, login: DigestLogin) -> ZooKeeperConnection:
    return ZooKeeperConnection(
        server.connect, sasl=SaslLogin(SaslMechanism.DIGEST_MD5, login.user, login.password)
    )


def _answers(store: ZooKeeperQuotaStore) -> bool:
    try:
        store.facts()
    except Unreachable:
        return False
    return True


# --- a connection that breaks in a transaction ----------------------------------------------------
# A connection that breaks in the middle of a transaction: the answer is lost, and the store finds
# out what happened.


class LossyProxy(Proxy):
    """On request, drop the next answer of ZooKeeper and close the connection."""

    def __init__(self, target: ZooKeeperLab) -> None:
        self._swallow = threading.Event()
        self.swallowed = threading.Event()
        super().__init__((target.host, target.port))

    def swallow_next_answer(self) -> None:
        self._swallow.set()

    def lets_answer_pass(self) -> bool:
        if not self._swallow.is_set():
            return True
        self._swallow.clear()
        self.swallowed.set()
        return False


class CutAtCommit(ZooKeeperSession):
    """A session whose first transaction loses its answer in the proxy."""

    def __init__(self, connection: ZooKeeperConnection, proxy: LossyProxy) -> None:
        super().__init__(connection)
        self._proxy: LossyProxy | None = proxy

    def commit(self, operations: list[Operation]) -> None:  # type: ignore[override]
        if self._proxy is not None:
            self._proxy.swallow_next_answer()
            self._proxy = None
        super().commit(operations)


def test_a_transaction_whose_answer_is_lost_counts_as_applied_and_brokers_are_notified_again(
    zookeeper: ZooKeeperLab, chroot: str, chroot_client: KazooClient, others: OtherWriter
) -> None:
    with LossyProxy(zookeeper) as proxy:
        path = chroot.removeprefix(zookeeper.connect)
        session = CutAtCommit(ZooKeeperConnection(f"127.0.0.1:{proxy.port}{path}"), proxy)
        store = ZooKeeperQuotaStore(session)
        (outcome,) = store.write([first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})], CLUSTER)
        assert proxy.swallowed.is_set()
        assert outcome.applied
        assert (
            chroot_client.get("/config/users/alice")[0]
            == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
        )
        assert chroot_client.get("/config/users/alice")[1].version == 0, "it was not written twice"
        assert len(chroot_client.get_children("/config/changes")) == 2
        store.close()
