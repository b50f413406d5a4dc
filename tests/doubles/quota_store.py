"""An in-memory double of the quota store, with a small Kafka tree and faults on demand.

For tests of everything above the store. It runs the same code on another tree; the contract tests
run on both.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.errors import OutcomeUnknown, TidegateError, Unreachable
from tidegate.kafka.quota_node import config_path, parse_quota
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import (
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
    ZnodeTree,
)
from tidegate.kafka.zookeeper.writer import plan_creates
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.reasons import Reason

# A tree of znodes in memory that compares, counts and refuses as ZooKeeper does. It has no
# sessions, ephemeral nodes or permissions: access lists are stored, not enforced. Several threads
# may use it.


_ANY_VERSION = -1  # ZooKeeper compares nothing then
OPEN_ACL: Acl = (AclEntry(31, "world", "anyone"),)


@dataclass(frozen=True, slots=True)
class _Node:
    data: bytes | None
    acl: Acl
    version: int = 0
    changed_by: int = 0
    children_ever: int = 0
    children: frozenset[str] = frozenset()


class MemoryTree:
    """Nodes by path, `/` always there."""

    def __init__(self) -> None:
        self.address = "memory"
        self._nodes = {"/": _Node(None, OPEN_ACL)}
        self._transactions = 0
        self._wakes: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        nodes = map(self._nodes.get, paths)
        return [
            None
            if node is None
            else Znode(node.data, node.version, len(node.children), node.changed_by)
            for node in nodes
        ]

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        return [
            None if node is None else sorted(node.children) for node in map(self._nodes.get, paths)
        ]

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        return [None if node is None else node.acl for node in map(self._nodes.get, paths)]

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        with self._lock:
            # a copy of the references is cheap beside what the store does for each node; a rejected
            # transaction leaves no trace
            nodes, number = dict(self._nodes), self._transactions + 1
            for operation in operations:
                _apply(nodes, operation, number)
            self._nodes, self._transactions = nodes, number

    def sync(self) -> None:
        """See ZnodeTree."""

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree; `wake_all` plays the event."""
        self._wakes.append(wake)

    def close(self) -> None:
        """See ZnodeTree; the nodes stay."""

    def wake_all(self) -> None:
        """Do what brokers that come or go do: wake every watcher."""
        for wake in self._wakes:
            wake()


def _apply(nodes: dict[str, _Node], operation: Operation, number: int) -> None:
    match operation:
        case Create(path, data, acl):
            _create(nodes, operation, path=path, node=_Node(data, acl, changed_by=number))
        case CreateSequential(path, data, acl):
            parent = nodes.get(_parent_of(path))
            _create(
                nodes,
                operation,
                path=f"{path}{parent.children_ever if parent else 0:010d}",
                node=_Node(data, acl, changed_by=number),
            )
        case SetData(path, data, version):
            node = _at_version(nodes, operation, version)
            nodes[path] = replace(node, data=data, version=node.version + 1, changed_by=number)
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
    nodes[_parent_of(path)] = replace(
        parent, children=parent.children | {_name_of(path)}, children_ever=parent.children_ever + 1
    )


def _at_version(
    nodes: dict[str, _Node], operation: SetData | Delete | Check, version: int
) -> _Node:
    node = nodes.get(operation.path)
    if node is None:
        raise Rejected(operation, Failure.NO_NODE)
    if version not in (node.version, _ANY_VERSION):
        raise Rejected(operation, Failure.BAD_VERSION)
    return node


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


# A tree of znodes with faults on demand, around any other tree: for tests of broken connections.


