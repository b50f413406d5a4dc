"""The thread beside the loop: everything that asks others and may take its time.

It lists topics, measures the brokers' clock, follows the membership, and takes over level topics up
to the point where they can be read. The loop forwards meanwhile.
"""

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tidegate.errors import RetryLater, TidegateError, Unreachable
from tidegate.forwarder.brokers import Brokers
from tidegate.forwarder.level import Level
from tidegate.forwarder.membership import Membership
from tidegate.forwarder.settings import (
    ForwarderSettings,
    any_client_settings,
    consumer_settings,
    read_ahead_bytes,
)
from tidegate.queues.names import Guarantee, LevelTopic
from tidegate.queues.position import PositionNote, parse_note
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

_STEP_SECONDS = 0.05
_LIST_SECONDS = 5.0
_LIST_AGAIN_SECONDS = 1.0
_PROBE_SECONDS = 5.0
_FIRST_PROBES = 8
_TRY_AGAIN_SECONDS = 2.0
_TIMEOUT_SECONDS = 10.0
_FENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Listing:
    """Topics of the cluster and the brokers that lead each, at a time of this process' clock."""

    topics: Mapping[str, frozenset[int]] = field(default_factory=dict)
    levels: int = 0
    at_seconds: float = float("-inf")


class Keeper(threading.Thread):
    """`started` has levels that the loop is to forward; `unwanted` are those it is to release."""

    def __init__(
        self, settings: ForwarderSettings, membership: Membership, brokers: Brokers
    ) -> None:
        super().__init__(name="keeper", daemon=True)
        self.started: queue.SimpleQueue[Level] = queue.SimpleQueue()
        self.unwanted: frozenset[str] = frozenset()
        self.listing = Listing()
        self.failure: BaseException | None = None
        self._settings = settings
        self._membership = membership
        self._brokers = brokers
        self._released: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._taken: set[str] = set()
        self._handed_over: set[str] = set()
        self._fenced: set[str] = set()
        self._try_again_at: dict[str, float] = {}
        self._list_soon = threading.Event()
        self._ending = threading.Event()
        self._peek: Consumer | None = None
        self._probes = 0
        self._probed_at = float("-inf")

    def has_new_listing(self) -> bool:
        """Whether the listing is a second old at most; if it is older, a new one is asked for."""
        if time.monotonic() - self.listing.at_seconds <= _LIST_AGAIN_SECONDS:
            return True
        self._list_soon.set()
        return False

    def release(self, topic: str) -> None:
        """The loop has committed and closed this level: the next member may have it."""
        self._released.put(topic)

    def end(self) -> None:
        """Take over no more levels."""
        self._ending.set()

    def close(self) -> None:
        """End the thread after what it is doing, and let the next members have what is released."""
        self.end()
        self.join(_FENCE_SECONDS)
        while not self._released.empty():
            self._membership.release(self._released.get())
        if self._peek is not None:
            self._peek.close()

    def run(self) -> None:
        """Run until `end`; an error that is not expected ends the loop, too."""
        try:
            while not self._ending.is_set():
                self._step()
                self._brokers.wait(0.002 if self._is_starting() else _STEP_SECONDS)
        except Exception as error:
            self.failure = error

    def _is_starting(self) -> bool:
        return self._probes < _FIRST_PROBES and not self._brokers.clock_problem

    def _step(self) -> None:
        try:
            self._list()
            self._probe()
            self._follow()
        except RetryLater as error:
            log.warning("waits for another system", error=error.message)
            self._ending.wait(_LIST_AGAIN_SECONDS)

    def _list(self) -> None:
        now, age = time.monotonic(), time.monotonic() - self.listing.at_seconds
        if age < (_LIST_AGAIN_SECONDS if self._list_soon.is_set() else _LIST_SECONDS):
            return
        self._list_soon.clear()
        topics = self._brokers.topics()
        levels = [name for name in topics if self._settings.names.parse_level(name) is not None]
        self.listing = Listing(topics, len(levels), now)
        self._membership.topics(levels)

    def _probe(self) -> None:
        now = time.monotonic()
        if not self._is_starting() and now - self._probed_at < _PROBE_SECONDS:
            return
        if self._probes and self._brokers.clock_problem:
            log.warning("the brokers' clock is not measured", problem=self._brokers.clock_problem)
        if self._settings.names.control_topic in self.listing.topics:  # brokers may create others
            self._brokers.probe()
            self._probes += 1
        else:
            log.warning(
                "the brokers' clock cannot be measured, nothing is sent",
                missing_topic=self._settings.names.control_topic,
            )
        self._probed_at = now

    def _follow(self) -> None:
        while not self._released.empty():
            topic = self._released.get()
            self._membership.release(topic)
            self._taken.discard(topic)
            self._handed_over.discard(topic)
        wanted = self._membership.wanted()
        self.unwanted = frozenset(self._handed_over - wanted)
        for topic in sorted(self._taken - self._handed_over - wanted):
            self._membership.release(topic)
            self._taken.discard(topic)
        now = time.monotonic()
        for name in sorted(wanted - self._handed_over):
            topic_name = self._settings.names.parse_level(name)
            if self._ending.is_set():
                return
            if topic_name is None or self._try_again_at.get(name, 0.0) > now:
                continue
            if name not in self._taken:
                if not self._membership.take(name):
                    continue
                self._taken.add(name)
            self._take_over(topic_name)

    def _take_over(self, topic: LevelTopic) -> None:
        """Hand a level over that this member owns. Where it cannot be read, try again later."""
        settings = consumer_settings(self._settings, topics=self.listing.levels)
        consumer = Consumer(settings)
        try:
            position, note = self._position(topic.name, consumer)
            lost = 0
            if position is None:  # nobody has ever read it
                lost = position = _log_start(topic.name, consumer)
                note = PositionNote(lost=lost)
        except (TidegateError, KafkaException) as error:
            consumer.close()
            log.warning("level not taken over yet", topic=topic.name, error=str(error))
            self._try_again_at[topic.name] = time.monotonic() + _TRY_AGAIN_SECONDS
            return
        self._try_again_at.pop(topic.name, None)
        self._handed_over.add(topic.name)
        log.info(
            "level taken over",
            topic=topic.name,
            position=position,
            last_owner=note.owner,
        )
        share = read_ahead_bytes(self.listing.levels)
        self.started.put(Level(topic, consumer, position, note, share, newly_lost=lost))

    def _position(self, topic: str, consumer: Consumer) -> tuple[int | None, PositionNote]:
        """The committed offset, after the last owner can send and commit nothing more."""
        if self._settings.guarantee is Guarantee.AT_LEAST_ONCE:
            return _committed(consumer, topic)
        while True:
            # a plain read waits for the open transaction of a dead owner, whose name is needed
            _, note = _committed(self._peeking(), topic)
            self._fence(note.owner)
            position, read = _committed(consumer, topic)
            if read.owner == note.owner:
                return position, read

    def _peeking(self) -> Consumer:
        if self._peek is None:
            settings = consumer_settings(self._settings, topics=1)
            self._peek = Consumer({**settings, "isolation.level": "read_uncommitted"})
        return self._peek

    def _fence(self, owner: str) -> None:
        """Abort the transaction of a former owner, and have its producer refused from now on."""
        if not owner or owner == self._membership.member or owner in self._fenced:
            return
        producer = Producer(
            {
                **any_client_settings(self._settings),
                "transactional.id": self._settings.names.transactional_id(owner),
                "transaction.timeout.ms": 10_000,
                "retry.backoff.ms": 2,
            }
        )
        producer.init_transactions(_FENCE_SECONDS)
        self._fenced.add(owner)
        log.info("last owner fenced", owner=owner)


def _committed(consumer: Consumer, topic: str) -> tuple[int | None, PositionNote]:
    """The committed offset, None without one, and its note."""
    found = consumer.committed([TopicPartition(topic, 0)], _TIMEOUT_SECONDS)[0]
    if found.error is not None:
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"The position of {topic} cannot be read ({found.error.str()}); it is read again soon.",
        )
    return (found.offset if found.offset >= 0 else None), parse_note(found.metadata)


def _log_start(topic: str, consumer: Consumer) -> int:
    """Where the log begins. All before it was deleted before anyone read it."""
    first, _ = consumer.get_watermark_offsets(
        TopicPartition(topic, 0), timeout=_TIMEOUT_SECONDS, cached=False
    )
    if first:
        log.error("records were deleted before a forwarder read them", topic=topic, lost=first)
    return int(first)
