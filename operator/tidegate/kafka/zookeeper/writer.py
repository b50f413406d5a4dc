"""One batch of quota writes: compare, commit, and find the result of each.

A batch is one transaction. When it is rejected, writes whose nodes have changed are dropped as
conflicts and the rest is sent again. When the connection breaks, the nodes are read back.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.errors import OutcomeUnknown, RetryLater, WriteRefused
from tidegate.kafka.ledger import record_to_bytes
from tidegate.kafka.quota_node import entity_path
from tidegate.kafka.quota_store import Claim, WriteOutcome, require_lease, unsafe_value
from tidegate.kafka.zookeeper.nodes import (
    CHECK_CHROOT,
    ROOT,
    ClusterNodes,
    EntityNodes,
    EntityReader,
    read_cluster,
)
from tidegate.kafka.zookeeper.tree import (
    MOST_REQUEST_BYTES,
    Acl,
    Check,
    Create,
    CreateSequential,
    Delete,
    Operation,
    Rejected,
    SetData,
    Znode,
    ZnodeTree,
)
from tidegate_logic.model import Entity, LedgerRecord, QuotaWrite
from tidegate_logic.reasons import Reason

# Creation of znodes with their missing parents, each with the access control list of its parent.
#
# A node that brokers may not read keeps them from starting, and one that everybody may read exposes
# SCRAM credentials. So an access list is never chosen here but copied from the nearest node that
# Kafka made. Our own tree takes that of `/config/users`, the strictest. Parents are made with null
# data, as Kafka does it.


_ACL_MODELS = {ROOT: "/config/users"}
_DELETE_ATTEMPTS = 5


def plan_creates(tree: ZnodeTree, wanted: Mapping[str, bytes | None]) -> list[Create]:
    """Creates for the `wanted` nodes and every missing ancestor, parents before children.

    The `wanted` nodes must not exist.
    """
    ancestors = {
        ancestor: None for path in wanted for ancestor in _ancestors(path) if ancestor not in wanted
    }
    found = tree.read(list(ancestors))
    missing = [path for path, node in zip(ancestors, found, strict=True) if node is None]
    made: dict[str, bytes | None] = {**dict.fromkeys(missing), **wanted}
    acls = acls_for(tree, made)
    return [
        Create(path, made[path], acls[path])
        for path in sorted(made, key=lambda path: (path.count("/"), path))
    ]


def delete_all(tree: ZnodeTree, root: str, may_write: Callable[[], bool]) -> None:
    """Delete the node with all below it, if it is there. Raises as `ZnodeTree.commit` does.

    `may_write` is the policy's Lease, asked right before each transaction; raises LeaseLost. Nodes
    of a session that ends in between go along. Rejected: someone makes nodes there again and
    again.
    """
    for left in reversed(range(_DELETE_ATTEMPTS)):
        paths = _with_descendants(tree, root)
        found = zip(paths, tree.read(paths), strict=True)
        deletes = [Delete(path, node.version) for path, node in reversed([*found]) if node]
        try:
            if deletes:
                require_lease(may_write)
                tree.commit(deletes)
            return
        except Rejected:
            if not left:
                raise


def _with_descendants(tree: ZnodeTree, root: str) -> list[str]:
    """The node and all below it, parents before children."""
    found: list[str] = []
    level = [root]
    while level:
        found += level
        below = zip(level, tree.children(level), strict=True)
        level = [f"{parent}/{child}" for parent, names in below for child in names or ()]
    return found


def acls_for(tree: ZnodeTree, made: Mapping[str, object]) -> dict[str, Acl]:
    """For each path that is to be made, the access list of its nearest ancestor that exists."""
    models = {path: _model(path, made) for path in made}
    sources = sorted(set(models.values()))
    found = dict(zip(sources, tree.acls(sources), strict=True))
    acls: dict[str, Acl] = {}
    for path, model in models.items():
        acl = found[model]
        if acl is None:
            raise WriteRefused(
                Reason.WRONG_CLUSTER,
                f"{model} does not exist at ZooKeeper {tree.address}, so there is no running Kafka "
                "below it and nothing is written.",
                advice=CHECK_CHROOT,
            )
        acls[path] = acl
    return acls


def _model(path: str, made: Mapping[str, object]) -> str:
    parent = _ACL_MODELS.get(path) or path.rpartition("/")[0]
    return _model(parent, made) if parent in made else parent


def _ancestors(path: str) -> list[str]:
    steps = path.split("/")[1:-1]
    return ["/" + "/".join(steps[: depth + 1]) for depth in range(len(steps))]


# One ZooKeeper transaction for a batch of quota writes.
#
# The quota node, the ledger node and the notification of an entity change together. Planning reads
# only parents and their access lists. Nodes of an entity that stay as they are get the same data
# again where the other one changes, if brokers know of the quota, or are notified of it now: that
# both were written by one transaction is what says so later. A quota node is deleted only when it
# is left empty and no other node of the batch needs it as a parent. Parents that become empty stay,
# as brokers before 3.5 leave them.


CHANGES_PATH = "/config/changes"
_NOTIFICATION_PREFIX = f"{CHANGES_PATH}/config_change_"
_OPERATION_OVERHEAD_BYTES = 120  # headers, lengths and one copied access list, generously


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node before and after a transaction; None = the node is not there then."""

    path: str
    before: Znode | None
    after: Znode | None

    @property
    def creates(self) -> bool:
        """Whether the node is created."""
        return self.before is None and self.after is not None

    @property
    def operation(self) -> Operation | None:
        """The change of a node that is there, or the check that it stays; None without a node."""
        if self.before is None:
            return None
        if self.after is None:
            return Delete(self.path, self.before.version)
        if self.after.version == self.before.version:
            return Check(self.path, self.before.version)
        return SetData(self.path, self.after.data or b"", self.before.version)

    def has_happened(self, now: Znode | None) -> bool | None:
        """Whether the node as it is now proves that the transaction was done; None = no proof."""
        if self.before == self.after:
            return None
        if self.after is None or now is None:
            return self.after is now
        return (now.data, now.version) == (self.after.data, self.after.version)


