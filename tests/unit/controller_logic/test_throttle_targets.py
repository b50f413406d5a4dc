"""Where the givers of one tier should end."""

import pytest

from controller_logic.model import ClientRate, Entity, Level
from controller_logic.throttle.buckets import Bucket, Floor
from controller_logic.throttle.cuts import blind_targets, largest_givers, targets_of
from controller_logic.throttle.input import ManagedRate
from tests.unit.controller_logic.gates import MB, OUT


def bucket(name: str, contract_mb: float, *sends_mb: float, floor_mb: float = 1) -> Bucket:
    """Sends so much on brokers 1, 2 and so on."""
    flows = {place: ClientRate(0.0, rate * MB) for place, rate in enumerate(sends_mb, 1)}
    contract, floor = round(contract_mb * MB), round(floor_mb * MB)
    rate = ManagedRate(Entity(name), OUT, Level.L3, contract, floor, contract, frozenset(flows))
    return Bucket(rate, Floor(floor), flows)


def targets_mb(tier: list[Bucket], **needs_mb: float) -> dict[str, float]:
    """Needs by broker, as b1=..."""
    found = targets_of(tier, {int(name[1:]): need * MB for name, need in needs_mb.items()})
    return {str(key[0].user): value / MB for key, value in found.items()}


def test_givers_come_down_to_one_share_of_their_contracts() -> None:
    found = targets_mb([bucket("large", 80, 60), bucket("small", 40, 30)], b1=30)
    assert found == pytest.approx({"large": 40, "small": 20})


def test_who_sends_little_of_a_large_contract_gives_nothing() -> None:
    assert targets_mb([bucket("greedy", 50, 50), bucket("modest", 50, 10)], b1=20).keys() == {
        "greedy"
    }


def test_no_one_is_asked_below_the_floor() -> None:
    found = targets_mb([bucket("a", 50, 50, floor_mb=45), bucket("b", 50, 50)], b1=30)
    assert found == pytest.approx({"a": 45, "b": 25})


def test_a_need_that_cannot_be_met_puts_all_at_their_floors() -> None:
    assert targets_mb([bucket("a", 50, 50), bucket("b", 50, 40, floor_mb=5)], b1=500) == {
        "a": 1,
        "b": 5,
    }


def test_over_several_brokers_the_lowest_value_counts() -> None:
    assert targets_mb([bucket("a", 50, 50, 40)], b1=10, b2=30) == pytest.approx({"a": 10})


def test_few_large_givers_are_cut_rather_than_many_small_ones() -> None:
    tier = [bucket("large", 50, 50)] + [bucket(f"small-{number}", 50, 2) for number in range(30)]
    chosen = largest_givers(tier, 1, 20 * MB)
    assert (chosen[0].rate.entity.user, len(chosen)) == ("large", 12)


def test_more_than_twelve_give_where_twelve_are_not_enough() -> None:
    assert (
        len(largest_givers([bucket(f"user-{number}", 50, 3) for number in range(40)], 1, 40 * MB))
        == 30
    )


def test_where_no_one_reports_rates_the_tier_that_leads_there_goes_to_its_floors() -> None:
    rate = ManagedRate(Entity("a"), OUT, Level.L3, 50 * MB, MB, 50 * MB, frozenset({1}))
    silent = Bucket(rate, Floor(MB), {}, unmeasured=frozenset({1}))
    assert blind_targets([silent, bucket("elsewhere", 50, 50)], frozenset({1})) == {silent.key: MB}
