"""Three ZooKeepers: one is killed while quotas are written, and one is left alone and takes no
writes. Nothing is written twice, and every quota is right afterwards.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from lab.process import patience, started, wait_until
from lab.zookeeper import ZooKeeperEnsemble, ZooKeeperLab
from tests.contract.quota_store_contract import CLUSTER, PRODUCE, first, lay_out_kafka
from tests.integration.kafka.test_zookeeper_store import KazooWriter
from tests.unit.control.stage import Leaders, Stage
from tidegate.errors import RetryLater, Unreachable
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate_logic.model import Entity, StoredQuota

pytestmark = pytest.mark.integration

WHOLE = {"leader": 1, "follower": 2}
BATCH = 20


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with started(ZooKeeperEnsemble) as servers:
        yield servers


@pytest.fixture
def chroot(ensemble: ZooKeeperEnsemble, unique_name: str) -> str:
    """A connect string of all three, with the nodes of a Kafka below a path of this test's own."""
    ensemble.wait_for(WHOLE)
    client = KazooClient(ensemble.connect)
    client.start()
    client.create(f"/{unique_name}")
    client.chroot = f"/{unique_name}"
    lay_out_kafka(KazooWriter(client))
    client.stop()
    client.close()
    return f"{ensemble.connect}/{unique_name}"


def connected_to(session: ZooKeeperSession, ensemble: ZooKeeperEnsemble) -> ZooKeeperLab:
    """The server that has the session's connection."""
    assert session._kazoo is not None
    port = session._kazoo._connection._socket.getpeername()[1]
    return next(server for server in ensemble.servers if server.port == port)


def session_on(mode: str, chroot: str, ensemble: ZooKeeperEnsemble) -> ZooKeeperSession:
    """A session whose server is in this mode: kazoo chooses one at random."""
    for _ in range(40):
        session = ZooKeeperSession(ZooKeeperConnection(chroot))
        session.sync()
        if connected_to(session, ensemble).mode() == mode:
            return session
        session.close()
    raise AssertionError(f"no session was opened on a {mode}")


@dataclass
class Writing:
    """Writes one quota after the other until it has to stop, as passes do: what a broken
    connection left open is read back, and is written only where it is missing.
    """

    store: ZooKeeperQuotaStore
    most: int = 4000
    errors: list[RetryLater] = field(default_factory=list)
    written: list[Entity] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(patience(60))

    def _run(self) -> None:
        for start in range(0, self.most, BATCH):
            if self._stop.is_set():
                return
            batch = [Entity(f"user-{number}") for number in range(start, start + BATCH)]
            while missing := self._missing(batch):
                try:
                    self.store.write(
                        [first(quota, {PRODUCE: rate(quota.entity)}) for quota in missing], CLUSTER
                    )
                except RetryLater as error:
                    self.errors.append(error)
            self.written += batch

    def _missing(self, batch: list[Entity]) -> list[StoredQuota]:
        while True:
            try:
                seen = self.store.read(batch)
            except RetryLater as error:
                self.errors.append(error)
                continue
            return [quota for quota in seen.values() if not quota.values]


def rate(entity: Entity) -> str:
    return str(2048 + int(str(entity.user).removeprefix("user-")))


@pytest.mark.parametrize("mode", ["follower", "leader"])
def test_a_server_killed_during_writes_moves_the_session_and_nothing_is_written_twice(
    ensemble: ZooKeeperEnsemble, chroot: str, mode: str
) -> None:
    session = session_on(mode, chroot, ensemble)
    assert session._kazoo is not None
    before = session._kazoo.client_id
    killed = connected_to(session, ensemble)
    writing = Writing(ZooKeeperQuotaStore(session))
    try:
        wait_until(lambda: len(writing.written) >= 3 * BATCH, "writes", timeout_seconds=20)
        killed.kill()
        so_far = len(writing.written)
        wait_until(
            lambda: len(writing.written) >= so_far + 5 * BATCH,
            "writes through another server",
            timeout_seconds=40,
        )
    finally:
        writing.stop()
        killed.start()
    assert connected_to(session, ensemble) is not killed
    assert session._kazoo.client_id == before, "the session is the same, on another server"
    ensemble.wait_for(WHOLE)
    assert_written_once(chroot, writing.written)
    session.close()


def assert_written_once(chroot: str, entities: list[Entity]) -> None:
    """The value of each, and that each node was created and never written again."""
    client = KazooClient(chroot)
    client.start()
    client.sync("/")
    found = {
        entity: (
            client.get(f"/config/users/{entity.user}"),
            client.get(f"/tidegate/ledger/users%2F{entity.user}"),
        )
        for entity in entities
    }
    client.stop()
    client.close()
    for entity, ((data, quota), (_, ledger)) in found.items():
        assert json.loads(data)["config"] == {"producer_byte_rate": rate(entity)}, entity
        assert (quota.version, ledger.version) == (0, 0), entity
    assert len(found) >= 8 * BATCH


def test_a_server_without_a_majority_gets_no_session_and_the_policy_says_so(
    ensemble: ZooKeeperEnsemble, chroot: str
) -> None:
    session = ZooKeeperSession(
        ZooKeeperConnection(chroot, request_timeout_seconds=2.0, start_timeout_seconds=2.0)
    )
    stage = Stage(store=ZooKeeperQuotaStore(session), leaders=Leaders(cluster_id=CLUSTER))
    policy = stage.policy()
    tier = stage.tier()
    stage.run()
    assert stage.produce() == "10000000"
    alone = ensemble.those("leader")[0]
    away = [server for server in ensemble.servers if server is not alone]
    for server in away:
        server.kill()
    try:
        wait_until(lambda: alone.mode() == "read-only", "a server alone", timeout_seconds=30)
        assert alone.said("isro") == "ro", "it would serve a client that takes what may be old"
        stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
        stage.run()
        assert stage.condition(policy)[1] == "ZooKeeperUnreachable"
        assert f"{alone.port}" in stage.message(policy)
        with pytest.raises(Unreachable):
            stage.store.facts()
        assert session._kazoo is not None
        assert session._kazoo.client_state != KeeperState.CONNECTED_RO
        assert session._kazoo.state != KazooState.CONNECTED
    finally:
        for server in away:
            server.start()
    ensemble.wait_for(WHOLE)
    wait_until(answers(stage.store), "the store's first answer", timeout_seconds=30)
    assert stage.produce() == "10000000", "nothing was written meanwhile"
    stage.run()
    assert stage.produce() == "20000000"
    assert stage.condition(tier)[0] == "True"
    session.close()


def answers(store: ZooKeeperQuotaStore) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            store.facts()
        except Unreachable:
            return False
        return True

    return tried
