"""For how long before it a sample of a client's gauge stands.

A gauge tells a mean of the seconds before it was read, so a sample stands for the time since the client's sample before: over a lost
scrape too, but not where the exporter told of others meanwhile and had nothing to say of this client (Kafka forgets idle ones, and NaN
of nobody throttled is left out). Scrapes of one exporter may have two rhythms, where a pair of Prometheus servers was merged series by
series: only what is nearly an interval away from a sample is another scrape.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.scrape_grid import ScrapeGrid
from tidegate.rollup.fold.windows import longest_hold_ms

Whole = NDArray[np.int64]

_USUAL_INTERVALS: Final = 1.5
_ANOTHER_INTERVALS: Final = 0.75


def held_ms(client: NDArray[np.int32], scrape: Whole, grid: ScrapeGrid) -> Whole:
    """For samples in rising order of client and scrape. A client's first sample, or one after a gap, stands for one interval."""
    times, longest = grid.times_ms[scrape], longest_hold_ms(grid.interval_ms)
    held = np.diff(times, prepend=0)
    held[np.diff(client, prepend=-1) != 0] = grid.interval_ms
    long = np.flatnonzero(held > min(_USUAL_INTERVALS * grid.interval_ms, longest))
    looked = _scrapes_between(times[long] - held[long], times[long], grid) > 0
    held[long[looked | (held[long] > longest)]] = grid.interval_ms
    return held


def scrapes_around(grid: ScrapeGrid) -> tuple[Whole, Whole]:
    """Of each scrape the first and one past the last that are the same reading, by whichever server of a pair."""
    apart = _ANOTHER_INTERVALS * grid.interval_ms
    first = np.searchsorted(grid.times_ms, grid.times_ms - apart, side="right")
    return first, np.searchsorted(grid.times_ms, grid.times_ms + apart, side="left")


def _scrapes_between(begin_ms: Whole, end_ms: Whole, grid: ScrapeGrid) -> Whole:
    apart = _ANOTHER_INTERVALS * grid.interval_ms
    first = np.searchsorted(grid.times_ms, begin_ms + apart, side="left")
    return np.searchsorted(grid.times_ms, end_ms - apart, side="right") - first
