"""Which time a Job's run computes: the hours that its window touches, and again those that late samples may have changed."""

from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS

LATE_MS = 2 * HOUR_MS
# Hours that ended longer ago are left alone: nothing comes so late, and a server that begins to forget them would tell less than before.
NOT_AGAIN_AFTER_MS = DAY_MS
SETTLE_MS = 180_000


def run_span(start_ms: int, end_ms: int, *, now_ms: int) -> tuple[int, int]:
    """From a whole hour to a whole window of 5 minutes, around [start_ms, end_ms).

    Whatever of the last hour is over is in it, so that a window that is computed late never takes from an hour what later ones put there.
    Raises InvalidResource for a window that is not over or not of whole five minutes.
    """
    if start_ms % FIVE_MINUTES_MS or end_ms % FIVE_MINUTES_MS or start_ms >= end_ms:
        raise InvalidResource(f"[{start_ms}, {end_ms}) ms is no window of whole five minutes; nothing is computed.")
    if end_ms > now_ms:
        raise InvalidResource(f"The window ends in {(end_ms - now_ms) / 1000:.0f} s; only what is over can be computed. Ask again then.")
    first_ms = start_ms - start_ms % HOUR_MS
    if now_ms - first_ms <= NOT_AGAIN_AFTER_MS:
        first_ms -= LATE_MS
    over_ms = now_ms - SETTLE_MS
    return first_ms, max(end_ms, min(end_ms + -end_ms % HOUR_MS, over_ms - over_ms % FIVE_MINUTES_MS))
