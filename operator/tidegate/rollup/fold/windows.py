"""Windows of 5 minutes, the samples that a run must read for them, and the scrapes in them.

The bytes at an edge of a window are decided by the last scrape before it and the first one after
it. Two runs that meet at an edge both read both scrapes and share the bytes out by the same
arithmetic. So no byte is lost or counted twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import FIVE_MINUTES_MS

Rates = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A rate in bytes/s that changes at each of `from_ms`, which rise; infinite = none.

    Before the first time it is the first rate. Contracts change when they are edited or when
    leaders move, limits when they are raised.
    """

    from_ms: tuple[int, ...]
    rates: tuple[float, ...]

    @classmethod
    def of(cls, times_ms: Whole, rates: Rates) -> Self:
        """Build it from samples, one at least; only changes are kept."""
        kept = np.flatnonzero(np.append(True, rates[1:] != rates[:-1]))
        return cls(tuple(times_ms[kept].tolist()), tuple(rates[kept].tolist()))

    def at(self, times_ms: Whole) -> Rates:
        """Return the rate at each of these times."""
        places = np.searchsorted(np.array(self.from_ms, np.int64), times_ms, side="right") - 1
        return np.array(self.rates, np.float64)[np.maximum(places, 0)]


Rate = float | StepFunction


def rates_at(rate: Rate | None, times_ms: Whole) -> Rates:
    """Return the rate at each of these times, also of one that never changes; None = no rate."""
    if isinstance(rate, StepFunction):
        return rate.at(times_ms)
    return np.full(len(times_ms), np.inf if rate is None else rate, np.float64)


WINDOW_MS: Final = FIVE_MINUTES_MS
# over a longer gap of a counter it is unknown when its bytes moved; they are left out
BRIDGED_MS: Final = 3_600_000
RECENT_MS: Final = FIVE_MINUTES_MS  # beside a gap: what the rate was around it
_HELD_INTERVALS: Final = 5  # more scrape intervals without a sample are a gap: the rate is unknown

Range = tuple[int, int]  # half-open, milliseconds since the epoch


@dataclass(frozen=True, slots=True)
class Windows:
    """Whole 5-minute windows of [start_ms, end_ms), aligned to the epoch; else ValueError."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        if self.start_ms % WINDOW_MS or self.end_ms % WINDOW_MS or self.start_ms >= self.end_ms:
            raise ValueError(
                f"[{self.start_ms}, {self.end_ms}) ms is no range of whole windows of "
                f"{WINDOW_MS // 60_000} minutes"
            )

    def __len__(self) -> int:
        return (self.end_ms - self.start_ms) // WINDOW_MS

    @property
    def edges_ms(self) -> NDArray[np.int64]:
        """Starts of all windows, and the end of the last one."""
        return np.arange(self.start_ms, self.end_ms + 1, WINDOW_MS, dtype=np.int64)

    @property
    def starts_ms(self) -> NDArray[np.int64]:
        """Starts of all windows."""
        return self.edges_ms[:-1]


@dataclass(frozen=True, slots=True)
class Reading:
    """Ranges to read so that `Windows` can be folded; counters are few, so theirs is wide."""

    counters: Range
    gauges: Range


def reading_of(windows: Windows, interval_ms: int) -> Reading:
    """Return the ranges to read; samples in the future count when windows are folded again."""
    held = longest_hold_ms(interval_ms)
    margin_ms = BRIDGED_MS + RECENT_MS
    wide = (windows.start_ms - margin_ms, windows.end_ms + margin_ms)
    return Reading(counters=wide, gauges=(windows.start_ms - held, windows.end_ms + held))


def longest_hold_ms(interval_ms: int) -> int:
    """Return how long before it a sample may cover: 5 scrape intervals, at most a window."""
    if not 0 < interval_ms <= WINDOW_MS:
        raise ValueError(
            f"a scrape interval of {interval_ms} ms is not within 1 ms and {WINDOW_MS // 60_000} "
            f"minutes"
        )
    return min(_HELD_INTERVALS * interval_ms, WINDOW_MS)


_MARKED_MS: Final = 100_000_000  # a day and more; as many bytes
_MARKED_MS_OF_EACH: Final = 128  # to look at so many marks takes as long as to sort one time
_FAR_MS: Final = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class ScrapeGrid:
    """Scrapes of a broker's gauges, rising, each with the window in or at whose end it was made.

    Windows are columns. Column 0 of everything by window is the time before them, the last column
    the time after. `since_edge_ms` is the age of the window at the scrape. Time that a scrape
    covers beyond that belongs to the window before.
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
        """Return the covered time of each window, from scrape to scrape.

        The first scrape, and one after a gap, cover one interval.
        """
        gaps = np.diff(self.times_ms, prepend=-_FAR_MS)
        held = np.where(gaps <= longest_hold_ms(self.interval_ms), gaps, self.interval_ms)
        main = np.minimum(held, self.since_edge_ms)
        found = np.zeros(self.columns, np.int64)
        np.add.at(found, self.column, main)
        np.add.at(found, self.column - 1, held - main)
        return found[1:-1]


