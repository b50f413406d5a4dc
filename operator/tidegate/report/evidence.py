"""What makes a report credible: how estimates were scaled, suspect members, recipes by hand."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.report.figures import (
    BrokerFigures,
    Calibration,
    Charge,
    ContractUse,
    DoubtfulMember,
    MemberFigures,
    Recipe,
)
from tidegate.report.period import (
    CLIENT,
    NIC,
    PeriodTables,
    by_keys,
    grouped,
    nic_of,
    share_of,
)
from tidegate.report.rate_card import GIB
from tidegate.report.request import ReportRequest
from tidegate.rollup.fold.broker import FactorBounds
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS
from tidegate_logic.words import rfc3339_ms

ENOUGH_COVERAGE = 0.95


def calibrations(
    usage_5m: pa.Table | None, brokers: Sequence[BrokerFigures], bounds: FactorBounds
) -> tuple[Calibration, ...]:
    """A line for each broker and direction; without the 5-minute rows the factors are unknown."""
    factors: defaultdict[tuple[Any, ...], list[float | None]] = defaultdict(list)
    if usage_5m is not None:
        # the factor of a window is the same for every user, and None if there was none
        for row in grouped(usage_5m, (*NIC, "window_start"), max=("calibration",)):
            factors[nic_of(row)].append(row["calibration"])
    return tuple(_calibration(nic, factors[nic.broker, nic.direction], bounds) for nic in brokers)


def _calibration(
    nic: BrokerFigures, factors: Sequence[float | None], bounds: FactorBounds
) -> Calibration:
    known = [factor for factor in factors if factor is not None]
    return Calibration(
        broker=nic.broker,
        direction=nic.direction,
        windows=len(factors),
        unscaled_windows=len(factors) - len(known),
        bounded_windows=sum(not bounds.least <= factor <= bounds.most for factor in known),
        lowest_factor=min(known, default=None),
        median_factor=median(known) if known else None,
        highest_factor=max(known, default=None),
        unattributed_bytes=nic.unattributed_bytes,
        unattributed_share=share_of(nic.unattributed_bytes, nic.client_bytes),
    )


def doubtful_members(
    tables: PeriodTables, members: Sequence[MemberFigures], bounds: FactorBounds
) -> tuple[DoubtfulMember, ...]:
    """Members never scaled to a broker's count, with low coverage, or with a factor outside of the
    bounds; most bytes first.
    """
    coverages = by_keys(tables.usage, (*CLIENT, "direction"), "min", "coverage")
    factors, outside = _factors(tables.usage_5m, bounds)
    found = []
    for one in members:
        if one.coverage is None:
            continue  # it moved nothing, and pays for its contract
        key = (one.user, one.client_id, one.direction)
        coverage = coverages[one.tier, *key]
        lowest, highest = factors.get(key, (None, None))
        never_scaled = key in factors and highest is None
        if never_scaled or coverage < ENOUGH_COVERAGE or outside.get(key):
            found.append(
                DoubtfulMember(
                    *(one.member, one.tier, one.direction, one.bytes, coverage, never_scaled),
                    *(outside.get(key, 0), lowest, highest),
                )
            )
    return tuple(found)


_Client = tuple[str, str, str]  # user, client id, direction


def _factors(
    usage_5m: pa.Table | None, bounds: FactorBounds
) -> tuple[Mapping[_Client, tuple[float | None, float | None]], Mapping[_Client, int]]:
    """The lowest and highest factor of each client, and how many are outside of the bounds."""
    if usage_5m is None:
        return {}, {}
    keys = ("user", "client_id", "direction")
    highest = by_keys(usage_5m, keys, "max", "calibration")
    factors = {
        key: (lowest, highest[key])
        for key, lowest in by_keys(usage_5m, keys, "min", "calibration").items()
    }
    factor = usage_5m["calibration"]
    wrong = pc.or_(pc.less(factor, bounds.least), pc.greater(factor, bounds.most))
    return factors, by_keys(usage_5m.filter(wrong), keys, "count", "calibration")


# How to reproduce numbers by hand: DuckDB's SQL on the usage tables, with the store's files as
# tables of these names, and selectors of series in Prometheus. No query is run here.


_CALIBRATED = (
    "For each broker and 5-minute window: the sum of the gauge's samples times their intervals, "
    "times the growth of the broker's own byte counter, divided by that sum over all users. The "
    "result is `bytes` of usage_5m, and `calibration` the factor."
)
_COUNTED = (
    "Query Prometheus for the raw samples of the series below, `selector[1h]` at the end of each "
    "hour. Sum up each sample less the one before it; where that is negative the counter was "
    "reset, and the sample itself counts. `increase()` extrapolates and gives another number."
)


def recipes_of(
    request: ReportRequest,
    members: Sequence[MemberFigures],
    brokers: Sequence[BrokerFigures],
    uses: Sequence[ContractUse],
    charges: Sequence[Charge],
) -> tuple[Recipe, ...]:
    """One for each kind of number, about the largest of its kind."""
    exact = [use for use in uses if not use.p95_is_bound and use.p95_rate is not None]
    fullest = sorted(brokers, key=lambda nic: -nic.nic_bytes)
    return (
        *(_member_recipe(request, one) for one in members[:1]),
        *(_price_recipe(one) for one in _largest(charges)),
        *(_nic_recipe(request, nic) for nic in fullest[:1]),
        *(_p95_recipe(request, use) for use in exact[:1]),
        Recipe("a member's bytes in a 5-minute window", "", _CALIBRATED),
        Recipe("bytes of a broker's NIC, and the broker's own count of client bytes", "", _COUNTED),
        *(Recipe(series.what, "", series.selector) for series in request.provenance.series),
    )


def _member_recipe(request: ReportRequest, one: MemberFigures) -> Recipe:
    client = {
        '"user"': one.user,
        "client_id": one.client_id,
        "tier": one.tier,
        "direction": one.direction,
    }
    query = _select("sum(bytes)", _table("usage", request), [*_equal(client), *_during(request)])
    return Recipe(f"bytes of {one.member}, {one.direction}", str(one.bytes), query)


def _largest(charges: Sequence[Charge]) -> Sequence[Charge]:
    """The largest line with a price of a GiB; none where every line is a share of a cost."""
    priced = [one for one in charges if one.kind == "Usage" and one.per_gib is not None]
    return sorted(priced, key=lambda one: -one.amount)[:1]


def _price_recipe(one: Charge) -> Recipe:
    how = f"{one.bytes} / {GIB} x {one.per_gib:f}, rounded half up to hundredths"
    what = f"price of {one.member}, {one.direction}, from {one.start} to {one.end}"
    return Recipe(what, str(one.amount), how)


def _nic_recipe(request: ReportRequest, nic: BrokerFigures) -> Recipe:
    which = [f"broker = {nic.broker}", *_equal({"direction": nic.direction}), *_during(request)]
    query = _select("sum(nic_bytes)", _table("broker", request), which)
    return Recipe(f"bytes of broker {nic.broker}'s NIC, {nic.direction}", str(nic.nic_bytes), query)


def _p95_recipe(request: ReportRequest, use: ContractUse) -> Recipe:
    # quantile_disc is the nearest rank in DuckDB
    client = {'"user"': use.user, "client_id": use.client_id, "direction": use.direction}
    each = _select(
        "quantile_disc(bytes, 0.95) AS q",
        "usage_5m",
        [*_equal(client), "samples > 0", *_during(request)],
    )
    query = " ".join(
        ("SELECT", f"max(q) / {FIVE_MINUTES_MS // 1000}.0", "FROM", f"({each} GROUP BY broker)")
    )
    return Recipe(
        f"p95 of {use.member}, {use.direction}, in bytes per second", str(use.p95_rate), query
    )


def _table(name: str, request: ReportRequest) -> str:
    return f"{name}_{'1h' if request.tables.grain_ms == HOUR_MS else '1d'}"


def _select(what: str, table: str, conditions: Sequence[str]) -> str:
    return " ".join(("SELECT", what, "FROM", table, "WHERE", " AND ".join(conditions)))


def _equal(columns: Mapping[str, str]) -> Iterator[str]:
    for column, value in columns.items():
        text = value.replace("'", "''")
        yield f"{column} = '{text}'"


def _during(request: ReportRequest) -> tuple[str, str]:
    start, end = (
        f"TIMESTAMPTZ '{rfc3339_ms(at_ms)}'" for at_ms in (request.start_ms, request.end_ms)
    )
    return f"window_start >= {start}", f"window_start < {end}"
