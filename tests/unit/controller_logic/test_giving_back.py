"""What stood there before Tidegate comes back exactly, and not by mistake."""

from dataclasses import replace

import pytest

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
    world = World((tier(member(ALICE, per_broker(MB, 2 * MB))),), policy=policy(max_removal_percent=100))
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
    assert "kubectl annotate bbp main -n streaming tidegate.io/confirm-removal=10" in note.message  # a command to paste
    world.policy = replace(world.policy, confirmed_removals=9)
    assert not world.after(1).writes
    world.policy = replace(world.policy, confirmed_removals=10)
    assert len(world.after(1).writes) == 10


def test_a_confirmed_removal_goes_on_when_the_budget_takes_several_passes() -> None:
    world = many_world()
    world.run()
    world.tiers = ()
    world.policy = policy(confirmed_removals=10, notifications_per_quarter_hour=5)
    written = [len(world.after(seconds).writes) for seconds in (60, 901, 901)]
    assert written == [4, 4, 2]


def test_half_may_go_without_asking() -> None:
    world = many_world()
    world.run()
    kept = world.tiers[0] if world.tiers else tier()
    world.tiers = (replace(kept, members=kept.members[:5]),)
    assert len(world.after(60).writes) == 5
