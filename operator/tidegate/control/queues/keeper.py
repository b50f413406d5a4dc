"""One look at the DelayQueues of a policy: read Kafka, decide, change, find out what to report.

A look is a pass of its own: it starts from what Kafka has, and what is kept between looks only
saves requests, or delays a deletion. It changes Kafka only while the policy is in mode Enforce and
not paused, and never after the Lease is lost: every request that changes something asks for it
right before its last byte is sent.

A queue that is wrong, or that Kafka refuses, has no effect on the others.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from tidegate.control.queues.forwarders import (
    ForwarderKeeper,
    ForwardersSeen,
    members_zookeeper,
    require_login,
)
from tidegate.control.queues.report import DRAIN_FINALIZER, QueueFinding, QueueTask
from tidegate.errors import LeaseLost, TidegateError, UserActionRequired, WriteRefused
from tidegate.kafka.delay_queues import LevelSeen, Listing, QueueTopics
from tidegate.kafka.prefix_claims import CLAIM_VERSION, PrefixClaim
from tidegate.kafka.settings import KafkaConnection, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.writer import delete_all
from tidegate.kube.api import DELAY_QUEUES, JsonObject, Kubernetes, ObjectRef
from tidegate.observe.connections import Renewed, brokers_connection
from tidegate.observe.namespaces import NamespaceLabels
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets
from tidegate.queues.names import LevelTopic, QueueNames
from tidegate.resources.kinds import DelayQueue, parse_queue
from tidegate.resources.policy import KafkaCluster, PolicySpec
from tidegate.settings import PolicyBounds
from tidegate_logic.model import Mode, Policy
from tidegate_logic.queues.levels import (
    QUIET_SECONDS,
    RETENTION_MS,
    TIMESTAMP_TYPE,
    Level,
    LevelDecision,
    Quiet,
    WantedLevels,
    decide_levels,
    first_claim,
)
from tidegate_logic.queues.shift import RENEW_SECONDS, Shift, next_pace, waiting_helps
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

_DEAD_SETTINGS = {"cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class _Origin:
    kafka: KafkaCluster
    secrets: Secrets


@dataclass(slots=True)
class _Memory:
    """What is kept of one queue between looks."""

    quiet: Mapping[Level, Quiet] = field(default_factory=dict)
    positions: Mapping[LevelTopic, int] = field(default_factory=dict)
    at_seconds: float = 0.0
    announced_at_seconds: float = float("-inf")
    cancelled: Mapping[str, str] = field(default_factory=dict)
    has_control: bool = False  # the control topic was found as it should be


class QueueKeeper:
    """Keeps the queues of policy `key` (namespace/name). One thread at a time may use it.

    `may_write` is the policy's Lease. `changed` gets a queue that the API server returned.
    """

    def __init__(
        self,
        key: str,
        *,
        kubernetes: Kubernetes,
        forwarders: ForwarderKeeper,
        labels: NamespaceLabels,
        may_write: Callable[[], bool],
        monotonic: Callable[[], float],
        bounds: PolicyBounds,
        changed: Callable[[JsonObject], None],
        open_topics: Callable[[KafkaConnection], QueueTopics] = QueueTopics,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._key = key
        self._kubernetes = kubernetes
        self._forwarders = forwarders
        self._labels = labels
        self._may_write = may_write
        self._monotonic = monotonic
        self._bounds = bounds
        self._changed = changed
        self._open_topics = open_topics
        self._quiet_seconds = quiet_seconds
        self._kafka: KafkaCluster | None = None
        self._connection = Renewed(
            read=self._origin, opener=self._open, close=QueueTopics.close, monotonic=monotonic
        )
        self._memory: dict[str, _Memory] = {}

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def look(self, task: QueueTask) -> list[QueueFinding]:
        """Look at every queue once, the oldest first. Never raises a TidegateError."""
        queues = sorted(task.queues, key=_age)
        uids = {str(raw["metadata"]["uid"]) for raw in queues}
        self._memory = {uid: kept for uid, kept in self._memory.items() if uid in uids}
        try:
            topics = self._topics(task.spec.kafka)
            listing = topics.listing()
            _require_cluster(task.spec.kafka, listing)
        except TidegateError as error:
            return [QueueFinding(raw, trouble=error) for raw in queues]
        found = [self._look_at(raw, task, topics, listing) for raw in queues]
        return [one for one in found if one is not None]

    # --- one queue --------------------------------------------------------------------------------

    def _look_at(
        self, raw: JsonObject, task: QueueTask, topics: QueueTopics, listing: Listing
    ) -> QueueFinding | None:
        """The finding; None = nothing is left to report on."""
        finding = QueueFinding(raw, held_back=_held_back(task.policy))
        if finding.is_deleting and DRAIN_FINALIZER not in (raw["metadata"].get("finalizers") or ()):
            return None
        try:
            queue = parse_queue(raw, strict=False)
            finding = replace(finding, prefix=queue.prefix)
            if not finding.is_deleting:
                self._require_admitted(queue, task.spec)
                require_login(queue, task.spec.kafka)
            return self._keep(finding, queue, task, topics, listing)
        except LeaseLost:
            raise
        except TidegateError as error:
            return replace(finding, trouble=error)

    def _keep(
        self,
        finding: QueueFinding,
        queue: DelayQueue,
        task: QueueTask,
        topics: QueueTopics,
        listing: Listing,
    ) -> QueueFinding | None:
        names, may_change = QueueNames(queue.prefix), finding.held_back is None
        if may_change and not finding.is_deleting:
            finding = replace(finding, raw=self._with_finalizer(finding.raw))
        claims = self._claims(finding, queue, names, topics, listing)
        uid = str(finding.raw["metadata"]["uid"])
        if not self._require_claim(finding, queue, claims, listing):
            return self._let_go(finding, names, topics, claims, deletes_topics=False)
        seen = topics.levels(names, listing)
        memory = self._memory.setdefault(uid, _Memory())
        now_seconds = self._monotonic()
        decision = decide_levels(
            _wanted(finding, queue),
            {Level(level.delay_seconds, level.number): one.found for level, one in seen.items()},
            memory.quiet,
            now_seconds=now_seconds,
            quiet_seconds=self._quiet_seconds,
        )
        memory.quiet = decision.quiet
        finding = replace(
            finding,
            levels=seen,
            decision=decision,
            per_second=_rates(memory, seen, now_seconds),
            dead=topics.count(names.dead_topic, listing),
        )
        if not may_change:
            return replace(finding, forwarders=self._forwarders.look(finding.raw))
        if decision.is_done:
            is_drained = queue.spec.deletion_policy == "Drain"
            return self._let_go(finding, names, topics, claims, deletes_topics=is_drained)
        self._change_topics(finding, queue, names, topics, listing, decision)
        finding = self._announce(finding, queue, names, topics, task)
        forwarders, trouble = self._keep_forwarders(finding, queue, task.spec.kafka)
        return replace(finding, forwarders=forwarders, forwarders_trouble=trouble)

    def _require_admitted(self, queue: DelayQueue, spec: PolicySpec) -> None:
        """Raise for a queue in a namespace whose tiers the policy would not let in either."""
        namespace = queue.metadata.namespace
        if namespace == self._key.partition("/")[0]:
            return
        allowed = spec.allowed_tiers
        if allowed.selector is None or not allowed.lets_in(self._labels(namespace)):
            raise UserActionRequired(
                Reason.QUEUE_NOT_ALLOWED,
                f"Policy {self._key} does not admit DelayQueues from namespace {namespace} "
                "(spec.allowedTiers); this object has no effect until it does",
            )

    def _with_finalizer(self, raw: JsonObject) -> JsonObject:
        if DRAIN_FINALIZER in (raw["metadata"].get("finalizers") or ()) or not self._may_write():
            return raw
        made = self._kubernetes.add_finalizer(ObjectRef.of(DELAY_QUEUES, raw), DRAIN_FINALIZER)
        self._changed(made)
        return made

    # --- claims -----------------------------------------------------------------------------------

    def _claims(
        self,
        finding: QueueFinding,
        queue: DelayQueue,
        names: QueueNames,
        topics: QueueTopics,
        listing: Listing,
    ) -> Mapping[str, PrefixClaim]:
        """The claims of the prefix; this queue's is made where it is missing and may be."""
        if finding.is_deleting or finding.held_back is not None:
            return topics.claims.read(names) if names.control_topic in listing.topics else {}
        uid = str(finding.raw["metadata"]["uid"])
        memory = self._memory.setdefault(uid, _Memory())
        if not memory.has_control or names.control_topic not in listing.topics:
            factor = queue.spec.topics.replication_factor
            topics.keep_control_topic(names, listing, replication_factor=factor)
            memory.has_control = True
        claims = topics.claims.read(names)
        if uid in claims or any(one.version > CLAIM_VERSION for one in claims.values()):
            return claims
        return topics.claims.claim(names, uid, queue.metadata.key)

    def _require_claim(
        self,
        finding: QueueFinding,
        queue: DelayQueue,
        claims: Mapping[str, PrefixClaim],
        listing: Listing,
    ) -> bool:
        """Raise where the prefix is another queue's, or a newer version's.

        False: a queue that is being deleted has nothing there. Where someone deleted the control
        topic, it still has what looks like its own.
        """
        if any(one.version > CLAIM_VERSION for one in claims.values()):
            raise UserActionRequired(
                Reason.NEWER_VERSION,
                "A newer version of Tidegate, or another program, wrote a claim on the prefix "
                f"{queue.prefix}. This operator leaves the queue alone; upgrade it",
            )
        first = first_claim({uid: one.offset for uid, one in claims.items()})
        if first == str(finding.raw["metadata"]["uid"]):
            return True
        if finding.is_deleting:
            control_topic = QueueNames(queue.prefix).control_topic
            return first is None and control_topic not in listing.topics
        if first is None:  # nothing may be changed now
            return True
        raise UserActionRequired(
            Reason.PREFIX_TAKEN,
            f"DelayQueue {claims[first].queue_key} claimed the prefix {queue.prefix} first, and "
            "has its topics. This one changes nothing and starts when that one is deleted; or "
            "create it with another spec.topicPrefix. If that queue is gone without having "
            f"been drained, delete topic {queue.prefix}.control",
        )

    # --- changes ----------------------------------------------------------------------------------

    def _change_topics(
        self,
        finding: QueueFinding,
        queue: DelayQueue,
        names: QueueNames,
        topics: QueueTopics,
        listing: Listing,
        decision: LevelDecision,
    ) -> None:
        wanted = WantedLevels({}, queue.spec.topics.grace_seconds)
        memory = self._memory[str(finding.raw["metadata"]["uid"])]
        create = {_name(names, level): wanted.settings(level) for level in decision.create}
        if names.dead_topic not in listing.topics:
            create[names.dead_topic] = _DEAD_SETTINGS
        cancelled = _cancelled_settings(queue, finding.levels) if queue.spec.cancellable else {}
        if cancelled and names.cancelled_topic not in listing.topics:
            create[names.cancelled_topic] = cancelled
        elif cancelled != memory.cancelled:  # longer delays need its ids for longer
            topics.correct(names, {names.cancelled_topic: cancelled})
        memory.cancelled = cancelled
        if create:
            factor = queue.spec.topics.replication_factor
            topics.create(names, create, replication_factor=factor)
            log.info("Topics of a queue created", queue=queue.metadata.key, topics=sorted(create))
        if decision.corrections:
            corrected = {
                _name(names, level): dict(values) for level, values in decision.corrections.items()
            }
            topics.correct(names, corrected)
            log.info("Topics of a queue corrected", queue=queue.metadata.key, topics=corrected)
        if decision.delete:
            gone = [_name(names, level) for level in decision.delete]
            topics.delete(names, gone)
            log.info("Topics of a queue deleted", queue=queue.metadata.key, topics=gone)

    def _announce(
        self,
        finding: QueueFinding,
        queue: DelayQueue,
        names: QueueNames,
        topics: QueueTopics,
        task: QueueTask,
    ) -> QueueFinding:
        """Announce to forwarders when to wait, where that has changed or is old."""
        spec, helps = queue.spec.shift, any(map(waiting_helps, task.policy.limits_of_all_times))
        shift = Shift(spec.latest_seconds, spec.rate) if spec is not None and helps else None
        memory = self._memory[str(finding.raw["metadata"]["uid"])]
        announced = topics.claims.pace(names)
        pace = next_pace(announced, shift, task.crowded, finding.oldest_late_seconds)
        now_seconds = self._monotonic()
        is_known = pace is not None and task.crowded is not None
        is_old = is_known and now_seconds - memory.announced_at_seconds >= RENEW_SECONDS
        if pace != announced or is_old:
            topics.claims.announce(names, pace)
            memory.announced_at_seconds = now_seconds
        if pace != announced:
            over = sorted(pace.over) if pace is not None else []
            log.info("Forwarders informed when to wait", queue=queue.metadata.key, over=over)
        return replace(finding, shift=shift, waiting_helps=spec is None or helps, pace=pace)

    def _keep_forwarders(
        self, finding: QueueFinding, queue: DelayQueue, kafka: KafkaCluster
    ) -> tuple[ForwardersSeen | None, TidegateError | None]:
        """The Deployment; topics are kept also where it cannot be."""
        try:
            require_login(queue, kafka)
            return self._forwarders.keep(finding.raw, queue, kafka), None
        except TidegateError as error:
            return None, error

    def _let_go(
        self,
        finding: QueueFinding,
        names: QueueNames,
        topics: QueueTopics,
        claims: Mapping[str, PrefixClaim],
        *,
        deletes_topics: bool,
    ) -> QueueFinding | None:
        """Let a queue that is being deleted go, with what is left of a drained one.

        A dead topic with records stays. The finalizer goes last: until then this queue is seen.
        """
        if finding.held_back is not None or not self._may_write():
            return finding
        uid = str(finding.raw["metadata"]["uid"])
        has_prefix = not claims.keys() - {uid}
        # one that still runs would have brokers make the control topic again, with other settings
        if not self._forwarders.remove(finding.raw):
            return replace(finding, forwarders=self._forwarders.look(finding.raw))
        if has_prefix:  # before the claim: the next queue of this prefix has the same nodes
            self._delete_members(names)
        if deletes_topics:
            dead = [names.dead_topic] if finding.dead == 0 else []
            topics.delete(names, [*dead, names.cancelled_topic])
        left = topics.claims.release(names, uid) if uid in claims else claims
        if deletes_topics and not left:
            topics.delete(names, [names.control_topic])
        topics.claims.forget(names)
        self._kubernetes.remove_finalizer(ObjectRef.of(DELAY_QUEUES, finding.raw), DRAIN_FINALIZER)
        log.info("Queue let go", queue=f"{self._key}: {names.prefix}")
        return None

    def _delete_members(self, names: QueueNames) -> None:
        """Delete what forwarders leave in ZooKeeper, where they use it."""
        connect = None if self._kafka is None else members_zookeeper(self._kafka)
        if connect is not None:
            meanwhile = "The queue is released when it answers."
            connection = ZooKeeperConnection(connect, meanwhile=meanwhile)
            with closing(ZooKeeperSession(connection)) as tree:
                delete_all(tree, names.zookeeper_root, self._may_write)

    # --- the connection ---------------------------------------------------------------------------

    def _topics(self, kafka: KafkaCluster) -> QueueTopics:
        self._kafka = kafka
        origin = self._connection.origin
        return self._connection.current(is_outdated=origin is not None and origin.kafka != kafka)

    def _origin(self, before: _Origin | None) -> _Origin:
        if self._kafka is None:
            raise ValueError("a connection is asked for without a cluster")
        known = before.secrets if before is not None and before.kafka == self._kafka else None
        secrets = read_secrets(
            self._kubernetes,
            self._key.partition("/")[0],
            self._kafka.secret_names,
            known=known,
            bounds=self._bounds,
        )
        return _Origin(self._kafka, secrets)

    def _open(self, origin: _Origin, folder: Path) -> QueueTopics:
        topics = self._open_topics(brokers_connection(origin.kafka, origin.secrets, folder))
        topics.only_while(self._may_write)
        return topics


