"""Usage of 5 minutes by tier, which its own rows do not tell: that is in the rows of their hour."""

from collections.abc import Mapping

import pyarrow as pa

from tidegate.rollup.report.grouping import Wanted, floored, grouped
from tidegate.rollup.schemas import HOUR_MS

_MOVED = ["window_start", "user", "client_id", "direction", "bytes"]
_CLIENT = ["hour", "user", "client_id"]
_SHOWN = ("hour", "tier", "direction")


def in_tiers_of_hours(usage_5m: pa.Table, hours: pa.Table, *, start_ms: int) -> pa.Table | None:
    """The bytes of each row of 5 minutes with its client's tier in that hour; `start_ms`, the period's start, is a whole hour.

    None where their bytes are not those of the hours by tier and direction, as while a run publishes one table after the other: a plot
    must not show another sum than the tables beside it.
    """
    known = hours.append_column("hour", hours["window_start"])
    tiers = known.group_by([*_CLIENT, "tier"]).aggregate([])
    starts = floored(usage_5m, HOUR_MS, origin_ms=start_ms)["window_start"]
    found = usage_5m.select(_MOVED).append_column("hour", starts).join(tiers, keys=_CLIENT, join_type="inner")
    return found if _bytes(found) == _bytes(known) else None


def _bytes(usage: pa.Table) -> Mapping[tuple[int, str, str], int]:
    """By hour, tier and direction; what moved nothing is left out."""
    rows = grouped(usage, _SHOWN, Wanted(sums=("bytes",)))
    return {(row["hour"], row["tier"], row["direction"]): row["bytes"] for row in rows if row["bytes"]}
