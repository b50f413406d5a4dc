"""The interface of a quota store, on ZooKeeper or on the admin protocol.

The contract tests in `tests/contract/` specify it in full. A store reads exact texts, and writes
exactly the given values or nothing. Contracts and tiers are not its concern.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.errors import LeaseLost
from tidegate.kafka.quota_node import is_ours, is_readable
from tidegate_logic.model import (
    Entity,
    LedgerRecord,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.reasons import Reason

REPLACE_CLAIM = "tidegate.io/replace-claim"  # the annotation that names the claim to be replaced


@dataclass(frozen=True, slots=True)
class Claim:
    """The one policy that writes this cluster's quotas, whatever Kubernetes cluster it is in.

    A policy has another uid in every Kubernetes cluster, and after it was made again. `holder` is
    the operator process that writes, since `since_seconds`. `epoch` counts these processes: each
    take-over, by another policy or by another replica, is one more; 0 = version 0.1 wrote the
    claim, which kept neither of the three. `former` are the
    uids that it was taken from, the last one last. `lease_namespace` is where the operator has its
    Leases: replicas with the same one write in turn; "" = it wrote no such name yet.
    """

    policy_key: str
    policy_uid: str
    holder: str = ""
    epoch: int = 0
    since_seconds: float = 0.0
    former: tuple[str, ...] = ()
    lease_namespace: str = ""

    def is_of(self, policy_key: str, policy_uid: str) -> bool:
        """Whether this policy has the claim."""
        return (self.policy_key, self.policy_uid) == (policy_key, policy_uid)

    def is_of_another_operator(self, policy_uid: str, lease_namespace: str) -> bool:
        """Whether this policy has the claim for an operator with Leases in another namespace.

        Nothing then keeps the two from writing at once. "" = the caller is not an operator.
        """
        return (
            self.policy_uid == policy_uid
            and ""
            not in (
                lease_namespace,
                self.lease_namespace,
            )
            and self.lease_namespace != lease_namespace
        )

    def may_be_replaced(self, policy_uid: str, replaces: str) -> bool:
        """Whether `replaces`, from the annotation of the policy of this uid, names this claim."""
        return replaces in (self.name_for(policy_uid), f"{self.policy_uid}@{self.epoch}")

    def name_for(self, policy_uid: str) -> str:
        """What the policy of this uid has to name to replace this claim.

        One that the claim was taken from names the epoch, too, and so does another operator of the
        same policy. Annotations stay, and two that name each other by the uid alone would take the
        claim from each other for ever.
        """
        is_by_epoch = policy_uid in (*self.former, self.policy_uid)
        return f"{self.policy_uid}@{self.epoch}" if is_by_epoch else self.policy_uid


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Where the ledger is, and how that place is doing.

    `topic` "" = it is in ZooKeeper. `risk` says why it will be lost, which forbids writing; "" =
    nothing is known. `is_whole` is False while a part of what was written cannot be read, because
    another producer keeps a transaction open. `partitions` of the topic after the first one are
    left alone. `released_epoch` is that of the claim that was released last, when nothing was left
    under it; a ledger of a later claim, or with 0 any one, that is empty may have been lost.
    """

    topic: str = ""
    risk: str = ""
    partitions: int = 1
    is_whole: bool = True
    released_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The state of the cluster that is checked before every write.

    `controller_version` None = Kafka has no controller now. `migration_prepared` = ZooKeeper
    carries the mark of a move to KRaft, which may or may not have begun; it forbids nothing.
    """

    cluster_id: str
    controller_version: int | None
    migration_running: bool
    claim: Claim | None
    migration_prepared: bool = False
    answered_by: str = "ZooKeeper and the brokers"
    ledger: LedgerFacts = LedgerFacts()

    @property
    def owner_policy_key(self) -> str | None:
        """The policy that claims the cluster, if any."""
        return self.claim.policy_key if self.claim else None


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

    Calls that change something raise LeaseLost where `only_while` forbids it.
    """

    def only_while(self, may_write: Callable[[], bool]) -> None:
        """Ask `may_write`, the policy's Lease, right before each request that changes something.

        Without this call everything may be written, as for a command that a person runs.
        """
        ...

    @property
    def address(self) -> str:
        """The servers that it asks, for messages."""
        ...

    def live_brokers(self) -> int | None:
        """How many brokers there are now; None if this is no Kafka's ZooKeeper."""
        ...

    @property
    def most_writes(self) -> int:
        """How many writes a batch may have."""
        ...

    def facts(self) -> ClusterFacts:
        """Cluster id, controller and claim, read now."""
        ...

    def claim(self, wanted: Claim, replaces: str = "", *, renews: bool = False) -> Claim:
        """Record that the policy of `wanted` owns the cluster's ledger; returns the claim in force.

        Its key, uid, holder and time count; where there is no claim, the first one's epoch comes
        after that of `wanted` and of the claim that was released last. A claim that this holder has
        already stays as it is; that of another holder of the same policy gets the next epoch, after
        which nothing of what that one decided is written any more. Version 0.1's becomes one of
        today. Another uid's is taken over only when `replaces` names it (see `Claim.name_for`).
        Raises WriteRefused if another policy has the claim, and Conflict if there is none to
        renew.
        """
        ...

    def release_claim(self, policy_key: str, policy_uid: str | None = None) -> None:
        """Remove our claim, if it is ours and no ledger record of ours is left, of throttles too.

        `policy_uid` None = whatever uid has it, for a person who restores everything. Raises
        Conflict while a change that an earlier writer sent may still arrive, and has to be found.
        """
        ...

    def mend_ledger(
        self,
        claim: Claim,
        records: Mapping[Entity, LedgerRecord],
        expected_cluster_id: str,
        *,
        throttles: bytes | None = None,
    ) -> None:
        """Put back the records that the ledger lacks, and `claim` as the last thing.

        For a ledger that was lost. Records that are there stay, and so does a record of replication
        throttles; `throttles` is put where there is none. No quota changes. Raises WriteRefused for
        another cluster and where another policy has the claim, and what a write raises; it may be
        called again then.
        """
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
        self, writes: Sequence[QuotaWrite], expected_cluster_id: str, owner: Claim | None = None
    ) -> tuple[WriteOutcome, ...]:
        """Send one batch and return the result of each write, in order.

        A batch has at most `most_writes` writes, each of another entity.

        Quota and ledger of one entity are changed together or not at all, as every reader of this
        store sees them. A write whose `seen` no longer holds comes back as not applied (CONFLICT)
        and does not stop the others of the batch. The cluster id, the absence of a migration, the
        controller and the claim are checked with each batch: the claim has to be of the policies of
        the batch, and of the uid and epoch of `owner`, the claim under which the batch was decided
        (epoch 0 = there may be none; None = a person's command, for whichever uid). After a lost
        connection the entities are read
        back: a write that is found to have happened counts as applied and its notification is sent
        once more. Raises OutcomeUnknown only when even the reading back failed, and ValueError for
        a batch that breaks the rules above, or with a write of kind Record that would change its
        quota.
        """
        ...

    def brokers_without(
        self, values: Mapping[Entity, Mapping[QuotaKey, str | None]]
    ) -> Mapping[str, tuple[Entity, ...]]:
        """The live brokers that do not show these values yet, with the entities in question.

        A broker that does not answer counts as showing none. Empty on ZooKeeper, where every
        broker answers from ZooKeeper.
        """
        ...

    def throttle_record(self) -> bytes | None:
        """What was kept last of replication throttles that were set; None = none are."""
        ...

    def keep_throttle_record(
        self,
        content: bytes | None,
        expected_cluster_id: str,
        owner: Claim | None = None,
        *,
        seen: bytes | None,
    ) -> None:
        """Keep this instead, beside the ledger, before throttles are changed; None removes it.

        `seen` is the record that it was decided on: raises Conflict where another one is there. The
        cluster and the claim are checked as with `write`. After it returned, every reader sees
        it; when it raises, it may be there or not.
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


def require_lease(may_write: Callable[[], bool]) -> None:
    """Raise LeaseLost unless the policy's Lease is ours."""
    if not may_write():
        raise LeaseLost


