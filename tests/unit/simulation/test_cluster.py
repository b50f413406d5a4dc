"""The modelled cluster: Kafka's bands for throttled clients, mutes of a cliff and of a halving, full
NICs, and that no byte is made up or lost.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.simulation.cluster import Background, Demand, Second, SimulatedCluster
from tidegate_logic.model import BrokerLimit, Direction, Entity, QuotaWindow

MB = 1_000_000
ALICE, BOB = Entity("alice"), Entity("bob")
OUT, IN = Direction.EGRESS, Direction.INGRESS
WINDOW = QuotaWindow()


def cluster(
    *demands: Demand, capacity_mb: float | None = None, background: Sequence[Background] = ()
) -> SimulatedCluster:
    """Brokers 1 and 2, with everybody connected to both."""
    capacity = None if capacity_mb is None else round(capacity_mb * MB)
    limits = dict.fromkeys((1, 2), BrokerLimit(None, None, capacity, capacity))
    members = [
        ((who, way), broker) for who in (ALICE, BOB) for way in (OUT, IN) for broker in (1, 2)
    ]
    return SimulatedCluster(limits, WINDOW, members, demands, background)


def play(played: SimulatedCluster, seconds: int) -> list[Second]:
    return [played.step() for _ in range(seconds)]


def moved_mb(seconds: Sequence[Second], who: Entity = ALICE) -> float:
    return (
        sum(
            flow.moved
            for second in seconds
            for (key, _), flow in second.flows.items()
            if key[0] == who
        )
        / MB
    )


def longest_mute_seconds(seconds: Sequence[Second]) -> float:
    return max((mute.seconds for second in seconds for mute in second.mutes), default=0.0)


def test_without_a_quota_everything_is_moved_when_it_is_wanted() -> None:
    played = play(cluster(Demand(ALICE, OUT, 1, 50.0 * MB, 10, 20)), 30)
    assert [second.carried[1, OUT] / MB for second in played] == [0.0] * 10 + [50.0] * 10 + [
        0.0
    ] * 10
    assert not any(second.mutes for second in played)


@pytest.mark.parametrize(
    ("way", "least", "most"), [(OUT, 0.9, 1.0), (IN, 1.0, 1.02)], ids=["fetch", "produce"]
)
def test_a_throttled_client_runs_near_its_quota_as_kafka_lets_it(
    way: Direction, least: float, most: float
) -> None:
    """Bands of a client with small requests over ten minutes, by Kafka's own classes."""
    played = cluster(Demand(ALICE, way, 1, 50.0 * MB))
    played.set_quota((ALICE, way), 10 * MB, is_throttled=True)
    assert least <= moved_mb(play(played, 600)) / 6000 <= most


@pytest.mark.parametrize("way", [OUT, IN])
def test_a_cliff_mutes_for_minutes_and_a_halving_for_seconds(way: Direction) -> None:
    played = cluster(Demand(ALICE, way, 1, 50.0 * MB))
    played.set_quota((ALICE, way), 50 * MB, is_throttled=False)
    play(played, 60)
    played.set_quota((ALICE, way), 25 * MB, is_throttled=True)
    assert 9 <= longest_mute_seconds(play(played, 60)) <= 14
    played.set_quota((ALICE, way), 1 * MB, is_throttled=True)
    assert longest_mute_seconds(play(played, 600)) > 200


def test_raising_a_quota_ends_no_mute() -> None:
    played = cluster(Demand(ALICE, OUT, 1, 50.0 * MB))
    play(played, 20)
    played.set_quota((ALICE, OUT), 1 * MB, is_throttled=True)
    play(played, 5)
    played.set_quota((ALICE, OUT), 1000 * MB, is_throttled=False)
    assert moved_mb(play(played, 100)) == 0.0


def test_brokers_meter_each_for_themselves() -> None:
    played = cluster(Demand(ALICE, OUT, 1, 20.0 * MB), Demand(ALICE, OUT, 2, 5.0 * MB))
    played.set_quota((ALICE, OUT), 10 * MB, is_throttled=False)
    last = play(played, 120)[-60:]
    assert sum(second.carried[1, OUT] for second in last) / 60 <= 10.1 * MB
    assert sum(second.carried[2, OUT] for second in last) / 60 == pytest.approx(5 * MB)


def test_a_full_nic_is_shared_by_all_and_says_so() -> None:
    played = cluster(
        Demand(ALICE, OUT, 1, 60.0 * MB),
        Demand(BOB, OUT, 1, 60.0 * MB),
        capacity_mb=100,
        background=[Background(1, OUT, 80.0 * MB)],
    )
    (second,) = play(played, 1)
    assert second.carried[1, OUT] == pytest.approx(100 * MB)
    assert second.background[1, OUT] == pytest.approx(40 * MB)
    flow = second.flows[(ALICE, OUT), 1]
    assert flow.moved == pytest.approx(30 * MB)
    assert flow.held_by_nic == pytest.approx(30 * MB)
    assert flow.held_by_contract == flow.held_by_throttle == 0.0


