"""A reading never fails: what cannot be known is absent, and said once, however many queries met
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from tests.unit.hands import Hands
from tests.unit.prometheus.lying_server import LyingServer, Request, serving
from tidegate.prometheus import questions
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
from tidegate_logic.model import BackgroundKind, Direction, Entity, Readings
from tidegate_logic.reasons import Reason

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
        (broker, way): 100.0 for broker in (1, 2) for way in Direction.COMBINED.parts
    }
    bob = readings.clients[Entity("bob"), 1, Direction.EGRESS]
    assert (bob.at_seconds, bob.bytes_per_second, bob.throttle_milliseconds) == (985, 70.0, 12.5)


def test_bytes_of_tiered_storage_are_read_where_they_are_wanted_and_a_gap_is_no_problem() -> None:
    def respond(request: Request) -> None:
        if "RemoteCopy" not in request.server.seen[-1].query:
            is_fetch = "RemoteFetch" in request.server.seen[-1].query
            answering({**WHOLE, metric(request): []} if is_fetch else WHOLE)(request)
            return
        answering({metric(request): [of_broker(1, NIC)]})(request)

    readings, server = read(respond, background=True)
    assert readings.problems == ()
    assert {key: spans[-1].bytes_per_second for key, spans in readings.background.items()} == {
        (1, BackgroundKind.REMOTE_COPY): 100.0
    }
    asked = [seen.query for seen in server.seen if "Remote" in seen.query]
    assert len(asked) == 2
    assert all(re.search("kafka_broker_remote(copy|fetch)bytes_total", one) for one in asked)
    assert not [seen for seen in read(answering(WHOLE))[1].seen if "Remote" in seen.query]


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
    readings, server = read(answering(WHOLE, warnings=["a store is down"]))
    assert (readings.nic, readings.clients) == ({}, {})
    assert reasons(readings) == [Reason.METRICS_INCOMPLETE]
    assert len(server.seen) == 4  # no throttle times without rates


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


def read_at_clocks_apart(apart_seconds: int, *, sample_age_seconds: int) -> Readings:
    """One reading of broker 1 with our clock so far ahead of the server's."""
    newest = NOW - sample_age_seconds
    samples: list[list[object]] = [[newest - 15, "0"], [newest, "1500"]]
    answers = {**WHOLE, **{name: [of_broker(1, samples)] for name in ("sent", "received")}}

    def respond(request: Request) -> None:
        request.date_time_string = lambda *_: formatdate(NOW, usegmt=True)  # type: ignore[method-assign]
        answering(answers)(request)

    with serving(respond) as server:
        settings = MetricsSettings(PrometheusServer(server.url), Preset.CUSTOM, QUERIES)
        clock = Hands(NOW + apart_seconds)
        return PrometheusReader(settings, clock=clock, monotonic=Hands(0.0)).read((1,))


@pytest.mark.parametrize(
    ("apart_seconds", "expected"),
    [
        (62, {"Tidegate's clock is 62 s ahead of Prometheus'"}),
        (0, set()),
        (-62, {"Tidegate's clock is at least 62 s behind that of its samples"}),
    ],
)
def test_clocks_that_differ_are_reported_as_clocks_with_their_difference(
    apart_seconds: int, expected: set[str], golden: Callable[[str], None]
) -> None:
    readings = read_at_clocks_apart(apart_seconds, sample_age_seconds=0)
    problems = [one for one in readings.problems if one.reason is Reason.METRICS_STALE]
    messages = " ".join(one.message for one in problems)
    assert bool(messages) == bool(expected)
    assert all(text in messages for text in expected)
    assert "exporters" not in messages
    golden(messages or "no problem")


def test_samples_that_are_old_by_prometheus_own_clock_are_not_reported_as_clocks() -> None:
    readings = read_at_clocks_apart(62, sample_age_seconds=100)
    (problem,) = [one for one in readings.problems if one.reason is Reason.METRICS_STALE]
    assert "clock" not in problem.message
    assert "exporters" in problem.message


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


def taking(seconds: float, clock: Hands, respond: Callable[[Request], None]) -> Any:
    """Answers that take so long by the clock that has no date."""

    def slow(request: Request) -> None:
        clock.now += seconds
        respond(request)

    return slow


