"""The best way that really gives samples is taken, and the reasons against better ones are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.unit.rollup.transport.fake_prometheus import FakePrometheus, kind_of
from tests.unit.rollup.transport.histories import BASE_MS
from tests.unit.rollup.transport.posting import PostRequest, answering
from tidegate.errors import NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import (
    READERS,
    choose_among,
    choose_reader,
    open_reader,
)
from tidegate_logic.reasons import Reason

PROBE = ReadRequest(Selection("up"), BASE_MS, BASE_MS + 1000)
SAMPLES = [SeriesSamples({}, np.array([BASE_MS]), np.array([1.0]))]
AWAY = Unreachable(Reason.PROMETHEUS_UNREACHABLE, "It is down.")
UNKNOWN = NotFound(Reason.PROMETHEUS_UNREACHABLE, "There is no such API.")
fake = FakePrometheus([({"a": "1"}, [(BASE_MS, 1.0)])])


@dataclass
class Way:
    """Gives the samples that it was made with."""

    name: str
    gives: list[SeriesSamples] | TidegateError
    exact: bool = True

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        if isinstance(self.gives, TidegateError):
            raise self.gives
        return self.gives

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        return [self.read(*one) for one in asked]

    def close(self) -> None:
        """Nothing is open."""


def chosen(*gives: list[SeriesSamples] | TidegateError) -> tuple[str, list[str]]:
    found = choose_among(
        [Way(name, given) for name, given in zip("abcd", gives, strict=False)], PROBE
    )
    return found.reader.name, [one.name for one in found.passed_over]


def test_the_best_way_is_taken_where_it_gives_samples() -> None:
    assert chosen(SAMPLES, SAMPLES, SAMPLES) == ("a", [])


def test_a_way_that_fails_is_passed_over() -> None:
    assert chosen(UNKNOWN, AWAY, SAMPLES) == ("c", ["a", "b"])


def test_an_empty_answer_is_not_believed_where_another_way_finds_samples() -> None:
    assert chosen([], UNKNOWN, SAMPLES) == ("c", ["a", "b"])


def test_where_no_way_finds_samples_the_best_that_answers_is_taken() -> None:
    assert chosen(UNKNOWN, [], [], AWAY) == ("b", ["a"])


def test_a_server_that_is_away_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        chosen(AWAY, AWAY)
    with pytest.raises(Unreachable):
        chosen(AWAY, UNKNOWN)


def test_where_nothing_works_the_most_common_way_says_why() -> None:
    refused = Unauthorized("The login is wanted.")
    with pytest.raises(Unauthorized):
        chosen(UNKNOWN, refused)


def test_the_outcome_reads_as_a_sentence_for_logs_and_status(golden: Callable[[str], None]) -> None:
    found = choose_among([Way("a", UNKNOWN), Way("b", SAMPLES, exact=False)], PROBE)
    assert UNKNOWN.message in str(found)
    golden(str(found))


def test_a_front_end_that_answers_remote_read_with_a_page_and_status_200_is_read_by_queries() -> (
    None
):
    def page_or_query(request: PostRequest) -> None:
        request.send(
            200, "<!doctype html>", "text/html; charset=utf-8"
        ) if request.path == "/api/v1/read" else fake(request)

    with answering(page_or_query) as server:
        found = choose_reader(HistorySettings(PrometheusServer(server.url)), PROBE)
    assert found.reader.name == "range-selector"
    assert [one.name for one in found.passed_over] == ["remote-read-chunks", "remote-read-samples"]
    assert all("text/html" in one.why for one in found.passed_over)


def test_a_server_that_knows_samples_only_is_read_so() -> None:
    def samples_only(request: PostRequest) -> None:
        wants_chunks = request.path == "/api/v1/read" and kind_of(request) == 1
        request.send(
            400, "none of requested response types implemented", "text/plain"
        ) if wants_chunks else fake(request)

    with answering(samples_only) as server:
        assert (
            choose_reader(HistorySettings(PrometheusServer(server.url)), PROBE).reader.name
            == "remote-read-samples"
        )


@pytest.mark.parametrize("kind", READERS, ids=[kind.name for kind in READERS])
def test_a_worker_opens_the_way_by_its_name(kind: type) -> None:
    with answering(fake) as server:
        way = open_reader(kind.name, HistorySettings(PrometheusServer(server.url)))  # type: ignore[attr-defined]
        assert [
            one.labels for one in way.read(*(PROBE.selection, PROBE.start_ms, PROBE.end_ms))
        ] == [{"a": "1"}]
        way.close()
