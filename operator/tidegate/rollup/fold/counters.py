"""Turn counters of bytes into whole bytes by window, which add up to the counter's growth.

`rate()` and `increase()` extrapolate, and differently in each version of Prometheus. This takes
plain differences of samples; at an edge no byte is lost or doubled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.nics import NIC_LABELS
from tidegate.rollup.fold.windows import (
    BRIDGED_MS,
    Rate,
    Windows,
    interval_between,
    longest_hold_ms,
    rates_at,
)
from tidegate.rollup.samples import SeriesSamples

Whole = NDArray[np.int64]

_LARGEST = 2.0**62
_NO_RESTART_MS = 1000


def whole_counts(series: SeriesSamples, interval_ms: int) -> tuple[Whole, Whole]:
    """Return times and counts that are numbers of bytes, without falls that no restart explains.

    A pair of Prometheus servers stamps the same counter with two clocks. Between two samples within
    a second a count may fall a little. Taking that for a restart would add the whole count once
    more.
    """
    valid = (series.values >= 0) & (series.values < _LARGEST)
    times, counts = series.times_ms[valid], np.rint(series.values[valid]).astype(np.int64)
    close = np.diff(times) < min(_NO_RESTART_MS, interval_ms // 2)
    kept = (
        np.concatenate(([True], ~(close & (np.diff(counts) < 0))))
        if len(times)
        else np.empty(0, bool)
    )
    return times[kept], counts[kept]


def growth(counts: Whole) -> Whole:
    """Return the growth between samples; a reset one grew by its new value at least."""
    grown = np.diff(counts)
    return np.where(grown < 0, counts[1:], grown)


def bytes_by_window(times_ms: Whole, counts: Whole, edges_ms: Whole) -> Whole:
    """Return the bytes between edges, none before the first sample or in an unbridged gap."""
    grown = growth(counts)
    grown[np.diff(times_ms) > BRIDGED_MS] = 0
    return spread(times_ms, grown, edges_ms)


def spread(times_ms: Whole, amounts: Whole, edges_ms: Whole) -> Whole:
    """Spread whole amounts evenly between their times; return the part between each two edges.

    The running sum is rounded at each edge. So neighbouring windows, and runs that meet at an edge,
    add up to exactly the amounts.
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
    """Return amount * part / whole, rounded down, for products beyond 64 bits too."""
    times, rest = np.divmod(amount, whole)
    return times * part + rest * part // whole


# Several series of one broker: a source is one exporter with all its NICs, as the operator reads
# them (`prometheus.nics.nic_spans`). One source may follow another (a Pod that moved): both count.
# Two at the same time count the same bytes twice: the one that covers more of a window is taken.


_Nic = tuple[Whole, Whole]  # times, counts
Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Bytes, covered milliseconds and milliseconds over the limit (0 without one), by window."""

    counted_bytes: Whole
    covered_ms: Whole
    over_limit_ms: Whole


@dataclass(frozen=True, slots=True, eq=False)
class _SourceCounts:
    """The counts of one source. Within a window they reach from `from_ms` to `until_ms`."""

    counted: Counted
    from_ms: Whole
    until_ms: Whole


def counted(
    series: Sequence[SeriesSamples],
    windows: Windows,
    *,
    interval_ms: int,
    limit: Rate | None = None,
) -> Counted:
    """Count the bytes of these series together; without series, zeros that cover nothing."""
    sources = [
        _source_counts(nics, windows, interval_ms, limit) for nics in _sources(series, interval_ms)
    ]
    nothing = np.zeros(len(windows), np.int64)
    if len(sources) < 2:
        return sources[0].counted if sources else Counted(nothing, nothing, nothing)
    taken = np.array([_taken(sources, window) for window in range(len(windows))]).T
    return Counted(
        counted_bytes=(np.stack([one.counted.counted_bytes for one in sources]) * taken).sum(
            axis=0
        ),
        covered_ms=(np.stack([one.counted.covered_ms for one in sources]) * taken).sum(axis=0),
        over_limit_ms=(np.stack([one.counted.over_limit_ms for one in sources]) * taken).sum(
            axis=0
        ),
    )


def _taken(sources: Sequence[_SourceCounts], window: int) -> list[bool]:
    """Choose the window's sources, most covered time first, none that overlaps another."""
    order = sorted(
        range(len(sources)), key=lambda number: -int(sources[number].counted.covered_ms[window])
    )
    chosen: list[int] = []
    for number in order:
        begins, ends = sources[number].from_ms[window], sources[number].until_ms[window]
        apart = all(
            begins >= sources[other].until_ms[window] or ends <= sources[other].from_ms[window]
            for other in chosen
        )
        if apart and sources[number].counted.covered_ms[window] > 0:
            chosen.append(number)
    return [number in chosen for number in range(len(sources))]


