"""The nodes of an entity, its quota and its ledger record, read together; and the cluster's.

A node that cannot be read safely becomes a problem of its entity only. The other entities are not
affected.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property

from controller_logic.model import Entity, LedgerRecord, StoredQuota
from controller_logic.reasons import Reason
from tidegate.errors import Conflict, ForeignContent, RetryLater, WriteRefused
from tidegate.kafka.quota_node import (
    EMPTY,
    QuotaContent,
    config_path,
    json_problem,
    parse_quota,
)
from tidegate.kafka.quota_store import REPLACE_CLAIM, Claim, ClusterFacts
from tidegate.kafka.zookeeper.ledger import (
    ROOT,
    compact,
    ledger_path,
    mapping,
    parse_record,
    seconds,
    text,
)
from tidegate.kafka.zookeeper.tree import Check, Znode, ZnodeTree

# The claim: the policy in charge of the cluster, beside the ledger.


CLAIM_PATH = f"{ROOT}/claim"
_FIRST_CLAIM_FORMAT = 1  # version 0.1's, with the key and the uid only
_CLAIM_FORMAT_WITHOUT_LEASES = 2
_CLAIM_FORMAT = 3


def claim_to_bytes(claim: Claim) -> bytes:
    """The claim as compact JSON."""
    return compact({"version": _CLAIM_FORMAT, **asdict(claim)})


def parse_claim(data: bytes | None) -> Claim:
    """Read the claim. Raises ForeignContent when it is not one of ours in a format we know."""
    try:
        root = mapping(json.loads((data or b"").decode("utf-8")))
        if root.get("version") == _FIRST_CLAIM_FORMAT:
            _require_fields(root, {"version", "policy_key", "policy_uid"})
            return Claim(text(root["policy_key"]), text(root["policy_uid"]))
        names = {"version", *(field.name for field in fields(Claim))}
        if root.get("version") == _CLAIM_FORMAT_WITHOUT_LEASES:
            names.remove("lease_namespace")
        else:
            _require_format(root, _CLAIM_FORMAT)
        _require_fields(root, names)
        return Claim(
            text(root["policy_key"]),
            text(root["policy_uid"]),
            text(root["holder"]),
            _count(root["epoch"]),
            seconds(root["since_seconds"]),
            tuple(map(text, _list(root["former"]))),
            text(root.get("lease_namespace", "")),
        )
    except (ValueError, RecursionError) as error:
        raise ForeignContent(
            f"{CLAIM_PATH} in ZooKeeper cannot be read ({json_problem(error)}), so it is not known "
            "which policy manages this cluster and nothing is written. If a newer Tidegate wrote "
            "it, use that version; otherwise look at the node and delete it."
        ) from error


def _require_format(root: Mapping[str, object], known: int) -> None:
    if root.get("version") != known:
        raise ValueError(f"its format is {root.get('version')!r}, only {known} is known")


def _require_fields(root: Mapping[str, object], names: set[str]) -> None:
    if set(root) != names:
        raise ValueError(f"its fields are {sorted(root)}")


def _list(content: object) -> list[object]:
    if not isinstance(content, list):
        raise ValueError("a list was expected")
    return content


def _count(content: object) -> int:
    if isinstance(content, bool) or not isinstance(content, int) or content < 1:
        raise ValueError(f"a count was expected, not {content!r}")
    return content


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
        )

    def require_writable(
        self, expected_cluster_id: str, policy_keys: Iterable[str], owner: Claim | None
    ) -> None:
        """Raise unless this is the right cluster, on ZooKeeper, with a controller.

        If the cluster is claimed, only the policy of the claim may be in `policy_keys`, and be the
        `owner`: see QuotaStore.write.
        """
        if self.cluster_id != expected_cluster_id:
            raise WriteRefused(
                Reason.WRONG_CLUSTER,
                f"{wrong_cluster(self.address, self.cluster_id, expected_cluster_id)}. Nothing is "
                "written. Correct the address, or the policy's clusterId if the cluster was "
                "rebuilt on purpose.",
            )
        if self.migration_running:
            raise WriteRefused(
                Reason.MIGRATION_RUNNING,
                f"{migration_running(self.address)}. Nothing is written. Finish the migration, "
                "then manage the cluster through the admin protocol.",
            )
        if not self.has_controller:
            raise RetryLater(
                Reason.CONTROLLER_ABSENT,
                f"{no_controller(self.address)}. Nothing is written; the next pass tries again.",
            )
        if self.claim is not None:
            others = sorted(set(policy_keys) - {self.claim.policy_key})
            if others:
                raise already_managed(self.claim, others[0])
        if owner is not None:
            _require_claim_of(owner, self.claim)


def _require_claim_of(owner: Claim, now: Claim | None) -> None:
    if now is not None and not now.is_of(owner.policy_key, owner.policy_uid):
        raise refused_to(owner, now)
    if owner.epoch and (now is None or now.epoch != owner.epoch):
        raise Conflict(
            f"The claim of policy {owner.policy_key} on this Kafka cluster was released, or taken "
            "anew, since this pass began; nothing is written before the next one."
        )


def refused_to(policy: Claim, claim: Claim) -> WriteRefused:
    """The refusal for the policy of a claim that is not in force, but `claim` is."""
    if claim.policy_key != policy.policy_key:
        return already_managed(claim, policy.policy_key)
    return WriteRefused(Reason.CLAIMED_ELSEWHERE, f"{claimed_elsewhere(claim, policy.policy_uid)}.")


def already_managed(claim: Claim, policy_key: str) -> WriteRefused:
    """The refusal for a policy when another one has claimed the cluster."""
    return WriteRefused(
        Reason.CLUSTER_ALREADY_MANAGED,
        f"Policy {claim.policy_key} (uid {claim.policy_uid}) manages this Kafka cluster already, "
        f"so nothing is written for {policy_key}. "
        f"{two_policies_advice(claim.policy_key)}.",
    )


def claimed_elsewhere(claim: Claim, policy_uid: str) -> str:
    """The message for the policy of `policy_uid`, whose name is that of the claim's.

    With the same uid it is another operator's: see Claim.is_of_another_operator.
    """
    namespace, _, name = claim.policy_key.rpartition("/")
    since = datetime.fromtimestamp(int(claim.since_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    who = (
        f"by operator {claim.holder} since {since} (epoch {claim.epoch})"
        if claim.epoch
        else "by an operator of version 0.1, which did not say since when"
    )
    how = "was taken over" if policy_uid in claim.former else "is held"
    whose = (
        f"for this policy {who}, with its Leases in namespace {claim.lease_namespace}; this "
        "operator has its own elsewhere and changes nothing. Let only one of the two watch this "
        "policy"
        if policy_uid == claim.policy_uid
        else f"for another policy {claim.policy_key}, with uid {claim.policy_uid}, {who}; this one "
        f"has uid {policy_uid} and changes nothing. Let only one of the two name this cluster"
    )
    return (
        f"The claim on this Kafka cluster {how} {whose}; if the other is gone for good, replace "
        f"it: kubectl annotate bbp {name} -n {namespace} "
        f"{REPLACE_CLAIM}={claim.name_for(policy_uid)} --overwrite"
    )


def wrong_cluster(address: str, found: str, expected: str) -> str:
    """The message that another cluster answers than was expected."""
    return f"The cluster at {address} has id {found}, not {expected}"


def migration_running(address: str) -> str:
    """The message that a migration runs, whose controller would overwrite our writes."""
    return (
        f"The cluster at {address} is being migrated to KRaft, so its ZooKeeper nodes must not "
        f"be written"
    )


def no_controller(address: str) -> str:
    """The message that no controller is elected."""
    return f"The cluster at {address} has no controller at the moment"


def two_policies_advice(owner_policy_key: str) -> str:
    """The advice for two policies that name one cluster."""
    return (
        f"Delete one of the two; if {owner_policy_key} is gone for good, `tidegate restore` "
        f"gives its quotas and its claim back"
    )


def read_cluster(tree: ZnodeTree) -> ClusterNodes:
    """Read the cluster's state now, in one request.

    Raises WriteRefused where there is no Kafka cluster.
    """
    paths = [CLUSTER_ID_PATH, CONTROLLER_PATH, CONTROLLER_EPOCH_PATH, CLAIM_PATH]
    *found, migration = tree.read([*paths, MIGRATION_PATH])
    nodes = dict(zip(paths, found, strict=True))
    controller, claim = nodes[CONTROLLER_PATH], nodes[CLAIM_PATH]
    return ClusterNodes(
        address=tree.address,
        cluster_id=_cluster_id(tree.address, nodes[CLUSTER_ID_PATH]),
        migration_running=controller is not None and _is_kraft(controller),
        migration_prepared=migration is not None,
        has_controller=controller is not None,
        claim=None if claim is None else parse_claim(claim.data),
        checks=tuple(Check(path, node.version) for path, node in nodes.items() if node is not None),
    )


def _cluster_id(address: str, node: Znode | None) -> str:
    if node is None:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            f"There is no Kafka cluster at ZooKeeper {address}: {CLUSTER_ID_PATH} does not exist "
            "there. Nothing is written. Check the path after the host names (Kafka's "
            "zookeeper.connect has the same one).",
        )
    cluster_id = _object(CLUSTER_ID_PATH, node).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ForeignContent(
            f"{CLUSTER_ID_PATH} at ZooKeeper {address} names no cluster id, so nothing is "
            f"written. Look at the node."
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
            f"written. Look at the node."
        ) from error
    if not isinstance(content, dict):
        raise ForeignContent(
            f"{path} is not a JSON object as Kafka writes it, so nothing is written. Look at the "
            f"node."
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
        )

    def is_still(self, seen: StoredQuota) -> bool:
        """Whether nothing has changed since `seen`, so that a write decided on it may go ahead.

        The contents count as well as the versions, which start at 0 again when a node is made anew.
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


def _entity_nodes(before: EntityNodes, quota: Znode | None, ledger: Znode | None) -> EntityNodes:
    if quota == before.quota and ledger == before.ledger:
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
