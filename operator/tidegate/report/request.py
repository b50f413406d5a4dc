"""What a report is made from: tables, members, contracts, prices, recommendations, audit trail.

A request holds values only. The functions below the types make its parts from a store of usage
tables and from a policy; none of them asks a cluster or the clock.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidegate.prometheus.settings import MetricsSettings
from tidegate.report.figures import Charge, ClosedMonth, Correction, Recommendation
from tidegate.report.rate_card import RateCard
from tidegate.rollup.fold.broker import BOUNDS, FactorBounds
from tidegate.rollup.ingest import catalogue
from tidegate.rollup.labels import NO_LABELS, labels_text
from tidegate.rollup.samples import selector_text
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES, Direction
from tidegate.rollup.tables.format import VERSION, Manifest
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.terms.reader import WITHOUT_POLICY
from tidegate.rollup.terms.sources import DIRECTION_OF_KEY, AuditLine, PolicyMember, PolicyTerms
from tidegate_logic.contracts.recommend import AdviceBasis, advise
from tidegate_logic.model import Advice, Policy, RateForm, Topology, Usage

GRAINS: Mapping[int, str] = {FIVE_MINUTES_MS: "5 minutes", HOUR_MS: "hour", DAY_MS: "day"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """Tables of one grain, and the 5-minute ones, without which some figures are bounds.

    Rows outside the period are left out. `usage_5m` and `broker_5m` are used only if they cover the
    whole period. `published` is the number of the period's windows in the store, None = as many as
    have rows. A window without traffic is published too.
    """

    grain_ms: int
    usage: pa.Table
    brokers: pa.Table
    tiers: pa.Table
    usage_5m: pa.Table | None = None
    broker_5m: pa.Table | None = None
    published: int | None = None


@dataclass(frozen=True, slots=True)
class UsageBefore:
    """Usage of the period before, as long as the report's or the month before it."""

    start_ms: int
    end_ms: int
    usage: pa.Table
    is_complete: bool


@dataclass(frozen=True, slots=True)
class UsageDays:
    """Rows of `usage_1d` of the period and of some weeks before it; the days that are published."""

    usage: pa.Table
    published: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A user, a client id or both ("" = Kafka reports none), in a tier ("" = in none)."""

    tier: str
    user: str
    client_id: str

    @property
    def text(self) -> str:
        """`user=etl, client-id=app`, as everywhere else."""
        parts = [f"user={self.user}"] if self.user else []
        parts += [f"client-id={self.client_id}"] if self.client_id else []
        return ", ".join(parts) or "no name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTerms:
    """A member's name, level and contracts in bytes per second on each broker, None = unlimited.

    `labels` are a text as in the tables.
    """

    client: ClientKey
    name: str
    level: str
    labels: str = NO_LABELS
    contracts: Mapping[Direction, int | None] = field(default_factory=dict)


class MemberDirectory:
    """Names, levels and contracts by client; one in no tier is named by user and client id."""

    def __init__(self, members: Iterable[MemberTerms]) -> None:
        self._members = {terms.client: terms for terms in members}
        self.members = tuple(self._members.values())
        self._levels = {terms.client.tier: terms.level for terms in self._members.values()}

    def name(self, client: ClientKey) -> str:
        terms = self._members.get(client)
        return client.text if terms is None else terms.name

    def who(self, client: ClientKey) -> dict[str, Any]:
        """What every figure of a client has of it, as keywords."""
        return {"member": self.name(client), **asdict(client)}

    def level(self, tier: str) -> str:
        """ "" if the policy has no such tier."""
        return self._levels.get(tier, "")

    def contract(self, client: ClientKey, direction: Direction) -> int | None:
        """Bytes per second on each broker; None = unlimited, or unknown."""
        terms = self._members.get(client)
        return None if terms is None else terms.contracts.get(direction)


def total_of(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """The sum of the rounded amounts, as a reader adds them up; None if all are None."""
    priced = [amount for amount in amounts if amount is not None]
    return sum(priced, Decimal("0.00")) if priced else None


@dataclass(frozen=True, slots=True)
class SourceSeries:
    """The Prometheus series behind a number, as a selector to query by hand."""

    what: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the tables came from; every text is shown as it is.

    `policy` and `cluster` are whose they are, namespace/name and Kafka's cluster id, "" = unknown.
    `tierless` are the windows that were rolled up without a policy.
    """

    store_url: str
    schema_version: int
    policy: str = ""
    cluster: str = ""
    transports: Sequence[str] = ()
    run_ids: Sequence[str] = ()
    tierless: frozenset[int] = frozenset()
    series: Sequence[SourceSeries] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """One report of one policy (`namespace/name`, or "" without a cluster) over [start_ms, end_ms).

    `trail` is None without an audit trail, which is not the same as a trail without throttling.
    `by_labels` are the labels by which the report adds up, `month` names the period where it is
    one, and days of the rate card begin in `zone`. With `labels_of_today` the members' labels
    replace those of the tables. `closed` says that the month was, and `closed_charges` is its bill
    then, if it had any; `corrections` are lines of earlier months that this bill carries.
    """

    policy: str
    start_ms: int
    end_ms: int
    made_at_ms: int
    tables: UsageTables
    members: Sequence[MemberTerms] = ()
    rate_card: RateCard = field(default_factory=RateCard)
    by_labels: Sequence[str] = ()
    labels_of_today: bool = False
    month: str = ""
    zone: tzinfo = UTC
    before: UsageBefore | None = None
    days: UsageDays | None = None
    recommendations: Sequence[Recommendation] = ()
    trail: Sequence[AuditLine] | None = None
    bounds: FactorBounds = BOUNDS
    closed: ClosedMonth | None = None
    closed_charges: Sequence[Charge] | None = None
    corrections: Sequence[Correction] = ()
    provenance: Provenance


