"""Computes the figures of a report from its request."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.rollup.fold.broker import LEAST_FACTOR, MOST_FACTOR
from tidegate.rollup.report.figures import (
    BrokerFigures,
    Calibration,
    ContractUse,
    DoubtfulMember,
    LoadPoint,
    MemberFigures,
    Origin,
    Period,
    Price,
    Recipe,
    Recommendation,
    ReportFigures,
    Talker,
    ThrottledWindow,
    TierFigures,
    Total,
    TrafficPoint,
)
from tidegate.rollup.report.period import (
    PeriodTables,
    Row,
    at_highest,
    episodes_of,
    floored,
    grouped,
    period_tables,
)
from tidegate.rollup.report.request import (
    GIB,
    GRAINS,
    ClientKey,
    MemberDirectory,
    Prices,
    Provenance,
    RecommendedContract,
    ReportRequest,
    iso_time,
    total_of,
)
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS, Direction
from tidegate.rollup.terms.sources import read_trail

ENOUGH_COVERAGE = 0.95

_DIRECTIONS: Final[tuple[Direction, ...]] = ("fetch", "produce")
_CLIENT: Final = ("tier", "user", "client_id")
_NIC: Final = ("broker", "direction")
_BELOW_CONTRACT: Final = ("seconds_throttled", "seconds_relaxing")
_STATES: Final = ("seconds_contract", "seconds_stepping", *_BELOW_CONTRACT)
_TALKERS = 10
_MOST_TRAFFIC_STEPS, _FEWEST_TRAFFIC_STEPS = 120, 24
_TRAFFIC_POINTS = 2000  # of both directions: more would only make the page large
_LOAD_STEPS = 48
_NICS_DRAWN = 24


def figures_of(request: ReportRequest) -> ReportFigures:
    """Every number of the report. Raises InvalidResource if the period is empty or cuts a window in
    two.
    """
    tables, directory = period_tables(request), MemberDirectory(request.members)
    members = _member_figures(tables.usage, directory, request.prices)
    brokers = _broker_figures(tables)
    uses = _contract_use(tables, directory)
    trail = read_trail(request.trail or (), request.policy, end_ms=request.end_ms)
    return ReportFigures(
        policy=request.policy,
        made_at=iso_time(request.made_at_ms),
        period=_period(tables, request.tables.published),
        currency=request.prices.currency,
        prices=tuple(
            Price(direction, request.prices.per_gib.get(direction)) for direction in _DIRECTIONS
        ),
        total_bytes=sum(one.bytes for one in members),
        total_amount=total_of(one.amount for one in members),
        totals=tuple(_total(direction, members, brokers) for direction in _DIRECTIONS),
        tiers=_tier_figures(tables.tiers, members),
        members=members,
        contract_use=uses,
        talkers=tuple(_top_talkers(members)),
        brokers=brokers,
        traffic=_traffic_points(tables),
        load=_load_points(tables, brokers),
        trail_given=request.trail is not None,
        episodes=episodes_of(trail, request.start_ms, request.end_ms),
        states_known=any((pc.sum(tables.tiers[name]).as_py() or 0.0) > 0 for name in _STATES),
        throttled_windows=_throttled_windows(tables, directory),
        recommendations=tuple(_recommendation(one, directory) for one in request.recommendations),
        five_minutes=tables.usage_5m is not None,
        calibration=_calibrations(tables.usage_5m, brokers),
        doubtful=_doubtful_members(tables, members),
        recipes=recipes_of(request, members, brokers, uses),
        origin=_origin(request.provenance),
    )


def _period(tables: PeriodTables, published: int | None) -> Period:
    length_ms = tables.end_ms - tables.start_ms
    return Period(
        start=iso_time(tables.start_ms),
        end=iso_time(tables.end_ms),
        seconds=length_ms / 1000,
        grain=GRAINS[tables.grain_ms],
        windows=length_ms // tables.grain_ms,
        published_windows=tables.windows_with_rows if published is None else published,
    )


def _origin(provenance: Provenance) -> Origin:
    return Origin(
        store=provenance.store_url,
        schema_version=provenance.schema_version,
        transports=", ".join(provenance.transports),
        runs=", ".join(provenance.run_ids),
    )


def _share(part: float, whole: float | None) -> float | None:
    """The fraction; None of zero or of an unknown whole."""
    return part / whole if whole else None


def _client(row: Row) -> ClientKey:
    return ClientKey(row["tier"], row["user"], row["client_id"])


# Members, tiers and totals


def _member_figures(
    usage: pa.Table, directory: MemberDirectory, prices: Prices
) -> tuple[MemberFigures, ...]:
    """A line for each member and direction, most bytes first. A share is of the direction's
    bytes.
    """
    rows = list(
        grouped(
            usage,
            (*_CLIENT, "direction"),
            sum=("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes"),
            mean=("coverage",),
            count_distinct=("broker",),
        )
    )
    totals = _bytes_by_direction((row["direction"], row["bytes"]) for row in rows)
    figures = [
        MemberFigures(
            member=directory.name(_client(row)),
            level=directory.level(row["tier"]),
            share=_share(row["bytes"], totals[row["direction"]]),
            amount=prices.amount(row["direction"], row["bytes"]),
            brokers=row.pop("broker"),
            **row,
        )
        for row in rows
    ]
    return tuple(
        sorted(
            figures, key=lambda one: (-one.bytes, one.tier, one.user, one.client_id, one.direction)
        )
    )


def _tier_figures(tiers: pa.Table, members: Sequence[MemberFigures]) -> tuple[TierFigures, ...]:
    """A line for each tier and direction with a member that was seen, most important level first.

    Bytes and amounts are the sums of its members' lines; peaks and states come from the tier table,
    None without a row.
    """
    groups: defaultdict[tuple[str, str], list[MemberFigures]] = defaultdict(list)
    for one in members:
        groups[one.tier, one.direction].append(one)
    totals = _bytes_by_direction((one.direction, one.bytes) for one in members)
    rows = grouped(
        tiers, ("tier", "direction"), sum=("throttle_episodes", *_STATES), max=("peak_rate", "p95")
    )
    by_key = {(row["tier"], row["direction"]): row for row in rows}
    figures = [
        _tier(ours, totals[direction], by_key.get((tier, direction), {}))
        for (tier, direction), ours in groups.items()
    ]
    return tuple(sorted(figures, key=lambda one: (one.level or "~", one.tier, one.direction)))


def _tier(members: Sequence[MemberFigures], total_bytes: int, row: Row) -> TierFigures:
    moved = sum(one.bytes for one in members)
    return TierFigures(
        tier=members[0].tier,
        level=members[0].level,
        direction=members[0].direction,
        members=len(members),
        bytes=moved,
        share=_share(moved, total_bytes),
        amount=total_of(one.amount for one in members),
        throttled_seconds=sum(one.throttled_seconds for one in members),
        deferred_bytes=sum(one.deferred_bytes for one in members),
        peak_rate=row.get("peak_rate"),
        highest_p95_rate=row.get("p95"),
        throttle_episodes=row.get("throttle_episodes"),
        **{state: row.get(state) for state in _STATES},
    )


def _total(
    direction: Direction, members: Sequence[MemberFigures], brokers: Sequence[BrokerFigures]
) -> Total:
    ours = [one for one in members if one.direction == direction]
    nics = [nic for nic in brokers if nic.direction == direction]
    return Total(
        direction=direction,
        bytes=sum(one.bytes for one in ours),
        amount=total_of(one.amount for one in ours),
        counted_bytes=sum(nic.client_bytes for nic in nics),
        unattributed_bytes=sum(nic.unattributed_bytes for nic in nics),
        throttled_seconds=sum(one.throttled_seconds for one in ours),
        deferred_bytes=sum(one.deferred_bytes for one in ours),
    )


def _top_talkers(members: Sequence[MemberFigures]) -> Iterator[Talker]:
    """The members that move most in both directions together, each with the share of all that it
    and those above it move.
    """
    moved: defaultdict[tuple[str, str, str, str], dict[str, int]] = defaultdict(
        lambda: {"fetch": 0, "produce": 0}
    )
    for one in members:
        moved[one.member, one.tier, one.user, one.client_id][one.direction] += one.bytes
    ranked = sorted(moved.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))
    counts = [sum(directions.values()) for _, directions in ranked]
    total, running = sum(counts), list(accumulate(counts))
    for place, (who, directions) in enumerate(ranked[:_TALKERS] if total else ()):
        count = counts[place]
        yield Talker(
            place + 1,
            *who,
            directions["fetch"],
            directions["produce"],
            count,
            count / total,
            running[place] / total,
        )


def _bytes_by_direction(counts: Iterator[tuple[str, int]]) -> Mapping[str, int]:
    totals: defaultdict[str, int] = defaultdict(int)
    for direction, count in counts:
        totals[direction] += count
    return totals


# Rates against contracts


def _contract_use(tables: PeriodTables, directory: MemberDirectory) -> tuple[ContractUse, ...]:
    """A line for each member and direction, nearest to its contract first, those without one last.

    p95 is exact: by nearest rank over the 5-minute rates of the windows in which a broker saw the
    member. Without those rows it is the highest p95 of any hour or day, which the true one does not
    exceed.
    """
    exact = None if tables.usage_5m is None else _p95_rates(tables.usage_5m)
    found = []
    for row in grouped(tables.usage, (*_CLIENT, "direction"), max=("peak_rate", "p95")):
        contract = directory.contract(_client(row), row["direction"])
        p95_rate = (
            row["p95"]
            if exact is None
            else exact.get((row["user"], row["client_id"], row["direction"]))
        )
        found.append(
            ContractUse(
                member=directory.name(_client(row)),
                tier=row["tier"],
                user=row["user"],
                client_id=row["client_id"],
                direction=row["direction"],
                contract=contract,
                p95_rate=p95_rate,
                p95_share=None if p95_rate is None else _share(p95_rate, contract),
                peak_rate=row["peak_rate"],
                peak_share=_share(row["peak_rate"], contract),
                p95_is_bound=exact is None,
            )
        )
    return tuple(
        sorted(
            found,
            key=lambda one: (
                one.p95_share is None,
                -(one.p95_share or 0),
                -one.peak_rate,
                one.member,
                one.direction,
            ),
        )
    )


def _p95_rates(usage_5m: pa.Table) -> Mapping[tuple[str, str, str], float]:
    """By user, client id and direction the p95 on the broker where it is highest."""
    measured = usage_5m.filter(pc.greater(usage_5m["samples"], 0))
    if not measured.num_rows:
        return {}
    codes, groups = _group_codes(measured.select(["user", "client_id", "direction", "broker"]))
    highest: dict[tuple[str, str, str], float] = {}
    p95_rates = nearest_ranks(codes, measured["bytes"].to_numpy(), 0.95) / (FIVE_MINUTES_MS / 1000)
    for row, rate in zip(groups.to_pylist(), p95_rates.tolist(), strict=True):
        who = (row["user"], row["client_id"], row["direction"])
        highest[who] = max(highest.get(who, 0.0), rate)
    return highest


def _group_codes(keys: pa.Table) -> tuple[NDArray[np.int64], pa.Table]:
    """A number from 0 on for each row, the same in rows with the same keys, and the keys by number.
    There must be a row.
    """
    combined = np.zeros(keys.num_rows, np.int64)
    for name in keys.column_names:
        encoded = keys[name].combine_chunks().dictionary_encode()
        combined = combined * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, keys.take(first)


def nearest_ranks(
    codes: NDArray[np.int64], values: NDArray[np.int64], fraction: float
) -> NDArray[np.int64]:
    """Of each group, by number, the smallest value that at least this fraction of its values do not
    exceed. No group is empty.
    """
    ordered = values[np.lexsort((values, codes))]
    sizes = np.bincount(codes)
    ends = np.cumsum(sizes)
    ranks: NDArray[np.int64] = ordered[
        ends - sizes + np.ceil(fraction * sizes).astype(np.int64) - 1
    ]
    return ranks


def _recommendation(one: RecommendedContract, directory: MemberDirectory) -> Recommendation:
    change = (
        None
        if one.recommended is None
        else _share(one.recommended - (one.contract or 0), one.contract)
    )
    return Recommendation(
        member=directory.name(one.client),
        tier=one.client.tier,
        user=one.client.user,
        client_id=one.client.client_id,
        direction=one.direction,
        form=one.form,
        contract=one.contract,
        recommended=one.recommended,
        change=change,
        applied=one.applied,
        p99_rate=one.p99_rate,
        reason=one.reason,
        message=one.message,
    )


# Brokers against their limits


def _broker_figures(tables: PeriodTables) -> tuple[BrokerFigures, ...]:
    """A line for each broker and direction. Means are over the windows that the table has, not over
    gaps.
    """
    finest, step_ms = tables.finest_brokers
    busiest, limits = at_highest(finest, _NIC, "nic_bytes"), _last_limits(tables.brokers)
    byte_columns = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
    rows = grouped(
        tables.brokers,
        _NIC,
        sum=(*byte_columns, "over_limit_seconds"),
        count_distinct=("window_start",),
    )
    found = []
    for row in sorted(rows, key=_nic):
        limit, window = limits.get(_nic(row)), busiest[_nic(row)]
        mean_rate = row["nic_bytes"] / (row["window_start"] * tables.grain_ms / 1000)
        busiest_rate = window["nic_bytes"] / (step_ms / 1000)
        found.append(
            BrokerFigures(
                **{name: row[name] for name in (*_NIC, *byte_columns, "over_limit_seconds")},
                limit=limit,
                mean_rate=mean_rate,
                mean_share=_share(mean_rate, limit),
                busiest_start=iso_time(window["window_start"]),
                busiest_seconds=step_ms // 1000,
                busiest_rate=busiest_rate,
                busiest_share=_share(busiest_rate, limit),
                headroom_rate=None if limit is None else limit - busiest_rate,
            )
        )
    return tuple(found)


def _nic(row: Row) -> tuple[Any, ...]:
    return row["broker"], row["direction"]


def _last_limits(brokers: pa.Table) -> Mapping[tuple[Any, ...], int]:
    """Of each NIC the limit of its last window that has one."""
    known = brokers.filter(pc.is_valid(brokers["limit"]))
    last = at_highest(known, _NIC, "window_start")
    rows = grouped(known, (*_NIC, "window_start"), max=("limit",))
    return {
        _nic(row): row["limit"]
        for row in rows
        if row["window_start"] == last[_nic(row)]["window_start"]
    }


# Traffic over time, in few enough steps to draw


def _traffic_points(tables: PeriodTables) -> tuple[TrafficPoint, ...]:
    """The bytes of each tier, by direction, time and tier. A step is a whole number of windows; the
    last may be shorter.
    """
    usage, window_ms = tables.drawn_usage
    lines = 2 * max(1, len(usage["tier"].unique()))
    step_ms = _step_ms(
        tables,
        window_ms,
        max(_FEWEST_TRAFFIC_STEPS, min(_MOST_TRAFFIC_STEPS, _TRAFFIC_POINTS // lines)),
    )
    stepped = floored(usage, step_ms, origin_ms=tables.start_ms)
    rows = list(grouped(stepped, ("window_start", "tier", "direction"), sum=("bytes",)))
    rows.sort(key=lambda row: (row["direction"], row["window_start"], row["tier"]))
    return tuple(
        TrafficPoint(
            iso_time(row["window_start"]),
            seconds,
            row["tier"],
            row["direction"],
            row["bytes"],
            row["bytes"] / seconds,
        )
        for row in rows
        for seconds in (_step_seconds(row, tables, step_ms),)
    )


def _load_points(tables: PeriodTables, brokers: Sequence[BrokerFigures]) -> tuple[LoadPoint, ...]:
    """The load of the NICs nearest to their limits, by broker, direction and time; none without a
    limit.
    """
    fullest = sorted(
        (one for one in brokers if one.busiest_share is not None),
        key=lambda one: -(one.busiest_share or 0),
    )
    limits = {
        (one.broker, one.direction): one.limit
        for one in fullest[:_NICS_DRAWN]
        if one.limit is not None
    }
    finest, window_ms = tables.finest_brokers
    drawn = finest.filter(
        pc.is_in(
            finest["broker"],
            value_set=pa.array(sorted({broker for broker, _ in limits}), pa.int32()),
        )
    )
    step_ms = _step_ms(tables, window_ms, _LOAD_STEPS)
    stepped = floored(drawn, step_ms, origin_ms=tables.start_ms)
    stepped = stepped.append_column("busiest", stepped["nic_bytes"])
    rows = list(grouped(stepped, ("window_start", *_NIC), sum=("nic_bytes",), max=("busiest",)))
    rows.sort(key=lambda row: (row["broker"], row["direction"], row["window_start"]))
    return tuple(
        _load(row, tables, step_ms, window_ms, limits[_nic(row)])
        for row in rows
        if _nic(row) in limits
    )


def _load(row: Row, tables: PeriodTables, step_ms: int, window_ms: int, limit: int) -> LoadPoint:
    seconds = _step_seconds(row, tables, step_ms)
    rate, busiest = row["nic_bytes"] / seconds, row["busiest"] / (window_ms / 1000)
    return LoadPoint(
        start=iso_time(row["window_start"]),
        seconds=seconds,
        broker=row["broker"],
        direction=row["direction"],
        nic_bytes=row["nic_bytes"],
        rate=rate,
        share=_share(rate, limit),
        busiest_rate=busiest,
        busiest_share=_share(busiest, limit),
    )


def _step_ms(tables: PeriodTables, window_ms: int, most_steps: int) -> int:
    """One window if the period is short; else as many whole windows as keep the number of steps
    within the bound.
    """
    if tables.is_short:
        return window_ms
    windows = ceil((tables.end_ms - tables.start_ms) / tables.grain_ms)
    return tables.grain_ms * ceil(windows / most_steps)


def _step_seconds(row: Row, tables: PeriodTables, step_ms: int) -> float:
    start_ms: int = row["window_start"]
    return min(step_ms, tables.end_ms - start_ms) / 1000


def _throttled_windows(
    tables: PeriodTables, directory: MemberDirectory
) -> tuple[ThrottledWindow, ...]:
    """A line for each window, tier and direction with any time below the contract, in order of
    time.
    """
    held = tables.tiers.filter(
        pc.greater(pc.add(*(tables.tiers[name] for name in _BELOW_CONTRACT)), 0.0)
    )
    rows = held.sort_by(
        [("window_start", "ascending"), ("tier", "ascending"), ("direction", "ascending")]
    ).to_pylist()
    return tuple(
        ThrottledWindow(
            start=iso_time(row["window_start"]),
            seconds=tables.grain_ms / 1000,
            level=directory.level(row["tier"]),
            **{
                name: row[name]
                for name in ("tier", "direction", "throttle_episodes", *_BELOW_CONTRACT)
            },
        )
        for row in rows
    )


# What is counted, what is estimated, and how far estimates were scaled


def _calibrations(
    usage_5m: pa.Table | None, brokers: Sequence[BrokerFigures]
) -> tuple[Calibration, ...]:
    """A line for each broker and direction; without the 5-minute rows the factors are unknown."""
    factors: defaultdict[tuple[Any, ...], list[float | None]] = defaultdict(list)
    if usage_5m is not None:
        # the factor of a window is the same for every user, and None if there was none
        for row in grouped(usage_5m, (*_NIC, "window_start"), max=("calibration",)):
            factors[_nic(row)].append(row["calibration"])
    return tuple(_calibration(nic, factors[nic.broker, nic.direction]) for nic in brokers)


def _calibration(nic: BrokerFigures, factors: Sequence[float | None]) -> Calibration:
    known = [factor for factor in factors if factor is not None]
    return Calibration(
        broker=nic.broker,
        direction=nic.direction,
        windows=len(factors),
        unscaled_windows=len(factors) - len(known),
        bounded_windows=sum(not LEAST_FACTOR < factor < MOST_FACTOR for factor in known),
        lowest_factor=min(known, default=None),
        median_factor=median(known) if known else None,
        highest_factor=max(known, default=None),
        unattributed_bytes=nic.unattributed_bytes,
        unattributed_share=_share(nic.unattributed_bytes, nic.client_bytes),
    )


def _doubtful_members(
    tables: PeriodTables, members: Sequence[MemberFigures]
) -> tuple[DoubtfulMember, ...]:
    """Members that were never scaled to a broker's count, or have a window with too few of its
    samples; most bytes first.
    """
    rows = grouped(tables.usage, (*_CLIENT, "direction"), min=("coverage",))
    coverages = {(_client(row), row["direction"]): row["coverage"] for row in rows}
    unscaled: set[tuple[str, str, str]] = set()
    if tables.usage_5m is not None:
        for row in grouped(
            tables.usage_5m, ("user", "client_id", "direction"), max=("calibration",)
        ):
            if row["calibration"] is None:
                unscaled.add((row["user"], row["client_id"], row["direction"]))
    found = []
    for one in members:
        coverage = coverages[ClientKey(one.tier, one.user, one.client_id), one.direction]
        never_scaled = (one.user, one.client_id, one.direction) in unscaled
        if never_scaled or coverage < ENOUGH_COVERAGE:
            found.append(
                DoubtfulMember(
                    one.member, one.tier, one.direction, one.bytes, coverage, never_scaled
                )
            )
    return tuple(found)


# How to reproduce numbers by hand: SQL on the usage tables, and selectors of the series in
# Prometheus. No query is run here. The SQL is for DuckDB, with the store's files as tables of these
# names.


_CALIBRATED = (
    "For each broker and 5-minute window: the sum of the gauge's samples times their intervals, "
    "times the growth of the broker's own byte "
    "counter, divided by that sum over all users. The result is `bytes` of usage_5m, and "
    "`calibration` the factor."
)
_COUNTED = (
    "Query Prometheus for the raw samples of the series below, `selector[1h]` at the end of each "
    "hour. Sum up each sample less the one "
    "before it; where that is negative the counter was reset, and the sample itself counts. "
    "`increase()` extrapolates and gives another "
    "number."
)


def recipes_of(
    request: ReportRequest,
    members: Sequence[MemberFigures],
    brokers: Sequence[BrokerFigures],
    uses: Sequence[ContractUse],
) -> tuple[Recipe, ...]:
    """One for each kind of number, about the largest of its kind."""
    exact = [use for use in uses if not use.p95_is_bound and use.p95_rate is not None]
    fullest = sorted(brokers, key=lambda nic: -nic.nic_bytes)
    return (
        *(_member_recipe(request, one) for one in members[:1]),
        *(price for one in members[:1] for price in _price_recipe(request, one)),
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


def _price_recipe(request: ReportRequest, one: MemberFigures) -> Iterator[Recipe]:
    for direction, price in request.prices.per_gib.items():
        if direction == one.direction:
            how = f"{one.bytes} / {GIB} x {price}, rounded half up to hundredths"
            yield Recipe(f"price of {one.member}, {direction}", str(one.amount), how)


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
        f"TIMESTAMPTZ '{iso_time(at_ms)}'" for at_ms in (request.start_ms, request.end_ms)
    )
    return f"window_start >= {start}", f"window_start < {end}"
