"""Exactly once: records and the positions behind them are committed in one transaction."""

import time
from collections.abc import Callable, Iterable

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.forwarder.level import Level
from tidegate.forwarder.outbox import Chunk, Failure, Outbox, StartAgain

log = structlog.get_logger(__name__)

_MOST_RECORDS = 20_000
_MOST_BYTES = 4 * 1024 * 1024
_INIT_SECONDS = 30.0
_CALL_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 0.05


class ExactlyOnce:
    """One transaction at a time, over all levels of this process.

    The producer is fenced as soon as another member takes over one of its levels; this process then
    starts again with another name.
    """

    def __init__(self, producer: Producer, outbox: Outbox) -> None:
        self._producer = producer
        self._outbox = outbox

    def open(self) -> None:
        """Register for transactions."""
        self._producer.init_transactions(_INIT_SECONDS)

    def has_room(self, now_ms: float) -> bool:  # noqa: ARG002
        """Nothing is on its way between two calls."""
        return True

    def has_room_for(self, level: Level) -> bool:  # noqa: ARG002
        """Nothing is on its way between two calls."""
        return True

    def send(self, due: Iterable[tuple[Level, int]], now_ms: float) -> None:
        """Send as much as fits into one transaction, and commit it."""
        chunks: list[Chunk] = []
        records, size = 0, 0
        for level, end in due:
            if end <= level.sent or (chunks and level.is_careful):
                continue
            if not chunks:
                self._call(self._producer.begin_transaction)
            is_alone = level.is_careful
            end = min(end, level.sent + _MOST_RECORDS - records)
            chunk = self._outbox.put(level, end, now_ms, most_bytes=_MOST_BYTES - size)
            chunks.append(chunk)
            records, size = records + chunk.count, size + chunk.size_bytes
            if is_alone or chunk.failures or records >= _MOST_RECORDS or size >= _MOST_BYTES:
                break
        if chunks:
            self._end(chunks, now_ms)

    def settle(self, now_ms: float) -> None:
        """Nothing is left to do between two transactions."""

    def commit(self, levels: Iterable[Level], now_ms: float, *, wait: bool = False) -> bool:  # noqa: ARG002
        """Commit their positions in a transaction of their own; whether that was done."""
        levels = [*levels]
        if not levels:
            return True
        self._call(self._producer.begin_transaction)
        error = self._commit(levels)
        for level in levels:
            level.committed_at_ms = now_ms
        if error is not None:
            log.warning("positions not committed", error=error.str())
        return error is None

    def is_idle(self, level: Level) -> bool:  # noqa: ARG002
        """Nothing is on its way between two calls."""
        return True

    def forget(self, level: Level) -> None:
        """The level is not forwarded by this process any more."""

    def wait(self, seconds: float) -> None:
        """Wait for so long at most."""
        if seconds > 0:
            time.sleep(min(seconds, _LONGEST_WAIT_SECONDS))

    def close(self) -> None:
        """Forget what is not sent."""
        self._producer.purge()
        self._producer.flush(1)

    def _end(self, chunks: list[Chunk], now_ms: float) -> None:
        started = time.monotonic()
        levels = [chunk.level for chunk in chunks]
        error = None
        if any(chunk.failures for chunk in chunks):
            self._abort()
        else:
            error = self._commit(levels, sent=True)
            if error is None:
                self._outbox.metrics.commit_seconds.observe(time.monotonic() - started)
                for chunk in chunks:
                    self._outbox.arrived(chunk)
                    chunk.level.committed_at_ms = now_ms
                return
        if error is not None and not any(chunk.has_failed for chunk in chunks):
            for chunk in chunks:
                chunk.failures.append(Failure(error))
        is_alone = sum(chunk.count for chunk in chunks) <= 1
        for chunk in chunks:
            self._outbox.recover(chunk.level, chunk.failures, now_ms, is_alone=is_alone)

    def _commit(self, levels: list[Level], *, sent: bool = False) -> KafkaError | None:
        """Commit the transaction; an error means that it was aborted."""
        offsets = [level.offset(after=level.sent if sent else 0) for level in levels]
        group = levels[0].consumer.consumer_group_metadata()
        error = self._call(
            lambda: self._producer.send_offsets_to_transaction(offsets, group, _CALL_SECONDS)
        ) or self._call(lambda: self._producer.commit_transaction(_CALL_SECONDS))
        if error is not None:
            self._abort()
        return error

    def _abort(self) -> None:
        error = self._call(lambda: self._producer.abort_transaction(_CALL_SECONDS))
        if error is not None:
            raise StartAgain(f"the transaction could not be aborted: {error.str()}")

    @staticmethod
    def _call(request: Callable[[], object]) -> KafkaError | None:
        """The error that the transaction has to be aborted for.

        Raises StartAgain for one that ends the producer, such as being fenced.
        """
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                request()
                return None
            except KafkaException as failed:
                error = failed.args[0]
            if error.txn_requires_abort():
                return error
            if error.fatal() or not error.retriable() or time.monotonic() > give_up_at:
                raise StartAgain(error.str())
