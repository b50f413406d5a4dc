"""One series for each thing measured: names and external labels parsed off, replicas of Prometheus that measured the same made one.

Of two replicas the fuller one speaks, and the other fills only its gaps, half an interval away from its samples: the two scrape at
different moments by different clocks, and their samples in turn would count twice or look like resets of a counter.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from controller_logic.reasons import Reason
from tidegate.errors import InvalidResource
from tidegate.rollup.samples import Selection, SeriesSamples
from tidegate.rollup.transport.settings import HistorySettings

Times = NDArray[np.int64]
Values = NDArray[np.float64]
Key = tuple[tuple[str, str], ...]

_GAP_INTERVALS = 1.5


def identified(found: Iterable[SeriesSamples], selection: Selection, *, settings: HistorySettings) -> list[SeriesSamples]:
    """The series under the labels that tell them apart, sorted by these.

    Raises InvalidResource when two series that have samples at the same time differ in nothing but what was parsed off.
    """
    unwanted = {*settings.external_labels, *(["__name__"] if selection.metric else [])}
    replica_labels = frozenset(settings.replica_labels)
    keyed = sorted(((*_key(series.labels, unwanted, replica_labels), series) for series in found), key=lambda one: one[:2])
    return [
        _merged(dict(key), [(replica, series) for _, replica, series in group], settings.scrape_interval_ms)
        for key, group in groupby(keyed, key=lambda one: one[0])
    ]


def _key(labels: Mapping[str, str], unwanted: set[str], replica_labels: frozenset[str]) -> tuple[Key, Key]:
    kept = [(name, value) for name, value in sorted(labels.items()) if name not in unwanted]
    return tuple(one for one in kept if one[0] not in replica_labels), tuple(one for one in kept if one[0] in replica_labels)


def _merged(labels: Mapping[str, str], members: Sequence[tuple[Key, SeriesSamples]], scrape_interval_ms: int) -> SeriesSamples:
    if len(members) == 1:
        return SeriesSamples(labels, members[0][1].times_ms, members[0][1].values)
    replicas = [_joined(labels, [one for _, one in group]) for _, group in groupby(members, key=lambda one: one[0])]
    first, *others = sorted(replicas, key=lambda one: -len(one[0]))  # stable: of two as full, the one whose label sorts first
    for other in others:
        first = _filled(first, other, scrape_interval_ms=scrape_interval_ms)
    return SeriesSamples(labels, *first)


def _joined(labels: Mapping[str, str], parts: Sequence[SeriesSamples]) -> tuple[Times, Values]:
    """Series of one replica that follow each other in time: an external label that changed its value."""
    in_time = sorted(parts, key=lambda one: int(one.times_ms[0]))
    for earlier, later in pairwise(in_time):
        if int(later.times_ms[0]) <= int(earlier.times_ms[-1]):
            raise _ambiguous(labels)
    return np.concatenate([one.times_ms for one in in_time]), np.concatenate([one.values for one in in_time])


def _filled(samples: tuple[Times, Values], other: tuple[Times, Values], *, scrape_interval_ms: int) -> tuple[Times, Values]:
    """These samples, and those of the other that lie in their gaps; before the first and after the last whole intervals must be missing."""
    times_ms, other_ms = samples[0], other[0]
    interval_ms = float(np.median(np.diff(times_ms))) if len(times_ms) > 2 else float(scrape_interval_ms)
    at = np.searchsorted(times_ms, other_ms)
    before = np.where(at > 0, other_ms - times_ms[np.maximum(at - 1, 0)], np.inf)
    after = np.where(at < len(times_ms), times_ms[np.minimum(at, len(times_ms) - 1)] - other_ms, np.inf)
    outside = np.isinf(before) | np.isinf(after)
    nearest = np.minimum(before, after)
    fills = np.where(outside, nearest >= interval_ms, (before + after > _GAP_INTERVALS * interval_ms) & (nearest >= interval_ms / 2))
    together_ms, values = np.concatenate([times_ms, other_ms[fills]]), np.concatenate([samples[1], other[1][fills]])
    order = np.argsort(together_ms, kind="stable")
    return together_ms[order], values[order]


def _ambiguous(labels: Mapping[str, str]) -> InvalidResource:
    shown = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    why = f"Two series at the same time are both {{{shown}}} once the labels that are to be left out are gone."
    hint = "Select one of them by a label, or name the label in which replicas of Prometheus differ."
    return InvalidResource(f"{why} No usage is written for them. {hint}", Reason.METRICS_AMBIGUOUS)
