"""How long to wait after a pass that failed: doubling, with jitter, so that replicas do not knock in step.

It decides nothing about what failed; any pass that ends well resets it.
"""

import random
from collections.abc import Callable


class Backoff:
    """Seconds to the next try: `first`, then doubling up to `most`; each between half and all of that."""

    def __init__(
        self,
        *,
        first_seconds: float = 1.0,
        most_seconds: float = 30.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._jitter = jitter
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_seconds(self) -> float:
        """Count one more failure and say how long to wait because of it."""
        exponent = min(self._failures, 30)  # an overflow after a day of failures would be a poor way to end
        self._failures += 1
        whole = min(self._most_seconds, self._first_seconds * 2.0**exponent)
        return whole * (0.5 + 0.5 * self._jitter())
