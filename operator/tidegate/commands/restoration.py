"""Giving back what the ledger shows as ours, with no Kubernetes: the operator's own decision for a policy that is being deleted.

Each policy found in the ledger is treated as one that is being deleted with `Restore`, so the mute guard, the order and the
respect for other writers are those of the operator. The write budget does not apply: somebody asked for this, and quotas
go in batches of up to 200 entities.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller_logic.decide import decide
from controller_logic.decision import Decision, Memory
from controller_logic.model import Default, DeletionPolicy, Entity, Observation, Policy, QuotaWindow, StoredQuota, Topology
from tidegate.control.reconcile import Applied, apply_writes
from tidegate.kafka.quota_store import QuotaStore

NO_BUDGET = 10**9
NO_MUTE_BOUND_SECONDS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which ledger records to give back; None = all. `policy` is `namespace/name`, or a name in whatever namespace."""

    user: str | None = None
    client_id: str | None = None
    policy: str | None = None

    @property
    def everything(self) -> bool:
        return self.user is None and self.client_id is None

    def covers(self, stored: StoredQuota) -> bool:
        """Whether this entity has a ledger record that is asked for; `<default>` names Kafka's default entity."""
        record = stored.ledger
        return record is not None and self.covers_policy(record.policy_key) and self._covers_entity(stored.entity)

    def covers_policy(self, policy_key: str) -> bool:
        return self.policy is None or self.policy in (policy_key, policy_key.partition("/")[2])

    def _covers_entity(self, entity: Entity) -> bool:
        wanted = ((self.user, entity.user), (self.client_id, entity.client_id))
        return all(name is None or name == (part.value if isinstance(part, Default) else part) for name, part in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How gently to lower: the longest mute of a client, and the brokers' quota window."""

    max_mute_seconds: int
    window: QuotaWindow


@dataclass(frozen=True, slots=True)
class Giveback:
    """What is to be given back for one policy: what stands in the store, and the operator's decision on it."""

    policy_key: str
    quotas: Mapping[Entity, StoredQuota]
    decision: Decision

    @property
    def longest_mute_seconds(self) -> float:
        """The longest time for which this round's writes are predicted to silence a client."""
        return max((write.predicted_mute_seconds for write in self.decision.writes), default=0.0)


@dataclass(slots=True)
class Restoration:
    """Reads, decides and (when told) writes, one round at a time; what a round needs to know of the one before stands in the ledger."""

    store: QuotaStore
    selection: Selection
    guard: Guard
    now_seconds: Callable[[], float]

    def look(self) -> tuple[Giveback, ...]:
        """What stands in the ledger now and what the next round would write, policy by policy; writes nothing."""
        selected = [stored for stored in self.store.read_everything().values() if self.selection.covers(stored)]
        return tuple(self._giveback(policy_key, quotas) for policy_key, quotas in _by_policy(selected))

    def write(self, giveback: Giveback, *, cluster_id: str) -> Applied:
        """Send the round's writes. What could not be written is found again by the next look."""
        return apply_writes(giveback.decision.writes, self.store, cluster_id=cluster_id, may_write=lambda: True)

    def _giveback(self, policy_key: str, quotas: Mapping[Entity, StoredQuota]) -> Giveback:
        now_seconds = self.now_seconds()
        observation = Observation(
            now_seconds=now_seconds,
            policy=_deleting_policy(policy_key, quotas, self.guard),
            tiers=(),
            topology=Topology(now_seconds, frozenset(), {}),
            quotas=quotas,
        )
        decision, _ = decide(observation, Memory())
        return Giveback(policy_key, quotas, decision)


def _deleting_policy(policy_key: str, quotas: Mapping[Entity, StoredQuota], guard: Guard) -> Policy:
    uid = next((stored.ledger.policy_uid for stored in quotas.values() if stored.ledger), "")
    return Policy(
        key=policy_key,
        uid=uid,
        deleting=True,
        deletion=DeletionPolicy.RESTORE,
        window=guard.window,
        max_mute_seconds=guard.max_mute_seconds,
        notifications_per_quarter_hour=NO_BUDGET,
    )


def _by_policy(selected: Iterable[StoredQuota]) -> list[tuple[str, dict[Entity, StoredQuota]]]:
    policies: dict[str, dict[Entity, StoredQuota]] = {}
    for stored in selected:
        if stored.ledger is not None:
            policies.setdefault(stored.ledger.policy_key, {})[stored.entity] = stored
    return sorted(policies.items())
