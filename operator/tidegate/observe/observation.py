"""Makes the observation of a pass: declared objects, the cluster's facts, leaders and quotas.

A failure becomes a hold with a reason and a sentence; nothing in here raises for an unreachable
system, and nothing writes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol

from tidegate.errors import Incomplete, RetryLater, TidegateError, WriteRefused
from tidegate.kafka.claim import (
    claimed_elsewhere,
    migration_running,
    no_controller,
    two_policies_advice,
    wrong_cluster,
)
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.quota_store import Claim, ClusterFacts, LedgerFacts, QuotaStore
from tidegate.observe.broker_settings import (
    BrokerSettings,
    FollowerReads,
    SettingsSource,
    plugin_words,
    plugins_of,
)
from tidegate.observe.declared import Declared
from tidegate.observe.held_entities import Frozen, take_out_doubtful, unknown_tiers
from tidegate.observe.share_groups import ShareGroupSource, ShareGroupWatch
from tidegate_logic.model import (
    Entity,
    Note,
    Observation,
    Policy,
    Readings,
    ReplicationOnNics,
    StoredQuota,
    Tier,
    Topology,
    Usage,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.moves import ClusterReplication
from tidegate_logic.replication.throttles import ConfigChange, Configs, Resource
from tidegate_logic.throttle.schedules import in_force

# --- may the cluster that answers be written? -----------------------------------------------------
#
# The store checks the same once more inside each transaction; this check is for the conditions.


@dataclass(frozen=True, slots=True)
class Expected:
    """The cluster as the policy declares it. `cluster_id` None = the policy does not pin one.

    `policy_uid` "" = a policy in a file, which has none.
    """

    policy_key: str
    address: str
    bootstrap_servers: str
    cluster_id: str | None
    policy_uid: str = ""
    replaces_claim: str = ""
    lease_namespace: str = ""

    def is_claimed_elsewhere(self, claim: Claim) -> bool:
        """Whether the claim is another policy's of the same name, or another operator's.

        Not where it is to be replaced.
        """
        return (
            claim.policy_key == self.policy_key
            and (
                self.policy_uid not in ("", claim.policy_uid)
                or claim.is_of_another_operator(self.policy_uid, self.lease_namespace)
            )
            and not claim.may_be_replaced(self.policy_uid, self.replaces_claim)
        )


def brokers_objection(
    facts: ClusterFacts, brokers_cluster_id: str | None, expected: Expected
) -> WriteRefused | None:
    """Why leaders of these brokers must not scale quotas of this ZooKeeper.

    None = both are of one cluster, or that of the brokers is not known.
    """
    if brokers_cluster_id in (None, facts.cluster_id):
        return None
    return WriteRefused(
        Reason.WRONG_CLUSTER,
        f"The brokers at {expected.bootstrap_servers} belong to cluster {brokers_cluster_id}, but "
        f"ZooKeeper {expected.address} is of cluster {facts.cluster_id}",
        consequence="every quota stays as it is until spec.kafka.bootstrapServers or "
        "spec.kafka.zookeeper.connect is corrected",
    )


def migration_words(address: str) -> str:
    """The warning for a cluster that carries the mark of a migration which is not known to run."""
    return (
        f"ZooKeeper {address} has a node /migration: a move to KRaft is prepared or was broken "
        "off. Quotas are written until it begins. When it is over, the ledger moves to a topic "
        "by itself, with quotaStore Auto and as long as ZooKeeper answers"
    )


def partition_words(ledger: LedgerFacts) -> str:
    """The warning for a topic of a ledger that someone has added partitions to."""
    return (
        f"the ledger's topic {ledger.topic} has {ledger.partitions} partitions. The ledger is in "
        "partition 0, and is read and written there. Do not name another topic"
    )


def objections(facts: ClusterFacts, expected: Expected) -> Iterator[TidegateError]:
    """Each reason why this cluster must not be written now; none = all is well."""
    if expected.cluster_id is not None and facts.cluster_id != expected.cluster_id:
        yield WriteRefused(
            Reason.WRONG_CLUSTER,
            f"{wrong_cluster(expected.address, facts.cluster_id, expected.cluster_id)} as "
            "spec.kafka.clusterId says",
            consequence="every quota stays as it is until the address or the id is corrected",
        )
    if facts.migration_running:
        yield WriteRefused(
            Reason.MIGRATION_RUNNING,
            migration_running(expected.address),
            consequence="every quota stays as it is",
            advice="With quotaStore Auto the ledger of an enforcing policy moves to a topic by "
            "itself, a minute after the controllers have left ZooKeeper; let it run until then",
        )
    if facts.owner_policy_key is not None and facts.owner_policy_key != expected.policy_key:
        yield WriteRefused(
            Reason.CLUSTER_ALREADY_MANAGED,
            f"Policy {facts.owner_policy_key} manages cluster {facts.cluster_id} already; this "
            "policy changes nothing",
            advice=two_policies_advice(facts.owner_policy_key),
        )
    if facts.claim is not None and expected.is_claimed_elsewhere(facts.claim):
        words = claimed_elsewhere(facts.claim, expected.policy_uid)
        yield WriteRefused(Reason.CLAIMED_ELSEWHERE, words)
    if facts.ledger.risk:
        yield WriteRefused(Reason.LEDGER_AT_RISK, facts.ledger.risk)
    if facts.controller_version is None:
        yield RetryLater(
            Reason.CONTROLLER_ABSENT,
            no_controller(expected.address),
            consequence="every quota stays as it is until it has one",
        )


# --- one Kafka cluster: the store of quotas and the source of leaders, opened and closed together -


class ReplicationSource(Protocol):
    """Replication of one Kafka cluster; `kafka.replication` is the real one."""

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        """What is moving now; raises a TidegateError where the cluster did not answer in full."""
        ...

    def has_changed(self) -> bool:
        """Whether other partitions are reassigned than at the last look; asks one broker."""
        ...

    def configs(self, resources: Collection[Resource]) -> Configs:
        """The throttles of these; a broker that did not answer is left out."""
        ...

    def scan(self) -> Configs:
        """The throttles of every topic and every live broker that has one."""
        ...

    def tiering(self) -> Mapping[int, Tiering]:
        """What each live broker says of its tiered storage; one that did not answer is left out."""
        ...

    def everywhere(self, resources: Collection[Resource]) -> Mapping[int, Configs | None]:
        """Each live broker's throttles of these topics and of itself; None = it did not answer."""
        ...

    def alter(
        self, changes: Sequence[ConfigChange], may_write: Callable[[], bool] = lambda: True
    ) -> Mapping[Resource, str]:
        """Make these changes; returns why not, for each resource not changed for sure.

        Raises LeaseLost if `may_write` says so, asked right before each request.
        """
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class TopologySource(SettingsSource, Protocol):
    """Brokers, leaders. Raises Unreachable without an answer, Incomplete when one is not whole."""

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        """Live brokers, and leaders of the topics of these names and prefixes (`*`), read now.

        Its `selection` is not known; topics have their in-sync replicas only if wanted.
        """
        ...

    def close(self) -> None:
        """Give the connection back. Calling it twice is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """The open connections of one cluster. `address` appears in messages.

    `ledger_move` is for one that may move from ZooKeeper to KRaft.
    """

    address: str
    store: QuotaStore
    topology: TopologySource
    ledger_move: LedgerMove | None = None
    replication: ReplicationSource | None = None
    share_groups: ShareGroupSource | None = None

    def close(self) -> None:
        if self.replication is not None:
            self.replication.close()
        self.topology.close()
        self.store.close()


# with these the quotas behind the address are none of our business, so they are not even read
_NOT_OUR_CLUSTER = frozenset(
    {Reason.WRONG_CLUSTER, Reason.CLUSTER_ALREADY_MANAGED, Reason.CLAIMED_ELSEWHERE}
)

Missing = list[TidegateError]
# a sentence that names the policy with the better right, or None
Rival = Callable[[ClusterFacts], str | None]
Quotas = dict[Entity, StoredQuota]


@dataclass(frozen=True, slots=True)
class LedgerLoss:
    """The ledger is not the one that the policy's status remembers. `message` ends without a stop.

    It is confirmed when it was looked for more than once.
    """

    message: str
    is_confirmed: bool

    @property
    def reason(self) -> Reason:
        """LedgerLost, or LedgerNotFound until then."""
        return Reason.LEDGER_LOST if self.is_confirmed else Reason.LEDGER_NOT_FOUND


# asked in each observation, with the quotas that it read (None = they could not be read)
LedgerLook = Callable[[ClusterFacts, Quotas | None, QuotaStore], LedgerLoss | None]


def ledger_unknown(_: ClusterFacts, __: Quotas | None, ___: QuotaStore) -> None:
    """The look of who remembers no ledger."""


@dataclass(frozen=True, slots=True)
class ObservationResult:
    """One observation and the facts of the cluster behind it (None = it did not answer).

    `warnings` are about the cluster and forbid no write. `reads`: from followers or not (None = the
    brokers are not known).
    """

    observation: Observation
    facts: ClusterFacts | None
    warnings: tuple[Note, ...] = ()
    ledger_loss: LedgerLoss | None = None
    reads: FollowerReads | None = None


class Observer:
    """Makes the observations of one policy; remembers the brokers' settings and share groups.

    `words` = how they say why something is missing: as the operator, or as a command.
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        words: Callable[[TidegateError], str] = attrgetter("message"),
    ) -> None:
        self._settings = settings or BrokerSettings()
        self._words = words
        self._share_groups = ShareGroupWatch(beside=self._settings.beside)

    def observe(
        self,
        declared: Declared,
        cluster: KafkaCluster,
        *,
        now_seconds: float,
        readings: Readings | None = None,
        usage: Usage | None = None,
        usage_awaited: bool = False,
        rates_awaited: bool = False,
        rival: Rival = lambda _: None,
        ledger: LedgerLook = ledger_unknown,
        replication: ReplicationOnNics | None = None,
    ) -> ObservationResult:
        """Read all inputs. `rival` is asked who else has the better right to the cluster.

        `ledger` is asked whether the ledger is still the one that is remembered. A policy that is
        deleted is not held by one that is lost for good: it restores what is still known.

        `replication` is what the last pass found of it on NICs.
        """
        missing: Missing = list(_unlisted(declared))
        facts = _read_facts(declared, cluster, missing)
        if facts is not None and _is_ours(missing) and (objection := rival(facts)) is not None:
            missing.append(WriteRefused(Reason.CLUSTER_ALREADY_MANAGED, objection))
        topology, quotas, client_quotas_exist = None, None, None
        frozen: Frozen = {}
        with_in_sync = self._settings.has_selectors
        if facts is not None and _is_ours(missing):
            topology = _read_topology(
                declared, cluster, facts, missing=missing, with_in_sync=with_in_sync
            )
        if facts is not None and _is_ours(missing):
            quotas = _read_quotas(declared, cluster, missing)
            client_quotas_exist = _client_quotas_exist(declared, cluster)
        loss = None
        if facts is not None and _is_ours(missing):
            loss = _look_at_ledger(ledger, facts, quotas, cluster=cluster, missing=missing)
            if loss is not None and not (loss.is_confirmed and declared.policy.deleting):
                missing.append(WriteRefused(loss.reason, loss.message))
        if quotas is not None:
            frozen = take_out_doubtful(
                declared, quotas, usage_awaited=usage_awaited, rates_awaited=rates_awaited
            )
        tiers, overrides = _tiers(declared), declared.overrides or ()
        brokers = topology.brokers if topology is not None else frozenset()
        settings = self._settings.seen(cluster.topology, brokers, now_seconds) if brokers else {}
        reads = FollowerReads.of(brokers, settings) if brokers else None
        if reads is not None and reads.selectors and not with_in_sync and facts is not None:
            # it has just become known
            topology = _read_topology(declared, cluster, facts, missing=missing, with_in_sync=True)
        if reads is not None and topology is not None:
            topology = replace(topology, selection=reads.selection)
        observation = Observation(
            now_seconds,
            in_force(declared.policy, tiers, now_seconds),
            tiers,
            topology,
            quotas,
            self._said(missing),
            readings,
            overrides,
            client_quotas_exist,
            usage,
            frozen,
            declared.strimzi,
            replication or {},
            self._share_groups.seen(cluster.share_groups, tiers, now_seconds) if brokers else None,
            declared.budgets or (),
        )
        return ObservationResult(
            observation,
            facts,
            (
                *_warnings(facts, cluster, plugins_of(settings)),
                *long_mutes(declared.policy),
                *unknown_tiers(declared),
                *([Note(loss.reason, loss.message)] if loss is not None else []),
            ),
            loss,
            reads,
        )

    def reread(
        self,
        seen: ObservationResult,
        cluster: KafkaCluster,
        *,
        entities: Iterable[Entity],
        now_seconds: float,
    ) -> ObservationResult:
        """The same with these entities read once more, so that a report has what is in Kafka."""
        before, missing = seen.observation, seen.observation.missing
        quotas: Quotas | None = None
        try:
            quotas = {**(before.quotas or {}), **cluster.store.read(entities)}
        except TidegateError as error:
            missing += self._said([error])
        return replace(
            seen,
            observation=replace(before, now_seconds=now_seconds, quotas=quotas, missing=missing),
        )

    def nothing_reached(
        self, declared: Declared, error: TidegateError, *, now_seconds: float
    ) -> ObservationResult:
        """The observation without a connection."""
        observation = Observation(
            now_seconds,
            in_force(declared.policy, _tiers(declared), now_seconds),
            _tiers(declared),
            None,
            None,
            self._said([error]),
            overrides=declared.overrides or (),
            strimzi=declared.strimzi,
            share_groups=None,
        )
        return ObservationResult(observation, None)

    def _said(self, missing: Missing) -> tuple[tuple[Reason, str], ...]:
        return tuple((error.reason, self._words(error)) for error in missing)


