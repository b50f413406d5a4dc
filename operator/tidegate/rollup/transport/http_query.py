"""Questions to the query API that every server has, and its answers as stored series; shared by the two ways that ask it."""

from collections.abc import Mapping

import numpy as np

from tidegate.prometheus.answer import NotJson, NotSamples, read_answer
from tidegate.prometheus.series import Series
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.transport import failures
from tidegate.rollup.transport.exchange import Answer, Question
from tidegate.rollup.transport.matrix_text import read_usual
from tidegate.rollup.transport.series import StoredSeries


def question(path: str, parameters: Mapping[str, str], *, timeout_seconds: float) -> Question:
    """A form, so that long selectors do not make long addresses; the server, too, gives up when nobody waits any longer."""
    return Question(path, {**parameters, "timeout": f"{round(timeout_seconds * 1000)}ms"}, {"Accept": "application/json"})


def seconds(time_ms: int) -> str:
    """A time as the query API wants it, exact to the millisecond."""
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def read_matrix(answer: Answer) -> list[SeriesSamples]:
    """Each series with all that came, NaN too; raises Incomplete for a partial answer or another kind, Damaged for one that broke off."""
    body = answer.whole()
    usual = read_usual(body)
    if usual is not None:
        return usual
    try:
        found = read_answer(iter([body]), _converted)
    except NotJson as error:
        if "json" in answer.kind:
            raise failures.damaged(error, answer.address) from error
        raise failures.other_content(answer.kind, str(error).encode(), wanted="JSON", address=answer.address) from error
    except NotSamples as error:
        raise failures.other_content(answer.kind, str(error).encode(), wanted="samples over a range", address=answer.address) from error
    if found.warnings:
        raise failures.partial("; ".join(found.warnings), answer.address)
    return found.items


def stored(series: list[SeriesSamples]) -> StoredSeries:
    """The same in two long arrays."""
    counts = np.array([len(one.times_ms) for one in series], np.int64)
    times_ms = np.concatenate([np.zeros(0, np.int64), *(one.times_ms for one in series)])
    return StoredSeries([one.labels for one in series], counts, times_ms, np.concatenate([np.zeros(0), *(one.values for one in series)]))


def _converted(series: Series) -> SeriesSamples:
    # the list of pairs costs ten times what the arrays do, so it must not outlive its series
    samples = np.array(series.samples, np.float64)
    return SeriesSamples(series.labels, np.rint(samples[:, 0] * 1000).astype(np.int64), samples[:, 1].copy())
