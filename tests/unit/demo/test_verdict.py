"""A bound is kept or missed by its own limits, and what was not measured is missed."""

import pytest

from demo.words import exact_check, rate_check, rate_checks, reaction_check


@pytest.mark.parametrize(
    ("measured", "kept"), [(8_990_000, False), (9_000_000, True), (10_000_000, True), (10_500_000, True), (10_510_000, False)]
)
def test_a_rate_may_be_ten_percent_below_and_five_above(measured: float, kept: bool) -> None:
    assert rate_check("phase", "total", expected_bytes_per_second=10_000_000, measured_bytes_per_second=measured).kept is kept


@pytest.mark.parametrize(("seconds", "kept"), [(-0.2, True), (0.6, True), (5.0, True), (5.01, False), (None, False)])
def test_the_corrected_quota_must_come_within_five_seconds_after_the_election(seconds: float | None, kept: bool) -> None:
    assert reaction_check(seconds).kept is kept


@pytest.mark.parametrize(("measured", "kept"), [(20.0, True), (20.1, False), (None, False)])
def test_an_exact_number_has_no_tolerance(measured: float | None, kept: bool) -> None:
    assert exact_check("phase", "quota", unit="MB/s", expected=20.0, measured=measured).kept is kept


def test_a_broker_that_delivered_nothing_misses_its_bound() -> None:
    rows = rate_checks("phase", {1: 10e6, 2: 10e6}, measured_by_broker={1: 10e6})
    assert [row.kept for row in rows] == [True, False, False]


def test_traffic_of_a_broker_that_should_have_none_counts_in_the_total() -> None:
    rows = rate_checks("phase", {1: 10e6}, measured_by_broker={1: 10e6, 3: 5e6})
    assert [row.kept for row in rows] == [True, False]
