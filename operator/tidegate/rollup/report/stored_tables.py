"""What a store has of a report's period: its tables, how much of the period was published at all, and who published it."""

import pyarrow as pa

from tidegate.rollup.report.request import Provenance, UsageTables
from tidegate.rollup.schemas import HOUR_MS, TABLES
from tidegate.rollup.tables.store import UsageStore

MOST_ROWS = 20_000_000  # of five minutes: about 2 GB while they are ranked
_USAGE_5M = ("window_start", "broker", "user", "client_id", "direction", "bytes", "samples", "coverage", "calibration")


def stored_tables(store: UsageStore, start_ms: int, end_ms: int, *, grain_ms: int) -> UsageTables:
    """Tables of hours or days, and the 5-minute ones unless they are more rows than fit. What is not published is no row, and is counted.

    Raises what reading the store does.
    """
    suffix = "1h" if grain_ms == HOUR_MS else "1d"
    usage, brokers, tiers = (_rows(store, f"{name}_{suffix}", start_ms, end_ms) for name in ("usage", "broker", "tier"))
    return UsageTables(
        grain_ms=grain_ms,
        usage=usage,
        brokers=brokers,
        tiers=tiers,
        usage_5m=_fine(store, start_ms, end_ms),
        broker_5m=store.rows("broker_5m", start_ms, end_ms),
        published=len(store.windows(f"usage_{suffix}", start_ms, end_ms)),
    )


def stored_provenance(store: UsageStore, start_ms: int, end_ms: int) -> Provenance:
    """Which runs published the period's usage, and by which ways samples came. Files that days were put together into count too."""
    tables = ("usage_5m", "usage_1h", "usage_1d")
    manifests = [one for table in tables for one in store.manifests(table, start_ms, end_ms) if not one.retired]
    return Provenance(
        store_url=store.storage.shown,
        schema_version=store.ladder.current,
        transports=sorted({one.source for one in manifests if one.source}),
        run_ids=sorted({one.run_id for one in manifests}),
    )


def _rows(store: UsageStore, table: str, start_ms: int, end_ms: int) -> pa.Table:
    """Without sketches, which are most of a table's bytes and which the report does not read."""
    return store.rows(table, start_ms, end_ms, columns=[name for name in TABLES[table].schema.names if name != "sketch"])


def _fine(store: UsageStore, start_ms: int, end_ms: int) -> pa.Table | None:
    count = sum(file.rows for part in store.parts("usage_5m", start_ms, end_ms) for file in part.files)
    return store.rows("usage_5m", start_ms, end_ms, columns=_USAGE_5M) if count <= MOST_ROWS else None
