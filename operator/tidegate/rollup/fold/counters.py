"""Turn counters of bytes into whole bytes by window, which add up to the counter's growth.

`rate()` and `increase()` extrapolate, and differently in each version of Prometheus. This takes
plain differences of samples; at an edge no byte is lost or doubled. What is ambiguous counts as
less: a byte that may not have moved is unattributed, and its time is not covered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.nics import NIC_LABELS
from tidegate.rollup.fold.clients import MOST_BYTES_PER_SECOND
from tidegate.rollup.fold.windows import (
    BRIDGED_MS,
    RECENT_MS,
    WINDOW_MS,
    Rate,
    Windows,
    interval_between,
    longest_hold_ms,
    rates_at,
)
from tidegate.rollup.samples import SeriesSamples

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
Flags = NDArray[np.bool_]

_LARGEST: Final = 2.0**62
_NO_RESTART_MS: Final = 1000
_UNKNOWN: Final = -1
# A sample's time is when the scrape began; the count is read up to so much later.
_READ_LATE_SECONDS: Final = 5
_BRIDGED_INTERVALS: Final = 2.5
_SMALL_FALL: Final = 0.01  # of the count; another reader of it, whose clock or answer is late
_DENIED_FALL: Final = 0.5  # likewise, where the process is known not to have restarted
_ENOUGH_WINDOWS: Final = 6
_SAME_GROWTH: Final = 0.1
_TIMES_RECENT: Final = 4  # the rate that a new address may begin with, over the one seen around


class Samples(NamedTuple):
    """Times and counts of one counter, and when its process started at each, -1 = unknown."""

    times_ms: Whole
    counts: Whole
    started_ms: Whole

    def within(self, begins_ms: int, ends_ms: int) -> "Samples":
        kept = (self.times_ms >= begins_ms) & (self.times_ms < ends_ms)
        return Samples(*(each[kept] for each in self))


class Growth(NamedTuple):
    """Bytes between each two times, and for how long of it they are known."""

    times_ms: Whole
    amounts: Whole
    known_ms: Whole


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


def without_small_falls(samples: Samples, interval_ms: int) -> Samples:
    """Return the samples without those below an earlier one that no restart explains.

    Two replicas whose samples are one series, or a scrape that was slow, show a count of a little
    earlier, within two intervals.
    """
    while len(samples.times_ms) > 1:
        near = np.diff(samples.times_ms) <= _BRIDGED_INTERVALS * interval_ms
        wrong = near & _small_falls(samples)
        if not wrong.any():
            return samples
        kept = np.concatenate(([True], ~wrong))
        samples = Samples(*(each[kept] for each in samples))
    return samples


def _small_falls(samples: Samples) -> Flags:
    """Whether a count fell by too little for a restart: less than 1 % of it, and less than half of
    it where the process is known to be the same.
    """
    before, started = samples.counts[:-1], samples.started_ms
    fall = before - samples.counts[1:]
    known = (started[:-1] != _UNKNOWN) & (started[1:] != _UNKNOWN)
    same = known & ~_differs(started[:-1], started[1:])
    small = np.where(same, fall < _DENIED_FALL * before, ~known & (fall < _SMALL_FALL * before))
    return np.asarray(small & (fall > 0))


def without_spikes(samples: Samples, most: float) -> Samples:
    """Return the samples without single ones that no NIC explains and the next one takes back."""
    times, counts, _ = samples
    if len(times) < 3:
        return samples
    rise, fall = np.diff(counts)[:-1], np.diff(counts)[1:]
    allowed = most * (np.diff(times)[:-1] / 1000 + _READ_LATE_SECONDS)
    spike = (rise > allowed) & (fall < 0) & (counts[2:] >= counts[:-2])
    kept = np.concatenate(([True], ~spike, [True]))
    return Samples(*(each[kept] for each in samples))


def growth(samples: Samples, *, most: float = MOST_BYTES_PER_SECOND) -> Growth:
    """Return how the counter grew; a restarted one by what it shows, since it started.

    More than `most` bytes per second is no growth. A process that restarted may be an exporter's
    of its own, whose restart is none of the broker's: a count that did not fall began at 0 only
    where the rate around explains it.
    """
    times, counts, started = samples
    if len(times) < 2:
        return Growth(times, np.zeros(0, np.int64), np.zeros(0, np.int64))
    spans, grown, now = np.diff(times), np.diff(counts), counts[1:]
    most_bytes = most * (spans / 1000 + _READ_LATE_SECONDS)
    known = started[1:] != _UNKNOWN
    since = np.where(known, np.clip(started[1:], times[:-1], times[1:]), times[:-1])
    began = known & _differs(started[:-1], started[1:]) & (started[1:] > times[:-1])
    restarted = (grown < 0) & (began | ~_small_falls(samples)) & (now <= most_bytes)
    grew = (grown >= 0) & (grown <= most_bytes) & (spans <= BRIDGED_MS)
    steady = Growth(times, np.where(grew, grown, 0), np.where(grew & ~began, spans, 0))
    for place in np.flatnonzero(began & (grown >= 0)):
        rate = _rate_around(steady, int(times[place]), int(times[place + 1]))
        lived_ms = int(times[place + 1] - since[place])
        restarted[place] = _began_at_zero(int(now[place]), lived_ms, rate, most)
    plausible = (restarted | grew) & (spans <= BRIDGED_MS)
    amounts = np.where(plausible, np.where(restarted, now, grown), 0)
    begins = np.where(known, since, times[:-1])
    for place in np.flatnonzero(restarted & ~known):
        rate = _rate_around(steady, int(times[place]), int(times[place + 1]))
        if rate:
            lasted_ms = int(min(now[place] / rate * 1000, spans[place]))
            begins[place] = times[place + 1] - lasted_ms
    return _with_starts(times, amounts, np.where(plausible, spans, 0), restarted, begins)


def _differs(one: Whole, other: Whole) -> Flags:
    """Whether these are the starts of two processes; the exporter rounds them."""
    return np.asarray(np.abs(one - other) > 1000)


def _began_at_zero(count: int, lived_ms: int, rate: float, most: float) -> bool:
    """Whether a process of this age may have counted all of it, at a rate like the one around."""
    return count <= min(most, _TIMES_RECENT * rate) * (lived_ms / 1000 + _READ_LATE_SECONDS)


def _rate_around(grown: Growth, begin_ms: int, end_ms: int) -> float:
    """Return the bytes per second in the minutes before or after, the higher; 0 where unknown.

    No further, so that runs that meet there find the same.
    """
    return max(
        _rate(grown, begin_ms - RECENT_MS, begin_ms), _rate(grown, end_ms, end_ms + RECENT_MS)
    )


def _rate(grown: Growth, begin_ms: int, end_ms: int) -> float:
    within = (grown.times_ms[:-1] >= begin_ms) & (grown.times_ms[1:] <= end_ms)
    within &= grown.known_ms > 0
    known_ms = int(grown.known_ms[within].sum())
    return float(grown.amounts[within].sum()) * 1000 / known_ms if known_ms else 0.0


def _with_starts(
    times: Whole, amounts: Whole, known: Whole, restarted: Flags, begins: Whole
) -> Growth:
    """Return the growth where a restarted counter's amount begins at its start and not before."""
    places = np.flatnonzero(restarted & (begins > times[:-1]) & (begins < times[1:]))
    if not len(places):
        return Growth(times, amounts, known)
    known = known.copy()
    known[places] = times[places + 1] - begins[places]
    return Growth(
        np.insert(times, places + 1, begins[places]),
        np.insert(amounts, places, 0),
        np.insert(known, places, 0),
    )


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


