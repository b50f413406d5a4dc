"""Which of several policies has the right to a Kafka cluster, before any of them has claimed it: the older object.

The claim in ZooKeeper decides in the end, also between replicas; this keeps a younger policy from claiming first.
"""

from collections.abc import Iterable

from tidegate.control.translate import age_key, object_key
from tidegate.kafka.quota_store import ClusterFacts
from tidegate.kube.api import JsonObject


def older_rival(policy: JsonObject, facts: ClusterFacts, policies: Iterable[JsonObject]) -> str | None:
    """A sentence that names the older policy on the same cluster, by the cluster id in its status; None when ours is first."""
    if facts.owner_policy_key == object_key(policy):
        return None
    for other in sorted(policies, key=age_key):
        if age_key(other) >= age_key(policy):
            return None
        same_cluster = (other.get("status") or {}).get("clusterId") == facts.cluster_id
        if same_cluster and not other["metadata"].get("deletionTimestamp"):
            return (
                f"Policy {object_key(other)} is older and is for cluster {facts.cluster_id} too; this policy changes nothing. "
                "Delete one of the two, or point one at another cluster"
            )
    return None
