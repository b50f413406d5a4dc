"""What Kafka counts for replicas in sync: moves and recovery while their partitions are produced to.

The cluster of these tests counts as Kafka does (`Cluster.in_sync`): a listed partition's followers
in sync take their part of the leader's rate first, and nothing holds them back.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.replicating import FIXED, FOLLOW, MB, OFF, Cluster, apply
from tidegate_logic.replication.moves import MoveKind, ReplicaKey, Side, egress_of, ingress_of
from tidegate_logic.replication.rates import Priority, ReplicationMode, Terms
from tidegate_logic.replication.replication_pass import ReplicationMemory
from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Operation,
    broker_resource,
    topic_resource,
)

REASSIGNMENT, RECOVERY = MoveKind.REASSIGNMENT, MoveKind.RECOVERY
NAME = ("topic-0", 0)


def producing(
    *,
    inflow: float,
    in_sync: tuple[int, ...] = (1, 2),
    new: tuple[int, ...] = (3,),
    size: float = 300.0 * MB,
    kind: MoveKind = REASSIGNMENT,
    terms: Terms = FOLLOW,
) -> Cluster:
    """One partition that is produced to, led by the first in sync and filled on the new brokers."""
    cluster = Cluster.moving([(in_sync[0], new[0])], size=size, terms=terms)
    cluster.partitions[NAME] = replace(
        cluster.partitions[NAME],
        replicas=(*in_sync, *new),
        in_sync=frozenset(in_sync),
        adding=frozenset(new) if kind is REASSIGNMENT else frozenset(),
    )
    cluster.filled = {ReplicaKey(*NAME, broker): 0.0 for broker in new}
    cluster.inflow[NAME] = inflow
    cluster.terms = {one: terms if one is kind else OFF for one in MoveKind}
    return cluster


def full(cluster: Cluster, side: Side, spare: float = 0.0) -> None:
    """Clients leave only so much of this side, beside replicas in sync, and did for long."""
    cluster.others[side] = 92.0 * MB - spare - cluster.in_sync(side)
    carried = 92.0 * MB - spare
    cluster.carried[side] = [(cluster.now_seconds - ago, carried) for ago in range(23, -1, -1)]


@pytest.mark.parametrize("kind", [REASSIGNMENT, RECOVERY])
@pytest.mark.parametrize("in_sync", [(1,), (1, 2), (1, 2, 4)])
def test_a_move_under_producing_ends_when_the_room_says(
    kind: MoveKind, in_sync: tuple[int, ...]
) -> None:
    """12 MB/s are spare and 4 of them newly come in, whatever those in sync fetch beside it."""
    cluster = producing(inflow=4.0 * MB, in_sync=in_sync, kind=kind, size=1200.0 * MB)
    full(cluster, egress_of(1), 12.0 * MB)
    began = cluster.now_seconds
    estimate = cluster.play(85).estimates[kind]
    assert not estimate.stalls
    foretold = cluster.now_seconds + (estimate.seconds or 0.0)
    while cluster.partitions and cluster.now_seconds < began + 300:
        cluster.play(1)
    assert cluster.now_seconds - began == pytest.approx(1200 / (12 - 4), rel=0.2)
    assert foretold == pytest.approx(cluster.now_seconds, abs=15)
    cluster.play(30)
    assert not cluster.left()


@pytest.mark.parametrize("kind", [REASSIGNMENT, RECOVERY])
def test_a_floor_is_what_replicas_being_filled_have(kind: MoveKind) -> None:
    """A returning broker that has its floor only would starve behind the others' followers."""
    terms = Terms(ReplicationMode.FOLLOW, Priority.L1, minimum=3 * MB)
    cluster = producing(inflow=2.0 * MB, in_sync=(1, 2, 4), kind=kind, terms=terms)
    full(cluster, egress_of(1))
    assert not cluster.decide().stalls
    assert not cluster.play(5).stalls, "corrected as soon as it is measured"
    assert cluster.rate_of(egress_of(1)) == pytest.approx(3 * MB + 2 * 2 * MB, rel=0.02)
    cluster.play(60)
    assert cluster.rate_of(egress_of(1)) == pytest.approx(3 * MB + 2 * 2 * MB, rel=0.02)
    assert cluster.flow_rates()[ReplicaKey(*NAME, 3)] == pytest.approx(3 * MB, rel=0.03)
    cluster.play(400)
    assert not cluster.partitions


