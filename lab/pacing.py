"""When a load client may move its next bytes: at a steady rate, in steps, or flat out. It holds no clock; time comes in as a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RateStep:
    """From `after_seconds` on the client wants `bytes_per_second`; None means as much as it can get, 0 nothing."""

    after_seconds: float
    bytes_per_second: int | None


class Pacing:
    """The demand of one client over time.

    What could not be moved in time is made up for later, but never more than `catch_up_seconds` worth of it: 0 is a client whose
    demand is gone when it was not served, a large number one that keeps a backlog.
    """

    def __init__(self, steps: Sequence[RateStep], *, catch_up_seconds: float) -> None:
        """`steps` in order of time, the first at 0."""
        self._steps = tuple(steps)
        self._catch_up_seconds = catch_up_seconds
        self._owed_bytes = 0.0
        self._seen_seconds = 0.0

    def wait_seconds(self, elapsed_seconds: float) -> float:
        """How long to wait before the next bytes; 0 when they may move now. At a demand of nothing, a tenth of a second."""
        rate = self._rate_at(elapsed_seconds)
        self._owe(rate, elapsed_seconds)
        if rate is None or self._owed_bytes > 0:
            return 0.0
        return 0.1 if rate == 0 else -self._owed_bytes / rate

    def moved(self, moved_bytes: int) -> None:
        """Note that these bytes moved."""
        self._owed_bytes -= moved_bytes

    def _owe(self, rate: int | None, elapsed_seconds: float) -> None:
        if rate is None:
            self._owed_bytes = 0.0
        else:
            grown = self._owed_bytes + rate * (elapsed_seconds - self._seen_seconds)
            # One hundredth of a second is always allowed, or a client that is never behind could not send at all.
            self._owed_bytes = min(grown, rate * max(self._catch_up_seconds, 0.01))
        self._seen_seconds = elapsed_seconds

    def _rate_at(self, elapsed_seconds: float) -> int | None:
        begun = [step for step in self._steps if step.after_seconds <= elapsed_seconds]
        return begun[-1].bytes_per_second if begun else 0