def scrape_grid(times_ms: Whole, windows: Windows, interval_ms: int) -> ScrapeGrid:
    """Assign each scrape to its window. `times_ms` rise."""
    # a scrape at an edge belongs to the window that ends there
    window = (times_ms - 1 - windows.start_ms) // WINDOW_MS
    since = times_ms - windows.start_ms - window * WINDOW_MS
    near = (window >= 0) & (window <= len(windows))
    return ScrapeGrid(
        windows,
        interval_ms,
        times_ms,
        np.clip(window + 1, 0, len(windows) + 1),
        np.where(near, since, _FAR_MS),
    )


def scrape_times(times_of_series: Iterable[Whole]) -> Whole:
    """Return the distinct times of all samples, rising."""
    times = np.concatenate([np.empty(0, np.int64), *times_of_series])
    if not len(times):
        return times
    first, last = int(times.min()), int(times.max())
    if last - first >= min(_MARKED_MS, _MARKED_MS_OF_EACH * len(times)):
        return np.unique(times)
    # thousands of series share a few hundred times: marking is cheaper than sorting
    marked = np.zeros(last - first + 1, bool)
    marked[times - first] = True
    return np.flatnonzero(marked) + first


# A run estimates the scrape interval once for all its tasks, so that they agree on gaps. It is in
# whole seconds, so that late scrapes and the choice of the hour do not change it.


_USUAL_MS: Final = 15_000  # as in metrics.scrapeIntervalSeconds of the policy
_ENOUGH_SERIES: Final = 64  # all series of an exporter have the same times


def estimated_interval_ms(series: Sequence[SeriesSamples]) -> int:
    """Return the median time between samples in ms, as whole seconds in 1 s to 5 min.

    15 s where no series has two samples.
    """
    return interval_between([one.times_ms for one in series])


def interval_between(times_of_series: Sequence[NDArray[np.int64]]) -> int:
    """Return the same of the rising times of each series."""
    gaps = [np.diff(times) for times in times_of_series[:_ENOUGH_SERIES] if len(times) > 1]
    if not gaps:
        return _USUAL_MS
    seconds = round(float(np.median(np.concatenate(gaps))) / 1000)
    return min(max(seconds, 1) * 1000, WINDOW_MS)


# A gauge is a mean over the seconds before it was read, so a sample covers the time since the
# client's sample before, also over a lost scrape. It does not cover a time in which the exporter
# reported other clients and not this one (Kafka forgets idle clients, and NaN is left out). Scrapes
# of one exporter may have two rhythms, where a pair of Prometheus servers was merged series by
# series. So only a scrape that is nearly an interval away from a sample is another one.


_USUAL_INTERVALS: Final = 1.5
_ANOTHER_INTERVALS: Final = 0.75


def sample_duration_ms(client: NDArray[np.int32], scrape: Whole, grid: ScrapeGrid) -> Whole:
    """Return the time that each sample covers. They are in rising order of client and scrape.

    A client's first sample, or one after a gap, covers one interval.
    """
    times, longest = grid.times_ms[scrape], longest_hold_ms(grid.interval_ms)
    held = np.diff(times, prepend=0)
    held[np.diff(client, prepend=-1) != 0] = grid.interval_ms
    long = np.flatnonzero(held > min(_USUAL_INTERVALS * grid.interval_ms, longest))
    looked = _scrapes_between(times[long] - held[long], times[long], grid) > 0
    held[long[looked | (held[long] > longest)]] = grid.interval_ms
    return held


def scrapes_around(grid: ScrapeGrid) -> tuple[Whole, Whole]:
    """Return for each scrape the first, and one past the last, that are the same reading.

    They may be of either server of a pair.
    """
    apart = _ANOTHER_INTERVALS * grid.interval_ms
    first = np.searchsorted(grid.times_ms, grid.times_ms - apart, side="right")
    return first, np.searchsorted(grid.times_ms, grid.times_ms + apart, side="left")


def _scrapes_between(begin_ms: Whole, end_ms: Whole, grid: ScrapeGrid) -> Whole:
    apart = _ANOTHER_INTERVALS * grid.interval_ms
    first = np.searchsorted(grid.times_ms, begin_ms + apart, side="left")
    return np.searchsorted(grid.times_ms, end_ms - apart, side="right") - first