# The parts of a request that come from a store of usage tables and from a policy.


MOST_ROWS = 20_000_000  # of five minutes: about 2 GB while they are ranked

_USAGE_5M = (
    "window_start",
    "broker",
    "user",
    "client_id",
    "direction",
    "bytes",
    "samples",
    "coverage",
    "calibration",
)
_FORMS: Final = {
    RateForm.PER_BROKER: "on each broker",
    RateForm.TOTAL: "of all brokers",
    RateForm.PER_PARTITION: "a partition",
}


def stored_tables(store: UsageStore, start_ms: int, end_ms: int, *, grain_ms: int) -> UsageTables:
    """Tables of hours or days; those of 5 minutes too, unless their rows exceed the memory.

    Raises what reading the store raises.
    """
    suffix = "1h" if grain_ms == HOUR_MS else "1d"
    usage, brokers, tiers = (
        _rows(store, f"{name}_{suffix}", start_ms, end_ms) for name in ("usage", "broker", "tier")
    )
    rows_5m = sum(
        file.rows for part in store.parts("usage_5m", start_ms, end_ms) for file in part.files
    )
    return UsageTables(
        grain_ms=grain_ms,
        usage=usage,
        brokers=brokers,
        tiers=tiers,
        usage_5m=store.rows("usage_5m", start_ms, end_ms, columns=_USAGE_5M)
        if rows_5m <= MOST_ROWS
        else None,
        broker_5m=store.rows("broker_5m", start_ms, end_ms),
        published=len(store.windows(f"usage_{suffix}", start_ms, end_ms)),
    )


def _rows(store: UsageStore, table: str, start_ms: int, end_ms: int) -> pa.Table:
    """All columns but the sketches, which are most of a table's bytes."""
    return store.rows(
        table,
        start_ms,
        end_ms,
        columns=[name for name in TABLES[table].schema.names if name != "sketch"],
    )


def stored_before(store: UsageStore, start_ms: int, end_ms: int, *, grain_ms: int) -> UsageBefore:
    """The usage of another period, for comparison."""
    table = "usage_1h" if grain_ms == HOUR_MS else "usage_1d"
    windows = (end_ms - start_ms) // grain_ms
    is_complete = len(store.windows(table, start_ms, end_ms)) == windows
    keys = ("user", "client_id", "labels", "direction")
    return UsageBefore(
        start_ms, end_ms, _bytes_by(store, table, start_ms, end_ms, keys), is_complete
    )


def stored_days(store: UsageStore, start_ms: int, end_ms: int, *, weeks: int) -> UsageDays:
    """Days of the period, and those of so many weeks before it."""
    first_ms = start_ms - start_ms % DAY_MS - weeks * 7 * DAY_MS
    published = frozenset(one.start_ms for one in store.windows("usage_1d", first_ms, end_ms))
    keys = ("window_start", "user", "client_id", "tier")
    return UsageDays(_bytes_by(store, "usage_1d", first_ms, end_ms, keys), published)


