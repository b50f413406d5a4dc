"""The interface of a quota store, which the ZooKeeper store and its in-memory twin implement.

The contract tests in `tests/contract/` specify it in full. A store reads exact texts, and writes
exactly the given values or nothing. Contracts and tiers are not its concern.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controller_logic.model import Entity, QuotaWrite, StoredQuota
from controller_logic.reasons import Reason

MAX_WRITES_PER_BATCH = 200  # three operations each stay far below ZooKeeper's 1 MiB request


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The state of the cluster that is checked before every write.

    `controller_version` None = Kafka has no controller now. `migration_prepared` = ZooKeeper
    carries the mark of a move to KRaft, which may or may not have begun; it forbids nothing.
    """

    cluster_id: str
    controller_version: int | None
    migration_running: bool
    owner_policy_key: str | None
    owner_policy_uid: str | None
    migration_prepared: bool = False


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The result of one write: `applied`, or why not (`reason`, `message`).

    The next pass settles a conflict.
    """

    entity: Entity
    applied: bool
    reason: Reason | None = None
    message: str = ""


class QuotaStore(Protocol):
    """Reads and writes quotas of one Kafka cluster.

    Every call is bounded in time and raises tidegate.errors.

    Unreachable when the store does not answer; Unauthorized when it refuses us; WriteRefused when
    the cluster as a whole must not be written (another cluster id, KRaft migration, another
    policy's claim).
    """

    def facts(self) -> ClusterFacts:
        """Cluster id, controller and claim, read now."""
        ...

    def claim(self, policy_key: str, policy_uid: str) -> None:
        """Record that this policy owns the cluster's ledger.

        Raises WriteRefused if another policy has claimed the cluster.
        """
        ...

    def release_claim(self, policy_key: str) -> None:
        """Remove our claim, if it is ours and no ledger record of ours is left."""
        ...

    def ledger_entities(self) -> frozenset[Entity]:
        """Every entity that has a ledger record, of whichever policy."""
        ...

    def read(self, entities: Iterable[Entity]) -> Mapping[Entity, StoredQuota]:
        """Read these entities with their ledger records.

        The answer has exactly these keys, or the call raises.
        """
        ...

    def read_everything(self) -> Mapping[Entity, StoredQuota]:
        """Every entity that has a quota node or a ledger record.

        For `explain`, `plan` and `restore`.
        """
        ...

    def unreadable_nodes(self) -> Sequence[str]:
        """Paths of quota nodes and ledger nodes whose names are those of no entity.

        No client's quota is there.
        """
        ...

    def has_client_id_quotas(self) -> bool:
        """Whether any client id, without a user, has a byte rate.

        One whose node cannot be read counts as having one.
        """
        ...

    def write(
        self, writes: Sequence[QuotaWrite], expected_cluster_id: str
    ) -> tuple[WriteOutcome, ...]:
        """Send one batch and return the result of each write, in order.

        A batch has at most MAX_WRITES_PER_BATCH writes, each of another entity.

        Quota, ledger and notification of one entity are changed together or not at all. A write
        whose `seen` versions no longer hold comes back as not applied (CONFLICT) and does not stop
        the others of the batch. The cluster id, the absence of a migration and the controller's
        version are checked in the same transaction. After a lost connection the entities are read
        back: a write that is found to have happened counts as applied and its notification is sent
        once more. Raises OutcomeUnknown only when even the reading back failed, and ValueError for
        a batch that breaks the rules above, or with a write of kind Record that would change its
        quota.
        """
        ...

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when brokers come or go or the controller changes.

        It is called from any thread and must not block.
        """
        ...

    def topic_names(self) -> frozenset[str]:
        """Names of all topics, for members that name topics by prefix."""
        ...

    def close(self) -> None:
        """Give the session back; further calls raise Unreachable. Calling it twice is harmless."""
        ...
