"""The columns of the usage tables, declared once for those who write them and those who read them.

Every table has the columns of `OWNER` in front: Kafka's cluster id and the policy (namespace/name),
"" where they are not known. They are the same in all rows of a store: code that computes rows
leaves them out, and `tables/` adds them.

Rates are in bytes/s, byte counts whole bytes, times UTC. A user or client id that Kafka does not
report is "" and never null, and so is the tier of a member of none; its labels are "{}". Null is
allowed only where "not known" is an answer: no limit, no factor, no rate to take a percentile of.
How tables lie in a store is `tables/`'s business; what the columns mean to a reader is in
docs/usage-tables.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

Direction = Literal["produce", "fetch"]
DIRECTIONS: tuple[Direction, ...] = ("produce", "fetch")

FIVE_MINUTES_MS = 300_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _integers(*names: str) -> list[pa.Field]:
    return [_column(name, pa.int64()) for name in names]


def _numbers(*names: str, nullable: bool = False) -> list[pa.Field]:
    return [_column(name, pa.float64(), nullable=nullable) for name in names]


OWNER = pa.schema([_column("cluster", pa.string()), _column("policy", pa.string())])
_WINDOW = _column("window_start", pa.timestamp("ms", tz="UTC"))
_BROKER = _column("broker", pa.int32())
_CLIENT = [_column("user", pa.string()), _column("client_id", pa.string())]
_TIER = _column("tier", pa.string())
_LABELS = _column("labels", pa.string())  # see `labels.py`
_DIRECTION = _column("direction", pa.string())
_SUMS = [
    *_integers("bytes"),
    *_numbers("peak_rate", "throttled_seconds", "over_contract_seconds"),
    *_integers("deferred_bytes"),
]
_MEASURED = [_column("samples", pa.int32()), *_numbers("coverage")]
SKETCH = pa.map_(pa.int32(), pa.int32())  # see `fold/hours.py`
_PERCENTILES = _numbers("p50", "p95", "p99", nullable=True)
_STATES = _numbers("seconds_contract", "seconds_stepping", "seconds_throttled", "seconds_relaxing")

USAGE_5M = pa.schema(
    [
        _WINDOW,
        _BROKER,
        *_CLIENT,
        _DIRECTION,
        *_SUMS,
        *_MEASURED,
        *_numbers("calibration", nullable=True),
    ]
)
USAGE = pa.schema(
    [
        _WINDOW,
        _BROKER,
        *_CLIENT,
        _TIER,
        _LABELS,
        _DIRECTION,
        *_SUMS,
        *_MEASURED,
        *_PERCENTILES,
        _column("sketch", SKETCH, nullable=True),
    ]
)
BROKER = pa.schema(
    [
        *(_WINDOW, _BROKER, _DIRECTION),
        *_integers("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes"),
        _column("limit", pa.int64(), nullable=True),
        *_numbers("over_limit_seconds"),
    ]
)
TIER = pa.schema(
    [
        _WINDOW,
        _TIER,
        _DIRECTION,
        *_SUMS,
        *_PERCENTILES,
        _column("throttle_episodes", pa.int32()),
        *_STATES,
    ]
)


@dataclass(frozen=True, slots=True)
class TableKind:
    """One table: columns, row key, length of a window, and of the time that is published at once.

    `key` is also the order in which files are sorted. `published_ms` is a whole number of windows.
    `schema` has the columns of `OWNER` first; `computed` are all others.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    window_ms: int
    published_ms: int

    @property
    def computed(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.names if name not in OWNER.names)


def _kind(name: str, schema: pa.Schema, *, window_ms: int, published_ms: int) -> TableKind:
    named = ("broker", "user", "client_id", "tier", "labels", "direction", "window_start")
    return TableKind(
        name,
        pa.schema([*OWNER, *schema]),
        tuple(column for column in named if column in schema.names),
        window_ms,
        published_ms,
    )


TABLES: Mapping[str, TableKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            _kind("usage_5m", USAGE_5M, window_ms=FIVE_MINUTES_MS, published_ms=HOUR_MS),
            _kind("usage_1h", USAGE, window_ms=HOUR_MS, published_ms=HOUR_MS),
            _kind("usage_1d", USAGE, window_ms=DAY_MS, published_ms=DAY_MS),
            _kind("broker_5m", BROKER, window_ms=FIVE_MINUTES_MS, published_ms=HOUR_MS),
            _kind("broker_1h", BROKER, window_ms=HOUR_MS, published_ms=HOUR_MS),
            _kind("broker_1d", BROKER, window_ms=DAY_MS, published_ms=DAY_MS),
            _kind("tier_1h", TIER, window_ms=HOUR_MS, published_ms=HOUR_MS),
            _kind("tier_1d", TIER, window_ms=DAY_MS, published_ms=DAY_MS),
        )
    }
)