@dataclass
class FaultyTree:
    """Passes everything on to `inner`, unless a fault was ordered. `commits` counts the
    transactions that were done.
    """

    inner: ZnodeTree
    commits: int = 0
    _faults: list[TidegateError] = field(default_factory=list)
    _lost_before: int = 0
    _lost_after: int = 0
    _closed: bool = False
    _before: list[Callable[[], object]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """See ZnodeTree."""
        return self.inner.address

    def fail_next(self, error: TidegateError) -> None:
        """Let the next request raise `error` instead of being done; several queue up."""
        self._faults.append(error)

    def before_next_commit(self, action: Callable[[], object]) -> None:
        """Let others do this just before the next transaction."""
        self._before.append(action)

    def lose_connection_before_commit(self) -> None:
        """Let the next transaction be lost on its way: not done, outcome unknown."""
        self._lost_before += 1

    def lose_connection_after_commit(self) -> None:
        """Let the next transaction's answer be lost: done, outcome unknown."""
        self._lost_after += 1

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.children(paths)

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.acls(paths)

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        self._answer()
        while self._before:
            self._before.pop(0)()
        if self._lost_before:
            self._lost_before -= 1
            raise OutcomeUnknown("the test cut the connection before the transaction")
        self.inner.commit(operations)
        self.commits += 1
        if self._lost_after:
            self._lost_after -= 1
            raise OutcomeUnknown("the test cut the connection after the transaction")

    def sync(self) -> None:
        """See ZnodeTree."""
        self._answer()
        self.inner.sync()

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree."""
        self._answer()
        self.inner.watch(wake)

    def close(self) -> None:
        """See ZnodeTree."""
        self._closed = True
        self.inner.close()

    def _answer(self) -> None:
        if self._closed:
            raise Unreachable(
                Reason.ZOOKEEPER_UNREACHABLE, "The session with ZooKeeper was closed."
            )
        if self._faults:
            raise self._faults.pop(0)


_KAFKA_PATHS = (
    *(
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
        "/cluster",
        "/config",
        "/config/brokers",
        "/config/changes",
    ),
    *("/config/clients", "/config/topics", "/config/users"),
)


class MemoryQuotaStore(ZooKeeperQuotaStore):
    """A QuotaStore on a Kafka tree of its own. The methods below `close` play Kafka, another
    writer, or a fault.
    """

    def __init__(self, cluster_id: str = "memory-cluster", topics: Iterable[str] = ()) -> None:
        self.tree = MemoryTree()
        self.tree.commit([Create(path, None, OPEN_ACL) for path in _KAFKA_PATHS])
        self.tree.commit(
            [
                Create("/controller_epoch", b"1", OPEN_ACL),
                Create("/cluster/id", _cluster_id(cluster_id), OPEN_ACL),
            ]
        )
        self.tree.commit([Create(f"/brokers/topics/{topic}", None, OPEN_ACL) for topic in topics])
        self.elect_controller()
        self.faults = FaultyTree(self.tree)
        super().__init__(self.faults)

    @property
    def transactions(self) -> int:
        """How many transactions this store has done; those of the other writer are not counted."""
        return self.faults.commits

    @property
    def notifications(self) -> tuple[str, ...]:
        """The entity paths of which brokers were notified, oldest first."""
        (names,) = self.tree.children(["/config/changes"])
        nodes = self.tree.read([f"/config/changes/{name}" for name in sorted(names or ())])
        return tuple(json.loads(node.data or b"{}")["entity_path"] for node in nodes if node)

    def raw(self, entity: Entity) -> bytes | None:
        """The exact bytes of the entity's quota node; None where there is none."""
        (node,) = self.tree.read([config_path(entity)])
        return node.data if node else None

    def put_raw(self, entity: Entity, data: bytes) -> None:
        """Set the entity's quota node to `data`, whatever it was."""
        self._put(config_path(entity), data)

    def put(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        """Change the entity's quota as Kafka's own tools do: read, change, write, without
        comparing.
        """
        (node,) = self.tree.read([config_path(entity)])
        content = (
            parse_quota(node.data, child_count=node.child_count) if node else parse_quota(None)
        )
        self._put(config_path(entity), content.changed(values).to_bytes())

    def remove(self, entity: Entity) -> None:
        """Delete the entity's quota node; nothing happens where there is none."""
        (node,) = self.tree.read([config_path(entity)])
        if node is not None:
            self.tree.commit([Delete(config_path(entity), node.version)])

    def elect_controller(self, kraft_epoch: int = -1) -> None:
        """Let Kafka elect another controller; a `kraft_epoch` above 0 is one of a migration to
        KRaft.
        """
        self.remove_controller()
        content = {
            "version": 2,
            "brokerid": 1,
            "timestamp": "0",
            "kraftControllerEpoch": kraft_epoch,
        }
        (epoch,) = self.tree.read(["/controller_epoch"])
        version = epoch.version if epoch else 0
        self.tree.commit(
            [
                SetData("/controller_epoch", str(version + 2).encode(), version),
                Create("/controller", _json(content), OPEN_ACL),
            ],
        )
        self.tree.wake_all()

    def remove_controller(self) -> None:
        """Let Kafka have no controller."""
        (node,) = self.tree.read(["/controller"])
        if node is not None:
            self.tree.commit([Delete("/controller", node.version)])

    def prepare_migration(self) -> None:
        """Let a KRaft controller leave its mark, as it does before it takes over."""
        self.tree.commit([Create("/migration", b"{}", OPEN_ACL)])

    def wake(self) -> None:
        """Let brokers come or go: every watcher is woken."""
        self.tree.wake_all()

    def fail_next(self, error: TidegateError) -> None:
        """Let the next request of the store raise `error` instead of being done; several queue
        up.
        """
        self.faults.fail_next(error)

    def lose_connection_before_commit(self) -> None:
        """Let the next transaction be lost on its way: not done, outcome unknown."""
        self.faults.lose_connection_before_commit()

    def lose_connection_after_commit(self) -> None:
        """Let the answer to the next transaction be lost: done, outcome unknown."""
        self.faults.lose_connection_after_commit()

    def _put(self, path: str, data: bytes) -> None:
        (node,) = self.tree.read([path])
        self.tree.commit(
            plan_creates(self.tree, {path: data})
            if node is None
            else [SetData(path, data, node.version)]
        )


def _cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
