"""The loop of a forwarder: what is due is sent, what has arrived is committed.

One thread does all of it and touches the consumers alone. Nothing is paused or resumed: what is not
due stays in librdkafka's queue, the earliest due time sets the only timer, and a level that is
empty is checked again after a quarter of its delay.
"""

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog
from confluent_kafka import Consumer, KafkaException, Producer

from tidegate.errors import RetryLater, UserActionRequired
from tidegate.forwarder.at_least_once import AtLeastOnce
from tidegate.forwarder.brokers import Brokers
from tidegate.forwarder.cancellations import Cancellations
from tidegate.forwarder.exactly_once import ExactlyOnce
from tidegate.forwarder.keeper import Keeper
from tidegate.forwarder.level import Level
from tidegate.forwarder.membership import Membership
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.outbox import Outbox, StartAgain
from tidegate.forwarder.pacing import Pacing
from tidegate.forwarder.settings import (
    ForwarderSettings,
    consumer_settings,
    producer_settings,
    read_ahead_bytes,
)
from tidegate.forwarder.targets import Targets
from tidegate.queues.names import Guarantee
from tidegate_logic.queues.due import DueHeap
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

_DRAIN_SECONDS = 20.0
_DUTIES_MS = 1000.0
_NOTE_MS = 10_000.0
_REFRESH_MS = 3_600_000.0  # brokers forget offsets that were not committed for a week
_LONGEST_WAIT_SECONDS = 0.05
_BLOCKED_MS = 10.0
_HELD_MS = 20.0
_CLAIM_AGAIN_MS = 1000.0
_JOIN_AGAIN_SECONDS = 2.0
_NOBODY = ""  # owner of a level that was released: the next one has nobody to fence


class Sender(Protocol):
    """How records are sent and positions committed, by guarantee."""

    def open(self) -> None:
        """Get ready to send."""

    def has_room(self, now_ms: float) -> bool:
        """Whether anything more may be sent now."""

    def has_room_for(self, level: Level) -> bool:
        """Whether more of this level may be sent now."""

    def send(self, due: Iterable[tuple[Level, int]], now_ms: float) -> None:
        """Send each level's messages up to that one, or fewer."""

    def settle(self, now_ms: float) -> None:
        """Commit what has arrived."""

    def commit(self, levels: Iterable[Level], now_ms: float, *, wait: bool = False) -> bool:
        """Commit the levels' positions and notes; with `wait` whether that was done."""

    def is_idle(self, level: Level) -> bool:
        """Whether nothing of the level is on its way."""

    def forget(self, level: Level) -> None:
        """The level is not forwarded by this process any more."""

    def wait(self, seconds: float) -> None:
        """Wait for so long at most."""

    def close(self) -> None:
        """Forget what is not sent."""


