"""What clients moved over days, asked of a Prometheus in memory: figures, gaps, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from tests.doubles.usage_history import Question, UsageHistory
from tests.unit.prometheus.lying_server import Request, serving
from tidegate.errors import Incomplete, InvalidResource, Unreachable
from tidegate.prometheus import usage as usage_module
from tidegate.prometheus.settings import (
    MetricsSettings,
    Preset,
    PrometheusServer,
    Queries,
)
from tidegate.prometheus.usage import UsageReader
from tidegate.prometheus.usage_windows import Period, UsageReading
from tidegate_logic.model import Direction, Entity
from tidegate_logic.reasons import Reason

HOUR, DAY = 3600, 86_400
NOW = 1_700_000_123.0
PERIOD = Period.before(NOW, 7 * DAY)
QUERIES = Queries(None, None, "fetched{}", "produced{}", "fetch_delay{}", "produce_delay{}")
BOB, ANN = Entity("bob"), Entity("ann")
FETCH, PRODUCE = Direction.EGRESS, Direction.INGRESS
MINE = {"cluster": "orders", "job": "kafka"}


def always(rate: float) -> Callable[[int], float]:
    return lambda at: rate


def between(start: int, end: int, rate: float = 1000.0) -> Callable[[int], float | None]:
    return lambda at: rate if start < at <= end else None


def read(
    history: UsageHistory,
    *,
    period: Period = PERIOD,
    brokers: Collection[int] | None = None,
    wanted: Callable[[Entity], bool] = lambda entity: True,
    **settings: object,
) -> UsageReading:
    with serving(history) as server:
        given = {"preset": Preset.CUSTOM, "queries": QUERIES, "matchers": {"cluster": "orders"}}
        prometheus = PrometheusServer(server.url)
        made = MetricsSettings(prometheus, **(given | settings))  # type: ignore[arg-type]
        reader = UsageReader(made)
        try:
            return reader.read(period, wanted=wanted, brokers=brokers)
        finally:
            reader.close()


def reasons(reading: UsageReading) -> list[Reason]:
    return [problem.reason for problem in reading.problems]


@pytest.fixture
def history() -> UsageHistory:
    """One client that always reads from broker 1."""
    made = UsageHistory()
    made.add("fetched", always(2000.0), broker="1", user="bob", instance="k1:9404", **MINE)
    return made


def test_a_period_is_of_whole_windows_before_now() -> None:
    assert PERIOD.end_seconds == 1_700_000_100
    assert (PERIOD.windows, PERIOD.seconds) == (2016, 7 * DAY)
    assert PERIOD.number_of(PERIOD.start_seconds) is None
    assert PERIOD.number_of(PERIOD.start_seconds + 300) == 0
    assert PERIOD.number_of(PERIOD.end_seconds) == 2015
    assert PERIOD.number_of(PERIOD.end_seconds + 300) is None
    assert sum(piece.windows for piece in PERIOD.pieces(5 * HOUR)) == 2016


def test_a_client_has_the_figures_of_the_broker_where_it_moves_most(history: UsageHistory) -> None:
    peak_at = PERIOD.start_seconds + 50 * HOUR

    def busier(at: int) -> float:
        return 9000.0 if at == peak_at else 3000.0

    history.add("fetched", busier, broker="2", user="bob", instance="k2:9404", **MINE)
    history.add("produced", always(0.0), broker="2", user="bob", instance="k2:9404", **MINE)
    reading = read(history)
    fetched = reading.clients[BOB, FETCH]
    assert (fetched.broker, fetched.p99, fetched.peak) == (2, 3000.0, 9000.0)
    assert fetched.peak_at_seconds == peak_at
    produced = reading.clients[BOB, PRODUCE]
    assert (produced.p99, produced.peak) == (0.0, 0.0)
    assert reading.seen[BOB].client_seconds == reading.seen[BOB].known_seconds == 7 * DAY
    assert reading.known_seconds == {1: 7 * DAY, 2: 7 * DAY}
    assert reading.problems == ()


def test_five_minutes_without_a_byte_do_not_count() -> None:
    """A job of ten minutes a day is sized by them: of all windows they are less than 1 %."""
    history = UsageHistory()

    def daily(at: int) -> float:
        return 5000.0 if (at - PERIOD.start_seconds) % DAY in (300, 600) else 0.0

    history.add("produced", daily, broker="1", user="ann", **MINE)
    assert read(history).clients[ANN, PRODUCE].p99 == 5000.0


def test_99_of_100_windows_stay_under_it_by_nearest_rank() -> None:
    history, start = UsageHistory(), PERIOD.start_seconds
    history.add("fetched", lambda at: float(at - start) / 300, broker="1", user="bob", **MINE)
    usage = read(history).clients[BOB, FETCH]
    assert (usage.p99, usage.peak) == (1996.0, 2016.0)


def test_what_is_asked_keeps_to_one_cluster_and_to_small_answers(history: UsageHistory) -> None:
    history.add(
        "fetched", always(9e9), broker="1", user="eve", cluster="other", instance="x", job="kafka"
    )
    reading = read(history)
    assert {entity for entity, _ in reading.clients} == {BOB}
    means = [one for one in history.asked if one.form == "mean"]
    assert len(means) == 7
    assert {one.end - one.start for one in means} == {DAY}
    assert {one.matchers["cluster"] for one in history.asked} == {("=", "orders")}
    assert sorted(one.start for one in means)[0] == PERIOD.start_seconds


def test_a_client_of_this_hour_is_found_in_a_week_and_another_that_is_gone_since(
    history: UsageHistory,
) -> None:
    """Whole hours are looked at, and neither has one of the last."""
    hour = PERIOD.end_seconds - PERIOD.end_seconds % HOUR
    young = between(hour, PERIOD.end_seconds)
    gone = between(hour - DAY - HOUR, hour - DAY)
    history.add("fetched", young, broker="2", user="ann", instance="k2:9404", **MINE)
    history.add("produced", gone, broker="3", user="ann", instance="k3:9404", **MINE)
    reading = read(history)
    assert reading.clients[ANN, FETCH].broker == 2
    assert reading.clients[ANN, PRODUCE].broker == 3
    assert reading.problems == ()


def test_many_clients_are_asked_for_in_shorter_pieces_and_by_groups(
    history: UsageHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_module, "_WINDOWS_OF_AN_ANSWER", 288)
    for user in ("ann", "cid"):
        history.add("fetched", always(1.0), broker="1", user=user, instance="k1:9404", **MINE)
    history.add("fetched", always(1.0), broker="2", user="bob", instance="k2:9404", **MINE)
    reading = read(history, period=Period.before(NOW, DAY))
    means = [one for one in history.asked if one.form == "mean"]
    of_first = [one for one in means if "1" in one.matchers["broker"][1]]
    assert {one.end - one.start for one in of_first} == {8 * HOUR}
    assert [one.end - one.start for one in means if one not in of_first] == [DAY]
    assert {one.client_seconds for one in reading.seen.values()} == {DAY}
    assert len(reading.seen) == 3


def test_an_answer_that_is_too_large_is_asked_for_in_halves(history: UsageHistory) -> None:
    def too_much(question: Question, request: Request) -> bool:
        if question.form == "mean" and question.end - question.start > 6 * HOUR:
            request.send(200, " " * 200_000)
            return True
        return False

    history.refuse = too_much
    with serving(history) as server:
        small = PrometheusServer(server.url, answer_limit_bytes=100_000)
        settings = MetricsSettings(small, Preset.CUSTOM, QUERIES, matchers={"cluster": "orders"})
        reading = UsageReader(settings).read(
            Period.before(NOW, 2 * DAY), wanted=lambda entity: True, brokers=None
        )
    assert reading.seen[BOB].client_seconds == 2 * DAY
    assert reading.problems == ()
    lengths = [one.end - one.start for one in history.asked if one.form == "mean"]
    assert lengths == [DAY, 12 * HOUR] + 8 * [6 * HOUR]


def test_an_hour_that_prometheus_refuses_is_left_out_and_no_more(history: UsageHistory) -> None:
    """It refuses two names of one metric in one answer, and more samples than it may load."""
    changed_at = PERIOD.start_seconds + 30 * HOUR + 900

    def refuse(question: Question, request: Request) -> bool:
        if question.form != "mean" or not question.start < changed_at <= question.end:
            return False
        error = '{"status": "error", "errorType": "execution", "error": "same labelset"}'
        request.send(422, error)
        return True

    history.refuse = refuse
    reading = read(history)
    assert reading.seen[BOB].client_seconds == 7 * DAY - HOUR
    assert reasons(reading) == [Reason.METRICS_INCOMPLETE]
    assert "same labelset" in reading.problems[0].message


def test_a_piece_without_an_answer_is_said_and_not_taken_for_zero(history: UsageHistory) -> None:
    def partial(question: Question, request: Request) -> bool:
        if question.form == "mean" and question.start == PERIOD.start_seconds + DAY:
            request.send(
                200,
                '{"status": "success", "data": {"resultType": "matrix", "result": []}, '
                '"warnings": ["a store is down"]}',
            )
            return True
        return False

    history.refuse = partial
    reading = read(history)
    assert reasons(reading) == [Reason.METRICS_INCOMPLETE]
    assert reading.problems[0].message.startswith(
        "24 hours of fetch rates were not read (brokers 1)"
    )
    assert "a store is down" in reading.problems[0].message
    assert reading.seen[BOB].known_seconds == 6 * DAY
    assert reading.clients[BOB, FETCH].p99 == 2000.0


def test_too_many_pieces_without_an_answer_are_an_error(history: UsageHistory) -> None:
    def partial(question: Question, request: Request) -> bool:
        if question.form != "mean":
            return False
        request.send(
            200,
            '{"status": "success", "data": {"resultType": "matrix", "result": []}, '
            '"warnings": ["a store is down"]}',
        )
        return True

    history.refuse = partial
    with pytest.raises(Incomplete, match="6 parts of the usage could not be read"):
        read(history)


def test_a_server_that_is_away_is_an_error() -> None:
    gone = PrometheusServer("http://127.0.0.1:1", question_timeout_seconds=0.2)
    reader = UsageReader(MetricsSettings(gone, matchers={"cluster": "orders"}))
    with pytest.raises(Unreachable):
        reader.read(PERIOD, wanted=lambda entity: True, brokers=None)


def test_no_rates_at_all_is_an_error_that_says_what_kafka_meters() -> None:
    with pytest.raises(Incomplete, match=r"defaults\.metering") as error:
        read(UsageHistory())
    assert error.value.reason is Reason.CLIENTS_NOT_METERED
    assert "cluster=orders" in error.value.message


def test_hours_without_samples_are_counted_as_not_known() -> None:
    history, start = UsageHistory(), PERIOD.start_seconds
    kept = between(start + 4 * DAY, PERIOD.end_seconds)
    brief = between(start + 5 * DAY, start + 5 * DAY + 2 * HOUR)
    history.add("fetched", kept, broker="1", user="bob", **MINE)
    history.add("fetched", brief, broker="1", user="ann", **MINE)
    reading = read(history)
    assert reading.known_seconds == {1: 3 * DAY}
    assert reading.seen[ANN].client_seconds == 2 * HOUR
    assert reading.seen[ANN].known_seconds == 3 * DAY


def test_a_restart_is_no_second_source_and_two_sources_at_once_are_refused() -> None:
    start, middle, end = PERIOD.start_seconds, PERIOD.start_seconds + 3 * DAY, PERIOD.end_seconds
    history = UsageHistory()
    first, second = between(start, middle), between(middle - 300, end, 3000.0)
    history.add("fetched", first, broker="1", user="bob", instance="10.0.0.1:9404", **MINE)
    history.add("fetched", second, broker="1", user="bob", instance="10.0.0.2:9404", **MINE)
    reading = read(history)
    assert reading.seen[BOB].client_seconds == 7 * DAY
    assert reading.problems == ()
    history.add("fetched", always(7.0), broker="1", user="eve", instance="10.9.0.1:9404", **MINE)
    with pytest.raises(InvalidResource, match="two Kafka clusters on one Prometheus") as error:
        read(history)
    assert error.value.reason is Reason.METRICS_AMBIGUOUS
    assert "--matcher LABEL=VALUE" in error.value.message


def test_two_series_of_one_client_give_no_figure(history: UsageHistory) -> None:
    for replica in "ab":
        history.add(
            *("fetched", always(5.0)),
            **{"broker": "1", "user": "ann", "instance": "k1:9404", "replica": replica, **MINE},
        )
    reading = read(history)
    assert reading.both_at_once == {ANN}
    assert {entity for entity, _ in reading.clients} == set(reading.seen) == {BOB}
    assert reasons(reading) == [Reason.METRICS_AMBIGUOUS]


def test_series_of_brokers_that_the_cluster_lacks_are_left_out(history: UsageHistory) -> None:
    history.add("fetched", always(7.0), broker="101", user="eve", instance="x:9404", **MINE)
    reading = read(history, brokers={1, 2})
    assert {entity for entity, _ in reading.clients} == {BOB}
    assert [(one.reason, one.broker) for one in reading.problems] == [
        (Reason.SOURCE_CHANGED, 101),
        (Reason.CLIENTS_NOT_METERED, 2),
    ]


def test_only_wanted_clients_have_figures_and_all_show_what_is_known(history: UsageHistory) -> None:
    half = between(PERIOD.start_seconds, PERIOD.start_seconds + DAY)
    history.add("fetched", half, broker="1", user="ann", instance="k1:9404", **MINE)
    reading = read(history, wanted=lambda entity: entity == ANN)
    assert {entity for entity, _ in reading.clients} == {ANN}
    assert reading.seen[ANN].client_seconds == DAY
    assert reading.seen[ANN].known_seconds == 7 * DAY


def test_days_with_throttle_times_are_counted(history: UsageHistory) -> None:
    late = between(PERIOD.start_seconds + 5 * DAY, PERIOD.end_seconds, 400.0)
    history.add("fetch_delay", late, broker="1", user="bob", **MINE)
    assert read(history).clients[BOB, FETCH].throttled_days == 2
    without = UsageHistory(history.series[:1])
    assert read(without).clients[BOB, FETCH].throttled_days is None
    never = UsageHistory(history.series[:1])
    never.add("fetch_delay", always(float("nan")), broker="1", user="bob", **MINE)
    assert read(never).clients[BOB, FETCH].throttled_days == 0


def test_throttle_times_that_are_not_answered_take_no_rates_away(history: UsageHistory) -> None:
    def partial(question: Question, request: Request) -> bool:
        if question.form == "max":
            request.send(200, '{"status": "success"')
        return question.form == "max"

    history.refuse = partial
    reading = read(history, period=Period.before(NOW, DAY))
    assert reading.clients[BOB, FETCH].p99 == 2000.0
    assert reasons(reading) == [Reason.METRICS_INCOMPLETE]


def test_values_that_are_no_amounts_are_said(history: UsageHistory) -> None:
    history.add("fetched", always(float("inf")), broker="1", user="ann", instance="k1:9404", **MINE)
    reading = read(history, period=Period.before(NOW, DAY))
    assert (ANN, FETCH) not in reading.clients
    assert reasons(reading) == [Reason.METRICS_UNREADABLE]


def test_a_direction_without_a_query_and_series_without_a_client_are_said(
    history: UsageHistory,
) -> None:
    history.add("fetched", always(1.0), broker="1", topic="t", instance="k1:9404", **MINE)
    reading = read(
        history, period=Period.before(NOW, DAY), queries=replace(QUERIES, produce_rate=None)
    )
    assert set(reasons(reading)) == {Reason.METRICS_NOT_WATCHED, Reason.CLIENTS_NOT_NAMED}
