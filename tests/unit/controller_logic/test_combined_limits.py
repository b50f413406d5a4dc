"""Limits on both directions of a NIC together: what it carries, whom that throttles, and what
replication and recommendations make of it.
"""

from math import isnan, nan

import pytest

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedClient,
    SimulatedCluster,
    simulated_cluster,
    spans,
)
from tidegate_logic.contracts.recommend import limit_of_all, smallest_limit
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Direction,
    Entity,
    Level,
    NicSpan,
    QuotaKey,
    Readings,
    metered,
)
from tidegate_logic.queues.shift import crowded_brokers, waiting_helps
from tidegate_logic.replication.rates import NicRoom, Terms, room_for
from tidegate_logic.throttle.decision import Phase
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, WatchedBroker

IN, BOTH = Direction.INGRESS, Direction.COMBINED


# --- what a NIC carries in both directions --------------------------------------------------------


def summed(out: tuple[NicSpan, ...], into: tuple[NicSpan, ...]) -> list[tuple[float, float]]:
    readings = Readings(1000.0, 15.0, {(1, OUT): out, (1, IN): into})
    return [(one.at_seconds, one.bytes_per_second / MB) for one in readings.spans(1, BOTH)]


def test_both_directions_are_added_span_by_span() -> None:
    found = summed(spans(10, 20, 30), spans(1, 2, 3))
    assert found == [(970.0, 11.0), (985.0, 22.0), (1000.0, 33.0)]


def test_samples_of_other_moments_count_for_the_seconds_that_they_share() -> None:
    later = spans(3, 6, 9, until=1010.0)  # 970 to 985 is 10 s at 3 MB/s and 5 s at 6
    assert summed(spans(10, 10), later) == [(985.0, 14.0), (1000.0, 17.0)]
    assert summed(spans(10, 10), later[1:]) == [(1000.0, 17.0)]


def test_a_direction_that_was_not_read_leaves_the_sum_unknown() -> None:
    assert summed(spans(10, 20), ()) == []
    assert summed((), spans(10, 20)) == []
    assert [at for at, _ in summed(spans(10, 20), spans(1, until=985.0))] == [985.0]


@pytest.mark.parametrize(("out", "into"), [(-5, 50), (50, -5), (nan, 5), (5, nan)])
def test_an_absurd_direction_does_not_hide_in_the_sum(out: float, into: float) -> None:
    ((_, rate),) = summed(spans(out), spans(into))
    assert isnan(rate)


# --- who is throttled -----------------------------------------------------------------------------


def client(name: str, level: Level, way: Direction, contract_mb: int = 60) -> SimulatedClient:
    floor = None if level is Level.L0 else MB
    return SimulatedClient(Entity(name), way, level, contract_mb * MB, floor, {1: 1})


def cluster(*clients: SimulatedClient, limit_mb: int = 100) -> SimulatedCluster:
    made = simulated_cluster(*clients)
    made.limits = {1: BrokerLimit(combined=limit_mb * MB, combined_capacity=200 * MB)}
    return made


def sends_mb(made: SimulatedCluster) -> dict[str, float]:
    return {str(one.entity.user): made.sends(one, 1) / MB for one in made.actors}


def play(made: SimulatedCluster, minutes: float) -> None:
    for _ in range(int(minutes * 4)):
        made.run(15.0)


def test_neither_direction_is_over_alone_and_both_give_level_by_level() -> None:
    wants = {"reader": 40, "writer": 40, "l2-reader": 20, "l2-writer": 10, "pay": 15}
    made = cluster(
        client("reader", Level.L3, OUT),
        client("writer", Level.L3, IN),
        client("l2-reader", Level.L2, OUT),
        client("l2-writer", Level.L2, IN),
        client("pay", Level.L0, IN),
    )
    made.wants = {(one.key, 1): wants[str(one.entity.user)] * MB for one in made.actors}
    play(made, 1)
    (only,) = made.decide().rounds
    assert (only.direction, only.brokers[0].nic.limit) == (BOTH, 100 * MB)
    play(made, 5)
    sent = sends_mb(made)
    # 125 MB/s of 100: the excess is L3's alone, and it comes from those that read and that write
    assert (sent["l2-reader"], sent["l2-writer"], sent["pay"]) == (20, 10, 15)
    assert 1 < sent["reader"] < 40
    assert 1 < sent["writer"] < 40
    assert 85 <= made.carries(1, BOTH) / MB <= 100