# Several series of one broker. A source is one exporter with all its NICs, as the operator reads
# them (`prometheus.nics.nic_spans`). One source may follow another (a Pod that moved, a target that
# was relabelled): these are a chain, and what was counted in between is the chain's. Two at the
# same time count the same bytes twice: the one that covers more of a window is taken.


_Labels = frozenset[tuple[str, str]]
_Part = tuple[str, ...]  # of a source: its values of `parts`


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two sources that counted different bytes of one broker in the same time.

    `labels` are those in which they differ, of the one and of the other.
    """

    labels: tuple[Mapping[str, str], Mapping[str, str]]
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Bytes, covered milliseconds and milliseconds over the limit (0 without one), by window."""

    counted_bytes: Whole
    covered_ms: Whole
    over_limit_ms: Whole
    contradiction: Contradiction | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Stretch:
    """The counters of one source over a time without a gap too long to bridge."""

    labels: _Labels
    parts: dict[_Part, Samples]

    @property
    def begin_ms(self) -> int:
        return min(int(each.times_ms[0]) for each in self.parts.values())

    @property
    def end_ms(self) -> int:
        return max(int(each.times_ms[-1]) for each in self.parts.values())


@dataclass(frozen=True, slots=True, eq=False)
class _ChainCounts:
    """The counts of one chain. Within a window they reach from `from_ms` to `until_ms`."""

    counted: Counted
    from_ms: Whole
    until_ms: Whole
    labels: _Labels