def _require_cluster(kafka: KafkaCluster, listing: Listing) -> None:
    """Raise WriteRefused for another Kafka cluster than the policy names."""
    if kafka.cluster_id is not None and listing.cluster_id != kafka.cluster_id:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            f"The brokers at {kafka.bootstrap_servers} are of cluster {listing.cluster_id}, and "
            f"spec.kafka.clusterId of the policy is {kafka.cluster_id}. Nothing about the queue is "
            "changed",
        )


def _held_back(policy: Policy) -> tuple[Reason, str] | None:
    if policy.mode is not Mode.ENFORCE:
        return Reason.OBSERVING, "The policy's mode is Observe, so nothing is written to Kafka"
    if policy.paused:
        return Reason.PAUSED, "The policy is paused, so nothing is written to Kafka"
    return None


def _wanted(finding: QueueFinding, queue: DelayQueue) -> WantedLevels:
    return WantedLevels(
        {delay.seconds: delay.topics for delay in queue.spec.delays},
        queue.spec.topics.grace_seconds,
        deleting=finding.is_deleting,
        keeps_topics=queue.spec.deletion_policy == "Keep",
    )


def _rates(
    memory: _Memory, seen: Mapping[LevelTopic, LevelSeen], now_seconds: float
) -> dict[int, float]:
    """Messages a second by delay since the last look, of topics whose position was known then.

    A position that moved over messages that Kafka had deleted did not send them.
    """
    positions = {
        level: one.found.position - (0 if one.note is None else one.note.lost)
        for level, one in seen.items()
        if one.found.position is not None and one.found.position_known
    }
    before, elapsed_seconds = memory.positions, now_seconds - memory.at_seconds
    memory.positions, memory.at_seconds = positions, now_seconds
    if not before or elapsed_seconds <= 0:
        return {}
    moved: dict[int, int] = {}
    for level, position in positions.items():
        if level in before:
            count = max(0, position - before[level])
            moved[level.delay_seconds] = moved.get(level.delay_seconds, 0) + count
    return {seconds: count / elapsed_seconds for seconds, count in moved.items()}


def _cancelled_settings(queue: DelayQueue, levels: Iterable[LevelTopic]) -> dict[str, str]:
    """Of the topic with the ids of cancelled messages, which has them for as long as messages."""
    seconds = [level.delay_seconds for level in levels]
    longest = max(*seconds, *(delay.seconds for delay in queue.spec.delays), 0)
    return {
        TIMESTAMP_TYPE: "LogAppendTime",
        "cleanup.policy": "compact,delete",
        RETENTION_MS: str((longest + queue.spec.topics.grace_seconds) * 1000),
        "segment.ms": str(24 * 3600 * 1000),
    }


def _name(names: QueueNames, level: Level) -> str:
    return names.level_topic(level.seconds, level.number).name


def _age(raw: Mapping[str, Any]) -> tuple[str, str]:
    metadata = raw["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["uid"])
