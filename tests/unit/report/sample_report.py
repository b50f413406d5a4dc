"""A made-up cluster with two days of usage, the same at every call: 6 brokers, 4 tiers, 14 members,
one throttle episode of L3 to L1, one broker over its limit, one member whose gauges could not be
scaled.

The tables agree with each other to the byte, as those of a real run do; `test_sample_report.py`
checks that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.audit.trail import EVENT, utc
from tidegate.report.compute import figures_of
from tidegate.report.figures import Correction, Recommendation, ReportFigures
from tidegate.report.rate_card import GIB, RateCard
from tidegate.report.request import (
    ClientKey,
    MemberTerms,
    Provenance,
    ReportRequest,
    SourceSeries,
    UsageTables,
)
from tidegate.rollup.labels import labels_text
from tidegate.rollup.schemas import (
    BROKER,
    DAY_MS,
    FIVE_MINUTES_MS,
    HOUR_MS,
    SKETCH,
    TIER,
    USAGE,
    USAGE_5M,
    Direction,
)

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


_SALES, _LOGISTICS, _SEARCH, _ANALYTICS = (
    f"streaming/{name}" for name in ("sales", "logistics", "search", "analytics")
)
LABELS = {
    _SALES: labels_text([("team", "shop"), ("costCenter", "4711")]),
    _LOGISTICS: labels_text([("team", "fulfilment"), ("costCenter", "4712")]),
    _SEARCH: labels_text([("team", "shop"), ("costCenter", "4713")]),
}
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


_MINUTE = 60_000
EPISODE_MS = (200 * _MINUTE, 260 * _MINUTE)  # since the period's start; whole five-minute windows
_CONTRACTS = {
    "lake-export": 35_000_000,
    "reports": 28_500_000,
    "indexer": 24_000_000,
    "orders": 15_500_000,
}
_MEMBERS = {
    "lake-export": ("streaming/analytics", "L3"),
    "reports": ("streaming/analytics", "L3"),
    "indexer": ("streaming/search", "L2"),
    "orders": ("streaming/logistics", "L1"),
}
# minute since the episode's start, who, to what share of the contract
_STORY = (
    (0, "lake-export", 0.5),
    (0, "reports", 0.5),
    (4, "lake-export", 0.2),
    (4, "reports", 0.25),
    (10, "indexer", 0.4),
    (18, "orders", 0.6),
    (30, "orders", 1.0),
    (38, "indexer", 0.7),
    (44, "indexer", 1.0),
    (48, "reports", 0.6),
    (50, "lake-export", 0.55),
    (55, "reports", 1.0),
    (60, "lake-export", 1.0),
)


def trail_lines(start_ms: int, *, policy: str = "streaming/main") -> Sequence[dict[str, Any]]:
    """As `tidegate audit` reads them."""
    return list(_lines(start_ms, policy))


def _lines(start_ms: int, policy: str) -> Iterator[dict[str, Any]]:
    quotas: dict[str, int] = dict(_CONTRACTS)
    for name, contract in _CONTRACTS.items():
        yield _write(start_ms + _MINUTE, policy, name, before=None, after=contract) | {
            "reason": "FirstQuota",
            "round": None,
        }
    for minute, name, share in _STORY:
        at_ms, after = start_ms + EPISODE_MS[0] + minute * _MINUTE, round(_CONTRACTS[name] * share)
        yield _pass(at_ms - 40, policy, over=share < 1)
        yield _write(at_ms, policy, name, before=quotas[name], after=after)
        yield _effect(at_ms + 24_000, policy, name)
        quotas[name] = after


def _line(at_ms: int, policy: str, kind: str) -> dict[str, Any]:
    return {
        "event": EVENT,
        "kind": kind,
        "t": utc(at_ms / 1000),
        "policy": policy,
        "cluster": "TKoiCUaHR863B-PYhCoewA",
    }


def _write(at_ms: int, policy: str, name: str, *, before: int | None, after: int) -> dict[str, Any]:
    tier, level = _MEMBERS[name]
    lowers = before is not None and after < before
    line = {
        "entity": f"user={name}",
        "key": "consumer_byte_rate",
        "from": before,
        "to": after,
        "level": level,
        "tier": tier,
        "member": name,
    }
    line |= {
        "reason": "Throttled" if lowers else "Released",
        "writeKind": "Lowering" if lowers else "Raise",
        "contract": _CONTRACTS[name],
    }
    line |= {"predictedMute_s": 12.0 if lowers else 0.0, "round": "egress-1", "outcome": "applied"}
    return _line(at_ms, policy, "write") | line


def _pass(at_ms: int, policy: str, *, over: bool) -> dict[str, Any]:
    broker = {
        "id": 4,
        "threshold": 150_000_000,
        "need": 41_500_000 if over else 0.0,
        "nic": 191_500_000 if over else 90_000_000,
    }
    return _line(at_ms, policy, "round") | {
        "id": "egress-1",
        "dir": "egress",
        "phase": "Cutting",
        "brokers": [broker],
    }


def _effect(at_ms: int, policy: str, name: str) -> dict[str, Any]:
    entity = {
        "entity": f"user={name}",
        "tier": _MEMBERS[name][1],
        "kind": "cut",
        "predictedMute_s": 12.0,
        "observedMute_s": 8.851,
    }
    return _line(at_ms, policy, "effect") | {
        "round": "egress-1",
        "dir": "egress",
        "entities": [entity],
    }


START_MS = 1_795_132_800_000  # 2026-11-20T00:00:00Z
END_MS = START_MS + 2 * DAY_MS
BROKERS = (1, 2, 3, 4, 5, 6)
LIMIT = 150_000_000
HOT_BROKER, HOT_FROM, HOT_UNTIL = 4, 36, 40  # the five-minute windows before the episode
PRICES = RateCard.flat({"fetch": Decimal("0.02"), "produce": Decimal("0.01")}, currency="EUR")
_WINDOWS = (END_MS - START_MS) // FIVE_MINUTES_MS
_SECONDS = FIVE_MINUTES_MS / 1000
_DIRECTIONS: tuple[Direction, ...] = ("fetch", "produce")


def sample_request(
    *, with_five_minutes: bool = True, rate_card: RateCard = PRICES
) -> ReportRequest:
    """The report that most tests are about."""
    return ReportRequest(
        policy="streaming/main",
        start_ms=START_MS,
        end_ms=END_MS,
        made_at_ms=END_MS + HOUR_MS,
        tables=sample_tables(with_five_minutes=with_five_minutes),
        members=[_terms(member) for member in MEMBERS],
        rate_card=rate_card,
        by_labels=("team",),
        recommendations=recommendations(),
        trail=trail_lines(START_MS),
        corrections=sample_corrections(),
        provenance=Provenance(
            store_url="file:///var/lib/tidegate/usage",
            schema_version=1,
            transports=("remote read, chunks",),
            run_ids=("main-rollup-2026112000", "main-rollup-2026112100"),
            series=(
                SourceSeries(
                    "fetch, broker's own count",
                    '{__name__="kafka_server_brokertopicmetrics_bytesout_total",topic=""}',
                ),
            ),
        ),
    )


def sample_corrections() -> Sequence[Correction]:
    """October was closed, and has more of one member and less of another since; a cost, too."""
    span = {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z"}
    client = {"tier": "streaming/shop", "level": "L0", "client_id": "", "direction": "fetch"}
    return [
        Correction(
            **{**span, **client, "kind": "Usage", "member": user, "user": user},
            labels={"team": "shop", "costCenter": "4711"} if per_gib else {},
            bytes=gib * GIB,
            per_gib=per_gib,
            amount=amount,
            corrected_month="2026-10",
            currency="EUR",
        )
        for user, gib, per_gib, amount in (
            ("checkout", 100, Decimal("0.02"), Decimal("2.00")),
            ("cart", -25, Decimal("0.02"), Decimal("-0.50")),
            ("etl", 0, None, Decimal("-0.07")),
        )
    ]


@cache
def sample_figures() -> ReportFigures:
    return figures_of(sample_request())


def sample_tables(*, with_five_minutes: bool = True) -> UsageTables:
    tables = _all_tables()
    return tables if with_five_minutes else replace(tables, usage_5m=None, broker_5m=None)


@cache
def _all_tables() -> UsageTables:
    fine = _usage_rows()
    usage_5m, hours = fine.table(), _hours(fine)
    broker_5m = _broker_5m(usage_5m)
    return UsageTables(
        grain_ms=HOUR_MS,
        usage=hours,
        brokers=_broker_hours(broker_5m),
        tiers=_tier_hours(hours),
        usage_5m=usage_5m,
        broker_5m=broker_5m,
    )


def _terms(member: Member) -> MemberTerms:
    """About twice the mean, nothing promised to the last one."""
    contracts = (
        {"fetch": _round(member.fetch * 2.2), "produce": _round(member.produce * 2.2)}
        if member.name != "notebooks"
        else {}
    )
    return MemberTerms(
        client=member.client, name=member.name, level=member.level, contracts=contracts
    )


def _round(rate: float) -> int:
    return max(1_000_000, round(rate / 500_000) * 500_000)


def recommendations() -> Sequence[Recommendation]:
    def one(
        member: Member, contract: int | None, recommended: int | None, *reasons: str
    ) -> Recommendation:
        change = (recommended - contract) / contract if recommended and contract else None
        return Recommendation(
            member=member.name,
            **asdict(member.client),
            direction="fetch",
            form="on each broker",
            contract=contract,
            recommended=recommended,
            change=change,
            applied=None,
            p99_rate=None if recommended is None else recommended / 1.3,
            reason=reasons[0],
            message=reasons[1],
        )

    return (
        one(
            MEMBERS[0], 20_000_000, 23_500_000, "Recommended", "p99 of 18.1 MB/s and 30 % headroom"
        ),
        one(MEMBERS[6], 24_000_000, 24_500_000, "WithinHysteresis", "within 10 % of what it has"),
        one(
            MEMBERS[9],
            28_500_000,
            None,
            "ThrottledTooLong",
            "it was throttled in 3 of 48 hours: what it used does not show what it needs",
        ),
    )


@dataclass(frozen=True)
class Fine:
    """Columns of usage_5m, sorted by nothing, and the member's place of each row."""

    columns: Mapping[str, NDArray[np.generic] | Sequence[str]]
    members: NDArray[np.int64]

    def table(self) -> pa.Table:
        columns = {name: values for name, values in self.columns.items() if name != "calibration"}
        factors = pa.array(self.columns["calibration"], from_pandas=True)  # NaN = never scaled
        arrays = {
            **{name: pa.array(values) for name, values in columns.items()},
            "calibration": factors,
        }
        return pa.table(
            [arrays[field.name].cast(field.type) for field in USAGE_5M], schema=USAGE_5M
        )


