"""A quota that another writer keeps changing: never a fight, an end that is known, and how a person
ends it at once.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.loaded_world import USERS, loaded_world
from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    FETCH,
    MB,
    START_SECONDS,
    World,
    fixed_world,
    member,
    per_broker,
    per_partition,
    policy,
    report_of,
    tier,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import BrokerLimit, BrokerLimits, Entity, Level, Mode
from tidegate_logic.quotas.contention import (
    CALM_SECONDS,
    FIRST_BACK_OFF_SECONDS,
    LONGEST_BACK_OFF_SECONDS,
    back_off_seconds,
    named_entity,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle import record

POLL_SECONDS = 15.0
OURS, THEIRS = str(10 * MB), str(5 * MB)


def passes(
    world: World, seconds: float, rival: Callable[[float], str | None], *, every: float
) -> list[float]:
    """Passes as the operator makes them, beside a rival that writes every so many seconds.

    When the quota was put back, in seconds since the start.
    """
    began, repaired = world.now_seconds, []
    next_write, next_pass = began + every, began + POLL_SECONDS
    while min(next_write, next_pass) < began + seconds:
        world.now_seconds = min(next_write, next_pass)
        if next_write <= next_pass:
            world.someone_sets(ALICE, rival(world.now_seconds))
            next_write += every
            continue
        decision = world.run()
        if any(write.reason is Reason.REPAIRED for write in decision.writes):
            repaired.append(world.now_seconds - began)
        due = decision.next_pass_in_seconds
        next_pass = world.now_seconds + (POLL_SECONDS if due is None else min(POLL_SECONDS, due))
    return repaired


def managed(rate: int = 10 * MB) -> World:
    world = fixed_world(rate)
    world.run()
    return world


def in_contention(world: World | None = None) -> tuple[World, Decision]:
    """Somebody has changed the quota for the third time; 15 s are between two passes."""
    world = world or managed()
    for _ in range(3):
        world.someone_sets(ALICE, THEIRS)
        decision = world.after(POLL_SECONDS)
    return world, decision


def test_after_two_repairs_it_is_left_alone_for_one_two_four_and_eight_minutes() -> None:
    assert [back_off_seconds(count) for count in range(8)] == [60, 60, 60, 120, 240, 480, 480, 480]
    world = managed()
    repaired = passes(world, 3600, lambda _: THEIRS, every=1)
    assert repaired[:2] == [15, 30]
    assert [later - earlier for earlier, later in pairwise(repaired[1:])][:5] == [
        back_off + POLL_SECONDS for back_off in (60, 120, 240, 480, 480)
    ]


def test_a_contended_quota_is_shown_with_both_values_since_when_and_until_when() -> None:
    world, decision = in_contention()
    (one,) = decision.contended.values()
    assert one.entity == ALICE
    assert one.values == ((FETCH, THEIRS, OURS),)
    assert (one.since_seconds, one.until_seconds) == (world.now_seconds, world.now_seconds + 60)
    assert decision.next_pass_in_seconds == 60
    assert report_of(decision, ALICE).state is MemberState.CONTENDED
    assert [note.reason for note in decision.notes] == [Reason.CONTENDED]
    seen = decision.notes[0].message
    for part in (THEIRS, OURS, "13:47:25", "13:48:25"):  # 1 000 045 s after the epoch
        assert part in seen
    assert "tidegate resync streaming/main --entity user=alice" in (
        report_of(decision, ALICE).message
    )
    assert report_of(world.after(30), ALICE).message == report_of(decision, ALICE).message


def test_eight_calm_minutes_forgive_everything_and_seven_do_not() -> None:
    world = managed()
    for _ in range(3):
        world.someone_sets(ALICE, THEIRS)
        world.after(POLL_SECONDS)
        assert world.text(ALICE) == OURS
        world.after(CALM_SECONDS)
    for minutes in (7, 7):
        world.someone_sets(ALICE, THEIRS)
        world.after(POLL_SECONDS)
        assert world.text(ALICE) == OURS
        world.after(minutes * 60)
    world.someone_sets(ALICE, THEIRS)
    assert world.after(POLL_SECONDS).contended.keys() == {ALICE}


def test_a_restart_puts_it_back_twice_more() -> None:
    world, _ = in_contention()
    world.memory = Memory()
    assert [write.reason for write in world.after(1).writes] == [Reason.REPAIRED]
    world.someone_sets(ALICE, THEIRS)
    assert [write.reason for write in world.after(1).writes] == [Reason.REPAIRED]
    world.someone_sets(ALICE, THEIRS)
    assert world.after(1).contended.keys() == {ALICE}


@pytest.mark.parametrize("jump_seconds", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_leaves_no_one_alone_for_longer(jump_seconds: float) -> None:
    world, _ = in_contention()
    world.after(jump_seconds)
    assert world.text(ALICE) == OURS


def test_a_quota_that_somebody_removed_is_left_alone_like_one_that_was_changed() -> None:
    world = managed()
    for _ in range(3):
        world.someone_sets(ALICE, None)
        decision = world.after(POLL_SECONDS)
    assert [one.values for one in decision.contended.values()] == [((FETCH, None, OURS),)]
    world.after(60)
    assert world.text(ALICE) == OURS


def test_in_observe_no_one_is_left_alone() -> None:
    world, _ = in_contention()
    world.policy = policy(mode=Mode.OBSERVE)
    decision = world.after(1)
    assert not decision.contended
    assert [write.reason for write in decision.would_write] == [Reason.REPAIRED]


# --- never a fight --------------------------------------------------------------------------------


@settings(max_examples=settings().max_examples // 5, deadline=None)
@given(st.integers(1, 1000))
@example(1)
@example(15)
@example(60)
@example(120)
@example(479)
@example(481)
@example(1000)
def test_a_rival_of_any_rhythm_costs_few_writes_and_the_contract_comes_back(every: int) -> None:
    world, seconds = managed(), 3600
    repaired = passes(world, seconds, lambda _: THEIRS, every=every)
    assert len(repaired) <= 5 + seconds / CALM_SECONDS
    assert world.memory.repairs or every > CALM_SECONDS
    # the last write is seen up to a poll later, and the end of the back-off too
    calm_seconds = LONGEST_BACK_OFF_SECONDS + 2 * POLL_SECONDS + 1
    quiet = passes(world, calm_seconds, lambda _: THEIRS, every=1e9)
    assert world.text(ALICE) == OURS
    assert len(quiet) <= 1


WRITES = st.lists(
    st.tuples(st.floats(0.5, 700), st.sampled_from([THEIRS, "20000000", OURS, None])), max_size=40
)


@settings(max_examples=settings().max_examples * 2 // 5, deadline=None)
@given(WRITES, st.lists(st.floats(1, 20), min_size=1, max_size=12))
def test_never_more_than_two_repairs_in_a_minute_and_the_contract_after_the_back_off(
    writes: list[tuple[float, str | None]], gaps: list[float]
) -> None:
    """Whatever the rival writes, whenever; `gaps` are the seconds between two passes."""
    world, repaired = managed(), []
    world.memory = Memory()
    due = []
    at = world.now_seconds
    for pause, text in writes:
        at += pause
        due.append((at, text))
    end, number = at + LONGEST_BACK_OFF_SECONDS + 200, 0
    while world.now_seconds < end:
        until = world.now_seconds + gaps[number % len(gaps)]
        number += 1
        while due and due[0][0] <= until:
            world.someone_sets(ALICE, due.pop(0)[1])
        world.now_seconds = until
        decision = world.run()
        if any(write.reason is Reason.REPAIRED for write in decision.writes):
            repaired.append(world.now_seconds)
        for one in decision.contended.values():
            assert 0 < one.until_seconds - world.now_seconds <= LONGEST_BACK_OFF_SECONDS
            assert world.text(ALICE) != OURS
    for first, third in zip(repaired, repaired[2:], strict=False):
        assert third - first >= FIRST_BACK_OFF_SECONDS
    assert world.text(ALICE) == OURS
    assert not decision.contended


# --- resync ---------------------------------------------------------------------------------------


def two_in_contention() -> World:
    world = World((tier(member(ALICE, per_broker(10 * MB)), member(BOB, per_broker(10 * MB))),))
    world.run()
    for _ in range(3):
        world.someone_sets(ALICE, THEIRS)
        world.someone_sets(BOB, THEIRS)
        decision = world.after(POLL_SECONDS)
    assert decision.contended.keys() == {ALICE, BOB}
    return world


@pytest.mark.parametrize(
    ("request_text", "ended"),
    [
        ("1", {ALICE, BOB}),
        ("1 user=alice", {ALICE}),
        ("1 user=carol", set()),
        ("a b", {ALICE, BOB}),
    ],
)
def test_a_resync_ends_it_at_once_for_all_or_for_the_one_that_it_names(
    request_text: str, ended: set[Entity]
) -> None:
    world = two_in_contention()
    world.policy = policy(resync=request_text)
    decision = world.after(1)
    assert {write.entity for write in decision.writes} == ended
    assert decision.contended.keys() == {ALICE, BOB} - ended
    assert all(str(entity) in decision.resynced for entity in ended)
    assert f"tidegate.io/resync={request_text}" in decision.resynced


def test_one_value_of_the_annotation_is_acted_on_once_and_what_is_old_not_at_all() -> None:
    world = managed()
    world.memory = Memory()
    world.policy = policy(resync="old")
    assert world.after(1).resynced == ""
    world, _ = in_contention(world)
    assert world.after(1).contended
    world.policy = policy(resync="new")
    assert world.after(1).resynced
    world, decision = in_contention(world)
    assert decision.contended
    assert not decision.resynced
    world.policy = policy()
    assert world.after(1).contended, "an annotation that is taken off asks for nothing"


def test_a_resync_waits_for_a_pass_that_is_not_held() -> None:
    world, _ = in_contention()
    world.policy = policy(resync="1", paused_by=("spec.suspend",))
    assert world.after(1).resynced == ""
    world.policy = policy(resync="1")
    assert world.after(1).resynced
    assert world.text(ALICE) == OURS


@pytest.mark.parametrize(
    ("request_text", "named"),
    [
        ("1", ""),
        ("1 user=alice", "user=alice"),
        ("1  client-id=a b", "client-id=a b"),
        ("Mon Nov 23 07:10:00 UTC 2026", ""),
        ("", ""),
    ],
)
def test_the_annotations_value_may_name_an_entity_after_its_first_word(
    request_text: str, named: str
) -> None:
    assert named_entity(request_text) == named


# --- while a broker is over its limit -------------------------------------------------------------


def test_nothing_is_expected_of_a_contended_member_and_it_is_named() -> None:
    """L3 sends 25 MB/s whatever we write, so that L2 has to give what L3 would."""
    user = USERS[Level.L3]
    contracts = {Level.L2: 60 * MB, Level.L3: 60 * MB}
    world = loaded_world(limit=1000 * MB, contracts=contracts)
    world.minutes(1)
    for _ in range(3):
        world.someone_sets(user, str(70 * MB))
        decision = world.minutes(0.6)[-1]
    assert decision.contended.keys() == {user}
    control = loaded_world(limit=1000 * MB, contracts=contracts)
    control.minutes(1)
    for one in (world, control):
        one.policy = policy(limits=_limits(40 * MB), measured=True)
    seen = [one.minutes(0.5) for one in (world, control)]
    assert [_levels_cut(one) for one in seen] == [{Level.L2}, {Level.L3}]
    rounds = [one for each in seen[0] if each.throttle for one in each.throttle.rounds]
    named = {
        (found.entity, found.broker)
        for one in rounds
        for found in one.findings
        if found.reason is Reason.CONTENDED
    }
    assert named == {(user, 1)}
    assert (user, record.CONTENDED) in {
        (no.entity, no.why) for one in rounds for no in one.not_done
    }


def _limits(limit: int) -> BrokerLimits:
    return BrokerLimits(BrokerLimit(egress=limit, egress_capacity=1250 * MB))


def _levels_cut(decisions: list[Decision]) -> set[Level]:
    return {
        report.level
        for decision in decisions
        for report in decision.members
        if report.state is MemberState.THROTTLED
    }


@pytest.mark.parametrize("has_contract", [True, False])
def test_a_throttle_that_somebody_undoes_is_no_endless_fight(has_contract: bool) -> None:
    """A rival that writes the contract over the throttle is left alone too."""
    user = USERS[Level.L3]
    world = loaded_world(limit=1000 * MB, contracts={Level.L3: 60 * MB})
    world.other = 10.0 * MB
    if not has_contract:
        (only,) = world.tiers or ()
        members = tuple(replace(one, contract=None) for one in only.members)
        world.tiers = (replace(only, members=members, throttled=(per_partition(MB),)),)
    world.minutes(1)
    world.policy = policy(limits=_limits(20 * MB), measured=True)
    world.minutes(3)
    assert world.text(user) not in (None, str(60 * MB))
    written = 0
    for _ in range(12 * 10):
        world.someone_sets(user, str(60 * MB))
        written += sum(write.entity == user for write in world.scrape().writes)
    assert written <= 5 + 600 / FIRST_BACK_OFF_SECONDS
    assert world.now_seconds > START_SECONDS
    assert user in world.scrape().contended
    world.policy = replace(world.policy, deleting=True)
    assert world.scrape().finished_deleting or user not in world.decide().contended
