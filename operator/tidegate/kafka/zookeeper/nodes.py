"""The nodes of an entity, its quota and its ledger record, read together; and the cluster's.

A node that cannot be read safely becomes a problem of its entity only. The other entities are not
affected.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tidegate.errors import ForeignContent, WriteRefused
from tidegate.kafka.claim import parse_claim, parse_release, require_writable
from tidegate.kafka.ledger import parse_record
from tidegate.kafka.quota_node import (
    EMPTY,
    QuotaContent,
    config_path,
    json_problem,
    ledger_node,
    parse_quota,
)
from tidegate.kafka.quota_store import Claim, ClusterFacts, LedgerFacts
from tidegate.kafka.zookeeper.tree import Check, Znode, ZnodeTree
from tidegate_logic.model import Entity, LedgerRecord, StoredQuota
from tidegate_logic.reasons import Reason

# Our own nodes are outside of `/config`, where Kafka reads every node as an entity: the claim, and
# the ledger with a node for each entity.

ROOT = "/tidegate"
LEDGER_ROOT = f"{ROOT}/ledger"
CLAIM_PATH = f"{ROOT}/claim"
THROTTLES_PATH = f"{ROOT}/throttles"  # the record of replication throttles that were set


def ledger_path(entity: Entity) -> str:
    """The entity's ledger node, below the chroot."""
    return f"{LEDGER_ROOT}/{ledger_node(entity)}"


# The state of the cluster, and whether it may be written at all.
#
# Every transaction repeats these checks. `/controller` is ephemeral, so each new controller starts
# at version 0 again, and comparing its version would miss an election between reading and writing.
# `/controller_epoch` counts elections and closes that gap.


CLUSTER_ID_PATH = "/cluster/id"
CONTROLLER_PATH = "/controller"
CONTROLLER_EPOCH_PATH = "/controller_epoch"
MIGRATION_PATH = "/migration"  # written by KRaft controllers that prepare or run a migration


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """The cluster's id and state, with the versions that a transaction must still find."""

    address: str
    cluster_id: str
    migration_running: bool
    migration_prepared: bool
    has_controller: bool
    claim: Claim | None
    checks: tuple[Check, ...]
    root: Znode | None  # of our own tree; its data says which claim was released last

    @property
    def facts(self) -> ClusterFacts:
        """The state as the control pass takes it."""
        versions = {check.path: check.version for check in self.checks}
        return ClusterFacts(
            cluster_id=self.cluster_id,
            controller_version=versions.get(CONTROLLER_PATH),
            migration_running=self.migration_running,
            claim=self.claim,
            migration_prepared=self.migration_prepared,
            ledger=LedgerFacts(released_epoch=parse_release(self.root.data if self.root else None)),
        )

    def require_writable(
        self, expected_cluster_id: str, policy_keys: Iterable[str], owner: Claim | None
    ) -> None:
        """See `claim.require_writable`."""
        require_writable(self.address, self.facts, expected_cluster_id, policy_keys, owner)


def read_cluster(tree: ZnodeTree) -> ClusterNodes:
    """Read the cluster's state now, in one request.

    Raises WriteRefused if there is no Kafka cluster.
    """
    paths = [CLUSTER_ID_PATH, CONTROLLER_PATH, CONTROLLER_EPOCH_PATH, CLAIM_PATH]
    *found, migration, root = tree.read([*paths, MIGRATION_PATH, ROOT])
    nodes = dict(zip(paths, found, strict=True))
    controller, claim = nodes[CONTROLLER_PATH], nodes[CLAIM_PATH]
    return ClusterNodes(
        address=tree.address,
        cluster_id=_cluster_id(tree.address, nodes[CLUSTER_ID_PATH]),
        migration_running=controller is not None and _is_kraft(controller),
        migration_prepared=migration is not None,
        has_controller=controller is not None,
        claim=None if claim is None else parse_claim(claim.data, f"{CLAIM_PATH} in ZooKeeper"),
        checks=tuple(Check(path, node.version) for path, node in nodes.items() if node is not None),
        root=root,
    )


CHECK_CHROOT = "Check the path after the host names (Kafka's zookeeper.connect has the same one)."


def _cluster_id(address: str, node: Znode | None) -> str:
    if node is None:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            f"There is no Kafka cluster at ZooKeeper {address}: {CLUSTER_ID_PATH} does not exist "
            "there. Nothing is written.",
            advice=CHECK_CHROOT,
        )
    cluster_id = _object(CLUSTER_ID_PATH, node).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ForeignContent(
            f"{CLUSTER_ID_PATH} at ZooKeeper {address} names no cluster id, so nothing is written. "
            "Inspect the node."
        )
    return cluster_id


