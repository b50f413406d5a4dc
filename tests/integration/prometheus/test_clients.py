"""Rates and throttle times of clients as a real Prometheus scraped them, by entity and broker."""

from __future__ import annotations

import pytest

from controller_logic.model import Direction, Entity
from controller_logic.reasons import Reason
from tests.integration.prometheus.conftest import BROKERS, Read, fetch
from tidegate.prometheus.settings import Preset

pytestmark = pytest.mark.integration
ALICE, PAIR = Entity("alice"), Entity("a b", "c:1")


def test_each_clients_rate_and_throttle_time_are_read_in_both_directions(read: Read) -> None:
    clients = read().clients
    assert set(clients) == {
        (entity, broker, way)
        for broker in (1, 2)
        for entity, way in [(ALICE, Direction.EGRESS), (PAIR, Direction.EGRESS), (ALICE, Direction.INGRESS)]
    }
    assert clients[ALICE, 1, Direction.EGRESS].bytes_per_second == 1000.5
    assert clients[PAIR, 2, Direction.EGRESS].bytes_per_second == 2000
    assert clients[ALICE, 1, Direction.INGRESS].bytes_per_second == 3000


def test_a_throttle_time_zero_and_unknown_are_three_things(read: Read) -> None:
    clients = read().clients
    assert clients[PAIR, 1, Direction.EGRESS].throttle_milliseconds == 350.5
    assert clients[ALICE, 1, Direction.EGRESS].throttle_milliseconds == 0.0
    assert clients[ALICE, 1, Direction.INGRESS].throttle_milliseconds is None


def test_a_rate_has_the_time_of_its_own_sample(read: Read) -> None:
    readings = read()
    ages = {readings.read_at_seconds - rate.at_seconds for rate in readings.clients.values()}
    assert all(-1 < age < 3 for age in ages)
    assert len(ages) > 1


def test_a_broker_without_clients_is_reported_where_others_have_some(read: Read) -> None:
    assert [problem.broker for problem in read().problems if problem.reason is Reason.CLIENTS_NOT_METERED] == [3]


@pytest.mark.parametrize("case", ["nan", "infinite", "negative"])
def test_a_rate_that_is_no_amount_is_unknown_and_reported(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch(case))
    assert readings.clients == {}
    assert {problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_UNREADABLE} == BROKERS


@pytest.mark.parametrize("case", ["no-client", "unspellable"])
def test_a_series_that_names_no_client_is_left_out_and_reported(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch(case))
    assert readings.clients == {}
    assert Reason.METRICS_AMBIGUOUS in {problem.reason for problem in readings.problems}


def test_a_client_with_two_series_is_unknown_there_and_known_elsewhere(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch("twice"))
    assert {broker for _, broker, _ in readings.clients} == {2, 3}
    assert [problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_AMBIGUOUS] == [1]


def test_no_client_anywhere_is_one_problem(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch("never exported"))
    assert [problem.broker for problem in readings.problems if problem.reason is Reason.CLIENTS_NOT_METERED] == [None]
