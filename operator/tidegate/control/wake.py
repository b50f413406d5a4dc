"""What wakes a control loop: an event only says that something changed, never what.

Concurrency: `poke` may be called from any thread and never blocks for long; `wait` belongs to the one loop. Object
events come in bursts (a person applies a folder), so `wait` lets a burst end, for a bounded time, before it returns.
Everything else is never delayed.
"""

import threading
import time
from enum import StrEnum


class Cause(StrEnum):
    """Why a pass runs; also a metric label."""

    OBJECTS = "objects"
    LEASE = "lease"
    METRICS = "metrics"
    BROKERS = "brokers"
    ROLLUPS = "rollups"
    TIMER = "timer"
    STOP = "stop"


QUIET_SECONDS = 0.02
LONGEST_BURST_SECONDS = 0.2


class Wakeup:
    """A sticky flag per cause: what was poked while nobody waited is found by the next `wait`."""

    def __init__(self, *, quiet_seconds: float = QUIET_SECONDS, longest_burst_seconds: float = LONGEST_BURST_SECONDS) -> None:
        self._quiet_seconds = quiet_seconds
        self._longest_burst_seconds = longest_burst_seconds
        self._changed = threading.Condition()
        self._causes: set[Cause] = set()
        self._pokes = 0

    def poke(self, cause: Cause) -> None:
        with self._changed:
            self._causes.add(cause)
            self._pokes += 1
            self._changed.notify_all()

    @property
    def stopping(self) -> bool:
        with self._changed:
            return Cause.STOP in self._causes

    def wait(self, timeout_seconds: float) -> frozenset[Cause]:
        """Return the causes since the last call, or TIMER once the time is over. STOP stays set for ever."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._causes), max(0.0, timeout_seconds))
            if not self._causes:
                return frozenset({Cause.TIMER})
            self._let_the_burst_end()
            causes = frozenset(self._causes)
            self._causes.intersection_update({Cause.STOP})
            return causes

    def _let_the_burst_end(self) -> None:
        ends_at = time.monotonic() + self._longest_burst_seconds
        while self._causes == {Cause.OBJECTS}:
            seen = self._pokes
            remaining = min(self._quiet_seconds, ends_at - time.monotonic())
            if remaining <= 0 or not self._changed.wait_for(lambda seen=seen: self._pokes != seen, remaining):  # type: ignore[misc]
                return
