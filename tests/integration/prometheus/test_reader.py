"""NIC rates from a real Prometheus: spans with the times of their samples, and no reading where a number could be wrong."""

from __future__ import annotations

import time

import pytest

from controller_logic.model import Direction, NicSpan, Readings
from controller_logic.reasons import Reason
from lab.prometheus import Exporter
from tests.integration.prometheus.conftest import BROKERS, Read, egress
from tests.integration.prometheus.exporter_pages import EGRESS_STEP, SECOND_NIC_STEP
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel, Preset

pytestmark = pytest.mark.integration


def spans(readings: Readings, direction: Direction = Direction.EGRESS, broker: int = 1) -> tuple[NicSpan, ...]:
    return readings.nic.get((broker, direction), ())


def bytes_of_each(found: tuple[NicSpan, ...]) -> set[int]:
    return {round(span.bytes_per_second * span.seconds) for span in found}


@pytest.mark.parametrize(
    ("preset", "sent", "received"),
    [
        (Preset.NODE_EXPORTER, EGRESS_STEP + SECOND_NIC_STEP, SECOND_NIC_STEP),
        (Preset.CADVISOR, EGRESS_STEP, SECOND_NIC_STEP),
        (Preset.JMX_EXPORTER, EGRESS_STEP + SECOND_NIC_STEP, 2 * SECOND_NIC_STEP),
    ],
)
def test_a_preset_counts_each_byte_of_its_nics_once_for_every_broker(read: Read, preset: Preset, sent: int, received: int) -> None:
    readings = read(preset=preset)
    for broker in BROKERS:
        assert bytes_of_each(spans(readings, Direction.EGRESS, broker)) == {sent}
        assert bytes_of_each(spans(readings, Direction.INGRESS, broker)) == {received}


def test_spans_are_real_scrapes_a_second_apart_oldest_first_and_fresh(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"))
    found = spans(readings)
    assert len(found) >= 5
    assert [span.at_seconds for span in found] == sorted(span.at_seconds for span in found)
    assert all(0.5 < span.seconds < 2.5 for span in found)
    assert -1 < readings.read_at_seconds - found[-1].at_seconds < 3
    assert readings.problems == ()


def test_a_counter_that_falls_makes_no_span_where_it_fell(read: Read) -> None:
    found = spans(read(preset=Preset.CUSTOM, queries=egress("falls")))
    assert bytes_of_each(found) == {1000}
    assert len(found) < len(spans(read(preset=Preset.CUSTOM, queries=egress("steady"))))


def test_samples_that_are_no_numbers_are_passed_over_and_reported(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("nan"))
    assert bytes_of_each(spans(readings)) == {2000}
    assert {problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_UNREADABLE} == BROKERS


@pytest.mark.parametrize("case", ["always-nan", "infinite", "negative"])
def test_a_nic_without_amounts_has_no_reading(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress(case))
    assert readings.nic == {}
    assert {problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_UNREADABLE} == BROKERS


def test_a_nic_counter_that_does_not_grow_is_zero_and_not_unknown(read: Read) -> None:
    assert bytes_of_each(spans(read(preset=Preset.CUSTOM, queries=egress("frozen")))) == {0}


def test_a_broker_without_series_is_missing_and_the_others_are_there(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("two-brokers-only"))
    assert {broker for broker, _ in readings.nic} == {1, 2}
    assert [problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_MISSING] == [3]


def test_series_that_no_broker_exports_are_one_problem_of_all_brokers(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("never exported"))
    assert readings.nic == {}
    assert [problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_MISSING] == [None]


def test_a_series_that_ended_is_stale_and_keeps_its_last_time(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("silent"), stale_after_seconds=2)
    assert spans(readings)[-1].at_seconds < readings.read_at_seconds - 2
    assert [problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_STALE] == [None]


def test_two_sources_of_one_broker_leave_it_without_a_reading(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("twice"))
    assert (1, Direction.EGRESS) not in readings.nic
    (problem,) = [problem for problem in readings.problems if problem.reason is Reason.METRICS_AMBIGUOUS]
    assert problem.broker == 1
    for source in ("'node'", "'twin'"):
        assert source in problem.message


def test_samples_ahead_of_our_clock_are_not_read(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"), clock=lambda: time.time() - 60)
    assert readings.nic == {}
    assert {problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_STALE} == BROKERS


def test_brokers_are_identified_by_their_instances_and_odd_names_on_the_list_match_nothing_else(
    read: Read, exporters: dict[tuple[str, int], Exporter]
) -> None:
    ids = {exporters["node", broker].address: broker + 10 for broker in BROKERS} | {'a"b\\c\n.*|': 1}
    readings = read(brokers=BrokerInstances(ids))
    assert {broker for broker, _ in readings.nic} == {11, 12, 13}


def test_series_that_name_no_broker_are_reported(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"), brokers=BrokerLabel("no_such_label"))
    assert readings.nic == {}
    assert Reason.METRICS_AMBIGUOUS in {problem.reason for problem in readings.problems}
