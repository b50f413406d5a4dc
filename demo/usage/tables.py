"""Reads the usage tables of a run with the product's own reader: only files that manifests name count."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from demo.usage_outcome import StoredUsage, TierEpisodes, UserUsage
from tidegate.rollup.schemas import FIVE_MINUTES_MS
from tidegate.rollup.tables.store import UsageStore

_CLIENT = ["tier", "user", "direction"]
_TIER = ["tier", "direction"]
_USED = ["bytes", "deferred_bytes", "throttled_seconds"]
_STATES = ["throttle_episodes", "seconds_throttled", "seconds_relaxing"]
_BROKER = ["broker", "direction"]


def stored_usage(folder: Path) -> StoredUsage:
    """What is published there, which has to be something. Raises tidegate.errors."""
    store = UsageStore.at(str(folder))
    brokers = store.rows("broker_5m")
    clients, tiers = store.rows("usage_1h", columns=[*_CLIENT, *_USED]), store.rows("tier_1h", columns=[*_TIER, *_STATES])
    return StoredUsage(
        end_ms=max(brokers["window_start"].cast(pa.int64()).to_pylist()) + FIVE_MINUTES_MS,
        by_broker={(broker, direction): moved for broker, direction, moved in _sums(brokers, _BROKER, ["client_bytes"])},
        users=tuple(UserUsage(*row) for row in _sums(clients, _CLIENT, _USED)),
        episodes=tuple(
            TierEpisodes(tier, direction, episodes, throttled + relaxing)
            for tier, direction, episodes, throttled, relaxing in _sums(tiers, _TIER, _STATES)
        ),
    )


def _sums(rows: pa.Table, keys: list[str], summed: list[str]) -> list[tuple[Any, ...]]:
    found = rows.group_by(keys).aggregate([(name, "sum") for name in summed])
    ordered = found.select([*keys, *(f"{name}_sum" for name in summed)]).sort_by([(key, "ascending") for key in keys])
    return [tuple(row.values()) for row in ordered.to_pylist()]
