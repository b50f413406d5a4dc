"""The windows that a run owns, and which samples it must read so that it neither loses nor doubles a byte at their edges.

A byte between two scrapes belongs to whatever lies between them, so an edge is decided by the last scrape before it and the first after
it. Both runs that meet at an edge read both scrapes and share the bytes out by the same arithmetic.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.schemas import FIVE_MINUTES_MS

WINDOW_MS: Final = FIVE_MINUTES_MS
BRIDGED_MS: Final = 3_600_000  # a counter that is not told for longer says nothing of when its bytes moved; they are left out
_HELD_INTERVALS: Final = 5  # a gap of more scrape intervals is a gap: nobody knows what was in it

Range = tuple[int, int]  # half-open, milliseconds since the epoch


@dataclass(frozen=True, slots=True)
class Windows:
    """Neighbouring windows of 5 minutes, [start_ms, end_ms), aligned to the epoch. ValueError for anything else."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        if self.start_ms % WINDOW_MS or self.end_ms % WINDOW_MS or self.start_ms >= self.end_ms:
            raise ValueError(f"[{self.start_ms}, {self.end_ms}) ms is no range of whole windows of {WINDOW_MS // 60_000} minutes")

    def __len__(self) -> int:
        return (self.end_ms - self.start_ms) // WINDOW_MS

    @property
    def edges_ms(self) -> NDArray[np.int64]:
        """Where windows begin, and where the last one ends."""
        return np.arange(self.start_ms, self.end_ms + 1, WINDOW_MS, dtype=np.int64)

    @property
    def starts_ms(self) -> NDArray[np.int64]:
        """Where windows begin."""
        return self.edges_ms[:-1]


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read of counters and of gauges, so that `Windows` can be folded. More does no harm; counters are few, so theirs is wide."""

    counters: Range
    gauges: Range


def reading_of(windows: Windows, interval_ms: int) -> Reading:
    """The ranges to ask for. The end may lie in the future: what is not there yet is distributed when the windows are folded again."""
    held = longest_hold_ms(interval_ms)
    wide = (windows.start_ms - BRIDGED_MS, windows.end_ms + BRIDGED_MS)
    return Reading(counters=wide, gauges=(windows.start_ms - held, windows.end_ms + held))


def longest_hold_ms(interval_ms: int) -> int:
    """How long at most a sample stands for the time before it: 5 scrape intervals, never more than a window."""
    if not 0 < interval_ms <= WINDOW_MS:
        raise ValueError(f"a scrape interval of {interval_ms} ms is not within 1 ms and {WINDOW_MS // 60_000} minutes")
    return min(_HELD_INTERVALS * interval_ms, WINDOW_MS)
