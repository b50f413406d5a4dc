"""What `tidegate doctor` finds at ZooKeeper and brokers: reachable as whom, which mode and version,
whose cluster it is, quota plugins and the quota window.
"""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress

from tidegate.commands.context import CommandContext
from tidegate.commands.findings import QUOTAS_STAY, Finding, failed, ok, problem, warning
from tidegate.commands.inputs import PolicySource, opened_cluster
from tidegate.commands.options import AccessOptions
from tidegate.commands.output import listed_words
from tidegate.control.ledger_watch import look_of
from tidegate.control.report.conditions import sentence
from tidegate.errors import TidegateError, Unreachable, WriteRefused
from tidegate.kafka.adminapi.client import rights_needed
from tidegate.kafka.adminapi.store import LEDGER_TOPIC, AdminQuotaStore
from tidegate.kafka.quota_store import ClusterFacts
from tidegate.observe.broker_settings import (
    CORDONED,
    CORDONED_IMPACT,
    FOLLOWER_READS_FIX,
    LOG_DIRS,
    PLUGIN,
    RACK,
    SELECTOR,
    FollowerReads,
    cordoned_brokers,
    cordoned_finding,
    has_scaled_fetch,
    leaders_scale_reads,
    plugin_words,
    plugins_of,
)
from tidegate.observe.observation import (
    KafkaCluster,
    brokers_objection,
    expected_cluster,
    migration_words,
    objections,
    partition_words,
)
from tidegate.resources.authentication import KafkaAuthentication, Tls, ZooKeeperAuthentication
from tidegate_logic.model import BackgroundKind, Entity
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import TIERED_STORAGE
from tidegate_logic.replication.throttles import BACKGROUND_KEYS
from tidegate_logic.words import broker_words


def examine_cluster(
    around: CommandContext, source: PolicySource, access: AccessOptions
) -> Generator[Finding, None, tuple[frozenset[int], frozenset[Entity], frozenset[int]]]:
    """Findings about ZooKeeper and the brokers; returns the live brokers, the entities of the tiers
    that have a quota in Kafka, and the controllers as far as they are known.
    """
    try:
        with opened_cluster(around, source, access) as cluster:
            facts, metered, reported = yield from _quota_store(source, cluster)
            brokers, voters = yield from _brokers(source, cluster, facts, reported)
            return brokers, metered, voters | _quorum(cluster)
    except (Unreachable, WriteRefused) as error:
        # the brokers are asked where the ledger is, and after a move to KRaft ZooKeeper is, too
        check, who = "kafka", "The brokers do"
        if isinstance(error, WriteRefused):
            check, who = "zookeeper", "ZooKeeper does"
        yield failed(
            check,
            error,
            f"Quotas can be neither read nor written, and what else Kafka has is not examined. "
            f"{QUOTAS_STAY}",
            f"Check spec.kafka, and why {who} not answer.",
        )
        return frozenset(), frozenset(), frozenset()
    except TidegateError as error:  # no Secret, or one without the key that is named
        yield failed(
            "secrets",
            error,
            f"Tidegate cannot log in to ZooKeeper and the brokers. {QUOTAS_STAY}",
            "Correct the Secret, or the fields of spec.kafka that name it.",
        )
        return frozenset(), frozenset(), frozenset()


def _quorum(cluster: KafkaCluster) -> frozenset[int]:
    """The controllers that the brokers name; none where they do not, or have no quorum."""
    store = cluster.store
    if not isinstance(store, AdminQuotaStore):
        return frozenset()
    try:
        return store.controllers() if store.is_kraft() else frozenset()
    except TidegateError:  # there is a finding about brokers that do not answer already
        return frozenset()


def _ledger(
    source: PolicySource, cluster: KafkaCluster, facts: ClusterFacts, check: str
) -> Iterator[Finding]:
    """Whether the ledger is the one that the policy's status remembers."""
    store, policy = cluster.store, source.declared.policy
    with suppress(TidegateError):  # what cannot be read is a finding of its own
        quotas = store.read(source.declared.entities | store.ledger_entities())
        loss = look_of(source.status, policy)(facts, dict(quotas), store)
        if loss is not None:
            yield problem(
                check,
                loss.reason,
                f"{loss.message}.",
                "The operator writes nothing to this cluster.",
                f"Answer with `tidegate ledger rebuild {policy.key}` or `tidegate ledger accept "
                f"{policy.key}`: see A lost ledger in docs/operations.md.",
            )


