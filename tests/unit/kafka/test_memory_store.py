"""The in-memory twin keeps the store's promise, and its own extras do what tests believe they
do.
"""

from __future__ import annotations

import pytest

from tests.contract.quota_store_contract import (
    OtherWriter,
    ZooKeeperStoreContract,
    first,
    lay_out_kafka,
)
from tests.doubles.quota_store import OPEN_ACL, FaultyTree, MemoryQuotaStore, MemoryTree
from tidegate.errors import Unreachable
from tidegate.kafka.zookeeper.tree import Create, Delete, SetData
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.reasons import Reason


class MemoryWriter:
    """Another writer on the same tree."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree

    def get(self, path: str) -> bytes | None:
        (node,) = self._tree.read([path])
        return node.data if node else None

    def put(self, path: str, data: bytes) -> None:
        steps = path.split("/")
        for depth in range(2, len(steps)):
            self._put("/".join(steps[:depth]), b"", overwrite=False)
        self._put(path, data, overwrite=True)

    def delete(self, path: str) -> None:
        (node,) = self._tree.read([path])
        if node is not None:
            self._tree.commit([Delete(path, node.version)])

    def children(self, path: str) -> list[str]:
        (names,) = self._tree.children([path])
        return names or []

    def _put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        (node,) = self._tree.read([path])
        if node is None:
            self._tree.commit([Create(path, data, OPEN_ACL)])
        elif overwrite:
            self._tree.commit([SetData(path, data, node.version)])


class TestMemoryStore(ZooKeeperStoreContract):
    @pytest.fixture
    def tree(self) -> MemoryTree:
        return MemoryTree()

    @pytest.fixture
    def others(self, tree: MemoryTree) -> OtherWriter:
        writer = MemoryWriter(tree)
        lay_out_kafka(writer)
        return writer

    @pytest.fixture
    def faults(self, tree: MemoryTree, others: OtherWriter) -> FaultyTree:
        return FaultyTree(tree)


def test_the_twin_starts_as_a_kafka_that_can_be_written() -> None:
    store = MemoryQuotaStore("c", topics=["orders"])
    seen = store.read([Entity("alice")])[Entity("alice")]
    (outcome,) = store.write([first(seen, {QuotaKey.PRODUCER_BYTE_RATE: "2048"})], "c")
    assert outcome.applied
    assert (store.transactions, store.notifications, store.topic_names()) == (
        1,
        ("users/alice",),
        {"orders"},
    )


def test_an_ordered_fault_hits_the_next_request_only() -> None:
    store = MemoryQuotaStore()
    store.fail_next(Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "gone"))
    with pytest.raises(Unreachable, match="gone"):
        store.facts()
    assert store.facts().cluster_id == "memory-cluster"


def test_who_watches_is_woken_by_an_election() -> None:
    store = MemoryQuotaStore()
    woken: list[int] = []
    store.watch(lambda: woken.append(1))
    store.elect_controller()
    assert woken == [1]
