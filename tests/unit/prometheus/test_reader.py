"""A reading never fails: what cannot be known is absent, and said once, however many queries met
it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from controller_logic.model import Direction, Entity, Readings
from controller_logic.reasons import Reason
from tests.unit.hands import Hands
from tests.unit.prometheus.lying_server import LyingServer, Request, serving
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import (
    BearerLogin,
    BrokerLabel,
    MetricsSettings,
    Preset,
    PrometheusServer,
    Queries,
)
from tidegate.prometheus.sources import source_labels

NOW = 1000.0
QUERIES = Queries("sent", "received", "fetched", "produced", "fetch_throttle", "produce_throttle")
NIC = [[970, "0"], [985, "1500"]]
Answers = dict[str, list[dict[str, object]]]


def of_broker(broker: int, values: list[list[object]], **labels: str) -> dict[str, object]:
    return {"metric": {"broker": str(broker), **labels}, "values": values}


WHOLE: Answers = {
    "sent": [of_broker(1, NIC), of_broker(2, NIC)],
    "received": [of_broker(1, NIC), of_broker(2, NIC)],
    "fetched": [of_broker(1, [[985, "70"]], user="bob"), of_broker(2, [[985, "80"]], user="bob")],
    "produced": [],
    "fetch_throttle": [of_broker(1, [[985, "12.5"]], user="bob")],
    "produce_throttle": [],
}


def metric(request: Request) -> str:
    return request.server.seen[-1].query.split("[")[0].split("{cluster")[0]


def answering(answers: Answers, **envelope: object) -> Callable[[Request], None]:
    def respond(request: Request) -> None:
        document = {
            "status": "success",
            "data": {"resultType": "matrix", "result": answers[metric(request)]},
            **envelope,
        }
        request.send(200, json.dumps(document))

    return respond


def read(
    respond: Callable[[Request], None], brokers: Collection[int] = (1, 2), **settings: object
) -> tuple[Readings, LyingServer]:
    with serving(respond) as server:
        given = {"preset": Preset.CUSTOM, "queries": QUERIES, **settings}
        reader = PrometheusReader(
            MetricsSettings(PrometheusServer(server.url), **given), clock=Hands(NOW)
        )  # type: ignore[arg-type]
        readings = reader.read(brokers)
        reader.close()
    return readings, server


def reasons(readings: Readings) -> list[Reason]:
    return [problem.reason for problem in readings.problems]


def test_a_whole_answer_gives_nics_and_clients_with_their_times_and_no_problem() -> None:
    readings, _ = read(answering(WHOLE))
    assert readings.problems == ()
    assert (readings.read_at_seconds, readings.scrape_seconds) == (NOW, 15)
    assert {key: spans[-1].bytes_per_second for key, spans in readings.nic.items()} == {
        (broker, way): 100.0 for broker in (1, 2) for way in Direction
    }
    bob = readings.clients[Entity("bob"), 1, Direction.EGRESS]
    assert (bob.at_seconds, bob.bytes_per_second, bob.throttle_milliseconds) == (985, 70.0, 12.5)


def test_a_throttle_time_that_is_missing_is_not_zero() -> None:
    readings, _ = read(answering(WHOLE))
    assert readings.clients[Entity("bob"), 2, Direction.EGRESS].throttle_milliseconds is None


def test_nics_are_asked_for_long_enough_to_see_k_of_n_and_clients_for_as_long_as_they_are_fresh() -> (
    None
):
    matchers = {"cluster": "a"}
    _, server = read(
        answering(WHOLE), scrape_interval_seconds=30, stale_after_seconds=90, matchers=matchers
    )
    assert [seen.query for seen in server.seen[:3]] == [
        'sent{cluster="a"}[150s]',
        'received{cluster="a"}[150s]',
        'fetched{cluster="a"}[90s]',
    ]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (503, Reason.PROMETHEUS_UNREACHABLE),
        (401, Reason.NOT_AUTHORIZED),
        (302, Reason.NOT_AUTHORIZED),
    ],
)
def test_a_server_that_cannot_be_asked_is_asked_one_query_and_reported_once(
    status: int, reason: Reason
) -> None:
    readings, server = read(
        lambda request: request.send(status, "", Location="https://login.example.com")
    )
    assert (readings.nic, readings.clients) == ({}, {})
    assert reasons(readings) == [reason]
    assert {seen.query for seen in server.seen} == {"sent[3600s]"}


def test_a_partial_answer_is_no_answer_and_is_reported_once() -> None:
    readings, server = read(answering(WHOLE, warnings=["a store is away"]))
    assert (readings.nic, readings.clients) == ({}, {})
    assert reasons(readings) == [Reason.METRICS_INCOMPLETE]
    assert len(server.seen) == 6


def test_a_query_that_fails_leaves_the_answers_of_the_others() -> None:
    def fails_one(request: Request) -> None:
        request.send(400, '{"error": "no"}') if metric(request) == "fetch_throttle" else answering(
            WHOLE
        )(request)

    readings, _ = read(fails_one)
    assert reasons(readings) == [Reason.METRICS_QUERY_REFUSED]
    assert len(readings.nic) == 4
    assert readings.clients[Entity("bob"), 1, Direction.EGRESS].throttle_milliseconds is None


def test_a_direction_that_is_not_asked_for_is_not_missed() -> None:
    readings, server = read(answering(WHOLE), queries=Queries(egress="sent", fetch_rate="fetched"))
    assert readings.problems == ()
    assert len(server.seen) == 2


def test_a_broker_that_is_not_live_is_not_missed_and_one_beyond_the_live_ones_is_read() -> None:
    readings, _ = read(answering(WHOLE), brokers=(1,))
    assert readings.problems == ()
    assert (2, Direction.EGRESS) in readings.nic


def test_one_direction_of_one_broker_is_missed_by_name() -> None:
    readings, _ = read(answering({**WHOLE, "received": [of_broker(1, NIC)]}))
    (problem,) = readings.problems
    assert (problem.reason, problem.broker) == (Reason.METRICS_MISSING, 2)
    assert "ingress" in problem.message
    assert "egress" not in problem.message


def test_one_sample_is_not_a_reading() -> None:
    readings, _ = read(
        answering({**WHOLE, "sent": [of_broker(broker, NIC[:1]) for broker in (1, 2)]})
    )
    assert [(problem.reason, problem.broker) for problem in readings.problems] == [
        (Reason.METRICS_MISSING, None)
    ]


def test_old_samples_are_stale_and_keep_their_times() -> None:
    readings, _ = read(
        answering(
            {**WHOLE, "sent": [of_broker(broker, [[930, "0"], [945, "15"]]) for broker in (1, 2)]}
        )
    )
    assert [(problem.reason, problem.broker) for problem in readings.problems] == [
        (Reason.METRICS_STALE, None)
    ]
    assert readings.nic[1, Direction.EGRESS][-1].at_seconds == 945


def test_a_broker_of_which_something_worse_is_known_is_not_missed_as_well() -> None:
    twice = [of_broker(1, NIC, instance=instance) for instance in ("a", "b")]
    readings, _ = read(answering({**WHOLE, "sent": [*twice, of_broker(2, NIC)]}))
    assert [(problem.reason, problem.broker) for problem in readings.problems] == [
        (Reason.METRICS_AMBIGUOUS, 1)
    ]


def test_what_is_odd_in_one_direction_does_not_hide_that_the_other_is_missing() -> None:
    odd = [of_broker(1, [[940, "NaN"], *NIC]), of_broker(2, NIC)]
    readings, _ = read(answering({**WHOLE, "sent": odd, "received": [of_broker(2, NIC)]}))
    assert [(problem.reason, problem.broker) for problem in readings.problems] == [
        (Reason.METRICS_UNREADABLE, 1),
        (Reason.METRICS_MISSING, 1),
    ]


def test_a_broker_whose_clients_could_not_be_asked_for_is_not_said_to_have_none() -> None:
    def fails_one(request: Request) -> None:
        request.send(400, '{"error": "no"}') if metric(request) == "fetched" else answering(WHOLE)(
            request
        )

    readings, _ = read(fails_one)
    assert reasons(readings) == [Reason.METRICS_QUERY_REFUSED]


def test_the_time_of_the_reading_is_when_the_answers_were_there() -> None:
    clock = Hands(900.0)

    def slow(request: Request) -> None:
        clock.now = NOW
        answering(WHOLE)(request)

    with serving(slow) as server:
        settings = MetricsSettings(PrometheusServer(server.url), Preset.CUSTOM, QUERIES)
        assert PrometheusReader(settings, clock=clock).read((1, 2)).read_at_seconds == NOW


def test_all_queries_together_have_one_time_limit() -> None:
    def slow(request: Request) -> None:
        request.server.gone.wait(0.2)
        answering(WHOLE)(request)

    with serving(slow) as server:
        settings = MetricsSettings(
            PrometheusServer(server.url, reading_timeout_seconds=0.5), Preset.CUSTOM, QUERIES
        )
        started = time.monotonic()
        readings = PrometheusReader(settings, clock=Hands(NOW)).read((1, 2))
    assert time.monotonic() - started < 2
    assert Reason.PROMETHEUS_UNREACHABLE in reasons(readings)
    assert (1, Direction.EGRESS) in readings.nic


@pytest.mark.parametrize(
    "server",
    [
        PrometheusServer("nonsense"),
        PrometheusServer("http://[::1"),
        PrometheusServer("http://127.0.0.1:1", BearerLogin("a\nb")),
    ],
)
def test_settings_that_cannot_work_are_a_problem_and_no_exception(server: PrometheusServer) -> None:
    readings = PrometheusReader(MetricsSettings(server)).read((1,))
    assert len(set(readings.problems)) == len(readings.problems)
    assert readings.problems
    assert not readings.nic


# --- the source of a broker's readings ------------------------------------------------------------


class FakeExporters:
    """Exporters of one Prometheus, over time: each gives one counter and is a target."""

    def __init__(self, **settings: object) -> None:
        self.now = NOW
        self.series: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.clients: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.up: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.settings = {"queries": Queries(egress="sent", fetch_rate="fetched"), **settings}

    def scrapes(self, *targets: tuple[str, str], at: dict[str, float], times: int = 1) -> None:
        """Scrape `targets`; those with a rate in `at` answer, of the rest only `up` is known."""
        for _ in range(times):
            self.now += 15
            for target in targets:
                self.up.setdefault(target, []).append((self.now, float(target[0] in at)))
                if target[0] in at:
                    counter = self.series.setdefault(target, [])
                    before = counter[-1][1] if counter else 0.0
                    counter.append((self.now, before + 15 * at[target[0]]))
                    self.clients.setdefault(target, []).append((self.now, 70.0))

    def respond(self, request: Request) -> None:
        query = request.server.seen[-1].query
        name, seconds = query.split("[")[0], float(query.split("[")[1].rstrip("s]"))
        kind = {"sent": self.series, "fetched": self.clients}.get(name, self.up)
        document = [
            {
                "metric": {"broker": "1", "user": "bob", "job": job, "instance": instance},
                "values": [[at, str(value)] for at, value in samples if at > self.now - seconds],
            }
            for (job, instance), samples in kind.items()
            if kind is not self.up or instance in name.replace("\\", "")
        ]
        request.send(
            200,
            json.dumps({"status": "success", "data": {"resultType": "matrix", "result": document}}),
        )


A, B = ("a", "10.0.0.1:9100"), ("b", "10.0.1.1:9100")


class Reading:
    """A reader over a exporters, for several readings."""

    def __init__(self, exporters: FakeExporters, server: LyingServer) -> None:
        self._exporters = exporters
        self._server = server
        self.restart()

    def restart(self) -> None:
        self._reader = PrometheusReader(
            MetricsSettings(
                PrometheusServer(self._server.url),
                **{"preset": Preset.CUSTOM, **self._exporters.settings},  # type: ignore[arg-type]
            ),
            clock=lambda: self._exporters.now,
        )

    def rate(self) -> float | Reason:
        """The newest rate of broker 1, or why there is none."""
        readings = self._reader.read((1,))
        spans = readings.nic.get((1, Direction.EGRESS))
        return spans[-1].bytes_per_second if spans else readings.problems[0].reason

    def problems(self) -> str:
        return "\n".join(problem.message for problem in self._reader.read((1,)).problems)


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    with ExitStack() as stack:

        def start(exporters: FakeExporters) -> Reading:
            return Reading(exporters, stack.enter_context(serving(exporters.respond)))

        yield start


Start = Callable[[FakeExporters], Reading]


def test_another_clusters_exporter_is_not_believed_while_the_brokers_own_is_silent(
    reading: Start, golden: Callable[[str], None]
) -> None:
    exporters = FakeExporters()
    exporters.scrapes(A, at={"a": 100}, times=6)
    reader = reading(exporters)
    assert reader.rate() == 100
    exporters.scrapes(A, at={}, times=2)
    exporters.scrapes(A, B, at={"b": 9000}, times=1)
    exporters.series[B] = [(at, value + 5e9) for at, value in exporters.series[B]]
    for _ in range(20):
        exporters.scrapes(A, B, at={"b": 9000})
        assert reader.rate() is Reason.SOURCE_CHANGED
    golden(reader.problems())
    exporters.scrapes(A, B, at={"a": 50}, times=3)
    assert reader.rate() is Reason.SOURCE_CHANGED  # samples of the other are among those read
    exporters.scrapes(A, B, at={"a": 50}, times=3)
    assert reader.rate() == 50


def test_a_restart_forgets_no_source(reading: Start) -> None:
    exporters = FakeExporters()
    exporters.scrapes(A, at={"a": 100}, times=6)
    exporters.scrapes(A, at={}, times=2)
    exporters.scrapes(A, B, at={"b": 9000}, times=20)
    reader = reading(exporters)
    assert reader.rate() is Reason.SOURCE_CHANGED
    assert reader.rate() is Reason.SOURCE_CHANGED


def test_of_two_sources_at_once_the_one_that_is_left_is_not_believed(reading: Start) -> None:
    exporters = FakeExporters()
    exporters.scrapes(A, B, at={"a": 100, "b": 9000}, times=6)
    reader = reading(exporters)
    assert reader.rate() is Reason.METRICS_AMBIGUOUS
    exporters.scrapes(A, B, at={"b": 9000}, times=20)
    assert reader.rate() is Reason.SOURCE_CHANGED


def test_an_exporter_whose_target_is_gone_may_be_followed_by_another(reading: Start) -> None:
    exporters = FakeExporters()
    exporters.scrapes(A, at={"a": 100}, times=6)
    reader = reading(exporters)
    assert reader.rate() == 100
    exporters.scrapes(B, at={"b": 200}, times=2)
    assert reader.rate() is Reason.SOURCE_CHANGED  # `up` of a target that is gone ends then, too
    exporters.scrapes(B, at={"b": 200}, times=2)
    assert reader.rate() == 200
    exporters.scrapes(B, at={"b": 300}, times=20)
    assert reader.rate() == 300
    reader.restart()
    assert reader.rate() == 300


def test_a_counter_that_goes_on_under_another_name_is_the_same_broker(reading: Start) -> None:
    exporters = FakeExporters(queries=Queries(egress="sent"))
    exporters.scrapes(A, at={"a": 100}, times=6)
    reader = reading(exporters)
    assert reader.rate() == 100
    end = exporters.series[A][-1]
    exporters.series[B] = [(end[0] + 15, end[1] + 1500)]
    exporters.now += 15
    exporters.scrapes(A, B, at={"b": 120}, times=2)
    assert reader.rate() == 120


def test_an_exporter_of_clients_that_is_not_the_brokers_own_makes_its_nic_unknown_too(
    reading: Start,
) -> None:
    exporters = FakeExporters()
    exporters.scrapes(A, B, at={"a": 100}, times=6)
    reader = reading(exporters)
    assert reader.rate() == 100
    exporters.scrapes(A, B, at={"a": 100}, times=6)
    exporters.clients = {B: [(at, 9e9) for at, _ in exporters.series[A]]}
    assert reader.rate() is Reason.SOURCE_CHANGED


def test_with_matchers_a_source_may_change(reading: Start) -> None:
    exporters = FakeExporters(matchers={"c": "a"}, queries=Queries(egress="sent"))
    exporters.scrapes(A, at={"a": 100}, times=6)
    reader = reading(exporters)
    respond = exporters.respond

    def without_matchers(request: Request) -> None:
        seen = request.server.seen[-1]
        request.server.seen[-1] = replace(seen, path=seen.path.replace("%7Bc%3D%22a%22%7D", ""))
        respond(request)

    reader._server.respond = without_matchers
    assert reader.rate() == 100
    exporters.scrapes(A, B, at={"b": 9000}, times=10)
    assert reader.rate() == 9000


def test_a_pod_that_moves_to_another_node_is_the_same_source() -> None:
    assert source_labels(BrokerLabel("pod")) == ("cluster", "job", "namespace", "pod")
    assert "instance" in source_labels(BrokerLabel("broker"))
