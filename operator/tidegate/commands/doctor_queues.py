"""What `tidegate doctor` finds about a policy's DelayQueues: the forwarders' login and its rights,
the topics with their settings, and what of Kafka's own a queue depends on.

Kafka is asked by both logins: the policy's sees the topics, and the forwarders' shows its rights.
The right to write with a transactional id cannot be asked for, so it is not examined.
"""

import tempfile
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tidegate.commands.context import CommandContext
from tidegate.commands.doctor_cluster import login_words
from tidegate.commands.findings import Finding, ok, problem, unknown, warning
from tidegate.commands.inputs import PolicySource, named_brokers
from tidegate.commands.options import AccessOptions
from tidegate.control.queues.forwarders import NOTHING_STARTS, require_login
from tidegate.control.report.conditions import listed
from tidegate.errors import NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.kafka.delay_queues import CONTROL_SETTINGS, QueueTopics
from tidegate.kafka.queue_probe import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Operation,
    ProbedTopic,
    QueueProbe,
)
from tidegate.kube.api import DELAY_QUEUES, JsonObject, Kubernetes
from tidegate.observe.connections import brokers_connection
from tidegate.observe.declared import object_key, policy_name_of
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets
from tidegate.queues.names import QueueNames
from tidegate.resources.authentication import KafkaAuthentication
from tidegate.resources.kinds import DelayQueue, parse_queue
from tidegate.resources.policy import KafkaCluster
from tidegate_logic.queues.levels import TIMESTAMP_TYPE, Level, WantedLevels
from tidegate_logic.reasons import Reason

_CHECK = "queues"
_MESSAGES_WAIT = "Messages of the queue wait in Kafka until then."
_CLEANUP = "cleanup.policy"


def examine_queues(
    around: CommandContext,
    source: PolicySource,
    access: AccessOptions,
    brokers: Collection[int],
) -> Iterator[Finding]:
    """Findings about each queue of the policy; none for a policy without queues, or from files."""
    kubernetes = source.kubernetes
    if kubernetes is None:
        return
    policy_key = source.declared.policy.key
    try:
        raws = _listed(kubernetes, policy_key)
    except NotFound:  # the CRD is not installed, so there is no queue
        return
    except TidegateError as error:
        yield unknown(_CHECK, f"Not examined: {error.for_command}")
        return
    ours = [raw for raw in raws if policy_name_of(raw) == policy_key]
    if ours and not brokers:
        yield unknown(_CHECK, "Not examined: no broker answers.")
        return
    for raw in sorted(ours, key=object_key):
        try:
            queue = parse_queue(raw, strict=False)
        except TidegateError as error:
            yield _problem(object_key(raw), error, "Correct the object.")
            continue
        yield from _reported(raw)
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            yield from _examine(
                around, kubernetes, source, access, queue, raw, brokers, Path(folder)
            )


def _listed(kubernetes: Kubernetes, policy_key: str) -> Sequence[JsonObject]:
    try:
        return kubernetes.list_all(DELAY_QUEUES).items
    except Unauthorized:  # an operator may watch a few namespaces alone
        return kubernetes.list_all(DELAY_QUEUES, (policy_key.partition("/")[0],)).items


def _problem(key: str, error: TidegateError, to_do: str) -> Finding:
    what = f"Queue {key}: {error.for_command.rstrip('.')}."
    return problem(_CHECK, error.reason, what, _MESSAGES_WAIT, to_do)


def _reported(raw: JsonObject) -> Iterator[Finding]:
    """What the operator last said of the queue."""
    conditions: Sequence[Mapping[str, Any]] = (raw.get("status") or {}).get("conditions") or ()
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    key = object_key(raw)
    if ready is None:
        yield warning(
            _CHECK,
            Reason.STARTING,
            f"Queue {key}: no operator has reported on it.",
            "Nothing is sent on unless its forwarders run already.",
            "Start the operator with --forwarder-image (chart: delayQueues.enabled).",
        )
    elif ready.get("status") != "True":
        word = ready.get("reason")
        reason = next((one for one in Reason if one.value == word), Reason.INTERNAL_ERROR)
        yield warning(
            _CHECK,
            reason,
            f"Queue {key}: the operator reports Ready={ready.get('status')} ({word}): "
            f"{ready.get('message')}",
            _MESSAGES_WAIT,
            f"tidegate queues {key}",
        )