def _quota_store(
    source: PolicySource, cluster: KafkaCluster
) -> Generator[Finding, None, tuple[ClusterFacts | None, frozenset[Entity], str]]:
    """Returns also the error already reported about a store that does not answer, "" = none."""
    kafka, address = source.kafka, cluster.address
    if kafka.zookeeper is None:
        check, asked, login = "kafka", "The brokers", login_words(kafka.tls, kafka.authentication)
        were, answer, fields = "were", "answer", "spec.kafka: bootstrapServers, login, certificates"
        cure = f"Grant the login its rights: {rights_needed(kafka.ledger_topic or LEDGER_TOPIC)}."
    else:
        check, asked = "zookeeper", "ZooKeeper"
        login = login_words(kafka.zookeeper.tls, kafka.zookeeper.authentication)
        were, answer, fields = (
            "was",
            "answers",
            "spec.kafka.zookeeper: address with chroot, login and certificates",
        )
        cure = "Log in as the brokers' own identity where zookeeper.set.acl is on."
    try:
        facts = cluster.store.facts()
    except TidegateError as error:
        yield failed(
            check,
            error,
            f"Quotas can be neither read nor written. {QUOTAS_STAY}",
            f"Check {fields}.",
            asked=f"{asked} {were} asked {login}.",
        )
        return None, frozenset(), error.message
    yield ok(check, f"{asked} {address} {answer} {login}: cluster {facts.cluster_id}.")
    for objection in objections(facts, expected_cluster(source.declared, cluster)):
        is_at_risk = objection.reason is Reason.LEDGER_AT_RISK
        yield problem(
            check,
            objection.reason,
            f"{objection.for_command}.",
            "The operator writes nothing to this cluster.",
            "Set cleanup.policy=compact on the ledger's topic."
            if is_at_risk
            else "Correct the address or spec.kafka.clusterId, or remove the other policy.",
        )
    if facts.ledger.partitions > 1:
        yield warning(
            check,
            Reason.LEDGER_AT_RISK,
            f"{sentence(partition_words(facts.ledger))}.",
            "Nothing is lost by it.",
            "Leave the topic as it is: Kafka cannot take partitions away.",
        )
    yield from _ledger(source, cluster, facts, check)
    if facts.migration_prepared and not facts.migration_running:
        yield warning(
            "zookeeper",
            Reason.MIGRATION_PREPARED,
            f"{migration_words(address)}.",
            "While it runs, no quota changes; afterwards the ledger moves to a topic.",
            "Keep ZooKeeper until the Event LedgerMoved; or remove the node /migration.",
        )
    try:
        quotas = cluster.store.read(source.declared.entities)
    except TidegateError as error:
        yield failed(
            check,
            error,
            f"Quotas of the tiers' members cannot be read. {QUOTAS_STAY}",
            cure,
            asked=f"{asked} {were} asked {login}.",
        )
        return facts, frozenset(), ""
    if isinstance(cluster.store, AdminQuotaStore):
        yield from _changes(cluster.store, cure)
    metered = frozenset(entity for entity, stored in quotas.items() if stored.values)
    yield ok("quotas", f"{len(metered)} of {len(quotas)} declared users and clients have a quota.")
    return facts, metered, ""


def _changes(store: AdminQuotaStore, cure: str) -> Iterator[Finding]:
    """Whether the brokers would take a change; they are asked to check one, and not to make it."""
    try:
        if store.has_controller():
            return
        reason, what = Reason.BROKERS_UNREACHABLE, "No controller accepts quota changes right now."
        cure = "Check the controllers: kafka-metadata-quorum describe --status says who leads."
    except TidegateError as error:
        reason, what = error.reason, error.for_command
    yield problem("kafka", reason, what, "Quotas can be read and not written.", cure)


