"""One counter of bytes -> whole bytes by window. Nothing is lost or doubled at edges: the sum over windows is what the counter grew by.

`rate()` and `increase()` extrapolate, and differently in each version of Prometheus; this takes plain differences of samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.nics import NIC_LABELS
from tidegate.rollup.fold.windows import BRIDGED_MS, Rate, Windows, interval_between, longest_hold_ms, rates_at
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


# All series that count a broker's bytes of one kind -> bytes by window, and the time in which they
# were over a limit.
#
# A teller is one exporter with all its NICs, as the control pass sees them
# (`prometheus.nic_spans`). One may take over from another
# (a Pod that moved): both count. Two at once tell the same bytes twice: the one that covers more
# of a window is believed there.


_Nic = tuple[Whole, Whole]  # times, counts
Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """By window: bytes, how many milliseconds of it are covered, and in how many of these the rate was over the limit (0 without one)."""

    counted_bytes: Whole
    covered_ms: Whole
    over_limit_ms: Whole


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What one teller says. Within a window it has something to say from `from_ms` to `until_ms`."""

    counted: Counted
    from_ms: Whole
    until_ms: Whole


def counted(series: Sequence[SeriesSamples], windows: Windows, *, interval_ms: int, limit: Rate | None = None) -> Counted:
    """What these series count together. Without any, zeros that cover nothing."""
    told = [_told(nics, windows, interval_ms, limit) for nics in _tellers(series, interval_ms)]
    nothing = np.zeros(len(windows), np.int64)
    if len(told) < 2:
        return told[0].counted if told else Counted(nothing, nothing, nothing)
    believed = np.array([_believed(told, window) for window in range(len(windows))]).T
    return Counted(
        counted_bytes=(np.stack([one.counted.counted_bytes for one in told]) * believed).sum(axis=0),
        covered_ms=(np.stack([one.counted.covered_ms for one in told]) * believed).sum(axis=0),
        over_limit_ms=(np.stack([one.counted.over_limit_ms for one in told]) * believed).sum(axis=0),
    )


def _believed(told: Sequence[_Told], window: int) -> list[bool]:
    """Whom to believe in this window: who covers most of it, and then whoever overlaps with nobody believed already."""
    order = sorted(range(len(told)), key=lambda number: -int(told[number].counted.covered_ms[window]))
    chosen: list[int] = []
    for number in order:
        begins, ends = told[number].from_ms[window], told[number].until_ms[window]
        apart = all(begins >= told[other].until_ms[window] or ends <= told[other].from_ms[window] for other in chosen)
        if apart and told[number].counted.covered_ms[window] > 0:
            chosen.append(number)
    return [number in chosen for number in range(len(told))]


def _tellers(series: Sequence[SeriesSamples], interval_ms: int) -> Iterator[list[_Nic]]:
    """The NICs of each teller, in the order of their labels. One that was away for longer than is bridged is another one afterwards."""
    sources: dict[tuple[tuple[str, str], ...], list[_Nic]] = {}
    for one in series:
        source = tuple(sorted((name, value) for name, value in one.labels.items() if name not in NIC_LABELS))
        sources.setdefault(source, []).append(whole_counts(one, interval_ms))
    for _, nics in sorted(sources.items()):
        yield from _stretches([nic for nic in nics if len(nic[0])])


def _stretches(nics: list[_Nic]) -> Iterator[list[_Nic]]:
    if not nics:
        return
    times = np.unique(np.concatenate([times for times, _ in nics]))
    cuts = times[1:][np.diff(times) > BRIDGED_MS]
    for begins, ends in zip([times[0], *cuts], [*cuts, times[-1] + 1], strict=True):
        within = [(times >= begins) & (times < ends) for times, _ in nics]
        yield [(times[kept], counts[kept]) for (times, counts), kept in zip(nics, within, strict=True) if kept.any()]


def _told(nics: list[_Nic], windows: Windows, interval_ms: int, limit: Rate | None) -> _Told:
    edges, times = windows.edges_ms, np.unique(np.concatenate([times for times, _ in nics]))
    over = np.zeros(len(times) - 1, np.int64)
    if limit is not None:
        own_interval_ms = interval_between([times for times, _ in nics])  # NICs may be scraped less often than brokers
        over = _over_ms(nics, times, rates_at(limit, times[1:]), longest_hold_ms(max(interval_ms, own_interval_ms)))
    return _Told(
        counted=Counted(
            counted_bytes=np.sum([bytes_by_window(*nic, edges) for nic in nics], axis=0),
            covered_ms=spread(times, np.diff(times), edges),
            over_limit_ms=spread(times, over, edges),
        ),
        from_ms=np.clip(times[0], edges[:-1], edges[1:]),
        until_ms=np.clip(times[-1], edges[:-1], edges[1:]),
    )


def _over_ms(nics: list[_Nic], times: Whole, limits: Rates, longest_ms: int) -> Whole:
    """From each scrape to the next: its length where the mean rate over it was above the limit at its end, else 0.

    As in `nic_spans`, nobody knows the rate where a NIC came, went or began anew, nor here over a gap.
    """
    counts = np.full((len(nics), len(times)), -1, np.int64)
    for row, (nic_times, nic_counts) in zip(counts, nics, strict=True):
        row[np.searchsorted(times, nic_times)] = nic_counts
    before, now, spans = counts[:, :-1], counts[:, 1:], np.diff(times)
    present = ((before >= 0) == (now >= 0)).all(axis=0)
    unbroken = (now >= before).all(axis=0) & present & (spans <= longest_ms)
    grown = np.where(before >= 0, now - before, 0).sum(axis=0)
    return np.where(unbroken & (grown * 1000 > limits * spans), spans, 0)
