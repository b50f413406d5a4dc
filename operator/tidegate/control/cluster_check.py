"""Is the cluster that answers the one that may be written? One answer from its facts, before anything is decided.

The store checks the same once more inside each transaction; this is what people read in the conditions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from controller_logic.reasons import Reason
from tidegate.kafka.quota_store import ClusterFacts

_NOTHING_CHANGES = "every quota stays as it is"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a policy says of its cluster. `cluster_id` None = the policy does not pin one."""

    policy_key: str
    address: str
    bootstrap_servers: str
    cluster_id: str | None


def brokers_objection(facts: ClusterFacts, brokers_cluster_id: str | None, expected: Expected) -> str | None:
    """Why leaders of these brokers must not scale quotas of this ZooKeeper; None = both are of one cluster, or nobody can tell."""
    if brokers_cluster_id in (None, facts.cluster_id):
        return None
    return (
        f"The brokers at {expected.bootstrap_servers} are of cluster {brokers_cluster_id}, but ZooKeeper {expected.address} is of cluster "
        f"{facts.cluster_id}; {_NOTHING_CHANGES} until spec.kafka.bootstrapServers or spec.kafka.zookeeper.connect is corrected"
    )


def migration_words(address: str) -> str:
    """The warning for a cluster that carries the mark of a migration which is not known to run."""
    return (
        f"ZooKeeper {address} has a node /migration: a move to KRaft is prepared or was broken off. Quotas are written until it begins; "
        "from then on they need quotaStore AdminApi, which comes in a later version"
    )


def objections(facts: ClusterFacts, expected: Expected) -> Iterator[tuple[Reason, str]]:
    """Each reason why this cluster must not be written now, with a sentence for people; none = all is well."""
    if expected.cluster_id is not None and facts.cluster_id != expected.cluster_id:
        yield (
            Reason.WRONG_CLUSTER,
            f"The cluster at {expected.address} has id {facts.cluster_id}, but spec.kafka.clusterId says {expected.cluster_id}; "
            f"{_NOTHING_CHANGES} until the address or the id is corrected",
        )
    if facts.migration_running:
        yield (
            Reason.MIGRATION_RUNNING,
            f"The cluster at {expected.address} is being migrated to KRaft, so its ZooKeeper nodes must not be written; "
            f"{_NOTHING_CHANGES}. Quotas of a KRaft cluster need quotaStore AdminApi, which comes in a later version",
        )
    if facts.owner_policy_key is not None and facts.owner_policy_key != expected.policy_key:
        yield (
            Reason.CLUSTER_ALREADY_MANAGED,
            f"Policy {facts.owner_policy_key} manages cluster {facts.cluster_id} already; this policy changes nothing. "
            f"Delete one of the two; if {facts.owner_policy_key} is gone, `tidegate restore` gives its quotas and its claim back",
        )
    if facts.controller_version is None:
        yield (
            Reason.CONTROLLER_ABSENT,
            f"The cluster at {expected.address} has no controller at the moment; {_NOTHING_CHANGES} until it has one",
        )