def _is_kraft(controller: Znode) -> bool:
    """Whether a KRaft controller wrote the node: it puts its epoch there, counted from 1.

    ZooKeeper's controllers write -1 or nothing.
    """
    epoch = _object(CONTROLLER_PATH, controller).get("kraftControllerEpoch", -1)
    return not isinstance(epoch, int) or epoch > 0


def _object(path: str, node: Znode) -> dict[str, object]:
    try:
        content = json.loads((node.data or b"").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ForeignContent(
            f"{path} is not JSON as Kafka writes it ({json_problem(error)}), so nothing is "
            "written. Inspect the node."
        ) from error
    if not isinstance(content, dict):
        raise ForeignContent(
            f"{path} is not a JSON object as Kafka writes it, so nothing is written. Inspect the "
            "node."
        )
    return content


@dataclass(frozen=True)
class EntityNodes:
    """The two nodes of an entity with their parsed contents.

    `problem` None = both could be read. `paths` is empty for a name that no znode can have.
    """

    entity: Entity
    paths: tuple[str, ...] = ()
    quota: Znode | None = None
    ledger: Znode | None = None
    content: QuotaContent = EMPTY
    record: LedgerRecord | None = None
    problem: str | None = None

    @cached_property
    def stored(self) -> StoredQuota:
        """The entity as the control pass takes it."""
        return StoredQuota(
            entity=self.entity,
            values={} if self.problem else self.content.quotas,
            version=self.quota.version if self.quota else None,
            ledger=self.record,
            ledger_version=self.ledger.version if self.ledger else None,
            problem=self.problem,
            notified=self._is_notified,
        )

    @property
    def _is_notified(self) -> bool:
        """Whether brokers were notified of the quota as it stands, by us.

        ZooKeeper does not say who knows of a node, and a broker that is asked for a quota looks
        there too. But whatever of ours writes an entity's two nodes in one transaction notifies
        brokers in it as well. So both have that transaction's id as long as nobody else writes the
        quota.
        """
        if self.quota is None or not self.content.quotas:
            return True
        return self.ledger is not None and self.ledger.changed_by == self.quota.changed_by

    def is_still(self, seen: StoredQuota) -> bool:
        """Whether nothing has changed since `seen`, so that a write decided on it may go ahead.

        The contents count as well as the versions, which start at 0 when a node is created again.
        A node that holds nothing is the same as no node: it appears by itself when a child of the
        entity gets a quota.
        """
        same_version = self.stored.version == seen.version or not (
            self.content.settings or seen.values
        )
        same_ledger = (
            self.stored.ledger_version == seen.ledger_version and self.record == seen.ledger
        )
        return same_version and same_ledger and self.content.quotas == seen.values


class EntityReader:
    """Reads the nodes of entities of one store; nodes that have not changed are not parsed again.

    What one reading found is kept for the next one, however much it is. It belongs to one policy's
    store alone, so that no policy pushes another's entities out.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree
        self._known: Mapping[Entity, EntityNodes] = {}

    def read(self, entities: Iterable[Entity]) -> dict[Entity, EntityNodes]:
        """Read these entities, all in one bulk request.

        An entity whose name no znode can have gets a problem, too.
        """
        known = self._known
        before = {entity: known.get(entity) or _unread(entity) for entity in entities}
        nodes = iter(self._tree.read([path for one in before.values() for path in one.paths]))
        found = {
            entity: _entity_nodes(one, next(nodes), next(nodes)) if one.paths else one
            for entity, one in before.items()
        }
        # some of those known are a part of what a pass reads; a new one is a new pass, which may
        # not read some others any more
        self._known = {**known, **found} if found.keys() <= known.keys() else found
        return found


def _unread(entity: Entity) -> EntityNodes:
    try:
        return EntityNodes(entity, (config_path(entity), ledger_path(entity)))
    except ForeignContent as error:
        return EntityNodes(entity, problem=error.message)


def _is_same(node: Znode | None, before: Znode | None) -> bool:
    """Whether it was not even written again since, with what it had or as another node."""
    if node is None or before is None:
        return node is before
    return node == before and node.changed_by == before.changed_by


def _entity_nodes(before: EntityNodes, quota: Znode | None, ledger: Znode | None) -> EntityNodes:
    if _is_same(quota, before.quota) and _is_same(ledger, before.ledger):
        return before
    problems = []
    content, record = EMPTY, None
    config_path, ledger_path = before.paths
    try:
        content = parse_quota(quota.data, child_count=quota.child_count) if quota else content
    except ForeignContent as error:
        problems.append(
            f"{config_path} is left alone: {error.message}. Correct or delete the node."
        )
    try:
        record = parse_record(before.entity, ledger.data) if ledger else None
    except ForeignContent as error:
        problems.append(f"{ledger_path} is left alone: {error.message}")
    problem = " ".join(problems) or None
    return EntityNodes(before.entity, before.paths, quota, ledger, content, record, problem)
