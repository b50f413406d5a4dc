"""A tree of znodes in memory that compares, counts and refuses as ZooKeeper does; for tests.

It has no sessions, ephemeral nodes or permissions: access lists are stored, not enforced. Several threads may use it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidegate.kafka.znodes import (
    Acl,
    AclEntry,
    Check,
    Create,
    CreateSequential,
    Delete,
    Failure,
    Operation,
    Rejected,
    SetData,
    Znode,
)

OPEN_ACL: Acl = (AclEntry(31, "world", "anyone"),)


@dataclass(frozen=True, slots=True)
class _Node:
    data: bytes | None
    acl: Acl
    version: int = 0
    children_ever: int = 0
    children: frozenset[str] = frozenset()


class MemoryTree:
    """Nodes by path, `/` always there."""

    def __init__(self) -> None:
        self.address = "memory"
        self._nodes = {"/": _Node(None, OPEN_ACL)}
        self._wakes: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        nodes = map(self._nodes.get, paths)
        return [None if node is None else Znode(node.data, node.version, len(node.children)) for node in nodes]

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        return [None if node is None else sorted(node.children) for node in map(self._nodes.get, paths)]

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        return [None if node is None else node.acl for node in map(self._nodes.get, paths)]

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        with self._lock:
            # a copy of the references is cheap beside what the store does for each node; a rejected transaction leaves no trace
            nodes = dict(self._nodes)
            for operation in operations:
                _apply(nodes, operation)
            self._nodes = nodes

    def sync(self) -> None:
        """See ZnodeTree."""

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree; `wake_all` plays the event."""
        self._wakes.append(wake)

    def close(self) -> None:
        """See ZnodeTree; the nodes stay."""

    def wake_all(self) -> None:
        """Do what brokers that come or go do: wake everybody who watches."""
        for wake in self._wakes:
            wake()


def _apply(nodes: dict[str, _Node], operation: Operation) -> None:
    match operation:
        case Create(path, data, acl):
            _create(nodes, operation, path=path, node=_Node(data, acl))
        case CreateSequential(path, data, acl):
            parent = nodes.get(_parent_of(path))
            _create(nodes, operation, path=f"{path}{parent.children_ever if parent else 0:010d}", node=_Node(data, acl))
        case SetData(path, data, version):
            node = _at_version(nodes, operation, version)
            nodes[path] = replace(node, data=data, version=version + 1)
        case Delete(path, version):
            if _at_version(nodes, operation, version).children:
                raise Rejected(operation, Failure.NOT_EMPTY)
            del nodes[path]
            parent = nodes[_parent_of(path)]
            nodes[_parent_of(path)] = replace(parent, children=parent.children - {_name_of(path)})
        case Check(path, version):
            _at_version(nodes, operation, version)


def _create(nodes: dict[str, _Node], operation: Operation, *, path: str, node: _Node) -> None:
    parent = nodes.get(_parent_of(path))
    if parent is None:
        raise Rejected(operation, Failure.NO_NODE)
    if path in nodes:
        raise Rejected(operation, Failure.NODE_EXISTS)
    nodes[path] = node
    nodes[_parent_of(path)] = replace(parent, children=parent.children | {_name_of(path)}, children_ever=parent.children_ever + 1)


def _at_version(nodes: dict[str, _Node], operation: SetData | Delete | Check, version: int) -> _Node:
    node = nodes.get(operation.path)
    if node is None:
        raise Rejected(operation, Failure.NO_NODE)
    if node.version != version:
        raise Rejected(operation, Failure.BAD_VERSION)
    return node


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
