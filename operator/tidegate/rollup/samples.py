"""What is read from Prometheus' history: selections, samples, readers, and the progress of a run.

Times are whole milliseconds since the epoch. Ranges are half-open, [start, end). Nothing here
connects or decodes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InvalidResource
from tidegate.prometheus.queries import is_equal, literally, matches, matches_none, selector


@dataclass(frozen=True, slots=True, eq=False)
class SeriesSamples:
    """One series with its samples in the range asked; a series without any is not given at all.

    `labels` are without the metric's name (unless the selection gave none), without the labels of
    replicas and without external labels. `times_ms` rise strictly. `values` are finite: NaN,
    infinities and staleness markers are left out together with their times.
    """

    labels: Mapping[str, str]
    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series to read.

    An empty `metric` selects by labels alone, `__name__` among them, and keeps `__name__` in the
    labels. `matching` and `excluding` hold regular expressions (RE2) for the whole value. A label
    that a series lacks has the empty value.
    """

    metric: str
    equal: Mapping[str, str] = field(default_factory=dict)
    matching: Mapping[str, str] = field(default_factory=dict)
    excluding: Mapping[str, str] = field(default_factory=dict)


class ReadRequest(NamedTuple):
    """One thing to read: the samples in [start_ms, end_ms) of the series selected."""

    selection: Selection
    start_ms: int
    end_ms: int


class Transport(Protocol):
    """One way of reading history. `exact` = values are the stored samples, with their own times."""

    name: str
    exact: bool

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """All samples in [start_ms, end_ms) of the selected series, never a part.

        Sorted by labels, so that the answer depends neither on the way nor on the server's order.
        Raises tidegate.errors.
        """
        ...

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        """What `read` gives for each of these, in their order."""
        ...

    def close(self) -> None:
        """Hang up; the next read connects again."""
        ...


# Selections as PromQL and back: presets and policies are PromQL, remote read takes single matchers.


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_TEXT = r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'" + "|`[^`]*`"
_SELECTOR = re.compile(rf"\s*({_NAME})?\s*(?:\{{(.*)\}})?\s*", re.DOTALL)
_MATCHER = re.compile(
    rf"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*({_TEXT})\s*(?:,|$)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def promql(selection: Selection) -> str:
    """`{__name__="metric",label="value",...}`."""
    return selector(
        is_equal("__name__", selection.metric) if selection.metric else "", *_matchers(selection)
    )


def selector_text(selection: Selection) -> str:
    """`metric{label="value",...}`, as people write it, labels sorted within a kind of matcher."""
    equal, matching, excluding = (
        dict(sorted(each.items()))
        for each in (selection.equal, selection.matching, selection.excluding)
    )
    matchers = list(_matchers(Selection(selection.metric, equal, matching, excluding)))
    return selection.metric + (selector(*matchers) if matchers else "")


def _matchers(selection: Selection) -> Iterator[str]:
    yield from (is_equal(label, value) for label, value in selection.equal.items())
    yield from (matches(label, expression) for label, expression in selection.matching.items())
    yield from (
        matches_none(label, [expression]) for label, expression in selection.excluding.items()
    )


def selection_of(query: str) -> Selection:
    """Parse a plain selector, `metric{...}` without function, range or offset.

    Raises InvalidResource for anything else, and for two matchers of one label that no single one
    can stand for.
    """
    found = _SELECTOR.fullmatch(query)
    if found is None or not (found[1] or found[2]):
        raise _refused(query)
    selection = Selection(found[1] or "", {}, {}, {})
    inner, at = (found[2] or "").strip(), 0
    while at < len(inner):
        if (matcher := _MATCHER.match(inner, at)) is None:
            raise _refused(query)
        selection = _with_matcher(
            selection, matcher[1], operator=matcher[2], value=_unquoted(matcher[3]), query=query
        )
        at = matcher.end()
    return selection


def _with_matcher(
    selection: Selection, label: str, *, operator: str, value: str, query: str
) -> Selection:
    metric, equal, matching, excluding = (
        selection.metric,
        dict(selection.equal),
        dict(selection.matching),
        dict(selection.excluding),
    )
    if operator == "=" and label == "__name__" and not metric:
        metric = value
    elif operator in ("=", "=~"):
        if (equal if operator == "=" else matching).setdefault(label, value) != value:
            raise _refused(query)
    else:
        expression = value if operator == "!~" else literally(value)
        excluding[label] = (
            f"(?:{excluding[label]})|(?:{expression})" if label in excluding else expression
        )
    return Selection(metric, equal, matching, excluding)


def _unquoted(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    return _ESCAPE.sub(lambda found: _sign(found[1]), text[1:-1])


def _sign(code: str) -> str:
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if len(code) == 3 else _SIGNS.get(code, code)


def _refused(query: str) -> InvalidResource:
    why = (
        f"The query {query} is not a plain selector, so its history cannot be read and no usage is "
        "written for it."
    )
    return InvalidResource(
        f'{why} Write it as metric{{label="value", ...}} without function, range or offset, each '
        f"label once."
    )


# The progress of a run, by step.


class Step(StrEnum):
    """Steps of a run whose progress is counted, as people read them."""

    INGESTED = "broker-hours read"
    PUBLISHED = "windows published"


class Progress(Protocol):
    """The receiver of a run's progress, from several threads, but never two for one step."""

    def __call__(self, step: Step, done: int, of: int, /) -> None:
        """`done` never falls and ends at `of`, which falls where less turns out to be there."""


def unwatched(_step: Step, _done: int, _of: int) -> None:
    """Drop the progress."""


class Count:
    """Counts one step and reports each change."""

    def __init__(self, progress: Progress, step: Step, of: int) -> None:
        self._progress = progress
        self._step = step
        self._of = of
        self._done = 0
        self._report()

    def done(self) -> None:
        """Count one more as done."""
        self._done += 1
        self._report()

    def left_out(self, count: int) -> None:
        """Take items that will not be done out of the total."""
        self._of -= count
        self._report()

    def _report(self) -> None:
        self._progress(self._step, self._done, self._of)