def _warnings(
    facts: ClusterFacts | None, cluster: KafkaCluster, plugins: Mapping[int, str]
) -> Iterator[Note]:
    if facts is not None and facts.migration_prepared and not facts.migration_running:
        yield Note(Reason.MIGRATION_PREPARED, migration_words(cluster.address))
    if facts is not None and facts.ledger.partitions > 1:
        yield Note(Reason.LEDGER_AT_RISK, partition_words(facts.ledger))
    if plugins:
        yield Note(Reason.QUOTAS_IGNORED, plugin_words(plugins))


# Java's request.timeout.ms is 30 s, librdkafka's socket.timeout.ms 60 s; the rest is the request
_LONGEST_MUTE_SECONDS = 25


def long_mutes(policy: Policy) -> Iterator[Note]:
    """The warning that clients may give up on requests before their throttle delay ends."""
    if policy.max_mute_seconds > _LONGEST_MUTE_SECONDS:
        yield Note(
            Reason.MUTE_OUTLASTS_REQUESTS,
            f"escalation.maxMuteSeconds is {policy.max_mute_seconds}, and clients give up on a "
            "request after request.timeout.ms, 30 s by default: set theirs to at least "
            f"{(policy.max_mute_seconds + 5) * 1000}, or lower maxMuteSeconds to "
            f"{_LONGEST_MUTE_SECONDS}",
        )


