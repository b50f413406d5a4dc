"""The throttle within a whole pass: what is written, remembered in the ledger, said of members and
levels, and restored.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.goldens.golden import numbers
from tests.unit.controller_logic.loaded_world import (
    LEADER,
    THROTTLED,
    USERS,
    LoadedWorld,
    in_force,
    loaded_world,
    set_limit,
)
from tests.unit.controller_logic.worlds import (
    FETCH,
    MB,
    member,
    per_broker,
    per_partition,
    report_of,
    tier,
    topology,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decision import LevelState, Memory
from tidegate_logic.model import Level, Mode, Speed, TopicLeaders, WriteKind
from tidegate_logic.reasons import Reason

CONTRACT = 60 * MB


@pytest.fixture
def world() -> LoadedWorld:
    """At its contracts, with a limit that is never reached."""
    world = loaded_world()
    world.minutes(2)
    assert set(in_force(world).values()) == {CONTRACT}
    return world


def everybody_at_the_throttled_rate(world: LoadedWorld) -> None:
    """Foreign traffic fills the NIC so that every tier gives all it can."""
    world.other = 40.0 * MB
    set_limit(world, 50 * MB)
    world.minutes(6)


def test_over_the_limit_tiers_end_at_sized_targets_lowest_first_and_l0_is_never_touched(
    world: LoadedWorld,
) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    rates = in_force(world)
    assert rates[Level.L0] == CONTRACT
    assert rates[Level.L3] is not None
    assert rates[Level.L1] is not None
    assert THROTTLED[Level.L3] <= rates[Level.L3] <= 2 * THROTTLED[Level.L3]
    assert rates[Level.L2] == THROTTLED[Level.L2]
    assert THROTTLED[Level.L1] < rates[Level.L1] < CONTRACT
    assert world.carried <= 50 * MB


def test_metrics_that_stay_away_hold_the_throttle_or_release_it_as_the_policy_says(
    world: LoadedWorld,
) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    throttled = in_force(world)
    world.blind = True
    world.minutes(20)
    assert in_force(world) == throttled
    world.policy = replace(world.policy, release_after_seconds=900.0)
    (first, *later) = world.minutes(5)
    assert set(in_force(world).values()) == {CONTRACT}
    assert not any(
        write.kind is WriteKind.LOWERING
        for decision in (first, *later)
        for write in decision.writes
    )
    assert world.quotas is not None
    assert all(
        stored.ledger is not None and stored.ledger.entries[FETCH].of_contract is None
        for stored in world.quotas.values()
    )


def test_a_raised_limit_gives_everything_back_exactly(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    set_limit(world, 1000 * MB)
    world.minutes(6)
    assert set(in_force(world).values()) == {CONTRACT}
    assert world.quotas is not None
    assert all(
        stored.ledger is not None and stored.ledger.entries[FETCH].of_contract is None
        for stored in world.quotas.values()
    )


def test_a_lowering_is_written_with_its_reason_its_contract_and_the_mute_it_may_cause(
    world: LoadedWorld,
) -> None:
    set_limit(world, 50 * MB)
    lowered = [write for decision in world.minutes(1) for write in decision.writes]
    assert lowered
    assert {write.reason for write in lowered} == {Reason.THROTTLED}
    assert {write.kind for write in lowered} == {WriteKind.LOWERING}
    assert all(write.charged and 0 < write.predicted_mute_seconds <= 12 for write in lowered)
    assert all(
        write.ledger is not None and write.ledger.entries[FETCH].of_contract == CONTRACT
        for write in lowered
    )


def test_every_write_of_an_episode_stays_within_the_budget(world: LoadedWorld) -> None:
    world.policy = replace(world.policy, write_budget_changes=10)
    set_limit(world, 50 * MB)
    written = sum(len(decision.writes) for decision in world.minutes(14))
    assert written <= 10


def test_a_restarted_operator_repeats_nothing_and_releases_nothing(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    before = in_force(world)
    world.memory = Memory()
    world.blind = True
    assert not world.run().writes
    world.blind = False
    world.minutes(2)
    assert in_force(world) == before


def test_a_restart_in_the_middle_of_the_way_goes_on_from_there(world: LoadedWorld) -> None:
    world.other = 40.0 * MB
    set_limit(world, 50 * MB)
    world.minutes(0.75)
    middle = in_force(world)
    assert middle[Level.L3] is not None
    assert THROTTLED[Level.L3] < middle[Level.L3] < CONTRACT
    world.memory = Memory()
    assert not world.run().writes
    world.minutes(6)
    assert {level: in_force(world)[level] for level in THROTTLED} == THROTTLED


def test_metrics_that_vanish_neither_cut_nor_release(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    before = in_force(world)
    world.blind = True
    assert not [write for _ in range(120) for write in world.after(5).writes]
    assert in_force(world) == before


def test_a_nic_that_lied_is_believed_again_only_for_what_it_reports_later(
    world: LoadedWorld,
) -> None:
    everybody_at_the_throttled_rate(world)
    before = in_force(world)
    world.lies = True
    world.minutes(1)
    world.lies = False
    world.minutes(2)
    assert in_force(world) == before


def test_a_policy_without_metrics_gives_everything_back(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    world.policy = replace(world.policy, measured=False)
    decision = world.run()
    assert {write.reason for write in decision.writes} == {Reason.RELEASED}
    assert set(in_force(world).values()) == {CONTRACT}


def test_a_contract_edited_during_an_episode_keeps_its_share(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    before = in_force(world)[Level.L1]
    assert before is not None
    assert world.tiers is not None
    l1 = replace(
        world.tiers[1], members=(member(USERS[Level.L1], per_broker(CONTRACT // 2), "orders"),)
    )
    world.tiers = (world.tiers[0], l1, *world.tiers[2:])
    world.minutes(0.5)
    after = in_force(world)[Level.L1]
    assert after is not None
    assert after < before


def test_a_throttled_rate_edited_during_an_episode_takes_effect(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    assert world.tiers is not None
    world.tiers = (*world.tiers[:3], replace(world.tiers[3], throttled=(per_broker(4 * MB),)))
    world.minutes(0.5)
    assert in_force(world)[Level.L3] == 4 * MB


def test_a_member_that_becomes_l0_is_released_at_once(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    assert world.tiers is not None
    world.tiers = (*world.tiers[:3], replace(world.tiers[3], level=Level.L0, throttled=()))
    decision = world.run()
    assert [write.reason for write in decision.writes if write.entity == USERS[Level.L3]] == [
        Reason.RELEASED
    ]
    assert in_force(world)[Level.L3] == CONTRACT


def test_a_deleted_tier_gives_back_what_stood_before(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    assert world.tiers is not None
    world.tiers = world.tiers[:3]
    world.minutes(3)
    assert in_force(world)[Level.L3] is None


def test_without_a_contract_a_user_is_unlimited_until_throttled_and_unlimited_again_after(
    world: LoadedWorld,
) -> None:
    assert world.tiers is not None
    open_ended = tier(member(USERS[Level.L3], None), key=world.tiers[3].key, level=Level.L3)
    world.tiers = (*world.tiers[:3], replace(open_ended, throttled=(per_broker(MB),)))
    world.minutes(2)
    assert in_force(world)[Level.L3] is None
    set_limit(world, 90 * MB)
    world.minutes(6)
    throttled = in_force(world)[Level.L3]
    assert throttled is not None
    assert throttled < 25 * MB
    set_limit(world, 1000 * MB)
    world.minutes(6)
    assert in_force(world)[Level.L3] is None


def test_when_leaders_move_contract_and_throttle_move_together(world: LoadedWorld) -> None:
    assert world.tiers is not None
    world.tiers = (
        *world.tiers[:3],
        replace(
            world.tiers[3],
            members=(member(USERS[Level.L3], per_partition(CONTRACT), "orders"),),
            throttled=(per_partition(MB),),
        ),
    )
    world.minutes(1)
    everybody_at_the_throttled_rate(world)
    assert in_force(world)[Level.L3] == MB
    world.topology = topology({"orders": {LEADER: 2}}, brokers=(LEADER,))
    decision = world.run()
    assert [(write.kind, write.reason) for write in decision.writes] == [
        (WriteKind.RECOVERY, Reason.LEADERS_MOVED)
    ]
    assert in_force(world)[Level.L3] == 2 * MB


def test_partitions_without_a_leader_stop_every_lowering(world: LoadedWorld) -> None:
    world.topology = topology(
        {"orders": TopicLeaders({LEADER: 1}, leaderless=1)}, brokers=(LEADER,)
    )
    assert world.tiers is not None
    world.tiers = tuple(
        replace(
            one,
            members=tuple(replace(each, contract=per_partition(CONTRACT)) for each in one.members),
            throttled=tuple(
                per_partition(rates.fetch_bytes_per_second or 0) for rates in one.throttled
            ),
        )
        for one in world.tiers
    )
    set_limit(world, 50 * MB)
    assert not [
        write
        for decision in world.minutes(3)
        for write in decision.writes
        if write.kind is WriteKind.LOWERING
    ]


def test_observe_reports_what_it_would_do_and_writes_nothing(world: LoadedWorld) -> None:
    world.policy = replace(world.policy, mode=Mode.OBSERVE)
    set_limit(world, 50 * MB)
    decisions = world.minutes(6)
    assert not [write for decision in decisions for write in decision.writes]
    would = {write.reason for decision in decisions for write in decision.would_write}
    assert would == {Reason.THROTTLED}
    assert set(in_force(world).values()) == {CONTRACT}
    world.wants = dict.fromkeys(world.wants, float(MB))
    assert not world.minutes(3)[-1].would_write


def test_another_writer_is_put_right_and_the_throttle_stays(world: LoadedWorld) -> None:
    everybody_at_the_throttled_rate(world)
    world.someone_sets(USERS[Level.L3], str(CONTRACT))
    decision = world.run()
    assert [write.reason for write in decision.writes] == [Reason.REPAIRED]
    world.minutes(4)
    assert in_force(world)[Level.L3] == THROTTLED[Level.L3]


def test_members_and_levels_say_that_they_are_throttled_and_because_of_which_broker(
    world: LoadedWorld,
) -> None:
    everybody_at_the_throttled_rate(world)
    decision = world.scrape()
    report = report_of(decision, USERS[Level.L3])
    assert (report.state, report.reason) == (MemberState.THROTTLED, Reason.THROTTLED)
    assert numbers(report.message) == {1.0, 60.0}
    assert report.quota[FETCH] == MB
    assert report.target[FETCH] == CONTRACT
    levels = {one.level: one for one in decision.levels}
    assert levels[Level.L0].state is LevelState.CONTRACT
    assert levels[Level.L3].state is LevelState.THROTTLED
    assert numbers(levels[Level.L3].because) == {1, 140.0, 50.0}
    assert levels[Level.L3].below_contract == 1


def test_a_level_that_is_given_back_says_so_and_keeps_its_cause(world: LoadedWorld) -> None:
    set_limit(world, 50 * MB)
    world.minutes(6)
    set_limit(world, 90 * MB)
    decision = world.minutes(6)[-1]
    levels = {one.level: one for one in decision.levels}
    assert levels[Level.L3].state is LevelState.RELAXING
    assert numbers(levels[Level.L3].because) == {1, 100.0, 50.0}


def test_a_level_that_makes_room_for_a_higher_one_says_so_and_not_that_a_broker_is_over(
    world: LoadedWorld,
) -> None:
    world.wants[USERS[Level.L3]], world.other = 0.0, 5.0 * MB
    set_limit(world, 50 * MB)
    world.minutes(5)
    world.wants[USERS[Level.L3]], world.other = 4.0 * MB, 0.0
    levels = {one.level: one for one in world.minutes(2)[-1].levels}
    assert numbers(levels[Level.L1].because) == {1, 96.0, 50.0}
    words = levels[Level.L3].because
    assert words.startswith("room for 3 MB/s of L1, which is below its contract, on broker 1")
    assert "room" not in levels[Level.L2].because


def test_what_began_a_throttle_stays_and_what_is_carried_now_follows_until_it_is_unknown(
    world: LoadedWorld,
) -> None:
    everybody_at_the_throttled_rate(world)
    began = world.now_seconds
    level = world.scrape().levels[-1]
    assert (level.because, level.now) == ("broker 1 egress 140 of 50 MB/s", "now 81 MB/s")
    assert level.since_seconds is not None
    assert began - 360 <= level.since_seconds < began - 300
    world.blind = True
    level = world.minutes(2)[-1].levels[-1]
    assert level.because == "broker 1 egress 140 of 50 MB/s"
    assert level.now.startswith("now unknown (81 MB/s as of ")


def test_a_member_for_whose_form_the_tier_gives_no_rate_is_never_throttled_and_says_so(
    world: LoadedWorld,
) -> None:
    assert world.tiers is not None
    world.tiers = (*world.tiers[:3], replace(world.tiers[3], throttled=(per_partition(MB),)))
    set_limit(world, 50 * MB)
    decision = world.minutes(4)[-1]
    assert in_force(world)[Level.L3] == CONTRACT
    report = report_of(decision, USERS[Level.L3])
    assert report.reason is Reason.NO_THROTTLED_RATE
    assert "perBroker" in report.message  # the form for which the tier lacks a rate


def test_drains_that_end_together_wait_for_no_turn() -> None:
    world = loaded_world(speed=Speed.DRAIN)
    world.minutes(3)
    world.wants[USERS[Level.L0]] = 40.0 * MB
    set_limit(world, 50 * MB)
    world.scrape()
    first = in_force(world)
    assert THROTTLED[Level.L3] < (first[Level.L3] or 0) < 12 * MB
    assert THROTTLED[Level.L2] < (first[Level.L2] or 0) < 12 * MB
    for level in (Level.L3, Level.L2):
        world.wants[USERS[level]] = 0.1 * MB  # muted
    for _ in range(3):
        world.scrape()
    ended = in_force(world)
    assert (ended[Level.L3], ended[Level.L2]) == (THROTTLED[Level.L3], THROTTLED[Level.L2])


def test_with_the_write_budget_spent_no_pass_is_due_for_each_turn() -> None:
    world = loaded_world(write_budget_changes=5, write_budget_period_seconds=600.0)
    world.minutes(1)
    world.memory = replace(world.memory, charged=((world.now_seconds, 5),))
    set_limit(world, 20 * MB)
    waiting = [one for one in world.minutes(3) if one.deferred_writes]
    assert waiting
    assert all(one.throttle is not None and len(one.throttle.steps) > 1 for one in waiting)
    assert min(one.next_pass_in_seconds or 600.0 for one in waiting) > 60.0
    assert in_force(world)[Level.L3] == CONTRACT


def test_with_room_in_the_write_budget_again_turns_are_as_far_apart_as_ever() -> None:
    world = loaded_world(write_budget_changes=5, write_budget_period_seconds=600.0)
    world.minutes(1)
    world.memory = replace(world.memory, charged=((world.now_seconds - 593.0, 5),))
    set_limit(world, 20 * MB)
    gone: list[float] = []
    for _ in range(12):
        until = world.now_seconds + world.scrape_seconds
        decision = world._at(until)
        while True:
            gone += [world.now_seconds] * len(decision.writes)
            due = decision.next_pass_in_seconds
            if due is None or world.now_seconds + due >= until + world.scrape_seconds:
                break
            world.now_seconds += due
            decision = world.run()
        world.now_seconds = until
    assert len(gone) >= 2
    assert min(later - earlier for earlier, later in pairwise(gone)) >= 1.0