def login_words(
    tls: Tls | None, login: KafkaAuthentication | ZooKeeperAuthentication | None
) -> str:
    """`as alice by scram-sha-512 with TLS`, `without a login, in plain text`."""
    if login is None:
        who = "without a login"
    elif login.username is not None:
        who = f"as {login.username} by {login.type}"
    elif login.type == "tls":
        who = "with a client certificate"
    else:
        client = getattr(login, "client_id", None)
        who = f"as client {client} by {login.type}" if client else f"by {login.type}"
    return f"{who} with TLS" if tls is not None else f"{who}, in plain text"


_SAMPLES, _SAMPLE_SECONDS = "quota.window.num", "quota.window.size.seconds"
_VERSION, _ROLES = "inter.broker.protocol.version", "process.roles"
_VOTERS = "controller.quorum.voters"  # a quorum whose members may change has none
_OF_BROKERS = (PLUGIN, SELECTOR, RACK, CORDONED, LOG_DIRS, _SAMPLES, _SAMPLE_SECONDS)
_COPY_RATE = BACKGROUND_KEYS[BackgroundKind.REMOTE_COPY]
_ASKED = (*_OF_BROKERS, _VERSION, _ROLES, _VOTERS, TIERED_STORAGE, _COPY_RATE)


def _brokers(
    source: PolicySource, cluster: KafkaCluster, facts: ClusterFacts | None, reported: str
) -> Generator[Finding, None, tuple[frozenset[int], frozenset[int]]]:
    """Returns the live brokers, and the controllers that their settings list.

    `reported` is an error that there is a finding about already."""
    kafka = source.kafka
    login = login_words(kafka.tls, kafka.authentication)
    try:
        # prefixes need the list of topics, which ZooKeeper has
        wanted = source.declared.topics
        topics = [one for one in wanted if facts is not None or not one.endswith("*")]
        topology = cluster.topology.read(topics)
    except TidegateError as error:
        if error.message != reported:
            yield failed(
                "kafka",
                error,
                f"Partition leaders are not known. {QUOTAS_STAY}",
                "Check spec.kafka: bootstrapServers, tls, and the Secret with the login.",
                asked=f"The brokers were asked {login}.",
            )
        return frozenset(), frozenset()
    brokers = topology.brokers
    settings = cluster.topology.settings(brokers, _ASKED)
    yield ok(
        "kafka",
        f"Asked {login}, {broker_words(brokers)} answered; {_kind_of(settings.values())}.",
    )
    if facts is not None:
        expected = expected_cluster(source.declared, cluster)
        other = brokers_objection(facts, topology.cluster_id, expected)
        if other is not None:
            yield problem(
                "kafka",
                Reason.WRONG_CLUSTER,
                f"{other.for_command}.",
                "Leaders of one cluster would scale quotas of another.",
                "Correct spec.kafka.bootstrapServers or spec.kafka.zookeeper.connect.",
            )
    missing = sorted(one for one in topics if not one.endswith("*") and one not in topology.topics)
    if missing:
        yield warning(
            "topics",
            Reason.TOPIC_NOT_FOUND,
            f"The cluster has no topic {listed_words(missing)}, or hides it from this login.",
            "Contracts per partition count no partition of it.",
            "Correct spec.members[].topics, or grant Describe on the topic.",
        )
    yield from _settings_findings(source, brokers, settings)
    listed = ",".join(one.get(_VOTERS, "") for one in settings.values())
    return brokers, frozenset(int(found) for found in re.findall(r"([0-9]+)@", listed))


def _kind_of(settings: Iterable[Mapping[str, str]]) -> str:
    """Mode and version of the brokers, as their settings show them."""
    known = [one for one in settings if one]
    if not known:
        return "their mode and version are not known"
    versions = sorted({one[_VERSION].partition("-")[0] for one in known if _VERSION in one})
    mode = "KRaft" if any(_ROLES in one for one in known) else "ZooKeeper mode"
    # KRaft's versions are levels of a feature, and 4.0 knows the setting no more
    return f"{mode}, protocol {' and '.join(versions)}" if versions else mode


