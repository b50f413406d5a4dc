"""The published test of a tiered limiter, in virtual time: 100 MB/s in refills of 10 ms; tier 0 a
wave with a peak of 100 MB/s, tiers 1 and 2 waves with peaks of 60 MB/s, each of two minutes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tidegate.limiter import Bucket

RATE = 100_000_000  # bytes per second
PEAKS = (100_000_000, 60_000_000, 60_000_000)  # bytes per second, by tier
REQUEST_BYTES = 128_000
_PERIOD_SECONDS = 120.0


def offers(tier: int, *, period_seconds: float = _PERIOD_SECONDS) -> Callable[[float], int]:
    """How many requests a tier makes until a time, beyond those it was asked for before."""
    peak, made = PEAKS[tier], 0

    def until(seconds: float) -> int:
        nonlocal made
        turn = 2 * math.pi / period_seconds
        offered_bytes = peak / 2 * (seconds - math.sin(turn * seconds) / turn)
        more = int(offered_bytes // REQUEST_BYTES) - made
        made += more
        return more

    return until


_OFFER_SECONDS = 360
_LONGEST_SECONDS = 900


@dataclass
class Replay:
    """Bytes by second and tier: what was asked for, and what was let by."""

    offered: list[list[int]] = field(
        default_factory=lambda: [[0, 0, 0] for _ in range(_LONGEST_SECONDS)]
    )
    passed: list[list[int]] = field(
        default_factory=lambda: [[0, 0, 0] for _ in range(_LONGEST_SECONDS)]
    )
    seconds: int = 0

    def waits(self, second: int) -> bool:
        """Whether bytes waited over the whole of that second."""
        until = range(second + 1)
        offered = sum(sum(self.offered[at]) for at in range(second))
        return offered > sum(sum(self.passed[at]) for at in until)

    def first(self, tier: int, below: float, *, start: int) -> int:
        """The first second from `start` on in which less than this share of the offer passed."""
        return next(
            at
            for at in range(start, self.seconds)
            if self.passed[at][tier] < below * self.offered[at][tier]
        )

    def back(self, tier: int, *, start: int) -> int:
        """The first second from `start` on in which it passes half of its peak again."""
        return next(
            at for at in range(start, self.seconds) if self.passed[at][tier] > PEAKS[tier] / 2
        )


def replay() -> Replay:
    """Play the waves until nobody waits any more."""
    bucket, seen = Bucket(RATE), Replay()
    feeds = [offers(tier) for tier in range(3)]
    for step in count():
        now = step / 400
        for ticket in bucket.advance(now):
            seen.passed[int((ticket.done_seconds or 0.0) + 1e-9)][ticket.tier] += ticket.size_bytes
        if now < _OFFER_SECONDS:
            for tier, feed in enumerate(feeds):
                for _ in range(feed(now)):
                    seen.offered[int(now)][tier] += REQUEST_BYTES
                    if bucket.put(REQUEST_BYTES, tier, now).done_seconds is not None:
                        seen.passed[int(now)][tier] += REQUEST_BYTES
        elif not bucket.waiting:
            break
    seen.seconds = int(now) + 1
    return seen
