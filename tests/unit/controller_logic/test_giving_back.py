"""What stood there before Tidegate comes back exactly, and not by mistake."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller_logic.decision import Decision
from controller_logic.reasons import Reason
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
    assert world.quotas[ALICE].ledger is None


def test_giving_back_a_smaller_quota_goes_down_in_steps() -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.quotas = {ALICE: stored(ALICE, {FETCH: "2000000"})}
    world.run()
    world.tiers = ()
    world.now_seconds += 60
    assert run_to_the_end(world) == ["5000000", "2500000", "2000000"]


def test_a_key_that_left_the_contract_is_given_back_and_the_other_stays() -> None:
    world = World(
        (tier(member(ALICE, per_broker(MB, 2 * MB))),), policy=policy(max_removal_percent=100)
    )
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(MB))),)
    world.after(60)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("1000000", None)


def test_what_somebody_changed_since_is_theirs_when_we_let_go() -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.run()
    world.someone_sets(ALICE, "7000000")
    world.tiers = ()
    decision = world.after(60)
    assert world.text(ALICE) == "7000000"
    assert world.quotas is not None
    assert world.quotas[ALICE].ledger is None
    assert Reason.GIVEN_BACK in [note.reason for note in decision.notes]


def test_too_many_removals_are_held_until_the_count_is_confirmed() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    decision = world.after(60)
    note = next(note for note in decision.notes if note.reason is Reason.REMOVAL_HELD)
    assert not decision.writes
    assert numbers(note.message) >= {10, world.policy.max_removal_percent}
    assert (
        "kubectl annotate bbp main -n streaming tidegate.io/confirm-removal=10" in note.message
    )  # a command to paste
    world.policy = replace(world.policy, confirmed_removals=9)
    assert not world.after(1).writes
    world.policy = replace(world.policy, confirmed_removals=10)
    assert len(world.after(1).writes) == 10


def test_a_confirmed_removal_goes_on_when_the_budget_takes_several_passes() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    world.policy = policy(confirmed_removals=10, write_budget_changes=5)
    written = [len(world.after(seconds).writes) for seconds in (60, 901, 901)]
    assert written == [4, 4, 2]


def test_half_may_go_without_asking() -> None:
    world = many_world()
    world.run()
    kept = world.tiers[0] if world.tiers else tier()
    world.tiers = (replace(kept, members=kept.members[:5]),)
    assert len(world.after(60).writes) == 5


MANY = many_world().tiers or ()


def keep(world: World, *indices: int) -> None:
    """Somebody leaves only these members in the tier."""
    world.tiers = (replace(MANY[0], members=tuple(MANY[0].members[index] for index in indices)),)


def held(decision: Decision) -> list[str]:
    return [note.message for note in decision.notes if note.reason is Reason.REMOVAL_HELD]


def test_removals_bit_by_bit_are_counted_together_for_a_quarter_of_an_hour(
    golden: Callable[[str], None],
) -> None:
    world = many_world()
    world.run()
    given_back = []
    for left in (8, 6, 4, 2):  # a fifth of all at a time, and never more than half of what is left
        keep(world, *range(left))
        decision = world.after(60)
        given_back.append(len(decision.writes))
    assert given_back == [2, 2, 0, 0]
    (message,) = held(decision)
    assert numbers(message) >= {4, 10, world.policy.max_removal_percent}
    assert "confirm-removal=4" in message
    golden(message)


def test_what_is_held_is_not_freed_by_time_but_by_a_confirmation_or_a_person_who_changes_his_mind() -> (
    None
):
    world = many_world()
    world.run()
    keep(world, *range(6))
    assert len(world.after(60).writes) == 4
    keep(world, *range(4))
    for _ in range(40):
        assert world.after(60).writes == ()
    keep(world, *range(5))
    assert (len(world.after(60).writes), held(world.after(60))) == (1, [])
    keep(world, *range(4))
    assert len(held(world.after(60))) == 1
    world.policy = replace(world.policy, confirmed_removals=1)
    assert len(world.after(60).writes) == 1


def test_after_a_quarter_of_an_hour_the_share_is_of_what_is_left() -> None:
    world = many_world()
    world.run()
    keep(world, *range(5))
    assert len(world.after(60).writes) == 5
    for _ in range(16):
        world.after(60)
    keep(world, *range(3))
    assert len(world.after(60).writes) == 2
    keep(world, *range(2))
    assert len(held(world.after(60))) == 1


def test_what_was_confirmed_counts_no_more_and_the_share_is_of_the_rest() -> None:
    world = many_world()
    world.run()
    keep(world, *range(4))
    world.policy = replace(world.policy, confirmed_removals=6)
    assert len(world.after(60).writes) == 6
    world.policy = replace(world.policy, confirmed_removals=None)
    keep(world, *range(2))
    assert len(world.after(60).writes) == 2
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