def _examine(
    around: CommandContext,
    kubernetes: Kubernetes,
    source: PolicySource,
    access: AccessOptions,
    queue: DelayQueue,
    raw: JsonObject,
    brokers: Collection[int],
    folder: Path,
) -> Iterator[Finding]:
    key, names = queue.metadata.key, QueueNames(queue.prefix)
    try:
        kafka, policy_secrets = named_brokers(source, access)
        connection = brokers_connection(kafka, policy_secrets, folder / "policy")
    except TidegateError:  # there is a finding about the policy's login already
        return
    forwarders = yield from _login(around, kubernetes, queue, kafka, policy_secrets)
    try:
        with closing(QueueProbe(connection)) as probe, closing(QueueTopics(connection)) as topics:
            seen = probe.topics(_topics_of(queue, names))
            settings = topics.settings(names, [name for name in seen if names.is_own(name)])
    except TidegateError as error:
        yield _problem(key, error, "Grant the policy's login what docs/who-may-do-what.md lists.")
        return
    yield from _own_topics(queue, names, seen, settings)
    yield from _replicas(queue, names, seen, brokers)
    if forwarders is None:
        return
    login, secrets = forwarders
    try:
        settings_of_login = brokers_connection(login, secrets, folder / "forwarders")
        with closing(QueueProbe(settings_of_login)) as probe:
            yield from _rights(queue, names, raw, probe, seen, kafka)
    except Unreachable as error:
        yield _problem(key, error, "Check the brokers that lead Kafka's internal topics.")
    except TidegateError as error:
        yield _problem(key, error, "Create the user in Kafka, or correct its Secret.")


# --- the forwarders' login ------------------------------------------------------------------------


def _login(
    around: CommandContext,
    kubernetes: Kubernetes,
    queue: DelayQueue,
    kafka: KafkaCluster,
    policy_secrets: Secrets,
) -> Generator[Finding, None, tuple[KafkaCluster, Secrets] | None]:
    """The cluster with the forwarders' login; None if there is a finding about that."""
    key, spec = queue.metadata.key, queue.spec
    if spec.authentication is not None and spec.authentication.access_token_file is not None:
        yield unknown(_CHECK, f"Queue {key}: only its forwarders have the token to log in with.")
        return None
    try:
        require_login(queue, kafka)
        secrets = read_secrets(
            kubernetes, queue.metadata.namespace, spec.secret_names, bounds=around.bounds
        )
        is_shared = _is_the_policys(queue, kafka, secrets, policy_secrets)
    except Unauthorized as error:
        yield unknown(
            _CHECK,
            f"Queue {key}: the forwarders' login is not checked. {error.for_command}",
        )
        return None
    except TidegateError as error:
        yield _problem(key, error, "Correct spec.authentication, spec.tls, or the Secrets there.")
        return None
    if is_shared:
        yield problem(
            _CHECK,
            Reason.LOGIN_MISSING,
            f"Queue {key}: its forwarders log in as the policy does.",
            "They have all rights of the operator, and a quota for them throttles the operator.",
            "Create a Kafka user for the forwarders, and name its Secret in spec.authentication.",
        )
    return kafka.model_copy(
        update={"authentication": spec.authentication, "tls": spec.tls}
    ), secrets


def _is_the_policys(
    queue: DelayQueue, kafka: KafkaCluster, secrets: Secrets, policy_secrets: Secrets
) -> bool:
    """Whether both are the same user or client, or show the same key, token or certificate."""
    own, policys = queue.spec.authentication, kafka.authentication
    if own is None or policys is None:
        return False
    mine = _identity(own, secrets)
    return mine is not None and mine == _identity(policys, policy_secrets)


def _identity(login: KafkaAuthentication, secrets: Secrets) -> object:
    """What identifies a login; None if only the brokers or AWS know."""
    if login.username is not None or login.client_id is not None:
        return login.username, login.client_id
    key, token, certificate = login.access_key, login.access_token, login.certificate_and_key
    if key is not None:
        where = key.secret_name, key.access_key_id
    elif token is not None:
        where = token.secret_name, token.key
    elif certificate is not None and login.type == "tls":
        where = certificate.secret_name, certificate.certificate
    else:
        return None
    return secrets.value(*where, meanwhile=NOTHING_STARTS)


