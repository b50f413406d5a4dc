"""Requests of a few rows, for tests that say every number themselves."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidegate.report.rate_card import RateCard
from tidegate.report.request import (
    ClientKey,
    MemberTerms,
    Provenance,
    ReportRequest,
    UsageTables,
)
from tidegate.rollup.schemas import BROKER, HOUR_MS, TIER, USAGE, USAGE_5M
from tidegate.rollup.terms.sources import AuditLine

START_MS = 1_795_132_800_000  # 2026-11-20T00:00:00Z
END_MS = START_MS + 2 * HOUR_MS
PRICES = RateCard.flat({"fetch": Decimal("0.02"), "produce": Decimal("0.01")})
_ZEROS: Mapping[str, object] = {
    **dict.fromkeys(
        ("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes", "peak_rate"), 0
    ),
    **dict.fromkeys(
        (
            "nic_bytes",
            "client_bytes",
            "replication_bytes",
            "unattributed_bytes",
            "over_limit_seconds",
        ),
        0,
    ),
    **dict.fromkeys(
        (
            "throttle_episodes",
            "seconds_contract",
            "seconds_stepping",
            "seconds_throttled",
            "seconds_relaxing",
        ),
        0,
    ),
    **dict.fromkeys(("user", "client_id", "tier"), ""),
    "labels": "{}",
    "window_start": START_MS,
    "broker": 1,
    "direction": "fetch",
    "samples": 20,
    "coverage": 1.0,
}


def table(schema: pa.Schema, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows as they are in a store; a column that a row leaves out is zero, or the first hour of
    broker 1's fetch.
    """
    full = [_ZEROS | row for row in rows]
    columns = [pa.array([row.get(field.name) for row in full]).cast(field.type) for field in schema]
    return pa.table(columns, schema=schema)


def small_request(
    usage: Sequence[Mapping[str, object]] = (),
    brokers: Sequence[Mapping[str, object]] = (),
    *,
    tiers: Sequence[Mapping[str, object]] = (),
    usage_5m: Sequence[Mapping[str, object]] | None = None,
    broker_5m: Sequence[Mapping[str, object]] | None = None,
    **more: Any,
) -> ReportRequest:
    """Two hours by the hour."""
    tables = UsageTables(
        grain_ms=HOUR_MS,
        usage=table(USAGE, usage),
        brokers=table(BROKER, brokers),
        tiers=table(TIER, tiers),
        usage_5m=None if usage_5m is None else table(USAGE_5M, usage_5m),
        broker_5m=None if broker_5m is None else table(BROKER, broker_5m),
    )
    given = {
        "policy": "streaming/main",
        "start_ms": START_MS,
        "end_ms": END_MS,
        "made_at_ms": END_MS,
        "tables": tables,
    }
    return ReportRequest(
        **{**given, "provenance": Provenance(store_url="file:///usage", schema_version=1), **more}
    )


def terms(
    user: str, *, tier: str = "t", name: str | None = None, fetch: int | None = None
) -> MemberTerms:
    return MemberTerms(
        client=ClientKey(tier, user, ""), name=name or user, level="L1", contracts={"fetch": fetch}
    )


def write_line(
    minute: float, user: str, before: int | None, after: int | None, **more: object
) -> AuditLine:
    """A fetch quota that was written so many minutes after the period's start, of a contract of 100
    B/s.
    """
    seconds = round(minute * 60)
    clock = f"2026-11-{20 if seconds >= 0 else 19}T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.000Z"
    line = {
        "event": "Audit",
        "kind": "write",
        "t": clock,
        "policy": "streaming/main",
        "entity": f"user={user}",
        "key": "consumer_byte_rate",
    }
    line |= {
        "from": before,
        "to": after,
        "contract": 100,
        "level": "L3",
        "tier": "t",
        "member": user,
        "outcome": "applied",
    }
    lowers = before is None or (after is not None and after < before)
    return {**line, "reason": "Throttled" if lowers else "Released", "predictedMute_s": 0.0, **more}