def _sources(series: Sequence[SeriesSamples], interval_ms: int) -> Iterator[list[_Nic]]:
    """Yield the NICs of each source by labels; after a gap too long to bridge it is another one."""
    by_labels: dict[tuple[tuple[str, str], ...], list[_Nic]] = {}
    for one in series:
        labels = tuple(
            sorted((name, value) for name, value in one.labels.items() if name not in NIC_LABELS)
        )
        by_labels.setdefault(labels, []).append(whole_counts(one, interval_ms))
    for _, nics in sorted(by_labels.items()):
        yield from _stretches([nic for nic in nics if len(nic[0])])


def _stretches(nics: list[_Nic]) -> Iterator[list[_Nic]]:
    if not nics:
        return
    times = np.unique(np.concatenate([times for times, _ in nics]))
    cuts = times[1:][np.diff(times) > BRIDGED_MS]
    for begins, ends in zip([times[0], *cuts], [*cuts, times[-1] + 1], strict=True):
        within = [(times >= begins) & (times < ends) for times, _ in nics]
        yield [
            (times[kept], counts[kept])
            for (times, counts), kept in zip(nics, within, strict=True)
            if kept.any()
        ]


def _source_counts(
    nics: list[_Nic], windows: Windows, interval_ms: int, limit: Rate | None
) -> _SourceCounts:
    edges, times = windows.edges_ms, np.unique(np.concatenate([times for times, _ in nics]))
    over = np.zeros(len(times) - 1, np.int64)
    if limit is not None:
        # NICs may be scraped less often than brokers
        own_interval_ms = interval_between([times for times, _ in nics])
        over = _over_ms(
            nics,
            times,
            rates_at(limit, times[1:]),
            longest_hold_ms(max(interval_ms, own_interval_ms)),
        )
    return _SourceCounts(
        counted=Counted(
            counted_bytes=np.sum([bytes_by_window(*nic, edges) for nic in nics], axis=0),
            covered_ms=spread(times, np.diff(times), edges),
            over_limit_ms=spread(times, over, edges),
        ),
        from_ms=np.clip(times[0], edges[:-1], edges[1:]),
        until_ms=np.clip(times[-1], edges[:-1], edges[1:]),
    )


def _over_ms(nics: list[_Nic], times: Whole, limits: Rates, longest_ms: int) -> Whole:
    """Return each span between scrapes if its rate was over the limit at its end, else 0.

    As in `nic_spans`, the rate is unknown where a NIC came, went or was reset, and here also over a
    gap.
    """
    counts = np.full((len(nics), len(times)), -1, np.int64)
    for row, (nic_times, nic_counts) in zip(counts, nics, strict=True):
        row[np.searchsorted(times, nic_times)] = nic_counts
    before, now, spans = counts[:, :-1], counts[:, 1:], np.diff(times)
    present = ((before >= 0) == (now >= 0)).all(axis=0)
    unbroken = (now >= before).all(axis=0) & present & (spans <= longest_ms)
    grown = np.where(before >= 0, now - before, 0).sum(axis=0)
    return np.where(unbroken & (grown * 1000 > limits * spans), spans, 0)
