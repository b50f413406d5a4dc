"""The bucket in real time, for any number of threads.

One thread of its own wakes at each refill while someone waits, and sleeps otherwise.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import TracebackType

from tidegate.limiter.bucket import TIERS, Bucket, Notify, Ticket


class Limiter:
    """Bytes per second for all threads together; the settings are those of `Bucket`.

    Close it, or use it as a context, to end its thread.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        refill_seconds: float = 0.01,
        burst_seconds: float | None = None,
        debt_seconds: float | None = None,
        minimum_shares: Mapping[int, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted = threading.Condition(self._lock)
        self._bucket = Bucket(
            bytes_per_second,
            now_seconds=clock(),
            refill_seconds=refill_seconds,
            burst_seconds=burst_seconds,
            debt_seconds=debt_seconds,
            minimum_shares=minimum_shares,
        )
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def try_acquire(self, size_bytes: int, tier: int = 1) -> bool:
        """Whether the bytes may go now; False = not now, and nobody waits for them."""
        with self._lock:
            bucket, now_seconds = self._bucket, self._clock()
            if now_seconds < bucket.next_seconds:
                return bucket.take(size_bytes, tier)
            done = bucket.advance(now_seconds)
            taken = bucket.take(size_bytes, tier)
        _tell(done)
        return taken

    def acquire(
        self,
        size_bytes: int,
        tier: int = 1,
        *,
        key: Hashable = None,
        timeout_seconds: float | None = None,
    ) -> bool:
        """Wait until the bytes may go; False = they may not within the time, or it was closed.

        Without `timeout_seconds` it waits for as long as more important tiers take everything.
        Raises ValueError for less than 0 bytes or another tier, and RuntimeError after `close`.
        """
        if self.try_acquire(size_bytes, tier):
            return True
        turn = threading.Event()
        ticket = self.submit(size_bytes, tier, lambda _: turn.set(), key=key)
        if ticket.done_seconds is not None or turn.wait(timeout_seconds):
            return ticket.done_seconds is not None
        return not self.cancel(ticket)

    def submit(self, size_bytes: int, tier: int, notify: Notify, *, key: Hashable = None) -> Ticket:
        """Ask without waiting.

        A ticket with a `done_seconds` may go now, and `notify` is not called. Otherwise another
        thread calls it with the ticket, once, when the bytes may go, or when the limiter is closed
        (then `done_seconds` is None). It must not wait, or others wait for it. Raises RuntimeError
        after `close`.
        """
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the limiter is closed")
            now_seconds = self._clock()
            done = self._bucket.advance(now_seconds)
            ticket = self._bucket.put(size_bytes, tier, now_seconds, key=key, notify=notify)
            if ticket.done_seconds is None:
                self._watch()
        _tell(done)
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        """Give up a request; False = its bytes may go already."""
        with self._lock:
            return self._bucket.cancel(ticket)

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the rate, for those who wait already as well.

        Raises ValueError for a rate that is not more than 0.
        """
        with self._lock:
            done = self._bucket.set_rate(bytes_per_second, self._clock())
        _tell(done)

    def spread(self, size_bytes: int, seconds: float) -> None:
        """Change the rate so that so many bytes take so long, as an upload that is not urgent.

        Raises ValueError if either is not more than 0.
        """
        if not seconds > 0:
            raise ValueError("bytes cannot be spread over no time")
        self.set_rate(size_bytes / seconds)

    def oldest_age_seconds(self) -> Mapping[int, float]:
        """For each tier in which someone waits, for how long its oldest request has."""
        with self._lock:
            now_seconds = self._clock()
            since = {tier: self._bucket.oldest_seconds(tier) for tier in TIERS}
        return {tier: now_seconds - at for tier, at in since.items() if at is not None}

    def close(self) -> None:
        """End the thread. Requests that wait are called back, without their bytes."""
        with self._lock:
            self._closed.set()
            self._wanted.notify_all()
            thread, self._thread = self._thread, None
            left = self._bucket.cancel_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        _tell(left)

    def __enter__(self) -> "Limiter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _watch(self) -> None:
        """Have the thread look at refills. The lock is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="limiter", daemon=True)
            self._thread.start()
        self._wanted.notify()

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                while not self._bucket.waiting and not self._closed.is_set():
                    self._wanted.wait()
                left_seconds = self._bucket.next_seconds - self._clock()
            if left_seconds > 0:
                time.sleep(left_seconds)  # an Event's wait would wake later, and cost more
            with self._lock:
                done = self._bucket.advance(self._clock())
            _tell(done)


def _tell(done: Iterable[Ticket]) -> None:
    """Call back without the lock, so that a callback may ask for more."""
    for ticket in done:
        if ticket.notify is not None:
            ticket.notify(ticket)
