"""A node is deleted with all below it: what a queue's forwarders leave, and nothing of another."""

from collections.abc import Sequence

import pytest

from tests.doubles.quota_store import OPEN_ACL, FaultyTree, MemoryTree
from tidegate.errors import LeaseLost
from tidegate.kafka.zookeeper.tree import Create, Delete, Operation, Rejected
from tidegate.kafka.zookeeper.writer import delete_all

QUEUE, OTHER = "/tidegate/queues/shop", "/tidegate/queues/shop.unpaid"
LEFT = (f"{QUEUE}/members", f"{QUEUE}/owners", f"{QUEUE}/assignment", f"{QUEUE}/owners/shop.5.0")


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree()
    paths = ("/tidegate", "/tidegate/queues", QUEUE, OTHER, f"{OTHER}/assignment", *LEFT)
    made.commit([Create(path, b"", OPEN_ACL) for path in paths])
    return made


def test_everything_of_the_queue_is_deleted_and_nothing_else(tree: MemoryTree) -> None:
    delete_all(tree, QUEUE, lambda: True)
    assert tree.children(["/tidegate/queues", OTHER]) == [["shop.unpaid"], ["assignment"]]
    delete_all(tree, QUEUE, lambda: True)


def test_a_session_that_ends_in_between_takes_its_nodes_along(tree: MemoryTree) -> None:
    faulty = FaultyTree(tree)
    faulty.before_next_commit(lambda: tree.commit([Delete(f"{QUEUE}/owners/shop.5.0", 0)]))
    delete_all(faulty, QUEUE, lambda: True)
    assert tree.read([QUEUE]) == [None]


def test_a_forwarder_that_goes_on_is_not_fought_with(tree: MemoryTree) -> None:
    class Joined(FaultyTree):
        """Before every transaction, another member joins."""

        def commit(self, operations: Sequence[Operation]) -> None:
            path = f"{QUEUE}/members/pod-{len(operations)}"
            tree.commit([Create(path, b"", OPEN_ACL)])
            super().commit(operations)

    with pytest.raises(Rejected):
        delete_all(Joined(tree), QUEUE, lambda: True)
    assert tree.read([QUEUE]) != [None]


def test_nothing_is_deleted_once_the_lease_is_lost(tree: MemoryTree) -> None:
    with pytest.raises(LeaseLost):
        delete_all(tree, QUEUE, lambda: False)
    assert tree.read([QUEUE]) != [None]
