"""How many writes of the throttle go out now: spread evenly over one quota window, so that clients do not burst in step.

Cut in one moment, thirty flat-out clients sent their next window in the same second, 3.6 times the card's mean and more. Writes go one by
one, the last of many a tooth after the first (the rhythm of a throttled client), but no slower than one in each sample of the window. Those
that are due within half a sample share a pass. Recoveries and contracts that follow leaders are not held up here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import TypeVar

from controller_logic.model import QuotaWindow

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class WritePace:
    """A spread under way: the next write goes at `next_at_seconds`, the others `gap_seconds` apart.

    `left` were still waiting after the last one. It is over when a window has gone by since.
    """

    gap_seconds: float
    next_at_seconds: float
    left: int


@dataclass(frozen=True, slots=True)
class Paced:
    """How many of the waiting go now, how soon the next slot comes (None = none is left waiting), and what to remember."""

    now: int
    due_in_seconds: float | None
    pace: WritePace | None


def paced(waiting: Sequence[Item], pace: WritePace | None, window: QuotaWindow, *, now_seconds: float) -> Paced:
    """The share of `waiting` for this moment. All of them are gone after one tooth, whatever their number."""
    count = len(waiting)
    if pace is not None and abs(now_seconds - pace.next_at_seconds) > window.seconds:
        pace = None  # an old spread, or a clock that was set back
    if not count:
        return Paced(0, None, None if pace is None else replace(pace, left=0))
    gap_seconds, next_at_seconds = _going(count, pace, window, now_seconds=now_seconds)
    late_seconds = now_seconds - next_at_seconds
    due = min(count, 1 + floor(late_seconds / gap_seconds)) if late_seconds >= 0 else 0
    next_at_seconds += due * gap_seconds
    again_seconds = max(next_at_seconds - now_seconds, window.sample_seconds / 2) if due < count else None
    return Paced(due, again_seconds, WritePace(gap_seconds, next_at_seconds, count - due))


def _going(count: int, pace: WritePace | None, window: QuotaWindow, *, now_seconds: float) -> tuple[float, float]:
    """The gap between two writes, and when the next one goes. Time in which nobody waited is no credit for those who come later."""
    gap_seconds = min(float(window.sample_seconds), _tooth_seconds(window) / count)
    if pace is None:
        return gap_seconds, now_seconds
    if not pace.left:
        return gap_seconds, max(now_seconds, pace.next_at_seconds)
    return min(gap_seconds, pace.gap_seconds), pace.next_at_seconds


def _tooth_seconds(window: QuotaWindow) -> float:
    return float((window.samples + 1) * window.sample_seconds)