def test_a_fixed_rate_that_replicas_in_sync_use_up_is_reported_with_the_second_pass() -> None:
    cluster = producing(inflow=2.0 * MB, terms=replace(FIXED, maximum=3 * MB))
    assert not cluster.decide().stalls
    decision = cluster.play(5)
    stall, *more = decision.stalls
    assert not more, "the follower's side counts what is being filled alone"
    assert stall.side == egress_of(1)
    assert stall.rate == 3 * MB
    assert stall.inflow == pytest.approx(2 * MB)
    assert stall.in_sync == pytest.approx(2 * MB)
    assert decision.estimates[REASSIGNMENT].seconds is None
    assert cluster.rate_of(egress_of(1)) == 3 * MB
    cluster = producing(inflow=2.0 * MB, terms=replace(FIXED, maximum=6 * MB), size=100.0 * MB)
    estimate = cluster.play(20).estimates[REASSIGNMENT]
    assert not estimate.stalls
    # 6 - 2 for the other follower - 2 that come in meanwhile
    assert estimate.seconds == pytest.approx(100 / 2 - 20, rel=0.1)


def test_another_tools_throttle_that_never_lets_a_move_end_is_reported() -> None:
    cluster = producing(inflow=2.0 * MB, terms=OFF)
    apply(
        cluster.configs,
        [
            ConfigChange(topic_resource("topic-0"), LEADER_LIST, Operation.SET, "0:1,0:2"),
            ConfigChange(topic_resource("topic-0"), FOLLOWER_LIST, Operation.SET, "0:3"),
            ConfigChange(broker_resource(1), LEADER_RATE, Operation.SET, "3000000"),
            ConfigChange(broker_resource(3), FOLLOWER_RATE, Operation.SET, "3000000"),
        ],
    )
    assert [stall.side for stall in cluster.play(5).stalls] == [egress_of(1)]
    # a rate without the list holds nothing back
    cluster.configs[topic_resource("topic-0")] = {}
    assert not cluster.play(5).stalls


def test_what_no_list_of_a_moving_partition_explains_is_reported_as_it_was_measured() -> None:
    """Somebody's list on another topic: what those partitions receive is not known."""
    cluster = producing(inflow=2.0 * MB, in_sync=(1,), terms=replace(FIXED, maximum=5 * MB))
    cluster.line_rate = 1.0 * MB  # all that is left for it, for whatever reason
    assert not cluster.play(50).stalls
    decision = cluster.play(20)
    assert [stall.side for stall in decision.stalls] == [egress_of(1), ingress_of(3)]
    assert decision.stalls[0].arrives == pytest.approx(1.0 * MB, rel=0.1)
    assert decision.estimates[REASSIGNMENT].seconds is None
    cluster.line_rate = 200.0 * MB
    assert not cluster.play(15).stalls


def test_a_replica_that_is_filled_already_counts_on_its_own_broker() -> None:
    """Broker 3 has its replica of a partition that a fourth still gets, and is filled with more."""
    cluster = producing(
        inflow=3.0 * MB, in_sync=(1, 3), new=(4,), terms=Terms(ReplicationMode.FOLLOW, minimum=MB)
    )
    cluster.partitions[NAME] = replace(cluster.partitions[NAME], adding=frozenset({3, 4}))
    other = Cluster.moving([(2, 3)], size=400.0 * MB)
    name = ("topic-1", 0)
    cluster.partitions[name] = replace(other.partitions[NAME], topic="topic-1")
    cluster.sizes[name], cluster.filled[ReplicaKey(*name, 3)] = 400.0 * MB, 0.0
    full(cluster, ingress_of(3), 5.0 * MB)
    full(cluster, egress_of(1))
    cluster.play(60)
    assert cluster.in_sync(ingress_of(3), counted=True) == 3.0 * MB
    assert cluster.rate_of(ingress_of(3)) == pytest.approx(8 * MB, rel=0.1)
    assert cluster.flow_rates()[ReplicaKey(*name, 3)] == pytest.approx(5 * MB, rel=0.1)


