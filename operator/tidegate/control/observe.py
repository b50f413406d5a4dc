"""Puts together what one pass knows: what was declared, which cluster answers, its leaders, and every quota in place.

Whatever fails becomes a hold with a reason and a sentence; nothing in here raises for a world that is away. It never
writes. What a broken tier may manage is left out of the observation: the core then knows nothing of it and keeps its
hands off it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from controller_logic.model import Entity, Hold, Observation, StoredQuota, Topology
from controller_logic.reasons import Reason
from tidegate.control.cluster_check import Expected, objections
from tidegate.control.declared import Declared
from tidegate.control.held_since import HeldSince
from tidegate.control.kafka_cluster import KafkaCluster
from tidegate.errors import TidegateError
from tidegate.kafka.quota_store import ClusterFacts

# with these the quotas behind the address are none of our business, so they are not even read
_NOT_OUR_CLUSTER = frozenset({Reason.WRONG_CLUSTER, Reason.CLUSTER_ALREADY_MANAGED})

Missing = list[tuple[Reason, str]]
Rival = Callable[[ClusterFacts], str | None]  # a sentence that names the policy with the better right, or None
Quotas = dict[Entity, StoredQuota]


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation and the facts of the cluster behind it (None = it did not answer)."""

    observation: Observation
    facts: ClusterFacts | None

    @property
    def not_our_cluster(self) -> Hold | None:
        """Why the cluster that answers must not be touched by this policy, if it must not."""
        return next((hold for hold in self.observation.holds if hold.reason in _NOT_OUR_CLUSTER), None)


class Observer:
    """Observes one policy's world, pass after pass; between passes it remembers only since when something is missing."""

    def __init__(self) -> None:
        self._held = HeldSince()

    def observe(self, declared: Declared, cluster: KafkaCluster, *, now_seconds: float, rival: Rival = lambda _: None) -> Seen:
        """Everything that can be known now. `rival` is asked whether another policy has the better right to the cluster."""
        missing: Missing = []
        if declared.tiers is None:
            missing.append(
                (Reason.LIST_INCOMPLETE, "The BusinessTiers could not be listed in full; every quota stays as it is until they can")
            )
        facts = _read_facts(declared, cluster, missing)
        if facts is not None and (objection := rival(facts)) is not None:
            missing.append((Reason.CLUSTER_ALREADY_MANAGED, objection))
        topology, quotas = None, None
        if facts is not None and not any(reason in _NOT_OUR_CLUSTER for reason, _ in missing):
            topology = _read_topology(declared, cluster, missing)
            quotas = _read_quotas(declared, cluster, missing)
        holds = self._held.stamp(missing, now_seconds)
        return Seen(Observation(now_seconds, declared.policy, declared.tiers, topology, quotas, holds), facts)

    def look_again(self, seen: Seen, cluster: KafkaCluster, *, entities: Iterable[Entity], now_seconds: float) -> Seen:
        """The same observation with these entities read once more, so that a report tells what stands there after a write."""
        before = seen.observation
        missing: Missing = [(hold.reason, hold.message) for hold in before.holds]
        quotas: Quotas | None = None
        try:
            quotas = {**(before.quotas or {}), **cluster.store.read(entities)}
        except TidegateError as error:
            missing.append((error.reason, error.message))
        holds = self._held.stamp(missing, now_seconds)
        return replace(seen, observation=replace(before, now_seconds=now_seconds, quotas=quotas, holds=holds))

    def nothing_reached(self, declared: Declared, error: TidegateError, *, now_seconds: float) -> Seen:
        """What is known when there is not even a connection."""
        holds = self._held.stamp([(error.reason, error.message)], now_seconds)
        return Seen(Observation(now_seconds, declared.policy, declared.tiers, None, None, holds), None)


def _read_facts(declared: Declared, cluster: KafkaCluster, missing: Missing) -> ClusterFacts | None:
    try:
        facts = cluster.store.facts()
    except TidegateError as error:
        missing.append((error.reason, error.message))
        return None
    expected = Expected(declared.policy.key, cluster.address, declared.spec.kafka.cluster_id)
    missing.extend(objections(facts, expected))
    return facts


def _read_topology(declared: Declared, cluster: KafkaCluster, missing: Missing) -> Topology | None:
    try:
        return cluster.topology.read(declared.topics)
    except TidegateError as error:
        missing.append((error.reason, error.message))
        return None


def _read_quotas(declared: Declared, cluster: KafkaCluster, missing: Missing) -> Quotas | None:
    try:
        quotas = dict(cluster.store.read(declared.entities | cluster.store.ledger_entities()))
    except TidegateError as error:
        missing.append((error.reason, error.message))
        return None
    for entity in _hands_off(declared, quotas):
        quotas.pop(entity, None)
    return quotas


def _hands_off(declared: Declared, quotas: Quotas) -> frozenset[Entity]:
    """What a broken tier names, and what is in the ledger without a readable owner: it may be that tier's."""
    if not declared.broken or declared.policy.deleting:
        return frozenset()
    named = frozenset(entity for tier in declared.broken for entity in tier.entities)
    ownerless = frozenset(entity for entity, quota in quotas.items() if quota.ledger is not None) - declared.entities
    return named | ownerless
