"""One ZooKeeper transaction for a batch of quota writes: what it compares, what it makes and changes, and whom it tells.

Per entity: quota node, ledger node and notification change together. Planning reads only what creating needs (parents and their
access lists). A quota node is deleted only when it is left with nothing at all and nobody in the batch needs it as a parent; parents
that become empty stay, as brokers before 3.5 leave them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller_logic.model import Entity, QuotaWrite
from tidegate.kafka.ledger import ledger_path, record_to_bytes
from tidegate.kafka.names import config_path, entity_path
from tidegate.kafka.new_nodes import acls_for, plan_creates
from tidegate.kafka.zookeeper.nodes import EntitySight
from tidegate.kafka.zookeeper.tree import Check, CreateSequential, Delete, Operation, SetData, Znode, ZnodeTree

CHANGES_PATH = "/config/changes"
_NOTIFICATION_PREFIX = f"{CHANGES_PATH}/config_change_"
_OPERATION_OVERHEAD_BYTES = 120  # headers, lengths and one copied access list, generously


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What becomes of one node: `before` None = it was not there, `after` None = it is not there afterwards."""

    path: str
    before: Znode | None
    after: Znode | None

    @property
    def creates(self) -> bool:
        """Whether the node is made anew."""
        return self.before is None and self.after is not None

    @property
    def operation(self) -> Operation | None:
        """The change of a node that is there, or the demand that it stays as it was; None where there is no node."""
        if self.before is None:
            return None
        if self.after is None:
            return Delete(self.path, self.before.version)
        if self.after.version == self.before.version:
            return Check(self.path, self.before.version)
        return SetData(self.path, self.after.data or b"", self.before.version)

    def has_happened(self, now: Znode | None) -> bool | None:
        """Whether the node as it is now proves that the transaction was done; None = it proves nothing either way."""
        if self.before == self.after:
            return None
        if self.after is None or now is None:
            return self.after is now
        return (now.data, now.version) == (self.after.data, self.after.version)


def node_change(path: str, before: Znode | None, data: bytes | None) -> NodeChange:
    """The change that leaves the node with `data`; None = without the node. The same data is no change."""
    if data is None or before is None:
        return NodeChange(path, before, None if data is None else Znode(data, version=0, child_count=0))
    version = before.version if data == before.data else before.version + 1
    return NodeChange(path, before, Znode(data, version, before.child_count))


@dataclass(frozen=True, slots=True)
class EntityChange:
    """The two nodes of one write, and whether brokers must be told."""

    entity: Entity
    quota: NodeChange
    ledger: NodeChange
    notify: bool

    def has_happened(self, now: EntitySight) -> bool:
        """Judged by the ledger, whose records differ at every write, and by the quota where the ledger stays as it was."""
        by_ledger = self.ledger.has_happened(now.ledger)
        return bool(self.quota.has_happened(now.quota)) if by_ledger is None else by_ledger


def entity_changes(writes: Sequence[QuotaWrite], sights: Mapping[Entity, EntitySight]) -> list[EntityChange]:
    """What each write does to its nodes, given how they stand now."""
    created_below = {config_path(write.entity) for write in writes if sights[write.entity].quota is None}
    return [_entity_change(write, sights[write.entity], created_below) for write in writes]


def _entity_change(write: QuotaWrite, sight: EntitySight, created_below: set[str]) -> EntityChange:
    path = config_path(write.entity)
    content = sight.content.changed(write.values)
    changes = content != sight.content
    quota = NodeChange(path, sight.quota, sight.quota)
    if changes:
        needed = bool(content.settings) or _is_parent(path, sight.quota, created_below)
        quota = node_change(path, sight.quota, content.to_bytes() if needed else None)
    record = None if write.ledger is None else record_to_bytes(write.ledger)
    return EntityChange(write.entity, quota, node_change(ledger_path(write.entity), sight.ledger, record), notify=changes)


def _is_parent(path: str, node: Znode | None, created_below: set[str]) -> bool:
    return (node is not None and node.child_count > 0) or any(other.startswith(f"{path}/") for other in created_below)


def plan(tree: ZnodeTree, changes: Sequence[EntityChange], checks: Sequence[Check]) -> list[Operation]:
    """The whole transaction: comparisons of the cluster, creates with their parents first, changes, then notifications."""
    nodes = [node for change in changes for node in (change.quota, change.ledger)]
    wanted = {node.path: node.after.data for node in nodes if node.creates and node.after is not None}
    creates = plan_creates(tree, wanted) if wanted else []
    changed = [node.operation for node in nodes]
    told = notifications(tree, [change.entity for change in changes if change.notify])
    return [*checks, *creates, *(operation for operation in changed if operation is not None), *told]


def notifications(tree: ZnodeTree, entities: Sequence[Entity]) -> list[Operation]:
    """One notification an entity, named by ZooKeeper's own count; no entities, no request."""
    if not entities:
        return []
    acl = acls_for(tree, {_NOTIFICATION_PREFIX: None})[_NOTIFICATION_PREFIX]
    return [CreateSequential(_NOTIFICATION_PREFIX, _notification(entity), acl) for entity in entities]


def size_bytes(operations: Sequence[Operation]) -> int:
    """About how large the request is, on the high side."""
    return sum(_OPERATION_OVERHEAD_BYTES + len(operation.path) + len(getattr(operation, "data", b"") or b"") for operation in operations)


def _notification(entity: Entity) -> bytes:
    return json.dumps({"version": 2, "entity_path": entity_path(entity)}, separators=(",", ":")).encode()