def test_l2_gives_once_l3_is_at_its_throttled_rates_and_all_of_it_comes_back() -> None:
    wants = {"reader": 20, "writer": 20, "l2-writer": 50, "pay": 40}
    made = cluster(
        client("reader", Level.L3, OUT),
        client("writer", Level.L3, IN),
        client("l2-writer", Level.L2, IN),
        client("pay", Level.L0, OUT),
        limit_mb=80,
    )
    made.wants = {(one.key, 1): wants[str(one.entity.user)] * MB for one in made.actors}
    play(made, 6)
    sent = sends_mb(made)
    assert sent["pay"] == 40
    assert max(sent["reader"], sent["writer"]) < 2
    assert 1 < sent["l2-writer"] < 50
    assert made.carries(1, BOTH) <= 80 * MB
    made.wants = dict.fromkeys(made.wants, 1.0 * MB)
    play(made, 15)
    assert {key: made.in_force[key] for key in made.in_force} == {
        one.key: one.promised for one in made.actors
    }
    assert made.decide().rounds[0].phase is Phase.NORMAL


def test_what_replication_and_others_carry_counts_and_without_one_direction_nothing_changes() -> (
    None
):
    made = cluster(client("reader", Level.L3, OUT))
    made.wants = {(made.actors[0].key, 1): 50.0 * MB}
    made.other = {(1, IN): 60.0 * MB}
    play(made, 5)
    assert sends_mb(made)["reader"] == pytest.approx(37, abs=3)  # 97 % of the limit
    throttled = dict(made.in_force)
    made.lies = {(1, IN): None}
    made.other = {}
    play(made, 5)
    assert made.in_force == throttled
    assert made.decide().rounds[0].blind == (1,)


def test_an_operator_without_memory_finds_what_it_throttled_in_both_directions() -> None:
    made = cluster(client("reader", Level.L3, OUT), client("writer", Level.L3, IN))
    made.wants = {(one.key, 1): 80.0 * MB for one in made.actors}
    play(made, 5)
    throttled = dict(made.in_force)
    assert all(value < 60 * MB for value in throttled.values())
    made.memory = type(made.memory)()
    made.run(15.0)
    assert made.in_force == throttled


# --- what else follows from such a limit ----------------------------------------------------------


def test_a_policy_is_judged_either_by_directions_or_by_both_as_one() -> None:
    assert metered([BrokerLimit(egress=1), BrokerLimit()]) == (OUT, IN)
    assert metered([BrokerLimit(), BrokerLimit(combined=1)]) == (BOTH,)
    shared = BrokerLimit(combined=1, combined_capacity=2)
    assert [shared.limit_of_rates(way) for way in (OUT, IN)] == [1, 1]
    assert [shared.capacity(way) for way in (OUT, IN, BOTH)] == [2, 2, 2]
    assert [shared.limit(way) for way in (OUT, IN, BOTH)] == [None, None, 1]


def test_recommended_contracts_end_at_a_combined_limit() -> None:
    limits = BrokerLimits(BrokerLimit(combined=100 * MB), {2: BrokerLimit(combined=70 * MB)})
    for key in (QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE):
        assert limit_of_all(limits, (1, 2, 3), key) == 270 * MB
        assert smallest_limit(limits, (1, 2, 3), key) == 70 * MB


def test_messages_of_delay_queues_wait_for_a_combined_limit_too() -> None:
    limits = BrokerLimits(BrokerLimit(combined=100 * MB))
    assert waiting_helps(limits)
    nic = NicStatus(1, Pressure.OVER, 100 * MB, bytes_per_second=120.0 * MB)
    watched = (WatchedBroker(1, Pressure.OVER, {BOTH: nic}),)
    assert crowded_brokers(watched, is_throttling=False, before=None) == frozenset({1})


@pytest.mark.parametrize(("carried_mb", "room_mb"), [(60, 16.0), (100, 0.0), (20, 36.0)])
def test_each_side_of_a_combined_nic_takes_half_of_what_is_free(
    carried_mb: float, room_mb: float
) -> None:
    nic = NicRoom(100 * MB, carried_mb * MB, 1000.0, 15.0)
    shared = NicRoom(100 * MB, carried_mb * MB, 1000.0, 15.0, is_shared=True)
    alone = room_for(nic, 0.0, Terms(), 97)
    assert alone is not None
    assert room_for(shared, 0.0, Terms(), 97) == pytest.approx(room_mb * MB)
    assert alone == pytest.approx(2 * room_mb * MB)