class Forwarder:
    """One member, from joining until it stops, or has to start again under another name."""

    def __init__(
        self,
        settings: ForwarderSettings,
        membership: Membership,
        metrics: ForwarderMetrics,
        *,
        brokers: Brokers | None = None,
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._metrics = metrics
        self._brokers = brokers or Brokers(settings)
        self._keeper = Keeper(settings, membership, self._brokers)
        self._targets = Targets(settings)
        self._pacing = Pacing(settings, self._targets, metrics)
        self._cancellations = (
            Cancellations(settings, self._brokers.now_ms) if settings.cancellable else None
        )
        self._listed_at = float("-inf")
        self._heap = DueHeap()
        self._sender = self._new_sender()
        self._levels: dict[str, Level] = {}
        self._leaving: set[str] = set()
        self._next_duties_ms = self._next_claim_ms = float("-inf")

    def run(self, stop: threading.Event) -> None:
        """Forward until `stop` is set; then finish what is open, commit and leave.

        Raises StartAgain if another member has taken over, or if a Kafka client gave up.
        """
        sys.setswitchinterval(0.0005)  # at 5 ms, the loop would wait that long for other threads
        self._keeper.start()
        if self._cancellations is not None:
            self._cancellations.start()
        is_ours = False
        try:
            self._sender.open()
            while not stop.is_set():
                self._pass()
            self._finish()
            is_ours = True
        except (KafkaException, SystemError) as error:
            # a fatal error is raised over the delivery reports that come with it: a SystemError
            raise StartAgain(str(error.__cause__ or error)) from error
        finally:
            self._close(commit=is_ours)

    def _new_sender(self) -> Sender:
        producer = Producer(producer_settings(self._settings, self._membership.member))
        outbox = Outbox(
            producer,
            self._targets,
            self._metrics,
            self._keeper.has_new_listing,
            self._cancellations,
        )
        if self._settings.guarantee is Guarantee.AT_LEAST_ONCE:
            return AtLeastOnce(producer, outbox)
        return ExactlyOnce(producer, outbox)

    def _pass(self) -> None:
        if self._keeper.failure is not None:
            raise self._keeper.failure
        if self._cancellations is not None and self._cancellations.failure is not None:
            raise self._cancellations.failure
        if self._membership.is_lost():
            raise StartAgain("the session of this member ended")
        listing = self._keeper.listing
        if listing.at_seconds != self._listed_at:
            self._listed_at = listing.at_seconds
            self._targets.list(listing.topics)
            self._pacing.list(listing.topics)
        now_ms = self._brokers.now_ms()
        if now_ms is None:
            self._sender.wait(_LONGEST_WAIT_SECONDS)
            return
        may_send = self._membership.may_send()
        self._pacing.look(now_ms, len(self._levels) / max(listing.levels, 1))
        if may_send:
            self._claim(now_ms)
            self._forward(now_ms)
        now_ms = self._brokers.now_ms() or now_ms
        self._sender.settle(now_ms)
        self._release()
        if may_send and now_ms >= self._next_duties_ms:
            self._duties(now_ms)
        left_ms = self._heap.next_ms() - (self._brokers.now_ms() or now_ms)
        is_blocked = not may_send or not self._sender.has_room(now_ms)
        self._sender.wait(
            _LONGEST_WAIT_SECONDS if is_blocked else min(left_ms / 1000, _LONGEST_WAIT_SECONDS)
        )

    def _claim(self, now_ms: float) -> None:
        """Write this member's name beside a position that it took over, then read on there."""
        if self._keeper.started.empty() or now_ms < self._next_claim_ms:
            return
        level = self._keeper.started.get()  # one a pass: the others are not to wait for all
        if level.name in self._keeper.unwanted:
            level.close()
            self._keeper.release(level.name)
            return
        level.describe(self._membership.member, self._brokers.clock_ms)
        if not self._sender.commit([level], now_ms, wait=True):
            self._keeper.started.put(level)
            self._next_claim_ms = now_ms + _CLAIM_AGAIN_MS
            return
        level.start()
        level.committed = _words(level)
        self._levels[level.name] = level
        self._heap.schedule(level.name, now_ms)
        self._metrics.level_topics.set(len(self._levels))

    def _forward(self, now_ms: float) -> None:
        if self._heap.next_ms() > now_ms or not self._sender.has_room(now_ms):
            return
        levels = [self._levels[name] for name in self._heap.pop_due(now_ms)]
        allowed: list[tuple[Level, int]] = []
        again_ms: dict[str, float] = {}
        for level in levels:
            if not self._sender.has_room_for(level):  # it is slow: its brokers do not answer
                again_ms[level.name] = now_ms + _BLOCKED_MS
                continue
            due = level.count_due(now_ms)
            end = self._pacing.allowed(level, due, now_ms)
            allowed.append((level, end))
            if end < due:
                again_ms[level.name] = now_ms + _HELD_MS
        self._sender.send(allowed, now_ms)
        for level in levels:
            self._heap.schedule(level.name, again_ms.get(level.name) or level.next_ms(now_ms))

    def _release(self) -> None:
        """Let go of levels that another member is to have, once nothing of them is on its way."""
        for name in self._keeper.unwanted & self._levels.keys() | self._leaving:
            level = self._levels[name]
            level.is_leaving = True
            self._leaving.add(name)  # also if it is wanted again by then: it is taken over again
            if self._sender.is_idle(level):
                self._let_go(level)

    def _let_go(self, level: Level) -> None:
        level.go_back()
        level.describe(_NOBODY, self._brokers.clock_ms)
        self._sender.commit([level], self._brokers.now_ms() or 0.0, wait=True)
        self._drop(level)

    def _count_lost(self, level: Level) -> None:
        if level.newly_lost:
            self._metrics.lost.labels(level.topic.delay_seconds).inc(level.newly_lost)
            level.newly_lost = 0

    def _drop(self, level: Level) -> None:
        self._count_lost(level)
        self._sender.forget(level)
        self._heap.drop(level.name)
        del self._levels[level.name]
        self._leaving.discard(level.name)
        level.close()
        self._keeper.release(level.name)
        self._metrics.level_topics.set(len(self._levels))

    def _duties(self, now_ms: float) -> None:
        """What is done each second: notes, and the share of memory that levels may read ahead."""
        self._next_duties_ms = now_ms + _DUTIES_MS
        self._metrics.clock_offset_seconds.set(self._brokers.clock_ms / 1000)
        changed = []
        for level in self._levels.values():
            level.describe(self._membership.member, self._brokers.clock_ms)
            age_ms = now_ms - level.committed_at_ms
            if age_ms >= _REFRESH_MS or (age_ms >= _NOTE_MS and _words(level) != level.committed):
                level.committed = _words(level)
                changed.append(level)
            share = read_ahead_bytes(self._keeper.listing.levels)
            self._count_lost(level)
            if level.read_ahead_bytes > 2 * share:
                settings = consumer_settings(self._settings, topics=self._keeper.listing.levels)
                level.read_with(Consumer(settings), share)
        if changed:
            self._sender.commit(changed, now_ms)

    def _finish(self) -> None:
        """Wait until everything that was sent has arrived, and commit it."""
        for level in self._levels.values():
            level.is_leaving = True
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end and not all(map(self._sender.is_idle, self._levels.values())):
            self._sender.wait(0.01)
            self._sender.settle(self._brokers.now_ms() or 0.0)

    def _close(self, *, commit: bool) -> None:
        self._keeper.end()
        levels = [*self._levels.values()]
        for level in levels:
            level.go_back()
            level.describe(_NOBODY, self._brokers.clock_ms)
        if commit:
            with contextlib.suppress(StartAgain):
                self._sender.commit(levels, self._brokers.now_ms() or 0.0, wait=True)
        for level in levels:
            self._drop(level)
        with contextlib.suppress(KafkaException, SystemError):  # a fenced producer fails here, too
            self._sender.close()
        self._keeper.close()
        self._pacing.close()
        if self._cancellations is not None:
            self._cancellations.end()
        while not self._keeper.started.empty():
            self._keeper.started.get().close()
        self._membership.close()
        self._brokers.close()


def _opened(
    settings: ForwarderSettings, membership: Membership, metrics: ForwarderMetrics
) -> Forwarder:
    try:
        return Forwarder(settings, membership, metrics)
    except KafkaException as error:
        membership.close()
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"librdkafka does not accept the connection's settings ({error.args[0].str()}). "
            "Nothing is forwarded. Correct the address or the login's files.",
        ) from error


def _words(level: Level) -> tuple[object, ...]:
    """What of a note is worth a commit when it changes."""
    note = level.note
    return note.owner, note.lost, note.dead, note.error, note.late_ms, round(note.clock_ms, -1)


def forward(
    open_membership: Callable[[str], Membership],
    member: str,
    settings: ForwarderSettings,
    metrics: ForwarderMetrics,
    stop: threading.Event,
) -> None:
    """Forward until `stop` is set, under a new name whenever the last one was taken over."""
    while not stop.is_set():
        # a name is used once: the member that takes over fences it for good
        try:
            membership = open_membership(f"{member}-{secrets.token_hex(3)}")
        except RetryLater as error:
            log.warning("cannot join the other members yet", error=error.message)
            stop.wait(_JOIN_AGAIN_SECONDS)
            continue
        try:
            _opened(settings, membership, metrics).run(stop)
        except StartAgain as reason:
            log.warning(
                "another member may have taken over; starts again under a new name",
                member=membership.member,
                reason=str(reason),
            )
            stop.wait(1)