def _unlisted(declared: Declared) -> Iterator[Incomplete]:
    lists: dict[str, object] = {
        "BusinessTiers": declared.tiers,
        "QuotaOverrides": declared.overrides,
    }
    if declared.budgets is None and declared.unread_budgets:
        yield Incomplete(
            Reason.BUDGETS_UNREAD,
            "The BandwidthBudgets of this policy cannot be listed: "
            f"{declared.unread_budgets.rstrip('.')}",
            consequence="every quota stays as it is until they can be",
        )
    else:
        lists["BandwidthBudgets"] = declared.budgets
    unknown = " and ".join(name for name, known in lists.items() if known is None)
    if unknown:
        yield Incomplete(
            Reason.LIST_INCOMPLETE,
            f"The {unknown} could not be listed in full",
            consequence="every quota stays as it is until they can be",
        )
    elif declared.unlisted:
        yield Incomplete(Reason.LIST_INCOMPLETE, declared.unlisted)
    if declared.broken_budgets:  # without it, its members would have more
        yield Incomplete(
            Reason.LIST_INCOMPLETE,
            f"BandwidthBudget {declared.broken_budgets[0].key} cannot be read",
            consequence="every quota stays as it is until it is corrected or deleted",
        )


def _tiers(declared: Declared) -> tuple[Tier, ...] | None:
    """The tiers; None while some, or overrides, may be missing: contracts are not known then."""
    is_known = declared.overrides is not None and not declared.unlisted
    return declared.tiers if is_known else None