def require_batch(writes: Sequence[QuotaWrite], most_writes: int) -> None:
    """Raise ValueError for a batch that breaks the rules of `QuotaStore.write`."""
    entities = [write.entity for write in writes]
    if len(writes) > most_writes or len(set(entities)) != len(entities):
        raise ValueError(
            f"a batch is at most {most_writes} writes of different entities, not "
            f"{len(writes)} writes"
        )
    for write in writes:
        if write.kind is WriteKind.RECORD and any(
            text != write.seen.values.get(key) for key, text in write.values.items()
        ):
            raise ValueError(
                f"{write.entity}: a write of kind {write.kind.value} may change the ledger "
                f"only, not the quota"
            )


def unsafe_value(write: QuotaWrite, present: Mapping[QuotaKey, str]) -> str | None:
    """The reason why a value must not reach a broker; None = all are safe.

    The value from before us may be restored as it was.
    """
    entries = write.seen.ledger.entries if write.seen.ledger else {}
    for key, value in write.values.items():
        if value is None or is_ours(key, value):
            continue
        earlier = {present.get(key), entries[key].before if key in entries else None}
        if value not in earlier or not is_readable(key, value):
            return (
                f"{write.entity}: {key.value} = {value!r} is not written, because brokers would "
                "refuse it or take it as unlimited. The entity stays as it is."
            )
    return None
