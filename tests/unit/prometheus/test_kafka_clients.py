"""Clients: the newest value of each on each broker, and the entity that Kafka's tags name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from tests.goldens.golden import numbers
from tests.unit.kafka.test_quota_node import SANITIZER
from tidegate.prometheus import kafka_clients
from tidegate.prometheus.kafka_clients import (
    ClientSample,
    EntityNames,
    ReadClient,
    Who,
    entity_of,
    newest_of_each,
)
from tidegate.prometheus.queries import broker_of
from tidegate.prometheus.series import Series, problems_of
from tidegate.prometheus.settings import BrokerLabel
from tidegate_logic.model import Entity, ReadingProblem
from tidegate_logic.reasons import Reason

# --- values ---------------------------------------------------------------------------------------
# The newest value of each client on each broker, and nothing for a client with two series at once.


NOW = 1000.0
BOB = (Entity("bob"), 1)


def gauge(
    *samples: tuple[float, float], broker: str = "1", user: str = "bob", **labels: str
) -> Series:
    return Series({"broker": broker, "user": user, **labels}, samples)


def read(
    *series: Series, nan_is_zero: bool = False
) -> tuple[Mapping[Who, ClientSample], tuple[ReadingProblem, ...]]:
    each = ReadClient(
        "fetch byte rate",
        broker_of=broker_of(BrokerLabel("broker")),
        names=EntityNames(),
        nan_is_zero=nan_is_zero,
    )
    newest, oddities = newest_of_each(map(each, series), "fetch byte rate", read_at_seconds=NOW)
    return newest, problems_of(oddities)


def test_the_newest_sample_counts_with_its_own_time() -> None:
    newest, problems = read(gauge((970, 5.0), (985, 7.0)))
    assert (newest[BOB].at_seconds, newest[BOB].amount) == (985, 7.0)
    assert problems == ()


def test_clients_and_brokers_are_kept_apart() -> None:
    newest, _ = read(
        gauge((990, 1.0)), gauge((990, 2.0), broker="2"), gauge((990, 3.0), client_id="app")
    )
    assert {who: sample.amount for who, sample in newest.items()} == {
        BOB: 1.0,
        (Entity("bob"), 2): 2.0,
        (Entity("bob", "app"), 1): 3.0,
    }


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_rate_that_is_no_amount_is_unknown_even_where_an_older_one_is_not(wrong: float) -> None:
    newest, (problem,) = read(gauge((975, 5.0), (990, wrong)))
    assert newest == {}
    assert (problem.reason, problem.broker) == (Reason.METRICS_UNREADABLE, 1)


def test_the_throttle_time_without_throttling_is_nan_and_means_zero() -> None:
    newest, problems = read(gauge((990, math.nan)), nan_is_zero=True)
    assert newest[BOB].amount == 0.0
    assert problems == ()


@pytest.mark.parametrize("wrong", [math.inf, -1.0])
def test_a_throttle_time_that_is_no_amount_is_unknown(wrong: float) -> None:
    newest, problems = read(gauge((990, wrong)), nan_is_zero=True)
    assert newest == {}
    assert len(problems) == 1


def test_two_series_of_a_client_at_the_same_time_are_left_out_and_others_stay() -> None:
    newest, (problem,) = read(
        gauge((970, 1.0), (985, 1.0)),
        gauge((980, 2.0), (995, 2.0), job="twice"),
        gauge((990, 3.0), user="eve"),
    )
    assert set(newest) == {(Entity("eve"), 1)}
    assert (problem.reason, problem.broker) == (Reason.METRICS_AMBIGUOUS, 1)
    assert "user=bob" in problem.message


@pytest.mark.parametrize("order", [1, -1])
def test_a_series_may_take_over_from_one_that_ended(order: int) -> None:
    series = [
        gauge((960, 1.0), (970, 1.0), instance="old"),
        gauge((980, 2.0), (995, 2.0), instance="new"),
    ]
    newest, problems = read(*series[::order])
    assert newest[BOB].amount == 2.0
    assert problems == ()


def test_a_client_whose_samples_are_ahead_of_our_clock_is_unknown() -> None:
    newest, (problem,) = read(gauge((1060, 5.0)))
    assert newest == {}
    assert problem.reason is Reason.METRICS_STALE


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (gauge((990, 1.0), broker=""), Reason.METRICS_AMBIGUOUS),
        (gauge((990, 1.0), user=""), Reason.CLIENTS_NOT_NAMED),
        (gauge((990, 1.0), user="a b"), Reason.CLIENTS_NOT_NAMED),
    ],
)
def test_a_series_without_broker_or_client_is_left_out_and_named(
    series: Series, reason: Reason
) -> None:
    newest, (problem,) = read(series)
    assert newest == {}
    assert problem.reason is reason
    assert "bob" in problem.message or 'broker="1"' in problem.message


def test_a_thousand_odd_clients_are_one_problem(golden: Callable[[str], None]) -> None:
    _, problems = read(*(gauge((990, -1.0), user=f"u{n}") for n in range(1000)))
    (problem,) = problems
    assert numbers(problem.message) >= {1000}
    golden(problem.message)


# --- entities -------------------------------------------------------------------------------------
# Tags of Kafka's quota metrics become the entity whose bucket they name; what Kafka would not have
# written is no entity's.


@pytest.mark.parametrize(("name", "tag"), SANITIZER)
def test_a_user_is_read_back_as_kafka_spells_it(name: str, tag: str) -> None:
    assert entity_of({"user": tag}, EntityNames()) == Entity(user=name)


@pytest.mark.parametrize(
    "tag", ["a b", "a+b", "%41", "a%2fb", "%", "%zz", "%ff", "CN=x,O=y", "~", "\ud800"]
)
def test_a_user_that_kafka_would_spell_otherwise_is_no_entity(tag: str) -> None:
    assert entity_of({"user": tag}, EntityNames()) is None


@pytest.mark.parametrize(
    ("tag", "client_id"),
    [
        ("app-1", "app-1"),
        ("a b%20", "a b%20"),
        ('"a:b"', "a:b"),
        (r'"a\"b\\c\*\?\nd"', 'a"b\\c*?\nd'),
        ('"', '"'),
        (r'"a\"', r'"a\"'),
    ],
)
def test_a_client_id_is_as_it_is_and_loses_jmxs_quotes(tag: str, client_id: str) -> None:
    assert entity_of({"client_id": tag}, EntityNames()) == Entity(client_id=client_id)


@pytest.mark.parametrize("label", ["client_id", "clientId", "clientid", "clientID"])
def test_each_well_known_spelling_of_the_label_is_read(label: str) -> None:
    assert entity_of({"user": "bob", label: "app"}, EntityNames()) == Entity("bob", "app")


# as the JMX exporter 1.x shows them with the rules in each order; see test_rule_orders.py
@pytest.mark.parametrize(
    ("labels", "entity"),
    [
        ({"resource": "Produce, user=bob", "clientId": "app"}, Entity("bob", "app")),
        ({"resource": "Produce, user=a%20b", "clientId": '"x, 1"'}, Entity("a b", "x, 1")),
        ({"resource": "Fetch", "user": "bob, client-id=app"}, Entity("bob", "app")),
        ({"resource": "Fetch", "user": 'bob, client-id="a, b=c"'}, Entity("bob", "a, b=c")),
        (
            {"resource": "Fetch", "user": "bob, client-id=x, client-id=y"},
            Entity("bob", "x, client-id=y"),
        ),
        ({"resource": "Fetch, user=bob"}, Entity("bob")),
        ({"resource": "Fetch, client-id=solo"}, Entity(client_id="solo")),
        ({"resource": "Fetch, client-id=user=bob"}, Entity(client_id="user=bob")),
        ({"resource": "Fetch, user=bob, client-id=app"}, Entity("bob", "app")),
        ({"resource": 'Fetch, user=bob, client-id="x, 1"'}, Entity("bob", "x, 1")),
        ({"__name__": "kafka_server_Fetch_byte_rate", "user": "bob"}, Entity("bob")),
        ({"__name__": "mine", "resource": "eu-west", "user": "bob"}, Entity("bob")),
    ],
)
def test_tags_that_a_rule_took_for_a_part_of_another_are_read(
    labels: dict[str, str], entity: Entity
) -> None:
    assert entity_of(labels, EntityNames()) == entity


@pytest.mark.parametrize(
    "labels",
    [
        {"resource": "Fetch, user=bob", "user": "alice"},
        {"resource": "Fetch, client-id=x", "client_id": "y"},
        {"resource": "Fetch, a=b", "user": "bob"},
        {"resource": "Fetch", "user": "bob, client-id=x", "client_id": "y"},
        {"resource": "Fetch, user=a b"},
        {"resource": "Fetch, user=a, b", "client_id": "x"},
        {"__name__": "kafka_quota_byte_rate", "user": "bob"},
        {"__name__": "kafka_server_quota_byte_rate", "user": "bob", "resource": "produce"},
        {"__name__": "kafka_server_produce_user_bob_byte_rate", "client_id": "app"},
        {"__name__": "kafka_server_Fetch_client_id_solo_byte_rate"},
    ],
)
def test_what_may_be_of_another_client_or_resource_is_named_and_not_guessed(
    labels: dict[str, str], golden: Callable[[str], None]
) -> None:
    assert entity_of(labels, EntityNames()) is None
    newest, (problem,) = read(Series({"broker": "1", **labels}, ((990, 1.0),)))
    assert newest == {}
    assert (problem.reason, problem.broker) == (Reason.CLIENTS_NOT_NAMED, 1)
    golden(problem.message)


def test_a_tag_that_is_empty_is_no_part_of_the_entity() -> None:
    assert entity_of({"user": "bob", "client_id": ""}, EntityNames()) == Entity("bob")


@pytest.mark.parametrize(
    "labels", [{}, {"user": "", "client_id": ""}, {"topic": "t"}, {"client_id": '""'}]
)
def test_empty_tags_are_no_entity(labels: dict[str, str]) -> None:
    assert entity_of(labels, EntityNames()) is None


def test_a_user_called_like_the_default_is_a_user() -> None:
    entity = entity_of({"user": "%3Cdefault%3E"}, EntityNames())
    assert entity == Entity("<default>")
    assert not entity.is_default


def test_a_client_on_many_brokers_is_spelled_out_once_a_reading_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spelled: list[str] = []
    original = kafka_clients._user
    monkeypatch.setattr(kafka_clients, "_user", lambda tag: spelled.append(tag) or original(tag))
    names = EntityNames()
    for _ in range(3):
        for number in range(17_000):
            assert entity_of({"user": f"u{number}"}, names) == Entity(f"u{number}")
    assert len(spelled) == 17_000