def node_change(path: str, before: Znode | None, data: bytes | None) -> NodeChange:
    """The change that leaves the node with `data`; None = without the node.

    The same data is no change.
    """
    if data is None or before is None:
        return NodeChange(
            path, before, None if data is None else Znode(data, version=0, child_count=0)
        )
    version = before.version if data == before.data else before.version + 1
    return NodeChange(path, before, Znode(data, version, before.child_count))


def written_again(change: NodeChange) -> NodeChange:
    """The same change; a node that would stay as it is gets its data once more."""
    before = change.before
    if before is None or before.data is None or change.after != before:
        return change
    return NodeChange(change.path, before, Znode(before.data, before.version + 1, 0))


@dataclass(frozen=True, slots=True)
class EntityChange:
    """The two nodes of one write, and whether brokers need a notification."""

    entity: Entity
    quota: NodeChange
    ledger: NodeChange
    notify: bool

    def has_happened(self, now: EntityNodes) -> bool:
        """Whether the nodes show that the write was done.

        The ledger decides, whose records differ at every write; where the ledger stays as it was,
        the quota does.
        """
        by_ledger = self.ledger.has_happened(now.ledger)
        return bool(self.quota.has_happened(now.quota)) if by_ledger is None else by_ledger


def entity_changes(
    writes: Sequence[QuotaWrite], entities: Mapping[Entity, EntityNodes]
) -> list[EntityChange]:
    """The change of each write to its nodes as they are now."""
    created_below = {
        entities[write.entity].paths[0] for write in writes if entities[write.entity].quota is None
    }
    return [_entity_change(write, entities[write.entity], created_below) for write in writes]


def _entity_change(write: QuotaWrite, now: EntityNodes, created_below: set[str]) -> EntityChange:
    path, ledger_path = now.paths
    content = now.content.changed(write.values)
    changes = content != now.content
    quota = NodeChange(path, now.quota, now.quota)
    if changes:
        needed = bool(content.settings) or _is_parent(path, now.quota, created_below)
        quota = node_change(path, now.quota, content.to_bytes() if needed else None)
    earlier = now.ledger.data if now.ledger else None
    record = None if write.ledger is None else record_to_bytes(write.ledger, earlier)
    ledger = node_change(ledger_path, now.ledger, record)
    notify = changes or (write.notifies and bool(now.content.quotas))
    is_known = now.ledger is not None and now.stored.notified
    if record is not None and (notify or (is_known and ledger.after != ledger.before)):
        quota, ledger = written_again(quota), written_again(ledger)
    return EntityChange(write.entity, quota, ledger, notify)


def _is_parent(path: str, node: Znode | None, created_below: set[str]) -> bool:
    return (node is not None and node.child_count > 0) or any(
        other.startswith(f"{path}/") for other in created_below
    )


def plan(
    tree: ZnodeTree, changes: Sequence[EntityChange], checks: Sequence[Check]
) -> list[Operation]:
    """The whole transaction: cluster checks, creates (parents first), changes, notifications."""
    nodes = [node for change in changes for node in (change.quota, change.ledger)]
    wanted = {
        node.path: node.after.data for node in nodes if node.creates and node.after is not None
    }
    creates = plan_creates(tree, wanted) if wanted else []
    changed = [node.operation for node in nodes]
    notified = notifications(tree, [change.entity for change in changes if change.notify])
    return [
        *checks,
        *creates,
        *(operation for operation in changed if operation is not None),
        *notified,
    ]


def notifications(tree: ZnodeTree, entities: Sequence[Entity]) -> list[Operation]:
    """One notification an entity, named by ZooKeeper's own count; no entities, no request."""
    if not entities:
        return []
    acl = acls_for(tree, {_NOTIFICATION_PREFIX: None})[_NOTIFICATION_PREFIX]
    return [
        CreateSequential(_NOTIFICATION_PREFIX, _notification(entity), acl) for entity in entities
    ]


