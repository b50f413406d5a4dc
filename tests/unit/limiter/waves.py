"""Waves of requests as the published test of a tiered limiter has them."""

import math
from collections.abc import Callable

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
