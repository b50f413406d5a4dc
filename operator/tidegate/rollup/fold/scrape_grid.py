"""When a broker's gauges were scraped, in which window that was, and how much of each window was looked at."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.windows import WINDOW_MS, Windows, longest_hold_ms

Whole = NDArray[np.int64]

_MARKED_MS: Final = 100_000_000  # a day and more; as many bytes
_FAR_MS: Final = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class ScrapeGrid:
    """Scrapes in rising order, each with the window in whose course, or at whose end, it was made.

    Windows are columns: column 0 of everything by window is what lies before them, the last column what lies after.
    `since_edge_ms` is how long that window had lasted; what a scrape stands for beyond that belongs to the window before.
    """

    windows: Windows
    interval_ms: int
    times_ms: Whole
    column: Whole
    since_edge_ms: Whole

    @property
    def columns(self) -> int:
        return len(self.windows) + 2

    @property
    def scrapes(self) -> int:
        return len(self.times_ms)

    def covered_ms(self) -> Whole:
        """How much of each window was looked at: the time from scrape to scrape, and one interval before the first or after a gap."""
        gaps = np.diff(self.times_ms, prepend=-_FAR_MS)
        held = np.where(gaps <= longest_hold_ms(self.interval_ms), gaps, self.interval_ms)
        main = np.minimum(held, self.since_edge_ms)
        found = np.zeros(self.columns, np.int64)
        np.add.at(found, self.column, main)
        np.add.at(found, self.column - 1, held - main)
        return found[1:-1]


def scrape_grid(times_ms: Whole, windows: Windows, interval_ms: int) -> ScrapeGrid:
    """`times_ms` rise."""
    window = (times_ms - 1 - windows.start_ms) // WINDOW_MS  # a scrape at an edge tells of the window that ends there
    since = times_ms - windows.start_ms - window * WINDOW_MS
    near = (window >= 0) & (window <= len(windows))
    return ScrapeGrid(windows, interval_ms, times_ms, np.clip(window + 1, 0, len(windows) + 1), np.where(near, since, _FAR_MS))


def scrape_times(times_of_series: Iterable[Whole]) -> Whole:
    """The distinct times of all samples, rising."""
    times = np.concatenate([np.empty(0, np.int64), *times_of_series])
    if not len(times):
        return times
    first, last = int(times.min()), int(times.max())
    if last - first >= _MARKED_MS:
        return np.unique(times)
    marked = np.zeros(last - first + 1, bool)  # thousands of series share a few hundred times: marking is cheaper than sorting
    marked[times - first] = True
    return np.flatnonzero(marked) + first