def _is_ours(missing: Missing) -> bool:
    return not any(error.reason in _NOT_OUR_CLUSTER for error in missing)


def expected_cluster(declared: Declared, cluster: KafkaCluster) -> Expected:
    """The cluster that the policy declares, for `objections`."""
    kafka, policy = declared.spec.kafka, declared.policy
    return Expected(
        policy.key,
        cluster.address,
        str(kafka.bootstrap_servers),
        kafka.cluster_id,
        policy.uid,
        # a policy in deletion does not restore what it has not taken over
        "" if policy.deleting else declared.replaces_claim,
        # but its own quotas are, whichever operator wrote them
        "" if policy.deleting else declared.lease_namespace,
    )


def _read_facts(declared: Declared, cluster: KafkaCluster, missing: Missing) -> ClusterFacts | None:
    try:
        facts = cluster.store.facts()
    except TidegateError as error:
        missing.append(error)
        return None
    missing.extend(objections(facts, expected_cluster(declared, cluster)))
    return facts


def _look_at_ledger(
    look: LedgerLook,
    facts: ClusterFacts,
    quotas: Quotas | None,
    *,
    cluster: KafkaCluster,
    missing: Missing,
) -> LedgerLoss | None:
    try:
        return look(facts, quotas, cluster.store)
    except TidegateError as error:
        missing.append(error)
        return None


def _read_topology(
    declared: Declared,
    cluster: KafkaCluster,
    facts: ClusterFacts,
    *,
    missing: Missing,
    with_in_sync: bool,
) -> Topology | None:
    """The leaders, if of the cluster whose quotas they scale; giving back needs none."""
    try:
        topology = cluster.topology.read(declared.topics, with_in_sync=with_in_sync)
    except TidegateError as error:
        missing.append(error)
        return None
    objection = brokers_objection(facts, topology.cluster_id, expected_cluster(declared, cluster))
    if objection is None:
        return topology
    if not declared.policy.deleting:
        missing.append(objection)
    return None


def _read_quotas(declared: Declared, cluster: KafkaCluster, missing: Missing) -> Quotas | None:
    try:
        return dict(cluster.store.read(declared.entities | cluster.store.ledger_entities()))
    except TidegateError as error:
        missing.append(error)
        return None


def _client_quotas_exist(declared: Declared, cluster: KafkaCluster) -> bool | None:
    """Whether there are quotas of client ids, for metering only.

    Without an answer nothing is held, and metering stays as it is.
    """
    if not declared.policy.metering_enabled:
        return None
    try:
        return cluster.store.has_client_id_quotas()
    except TidegateError:
        return None
