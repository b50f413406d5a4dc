"""Overrides within whole passes: they lift a throttle, keep one away, end by themselves, and every
lowering that follows is a safe one.
"""

from dataclasses import dataclass, replace

import pytest

from tests.unit.controller_logic.loaded_world import (
    USERS,
    LoadedWorld,
    in_force,
    loaded_world,
    set_limit,
)
from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    START_SECONDS,
    World,
    fixed_world,
    member,
    per_broker,
    report_of,
    tier,
)
from tidegate_logic.decision import Decision
from tidegate_logic.model import Level, Observation, Override, WriteKind
from tidegate_logic.reasons import Reason

CONTRACT = 60 * MB
LIMIT = 50 * MB
HOUR = 3600.0


@dataclass
class Overridden(LoadedWorld):
    """A loaded world in which people decide things."""

    overrides: tuple[Override, ...] = ()

    def observation(self) -> Observation:
        return replace(super().observation(), overrides=self.overrides)


@pytest.fixture
def world() -> Overridden:
    """Six minutes into an episode: L3 and L2 are throttled, L1 in part."""
    loaded = loaded_world()
    world = Overridden(
        loaded.tiers, policy=loaded.policy, topology=loaded.topology, wants=loaded.wants
    )
    world.minutes(2)
    set_limit(world, LIMIT)
    world.minutes(6)
    assert (in_force(world)[Level.L3] or CONTRACT) < CONTRACT
    return world


def decided(world: World, **said: object) -> Override:
    return Override("streaming/backfill", world.now_seconds + HOUR, "agreed", **said)  # type: ignore[arg-type]


def test_an_exemption_gives_a_throttled_member_its_contract_back(world: Overridden) -> None:
    world.overrides = (decided(world, entity=USERS[Level.L3]),)
    world.minutes(6)
    assert in_force(world)[Level.L3] == CONTRACT


def test_a_rate_that_is_set_stands_whatever_the_nic_carries(world: Overridden) -> None:
    world.overrides = (decided(world, entity=USERS[Level.L3], rates=per_broker(fetch=20 * MB)),)
    world.minutes(6)
    assert in_force(world)[Level.L3] == 20 * MB
    world.other = 40.0 * MB
    world.minutes(6)
    assert in_force(world)[Level.L3] == 20 * MB


def test_while_one_is_exempt_the_others_give_what_they_can(world: Overridden) -> None:
    world.overrides = (decided(world, level=Level.L3),)
    world.minutes(6)
    rates = in_force(world)
    assert (rates[Level.L0], rates[Level.L3]) == (CONTRACT, CONTRACT)
    assert (rates[Level.L1] or CONTRACT) < CONTRACT
    assert (rates[Level.L2] or CONTRACT) < CONTRACT


def test_the_throttle_returns_when_it_ends_and_in_steps_that_cut_no_one_off(
    world: Overridden,
) -> None:
    world.overrides = (decided(world, entity=USERS[Level.L3]),)
    world.minutes(6)
    world.now_seconds += HOUR
    decisions = world.minutes(6)
    assert (in_force(world)[Level.L3] or CONTRACT) < CONTRACT
    lowered = [
        write
        for decision in decisions
        for write in decision.writes
        if write.kind is WriteKind.LOWERING
    ]
    assert lowered
    assert all(write.predicted_mute_seconds <= world.policy.max_mute_seconds for write in lowered)


def test_the_decision_reports_whom_it_is_in_force_for_and_when_the_first_ends(
    world: Overridden,
) -> None:
    override = decided(world, entity=USERS[Level.L3])
    world.overrides = (override,)
    decision: Decision = world.decide()
    assert decision.overridden.applied == {USERS[Level.L3]: override}
    assert decision.overridden.next_change_seconds == override.expires_at_seconds


@dataclass
class Decided(World):
    """A world without load in which people decide things."""

    overrides: tuple[Override, ...] = ()

    def observation(self) -> Observation:
        return replace(super().observation(), overrides=self.overrides)


def test_the_end_of_a_raise_lowers_in_safe_steps_back_to_exactly_the_contract() -> None:
    fixed = fixed_world(2 * MB)
    world = Decided(fixed.tiers, policy=fixed.policy)
    world.run()
    world.overrides = (
        Override(
            "streaming/o",
            START_SECONDS + 60,
            "agreed",
            entity=ALICE,
            rates=per_broker(fetch=50 * MB),
        ),
    )
    world.run()
    assert world.text(ALICE) == str(50 * MB)
    seen = []
    for _ in range(20):
        world.after(60)
        seen.append(int(world.text(ALICE) or 0))
    assert seen[-1] == 2 * MB
    assert len(set(seen)) > 2
    assert seen == sorted(seen, reverse=True)


def test_the_end_of_an_override_of_a_member_without_contract_takes_its_quota_away_again() -> None:
    world = Decided((tier(member(ALICE, None)),))
    world.overrides = (
        Override(
            "streaming/o",
            START_SECONDS + 60,
            "agreed",
            entity=ALICE,
            rates=per_broker(fetch=50 * MB),
        ),
    )
    world.run()
    assert world.text(ALICE) == str(50 * MB)
    for _ in range(10):
        world.after(60)
    assert world.text(ALICE, FETCH) is None


def test_a_member_that_is_overridden_says_at_which_rate_it_is() -> None:
    fixed = fixed_world(2 * MB)
    world = Decided(fixed.tiers, policy=fixed.policy)
    world.overrides = (
        Override(
            "streaming/o",
            START_SECONDS + 60,
            "agreed",
            entity=ALICE,
            rates=per_broker(fetch=50 * MB),
        ),
    )
    report = report_of(world.run(), ALICE)
    assert (report.member.override, report.target[FETCH], report.reason) == (
        "streaming/o",
        50 * MB,
        Reason.CONTRACT,
    )