def _rights(
    queue: DelayQueue,
    names: QueueNames,
    raw: JsonObject,
    probe: QueueProbe,
    seen: Mapping[str, ProbedTopic],
    kafka: KafkaCluster,
) -> Iterator[Finding]:
    """What the forwarders' login may not do of what they need."""
    key, zookeeper = queue.metadata.key, kafka.zookeeper
    needed = _needed(queue, names)
    probed = probe.topics([name for name in needed if seen[name].exists or seen[name].is_hidden])
    missing = [
        f"{operation.name.capitalize()} on topic {name}"
        for name, topic in probed.items()
        for operation in needed[name]
        if (topic.exists or topic.is_hidden) and not topic.allows(operation)
    ]
    if seen[OFFSETS_TOPIC].exists:
        by_zookeeper = (
            zookeeper is not None and zookeeper.authentication is None and zookeeper.tls is None
        )
        groups = (names.group,) if by_zookeeper else (names.group, names.members_group)
        missing += [f"Read on group {one}" for one in groups if not probe.may_commit_in(one)]
    if queue.spec.guarantee == "ExactlyOnce" and seen[TRANSACTIONS_TOPIC].exists:
        ids = _transactional_ids(names, raw)
        missing += [
            f"Describe on transactional id {one}"
            for one in ids
            if not probe.may_use_transactions(one)
        ]
    if missing:
        yield problem(
            _CHECK,
            Reason.NOT_AUTHORIZED,
            f"Queue {key}: its forwarders' login lacks {listed(missing)}.",
            "They cannot forward, or send messages to the dead topic.",
            "Grant it what docs/who-may-do-what.md lists for the forwarders' login.",
        )
        return
    who = queue.spec.authentication
    name = login_words(queue.spec.tls, who)
    yield ok(_CHECK, f"Queue {key}: its forwarders log in {name}, and have the rights they need.")


def _needed(queue: DelayQueue, names: QueueNames) -> Mapping[str, Sequence[Operation]]:
    """The operations that forwarders need, by topic."""
    read, write = Operation.READ, Operation.WRITE
    # by any due time, a message goes from one level to the next
    levels = (read, write) if queue.spec.arbitrary_delays else (read,)
    return {
        **dict.fromkeys(_level_settings(queue, names), levels),
        names.dead_topic: (write,),
        names.control_topic: (read, write),
        **({names.cancelled_topic: (read,)} if queue.spec.cancellable else {}),
        **dict.fromkeys(_targets(queue), (write,)),
    }


def _transactional_ids(names: QueueNames, raw: JsonObject) -> Sequence[str]:
    """Those of the forwarders that the status names; one that is in no use where it names none."""
    forwarders = (raw.get("status") or {}).get("forwarders") or ()
    members = [str(one["name"]) for one in forwarders] or ["doctor"]
    return [names.transactional_id(member) for member in members]


# --- topics ---------------------------------------------------------------------------------------


def _level_settings(queue: DelayQueue, names: QueueNames) -> Mapping[str, Mapping[str, str]]:
    """What the settings of each level topic have to be."""
    wanted = WantedLevels({}, queue.spec.topics.grace_seconds)
    return {
        names.level_topic(delay.seconds, number).name: wanted.settings(Level(delay.seconds, number))
        for delay in queue.spec.delays
        for number in range(delay.topics)
    }


def _targets(queue: DelayQueue) -> frozenset[str]:
    """The targets whose whole name is known."""
    whole = {name for name in queue.spec.target.allowed if not name.endswith("*")}
    return frozenset(whole | {queue.spec.target.default})