def _settings_findings(
    source: PolicySource, brokers: Collection[int], settings: Mapping[int, Mapping[str, str]]
) -> Iterator[Finding]:
    silent = sorted(broker for broker in brokers if not settings.get(broker))
    if silent:
        yield warning(
            "kafka",
            Reason.NOT_AUTHORIZED,
            f"Tidegate could not read the settings of {broker_words(silent)}.",
            "A quota plugin, another quota window or reads from followers there would go "
            "unnoticed.",
            "Grant the operator's Kafka user DescribeConfigs on the cluster, or check that they "
            "answer at the addresses that they advertise.",
        )
    plugins = plugins_of(settings)
    if plugins:
        yield problem(
            "plugin",
            Reason.QUOTAS_IGNORED,
            f"{plugin_words(plugins)}.".replace("broker", "Broker", 1),
            "Contracts and throttling may have no effect there.",
            f"Take {PLUGIN} out of server.properties, or keep quotas with the plugin.",
        )
    elif len(silent) < len(brokers):
        yield ok("plugin", "No broker replaces Kafka's quotas by a plugin.")
    reads = FollowerReads.of(brokers, settings)
    tiers = source.declared.tiers or ()
    if reads.selectors and not leaders_scale_reads(tiers, source.declared.policy):
        if has_scaled_fetch(tiers):
            yield ok(
                "followers",
                f"{sentence(reads.finding())}. Declared racks or measured reads scale fetch.",
            )
    elif reads.selectors:
        yield warning(
            "followers",
            Reason.READS_FROM_FOLLOWERS,
            f"{sentence(reads.finding())}.",
            f"{reads.impact()}.",
            f"{FOLLOWER_READS_FIX}.",
        )
    tiered = sorted(one for one, each in settings.items() if each.get(TIERED_STORAGE) == "true")
    too_old = [one for one in tiered if _COPY_RATE not in settings[one]]
    if too_old:
        yield warning(
            "background",
            Reason.BACKGROUND_UNSUPPORTED,
            f"Tiered storage of {broker_words(too_old)} has no rate: Kafka has it from 3.9.",
            "What they copy may fill their NICs, and other levels are throttled for it.",
            "Upgrade these brokers.",
        )
    elif tiered:
        now = "sets no rate for it" if source.declared.spec.background is None else "has its rates"
        yield ok(
            "background",
            f"Tiered storage is on at {broker_words(tiered)}, and spec.background {now}.",
        )
    cordoned = cordoned_brokers(settings)
    if cordoned:
        yield warning(
            "brokers",
            Reason.BROKER_CORDONED,
            f"{sentence(cordoned_finding(cordoned))}.",
            f"{CORDONED_IMPACT}.",
            "Expect the move, or delete the setting cordoned.log.dirs of a broker that stays.",
        )
    declared = source.kafka.quota_window
    wanted = (declared.samples, declared.sample_seconds)
    others: dict[tuple[int, int], list[int]] = {}
    for broker, one in sorted(settings.items()):
        if _SAMPLES in one and _SAMPLE_SECONDS in one:
            found = int(one[_SAMPLES]), int(one[_SAMPLE_SECONDS])
            if found != wanted:
                others.setdefault(found, []).append(broker)
    for (samples, seconds), which in others.items():
        yield problem(
            "window",
            Reason.QUOTA_WINDOW_DIFFERS,
            f"The quota window of {broker_words(which)} is {samples} samples of {seconds} s, and "
            f"the policy says {wanted[0]} of {wanted[1]} s.",
            "Steps are sized for the wrong window: clients may be delayed for longer than "
            "escalation.maxMuteSeconds, or throttled more slowly than possible.",
            f"Set spec.kafka.quotaWindow to samples: {samples}, sampleSeconds: {seconds}, or the "
            f"brokers' {_SAMPLES} and {_SAMPLE_SECONDS} to what the policy says.",
        )
    if not others and len(silent) < len(brokers):
        yield ok(
            "window", f"The quota window is {wanted[0]} samples of {wanted[1]} s, as declared."
        )
