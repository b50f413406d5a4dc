"""The in-memory twin of the quota store: a small Kafka tree, the same rules, and faults on demand.

For tests of everything above the store. It keeps the store's promise by running the same code on another tree; the contract tests
hold both to it.
"""

import json
from collections.abc import Iterable, Mapping

from controller_logic.model import Entity, QuotaKey
from tidegate.errors import TidegateError
from tidegate.kafka.entity_names import config_path
from tidegate.kafka.faulty_tree import FaultyTree
from tidegate.kafka.memory_tree import OPEN_ACL, MemoryTree
from tidegate.kafka.new_nodes import plan_creates
from tidegate.kafka.quota_json import parse_quota
from tidegate.kafka.znodes import Create, Delete, SetData
from tidegate.kafka.zookeeper_store import ZooKeeperQuotaStore

_KAFKA_PATHS = (
    *("/brokers", "/brokers/ids", "/brokers/topics", "/cluster", "/config", "/config/brokers", "/config/changes"),
    *("/config/clients", "/config/topics", "/config/users"),
)


class MemoryQuotaStore(ZooKeeperQuotaStore):
    """A QuotaStore on a Kafka tree of its own. What is below `close` plays Kafka, another writer, or bad luck."""

    def __init__(self, cluster_id: str = "memory-cluster", topics: Iterable[str] = ()) -> None:
        self.tree = MemoryTree()
        self.tree.commit([Create(path, None, OPEN_ACL) for path in _KAFKA_PATHS])
        self.tree.commit([Create("/controller_epoch", b"1", OPEN_ACL), Create("/cluster/id", _cluster_id(cluster_id), OPEN_ACL)])
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
        """The entity paths that brokers were told of, oldest first."""
        (names,) = self.tree.children(["/config/changes"])
        nodes = self.tree.read([f"/config/changes/{name}" for name in sorted(names or ())])
        return tuple(json.loads(node.data or b"{}")["entity_path"] for node in nodes if node)

    def raw(self, entity: Entity) -> bytes | None:
        """The exact bytes of the entity's quota node; None where there is none."""
        (node,) = self.tree.read([config_path(entity)])
        return node.data if node else None

    def put_raw(self, entity: Entity, data: bytes) -> None:
        """Set the entity's quota node to `data`, whatever stood there."""
        self._put(config_path(entity), data)

    def put(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        """Change the entity's quota as Kafka's own tools do: read, change, write, without comparing."""
        (node,) = self.tree.read([config_path(entity)])
        content = parse_quota(node.data, child_count=node.child_count) if node else parse_quota(None)
        self._put(config_path(entity), content.changed(values).to_bytes())

    def remove(self, entity: Entity) -> None:
        """Delete the entity's quota node; nothing happens where there is none."""
        (node,) = self.tree.read([config_path(entity)])
        if node is not None:
            self.tree.commit([Delete(config_path(entity), node.version)])

    def elect_controller(self, kraft_epoch: int = -1) -> None:
        """Let Kafka elect another controller; a `kraft_epoch` above 0 is one of a migration to KRaft."""
        self.remove_controller()
        content = {"version": 2, "brokerid": 1, "timestamp": "0", "kraftControllerEpoch": kraft_epoch}
        (epoch,) = self.tree.read(["/controller_epoch"])
        version = epoch.version if epoch else 0
        self.tree.commit(
            [SetData("/controller_epoch", str(version + 2).encode(), version), Create("/controller", _json(content), OPEN_ACL)],
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
        """Let brokers come or go: everybody who watches is woken."""
        self.tree.wake_all()

    def fail_next(self, error: TidegateError) -> None:
        """Let the next request of the store raise `error` instead of being done; several queue up."""
        self.faults.fail_next(error)

    def lose_connection_before_commit(self) -> None:
        """Let the next transaction be lost on its way: not done, outcome unknown."""
        self.faults.lose_connection_before_commit()

    def lose_connection_after_commit(self) -> None:
        """Let the answer to the next transaction be lost: done, outcome unknown."""
        self.faults.lose_connection_after_commit()

    def _put(self, path: str, data: bytes) -> None:
        (node,) = self.tree.read([path])
        self.tree.commit(plan_creates(self.tree, {path: data}) if node is None else [SetData(path, data, node.version)])


def _cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