def test_a_nic_with_one_capacity_for_both_directions_is_shared_by_both() -> None:
    demands = [Demand(ALICE, OUT, 1, 60.0 * MB), Demand(BOB, IN, 1, 30.0 * MB)]
    limits = {1: BrokerLimit(combined=80 * MB, combined_capacity=100 * MB)}
    members = [((ALICE, OUT), 1), ((BOB, IN), 1)]
    background = [Background(1, IN, 110.0 * MB)]
    played = SimulatedCluster(limits, QuotaWindow(), members, demands, background)
    (second,) = play(played, 1)
    assert second.carried[1, OUT] == pytest.approx(30 * MB)
    assert second.carried[1, IN] == pytest.approx((15 + 55) * MB)
    assert second.through(1, Direction.COMBINED) == pytest.approx(100 * MB)
    assert second.flows[(ALICE, OUT), 1].held_by_nic == pytest.approx(30 * MB)


def test_a_quota_that_leaves_room_on_the_nic_takes_nothing_of_the_others() -> None:
    played = cluster(
        Demand(ALICE, OUT, 1, 90.0 * MB), Demand(BOB, OUT, 1, 50.0 * MB), capacity_mb=100
    )
    played.set_quota((ALICE, OUT), 10 * MB, is_throttled=True)
    play(played, 60)
    assert moved_mb(play(played, 60), BOB) >= 0.97 * 60 * 50


@pytest.mark.parametrize("is_throttled", [True, False])
def test_what_a_quota_holds_back_is_the_throttles_or_the_contracts(is_throttled: bool) -> None:
    played = cluster(Demand(ALICE, OUT, 1, 50.0 * MB))
    played.set_quota((ALICE, OUT), 10 * MB, is_throttled=is_throttled)
    flows = [second.flows[(ALICE, OUT), 1] for second in play(played, 60)]
    by_throttle = sum(flow.held_by_throttle for flow in flows)
    by_contract = sum(flow.held_by_contract for flow in flows)
    assert (by_throttle > 0, by_contract > 0) == (is_throttled, not is_throttled)


def test_who_catches_up_moves_later_what_it_could_not_move_in_time() -> None:
    played = cluster(Demand(ALICE, OUT, 1, 20.0 * MB, 0, 60, 40.0 * MB))
    played.set_quota((ALICE, OUT), 5 * MB, is_throttled=True)
    play(played, 60)
    assert played.waiting_bytes > 500 * MB
    played.set_quota((ALICE, OUT), None, is_throttled=False)
    later = play(played, 120)
    assert played.waiting_bytes == pytest.approx(0.0, abs=1.0)
    assert max(second.carried[1, OUT] for second in later) == pytest.approx(40.0 * MB)


def test_what_waits_is_caught_up_beside_other_demand_of_the_member() -> None:
    played = cluster(
        Demand(ALICE, OUT, 1, 20.0 * MB, 0, 30, 25.0 * MB), Demand(ALICE, OUT, 1, 10.0 * MB, 30)
    )
    played.set_quota((ALICE, OUT), 5 * MB, is_throttled=True)
    play(played, 30)
    played.set_quota((ALICE, OUT), None, is_throttled=False)
    later = play(played, 60)
    assert played.waiting_bytes == pytest.approx(0.0, abs=1.0)
    assert max(second.carried[1, OUT] for second in later) == pytest.approx(25.0 * MB)


RATES = st.integers(1, 200).map(lambda tenths: tenths * MB / 10)
SECONDS = st.integers(0, 40)
DEMANDS = st.builds(
    lambda who, way, broker, rate, begin, long, times: Demand(
        who, way, broker, rate, begin, begin + 1 + long, None if times is None else times * rate
    ),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([OUT, IN]),
    st.sampled_from([1, 2]),
    RATES,
    SECONDS,
    SECONDS,
    st.none() | st.integers(1, 4),
)
QUOTAS = st.dictionaries(
    st.integers(0, 60),
    st.tuples(
        st.sampled_from([ALICE, BOB]),
        st.sampled_from([OUT, IN]),
        st.none() | st.integers(MB // 10, 30 * MB),
        st.booleans(),
    ),
    max_size=6,
)


@given(
    st.lists(DEMANDS, max_size=5),
    QUOTAS,
    st.none() | st.integers(5, 60),
    st.lists(st.builds(Background, st.just(1), st.just(OUT), RATES, SECONDS), max_size=2),
)
def test_no_byte_is_made_up_or_lost(
    demands: list[Demand],
    quotas: dict[int, tuple[Entity, Direction, int | None, bool]],
    capacity_mb: int | None,
    background: list[Background],
) -> None:
    """No one ever moves more than it wanted so far; every byte has its place."""
    played = cluster(*demands, capacity_mb=capacity_mb, background=background)
    wanted: dict[object, float] = {}
    moved: dict[object, float] = {}
    for at in range(90):
        if at in quotas:
            who, way, quota, is_throttled = quotas[at]
            played.set_quota((who, way), quota, is_throttled=is_throttled)
        second = played.step()
        for place, flow in second.flows.items():
            assert flow.wanted + flow.caught_up == pytest.approx(
                flow.moved + flow.held_back, abs=1.0
            )
            assert min(flow.moved, flow.held_back, flow.caught_up) >= 0.0
            wanted[place] = wanted.get(place, 0.0) + flow.wanted
            moved[place] = moved.get(place, 0.0) + flow.moved
            assert moved[place] <= wanted[place] + 1.0
        for (broker, way), carried in second.carried.items():
            flowed = sum(
                flow.moved
                for (key, at_broker), flow in second.flows.items()
                if (at_broker, key[1]) == (broker, way)
            )
            assert carried == pytest.approx(second.background[broker, way] + flowed, abs=1.0)
            assert capacity_mb is None or carried <= capacity_mb * MB + 1.0
