"""Who is in the made-up estate, in which tier, and how much each wants."""

from dataclasses import dataclass

from tidegate.rollup.report.request import ClientKey

UNSCALED = "legacy-sync"
"""Whose gauges nothing could be scaled to."""


@dataclass(frozen=True)
class Member:
    """A client, the mean rates it wants on a broker, and on how many brokers."""

    tier: str
    level: str
    name: str
    fetch: float
    produce: float
    brokers: int
    client_id: str = ""

    @property
    def client(self) -> ClientKey:
        return ClientKey(self.tier, self.name, self.client_id)


_SALES, _LOGISTICS, _SEARCH, _ANALYTICS = (f"streaming/{name}" for name in ("sales", "logistics", "search", "analytics"))
MEMBERS = (
    Member(_SALES, "L0", "checkout", 9e6, 5e6, 6),
    Member(_SALES, "L0", "payments", 4e6, 3.5e6, 6),
    Member(_SALES, "L0", "loyalty", 8e5, 4e5, 3),
    Member(_LOGISTICS, "L1", "orders", 7e6, 4e6, 6),
    Member(_LOGISTICS, "L1", "routing", 3e6, 2.5e6, 4),
    Member(_LOGISTICS, "L1", "warehouse", 2e6, 2.2e6, 6, client_id="scanner-gateway"),
    Member(_SEARCH, "L2", "indexer", 1.1e7, 1e6, 6),
    Member(_SEARCH, "L2", "suggestions", 2.5e6, 3e5, 4),
    Member(_SEARCH, "L2", "crawler", 1e6, 6e6, 5),
    Member(_ANALYTICS, "L3", "reports", 1.3e7, 2e5, 6),
    Member(_ANALYTICS, "L3", "lake-export", 1.6e7, 1e5, 6),
    Member(_ANALYTICS, "L3", "clickstream", 2e6, 8e6, 6),
    Member(_ANALYTICS, "L3", "notebooks", 6e5, 2e4, 2),
    Member(_ANALYTICS, "L3", UNSCALED, 4e5, 0.0, 1),
)
