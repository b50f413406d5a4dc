"""Contracts on leaders: the numbers of control.md 5, and what must hold for every spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import MB, topology
from tidegate_logic.contracts.leader_scaling import (
    Leaders,
    LeaderSpread,
    partition_scale,
    share_scale,
)
from tidegate_logic.model import (
    MAX_BYTE_RATE,
    MIN_BYTE_RATE,
    ScalingMethod,
    TopicLeaders,
)

spreads = st.dictionaries(st.integers(0, 49), st.integers(1, 40), min_size=1, max_size=50)
promises = st.integers(MIN_BYTE_RATE, 2**40)


def spread_of(led: dict[int, int]) -> LeaderSpread:
    return Leaders(topology({"t": led}, brokers=led)).spread(("t",))


@pytest.mark.parametrize(
    ("led", "method", "expected"),
    [
        ({1: 1, 2: 1, 3: 1}, ScalingMethod.MAX, 10),
        ({1: 2, 2: 1}, ScalingMethod.MAX, 20),
        ({1: 2, 2: 1}, ScalingMethod.MEAN, 15),
        ({1: 2, 2: 1}, ScalingMethod.MIN, 10),
        ({}, ScalingMethod.MAX, 10),
        ({}, ScalingMethod.MEAN, 10),
        ({}, ScalingMethod.MIN, 10),
    ],
)
def test_a_promise_per_partition_becomes_one_number_per_broker(
    led: dict[int, int], method: ScalingMethod, expected: int
) -> None:
    assert partition_scale(spread_of(led), method).of(10 * MB) == expected * MB


@pytest.mark.parametrize(
    ("led", "expected"),
    [
        ({1: 1, 2: 1, 3: 1}, 1.0),
        ({1: 2, 2: 1}, 4 / 3),
        ({1: 4, 2: 3, 3: 3, 4: 2}, 4 / 3),
        ({1: 10, 2: 1, 3: 1, 4: 1}, 40 / 13),
        ({7: 9}, 1.0),
    ],
)
def test_skew_says_how_badly_one_number_fits(led: dict[int, int], expected: float) -> None:
    assert spread_of(led).skew == pytest.approx(expected)


def test_no_one_leads_means_no_skew() -> None:
    assert spread_of({}).skew is None


def test_a_topic_that_two_patterns_match_counts_once() -> None:
    leaders = Leaders(topology({"clicks.eu": {1: 1}, "clicks.us": {2: 2}, "clicks": {3: 5}}))
    assert leaders.spread(("clicks.*", "clicks.eu", "clicks.e*")) == LeaderSpread(2, 3, 2, 2, 1)


def test_a_star_alone_is_every_topic_and_a_prefix_may_match_none() -> None:
    leaders = Leaders(topology({"a": {1: 1}, "b": {1: 1}}))
    assert leaders.spread(("*",)).leaders == 2
    assert leaders.spread(("c*",)) == LeaderSpread()


def test_a_named_topic_that_does_not_exist_is_missing_once() -> None:
    spread = Leaders(topology({"a": {1: 1}})).spread(("a", "b", "b"))
    assert spread.missing == ("b",)
    assert not spread.complete


def test_leaderless_partitions_count_for_the_mean_and_make_the_spread_incomplete() -> None:
    spread = Leaders(topology({"t": TopicLeaders({1: 1, 2: 1}, leaderless=1)})).spread(("t",))
    assert partition_scale(spread, ScalingMethod.MEAN).of(10 * MB) == 15 * MB
    assert not spread.complete


@given(spreads, promises)
def test_mean_permits_the_promise_and_less_than_a_byte_per_broker_more(
    led: dict[int, int], promise: int
) -> None:
    permitted = partition_scale(spread_of(led), ScalingMethod.MEAN).of(promise) * len(led)
    promised = promise * sum(led.values())
    assert promised <= permitted < promised + len(led)


@given(spreads, promises)
def test_max_never_gives_a_broker_less_than_its_share(led: dict[int, int], promise: int) -> None:
    value = partition_scale(spread_of(led), ScalingMethod.MAX).of(promise)
    assert value == max(promise * leaders for leaders in led.values())


@given(spreads, promises)
def test_min_never_gives_a_broker_more_than_its_share(led: dict[int, int], promise: int) -> None:
    value = partition_scale(spread_of(led), ScalingMethod.MIN).of(promise)
    assert all(value <= promise * leaders for leaders in led.values())


@given(
    spreads,
    promises,
    st.integers(1, 20),
    st.sampled_from([ScalingMethod.MAX, ScalingMethod.MEAN]),
    st.data(),
)
def test_more_leaders_on_a_broker_never_lower_the_number(
    led: dict[int, int], promise: int, more: int, method: ScalingMethod, data: st.DataObject
) -> None:
    broker = data.draw(st.sampled_from(sorted(led)))
    grown = {**led, broker: led[broker] + more}
    assert partition_scale(spread_of(grown), method).of(promise) >= partition_scale(
        spread_of(led), method
    ).of(promise)


@given(spreads, st.integers(1, 2**60), st.sampled_from(ScalingMethod))
def test_every_number_is_one_that_kafka_throttles_on(
    led: dict[int, int], promise: int, method: ScalingMethod
) -> None:
    assert MIN_BYTE_RATE <= partition_scale(spread_of(led), method).of(promise) <= MAX_BYTE_RATE


@given(st.integers(MIN_BYTE_RATE * 100, 2**50), st.integers(1, 100))
def test_shares_of_a_total_add_up_to_it(total: int, brokers: int) -> None:
    assert total <= share_scale(brokers).of(total) * brokers < total + brokers


def test_a_total_over_no_broker_is_the_total() -> None:
    assert share_scale(0).of(5000) == 5000
