"""What holds of whole passes whatever load, people and outages do: about four thousand passes of
random episodes.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.loaded_world import (
    THROTTLED,
    USERS,
    LoadedWorld,
    in_force,
    loaded_world,
    set_limit,
)
from tests.unit.controller_logic.worlds import FETCH, MB, member, per_broker
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import Level
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.reasons import Reason

CONTRACT, BUDGET, QUARTER_HOUR = 60 * MB, 40, 900.0
RHO = (12 + 10) / 11
BY_LOAD = {Reason.THROTTLED, Reason.RELAXING, Reason.RELEASED}
LOWERED = tuple(THROTTLED)

Turn = Callable[[LoadedWorld], None]


def wants(level: Level, rate: int) -> Turn:
    return lambda world: world.wants.update({USERS[level]: float(rate)})


def other(rate: int) -> Turn:
    return lambda world: setattr(world, "other", float(rate))


def limit(rate: int) -> Turn:
    return lambda world: set_limit(world, rate)


def blind(state: bool) -> Turn:
    return lambda world: setattr(world, "blind", state)


def restart(world: LoadedWorld) -> None:
    world.memory = replace(Memory(), charged=world.memory.charged)
    assert not [write for write in world.decide().writes if write.reason in BY_LOAD]


def someone_else(level: Level, rate: int) -> Turn:
    return lambda world: world.someone_sets(USERS[level], str(rate))


def contract(level: Level, rate: int) -> Turn:
    def edit(world: LoadedWorld) -> None:
        place = list(Level).index(level)
        assert world.tiers is not None
        edited = replace(
            world.tiers[place], members=(member(USERS[level], per_broker(rate), "orders"),)
        )
        world.tiers = (*world.tiers[:place], edited, *world.tiers[place + 1 :])

    return edit


RATES = st.integers(1, 100).map(lambda rate: rate * MB)
TURNS = st.one_of(
    st.builds(wants, st.sampled_from(list(Level)), RATES),
    st.builds(other, RATES),
    st.builds(limit, st.sampled_from([40 * MB, 50 * MB, 80 * MB, 200 * MB])),
    st.builds(blind, st.booleans()),
    st.just(restart),
    st.builds(someone_else, st.sampled_from(LOWERED), RATES),
    st.builds(contract, st.sampled_from(LOWERED), st.integers(20, 60).map(lambda rate: rate * MB)),
)
EPISODES = st.lists(st.tuples(TURNS, st.integers(1, 8)), min_size=1, max_size=8)


class Watcher(LoadedWorld):
    """Holds every pass against the rules."""

    def run(self) -> Decision:
        before, contracts = in_force(self), self.contracts()
        decision = super().run()
        after = in_force(self)
        assert after[Level.L0] in (None, CONTRACT)
        for write in decision.writes:
            if (
                write.reason not in BY_LOAD or not write.values
            ):  # what only the ledger learns moves no quota
                continue
            level = next(level for level, user in USERS.items() if user == write.entity)
            stood, stands = before[level], after[level]
            assert not self.blind
            assert stood is not None
            assert stands is not None
            assert min(THROTTLED[level], contracts[level]) <= stands <= contracts[level]
            assert write.predicted_mute_seconds <= 12
            entry = write.ledger.entries[FETCH] if write.ledger is not None else None
            assert entry is not None
            assert entry.of_contract == (None if stands == contracts[level] else contracts[level])
        assert (
            sum(count for at, count in self.memory.charged if self.now_seconds - at < QUARTER_HOUR)
            <= BUDGET
        )
        for one in decision.levels:
            over = re.search(r"egress ([0-9.]+) of ([0-9.]+) MB/s$", one.because)
            assert one.because.startswith("room for ") or not over or is_more(*over.groups())
        return decision

    def contracts(self) -> dict[Level, int]:
        """As declared now."""
        promised = {tier.level: tier.members[0].contract for tier in self.tiers or ()}
        return {
            level: contract.fetch_bytes_per_second or 0
            for level, contract in promised.items()
            if contract is not None
        }


def is_more(carried: str, limit: str) -> bool:
    """As far as it can be seen in what is shown."""
    return float(carried) >= float(limit)


def watched_world() -> Watcher:
    world = loaded_world(write_budget_changes=BUDGET)
    return Watcher(world.tiers, world.policy, world.topology, wants=world.wants)


@settings(max_examples=settings().max_examples, suppress_health_check=[HealthCheck.too_slow])
@given(EPISODES)
def test_no_episode_breaks_a_rule_and_calm_gives_everybody_the_contract_again(
    episode: list[tuple[Turn, int]],
) -> None:
    world = watched_world()
    world.minutes(1)
    for turn, scrapes in episode:
        turn(world)
        for _ in range(scrapes):
            world.scrape()
    world.blind, world.other = False, 0.0
    world.wants = dict.fromkeys(world.wants, float(MB))
    set_limit(world, 1000 * MB)
    for _ in range(4 * 12 * 15):  # the write budget and a doubled hold may take their time
        world.scrape()
        if all(
            enforced_rate(str(rate)) == world.contracts()[level]
            for level, rate in in_force(world).items()
        ):
            break
    assert in_force(world) == world.contracts()
