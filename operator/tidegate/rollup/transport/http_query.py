"""Questions to the query API, which every server has, and its answers as stored series."""

import json
import re
import warnings
from collections.abc import Iterator, Mapping

import numpy as np

from tidegate.prometheus.answer import NotJson, NotSamples, read_answer
from tidegate.prometheus.series import Series
from tidegate.rollup.samples import Selection, SeriesSamples, promql
from tidegate.rollup.transport.exchange import Answer, Question
from tidegate.rollup.transport.series import HistoryReader, StoredSeries

# The query API's usual answer is read in bulk: labels as JSON, but times and values of a series as
# one run of numbers, by numpy. That is two to three times as fast as JSON, which matters for
# servers without remote read. It takes only the layout that Prometheus and its relatives write. All
# else (white space, another order, warnings, an error) is left to the JSON parser.


_BEGIN = re.compile(
    rb'\{"status":"success",(?:"isPartial":false,)?"data":\{"resultType":"matrix","result":\['
)
_END = re.compile(rb"\]\}\}\s*")
_FIRST, _FURTHER, _VALUES, _NEXT = b'{"metric":', b',{"metric":', b',"values":[[', b"],["
_ONLY_NUMBERS = bytes.maketrans(b'[]",', b"    ")


def read_usual(body: bytes) -> list[SeriesSamples] | None:
    """Each series with all that came, NaN too; None when the answer is not laid out as usual."""
    begin = _BEGIN.match(body)
    if begin is None:
        return None
    found: list[SeriesSamples] = []
    at = begin.end()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's for text that is no number
        try:
            while _END.fullmatch(body, at) is None:
                series, at = _series(body, at, mark=_FURTHER if found else _FIRST)
                found.append(series)
        except (ValueError, DeprecationWarning):
            return None
    return found


def _series(body: bytes, at: int, *, mark: bytes) -> tuple[SeriesSamples, int]:
    """The series after this mark at `at`, and where it ends; raises ValueError without one."""
    if not body.startswith(mark, at):
        raise ValueError("no series begins here")
    values_at = body.index(_VALUES, at)  # no part of a label, in which the quotes would be escaped
    end = body.index(b"]]}", values_at)
    labels = json.loads(body[at + len(mark) : values_at])
    text = body[values_at + len(_VALUES) : end]
    numbers = np.fromstring(text.translate(_ONLY_NUMBERS), np.float64, sep=" ").reshape(-1, 2)
    if not isinstance(labels, dict) or len(numbers) != text.count(_NEXT) + 1:
        raise ValueError("these are no samples")
    return SeriesSamples(
        labels, np.rint(numbers[:, 0] * 1000).astype(np.int64), numbers[:, 1].copy()
    ), end + 3


# What the query API is asked, and what it answers.


def question(path: str, parameters: Mapping[str, str], *, timeout_seconds: float) -> Question:
    """A form, as long selectors make long addresses, with a timeout for the server too."""
    return Question(
        path,
        {**parameters, "timeout": f"{round(timeout_seconds * 1000)}ms"},
        {"Accept": "application/json"},
    )


def seconds(time_ms: int) -> str:
    """A time as the query API wants it, exact to the millisecond."""
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def read_matrix(answer: Answer) -> list[SeriesSamples]:
    """Each series with all that came, NaN too.

    Raises Incomplete for a partial answer or another kind, BrokenOff for one that ended early.
    """
    body = answer.whole()
    usual = read_usual(body)
    if usual is not None:
        return usual
    try:
        found = read_answer(iter([body]), _converted)
    except NotJson as error:
        if "json" in answer.kind:
            raise answer.failures.broken_off(error) from error
        raise answer.other_content("JSON", error) from error
    except NotSamples as error:
        raise answer.other_content("samples over a range", error) from error
    if found.warnings:
        raise answer.failures.partial("; ".join(found.warnings))
    return found.items


def stored(series: list[SeriesSamples]) -> StoredSeries:
    """The same in two long arrays."""
    counts = np.array([len(one.times_ms) for one in series], np.int64)
    times_ms = np.concatenate([np.zeros(0, np.int64), *(one.times_ms for one in series)])
    return StoredSeries(
        [one.labels for one in series],
        counts,
        times_ms,
        np.concatenate([np.zeros(0), *(one.values for one in series)]),
    )


def _converted(series: Series) -> SeriesSamples:
    # the list of pairs costs ten times what the arrays do, so it must not outlive its series
    samples = np.array(series.samples, np.float64)
    return SeriesSamples(
        series.labels, np.rint(samples[:, 0] * 1000).astype(np.int64), samples[:, 1].copy()
    )


# The last way takes values at steps from `query_range` and puts them back to the times at which
# they were stored. `query_range` gives at each step the newest sample of the last five minutes as
# if it were of that step: times are lost, gaps are filled, and series that ended go on. So
# `timestamp(...)` is asked at the same steps and gives the time of each sample. Samples of several
# steps are then one. Of samples closer than a step only the last remains: so `exact` is False.


_POINTS = 10_000  # of one answer and series; the server's limit is 11,000
_STEPS_PER_INTERVAL = 1.25  # scrapes that come a little early must not be missed


class QueryRange(HistoryReader):
    """Range queries, in pieces below the server's limit of points.

    The scrape interval of the settings decides the step. Samples further apart than it come back as
    they were stored. `timestamp` drops the metric's name, so a selection by labels alone asks it
    once for each name that was found.
    """

    name = "query-range"
    exact = False

    def _stored(
        self, selection: Selection, start_ms: int, *, end_ms: int, until: float
    ) -> StoredSeries:
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
        asked = question(
            "/api/v1/query_range", {"query": query, **steps}, timeout_seconds=timeout_seconds
        )
        return self._exchange.ask(asked, read_matrix, until=until)


def _pieces(start_ms: int, end_ms: int, *, step_ms: int) -> Iterator[tuple[int, int]]:
    """First and last step of each piece; the last of all is the range's last millisecond."""
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
    """The values at the times that `timestamp` gave, for the steps that both have."""
    by_identity = {_identity(one): one for one in times}
    for series in values:
        if (stamps := by_identity.get(_identity(series))) is None:
            continue
        _, at_value, at_stamp = np.intersect1d(
            series.times_ms, stamps.times_ms, assume_unique=True, return_indices=True
        )
        times_ms = np.rint(stamps.values[at_stamp] * 1000).astype(np.int64)
        changes = np.diff(times_ms, prepend=-1) != 0
        yield SeriesSamples(series.labels, times_ms[changes], series.values[at_value][changes])


def _identity(series: SeriesSamples) -> frozenset[tuple[str, str]]:
    return frozenset(one for one in series.labels.items() if one[0] != "__name__")


# Raw samples by the query API, `metric{...}[d]`: exact, on every server, at five times the work.


class RangeSelector(HistoryReader):
    """An instant query with a range selector: a limit of samples, none of points.

    The limit is 50 million by default.

    Prometheus 2 takes both ends of a range, Prometheus 3 not the left one. Asked one millisecond
    before our end for the whole length, the first gives one millisecond too much in front, which is
    cut off, and the second gives the range exactly.
    """

    name = "range-selector"

    def _stored(
        self, selection: Selection, start_ms: int, *, end_ms: int, until: float
    ) -> StoredSeries:
        parameters = {
            "query": f"{promql(selection)}[{end_ms - start_ms}ms]",
            "time": seconds(end_ms - 1),
        }
        asked = question(
            "/api/v1/query", parameters, timeout_seconds=self._settings.request_timeout_seconds
        )
        return stored(self._exchange.ask(asked, read_matrix, until=until))
