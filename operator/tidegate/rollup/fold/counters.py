"""One counter of bytes -> whole bytes by window. Nothing is lost or doubled at edges: the sum over windows is what the counter grew by.

`rate()` and `increase()` extrapolate, and differently in each version of Prometheus; this takes plain differences of samples.
"""

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.windows import BRIDGED_MS
from tidegate.rollup.samples import SeriesSamples

Whole = NDArray[np.int64]

_LARGEST = 2.0**62
_NO_RESTART_MS = 1000


def whole_counts(series: SeriesSamples, interval_ms: int) -> tuple[Whole, Whole]:
    """Times and counts without what is no number of bytes, and without falls that no restart explains.

    A pair of Prometheus servers stamps the same counter with two clocks: between two samples within a second a count may fall a little,
    and to take that for a restart would add the whole count once more.
    """
    valid = (series.values >= 0) & (series.values < _LARGEST)
    times, counts = series.times_ms[valid], np.rint(series.values[valid]).astype(np.int64)
    close = np.diff(times) < min(_NO_RESTART_MS, interval_ms // 2)
    kept = np.concatenate(([True], ~(close & (np.diff(counts) < 0)))) if len(times) else np.empty(0, bool)
    return times[kept], counts[kept]


def growth(counts: Whole) -> Whole:
    """By how much it grew from each sample to the next. A count that fell began anew: it grew by what it shows, at least."""
    grown = np.diff(counts)
    return np.where(grown < 0, counts[1:], grown)


def bytes_by_window(times_ms: Whole, counts: Whole, edges_ms: Whole) -> Whole:
    """Bytes between each two edges. What came before the first sample, and in a gap too long to bridge, nobody knows: it is left out."""
    grown = growth(counts)
    grown[np.diff(times_ms) > BRIDGED_MS] = 0
    return spread(times_ms, grown, edges_ms)


def spread(times_ms: Whole, amounts: Whole, edges_ms: Whole) -> Whole:
    """Whole amounts, one from each time to the next, spread evenly over that time: how much of them lies between each two edges.

    Rounded by what has come until an edge, so neighbouring windows, and runs that meet at an edge, add up to exactly the amounts.
    """
    if len(times_ms) < 2:
        return np.zeros(len(edges_ms) - 1, np.int64)
    sums = np.concatenate(([0], np.cumsum(amounts)))
    after = np.searchsorted(times_ms, edges_ms, side="left")
    before = np.clip(after - 1, 0, len(amounts) - 1)
    part = np.clip(edges_ms - times_ms[before], 0, times_ms[before + 1] - times_ms[before])
    until = sums[before] + _share(amounts[before], part, times_ms[before + 1] - times_ms[before])
    return np.diff(until)


def _share(amount: Whole, part: Whole, whole: Whole) -> Whole:
    """amount * part / whole, rounded down, where the product would not fit into 64 bits."""
    times, rest = np.divmod(amount, whole)
    return times * part + rest * part // whole
