"""A Prometheus with days of clients' rates in memory, for the questions of `prometheus.usage`.

It knows the three forms of these questions and nothing else of PromQL; the real one is asked in
tests/integration/prometheus/test_usage.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.unit.prometheus.lying_server import Request

WINDOW = 300
_SELECTOR = r"(?P<metric>\w*)\{(?P<matchers>.*)\}"
_FORMS = {
    "count": rf"count by \((?P<label>\w+)\) \({_SELECTOR}\)\[(?P<range>\d+)s:(?P<step>\d+)s\]",
    "mean": rf"round\(avg_over_time\({_SELECTOR}\[300s\]\)\)\[(?P<range>\d+)s:(?P<step>\d+)s\]",
    "max": rf"max_over_time\({_SELECTOR}\[(?P<range>\d+)s\]\)",
}
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Question:
    """One question: its form, metric, matchers, and (start, end]."""

    form: str
    metric: str
    matchers: Mapping[str, tuple[str, str]]
    start: int
    end: int
    step: int
    label: str = ""


Values = Callable[[int], float | None]  # the mean of the window that ends then


@dataclass
class UsageHistory:
    """Series by metric and labels. `refuse` may answer a question itself, and then says so."""

    series: list[tuple[str, Mapping[str, str], Values]] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    refuse: Callable[[Question, Request], bool] = lambda question, request: False

    def add(self, metric: str, values: Values, **labels: str) -> None:
        """One more series; a window without a value (None) has no sample."""
        self.series.append((metric, labels, values))

    def __call__(self, request: Request) -> None:
        question = _question(request.server.seen[-1].path)
        self.asked.append(question)
        if not self.refuse(question, request):
            result = self._counts(question) if question.form == "count" else self._rows(question)
            data = {"resultType": "matrix", "result": result}
            request.send(200, json.dumps({"status": "success", "data": data}))

    def _matching(self, question: Question) -> list[tuple[Mapping[str, str], Values]]:
        return [
            (labels, values)
            for metric, labels, values in self.series
            if metric == question.metric
            and all(_fits(labels.get(name, ""), *one) for name, one in question.matchers.items())
        ]

    def _rows(self, question: Question) -> list[dict[str, object]]:
        rows = []
        for labels, values in self._matching(question):
            found = [
                (at, value)
                for at in range(question.start - question.start % WINDOW, question.end + 1, WINDOW)
                if (value := values(at)) is not None
            ]
            if question.form == "max" and found:
                found = [(question.end, max(value for _, value in found))]
            if found:
                rows.append(
                    {"metric": dict(labels), "values": [[at, str(value)] for at, value in found]}
                )
        return rows

    def _counts(self, question: Question) -> list[dict[str, object]]:
        counts: dict[str, dict[int, int]] = {}
        for labels, values in self._matching(question):
            at_each = counts.setdefault(labels.get(question.label, ""), {})
            first = -(-question.start // question.step) * question.step
            for at in range(first, question.end + 1, question.step):
                if values(at - at % WINDOW) is not None:
                    at_each[at] = at_each.get(at, 0) + 1
        return [
            {
                "metric": {question.label: value} if value else {},
                "values": [[at, str(count)] for at, count in sorted(at_each.items())],
            }
            for value, at_each in counts.items()
            if at_each
        ]


def _question(path: str) -> Question:
    form_fields = parse_qs(urlsplit(path).query)
    (query,), (end,) = form_fields["query"], form_fields["time"]
    for form, pattern in _FORMS.items():
        if found := re.fullmatch(pattern, query):
            parts = found.groupdict()
            matchers = {
                name: (sign, value.replace("\\\\", "\\"))
                for name, sign, value in _MATCHER.findall(parts["matchers"])
            }
            return Question(
                form,
                parts["metric"],
                matchers,
                int(end) - int(parts["range"]),
                int(end),
                int(parts.get("step") or 1),
                parts.get("label") or "",
            )
    raise AssertionError(f"no question of usage: {query}")


def _fits(value: str, sign: str, wanted: str) -> bool:
    if sign.endswith("~"):
        return (re.fullmatch(wanted, value) is not None) == (sign == "=~")
    return (value == wanted) == (sign == "=")
