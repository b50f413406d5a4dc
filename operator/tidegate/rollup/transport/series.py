"""Series as a decoder gives them: all samples that came, unfiltered, in two long arrays.

From here on every way of reading is the same: `in_range` keeps what belongs into the range and
gives each series its share. Labels of replicas and external labels are still there; `identified`
takes them off.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InvalidResource
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.transport.exchange import Exchange, HistorySettings
from tidegate_logic.reasons import Reason

# Names and external labels are cut off, and replicas of Prometheus that measured the same become
# one series. Of two replicas the fuller one counts, and the other only fills its gaps, half an
# interval away from its samples. The two scrape at different times by different clocks: their
# samples in turn would count twice or look like resets of a counter.


Times = NDArray[np.int64]
Values = NDArray[np.float64]
Key = tuple[tuple[str, str], ...]

_GAP_INTERVALS = 1.5


def identified(
    found: Iterable[SeriesSamples], selection: Selection, *, settings: HistorySettings
) -> list[SeriesSamples]:
    """Return the series under the labels that distinguish them, sorted by these.

    Raises InvalidResource when two series with samples at the same time differ only in labels that
    were removed.
    """
    unwanted = {*settings.external_labels, *(["__name__"] if selection.metric else [])}
    replica_labels = frozenset(settings.replica_labels)
    keyed = sorted(
        ((*_key(series.labels, unwanted, replica_labels), series) for series in found),
        key=lambda one: one[:2],
    )
    return [
        _merged(
            dict(key),
            [(replica, series) for _, replica, series in group],
            settings.scrape_interval_ms,
        )
        for key, group in groupby(keyed, key=lambda one: one[0])
    ]


def _key(
    labels: Mapping[str, str], unwanted: set[str], replica_labels: frozenset[str]
) -> tuple[Key, Key]:
    kept = [(name, value) for name, value in sorted(labels.items()) if name not in unwanted]
    return tuple(one for one in kept if one[0] not in replica_labels), tuple(
        one for one in kept if one[0] in replica_labels
    )


def _merged(
    labels: Mapping[str, str], members: Sequence[tuple[Key, SeriesSamples]], scrape_interval_ms: int
) -> SeriesSamples:
    if len(members) == 1:
        return SeriesSamples(labels, members[0][1].times_ms, members[0][1].values)
    replicas = [
        _joined(labels, [one for _, one in group])
        for _, group in groupby(members, key=lambda one: one[0])
    ]
    # stable: of two as full, the one whose label sorts first
    first, *others = sorted(replicas, key=lambda one: -len(one[0]))
    for other in others:
        first = _filled(first, other, scrape_interval_ms=scrape_interval_ms)
    return SeriesSamples(labels, *first)


def _joined(labels: Mapping[str, str], parts: Sequence[SeriesSamples]) -> tuple[Times, Values]:
    """Series of one replica, one after the other in time: an external label changed its value."""
    in_time = sorted(parts, key=lambda one: int(one.times_ms[0]))
    for earlier, later in pairwise(in_time):
        if int(later.times_ms[0]) <= int(earlier.times_ms[-1]):
            raise _ambiguous(labels)
    return np.concatenate([one.times_ms for one in in_time]), np.concatenate(
        [one.values for one in in_time]
    )


def _filled(
    samples: tuple[Times, Values], other: tuple[Times, Values], *, scrape_interval_ms: int
) -> tuple[Times, Values]:
    """These samples, and those of the other that lie in their gaps.

    Before the first and after the last sample whole intervals must be missing.
    """
    times_ms, other_ms = samples[0], other[0]
    interval_ms = (
        float(np.median(np.diff(times_ms))) if len(times_ms) > 2 else float(scrape_interval_ms)
    )
    at = np.searchsorted(times_ms, other_ms)
    before = np.where(at > 0, other_ms - times_ms[np.maximum(at - 1, 0)], np.inf)
    after = np.where(
        at < len(times_ms), times_ms[np.minimum(at, len(times_ms) - 1)] - other_ms, np.inf
    )
    outside = np.isinf(before) | np.isinf(after)
    nearest = np.minimum(before, after)
    fills = np.where(
        outside,
        nearest >= interval_ms,
        (before + after > _GAP_INTERVALS * interval_ms) & (nearest >= interval_ms / 2),
    )
    together_ms, values = (
        np.concatenate([times_ms, other_ms[fills]]),
        np.concatenate([samples[1], other[1][fills]]),
    )
    order = np.argsort(together_ms, kind="stable")
    return together_ms[order], values[order]


def _ambiguous(labels: Mapping[str, str]) -> InvalidResource:
    shown = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    why = (
        f"Two series at the same time are both {{{shown}}} once the labels that are to be left "
        f"out are gone."
    )
    hint = (
        "Select one of them by a label, or name the label in which replicas of Prometheus differ."
    )
    return InvalidResource(f"{why} No usage is written for them. {hint}", Reason.METRICS_AMBIGUOUS)


@dataclass(frozen=True, slots=True, eq=False)
class StoredSeries:
    """Series i has `counts[i]` samples. Labels may come twice: a series may come in pieces."""

    labels: Sequence[Mapping[str, str]]
    counts: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def in_range(stored: StoredSeries, start_ms: int, end_ms: int) -> list[SeriesSamples]:
    """The finite samples in [start_ms, end_ms) of each series that has any, in order of time.

    NaN, infinities and staleness markers are no amounts. Of two samples at the same time the one
    that came first stays: they differ only where a server lets samples be written over.
    """
    kept = (stored.times_ms >= start_ms) & (stored.times_ms < end_ms) & np.isfinite(stored.values)
    owners = np.repeat(np.arange(len(stored.labels)), stored.counts)[kept]
    times_ms, values = stored.times_ms[kept], stored.values[kept]
    owners = _same_owner(stored.labels, owners)
    if not _in_order(owners, times_ms):
        order = np.lexsort((times_ms, owners))
        owners, times_ms, values = owners[order], times_ms[order], values[order]
        first = np.ones(len(owners), np.bool_)
        first[1:] = (owners[1:] != owners[:-1]) | (times_ms[1:] != times_ms[:-1])
        owners, times_ms, values = owners[first], times_ms[first], values[first]
    return _shares(stored.labels, owners, times_ms=times_ms, values=values)


def _same_owner(
    labels: Sequence[Mapping[str, str]], owners: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Pieces of a series belong to the first of them."""
    first: dict[frozenset[tuple[str, str]], int] = {}
    owner_of = np.array(
        [first.setdefault(frozenset(one.items()), index) for index, one in enumerate(labels)],
        np.int64,
    )
    return owners if len(first) == len(labels) else owner_of[owners]


