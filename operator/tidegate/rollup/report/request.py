"""What a report is made of: the tables of a period, what was promised to whom, prices, recommendations, and the audit trail.

Everything is given; nothing is read from a store, a cluster or a clock here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, Direction
from tidegate.rollup.trail import AuditLine

GRAIN_WORDS: Mapping[int, str] = {FIVE_MINUTES_MS: "5 minutes", HOUR_MS: "hour", DAY_MS: "day"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """Tables of one grain, and the 5-minute ones where they are still kept; without those some figures are bounds, and say so.

    Rows outside the period are left out. `usage_5m` and `broker_5m` count only where they cover the whole period. `published` is of how
    many of the period's windows the store tells, None = as many as have rows: a window in which nobody moved a byte is published, too.
    """

    grain_ms: int
    usage: pa.Table
    brokers: pa.Table
    tiers: pa.Table
    usage_5m: pa.Table | None = None
    broker_5m: pa.Table | None = None
    published: int | None = None


@dataclass(frozen=True, slots=True)
class ClientKey:
    """Whom usage belongs to: a user, a client id or both, in a tier ("" = in none). Empty names were not given by Kafka."""

    tier: str
    user: str
    client_id: str

    @property
    def words(self) -> str:
        """`user=etl, client-id=app`, as everywhere else."""
        parts = [f"user={self.user}"] if self.user else []
        parts += [f"client-id={self.client_id}"] if self.client_id else []
        return ", ".join(parts) or "no name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTerms:
    """What a member is called and promised. Contracts in bytes per second on each broker, None = unlimited."""

    client: ClientKey
    name: str
    level: str
    contracts: Mapping[Direction, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a GiB (2^30 bytes) costs by direction; a direction without a price is not priced. `currency` is only shown."""

    per_gib: Mapping[Direction, Decimal] = field(default_factory=dict)
    currency: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedContract:
    """One recommendation, or why there is none (`recommended` None).

    Rates are bytes per second in the contract's own form, whose words `form` has (`on each broker`, `of all brokers`, `a partition`);
    `applied` is what stands in the declared contract's place, None = the declared one stands. `p99_rate` is on the busiest broker.
    """

    client: ClientKey
    direction: Direction
    contract: int | None
    recommended: int | None
    reason: str
    message: str
    form: str = "on each broker"
    applied: int | None = None
    p99_rate: float | None = None


@dataclass(frozen=True, slots=True)
class SourceSeries:
    """Which series of Prometheus a number was made of, as one would ask for them by hand."""

    what: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the tables came from; every text is shown as it is."""

    store_url: str
    schema_version: int
    transports: Sequence[str] = ()
    run_ids: Sequence[str] = ()
    series: Sequence[SourceSeries] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """One report of one policy (`namespace/name`, or "" on a laptop) over [start_ms, end_ms).

    `trail` is None where no audit trail was given, which is not the same as one in which nothing happened.
    """

    policy: str
    start_ms: int
    end_ms: int
    made_at_ms: int
    tables: UsageTables
    members: Sequence[MemberTerms] = ()
    prices: Prices = field(default_factory=Prices)
    recommendations: Sequence[RecommendedContract] = ()
    trail: Sequence[AuditLine] | None = None
    provenance: Provenance

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000


def moment(at_ms: int) -> str:
    """`2026-11-21T11:00:00Z`, with milliseconds only where there are any."""
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
