"""What stood there before Tidegate comes back exactly, and not by mistake."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from tests.goldens.golden import numbers
from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    World,
    fixed_world,
    many_world,
    member,
    per_broker,
    policy,
    run_to_the_end,
    stored,
    tier,
)
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import Member, QuotaWrite, WriteKind
from tidegate_logic.reasons import Reason


@pytest.mark.parametrize("before", [None, "12345678", "0", "9999999999"])
def test_what_is_given_back_is_exactly_what_stood_there(before: str | None) -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.quotas = {ALICE: stored(ALICE, {FETCH: before} if before else {})}
    run_to_the_end(world)
    assert world.text(ALICE) == "10000000"
    world.tiers = ()
    world.now_seconds += 60
    run_to_the_end(world)
    assert world.text(ALICE) == before
    assert world.is_forgotten(ALICE)


def test_giving_back_a_smaller_quota_goes_down_in_steps() -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.quotas = {ALICE: stored(ALICE, {FETCH: "2000000"})}
    world.run()
    world.tiers = ()
    world.after_grace(60)
    assert run_to_the_end(world) == ["5000000", "2500000", "2000000"]


def test_on_the_way_to_less_than_1024_no_step_is_one_that_the_store_refuses() -> None:
    world = fixed_world(16_114, max_removal_percent=100)
    world.quotas = {ALICE: stored(ALICE, {FETCH: "1007"})}
    world.run()
    world.tiers = ()
    world.after_grace(60)
    assert run_to_the_end(world) == ["8057", "4029", "2015", "1024", "1007"]


def test_a_key_that_left_the_contract_is_given_back_and_the_other_stays() -> None:
    world = World(
        (tier(member(ALICE, per_broker(MB, 2 * MB))),), policy=policy(max_removal_percent=100)
    )
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(MB))),)
    world.after_grace(60)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("1000000", None)


def test_what_somebody_changed_since_is_theirs_when_we_let_go() -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.run()
    world.someone_sets(ALICE, "7000000")
    world.tiers = ()
    decision = world.after_grace(60)
    assert world.text(ALICE) == "7000000"
    assert world.quotas is not None
    assert world.quotas[ALICE].ledger is None
    assert Reason.GIVEN_BACK in [note.reason for note in decision.notes]


def test_too_many_removals_are_held_until_exactly_these_are_confirmed() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    decision = world.after(60)
    (message,) = held(decision)
    assert not decision.writes
    assert numbers(message) >= {10, world.policy.max_removal_percent}
    token = asked_for(decision)
    assert re.fullmatch("10-[0-9a-f]{8}", token)
    for other in ("10", "9", "10-00000000", f"{token}0", token.removeprefix("10-")):
        world.policy = replace(world.policy, confirmed_removal=other)
        assert held(world.after(1)) == [
            f"{message} (its value now, {other}, does not confirm this removal)"
        ]
    assert world.watched(30).writes == ()
    confirm(world, token)
    decision = world.after(0)  # while it was held, their grace has passed
    assert len(decision.writes) == 10
    assert any(token in note.message for note in decision.notes)


def test_a_confirmation_is_for_these_members_and_no_others() -> None:
    world = many_world()
    world.run()
    keep(world, *range(4))
    token = asked_for(world.after(60))
    keep(world, *range(6, 10))  # as many others
    confirm(world, token)
    decision = world.after(60)
    assert (decision.writes, asked_for(decision) != token) == ((), True)


def test_a_confirmation_of_one_key_is_none_of_the_other_that_leaves_before_it_is_given_back() -> (
    None
):
    world = World(
        (tier(member(ALICE, per_broker(10 * MB, 10 * MB))),), policy=policy(max_removal_percent=20)
    )
    world.quotas = {ALICE: stored(ALICE, {FETCH: "6000000"})}
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(None, 10 * MB))),)
    confirm(world, asked_for(world.after(5)))
    world.after(1)  # the next lowering has to wait
    world.tiers = ()
    decision = world.after(23)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("10000000", "10000000")
    confirm(world, asked_for(decision))
    world.after_grace(1)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("6000000", None)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_confirmation_that_was_used_does_not_confirm_the_same_removal_again(
    restarted: bool,
) -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    token = asked_for(world.after(60))
    confirm(world, token)
    assert len(world.after_grace(1).writes) == 10
    world.tiers = MANY
    assert len(world.after(60).writes) == 10
    if restarted:
        world.memory = Memory()
    world.tiers = ()
    decision = world.after(1000)
    assert (decision.writes, asked_for(decision) != token) == ((), True)


def test_a_confirmation_is_used_up_also_when_the_budget_let_nothing_through() -> None:
    world = many_world()
    world.run()
    world.policy = replace(world.policy, write_budget_changes=5)
    world.tiers = (replace(MANY[0], members=raised(MANY[0].members)),)
    world.after(60)  # spends the budget
    world.tiers = ()
    token = asked_for(world.after(1))
    confirm(world, token)
    assert (world.after(1).writes, held(world.after(1))) == ((), [])
    world.tiers = (replace(MANY[0], members=raised(MANY[0].members)),)
    world.after(1)
    world.tiers = ()
    decision = world.after(1)
    again = asked_for(decision)
    assert (decision.writes, again != token) == ((), True)
    confirm(world, again)
    assert held(world.after(1)) == []


def test_a_restarted_operator_asks_for_the_same_confirmation() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    token = asked_for(world.after(60))
    world.memory = Memory()
    assert asked_for(world.after(3600)) == token


def test_a_confirmed_removal_goes_on_when_the_budget_takes_several_passes() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    confirm(world, asked_for(world.after(1)))
    world.policy = replace(world.policy, write_budget_changes=5)
    written = [len(given_back_by(world.after_grace(seconds))) for seconds in (1, 871, 871)]
    assert written == [4, 4, 2]


def test_half_may_go_without_asking() -> None:
    world = many_world()
    world.run()
    kept = world.tiers[0] if world.tiers else tier()
    world.tiers = (replace(kept, members=kept.members[:5]),)
    assert len(world.after_grace(60).writes) == 5


MANY = many_world().tiers or ()


def given_back_by(decision: Decision) -> list[QuotaWrite]:
    """The writes that restore something, not those that only drop a record."""
    return [write for write in decision.writes if write.kind is WriteKind.GIVE_BACK]


def keep(world: World, *indices: int) -> None:
    """Somebody leaves only these members in the tier."""
    world.tiers = (replace(MANY[0], members=tuple(MANY[0].members[index] for index in indices)),)


def raised(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(replace(one, contract=per_broker(2 * MB)) for one in members)


def held(decision: Decision) -> list[str]:
    return [note.message for note in decision.notes if note.reason is Reason.REMOVAL_HELD]


def asked_for(decision: Decision) -> str:
    """The confirmation that the command in the message sets."""
    (message,) = held(decision)
    command = "kubectl annotate bbp main -n streaming tidegate.io/confirm-removal="
    _, found, rest = message.partition(command)
    assert found, message
    return rest.partition(" --overwrite")[0]


def confirm(world: World, confirmation: str) -> None:
    world.policy = replace(world.policy, confirmed_removal=confirmation)


def test_removals_bit_by_bit_are_counted_together_for_a_quarter_of_an_hour(
    golden: Callable[[str], None],
) -> None:
    world = many_world()
    world.run()
    given_back = []
    for left in (8, 6, 4, 2):  # a fifth of all at a time, and never more than half of what is left
        keep(world, *range(left))
        decision = world.after_grace(60)
        given_back.append(len(decision.writes))
    assert given_back == [2, 2, 0, 0]
    (message,) = held(decision)
    assert numbers(message) >= {4, 10, world.policy.max_removal_percent}
    assert asked_for(decision).startswith("4-")
    golden(message)


def test_what_is_held_is_not_freed_by_time_but_by_a_confirmation_or_a_person_who_changes_his_mind() -> (
    None
):
    world = many_world()
    world.run()
    keep(world, *range(6))
    assert len(world.after_grace(60).writes) == 4
    keep(world, *range(4))
    for _ in range(40):
        assert given_back_by(world.after(60)) == []
    keep(world, *range(5))
    assert (len(world.after(60).writes), held(world.after(60))) == (1, [])
    keep(world, *range(4))
    confirm(world, asked_for(world.after(60)))
    assert len(given_back_by(world.watched(30))) == 1


def test_after_a_quarter_of_an_hour_the_share_is_of_what_is_left() -> None:
    world = many_world()
    world.run()
    keep(world, *range(5))
    assert len(world.after_grace(60).writes) == 5
    for _ in range(16):
        world.after(60)
    keep(world, *range(3))
    assert len(world.after_grace(60).writes) == 2
    keep(world, *range(2))
    assert len(held(world.after(60))) == 1


def test_what_was_confirmed_counts_no_more_and_the_share_is_of_the_rest() -> None:
    world = many_world()
    world.run()
    keep(world, *range(4))
    confirm(world, asked_for(world.after(1)))
    assert len(world.watched(30).writes) == 6
    keep(world, *range(2))
    assert len(world.after_grace(60).writes) == 2
    keep(world, 0)
    assert len(held(world.after(60))) == 1


def test_whoever_comes_back_and_goes_again_counts_once() -> None:
    world = many_world()
    world.run()
    for left in (5, 10, 5, 10, 5):
        keep(world, *range(left))
        assert held(world.after(60)) == []


def test_a_hundred_percent_never_holds_however_many_come_and_go() -> None:
    world = many_world()
    world.policy = replace(world.policy, max_removal_percent=100)
    world.run()
    for users in (range(5), range(5, 10), range(5), ()):
        keep(world, *users)
        assert held(world.after(60)) == []
