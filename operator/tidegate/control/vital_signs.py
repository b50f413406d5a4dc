"""When each loop last came round, so that a probe can tell a loop that is dead or stuck from one that has nothing to do.

It judges time only: a pass that ends with an error is a sign of life.
"""

import threading
from collections.abc import Callable


class VitalSigns:
    """The last sign of life of every loop, by name, on the monotonic clock."""

    def __init__(self, now_seconds: Callable[[], float], stuck_after_seconds: float) -> None:
        self._now_seconds = now_seconds
        self._stuck_after_seconds = stuck_after_seconds
        self._lock = threading.Lock()
        self._last_seconds: dict[str, float] = {}

    def beat(self, loop: str) -> None:
        with self._lock:
            self._last_seconds[loop] = self._now_seconds()

    def forget(self, loop: str) -> None:
        """The loop ended as it should."""
        with self._lock:
            self._last_seconds.pop(loop, None)

    def complaint(self) -> str | None:
        """A sentence that names the loops without a sign of life for too long; None when all are well."""
        now_seconds = self._now_seconds()
        with self._lock:
            silent = {loop: now_seconds - last for loop, last in self._last_seconds.items()}
        stuck = [f"{loop} for {age:.0f} s" for loop, age in sorted(silent.items()) if age > self._stuck_after_seconds]
        return f"No sign of life from {', '.join(stuck)}; the limit is {self._stuck_after_seconds:.0f} s" if stuck else None
