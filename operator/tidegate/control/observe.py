"""Puts together what one pass knows: what was declared, which cluster answers, its leaders, and every quota in place.

Whatever fails becomes a hold with a reason and a sentence; nothing in here raises for a world that is away. It never
writes. What a broken tier may manage is left out of the observation: the core then knows nothing of it and keeps its
hands off it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from controller_logic.decision import Note
from controller_logic.model import Entity, Observation, Readings, StoredQuota, Tier, Topology, Usage
from controller_logic.reasons import Reason
from tidegate.control.cluster_check import Expected, brokers_objection, migration_words, objections
from tidegate.control.declared import Declared
from tidegate.control.held_since import HeldSince
from tidegate.control.kafka_cluster import KafkaCluster
from tidegate.control.quota_plugins import QuotaPlugins, plugin_words
from tidegate.errors import TidegateError
from tidegate.kafka.quota_store import ClusterFacts

# with these the quotas behind the address are none of our business, so they are not even read
_NOT_OUR_CLUSTER = frozenset({Reason.WRONG_CLUSTER, Reason.CLUSTER_ALREADY_MANAGED})

Missing = list[tuple[Reason, str]]
Rival = Callable[[ClusterFacts], str | None]  # a sentence that names the policy with the better right, or None
Quotas = dict[Entity, StoredQuota]


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation and the facts of the cluster behind it (None = it did not answer).

    `warnings` are what people must know of the cluster although it forbids no write.
    """

    observation: Observation
    facts: ClusterFacts | None
    warnings: tuple[Note, ...] = ()


class Observer:
    """Observes one policy's world, pass after pass; it remembers since when something is missing, and brokers' plugins."""

    def __init__(self, plugins: QuotaPlugins | None = None) -> None:
        self._held = HeldSince()
        self._plugins = plugins or QuotaPlugins()

    def observe(
        self,
        declared: Declared,
        cluster: KafkaCluster,
        *,
        now_seconds: float,
        readings: Readings | None = None,
        usage: Usage | None = None,
        rival: Rival = lambda _: None,
    ) -> Seen:
        """Everything that can be known now. `rival` is asked whether another policy has the better right to the cluster."""
        missing: Missing = list(_unlisted(declared))
        facts = _read_facts(declared, cluster, missing)
        if facts is not None and _is_ours(missing) and (objection := rival(facts)) is not None:
            missing.append((Reason.CLUSTER_ALREADY_MANAGED, objection))
        topology, quotas, client_quotas_exist = None, None, None
        if facts is not None and _is_ours(missing):
            topology = _read_topology(declared, cluster, facts, missing=missing)
        if facts is not None and _is_ours(missing):
            quotas = _read_quotas(declared, cluster, missing)
            client_quotas_exist = _client_quotas_exist(declared, cluster)
        holds = self._held.stamp(missing, now_seconds)
        tiers, overrides = _tiers(declared), declared.overrides or ()
        observation = Observation(
            now_seconds, declared.policy, tiers, topology, quotas, holds, readings, overrides, client_quotas_exist, usage
        )
        return Seen(observation, facts, tuple(self._warnings(facts, topology, cluster, now_seconds=now_seconds)))

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
        observation = Observation(now_seconds, declared.policy, _tiers(declared), None, None, holds, overrides=declared.overrides or ())
        return Seen(observation, None)

    def _warnings(
        self, facts: ClusterFacts | None, topology: Topology | None, cluster: KafkaCluster, *, now_seconds: float
    ) -> Iterator[Note]:
        if facts is not None and facts.migration_prepared and not facts.migration_running:
            yield Note(Reason.MIGRATION_PREPARED, migration_words(cluster.address))
        plugins = self._plugins.seen(cluster.topology, topology.brokers, now_seconds) if topology is not None else {}
        if plugins:
            yield Note(Reason.QUOTAS_IGNORED, plugin_words(plugins))


def _unlisted(declared: Declared) -> Iterator[tuple[Reason, str]]:
    lists = {"BusinessTiers": declared.tiers, "QuotaOverrides": declared.overrides}
    unknown = " and ".join(name for name, known in lists.items() if known is None)
    if unknown:
        yield Reason.LIST_INCOMPLETE, f"The {unknown} could not be listed in full; every quota stays as it is until they can"


def _tiers(declared: Declared) -> tuple[Tier, ...] | None:
    """What everybody is promised; nobody knows that while overrides may be missing."""
    return None if declared.overrides is None else declared.tiers


def _is_ours(missing: Missing) -> bool:
    return not any(reason in _NOT_OUR_CLUSTER for reason, _ in missing)


def _expected(declared: Declared, cluster: KafkaCluster) -> Expected:
    kafka = declared.spec.kafka
    return Expected(declared.policy.key, cluster.address, str(kafka.bootstrap_servers), kafka.cluster_id)


def _read_facts(declared: Declared, cluster: KafkaCluster, missing: Missing) -> ClusterFacts | None:
    try:
        facts = cluster.store.facts()
    except TidegateError as error:
        missing.append((error.reason, error.message))
        return None
    missing.extend(objections(facts, _expected(declared, cluster)))
    return facts


def _read_topology(declared: Declared, cluster: KafkaCluster, facts: ClusterFacts, *, missing: Missing) -> Topology | None:
    """The leaders, if they are of the cluster whose quotas they shall scale; giving back asks for no leaders, so not for whose."""
    try:
        topology = cluster.topology.read(declared.topics)
    except TidegateError as error:
        missing.append((error.reason, error.message))
        return None
    objection = brokers_objection(facts, topology.cluster_id, _expected(declared, cluster))
    if objection is None:
        return topology
    if not declared.policy.deleting:
        missing.append((Reason.WRONG_CLUSTER, objection))
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


def _client_quotas_exist(declared: Declared, cluster: KafkaCluster) -> bool | None:
    """Asked for metering only; where nobody answers nothing is held, since metering then stays as it is."""
    if not declared.policy.enable_metering:
        return None
    try:
        return cluster.store.limits_client_ids()
    except TidegateError:
        return None


def _hands_off(declared: Declared, quotas: Quotas) -> frozenset[Entity]:
    """What a broken tier names, and what is in the ledger without a readable owner: it may be that tier's."""
    if not declared.broken or declared.policy.deleting:
        return frozenset()
    named = frozenset(entity for tier in declared.broken for entity in tier.entities)
    ownerless = frozenset(entity for entity, quota in quotas.items() if quota.ledger is not None) - declared.entities
    return named | ownerless
