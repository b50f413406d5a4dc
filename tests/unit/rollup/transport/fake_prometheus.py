"""A Prometheus of a test's own: a few samples, given in each of the four ways, with the edges of
ranges as version 2 or 3 takes them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.unit.rollup.transport.chunk_writer import (
    XOR,
    chunked_series,
    frame,
    samples_answer,
    time_series,
)
from tests.unit.rollup.transport.posting import STREAMED, PostRequest
from tidegate.rollup.transport.encoding import ReadRequest, parsed, unpacked

_LOOKBACK_MS = 300_000

Samples = Sequence[tuple[int, float]]


def ranges_of(request: PostRequest) -> list[tuple[int, int]]:
    """What the queries of a question by remote read are about: milliseconds, both ends within."""
    queries = parsed(ReadRequest, unpacked(request.body)).queries
    return [(query.start_ms, query.end_ms) for query in queries]


def kind_of(request: PostRequest) -> int:
    """1 = it asks for chunks, 0 = for samples."""
    (kind,) = parsed(ReadRequest, unpacked(request.body)).kinds
    return int(kind)


@dataclass(frozen=True)
class FakePrometheus:
    """Answers as one would that has these series; what is selected is not looked at.

    Of several queries in one question it answers all as Prometheus does, or the first alone, or all
    without saying which.
    """

    series: Sequence[tuple[Mapping[str, str], Samples]]
    left_open: bool = False
    encoding: int = XOR
    queries: Literal["all", "first", "unnumbered"] = "all"

    def __call__(self, request: PostRequest) -> None:
        path = request.path
        if path == "/api/v1/read":
            self._remote_read(request)
        else:
            self._json(
                request,
                self._range(request.form)
                if path == "/api/v1/query"
                else self._stepped(request.form),
            )

    def _remote_read(self, request: PostRequest) -> None:
        asked = ranges_of(request)
        if kind_of(request):
            answers = enumerate(asked[:1] if self.queries == "first" else asked)
            frames = [
                frame(
                    chunked_series(*one, encoding=self.encoding),
                    query=0 if self.queries == "unnumbered" else number,
                )
                for number, span in answers
                for one in self._within(*span)
            ]
            request.send(200, b"".join(frames), STREAMED)
        else:
            (span,) = asked
            found = self._within(*span)
            headers = {"Content-Encoding": "snappy"}
            request.send(
                200,
                samples_answer(*(time_series(*one) for one in found)),
                "application/x-protobuf",
                **headers,
            )

    def _within(self, start_ms: int, end_ms: int) -> list[tuple[Mapping[str, str], Samples]]:
        return [
            (labels, within)
            for labels, samples in self.series
            if (within := [one for one in samples if start_ms <= one[0] <= end_ms])
        ]

    def _range(self, form: Mapping[str, str]) -> list[tuple[Mapping[str, str], Samples]]:
        matched = re.search(r"\[(\d+)ms\]$", form["query"])
        assert matched
        end_ms = _ms(form["time"])
        start_ms = end_ms - int(matched[1]) + self.left_open
        return [
            (labels, [one for one in samples if start_ms <= one[0] <= end_ms])
            for labels, samples in self.series
        ]

    def _stepped(self, form: Mapping[str, str]) -> list[tuple[Mapping[str, str], Samples]]:
        steps = range(_ms(form["start"]), _ms(form["end"]) + 1, _ms(form["step"]))
        assert len(steps) <= 11_000
        times = form["query"].startswith("timestamp(")
        found = []
        for labels, samples in self.series:
            at = [time_ms for time_ms, _ in samples]
            newest = [(step, bisect_right(at, step) - 1) for step in steps]
            seen = [
                (step, samples[index])
                for step, index in newest
                if index >= 0 and at[index] > step - _LOOKBACK_MS
            ]
            found.append(
                (labels, [(step, one[0] / 1000 if times else one[1]) for step, one in seen])
            )
        return found

    def _json(
        self, request: PostRequest, found: Sequence[tuple[Mapping[str, str], Samples]]
    ) -> None:
        result = [
            {"metric": labels, "values": [[at / 1000, repr(value)] for at, value in samples]}
            for labels, samples in found
            if samples
        ]
        request.send(
            200,
            json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}),
        )


def _ms(seconds: str) -> int:
    whole, _, thousandths = seconds.partition(".")
    return int(whole) * 1000 + int(thousandths)
