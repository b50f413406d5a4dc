"""What tables and witnesses say of the episode made by arithmetic: the same, unless a test spoils one of them."""

from collections.abc import Callable, Mapping

import pytest

from demo.episode import ThrottlingOutcome
from demo.script import BUSINESSES
from demo.usage_outcome import Done, StoredUsage, TierEpisodes, UsageOutcome, UserUsage, Witnesses, held_back_by_quotas

from ..throttling.conftest import BEGAN, PlayedThrottling, played_episode, played_throttling  # noqa: F401  (fixtures)

END_MS = 300_000 * (int(BEGAN) // 300 + 1)
TIERS = {"checkout": "sales", "orders": "logistics", "search": "discovery", "reports": "analytics"}
FILLED = 160_000_000
RolledUp = Callable[..., UsageOutcome]


@pytest.fixture(scope="session")
def rolled_up(played_throttling: PlayedThrottling) -> RolledUp:  # noqa: F811
    """`moved` and `held` are user -> of what it should be, `miscounted` bytes that the tables have too many, `code` the report's."""

    def usage(
        *, moved: Mapping[str, float] | None = None, held: Mapping[str, float] | None = None, miscounted: int = 0, code: int | None = 0
    ) -> UsageOutcome:
        done = tuple(Done(f"tidegate {words}", 0, 2.0, ("done",)) for words in ("rollup run --running", "rollup verify"))
        last = Done("tidegate report --out <here>", code, 3.0, ("error: nothing is published",) if code else ("The report is there",))
        if code != 0:
            return UsageOutcome((*done, last))
        seen = _seen(played_throttling())
        users = (*(_user(one.user, one.level, seen, moved or {}, held or {}) for one in BUSINESSES), _written("alice", "accounting"))
        stored = StoredUsage(
            END_MS, {way: count + miscounted for way, count in seen.counted.items()}, (*users, _written("", "")), (_below("analytics"),)
        )
        return UsageOutcome((*done, last), stored, seen)

    return usage


def _seen(throttling: ThrottlingOutcome) -> Witnesses:
    arrived = {one.user: throttling.tidegate.moved_by(one.level).delivered_until(END_MS / 1000) for one in BUSINESSES}
    held = {one.level: held_back_by_quotas(throttling.tidegate, one.level) for one in BUSINESSES}
    return Witnesses({(2, "fetch"): round(1.016 * sum(arrived.values())), (2, "produce"): FILLED}, arrived, held)


def _user(user: str, level: str, seen: Witnesses, moved: Mapping[str, float], held: Mapping[str, float]) -> UserUsage:
    held_back = held.get(user, 1.0) * (seen.held_back[level] or 1.0) if user in held or seen.held_back[level] else 0.0
    sent = round(1.016 * moved.get(user, 1.0) * seen.arrived[user])
    return UserUsage(f"streaming/{TIERS[user]}", user, "fetch", sent, round(held_back), 140.0)


def _written(user: str, tier: str) -> UserUsage:
    return UserUsage(f"streaming/{tier}" if tier else "", user, "produce", FILLED // 2, 0, 0.0)


def _below(tier: str) -> TierEpisodes:
    return TierEpisodes(f"streaming/{tier}", "fetch", 1, 160.0)
