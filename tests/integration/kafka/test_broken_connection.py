"""A connection that breaks in the middle of a transaction: the answer is lost, and the store finds out what happened."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Self

import pytest
from kazoo.client import KazooClient

from lab.zookeeper import ZooKeeperLab
from tests.contract.quota_store_stage import ALICE, CLUSTER, KAFKA_PATHS, PRODUCE, first
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Operation

pytestmark = pytest.mark.integration
_PIECE_BYTES = 65536


class LossyProxy:
    """Pass bytes on to ZooKeeper and back. On request, drop the next answer and close the connection."""

    def __init__(self, target: ZooKeeperLab) -> None:
        self._target = (target.host, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._swallow = threading.Event()
        self.swallowed = threading.Event()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def swallow_next_answer(self) -> None:
        self._swallow.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
                threading.Thread(target=self._pump, args=(inner, outer, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(outer, inner, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if is_answer and self._swallow.is_set():
                    self._swallow.clear()
                    self.swallowed.set()
                    break
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


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


@pytest.fixture
def client(chroot: str) -> Iterator[KazooClient]:
    started = KazooClient(chroot)
    started.start()
    for path in KAFKA_PATHS:
        started.ensure_path(path)
    started.create("/cluster/id", f'{{"version":"1","id":"{CLUSTER}"}}'.encode())
    started.create("/controller_epoch", b"1")
    started.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}')
    yield started
    started.stop()
    started.close()


def test_a_transaction_whose_answer_is_lost_counts_as_applied_and_brokers_are_notified_again(
    zookeeper: ZooKeeperLab, chroot: str, client: KazooClient
) -> None:
    with LossyProxy(zookeeper) as proxy:
        path = chroot.removeprefix(zookeeper.connect)
        session = CutAtCommit(ZooKeeperConnection(f"127.0.0.1:{proxy.port}{path}"), proxy)
        store = ZooKeeperQuotaStore(session)
        (outcome,) = store.write([first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})], CLUSTER)
        assert proxy.swallowed.is_set()
        assert outcome.applied
        assert client.get("/config/users/alice")[0] == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
        assert client.get("/config/users/alice")[1].version == 0, "it was not written twice"
        assert len(client.get_children("/config/changes")) == 2
        store.close()