def size_bytes(operations: Sequence[Operation]) -> int:
    """About how large the request is, on the high side."""
    return sum(
        _OPERATION_OVERHEAD_BYTES
        + len(operation.path)
        + len(getattr(operation, "data", b"") or b"")
        for operation in operations
    )


def _notification(entity: Entity) -> bytes:
    return json.dumps(
        {"version": 2, "entity_path": entity_path(entity)}, separators=(",", ":")
    ).encode()


_ATTEMPTS = 5


@dataclass
class BatchWriter:
    """Writes one batch to one tree; a new one for each batch.

    `outcomes` grows until every write has one.
    """

    tree: ZnodeTree
    reader: EntityReader
    expected_cluster_id: str
    owner: Claim | None = None
    may_write: Callable[[], bool] = lambda: True
    outcomes: dict[Entity, WriteOutcome] = field(default_factory=dict)

    def write(self, writes: Sequence[QuotaWrite]) -> None:
        """Give every write its outcome.

        Raises what `QuotaStore.write` promises; then nothing is known to be applied.
        """
        pending: Sequence[QuotaWrite] = writes
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.tree.sync()
            pending = self._attempt(pending)
            if not pending:
                return
        for write in pending:
            self._drop(
                write,
                Reason.CONFLICT,
                (
                    f"{write.entity}: other writers kept changing it at the same moment; the next "
                    "pass retries."
                ),
            )

    def _attempt(self, pending: Sequence[QuotaWrite]) -> Sequence[QuotaWrite]:
        """Try once; the writes that are left to be tried again."""
        cluster = read_cluster(self.tree)
        cluster.require_writable(
            self.expected_cluster_id,
            {record.policy_key for write in pending for record in _records(write)},
            self.owner,
        )
        entities = self.reader.read(write.entity for write in pending)
        sound = [write for write in pending if self._is_sound(write, entities[write.entity])]
        if not sound:
            return []
        changes = entity_changes(sound, entities)
        operations = plan(self.tree, changes, cluster.checks)
        if size_bytes(operations) > MOST_REQUEST_BYTES and len(sound) > 1:
            self.write(sound[: len(sound) // 2])
            return sound[len(sound) // 2 :]
        return sound if not self._commit(operations, changes) else []

    def _commit(self, operations: Sequence[Operation], changes: Sequence[EntityChange]) -> bool:
        """Whether the transaction was done; if so its writes are applied."""
        require_lease(self.may_write)
        try:
            self.tree.commit(operations)
        except Rejected:
            return False
        except OutcomeUnknown:
            if not self._has_happened(changes):
                return False
            self._notify_again([change.entity for change in changes if change.notify])
        for change in changes:
            self.outcomes[change.entity] = WriteOutcome(change.entity, applied=True)
        return True

    def _has_happened(self, changes: Sequence[EntityChange]) -> bool:
        """Read back after a lost connection.

        A transaction is all or nothing, so one node that proves it speaks for all.
        """
        try:
            self.tree.sync()
            entities = self.reader.read(change.entity for change in changes)
        except RetryLater as error:
            raise OutcomeUnknown(
                f"The connection to ZooKeeper {self.tree.address} broke while {len(changes)} "
                f"quotas were written, and reading them back failed: {error.what}",
                consequence="They are read again before anything else is written.",
                advice=error.advice,
            ) from error
        return any(change.has_happened(entities[change.entity]) for change in changes)

    def _notify_again(self, entities: Sequence[Entity]) -> None:
        for _ in range(_ATTEMPTS):
            cluster: ClusterNodes = read_cluster(self.tree)
            cluster.require_writable(self.expected_cluster_id, (), None)
            require_lease(self.may_write)
            try:
                self.tree.commit([*cluster.checks, *notifications(self.tree, entities)])
            except Rejected:
                continue
            return
        raise OutcomeUnknown(
            f"{len(entities)} quotas were written, but Kafka's controller keeps changing and its "
            f"brokers may not know yet."
        )

    def _is_sound(self, write: QuotaWrite, now: EntityNodes) -> bool:
        if now.problem is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, f"{write.entity}: {now.problem}")
        if not now.is_still(write.seen):
            return self._drop(
                write,
                Reason.CONFLICT,
                (
                    f"{write.entity}: another writer changed it since it was read; read again and "
                    "retried."
                ),
            )
        unsafe = unsafe_value(write, now.content.quotas)
        if unsafe is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, unsafe)
        return True

    def _drop(self, write: QuotaWrite, reason: Reason, message: str) -> bool:
        self.outcomes[write.entity] = WriteOutcome(
            write.entity, applied=False, reason=reason, message=message
        )
        return False


def _records(write: QuotaWrite) -> list[LedgerRecord]:
    return [record for record in (write.ledger, write.seen.ledger) if record is not None]