def _topics_of(queue: DelayQueue, names: QueueNames) -> frozenset[str]:
    own = {*_level_settings(queue, names), names.dead_topic, names.control_topic}
    own |= {names.cancelled_topic} if queue.spec.cancellable else set()
    return frozenset(own | _targets(queue) | {OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


def _own_topics(
    queue: DelayQueue,
    names: QueueNames,
    seen: Mapping[str, ProbedTopic],
    settings: Mapping[str, Mapping[str, str]],
) -> Iterator[Finding]:
    """Whether the queue's topics and its targets are there, and set as they have to be."""
    key, levels = queue.metadata.key, _level_settings(queue, names)
    control = {name: CONTROL_SETTINGS[name] for name in (_CLEANUP, TIMESTAMP_TYPE)}
    wanted = {**levels, names.control_topic: control, names.dead_topic: {}}
    if queue.spec.cancellable:
        wanted[names.cancelled_topic] = {**control, _CLEANUP: "compact,delete"}
    missing = sorted(name for name in wanted if not seen[name].exists)
    if missing:
        yield problem(
            _CHECK,
            Reason.TOPIC_NOT_FOUND,
            f"Queue {key}: {listed(missing)} does not exist, or is hidden from the policy's login.",
            "Nothing can be sent to it; the operator creates it when it may.",
            f"tidegate queues {key} shows what keeps the operator from it.",
        )
    wrong = [
        f"{name} has {setting}={found}, not {value}"
        for name, expected in wanted.items()
        if name not in missing
        for setting, value in expected.items()
        if (found := settings.get(name, {}).get(setting, "the brokers' default")) != value
    ]
    if "compact" in settings.get(names.dead_topic, {}).get(_CLEANUP, ""):
        wrong.append(f"{names.dead_topic} has {_CLEANUP}=compact, not delete")
    if wrong:
        yield problem(
            _CHECK,
            Reason.QUEUE_AT_RISK,
            f"Queue {key}: {listed(wrong)}.",
            "Messages may be deleted before they are due, or be sent at another time.",
            "Let only the operator change these topics: it corrects level topics within seconds. "
            "Correct the others with kafka-configs.",
        )
    if not missing and not wrong:
        yield ok(
            _CHECK, f"Queue {key}: all {len(wanted)} topics are there, set as they have to be."
        )
    absent = sorted(name for name in _targets(queue) if not _may_exist(seen[name]))
    if absent:
        yield warning(
            _CHECK,
            Reason.TOPIC_NOT_FOUND,
            f"Queue {key}: its target {listed(absent)} does not exist.",
            f"Messages for it go to {names.dead_topic}.",
            "Create it, or correct spec.target.",
        )


def _may_exist(topic: ProbedTopic) -> bool:
    return topic.exists or topic.is_hidden


def _replicas(
    queue: DelayQueue,
    names: QueueNames,
    seen: Mapping[str, ProbedTopic],
    brokers: Collection[int],
) -> Iterator[Finding]:
    """Whether the queue outlives a broker, and whether everything has a leader now."""
    key, is_exact = queue.metadata.key, queue.spec.guarantee == "ExactlyOnce"
    internal = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if is_exact else (OFFSETS_TOPIC,)
    needed = {name: seen[name] for name in seen if name in internal or names.is_own(name)}
    leaderless = sorted(name for name, topic in needed.items() if topic.leaderless)
    if leaderless:
        yield problem(
            _CHECK,
            Reason.BROKERS_UNREACHABLE,
            f"Queue {key}: partitions of {listed(leaderless)} have no leader.",
            "The queue stands still, wholly or in part, until they have one.",
            "Start the brokers that have their replicas.",
        )
    alone = sorted(
        name for name, topic in needed.items() if topic.exists and topic.fewest_replicas < 2
    )
    if alone and len(brokers) > 1:
        yield warning(
            _CHECK,
            Reason.QUEUE_AT_RISK,
            f"Queue {key}: {listed(alone)} has partitions with one replica, on a cluster of "
            f"{len(brokers)} brokers.",
            "While the broker of such a partition is down, the queue stands still, and what only "
            "that broker has may be lost.",
            "Give them more replicas with kafka-reassign-partitions.",
        )
    hidden = [name for name in internal if seen[name].is_hidden]
    if hidden:
        yield unknown(
            _CHECK,
            f"Queue {key}: the replicas of {listed(hidden)} are hidden from the policy's login.",
            "Grant it Describe on these topics to have them checked.",
        )
