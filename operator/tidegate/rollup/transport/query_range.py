"""The last way: values re-sampled at steps by `query_range`, put back to the times at which they were stored.

`query_range` gives at each step the newest sample of the last five minutes as if it were of that step: times are lost, gaps are filled, and
series that ended go on. So `timestamp(...)` is asked at the same steps, which tells when each sample was stored; samples seen at several
steps are then one. What remains is that of samples closer together than a step only the last is seen: hence `exact = False`.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from tidegate.rollup.samples import Selection, SeriesSamples
from tidegate.rollup.transport.http_query import question, read_matrix, seconds, stored
from tidegate.rollup.transport.rung import Rung
from tidegate.rollup.transport.selection_text import promql
from tidegate.rollup.transport.series import StoredSeries

_POINTS = 10_000  # of one answer and series; the server's limit is 11,000
_STEPS_PER_INTERVAL = 1.25  # scrapes that come a little early must not be missed


class QueryRange(Rung):
    """Range queries, in pieces below the server's limit of points.

    The scrape interval of the settings decides the step. Samples further apart than it come back as they were stored. `timestamp` drops
    the metric's name, so a selection by labels alone asks it once for each name that was found.
    """

    name = "query-range"
    exact = False

    def _stored(self, selection: Selection, start_ms: int, *, end_ms: int, until: float) -> StoredSeries:
        step_ms = max(int(self._settings.scrape_interval_ms / _STEPS_PER_INTERVAL), 1)
        found: list[SeriesSamples] = []
        for first_ms, last_ms in _pieces(start_ms, end_ms, step_ms=step_ms):
            steps = {"start": seconds(first_ms), "end": seconds(last_ms), "step": seconds(step_ms)}
            values = self._asked(promql(selection), steps, until)
            for name, of_name in _by_name(values).items():
                times = self._asked(f"timestamp({promql(_named(selection, name))})", steps, until)
                found.extend(_as_stored(of_name, times))
        return stored(found)

    def _asked(self, query: str, steps: dict[str, str], until: float) -> list[SeriesSamples]:
        timeout_seconds = self._settings.request_timeout_seconds
        asked = question("/api/v1/query_range", {"query": query, **steps}, timeout_seconds=timeout_seconds)
        return self._exchange.ask(asked, read_matrix, until=until)


def _pieces(start_ms: int, end_ms: int, *, step_ms: int) -> Iterator[tuple[int, int]]:
    """First and last step of each piece. The last step of all is the last millisecond of the range, so that no sample comes after it."""
    last_ms = end_ms - 1
    at = last_ms - (last_ms - start_ms) // step_ms * step_ms
    while at <= last_ms:
        yield at, min(at + (_POINTS - 1) * step_ms, last_ms)
        at += _POINTS * step_ms


def _by_name(series: list[SeriesSamples]) -> Mapping[str, list[SeriesSamples]]:
    found: dict[str, list[SeriesSamples]] = {}
    for one in series:
        found.setdefault(one.labels.get("__name__", ""), []).append(one)
    return found


def _named(selection: Selection, name: str) -> Selection:
    """The same, of one metric; what it says of the name otherwise holds for this one."""
    if selection.metric or not name:
        return selection
    equal, matching, excluding = (
        {label: value for label, value in wanted.items() if label != "__name__"}
        for wanted in (selection.equal, selection.matching, selection.excluding)
    )
    return Selection(name, equal, matching, excluding)


def _as_stored(values: list[SeriesSamples], times: list[SeriesSamples]) -> Iterator[SeriesSamples]:
    """The values at the times that `timestamp` told at the same steps; a step that only one of both has is left out."""
    told = {_identity(one): one for one in times}
    for series in values:
        if (stamps := told.get(_identity(series))) is None:
            continue
        _, at_value, at_stamp = np.intersect1d(series.times_ms, stamps.times_ms, assume_unique=True, return_indices=True)
        times_ms = np.rint(stamps.values[at_stamp] * 1000).astype(np.int64)
        anew = np.diff(times_ms, prepend=-1) != 0
        yield SeriesSamples(series.labels, times_ms[anew], series.values[at_value][anew])


def _identity(series: SeriesSamples) -> frozenset[tuple[str, str]]:
    return frozenset(one for one in series.labels.items() if one[0] != "__name__")