def counted(
    series: Sequence[SeriesSamples],
    windows: Windows,
    *,
    interval_ms: int,
    limit: Rate | None = None,
    starts: Sequence[SeriesSamples] = (),
    parts: Sequence[str] = NIC_LABELS,
    most: float = MOST_BYTES_PER_SECOND,
) -> Counted:
    """Count the bytes of these series together; without series, zeros that cover nothing.

    Series of a source that differ in labels of `parts` only are added up; without `parts` they are
    names of the same counter, and one counts. `starts` are the processes' start times in seconds,
    with labels that the counters have too. More than `most` bytes per second is no growth.
    """
    stretches = [
        each
        for labels, found in _sources(series, starts, parts, interval_ms, most)
        for each in _stretches(labels, found)
    ]
    chains = [
        _chain_counts(chain, windows, interval_ms, limit, most) for chain in _chains(stretches)
    ]
    nothing = np.zeros(len(windows), np.int64)
    if len(chains) < 2:
        return chains[0].counted if chains else Counted(nothing, nothing, nothing)
    taken = np.array([_taken(chains, window) for window in range(len(windows))]).T
    return Counted(
        counted_bytes=(np.stack([one.counted.counted_bytes for one in chains]) * taken).sum(axis=0),
        covered_ms=(np.stack([one.counted.covered_ms for one in chains]) * taken).sum(axis=0),
        over_limit_ms=(np.stack([one.counted.over_limit_ms for one in chains]) * taken).sum(axis=0),
        contradiction=next(
            (found for pair in combinations(chains, 2) if (found := _contradiction(*pair))), None
        ),
    )


def _contradiction(one: _ChainCounts, other: _ChainCounts) -> Contradiction | None:
    """Return how two chains contradict each other over half an hour and more; readers of the same
    counter see the same growth.
    """
    both = np.minimum(one.counted.covered_ms, other.counted.covered_ms) >= WINDOW_MS
    counts = tuple(int(each.counted.counted_bytes[both].sum()) for each in (one, other))
    most, least = max(counts), min(counts)
    if both.sum() < _ENOUGH_WINDOWS or most - least <= _SAME_GROWTH * most:
        return None
    mine, its = dict(one.labels - other.labels), dict(other.labels - one.labels)
    return Contradiction((mine, its), (counts[0], counts[1]))


def _taken(chains: Sequence[_ChainCounts], window: int) -> list[bool]:
    """Choose the window's chains, most covered time first, none that overlaps another."""
    order = sorted(
        range(len(chains)), key=lambda number: -int(chains[number].counted.covered_ms[window])
    )
    chosen: list[int] = []
    for number in order:
        begins, ends = chains[number].from_ms[window], chains[number].until_ms[window]
        apart = all(
            begins >= chains[other].until_ms[window] or ends <= chains[other].from_ms[window]
            for other in chosen
        )
        if apart and chains[number].counted.covered_ms[window] > 0:
            chosen.append(number)
    return [number in chosen for number in range(len(chains))]


def _sources(
    series: Sequence[SeriesSamples],
    starts: Sequence[SeriesSamples],
    parts: Sequence[str],
    interval_ms: int,
    most: float,
) -> Iterator[tuple[_Labels, dict[_Part, Samples]]]:
    """Yield the counters of each source, by its labels."""
    by_labels: dict[_Labels, dict[_Part, Samples]] = {}
    for one in sorted(series, key=lambda each: sorted(each.labels.items())):
        labels = frozenset(item for item in one.labels.items() if item[0] not in parts)
        times, counts = whole_counts(one, interval_ms)
        if len(times):
            found = Samples(times, counts, _started(one, times, starts, interval_ms))
            part = tuple(one.labels.get(name, "") for name in parts)
            samples = without_small_falls(without_spikes(found, most), interval_ms)
            by_labels.setdefault(labels, {})[part] = samples
    yield from sorted(by_labels.items(), key=lambda item: sorted(item[0]))