def _usage_rows() -> Fine:
    """Every window of every member on each of its brokers, in both directions."""
    lines = [
        (place, broker, way)
        for (place, member), way in product(enumerate(MEMBERS), range(2))
        for broker in BROKERS[: member.brokers]
        if (member.produce if way else member.fetch) > 0
    ]
    places, brokers, ways = (
        np.repeat(np.array(column), _WINDOWS) for column in zip(*lines, strict=True)
    )
    windows = np.tile(np.arange(_WINDOWS), len(lines))
    return Fine(_columns(places, brokers, ways, windows=windows), places)


def _columns(
    places: NDArray[np.int64],
    brokers: NDArray[np.int64],
    ways: NDArray[np.int64],
    *,
    windows: NDArray[np.int64],
) -> dict[str, NDArray[np.generic] | Sequence[str]]:
    random = np.random.default_rng(20261120)
    wanted = np.array([[member.fetch, member.produce] for member in MEMBERS])[places, ways]
    rates = (
        wanted * _shape(places, brokers, windows=windows) * random.lognormal(0, 0.12, len(places))
    )
    cut = _throttled(places, ways, windows)
    deferred = np.where(cut, rates * 0.55, 0.0) * _SECONDS
    rates = np.where(cut, rates * 0.45, rates)
    factor = 0.93 + 0.02 * (brokers % 3) + 0.015 * np.sin(windows / 40)
    return {
        "window_start": START_MS + windows * FIVE_MINUTES_MS,
        "broker": brokers,
        "user": [MEMBERS[place].name for place in places],
        "client_id": [MEMBERS[place].client_id for place in places],
        "direction": [_DIRECTIONS[way] for way in ways],
        "bytes": np.round(rates * _SECONDS).astype(np.int64),
        "peak_rate": rates * random.uniform(1.02, 1.2, len(places)),
        "throttled_seconds": np.where(cut, 240.0, 0.0),
        "over_contract_seconds": np.where(rates > wanted * 2.2, 60.0, 0.0),
        "deferred_bytes": np.round(deferred).astype(np.int64),
        "samples": np.full(len(places), 20),
        "coverage": np.where((places == 4) & (windows // 4 == 25), 0.1, 1.0),
        "calibration": np.where(
            np.array([member.name == UNSCALED for member in MEMBERS])[places], np.nan, factor
        ),
    }


def _shape(
    places: NDArray[np.int64], brokers: NDArray[np.int64], *, windows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A day's ebb and flow, exports by night, and one broker that is led too much for twenty
    minutes.
    """
    hours = windows * FIVE_MINUTES_MS / HOUR_MS
    office = 0.55 + 0.45 * np.sin((hours % 24 - 8) / 24 * 2 * np.pi)
    night = np.where((hours % 24 > 1) & (hours % 24 < 5), 1.7, 0.4)
    exports = np.array([member.name in ("lake-export", "reports") for member in MEMBERS])[places]
    hot = (brokers == HOT_BROKER) & (windows >= HOT_FROM) & (windows < HOT_UNTIL)
    return np.where(exports, night, 0.4 + office) * np.where(hot, 1.9, 1.0)


def _throttled(
    places: NDArray[np.int64], ways: NDArray[np.int64], windows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Those whose quota the trail says was below its contract, while it was."""
    begin, end = (edge // FIVE_MINUTES_MS for edge in EPISODE_MS)
    lowered = np.array(
        [member.name in ("reports", "lake-export", "indexer", "orders") for member in MEMBERS]
    )[places]
    return lowered & (ways == 0) & (windows >= begin) & (windows < end)


def _hours(fine: Fine) -> pa.Table:
    members = [MEMBERS[place] for place in fine.members]
    table = _floored(
        fine.table()
        .append_column("tier", pa.array([one.tier for one in members]))
        .append_column("labels", pa.array([LABELS.get(one.tier, "{}") for one in members]))
    )
    rates = pa.array(np.asarray(table["bytes"]) / _SECONDS)
    sums = ("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes", "samples")
    keys = ["window_start", "broker", "user", "client_id", "tier", "labels", "direction"]
    made = (
        table.append_column("rate", rates)
        .group_by(keys)
        .aggregate(
            [
                *((name, "sum") for name in sums),
                ("peak_rate", "max"),
                ("coverage", "mean"),
                ("rate", "list"),
            ]
        )
    )
    found = {name: made[f"{name}_sum"] for name in sums} | {key: made[key] for key in keys}
    found |= {
        "peak_rate": made["peak_rate_max"],
        "coverage": made["coverage_mean"],
        "sketch": pa.nulls(made.num_rows, SKETCH),
    }
    found |= _percentiles(made["rate_list"].to_pylist())
    return pa.table([found[field.name].cast(field.type) for field in USAGE], schema=USAGE)


def _percentiles(rates: Sequence[Sequence[float]]) -> dict[str, pa.Array]:
    ordered = np.sort(np.array(rates), axis=1)  # twelve windows an hour, all of them
    ranks = {"p50": 5, "p95": 11, "p99": 11}
    return {name: pa.array(ordered[:, rank]) for name, rank in ranks.items()}


def _floored(table: pa.Table) -> pa.Table:
    hours = np.asarray(table["window_start"].cast(pa.int64())) // HOUR_MS * HOUR_MS
    return table.set_column(0, "window_start", pa.array(hours).cast(pa.timestamp("ms", tz="UTC")))


def _broker_5m(fine: pa.Table) -> pa.Table:
    """Users, 1.3 % that no user's gauge explains, replication, and 4 % of headers."""
    made = fine.group_by(["window_start", "broker", "direction"]).aggregate([("bytes", "sum")])
    users = np.asarray(made["bytes_sum"])
    unattributed = np.round(users * 0.013).astype(np.int64)
    client, replication = users + unattributed, np.round(users * 0.35).astype(np.int64)
    nic = np.round((client + replication) * 1.04).astype(np.int64)
    over = np.clip((nic / _SECONDS / LIMIT - 0.97) * 4, 0, 1) * _SECONDS
    found = {
        **{key: made[key] for key in ("window_start", "broker", "direction")},
        "nic_bytes": nic,
        "client_bytes": client,
        "replication_bytes": replication,
        "unattributed_bytes": unattributed,
        "limit": np.full(len(users), LIMIT),
        "over_limit_seconds": over,
    }
    return pa.table([_array(found[field.name]).cast(field.type) for field in BROKER], schema=BROKER)


def _array(values: pa.ChunkedArray | NDArray[np.generic]) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values)])


def _broker_hours(fine: pa.Table) -> pa.Table:
    sums = (
        "nic_bytes",
        "client_bytes",
        "replication_bytes",
        "unattributed_bytes",
        "over_limit_seconds",
    )
    keys = ["window_start", "broker", "direction"]
    made = (
        _floored(fine)
        .group_by(keys)
        .aggregate([*((name, "sum") for name in sums), ("limit", "max")])
    )
    found = (
        {name: made[f"{name}_sum"] for name in sums}
        | {key: made[key] for key in keys}
        | {"limit": made["limit_max"]}
    )
    return pa.table([found[field.name].cast(field.type) for field in BROKER], schema=BROKER)


def _tier_hours(table: pa.Table) -> pa.Table:
    sums = ("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes")
    keys = ["window_start", "tier", "direction"]
    made = table.group_by(keys).aggregate(
        [
            *((name, "sum") for name in sums),
            *((name, "max") for name in ("peak_rate", "p50", "p95", "p99")),
        ]
    )
    throttled = np.minimum(np.asarray(made["throttled_seconds_sum"]) / 6, 3600.0)
    found = {name: made[f"{name}_sum"] for name in sums} | {key: made[key] for key in keys}
    found |= {name: made[f"{name}_max"] for name in ("peak_rate", "p50", "p95", "p99")}
    states = {
        "seconds_stepping": throttled * 0.1,
        "seconds_throttled": throttled * 0.7,
        "seconds_relaxing": throttled * 0.2,
    }
    found |= {
        name: _array(values)
        for name, values in {**states, "seconds_contract": 3600.0 - throttled}.items()
    }
    begins = (
        np.asarray(made["window_start"].cast(pa.int64()))
        == START_MS + EPISODE_MS[0] // HOUR_MS * HOUR_MS
    )
    found["throttle_episodes"] = _array((begins & (throttled > 0)).astype(np.int32))
    return pa.table([found[field.name].cast(field.type) for field in TIER], schema=TIER)
