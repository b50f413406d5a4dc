"""Sending one batch of quota writes: compare, commit, and find out what became of each.

A batch is one transaction. When it is rejected, the writes that no longer rest on what stands are dropped as conflicts and the rest is
sent again; when the connection breaks, what happened is read back. Sources: kafka-quotas 1.8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller_logic.model import Entity, LedgerRecord, QuotaKey, QuotaWrite
from controller_logic.reasons import Reason
from tidegate.errors import OutcomeUnknown, RetryLater
from tidegate.kafka.cluster_sight import ClusterSight, see_cluster
from tidegate.kafka.quota_store import WriteOutcome
from tidegate.kafka.quota_values import is_ours, is_readable
from tidegate.kafka.transaction import EntityChange, entity_changes, notifications, plan, size_bytes
from tidegate.kafka.zookeeper.nodes import EntitySight, see_entities
from tidegate.kafka.zookeeper.tree import Operation, Rejected, ZnodeTree

_ATTEMPTS = 5
_MOST_BYTES = 900_000  # ZooKeeper closes the connection at 1,048,575


@dataclass
class BatchWriter:
    """Writes one batch to one tree; made anew for each batch. `outcomes` grows until every write has one."""

    tree: ZnodeTree
    expected_cluster_id: str
    outcomes: dict[Entity, WriteOutcome] = field(default_factory=dict)

    def write(self, writes: Sequence[QuotaWrite]) -> None:
        """Give every write its outcome. Raises what `QuotaStore.write` promises; then nothing is known to be applied."""
        pending: Sequence[QuotaWrite] = writes
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.tree.sync()
            pending = self._attempt(pending)
            if not pending:
                return
        for write in pending:
            self._drop(write, Reason.CONFLICT, f"{write.entity}: others kept writing at the same moment; the next pass tries again.")

    def _attempt(self, pending: Sequence[QuotaWrite]) -> Sequence[QuotaWrite]:
        """Try once; the writes that are left to be tried again."""
        cluster = see_cluster(self.tree)
        cluster.require_writable(self.expected_cluster_id, {record.policy_key for write in pending for record in _records(write)})
        sights = see_entities(self.tree, (write.entity for write in pending))
        sound = [write for write in pending if self._is_sound(write, sights[write.entity])]
        if not sound:
            return []
        changes = entity_changes(sound, sights)
        operations = plan(self.tree, changes, cluster.checks)
        if size_bytes(operations) > _MOST_BYTES and len(sound) > 1:
            self.write(sound[: len(sound) // 2])
            return sound[len(sound) // 2 :]
        return sound if not self._commit(operations, changes) else []

    def _commit(self, operations: Sequence[Operation], changes: Sequence[EntityChange]) -> bool:
        """Whether the transaction was done; if so its writes are applied."""
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
        """Read back after a lost connection. A transaction is all or nothing, so one node that proves it speaks for all."""
        try:
            self.tree.sync()
            sights = see_entities(self.tree, (change.entity for change in changes))
        except RetryLater as error:
            raise OutcomeUnknown(
                f"The connection to ZooKeeper {self.tree.address} broke while {len(changes)} quotas were written, and reading them back "
                f"failed: {error.message} They are read again before anything else is written."
            ) from error
        return any(change.has_happened(sights[change.entity]) for change in changes)

    def _notify_again(self, entities: Sequence[Entity]) -> None:
        for _ in range(_ATTEMPTS):
            cluster: ClusterSight = see_cluster(self.tree)
            cluster.require_writable(self.expected_cluster_id, ())
            try:
                self.tree.commit([*cluster.checks, *notifications(self.tree, entities)])
            except Rejected:
                continue
            return
        raise OutcomeUnknown(
            f"{len(entities)} quotas were written, but Kafka's controller keeps changing and its brokers may not know yet."
        )

    def _is_sound(self, write: QuotaWrite, sight: EntitySight) -> bool:
        if sight.problem is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, f"{write.entity}: {sight.problem}")
        if not sight.is_still(write.seen):
            return self._drop(
                write, Reason.CONFLICT, f"{write.entity}: somebody else changed it since it was read; read again and retried."
            )
        unsafe = _unsafe_value(write, sight.content.quotas)
        if unsafe is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, unsafe)
        return True

    def _drop(self, write: QuotaWrite, reason: Reason, message: str) -> bool:
        self.outcomes[write.entity] = WriteOutcome(write.entity, applied=False, reason=reason, message=message)
        return False


def _records(write: QuotaWrite) -> list[LedgerRecord]:
    return [record for record in (write.ledger, write.seen.ledger) if record is not None]


def _unsafe_value(write: QuotaWrite, present: Mapping[QuotaKey, str]) -> str | None:
    """Why a value must not reach a broker; None = all are fine. What stood there before us may come back as it was."""
    entries = write.seen.ledger.entries if write.seen.ledger else {}
    for key, value in write.values.items():
        if value is None or is_ours(key, value):
            continue
        earlier = {present.get(key), entries[key].before if key in entries else None}
        if value not in earlier or not is_readable(key, value):
            return (
                f"{write.entity}: {key.value} = {value!r} is not written, because brokers would refuse it or take it as unlimited. "
                "The entity stays as it is."
            )
    return None
