"""Membership by Kafka's group protocol, for clusters without ZooKeeper.

A consumer that reads nothing is a member of the group `<prefix>.members` and subscribes to all
level topics; the group's assignor (cooperative-sticky) shares them. It is not the group of
positions: brokers refuse simple commits to a group that has active members.
"""

import threading
from collections.abc import Iterable, Mapping

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tidegate.forwarder.session_sign import Clock, SessionSign, seconds_since_boot
from tidegate.queues.names import QueueNames

log = structlog.get_logger(__name__)

_BEATS_PER_TIMEOUT = 6
_POLL_SECONDS = 0.1
_HEARTBEAT_MS = 300  # the others learn from its answer that they are to join again
_MOST_POLL_SECONDS = 60.0  # librdkafka leaves the group when nothing polls for so long
_RELEASE_SECONDS = 40.0


class KafkaMembers:
    """See Membership. One object is one session: when that is lost, make another object.

    `client_config` has the brokers and the login, as librdkafka names them. Brokers grant session
    timeouts of 6 s and more by default (`group.min.session.timeout.ms`). Nothing is raised here
    while brokers are unreachable; nothing is wanted then.

    librdkafka does not show when a heartbeat was answered. So the member commits offset 0 of its
    topics to its group, which means nothing, six times per session timeout: the coordinator accepts
    that from an active member only, and renews its session. `may_send` counts from when the last
    accepted commit was sent, by `clock` in seconds. So a process that was stopped, or cut off, does
    not send what may have another owner, unless a single send takes longer than a third of the
    timeout, or the coordinator was elected again and knows less. It is false for a member without
    topics, and while the group waits for a member that died: brokers answer nothing else on a
    connection whose JoinGroup waits. (6 s, one killed and replaced immediately: for 1 s.)

    A topic moves when its member has released it. One that does not release within 40 s is lost.
    """

    def __init__(
        self,
        client_config: Mapping[str, object],
        prefix: str,
        member: str,
        session_timeout_seconds: float,
        clock: Clock = seconds_since_boot,
    ) -> None:
        """Become a member in the background. Raises KafkaException for settings that are wrong."""
        self.member = member
        self._clock = clock
        self._beat_seconds = session_timeout_seconds / _BEATS_PER_TIMEOUT
        self._sign = SessionSign(session_timeout_seconds, clock)
        self._lost = threading.Event()
        self._released = threading.Condition()  # guards the two sets, and says when one was
        self._wanted: frozenset[str] = frozenset()
        self._held: set[str] = set()
        self._topics: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._asked_at: float | None = None  # of the commit that is under way
        self._next_beat_at = float("-inf")
        self._complaint = ""
        timeout_ms = round(session_timeout_seconds * 1000)
        self._consumer = Consumer(
            {
                **client_config,
                "group.id": QueueNames(prefix).members_group,
                "client.id": member,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": timeout_ms,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "max.poll.interval.ms": max(round(_MOST_POLL_SECONDS * 1000), timeout_ms),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "on_commit": self._on_commit,
            }
        )
        self._worker = threading.Thread(target=self._run, name="members", daemon=True)
        self._worker.start()

    def topics(self, names: Iterable[str]) -> None:
        """See Membership."""
        self._topics = frozenset(names)

    def wanted(self) -> frozenset[str]:
        """See Membership."""
        return frozenset() if self._lost.is_set() else self._wanted

    def take(self, topic: str) -> bool:
        """See Membership. Never waits: the group gives no topic that is not released."""
        with self._released:
            if self._lost.is_set() or topic not in self._wanted:
                return False
            self._held.add(topic)
            return True

    def release(self, topic: str) -> None:
        """See Membership."""
        with self._released:
            self._held.discard(topic)
            self._released.notify_all()

    def may_send(self) -> bool:
        """See Membership."""
        return not self._lost.is_set() and self._sign.is_fresh()

    def is_lost(self) -> bool:
        """See Membership."""
        return self._lost.is_set()

    def close(self) -> None:
        """See Membership. A second call does nothing."""
        self._lose()
        self._worker.join()

    def _lose(self) -> None:
        with self._released:
            self._lost.set()
            self._released.notify_all()

    # the worker

    def _run(self) -> None:
        try:
            while not self._lost.is_set():
                self._subscribe()
                self._beat()
                message = self._consumer.poll(_POLL_SECONDS)
                if message is not None:
                    self._complain(message)
        except Exception:
            log.exception("Membership failed; it leaves the group", member=self.member)
        finally:
            self._lose()
            self._consumer.close()

    def _subscribe(self) -> None:
        topics = self._topics
        if topics == self._subscribed:
            return
        self._subscribed = topics
        if topics:
            self._consumer.subscribe(
                sorted(topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        else:
            self._consumer.unsubscribe()

    def _beat(self) -> None:
        """Ask the coordinator whether this is an active member."""
        now = self._clock()
        if self._wanted and self._asked_at is None and now >= self._next_beat_at:
            self._asked_at, self._next_beat_at = now, now + self._beat_seconds
            # of all topics, since one that has just been deleted is refused
            offsets = [TopicPartition(topic, 0, 0) for topic in self._wanted]
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if (
            asked_at is not None
            and error is None
            and any(part.error is None for part in partitions)
        ):
            self._sign.answered(asked_at)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # with an offset, it asks for no position
        consumer.incremental_assign([TopicPartition(part.topic, 0, 0) for part in partitions])
        consumer.pause(partitions)
        with self._released:
            self._wanted = self._wanted.union(part.topic for part in partitions)
        self._next_beat_at = float("-inf")

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        leaving = {part.topic for part in partitions}
        with self._released:
            self._wanted -= leaving
            self._released.wait_for(
                lambda: self._lost.is_set() or not self._held & leaving, _RELEASE_SECONDS
            )
            if self._held & leaving and not self._lost.is_set():
                self._lost.set()
                log.error(
                    "Topics were not released in time, so this member leaves and starts again",
                    member=self.member,
                    topics=sorted(self._held & leaving),
                    seconds=_RELEASE_SECONDS,
                )
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._lose()
        consumer.incremental_unassign(partitions)

    def _complain(self, message: Message) -> None:
        """Log what people have to do something about, once."""
        error = message.error()
        if error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return  # a topic that has just been deleted
        complaint = error.str()
        if complaint != self._complaint:
            self._complaint = complaint
            log.error(
                "Kafka's group protocol does not share the topics; it tries again",
                member=self.member,
                error=complaint,
            )
