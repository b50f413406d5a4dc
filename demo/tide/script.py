"""Experiments 2 and 3 as data: four businesses that read from one broker, what each wants and is promised, and the broker's limit.

One partition, so a rate for each partition is a rate on the broker. Together they want twice the limit, so that L3 and L2 at their
throttled rates do not suffice: L1 has to give something too. Nothing here starts or measures anything.
"""

from dataclasses import dataclass

TOPIC = "feed"
BROKER = 2
PARTITION = 0
CONTRACT = 60_000_000
LIMIT = 50_000_000
HIGH_LIMIT = 1_000_000_000
SCRAPE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Business:
    """One business with a consumer of its own. Rates are bytes per second; None = never throttled."""

    level: str
    user: str
    wanted: int
    throttled: int | None

    @property
    def cliff_mute_seconds(self) -> float:
        """How long Kafka mutes it when its quota drops to the throttled rate in one write: window x (rate / quota - 1); 0 without."""
        return 0.0 if self.throttled is None else 11 * (self.wanted / self.throttled - 1)


BUSINESSES = (
    Business("L0", "checkout", 33_000_000, None),
    Business("L1", "orders", 25_000_000, 10_000_000),
    Business("L2", "search", 25_000_000, 5_000_000),
    Business("L3", "reports", 25_000_000, 1_000_000),
)
USERS = tuple(business.user for business in BUSINESSES)
LEVELS = tuple(business.level for business in BUSINESSES)
LOWERED = tuple(business for business in reversed(BUSINESSES) if business.throttled is not None)
WANTED = sum(business.wanted for business in BUSINESSES)


def business_of(level: str) -> Business:
    """The business of that level; StopIteration for a level that is not played."""
    return next(business for business in BUSINESSES if business.level == level)