def _started(
    series: SeriesSamples, times: Whole, starts: Sequence[SeriesSamples], interval_ms: int
) -> Whole:
    """Return when the process had started, in ms, by the scrape of each time; -1 = unknown."""
    found = np.full(len(times), _UNKNOWN, np.int64)
    for one in starts:
        named = {(name, value) for name, value in one.labels.items() if name != "__name__"}
        if named <= series.labels.items() and len(one.times_ms):
            place = np.searchsorted(one.times_ms, times, side="right") - 1
            near = (place >= 0) & (times - one.times_ms[np.maximum(place, 0)] < interval_ms)
            seconds = one.values[np.maximum(place, 0)]
            usable = near & (seconds > 0) & (seconds * 1000 < _LARGEST)
            found[usable] = np.rint(seconds[usable] * 1000).astype(np.int64)
    return found


def _stretches(labels: _Labels, parts: dict[_Part, Samples]) -> Iterator[_Stretch]:
    times = np.unique(np.concatenate([each.times_ms for each in parts.values()]))
    cuts = times[1:][np.diff(times) > BRIDGED_MS].tolist()
    for begins, ends in zip([int(times[0]), *cuts], [*cuts, int(times[-1]) + 1], strict=True):
        within = {part: each.within(begins, ends) for part, each in parts.items()}
        yield _Stretch(labels, {part: each for part, each in within.items() if len(each.times_ms)})


def _chains(stretches: Iterable[_Stretch]) -> list[list[_Stretch]]:
    """Return stretches that follow each other, each after the one most like it."""
    chains: list[list[_Stretch]] = []
    for one in sorted(stretches, key=lambda each: (each.begin_ms, sorted(each.labels))):
        earlier = [chain for chain in chains if 0 < one.begin_ms - chain[-1].end_ms <= BRIDGED_MS]
        if earlier:
            likest = max(
                earlier, key=lambda chain: (len(chain[-1].labels & one.labels), chain[-1].end_ms)
            )
            likest.append(one)
        else:
            chains.append([one])
    return chains


def _chain_counts(
    chain: Sequence[_Stretch],
    windows: Windows,
    interval_ms: int,
    limit: Rate | None,
    most: float,
) -> _ChainCounts:
    edges = windows.edges_ms
    growths = [
        _chain_growth(chain, part, interval_ms, most)
        for part in sorted({part for one in chain for part in one.parts})
    ]
    over = np.zeros(len(windows), np.int64)
    if limit is not None:
        for one in chain:
            over += _over_limit(list(one.parts.values()), edges, interval_ms, limit, most)
    return _ChainCounts(
        counted=Counted(
            counted_bytes=np.sum([spread(one.times_ms, one.amounts, edges) for one in growths], 0),
            covered_ms=np.max([spread(one.times_ms, one.known_ms, edges) for one in growths], 0),
            over_limit_ms=over,
        ),
        from_ms=np.clip(min(one.times_ms[0] for one in growths), edges[:-1], edges[1:]),
        until_ms=np.clip(max(one.times_ms[-1] for one in growths), edges[:-1], edges[1:]),
        labels=chain[-1].labels,
    )


def _chain_growth(chain: Sequence[_Stretch], part: _Part, interval_ms: int, most: float) -> Growth:
    """Return the growth of one counter over all stretches, and of what lies between them."""
    found = [
        (samples, growth(samples, most=most))
        for one in chain
        if (samples := one.parts.get(part)) is not None
    ]
    first, grown = found[0]
    pieces = [_since_start(first, grown, most), grown]
    for (before, earlier), (after, later) in pairwise(found):
        pieces += [_between(before, after, (earlier, later), interval_ms, most), later]
    return Growth(
        np.concatenate([piece.times_ms[:-1] for piece in pieces] + [pieces[-1].times_ms[-1:]]),
        np.concatenate([piece.amounts for piece in pieces]),
        np.concatenate([piece.known_ms for piece in pieces]),
    )


