"""At least once: records are committed in order once their targets have acknowledged them."""

import time
from collections import defaultdict, deque
from collections.abc import Iterable

import structlog
from confluent_kafka import KafkaException, Producer

from tidegate.forwarder.level import Level
from tidegate.forwarder.outbox import Chunk, Outbox

log = structlog.get_logger(__name__)

_MOST_OPEN = 4  # full chunks; librdkafka's threads spin once a broker has five requests open
_MOST_BYTES = 8 * 1024 * 1024  # of a chunk
_SLOW_MS = 100.0  # what takes longer waits for a broker, and others do not wait for it
_COMMIT_MS = 20.0
_LONGEST_WAIT_SECONDS = 0.05


class AtLeastOnce:
    """Sends chunks and commits what has arrived. Delivery reports only count; this commits.

    A small chunk is open alone, and what falls due meanwhile is the next one.
    """

    def __init__(self, producer: Producer, outbox: Outbox) -> None:
        self._producer = producer
        self._outbox = outbox
        self._chunks: dict[str, deque[Chunk]] = defaultdict(deque)
        self._uncommitted: dict[str, Level] = {}

    def open(self) -> None:
        """Nothing has to be done before the first record."""

    def has_room(self, now_ms: float) -> bool:
        """Whether anything more may be sent now."""
        fresh = [
            chunk
            for chunks in self._chunks.values()
            for chunk in chunks
            if chunk.left > 0 and now_ms - chunk.opened_ms < _SLOW_MS
        ]
        return not fresh or (len(fresh) < _MOST_OPEN and all(chunk.is_full for chunk in fresh))

    def has_room_for(self, level: Level) -> bool:
        """Whether more of this level may be sent: not while something of it fails or is slow."""
        chunks = self._chunks[level.name]
        if any(chunk.failures for chunk in chunks):
            return False
        return not chunks or (
            len(chunks) < _MOST_OPEN
            and not level.is_careful
            and all(chunk.is_full for chunk in chunks)
        )

    def send(self, due: Iterable[tuple[Level, int]], now_ms: float) -> None:
        """Send each level's messages up to that one."""
        for level, end in due:
            chunks = self._chunks[level.name]
            if end > level.sent:
                chunk = self._outbox.put(level, end, now_ms, most_bytes=_MOST_BYTES)
                if chunk.count or chunk.failures:
                    chunks.append(chunk)

    def settle(self, now_ms: float) -> None:
        """Commit what has arrived, in order, and go back where something has not."""
        self._producer.poll(0)
        for name in [name for name, chunks in self._chunks.items() if chunks]:
            self._settle(self._chunks[name], now_ms)
        for level in [
            level
            for level in self._uncommitted.values()
            if now_ms - level.committed_at_ms >= _COMMIT_MS
        ]:
            self.commit([level], now_ms)

    def commit(self, levels: Iterable[Level], now_ms: float, *, wait: bool = False) -> bool:
        """Commit their positions; with `wait` whether that was done."""
        is_done = True
        for level in levels:
            self._uncommitted.pop(level.name, None)
            level.committed_at_ms = now_ms
            try:
                level.consumer.commit(offsets=[level.offset()], asynchronous=not wait)
            except KafkaException as error:
                log.warning("position not committed", topic=level.name, error=str(error))
                self._uncommitted[level.name] = level
                is_done = False
        return is_done

    def is_idle(self, level: Level) -> bool:
        """Whether nothing of the level is on its way."""
        return not self._chunks[level.name]

    def forget(self, level: Level) -> None:
        """The level is not forwarded by this process any more."""
        self._chunks.pop(level.name, None)
        self._uncommitted.pop(level.name, None)

    def wait(self, seconds: float) -> None:
        """Wait for so long at most, less if a delivery report comes."""
        if any(self._chunks.values()) or self._uncommitted:
            self._producer.poll(max(0.0, min(seconds, _COMMIT_MS / 1000)))
        elif seconds > 0.003:
            self._producer.poll(min(seconds, _LONGEST_WAIT_SECONDS) - 0.001)
        elif seconds > 0:
            time.sleep(seconds)

    def close(self) -> None:
        """Forget what is not sent."""
        self._producer.purge()
        self._producer.flush(1)

    def _settle(self, chunks: deque[Chunk], now_ms: float) -> None:
        level = chunks[0].level
        while chunks and not chunks[0].left and not chunks[0].failures:
            chunk = chunks.popleft()
            self._outbox.metrics.commit_seconds.observe(max(0.0, now_ms - chunk.opened_ms) / 1000)
            self._outbox.arrived(chunk)
            self._uncommitted[level.name] = level
        if any(chunk.failures for chunk in chunks) and not any(chunk.left for chunk in chunks):
            failures = [failure for chunk in chunks for failure in chunk.failures]
            count = sum(chunk.count for chunk in chunks)
            chunks.clear()
            self._outbox.recover(level, failures, now_ms, is_alone=count <= 1)
