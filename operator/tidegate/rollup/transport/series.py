"""What a decoder hands on: series with all samples that came, unfiltered, one behind the other in two long arrays.

From here on every way of reading is the same: `in_range` keeps what belongs into the range and gives each series its share. Labels of
replicas and external labels are still there; see `replicas`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.samples import SeriesSamples


@dataclass(frozen=True, slots=True, eq=False)
class StoredSeries:
    """Series i has `counts[i]` samples. Labels may come twice: a series may be told in pieces."""

    labels: Sequence[Mapping[str, str]]
    counts: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def in_range(stored: StoredSeries, start_ms: int, end_ms: int) -> list[SeriesSamples]:
    """The finite samples in [start_ms, end_ms) of each series, in order of time, one for each time; series without any are left out.

    NaN, infinities and staleness markers are no amounts. Of two samples at the same time the one that came first stays: they differ only
    where a server lets samples be written over.
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


def _same_owner(labels: Sequence[Mapping[str, str]], owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pieces of a series belong to the first of them."""
    first: dict[frozenset[tuple[str, str]], int] = {}
    owner_of = np.array([first.setdefault(frozenset(one.items()), index) for index, one in enumerate(labels)], np.int64)
    return owners if len(first) == len(labels) else owner_of[owners]


def _in_order(owners: NDArray[np.int64], times_ms: NDArray[np.int64]) -> bool:
    later_series, same_series = owners[1:] > owners[:-1], owners[1:] == owners[:-1]
    return bool(np.all(later_series | (same_series & (times_ms[1:] > times_ms[:-1]))))


def _shares(
    labels: Sequence[Mapping[str, str]], owners: NDArray[np.int64], *, times_ms: NDArray[np.int64], values: NDArray[np.float64]
) -> list[SeriesSamples]:
    edges = np.flatnonzero(np.diff(owners, prepend=-1, append=len(labels))) if len(owners) else np.zeros(1, np.int64)
    return [
        SeriesSamples(labels[int(owners[start])], times_ms[start:end], values[start:end])
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
