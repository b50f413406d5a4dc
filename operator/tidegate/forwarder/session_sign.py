"""How long ago a session proved that it is alive, for both kinds of membership.

A process may be stopped and continued, or cut off, without any event that says so. So a session is
believed in only for a while after a request that the server answered, counted from when it was
*sent*: the server renewed the session no earlier than that.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def seconds_since_boot() -> float:
    """Monotonic seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SessionSign:
    """The last answered request of a session that ends after `timeout_seconds` without one.

    One thread reports answers; any thread may ask.
    """

    def __init__(self, timeout_seconds: float, clock: Clock) -> None:
        self._fresh_seconds = timeout_seconds * 2 / 3
        self._clock = clock
        self._asked_at = float("-inf")

    def answered(self, asked_at: float) -> None:
        """A request that was sent at `asked_at`, by this clock, has been answered."""
        self._asked_at = max(self._asked_at, asked_at)

    def is_fresh(self) -> bool:
        """Whether the last sign is younger than two thirds of the timeout."""
        return self._clock() - self._asked_at < self._fresh_seconds