def test_each_question_has_a_time_limit_of_its_own() -> None:
    monotonic = Hands(0.0)
    with serving(taking(2.0, monotonic, answering(WHOLE))) as server:
        settings = MetricsSettings(
            PrometheusServer(server.url, question_timeout_seconds=3.0), Preset.CUSTOM, QUERIES
        )
        reader = PrometheusReader(settings, clock=Hands(NOW), monotonic=monotonic)
        assert reader.read((1, 2)).problems == ()
    assert monotonic.now == 12.0


def test_all_questions_together_last_no_longer_than_a_scrape_interval() -> None:
    monotonic = Hands(0.0)
    with serving(taking(4.0, monotonic, answering(WHOLE))) as server:
        settings = MetricsSettings(
            PrometheusServer(server.url, question_timeout_seconds=10.0), Preset.CUSTOM, QUERIES
        )
        reader = PrometheusReader(settings, clock=Hands(NOW), monotonic=monotonic)
        readings = reader.read((1, 2))
    assert monotonic.now == 16.0
    assert reasons(readings) == [Reason.PROMETHEUS_UNREACHABLE]
    assert (1, Direction.EGRESS) in readings.nic
    assert known(readings) == [1, 2]


# --- clients by groups of brokers -----------------------------------------------------------------


class ManyBrokers:
    """Six brokers with bob and eve each, asked for in groups of two, the busiest first.

    Broker 6 carries most. `fails` answers instead for the groups with this broker.
    """

    brokers = tuple(range(1, 7))

    def __init__(self) -> None:
        self.fails: dict[int, Callable[[Request], None]] = {}
        self.now = NOW

    def respond(self, request: Request) -> None:
        query = request.server.seen[-1].query
        asked = re.search(r"0\*\(([0-9|]+)\)", query)
        group = [int(one) for one in asked[1].split("|")] if asked else self.brokers
        for broker in group if asked else ():
            if broker in self.fails:
                self.fails[broker](request)
                return
        at, name = self.now - 15, query[: len("fetched")]
        if name.startswith("fetched"):
            found = [
                of_broker(broker, [[at, str(broker * 10)]], user=user)
                for broker in group
                for user in ("bob", "eve")
            ]
        else:
            found = [
                of_broker(broker, [[at - 15, "0"], [at, str(broker * 1500)]]) for broker in group
            ]
        document = {"status": "success", "data": {"resultType": "matrix", "result": found}}
        request.send(200, json.dumps(document))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ManyBrokers, PrometheusReader]]:
    monkeypatch.setattr(questions, "_LIKELY_CLIENTS", 2)
    monkeypatch.setattr(questions, "_SERIES_OF_A_QUESTION", 5)
    world = ManyBrokers()
    with serving(world.respond) as server:
        reader = PrometheusReader(
            MetricsSettings(
                PrometheusServer(
                    server.url, question_timeout_seconds=10.0, answer_limit_bytes=2000
                ),
                Preset.CUSTOM,
                Queries(egress="sent", fetch_rate="fetched"),
            ),
            clock=lambda: world.now,
        )
        world.seen = server.seen  # type: ignore[attr-defined]
        yield world, reader
        reader.close()


def known(readings: Readings) -> list[int]:
    return sorted({broker for _, broker, _ in readings.clients})


def groups_asked(world: ManyBrokers) -> list[str]:
    return [one.query for one in world.seen if one.query.startswith("fetched")]  # type: ignore[attr-defined]


def test_clients_are_asked_for_by_groups_of_brokers_the_busiest_first(
    many: tuple[ManyBrokers, PrometheusReader],
) -> None:
    world, reader = many
    readings = reader.read(world.brokers)
    assert readings.problems == ()
    assert {key: rate.bytes_per_second for key, rate in readings.clients.items()} == {
        (Entity(user), broker, Direction.EGRESS): broker * 10.0
        for broker in world.brokers
        for user in ("bob", "eve")
    }
    assert groups_asked(world) == [
        f'fetched{{broker=~"0*({group})"}}[45s]' for group in ("5|6", "3|4", "1|2")
    ]


def too_large(request: Request) -> None:
    request.send(200, " " * 3000)