def _bytes_by(
    store: UsageStore, table: str, start_ms: int, end_ms: int, keys: Sequence[str]
) -> pa.Table:
    """Bytes added up file by file, so that months of a large cluster fit into memory."""
    columns = [name for name in TABLES[table].schema.names if name in (*keys, "bytes")]
    schema = pa.schema([TABLES[table].schema.field(name) for name in columns])
    total = schema.empty_table()
    for rows in store.tables(table, start_ms, end_ms, columns=columns):
        both = pa.concat_tables([total, rows.select(columns).cast(schema)])
        summed = both.group_by(list(keys)).aggregate([("bytes", "sum")])
        total = summed.rename_columns({"bytes_sum": "bytes"}).select(columns).cast(schema)
    return total


def stored_provenance(
    store: UsageStore, start_ms: int, end_ms: int, *, grain_ms: int
) -> Provenance:
    """The runs behind the period's usage, by compacted files too, and how they read samples."""
    tables = ("usage_5m", "usage_1h", "usage_1d")
    manifests = [
        one
        for table in tables
        for one in store.manifests(table, start_ms, end_ms)
        if not one.retired
    ]
    owners = [one.owner for one in sorted(manifests, key=lambda one: -one.published_at_ms)]
    return Provenance(
        store_url=store.storage.shown,
        schema_version=VERSION,
        policy=next((one.policy for one in owners if one.policy), ""),
        cluster=next((one.cluster for one in owners if one.cluster), ""),
        transports=sorted({one.source for one in manifests if one.source}),
        run_ids=sorted({one.run_id for one in manifests}),
        tierless=_tierless([one for one in manifests if one.table == "usage_5m"], grain_ms),
    )


def _tierless(hours: Sequence[Manifest], grain_ms: int) -> frozenset[int]:
    """The windows of which every known hour was rolled up without a policy."""
    with_policy: dict[int, bool] = {}
    for one in hours:
        if one.source and not one.combines:
            at_ms = one.window.start_ms - one.window.start_ms % grain_ms
            known = not one.source.endswith(WITHOUT_POLICY)
            with_policy[at_ms] = with_policy.get(at_ms, False) or known
    return frozenset(at_ms for at_ms, known in with_policy.items() if not known)


def source_series(settings: MetricsSettings) -> Iterator[SourceSeries]:
    """For each direction the broker's own count, its NIC, and the gauges of clients."""
    for direction, one in catalogue(settings).items():
        for what, selection in (
            ("broker's own count", one.client_bytes),
            ("replication", one.replication_bytes),
            ("NIC", one.nics),
            ("rates of clients", one.rates),
            ("throttle times of clients", one.throttle_times),
        ):
            if selection is not None:
                yield SourceSeries(f"{direction}, {what}", selector_text(selection))


def member_terms(terms: PolicyTerms, *, brokers: int) -> Sequence[MemberTerms]:
    """Every member of the policy, without contracts that depend on leaders, unknown here."""
    return [
        MemberTerms(
            client=_client(one),
            name=one.member.name,
            level=one.tier.level.value,
            labels=labels_text(one.member.labels),
            contracts={
                direction: round(rate)
                for direction, rate in terms.promised(one, brokers=brokers).items()
            },
        )
        for one in terms.members
    ]


def recommendations(
    policy: Policy, terms: PolicyTerms, usage: Usage, brokers: Collection[int]
) -> Sequence[Recommendation]:
    """One for each byte rate of each contract, by the operator's rule on the period's usage.

    They may differ from a tier's status, which is about other days. A rate for each partition gets
    none, and a reason, because leaders are unknown here.
    """
    usage = replace(usage, which="reported")
    topology = Topology(usage.until_seconds, frozenset(brokers), {})
    advised = advise(AdviceBasis(usage, tuple(terms.tiers), policy.advice, policy.limits, topology))
    return [
        each
        for one in terms.members
        for each in _recommended(
            one, advised.advice.get((one.tier.key, one.member.name), ()), usage
        )
    ]


def _recommended(
    one: PolicyMember, advice: Sequence[Advice], usage: Usage
) -> Iterator[Recommendation]:
    form = _FORMS[one.member.contract.form] if one.member.contract is not None else ""
    for each in advice:
        figures = usage.figures.get((one.member.entity, each.key))
        declared, recommended = each.declared, each.recommended
        yield Recommendation(
            member=one.member.name,
            **asdict(_client(one)),
            direction=DIRECTION_OF_KEY[each.key.value],
            form=form,
            contract=declared,
            recommended=recommended,
            change=(recommended - declared) / declared
            if recommended is not None and declared
            else None,
            applied=each.applied,
            p99_rate=None if figures is None else figures.p99_busiest,
            reason=each.reason.value,
            message=each.message,
        )


def _client(one: PolicyMember) -> ClientKey:
    return ClientKey(one.tier.key, *one.client)
