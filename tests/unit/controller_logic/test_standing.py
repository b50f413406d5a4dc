"""What a pass takes from the one before is what it would make itself."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.unit.controller_logic.loaded_world import (
    LEADER,
    USERS,
    LoadedWorld,
    loaded_world,
    set_limit,
)
from tests.unit.controller_logic.worlds import FETCH, MB, per_broker, topology
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import Default, Entity, Level, ScalingMethod, Tier
from tidegate_logic.throttle.input import StandingRate, StandingRates, ThrottleMemory

DEFAULT_USER = Entity(Default.DEFAULT)


def forgetful(memory: Memory) -> Memory:
    """The same without what may be made again."""
    throttle = memory.throttle or ThrottleMemory()
    return replace(memory, standing=None, throttle=replace(throttle, rates=StandingRates()))


def rates_of(world: LoadedWorld) -> Mapping[Entity, StandingRate]:
    assert world.memory.throttle is not None
    return world.memory.throttle.rates.of


def throttled_world() -> LoadedWorld:
    world = loaded_world(limit=80 * MB)
    world.minutes(2)
    return world


def edit_contracts(world: LoadedWorld) -> None:
    world.tiers = tuple(_halved(one) for one in world.tiers or ())


def _halved(tier: Tier) -> Tier:
    members = [replace(one, contract=per_broker(30 * MB)) for one in tier.members]
    return replace(tier, members=tuple(members))


def edit_throttled_rates(world: LoadedWorld) -> None:
    world.tiers = tuple(
        replace(one, throttled=(per_broker(2 * MB),)) if one.throttled else one
        for one in world.tiers or ()
    )


def move_leaders(world: LoadedWorld) -> None:
    world.topology = topology({"orders": {LEADER: 1, 2: 1}}, brokers=(LEADER, 2))


def lose_the_topic(world: LoadedWorld) -> None:
    world.topology = topology({}, brokers=(LEADER,))


def declare_a_default(world: LoadedWorld) -> None:
    world.policy = replace(world.policy, defaults={DEFAULT_USER: {FETCH: 3 * MB}})


def scale_differently(world: LoadedWorld) -> None:
    world.policy = replace(world.policy, scaling=ScalingMethod.MEAN)


EDITS: list[Callable[[LoadedWorld], None]] = [
    edit_contracts,
    edit_throttled_rates,
    move_leaders,
    lose_the_topic,
    declare_a_default,
    scale_differently,
    lambda world: set_limit(world, 40 * MB),
    lambda world: world.someone_sets(USERS[Level.L3], None),
    lambda world: world.someone_sets(USERS[Level.L2], "7000000"),
    lambda world: world.someone_sets(DEFAULT_USER, "5000000"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_what_changed_is_not_taken_from_the_last_pass(edit: Callable[[LoadedWorld], None]) -> None:
    world = throttled_world()
    edit(world)
    for _ in range(4):
        world.now_seconds += 5
        seen = world.observation()
        assert decide(seen, world.memory) == decide(seen, forgetful(world.memory))
        world.scrape()


def test_nothing_is_made_again_while_nothing_changes() -> None:
    world = throttled_world()
    standing, rates = world.memory.standing, rates_of(world)
    world.topology = topology({"orders": {LEADER: 1}}, brokers=(LEADER,))  # read again, and equal
    world.decide()
    again = rates_of(world)
    assert world.memory.standing is standing
    assert len(again) == len(Level)
    assert all(again[user] is one for user, one in rates.items())


def test_rates_of_one_whose_quota_was_written_are_made_again() -> None:
    world = throttled_world()
    rates = rates_of(world)
    world.someone_sets(USERS[Level.L2], "7000000")
    world.decide()
    again = rates_of(world)
    changed = {user for user, one in rates.items() if again.get(user) is not one}
    assert changed == {USERS[Level.L2]}