def slow_answer(request: Request) -> None:
    request.server.gone.wait(6)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (too_large, Reason.METRICS_INCOMPLETE),
        (lambda request: request.send(400, "no"), Reason.METRICS_QUERY_REFUSED),
        (lambda request: request.send(200, "{}"), Reason.METRICS_INCOMPLETE),
        (slow_answer, Reason.PROMETHEUS_UNREACHABLE),
    ],
)
def test_what_goes_wrong_with_one_group_holds_for_its_brokers_only(
    many: tuple[ManyBrokers, PrometheusReader],
    fails: Callable[[Request], None],
    reason: Reason,
) -> None:
    world, reader = many
    world.fails[4] = fails
    readings = reader.read(world.brokers)
    assert known(readings) == [1, 2, 5, 6]
    (problem,) = readings.problems
    assert problem.reason is reason
    assert "brokers 3, 4 " in problem.message
    assert len(readings.nic) == len(world.brokers)


def test_what_goes_wrong_with_every_group_is_one_problem(
    many: tuple[ManyBrokers, PrometheusReader],
) -> None:
    world, reader = many
    world.fails = dict.fromkeys(world.brokers, lambda request: request.send(400, "no"))
    (problem,) = reader.read(world.brokers).problems
    assert problem.reason is Reason.METRICS_QUERY_REFUSED
    assert "brokers 1, 2, 3, 4, 5, 6 " in problem.message
    assert "byte rate is fetched. " in problem.message


def test_rates_that_could_not_be_read_again_stay_as_long_as_they_are_fresh(
    many: tuple[ManyBrokers, PrometheusReader],
) -> None:
    world, reader = many
    reader.read(world.brokers)
    world.fails = dict.fromkeys((3, 4), too_large)
    world.now += 15
    readings = reader.read(world.brokers)
    assert known(readings) == [1, 2, 3, 4, 5, 6]
    ages = {
        broker: world.now - rate.at_seconds for (_, broker, _), rate in readings.clients.items()
    }
    assert (ages[3], ages[4], ages[5]) == (30, 30, 15)
    world.now += 30
    assert known(reader.read(world.brokers)) == [1, 2, 5, 6]


def test_groups_become_smaller_where_an_answer_was_too_large_and_stay_so(
    many: tuple[ManyBrokers, PrometheusReader],
) -> None:
    world, reader = many
    world.fails[4] = too_large
    reader.read(world.brokers)
    del world.fails[4]
    world.seen.clear()  # type: ignore[attr-defined]
    readings = reader.read(world.brokers)
    assert readings.problems == ()
    assert len(groups_asked(world)) == 6


def test_brokers_for_which_no_time_is_left_are_named_and_the_busiest_are_known(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    monkeypatch.setattr(questions, "_LIKELY_CLIENTS", 2)
    monkeypatch.setattr(questions, "_SERIES_OF_A_QUESTION", 2)
    monkeypatch.setattr(questions, "_SHARE_OF_THE_TIME_LEFT", 1.0)
    world, monotonic = ManyBrokers(), Hands(0.0)
    with serving(taking(3.0, monotonic, world.respond)) as server:
        settings = MetricsSettings(
            PrometheusServer(server.url, question_timeout_seconds=10.0),
            Preset.CUSTOM,
            Queries(egress="sent", fetch_rate="fetched"),
        )
        reader = PrometheusReader(settings, clock=Hands(NOW), monotonic=monotonic)
        readings = reader.read(world.brokers)
    # the first question is for the NICs, and the last group that is asked is too late
    assert known(readings) == [3, 4, 5, 6]
    (problem,) = readings.problems
    assert problem.reason is Reason.METRICS_INCOMPLETE
    assert "brokers 1, 2 " in problem.message
    golden(problem.message)


def test_a_server_that_is_away_is_not_asked_for_every_group(
    many: tuple[ManyBrokers, PrometheusReader],
) -> None:
    world, reader = many
    world.fails = dict.fromkeys(world.brokers, lambda request: request.send(401, ""))
    readings = reader.read(world.brokers)
    assert reasons(readings) == [Reason.NOT_AUTHORIZED]
    assert len(groups_asked(world)) == 1


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
