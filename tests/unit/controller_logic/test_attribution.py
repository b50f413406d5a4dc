"""Who moves the bytes of a hot broker, whether quotas can help there, and what a cut costs
elsewhere.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import Direction, Level, ReplicationBeside
from tidegate_logic.readings import flows_of
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.attribution import DirectionSnapshot, needs_of, scene_of
from tidegate_logic.throttle.buckets import buckets_of
from tidegate_logic.throttle.decision import Phase, StepKind
from tidegate_logic.throttle.input import ActiveThrottle
from tidegate_logic.throttle.nic_status import nic_statuses


def scene(
    played: SimulatedCluster,
    replication: float = 0.0,
    leaves_mb: Mapping[Level, float] | None = None,
) -> DirectionSnapshot:
    """The egress scene of this moment, from readings of 15 s.

    `replication` is how much replication is slowed down on broker 1, `leaves_mb` what more
    important replication leaves to these levels there.
    """
    leaves = {level: amount * MB for level, amount in (leaves_mb or {}).items()}
    beside = ReplicationBeside(replication, leaves)
    given = replace(played.given(), replication={(1, OUT): beside})
    flows = flows_of(given.readings, now_seconds=given.now_seconds, stale_after_seconds=45)
    buckets = buckets_of(given, flows, played.memory.held, played.memory.seen)
    return scene_of(given, OUT, nic_statuses(given, flows, OUT, throttled=False), buckets)


def hot(played: SimulatedCluster) -> SimulatedCluster:
    """Two rounds of readings."""
    played.pass_time(15)
    played.pass_time(15)
    return played


def test_a_broker_needs_what_brings_it_to_the_aim() -> None:
    played = simulated_cluster(actor("a", "L3", 200))
    want(played, a=120)
    assert needs_of(scene(hot(played))).over[1].amount == pytest.approx((120 - 97) * MB)


def test_replication_cannot_be_cut_so_no_one_is() -> None:
    played = simulated_cluster(actor("a", "L3", 100))
    want(played, a=5)
    played.other[1, OUT] = 120 * MB
    needs = needs_of(scene(hot(played)))
    assert not needs.over
    assert needs.helpless[1].can_give == pytest.approx(4 * MB)


def test_replication_below_l3_gives_way_before_any_tier() -> None:
    played = simulated_cluster(actor("a", "L3", 200))
    want(played, a=50)
    played.other[1, OUT] = 70 * MB
    hot(played)
    assert needs_of(scene(played)).over[1].amount == pytest.approx(23 * MB)
    assert needs_of(scene(played, 20 * MB)).over[1].amount == pytest.approx(3 * MB)
    needs = needs_of(scene(played, 60 * MB))
    assert not needs.all
    assert not needs.helpless


def test_what_is_left_after_replication_is_what_quotas_cannot_help() -> None:
    played = simulated_cluster(actor("a", "L3", 100))
    want(played, a=5)
    played.other[1, OUT] = 140 * MB
    helpless = needs_of(scene(hot(played), 20 * MB)).helpless[1]
    assert helpless.need == pytest.approx(28 * MB)
    assert helpless.replication == pytest.approx(20 * MB)
    assert helpless.can_give == pytest.approx(4 * MB)


def test_l0_gives_nothing() -> None:
    played = simulated_cluster(actor("a", "L0", 200))
    want(played, a=150)
    assert needs_of(scene(hot(played))).helpless[1].can_give == 0


def test_quota_cannot_help_is_said_with_its_numbers_and_nothing_is_cut() -> None:
    played = simulated_cluster(actor("a", "L3", 100))
    want(played, a=5)
    played.other[1, OUT] = 120 * MB
    played.run(15)
    decision = played.run(15)
    found = decision.round_of(OUT)
    assert found.phase is Phase.UNHELPABLE
    assert [(one.reason, one.broker) for one in found.findings] == [(Reason.QUOTA_CANNOT_HELP, 1)]
    assert "28 MB/s" in found.findings[0].message
    assert not decision.steps


def test_on_a_full_link_even_little_relief_is_taken() -> None:
    played = simulated_cluster(actor("a", "L3", 100), capacity_mb=125)
    want(played, a=5)
    played.other[1, OUT] = 120 * MB
    assert needs_of(scene(hot(played))).over.keys() == {1}


def test_what_lies_below_the_floor_does_not_count() -> None:
    played = simulated_cluster(actor("a", "L3", 100, floor_mb=30))
    want(played, a=31)
    played.other[1, OUT] = 90 * MB
    assert needs_of(scene(hot(played))).helpless[1].can_give == pytest.approx(1 * MB)


def test_only_users_with_bytes_on_the_hot_broker_are_cut() -> None:
    played = simulated_cluster(
        actor("here", "L3", 150), actor("there", "L3", 100, leaders={2: 1}), brokers=2
    )
    want(played, here=120, there=90)
    hot(played)
    assert steps_of(played.decide(), StepKind.CUT).keys() == {"here"}


def test_collateral_is_what_a_cut_takes_where_no_one_asked() -> None:
    played = simulated_cluster(actor("a", "L3", 60, leaders={1: 1, 2: 1}), brokers=2)
    want(played, a=60)
    played.other[1, OUT] = 60 * MB
    hot(played)
    step = steps_of(played.decide(), StepKind.CUT)["a"]
    assert step.relief == step.collateral == pytest.approx(60 * MB - step.value)
    assert step.score == 0.5


def test_a_poor_fit_is_said() -> None:
    played = simulated_cluster(
        actor("a", "L3", 60, leaders=dict.fromkeys(range(1, 6), 1)), brokers=5
    )
    want(played, a=60)
    played.other[1, OUT] = 60 * MB
    hot(played)
    findings = played.decide().round_of(OUT).findings
    assert Reason.POOR_FIT in [finding.reason for finding in findings]


def test_a_tier_held_down_gets_room_from_the_lower_tiers_where_no_broker_is_over() -> None:
    played = simulated_cluster(actor("second", "L2", 60), actor("third", "L3", 65))
    want(played, second=60, third=65)
    played.apply(played.actors[0].key, 30 * MB)
    played.memory = played.memory.__class__(
        held={played.actors[0].key: ActiveThrottle(30 * MB, 60 * MB, 0.0, applied=True)}
    )
    swaps = needs_of(scene(hot(played))).swaps
    assert swaps[1].levels == (Level.L3,)
    assert swaps[1].amount == pytest.approx(30 * MB)


def test_a_broker_that_comes_back_gets_room_from_l3_and_l2_within_the_limit() -> None:
    played = simulated_cluster(
        actor("first", "L1", 60), actor("second", "L2", 60), actor("third", "L3", 60)
    )
    want(played, first=30, second=30, third=30)
    hot(played)
    assert not needs_of(scene(played)).all
    # L3 and L2 send 29 MB/s above their throttled rates, each
    needs = needs_of(scene(played, leaves_mb={Level.L3: 10, Level.L2: 10}))
    assert not needs.over
    assert needs.swaps[1].amount == pytest.approx(48 * MB)
    assert needs.swaps[1].levels == (Level.L3, Level.L2)
    # all that it has; and what it cannot give is not asked
    needs = needs_of(scene(played, leaves_mb={Level.L3: -30, Level.L2: -1}))
    assert needs.swaps[1].amount == pytest.approx(58 * MB)
    # what is more important than L3 only is no concern of L2
    needs = needs_of(scene(played, leaves_mb={Level.L3: -5}))
    assert needs.swaps[1].amount == pytest.approx(29 * MB)
    assert needs.swaps[1].levels == (Level.L3,)
    needs = needs_of(scene(played, leaves_mb={Level.L3: -5, Level.L2: 30}))
    assert needs.swaps[1].amount == pytest.approx(29 * MB)
    # and where there is room for it, nobody gives: below 2 % of the limit, too
    assert not needs_of(scene(played, leaves_mb={Level.L3: 27.1, Level.L2: 56.1})).all


def test_l1_gives_to_no_replication_also_where_its_broker_is_over_its_limit() -> None:
    played = simulated_cluster(actor("first", "L1", 90), actor("third", "L3", 60))
    want(played, first=60, third=50)
    hot(played)
    assert needs_of(scene(played)).over[1].amount == pytest.approx(13 * MB)
    need = needs_of(scene(played, leaves_mb={Level.L3: 0, Level.L2: 0})).over[1]
    assert need.amount == pytest.approx(49 * MB)
    assert need.levels == (Level.L3,)


def test_nobody_gives_to_replication_where_clients_are_not_measured() -> None:
    played = simulated_cluster(actor("third", "L3", 60))
    want(played, third=60)
    played.silent.add(1)
    hot(played)
    assert not needs_of(scene(played, leaves_mb={Level.L3: 0, Level.L2: 0})).all


def test_directions_do_not_mix() -> None:
    played = simulated_cluster(actor("a", "L3", 200))
    want(played, a=150)
    hot(played)
    assert played.decide().round_of(Direction.INGRESS).phase is Phase.NORMAL
