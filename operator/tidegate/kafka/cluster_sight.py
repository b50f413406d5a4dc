"""The cluster as a whole, as ZooKeeper shows it, and whether it may be written at all.

The checks that go into every transaction come from here. `/controller` is ephemeral, so each new controller starts at version 0 again
and a comparison alone would miss an election between reading and writing; `/controller_epoch` counts elections and closes that gap.
Sources: kafka-quotas 1.8 and 2.1.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from controller_logic.reasons import Reason
from tidegate.errors import ForeignContent, RetryLater, WriteRefused
from tidegate.kafka.ledger import CLAIM_PATH, Claim, parse_claim
from tidegate.kafka.quota_store import ClusterFacts
from tidegate.kafka.zookeeper.tree import Check, Znode, ZnodeTree

CLUSTER_ID_PATH = "/cluster/id"
CONTROLLER_PATH = "/controller"
CONTROLLER_EPOCH_PATH = "/controller_epoch"
MIGRATION_PATH = "/migration"  # written by KRaft controllers that prepare or run a migration (kafka-quotas 1.8)


@dataclass(frozen=True, slots=True)
class ClusterSight:
    """Who and in what state the cluster is, with the versions that a transaction must still find."""

    address: str
    cluster_id: str
    migration_running: bool
    migration_prepared: bool
    has_controller: bool
    claim: Claim | None
    checks: tuple[Check, ...]

    @property
    def facts(self) -> ClusterFacts:
        """The same for the control pass."""
        versions = {check.path: check.version for check in self.checks}
        return ClusterFacts(
            cluster_id=self.cluster_id,
            controller_version=versions.get(CONTROLLER_PATH),
            migration_running=self.migration_running,
            owner_policy_key=self.claim.policy_key if self.claim else None,
            owner_policy_uid=self.claim.policy_uid if self.claim else None,
            migration_prepared=self.migration_prepared,
        )

    def require_writable(self, expected_cluster_id: str, policy_keys: Iterable[str]) -> None:
        """Raise unless this is the right cluster, in ZooKeeper mode, with a controller, and no other policy's."""
        if self.cluster_id != expected_cluster_id:
            raise WriteRefused(
                Reason.WRONG_CLUSTER,
                f"The Kafka cluster at ZooKeeper {self.address} is {self.cluster_id}, not {expected_cluster_id}. Nothing is written. "
                "Correct the address, or the policy's clusterId if the cluster was rebuilt on purpose.",
            )
        if self.migration_running:
            raise WriteRefused(
                Reason.MIGRATION_RUNNING,
                f"Kafka at ZooKeeper {self.address} is being migrated to KRaft: its controller would overwrite quotas that are written to "
                "ZooKeeper. Nothing is written. Finish the migration, then manage the cluster through the admin protocol.",
            )
        if not self.has_controller:
            raise RetryLater(
                Reason.CONTROLLER_ABSENT,
                f"Kafka at ZooKeeper {self.address} has no controller at the moment. Nothing is written; the next pass tries again.",
            )
        self._require_own_claim(policy_keys)

    def _require_own_claim(self, policy_keys: Iterable[str]) -> None:
        if self.claim is None:
            return
        others = sorted(set(policy_keys) - {self.claim.policy_key})
        if others:
            raise already_managed(self.claim, others[0])


def already_managed(claim: Claim, policy_key: str) -> WriteRefused:
    """The refusal for a policy that is not the one whose claim stands."""
    return WriteRefused(
        Reason.CLUSTER_ALREADY_MANAGED,
        f"This Kafka cluster is managed by policy {claim.policy_key} (uid {claim.policy_uid}), so nothing is written for {policy_key}. "
        f"Delete one of the two; if {claim.policy_key} is gone for good, `tidegate restore` gives its quotas back and frees the cluster.",
    )


def see_cluster(tree: ZnodeTree) -> ClusterSight:
    """Read the cluster's state now, in one request. Raises WriteRefused where there is no Kafka cluster."""
    paths = [CLUSTER_ID_PATH, CONTROLLER_PATH, CONTROLLER_EPOCH_PATH, CLAIM_PATH]
    *found, migration = tree.read([*paths, MIGRATION_PATH])
    nodes = dict(zip(paths, found, strict=True))
    controller, claim = nodes[CONTROLLER_PATH], nodes[CLAIM_PATH]
    return ClusterSight(
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
            f"There is no Kafka cluster at ZooKeeper {address}: {CLUSTER_ID_PATH} does not exist there. Nothing is written. "
            "Check the path after the host names (Kafka's zookeeper.connect has the same one).",
        )
    cluster_id = _object(CLUSTER_ID_PATH, node).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ForeignContent(f"{CLUSTER_ID_PATH} at ZooKeeper {address} names no cluster id, so nothing is written. Look at the node.")
    return cluster_id


def _is_kraft(controller: Znode) -> bool:
    """A KRaft controller writes its epoch, counted from 1, into the node; ZooKeeper's controllers write -1 or nothing."""
    epoch = _object(CONTROLLER_PATH, controller).get("kraftControllerEpoch", -1)
    return not isinstance(epoch, int) or epoch > 0


def _object(path: str, node: Znode) -> dict[str, object]:
    try:
        content = json.loads((node.data or b"").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ForeignContent(f"{path} is not JSON as Kafka writes it ({error}), so nothing is written. Look at the node.") from error
    if not isinstance(content, dict):
        raise ForeignContent(f"{path} is not a JSON object as Kafka writes it, so nothing is written. Look at the node.")
    return content
