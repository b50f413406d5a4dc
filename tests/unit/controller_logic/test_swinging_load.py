"""A load that swings around the limit for an hour is one episode, not one for every swing."""

import math

import pytest

from tests.unit.controller_logic.loaded_world import LoadedWorld, loaded_world
from tests.unit.controller_logic.worlds import MB
from tidegate_logic.decision import LevelState
from tidegate_logic.model import Level

LIMIT, STEADY, SWING = (
    125 * MB,
    25 * MB,
    12 * MB,
)  # four users want 25 MB/s each, so the NIC swings by a tenth around its limit
HOUR_SECONDS = 3600.0
BELOW_CONTRACT = (LevelState.THROTTLED, LevelState.RELAXING)


@pytest.mark.parametrize("scrape_seconds", [5.0, 15.0])
@pytest.mark.parametrize("period_seconds", [45, 90, 300])
def test_an_hour_around_the_limit_changes_few_states_and_stays_within_the_budget(
    period_seconds: int, scrape_seconds: float
) -> None:
    world = loaded_world(limit=LIMIT)
    world.scrape_seconds = scrape_seconds
    world.minutes(3)
    began = world.now_seconds
    changes, below, most_charged = 0, set[Level](), 0
    while world.now_seconds - began < HOUR_SECONDS:
        _swing(world, world.now_seconds - began, period_seconds)
        decision = world.scrape()
        now_below = {one.level for one in decision.levels if one.state in BELOW_CONTRACT}
        changes += len(below ^ now_below)
        below = now_below
        most_charged = max(most_charged, sum(count for _, count in world.memory.charged))
    assert 1 <= changes <= 4
    assert most_charged <= world.policy.write_budget_changes / 10


def _swing(world: LoadedWorld, seconds: float, period_seconds: int) -> None:
    world.other = STEADY + SWING * math.sin(2 * math.pi * seconds / period_seconds)
