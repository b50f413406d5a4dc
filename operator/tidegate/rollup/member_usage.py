"""Figures of usage tables from which contracts are recommended: what members moved over days.

It knows no Spark and no Kubernetes. Rates are means of the five-minute windows that are published;
a window in which a member has no row is one in which it moved nothing. A window that is not
published counts as not covered and says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.model import BYTE_RATE_OF, DirectionUsage, Entity, Tier, Usage

_WAYS = tuple((way, BYTE_RATE_OF[way]) for way in ("fetch", "produce"))  # by a place's last bit
_COLUMNS = ("window_start", "broker", "user", "client_id", "direction", "bytes")
_BELOW_CONTRACT = ("seconds_throttled", "seconds_relaxing")
_SEPARATOR = "\0"
_SECONDS = FIVE_MINUTES_MS / 1000
_Numbers = NDArray[np.int64]


def member_usage(store: UsageStore, tiers: Iterable[Tier], start_ms: int, end_ms: int) -> Usage:
    """The figures of [start_ms, end_ms) for every member that moved anything in it.

    Of members that overlap the first counts. Raises what reading the store raises.
    """
    days = (end_ms - start_ms) / DAY_MS
    tier_of = _tier_of(tiers)
    windows, coverage = _published(store, start_ms, end_ms)
    if not windows or not tier_of:
        return Usage(days, end_ms / 1000)
    entities = tuple(tier_of)
    below = _seconds_below_contract(store, start_ms, end_ms)
    figures = {}
    for place, total, busiest, brokers in _figures(
        _moved(store, entities, start_ms, end_ms), windows
    ):
        entity, (direction, key) = entities[place // 2], _WAYS[place % 2]
        throttled = min(1.0, below.get((tier_of[entity], direction), 0.0) / (windows * _SECONDS))
        figures[entity, key] = DirectionUsage(total, busiest, brokers, coverage, throttled)
    return Usage(days, end_ms / 1000, figures)


def _tier_of(tiers: Iterable[Tier]) -> Mapping[Entity, str]:
    """Members but Kafka's defaults, whose clients are in the tables by their own names."""
    found: dict[Entity, str] = {}
    for tier in tiers:
        for member in tier.members:
            if not member.entity.is_default:
                found.setdefault(member.entity, tier.key)
    return found


def _published(store: UsageStore, start_ms: int, end_ms: int) -> tuple[int, float]:
    """The number of published 5-minute windows, and the range's share that samples cover."""
    published_ms, covered_ms = 0, 0.0
    for part in store.parts("usage_5m", start_ms, end_ms):
        overlap_ms = sum(
            min(window.end_ms, end_ms) - max(window.start_ms, start_ms) for window in part.windows
        )
        published_ms += overlap_ms
        covered_ms += overlap_ms * (
            1.0 if part.manifest.coverage is None else part.manifest.coverage
        )
    return published_ms // FIVE_MINUTES_MS, min(1.0, covered_ms / (end_ms - start_ms))


def _seconds_below_contract(
    store: UsageStore, start_ms: int, end_ms: int
) -> Mapping[tuple[str, str], float]:
    """By tier and direction: how long its members were held at less than they are promised."""
    seconds: dict[tuple[str, str], float] = {}
    for row in store.rows(
        "tier_1h", start_ms, end_ms, columns=["tier", "direction", *_BELOW_CONTRACT]
    ).to_pylist():
        place = row["tier"], row["direction"]
        seconds[place] = seconds.get(place, 0.0) + sum(row[name] for name in _BELOW_CONTRACT)
    return seconds


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows of members as numbers: `place` is twice the entity's number, one more for produce."""

    place: _Numbers
    broker: _Numbers
    at_ms: _Numbers
    moved_bytes: _Numbers


def _figures(rows: _Moved, windows: int) -> Iterator[tuple[int, float, float, int]]:
    """By place: p99 of all brokers together and of the busiest one, and the number of brokers."""
    places, together = _p99(rows.place, rows, windows)
    on_brokers, each = _p99(rows.place << 32 | rows.broker, rows, windows)
    of_place = np.searchsorted(places, on_brokers >> 32)
    busiest = np.zeros(len(places))
    np.maximum.at(busiest, of_place, each)
    brokers = np.bincount(of_place, minlength=len(places))
    for number, place in enumerate(places):
        yield int(place), float(together[number]), float(busiest[number]), int(brokers[number])


def _p99(groups: _Numbers, rows: _Moved, windows: int) -> tuple[_Numbers, NDArray[np.float64]]:
    """The groups and their p99 rates by nearest rank; a window without a row counts as 0."""
    order = np.lexsort((rows.at_ms, groups))
    group, at_ms = groups[order], rows.at_ms[order]
    starts = np.flatnonzero(_differs(group) | _differs(at_ms))
    group, moved_bytes = group[starts], np.add.reduceat(rows.moved_bytes[order], starts)
    order = np.lexsort((moved_bytes, group))
    ends = np.append(np.flatnonzero(_differs(group))[1:], len(group))
    counts = np.diff(ends, prepend=0)
    above = windows - -(-99 * windows // 100)  # so many windows may be higher
    found = moved_bytes[order][np.maximum(ends - 1 - above, 0)]
    return group[ends - 1], np.where(counts > above, found, 0) / _SECONDS


def _differs(values: _Numbers) -> NDArray[np.bool_]:
    """Where a value is another than the one before; the first one is."""
    return np.append(True, values[1:] != values[:-1])


def _moved(store: UsageStore, entities: Sequence[Entity], start_ms: int, end_ms: int) -> _Moved:
    """All rows of these entities with any bytes."""
    names = pa.array(
        [_SEPARATOR.join((str(one.user or ""), str(one.client_id or ""))) for one in entities],
        pa.string(),
    )
    pieces = [
        _numbers(rows, names)
        for rows in store.tables("usage_5m", start_ms, end_ms, columns=_COLUMNS)
    ]
    return _Moved(
        *(np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*pieces, strict=True))
    )


def _numbers(rows: pa.Table, names: pa.Array) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    entity = pc.index_in(
        pc.binary_join_element_wise(rows["user"], rows["client_id"], _SEPARATOR), value_set=names
    )
    wanted = pc.and_(pc.is_valid(entity), pc.greater(rows["bytes"], 0))
    ours = rows.append_column("entity", entity).filter(wanted)
    place = _column(ours["entity"]) * 2 + _column(pc.equal(ours["direction"], "produce"))
    return place, _column(ours["broker"]), _column(ours["window_start"]), _column(ours["bytes"])


def _column(column: pa.ChunkedArray) -> _Numbers:
    numbers: _Numbers = column.cast(pa.int64()).to_numpy()
    return numbers
