"""Adaptive scaling on brokers that meter and mute as Kafka does: the total is the contract for
greedy clients and for even demand.
"""

import pytest

from tests.unit.controller_logic.uneven_brokers import MB, Demand, UnevenBrokers
from tidegate_logic.contracts.leader_scaling import ADAPTIVE_SHARES

MEAN, MAX = 0, ADAPTIVE_SHARES
TEN_MINUTES = 600


def greedy(_second: float) -> float | None:
    return None


def even(_second: float) -> float | None:
    return 10.0 * MB


@pytest.mark.parametrize("start", [MEAN, MAX])
@pytest.mark.parametrize("scrape_seconds", [1, 5, 15])
@pytest.mark.parametrize(
    ("demand", "quota"), [(greedy, 15 * MB), (even, 20 * MB)], ids=["greedy", "even"]
)
def test_after_a_brokers_death_the_total_is_the_contract(
    demand: Demand, quota: int, scrape_seconds: int, start: int
) -> None:
    """Three partitions of 10 MB/s on two brokers: 15 MB/s each hold greedy clients to 30, and 20
    MB/s let even demand have its 30.
    """
    brokers = UnevenBrokers({1: 2, 2: 1}, start, scrape_seconds)
    total = brokers.play(TEN_MINUTES, demand)
    assert brokers.in_force == quota
    assert total == pytest.approx(30 * MB, rel=0.06)
    assert len(brokers.writes) <= 1, "it does not swing"


@pytest.mark.parametrize("start", [MEAN, MAX])
@pytest.mark.parametrize("demand", [greedy, even])
@pytest.mark.parametrize(
    "leaders", [{1: 4, 2: 3, 3: 3, 4: 2}, {1: 10, 2: 1, 3: 1, 4: 1}], ids=["4/3/3/2", "10/1/1/1"]
)
def test_however_leaders_lie_the_total_comes_near_the_contract(
    leaders: dict[int, int], demand: Demand, start: int
) -> None:
    brokers = UnevenBrokers(leaders, start)
    total = brokers.play(TEN_MINUTES, demand)
    assert total == pytest.approx(10 * MB * sum(leaders.values()), rel=0.07)
    assert len(brokers.writes) <= 2


def test_a_change_of_demand_is_followed_within_three_minutes() -> None:
    brokers = UnevenBrokers({1: 2, 2: 1})
    for demand, quota in [(greedy, 15 * MB), (even, 20 * MB)] * 2:
        brokers.play(180, demand)
        assert brokers.in_force == pytest.approx(quota, rel=0.05)


def test_demand_that_swings_every_minute_is_not_chased() -> None:
    """Each lowering silences clients for some seconds, so a turn waits three step distances."""
    brokers = UnevenBrokers({1: 2, 2: 1})
    brokers.play(1200, lambda second: None if second // 60 % 2 else 10.0 * MB)
    assert len(brokers.writes) <= 1200 / 60


def test_noise_of_a_fifth_moves_nothing() -> None:
    brokers = UnevenBrokers({1: 2, 2: 1})
    brokers.play(TEN_MINUTES, lambda second: (12.0 if second // 7 % 2 else 8.0) * MB)
    assert not brokers.writes


def test_where_kafka_reports_no_throttle_time_greedy_clients_stay_within_a_tenth() -> None:
    """Then a rate near the quota is the only sign of a limit, and the sawtooth of the rate costs a
    step of accuracy.
    """
    brokers = UnevenBrokers({1: 2, 2: 1}, reports_throttle_time=False)
    total = brokers.play(2 * TEN_MINUTES, greedy)
    assert total <= 1.15 * 30 * MB


def test_a_lost_memory_changes_nothing_that_was_found() -> None:
    brokers = UnevenBrokers({1: 2, 2: 1})
    brokers.play(300, greedy)
    assert brokers.in_force == 15 * MB
    for _ in range(3):
        brokers.forget()
        brokers.play(120, greedy)
    assert brokers.writes == [15 * MB]
