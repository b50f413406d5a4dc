"""What NICs carried and members sent by hour, out of usage tables, for a forecast.

A NIC's rate is the highest of an hour's five minutes, and what throttled clients did not send in
that hour comes on top: a week that was throttled says the same as one that was not. It knows no
Spark and no Kubernetes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS
from tidegate.rollup.schemas import Direction as Way
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.terms.sources import PolicyMember, PolicyTerms
from tidegate_logic.forecast import HourOfNic, Nic, Sender, hour_of_week
from tidegate_logic.model import KEY_OF, Direction, Level, RateForm

_WAYS: dict[Way, Direction] = {"fetch": Direction.EGRESS, "produce": Direction.INGRESS}
_HOUR_SECONDS = HOUR_MS / 1000


def load_history(store: UsageStore, start_ms: int, end_ms: int) -> dict[Nic, list[HourOfNic]]:
    """Every published hour of each NIC in the range. Raises what reading the store raises."""
    highest: dict[tuple[int, Way, int], tuple[int, int | None]] = {}
    columns = ("broker", "direction", "window_start", "nic_bytes", "limit")
    for table in store.tables("broker_5m", start_ms, end_ms, columns=columns):
        for broker, way, at_ms, moved, limit in _rows(table, columns):
            place = (broker, way, at_ms - at_ms % HOUR_MS)
            known = highest.get(place)
            if known is None or moved > known[0]:
                highest[place] = (moved, limit if known is None else known[1] or limit)
    deferred = _deferred(store, start_ms, end_ms)
    found: dict[Nic, list[HourOfNic]] = defaultdict(list)
    for (broker, way, at_ms), (moved, limit) in highest.items():
        rate = (
            moved * 1000 / FIVE_MINUTES_MS + deferred.get((broker, way, at_ms), 0) / _HOUR_SECONDS
        )
        found[broker, _WAYS[way]].append(HourOfNic(at_ms / 1000, rate, limit))
    return found


def _deferred(store: UsageStore, start_ms: int, end_ms: int) -> dict[tuple[int, Way, int], int]:
    columns = ("broker", "direction", "window_start", "deferred_bytes")
    found: dict[tuple[int, Way, int], int] = defaultdict(int)
    for table in store.tables("usage_1h", start_ms, end_ms, columns=columns):
        some = table.filter(pc.greater(table["deferred_bytes"], 0))
        for broker, way, at_ms, held_back in _rows(some, columns):
            found[broker, way, at_ms] += held_back
    return found


def senders(
    store: UsageStore,
    terms: PolicyTerms,
    start_ms: int,
    end_ms: int,
    zone: ZoneInfo,
    *,
    brokers: Collection[int],
) -> dict[Nic, list[Sender]]:
    """The members of L1 to L3 on each NIC, each with its contract there and what it sent by hour.

    One whose contract depends on leaders that its tier's status does not say is left out.
    """
    members = {
        one.client: one
        for one in terms.members
        if one.tier.level is not Level.L0 and not one.member.exempt and one.tier.throttled
    }
    sent: dict[tuple[tuple[str, str], int, Way], dict[int, list[float]]] = defaultdict(dict)
    columns = ("user", "client_id", "broker", "direction", "window_start", "bytes")
    users = pa.array(sorted({user for user, _ in members}), pa.string())
    for table in store.tables("usage_1h", start_ms, end_ms, columns=columns):
        ours = table.filter(pc.is_in(table["user"], value_set=users))
        for user, client_id, broker, way, at_ms, moved in _rows(ours, columns):
            if (user, client_id) in members:
                by_hour = sent[(user, client_id), broker, way]
                hour = hour_of_week(at_ms / 1000, zone)
                by_hour.setdefault(hour, []).append(moved / _HOUR_SECONDS)
    found: dict[Nic, list[Sender]] = defaultdict(list)
    for (client, broker, way), by_hour in sent.items():
        one = members[client]
        contract = terms.promised(one, brokers=len(brokers)).get(way)
        if contract:
            rates = {hour: median(values) for hour, values in by_hour.items()}
            sender = Sender(one.member.entity, one.tier.level, contract, _floor(one, way), rates)
            found[broker, _WAYS[way]].append(sender)
    return found


def _floor(one: PolicyMember, way: Way) -> float:
    """What the tier throttles it to on each broker; 0 where that depends on leaders."""
    key = KEY_OF[_WAYS[way]]
    rates = [
        rate
        for contract in one.tier.throttled
        if contract.form is RateForm.PER_BROKER and (rate := contract.byte_rate(key)) is not None
    ]
    return float(min(rates, default=0))


def _rows(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows as tuples; times are milliseconds since the epoch."""
    plain = [
        (table[name].cast(pa.int64()) if name == "window_start" else table[name]).to_pylist()
        for name in columns
    ]
    return zip(*plain, strict=True)