def _since_start(samples: Samples, grown: Growth, most: float) -> Growth:
    """Return what the first sample shows, where its process is known to have started lately."""
    at_ms, count, started_ms = (int(each[0]) for each in samples)
    is_known = started_ms != _UNKNOWN and at_ms - BRIDGED_MS <= started_ms < at_ms
    rate = _rate_around(grown, at_ms, at_ms)
    if is_known and _began_at_zero(count, at_ms - started_ms, rate, most):
        return _piece(started_ms, at_ms, count, at_ms - started_ms)
    return Growth(np.array([at_ms]), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _between(
    before: Samples,
    after: Samples,
    around: tuple[Growth, Growth],
    interval_ms: int,
    most: float,
) -> Growth:
    """Return the growth from one source's last sample to the first of the one that follows.

    A process that is known to have started in between began at 0. Where nothing is known, a count
    that goes on within two intervals is the same counter under other labels, and one that is as
    small as the rate around allows began at 0. Anything else is unknown, and no growth.
    """
    begin_ms, last, started_before = (int(each[-1]) for each in before)
    end_ms, first, started = (int(each[0]) for each in after)
    span_ms, seconds = end_ms - begin_ms, (end_ms - begin_ms) / 1000
    known = started != _UNKNOWN
    same = known and started_before != _UNKNOWN and abs(started - started_before) <= 1000
    lived_ms = end_ms - min(started, end_ms)
    begun = known and not same and begin_ms < started and lived_ms <= BRIDGED_MS
    recent = max(_rate_around(one, begin_ms, end_ms) for one in around)
    fell = first < last and first <= most * (lived_ms / 1000 + _READ_LATE_SECONDS)
    if begun and (fell or _began_at_zero(first, lived_ms, recent, most)):
        return _piece(begin_ms, end_ms, first, lived_ms)
    near = span_ms <= _BRIDGED_INTERVALS * interval_ms
    if span_ms > BRIDGED_MS:
        return _piece(begin_ms, end_ms, 0, 0)
    allowed = most if same else min(most, _TIMES_RECENT * recent)
    if first >= last and (same or near) and first - last <= allowed * seconds:
        return _piece(begin_ms, end_ms, first - last, span_ms)
    if not known and recent and first <= allowed * seconds:
        return _piece(begin_ms, end_ms, first, min(span_ms, int(first / recent * 1000)))
    return _piece(begin_ms, end_ms, 0, 0)


def _piece(begin_ms: int, end_ms: int, amount: int, known_ms: int) -> Growth:
    """Return an amount that moved in the last `known_ms` of a time."""
    if 0 < known_ms < end_ms - begin_ms:
        return Growth(
            np.array([begin_ms, end_ms - known_ms, end_ms]),
            np.array([0, amount]),
            np.array([0, known_ms]),
        )
    return Growth(np.array([begin_ms, end_ms]), np.array([amount]), np.array([known_ms]))


def _over_limit(
    nics: list[Samples], edges: Whole, interval_ms: int, limit: Rate, most: float
) -> Whole:
    """Return the time over the limit by window, of one source with all its NICs."""
    times = np.unique(np.concatenate([nic.times_ms for nic in nics]))
    # NICs may be scraped less often than brokers
    own_interval_ms = interval_between([nic.times_ms for nic in nics])
    longest_ms = longest_hold_ms(max(interval_ms, own_interval_ms))
    over = _over_ms(nics, times, rates_at(limit, times[1:]), longest_ms, most)
    return spread(times, over, edges)


def _over_ms(
    nics: list[Samples], times: Whole, limits: Rates, longest_ms: int, most: float
) -> Whole:
    """Return each span between scrapes if its rate was over the limit at its end, else 0.

    As in `nic_spans`, the rate is unknown where a NIC came, went or was reset, and here also over a
    gap.
    """
    counts = np.full((len(nics), len(times)), -1, np.int64)
    for row, nic in zip(counts, nics, strict=True):
        row[np.searchsorted(times, nic.times_ms)] = nic.counts
    before, now, spans = counts[:, :-1], counts[:, 1:], np.diff(times)
    present = ((before >= 0) == (now >= 0)).all(axis=0)
    unbroken = (now >= before).all(axis=0) & present & (spans <= longest_ms)
    grown = np.where(before >= 0, now - before, 0).sum(axis=0)
    unbroken &= grown <= most * (spans / 1000 + _READ_LATE_SECONDS)
    return np.where(unbroken & (grown * 1000 > limits * spans), spans, 0)
