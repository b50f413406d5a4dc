"""What the usage tables of a run say, as plain numbers: brokers, users and tiers. It reads nothing and judges nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

Way = tuple[int, str]  # broker, direction


@dataclass(frozen=True, slots=True)
class UserUsage:
    """One user in one direction over all brokers; `tier` is namespace/name, "" for who is in none."""

    tier: str
    user: str
    direction: str
    moved_bytes: int
    held_back_bytes: int
    throttled_seconds: float


@dataclass(frozen=True, slots=True)
class TierEpisodes:
    """One tier in one direction: how many throttle episodes began, and for how long it was below its contract."""

    tier: str
    direction: str
    episodes: int
    seconds_below: float


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Everything in the store; it ends at `end_ms`, in milliseconds since the epoch. `by_broker` are bytes of all clients."""

    end_ms: int
    by_broker: Mapping[Way, int]
    users: tuple[UserUsage, ...]
    episodes: tuple[TierEpisodes, ...]

    def user(self, user: str, direction: str) -> UserUsage | None:
        """None for who is not in the tables."""
        return next((one for one in self.users if (one.user, one.direction) == (user, direction)), None)