def test_a_rate_is_not_lowered_while_what_replicas_in_sync_have_is_not_measured() -> None:
    cluster = producing(inflow=8.0 * MB, size=1e12)
    full(cluster, egress_of(1), 10.0 * MB)
    cluster.play(60)
    before = cluster.rate_of(egress_of(1))
    assert before == pytest.approx(18 * MB, rel=0.1)
    cluster.memory = ReplicationMemory()  # another process
    cluster.decide()
    assert cluster.rate_of(egress_of(1)) == before
    cluster.play(60)
    assert cluster.rate_of(egress_of(1)) == pytest.approx(before, rel=0.1)
    cluster.memory = ReplicationMemory()
    cluster.carried[egress_of(1)] = [(cluster.now_seconds, 99.0 * MB)]  # over the limit
    cluster.decide()
    rate = cluster.rate_of(egress_of(1))
    assert rate is not None
    assert before is not None
    assert rate < before


def test_a_broker_that_comes_to_lead_has_what_its_followers_in_sync_will_take() -> None:
    terms = Terms(ReplicationMode.FOLLOW, minimum=3 * MB)
    cluster = producing(inflow=6.0 * MB, in_sync=(1, 2, 4), size=1e12, terms=terms)
    full(cluster, egress_of(2))
    cluster.play(40)
    assert cluster.rate_of(egress_of(2)) == pytest.approx((3 + 12) * MB, rel=0.1)
    cluster.partitions[NAME] = replace(cluster.partitions[NAME], leader=2)
    assert cluster.flow_rates()[ReplicaKey(*NAME, 3)] == pytest.approx(3 * MB, rel=0.5)


def test_what_a_partition_receives_is_known_while_old_segments_go_and_leaders_change() -> None:
    cluster = producing(inflow=2.0 * MB, size=500.0 * MB, terms=replace(FIXED, maximum=5 * MB))
    cluster.play(30)
    cluster.sizes[NAME] -= 100.0 * MB  # a segment is deleted
    assert cluster.play(10).moves[0].inflow() == pytest.approx(2 * MB, rel=0.02)
    cluster.filled[ReplicaKey(*NAME, 3)] -= 50.0 * MB  # the new replica's old segments go too
    move = cluster.play(10).moves[0]
    assert move.inflow() == pytest.approx(2 * MB, rel=0.02)
    assert 0 < (move.speed() or 0.0) <= 3.1 * MB
    cluster.sizes[NAME] += 70.0 * MB  # the other broker has deleted less
    cluster.partitions[NAME] = replace(cluster.partitions[NAME], leader=2)
    assert cluster.play(10).moves[0].inflow() == pytest.approx(2 * MB, rel=0.02)


@settings(deadline=None, max_examples=settings().max_examples // 5)
@given(
    st.integers(0, 30),
    st.sampled_from([(1,), (1, 2), (1, 2, 4)]),
    st.integers(0, 60),
    st.integers(1, 20),
    st.sampled_from([REASSIGNMENT, RECOVERY]),
)
def test_what_is_filled_has_the_room_or_its_floor_and_steady_load_ends_all_writes(
    inflow: int, in_sync: tuple[int, ...], spare: int, floor: int, kind: MoveKind
) -> None:
    terms = Terms(ReplicationMode.FOLLOW, minimum=floor * MB)
    cluster = producing(
        inflow=inflow * 1.0 * MB, in_sync=in_sync, size=1e12, kind=kind, terms=terms
    )
    cluster.line_rate = 1000.0 * MB
    full(cluster, egress_of(1), spare * 1.0 * MB)
    decision = cluster.play(150)
    moved = cluster.flow_rates()[ReplicaKey(*NAME, 3)]
    wanted = max(floor, spare) * MB
    assert 0.88 * wanted - MB <= moved <= 1.12 * wanted + MB
    assert bool(decision.stalls) == (moved <= inflow * MB)
    settled = len(cluster.changes)
    cluster.play(120)
    assert len(cluster.changes) == settled