def _in_order(owners: NDArray[np.int64], times_ms: NDArray[np.int64]) -> bool:
    later_series, same_series = owners[1:] > owners[:-1], owners[1:] == owners[:-1]
    return bool(np.all(later_series | (same_series & (times_ms[1:] > times_ms[:-1]))))


def _shares(
    labels: Sequence[Mapping[str, str]],
    owners: NDArray[np.int64],
    *,
    times_ms: NDArray[np.int64],
    values: NDArray[np.float64],
) -> list[SeriesSamples]:
    edges = (
        np.flatnonzero(np.diff(owners, prepend=-1, append=len(labels)))
        if len(owners)
        else np.zeros(1, np.int64)
    )
    return [
        SeriesSamples(labels[int(owners[start])], times_ms[start:end], values[start:end])
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


# Common to the four ways of reading: the same samples become the same rows.


class HistoryReader(ABC):
    """A way to read a server's history, a `samples.Transport`; for one thread at a time."""

    name: str
    exact = True

    def __init__(self, settings: HistorySettings, *, exchange: Exchange | None = None) -> None:
        self._settings = settings
        self._exchange = exchange or Exchange(settings)

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """All samples in [start_ms, end_ms) of the selected series, sorted by labels.

        An empty range makes no request. Raises Unreachable when the server does not answer in time;
        Incomplete when an answer is damaged, partial, too large or of another kind; Unauthorized,
        NotFound or InvalidResource when the server says so, or when two series cannot be
        distinguished.
        """
        return self.read_all([ReadRequest(selection, start_ms, end_ms)])[0]

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        """`read` for each of these in order.

        Each is a request with its own deadline and bound, unless the server answers all at once.
        """
        stored = self._stored_all([one for one in asked if one.start_ms < one.end_ms])
        return [self._rows(next(stored), one) if one.start_ms < one.end_ms else [] for one in asked]

    def close(self) -> None:
        """Hang up; the next read connects again."""
        self._exchange.close()

    def _rows(self, stored: StoredSeries, asked: ReadRequest) -> list[SeriesSamples]:
        return identified(
            in_range(stored, asked.start_ms, asked.end_ms), asked.selection, settings=self._settings
        )

    def _stored_all(self, asked: Sequence[ReadRequest]) -> Iterator[StoredSeries]:
        """`_stored` of each of these, in their order."""
        for one in asked:
            yield self._stored(
                one.selection, one.start_ms, end_ms=one.end_ms, until=self._exchange.deadline()
            )

    @abstractmethod
    def _stored(
        self, selection: Selection, start_ms: int, *, end_ms: int, until: float
    ) -> StoredSeries:
        """At least the samples in [start_ms, end_ms)."""
