"""Where the givers of one tier should end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import MB, OUT
from tidegate_logic.model import ClientRate, Entity, Level, busiest_of
from tidegate_logic.throttle.buckets import Bucket, Floor
from tidegate_logic.throttle.cuts import blind_targets, largest_givers, targets_of
from tidegate_logic.throttle.input import ManagedRate


def bucket(name: str, contract_mb: float, *sends_mb: float, floor_mb: float = 1) -> Bucket:
    """Sends so much on brokers 1, 2 and so on."""
    flows = {place: ClientRate(0.0, rate * MB) for place, rate in enumerate(sends_mb, 1)}
    contract, floor = round(contract_mb * MB), round(floor_mb * MB)
    rate = ManagedRate(Entity(name), OUT, Level.L3, contract, floor, contract, frozenset(flows))
    return Bucket(rate, Floor(floor), flows, busiest_of({rate.key: flows})[rate.key])


def giving(tier: list[Bucket]) -> list[tuple[float, Bucket]]:
    """What each can give on broker 1."""
    return [(one.gives(1), one) for one in tier]


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
    chosen = largest_givers(giving(tier), 20 * MB)
    assert (chosen[0].rate.entity.user, len(chosen)) == ("large", 12)


def test_more_than_twelve_give_where_twelve_are_not_enough() -> None:
    tier = [bucket(f"user-{number}", 50, 3) for number in range(40)]
    assert len(largest_givers(giving(tier), 40 * MB)) == 30


def test_where_no_one_reports_rates_the_tier_that_leads_there_goes_to_its_floors() -> None:
    rate = ManagedRate(Entity("a"), OUT, Level.L3, 50 * MB, MB, 50 * MB, frozenset({1}))
    silent = Bucket(rate, Floor(MB), {}, None, unmeasured=frozenset({1}))
    assert blind_targets([silent, bucket("elsewhere", 50, 50)], frozenset({1})) == {silent.key: MB}


def test_who_gives_next_to_nothing_of_the_need_is_spared_while_others_can_give_it() -> None:
    """A user of 0.3 MB/s is not put to its floor for a need of 19.5 MB/s."""
    tier = [bucket("report", 60, 25), bucket("probe", 1, 0.3, floor_mb=0.15)]
    assert targets_mb(tier, b1=19.5) == pytest.approx({"report": 5.5})


def test_it_joins_where_the_others_of_its_level_are_not_enough() -> None:
    tier = [bucket("report", 60, 19), bucket("probe", 1, 0.3, floor_mb=0.15)]
    assert targets_mb(tier, b1=19.5) == {"report": 1, "probe": 0.15}


MEMBERS = st.lists(
    st.tuples(st.floats(0.1, 100), st.floats(0, 100), st.floats(0.001, 0.1)),
    min_size=1,
    max_size=30,
)


@given(MEMBERS, st.floats(0.1, 500))
def test_a_level_gives_what_is_needed_or_all_it_has_whoever_is_spared(
    members: list[tuple[float, float, float]], need_mb: float
) -> None:
    tier = [
        bucket(f"user-{number}", contract_mb, sends_mb, floor_mb=floor_mb)
        for number, (contract_mb, sends_mb, floor_mb) in enumerate(members)
    ]
    need = need_mb * MB
    found = targets_of(tier, {1: need})
    given_up = sum(
        one.sends(1) - max(one.floor.value, found[one.key]) for one in tier if one.key in found
    )
    can_give = sum(one.gives(1) for one in tier)
    assert given_up >= min(need, can_give) - 1
    large = sum(one.gives(1) for one in tier if one.gives(1) >= need / 100)
    for one in tier:
        if one.gives(1) < need / 100 and one.key in found:
            assert large < need
