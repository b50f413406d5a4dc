"""Contracts on leaders that move, and what may be done while leaders or other inputs are not
known.
"""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    FETCH,
    MB,
    START_SECONDS,
    member,
    orders_world,
    per_partition,
    report_of,
    tier,
    topology,
    total,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    Hold,
    Observation,
    TopicLeaders,
    WriteKind,
)
from tidegate_logic.reasons import Reason


def test_a_contract_follows_the_leaders_at_once_when_a_broker_dies() -> None:
    world = orders_world()
    world.run()
    assert world.text(ALICE) == "10000000"
    world.topology = topology({"orders": {1: 2, 2: 1}}, brokers=(1, 2))
    decision = world.after(1)
    assert world.text(ALICE) == "20000000"
    assert [(write.kind, write.charged) for write in decision.writes] == [
        (WriteKind.RECOVERY, False)
    ]


def test_both_totals_and_the_skew_are_reported() -> None:
    world = orders_world()
    world.topology = topology({"orders": {1: 2, 2: 1}}, brokers=(1, 2))
    report = report_of(world.run(), ALICE)
    assert (report.contract_total[FETCH], report.permitted_total[FETCH]) == (30 * MB, 40 * MB)
    assert report.leader_skew == pytest.approx(4 / 3)


def test_a_total_is_divided_over_the_brokers_that_lead() -> None:
    world = orders_world()
    world.tiers = (tier(member(ALICE, total(30 * MB), "orders"), member(BOB, total(30 * MB))),)
    world.topology = topology({"orders": {1: 2, 2: 1}})
    world.run()
    assert (world.text(ALICE), world.text(BOB)) == ("15000000", "10000000")


def test_a_small_leader_move_is_left_alone_and_an_equally_small_edit_is_not() -> None:
    world = orders_world()
    world.topology = topology({"orders": {1: 20, 2: 20}})
    world.run()
    world.topology = topology({"orders": {1: 21, 2: 19}})
    decision = world.after(60)
    assert not decision.writes
    assert report_of(decision, ALICE).reason is Reason.MINIMUM_CHANGE
    world.tiers = (tier(member(ALICE, per_partition(10 * MB + 1), "orders")),)
    world.after(60)
    assert world.text(ALICE) == str(21 * (10 * MB + 1))


def test_high_skew_is_said_aloud() -> None:
    world = orders_world()
    world.topology = topology({"orders": {1: 10, 2: 1, 3: 1, 4: 1}})
    assert Reason.HIGH_SKEW in [note.reason for note in world.run().notes]


@pytest.mark.parametrize("lacking", ["tiers", "topology", "quotas"])
def test_incomplete_knowledge_changes_nothing(lacking: str) -> None:
    complete = orders_world().observation()
    decision, _ = decide(replace(complete, **{lacking: None}), Memory())
    assert not decision.writes
    assert decision.holds


def test_an_input_that_is_missing_changes_nothing_and_is_the_reason_of_every_member() -> None:
    observation: Observation = replace(
        orders_world().observation(), missing=((Reason.CONTROLLER_ABSENT, "no controller"),)
    )
    decision, _ = decide(observation, Memory())
    assert not decision.writes
    assert decision.holds == (Hold(Reason.CONTROLLER_ABSENT, "no controller", START_SECONDS),)
    assert report_of(decision, ALICE).reason is Reason.CONTROLLER_ABSENT


def test_a_hold_keeps_its_first_time_until_a_pass_is_without_it() -> None:
    complete, memory, since = orders_world().observation(), Memory(), []
    away = ((Reason.BROKERS_UNREACHABLE, "no broker answered"),)
    for seconds, missing in ((0.0, away), (15.0, away), (30.0, ()), (45.0, away)):
        decision, memory = decide(
            replace(complete, now_seconds=START_SECONDS + seconds, missing=missing), memory
        )
        since += [hold.since_seconds - START_SECONDS for hold in decision.holds]
    assert since == [0.0, 0.0, 45.0]


def test_an_entity_that_was_not_read_is_unknown_not_unlimited() -> None:
    observation = replace(orders_world().observation(), quotas={})
    decision, _ = decide(observation, Memory())
    assert not decision.writes
    assert report_of(decision, ALICE).state is MemberState.HELD


def test_a_member_whose_topic_does_not_exist_is_left_alone() -> None:
    world = orders_world()
    world.run()
    world.topology = topology({})
    decision = world.after(60)
    assert world.text(ALICE) == "10000000"
    assert report_of(decision, ALICE).state is MemberState.TOPIC_NOT_FOUND


def test_leaders_known_in_part_may_raise_and_never_lower() -> None:
    world = orders_world()
    world.topology = topology({"orders": {1: 2, 2: 1}})
    world.run()
    world.topology = topology({"orders": TopicLeaders({2: 1}, leaderless=2)})
    decision = world.after(60)
    assert world.text(ALICE) == "20000000"
    assert report_of(decision, ALICE).reason is Reason.TOPOLOGY_INCOMPLETE
    world.topology = topology({"orders": TopicLeaders({2: 4}, leaderless=2)})
    world.after(60)
    assert world.text(ALICE) == "40000000"
