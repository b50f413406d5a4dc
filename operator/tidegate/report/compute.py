"""Computes the figures of a report from its request."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from math import ceil
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate import __version__
from tidegate.report.bill import Who, bill_lines, reconciliation, tier_totals, tolerances
from tidegate.report.charges import amounts_by, charges_of, unattributed_amounts
from tidegate.report.evidence import calibrations, doubtful_members, recipes_of
from tidegate.report.figures import (
    BrokerFigures,
    Charge,
    ContractUse,
    LoadPoint,
    MemberFigures,
    Origin,
    Period,
    Price,
    ReportFigures,
    Talker,
    ThrottledWindow,
    TierFigures,
    Total,
    TrafficPoint,
)
from tidegate.report.period import (
    CLIENT,
    NIC,
    PeriodTables,
    Row,
    at_highest,
    by_keys,
    client_of,
    episodes_of,
    floored,
    grouped,
    nic_of,
    period_tables,
    share_of,
)
from tidegate.report.request import (
    GRAINS,
    MemberDirectory,
    Provenance,
    ReportRequest,
    total_of,
)
from tidegate.report.trends import (
    FEWEST_WEEKS,
    bytes_before,
    change_of,
    label_figures,
    unusual_days,
)
from tidegate.rollup.labels import BUDGET_LABEL, labels_of
from tidegate.rollup.schemas import FIVE_MINUTES_MS, Direction
from tidegate.rollup.terms.sources import read_trail
from tidegate_logic.words import rfc3339_ms

_DIRECTIONS: Final[tuple[Direction, ...]] = ("fetch", "produce")
_BELOW_CONTRACT: Final = ("seconds_throttled", "seconds_relaxing")
_STATES: Final = ("seconds_contract", "seconds_stepping", *_BELOW_CONTRACT)
_TALKERS = 10
_MOST_TRAFFIC_STEPS, _FEWEST_TRAFFIC_STEPS = 120, 24
_TRAFFIC_POINTS = 2000  # of both directions: more would only make the page large
_LOAD_STEPS = 48
NICS_DRAWN = 24


def figures_of(request: ReportRequest) -> ReportFigures:
    """Every number of the report.

    Raises InvalidResource if the period is empty or cuts a window in two.
    """
    tables, directory = period_tables(request), MemberDirectory(request.members)
    card = request.rate_card
    charges = (
        charges_of(tables, directory, card, request.zone)
        if request.closed_charges is None
        else tuple(request.closed_charges)
    )
    total_amount = total_of(one.amount for one in charges)
    currencies = {one.currency for one in request.corrections}
    currency = card.currency or (min(currencies) if len(currencies) == 1 else "")
    corrected = total_of(one.amount for one in request.corrections if one.currency == currency)
    before, unattributed = (
        bytes_before(request.before),
        unattributed_amounts(tables, card, request.zone),
    )
    known = tolerances(tables, request.bounds)
    members = _member_figures(tables, directory, charges, before, known)
    brokers = _broker_figures(tables)
    totals = tuple(
        _total(direction, members, brokers, before, unattributed.get(direction))
        for direction in _DIRECTIONS
    )
    uses = _contract_use(tables, directory)
    days = request.days
    trail = read_trail(request.trail or (), request.policy, end_ms=request.end_ms)
    return ReportFigures(
        policy=request.provenance.policy or request.policy,
        kafka_cluster_id=request.provenance.cluster,
        made_at=rfc3339_ms(request.made_at_ms),
        made_by=__version__,
        period=_period(tables, request),
        currency=currency,
        prices=tuple(_prices(request)),
        charges=bill_lines(charges, known, card, tables, request.zone),
        closed=request.closed,
        corrections=tuple(request.corrections),
        corrections_amount=corrected,
        amount_due=total_of([total_amount, corrected]),
        total_bytes=sum(one.bytes for one in members),
        total_amount=total_amount,
        totals=totals,
        reconciliation=reconciliation(totals, charges),
        tier_totals=tier_totals(members, known),
        tiers=_tier_figures(tables.tiers, members, uses),
        members=members,
        labels=label_figures(
            *(
                _label_names(request.by_labels, tables.usage),
                *(tables, charges, request.before, card.budgets, request.zone),
            ),
            known,
        ),
        unusual_days=()
        if days is None
        else unusual_days(days.usage, days.published, request.start_ms, request.end_ms, directory),
        days_compared=days is not None
        and sum(day < request.start_ms for day in days.published) >= 7 * FEWEST_WEEKS,
        contract_use=uses,
        talkers=tuple(_top_talkers(members)),
        brokers=brokers,
        traffic=_traffic_points(tables),
        load=_load_points(tables, brokers),
        trail_given=request.trail is not None,
        episodes=episodes_of(trail, request.start_ms, request.end_ms),
        states_known=any((pc.sum(tables.tiers[name]).as_py() or 0.0) > 0 for name in _STATES),
        throttled_windows=_throttled_windows(tables, directory),
        recommendations=tuple(request.recommendations),
        five_minutes=tables.usage_5m is not None,
        tierless_windows=len(request.provenance.tierless) if request.members else 0,
        least_factor=request.bounds.least,
        most_factor=request.bounds.most,
        calibration=calibrations(tables.usage_5m, brokers, request.bounds),
        doubtful=doubtful_members(tables, members, request.bounds),
        recipes=recipes_of(request, members, brokers, uses, charges),
        origin=_origin(request.provenance),
    )


def _label_names(asked: Sequence[str], usage: pa.Table) -> Sequence[str]:
    """The labels by which the report adds up: those that were asked for, and budgets if any."""
    names = dict.fromkeys(asked)
    if any(BUDGET_LABEL in labels_of(text) for text in usage["labels"].unique().to_pylist()):
        names.setdefault(BUDGET_LABEL)
    return tuple(names)


def _period(tables: PeriodTables, request: ReportRequest) -> Period:
    length_ms = tables.end_ms - tables.start_ms
    published, before = request.tables.published, request.before
    return Period(
        name=request.month,
        timezone=str(request.zone),
        before=""
        if before is None
        else f"{rfc3339_ms(before.start_ms)}/{rfc3339_ms(before.end_ms)}",
        before_is_complete=before is not None and before.is_complete,
        start=rfc3339_ms(tables.start_ms),
        end=rfc3339_ms(tables.end_ms),
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


# Members, tiers and totals


def _prices(request: ReportRequest) -> Iterator[Price]:
    """What the card charges in the period. A direction without a price is named, too."""
    card = request.rate_card
    for start_ms, end_ms, rates in card.spans(request.start_ms, request.end_ms, request.zone):
        span = rfc3339_ms(start_ms), rfc3339_ms(end_ms)
        if rates.cost_per_month is not None:
            shared_by = f"cost shared by {rates.share_by.lower()}"
            yield Price(*span, shared_by, rates.cost_per_month, "month")
            continue
        for direction in _DIRECTIONS:
            yield Price(*span, direction, rates.per_gib.get(direction), "GiB")
        for level, prices in sorted(rates.of_level.items()):
            for way, amount in sorted(prices.items()):
                yield Price(*span, f"{way} of {level}", amount, "GiB")
        if rates.replication_per_gib is not None:
            yield Price(*span, "replication", rates.replication_per_gib, "GiB")


def _member_figures(
    tables: PeriodTables,
    directory: MemberDirectory,
    charges: Sequence[Charge],
    before: Mapping[Who, int],
    known: Mapping[Who, float],
) -> tuple[MemberFigures, ...]:
    """A line for each member and direction, most bytes first; `share` is of the direction's.

    A member without traffic has a line where it pays for its contract.
    """
    usage = tables.usage
    published_ms = tables.grain_ms * len(usage["window_start"].unique())
    amounts, labels = dict(amounts_by(charges)), _labels(usage)
    rows = list(
        grouped(
            usage,
            (*CLIENT, "direction"),
            sum=("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes"),
            mean=("coverage",),
            count_distinct=("broker",),
        )
    )
    totals = _bytes_by_direction((row["direction"], row["bytes"]) for row in rows)
    figures = [
        MemberFigures(
            member=directory.name(client_of(row)),
            level=directory.level(row["tier"]),
            labels=labels[row["tier"], row["user"], row["client_id"]],
            share=share_of(row["bytes"], totals[row["direction"]]),
            change=change_of(
                row["bytes"], before.get((row["user"], row["client_id"], row["direction"]))
            ),
            amount=amounts.pop(
                (row["tier"], row["user"], row["client_id"], row["direction"]), None
            ),
            tolerance=known.get((row["user"], row["client_id"], row["direction"])),
            over_contract_share=share_of(
                row["over_contract_seconds"], row["broker"] * published_ms / 1000
            ),
            brokers=row.pop("broker"),
            **row,
        )
        for row in rows
    ]
    idle = {
        (one.tier, one.user, one.client_id, one.direction): one for one in charges if one.member
    }
    figures += [_idle_member(idle[key], amount) for key, amount in sorted(amounts.items())]
    return tuple(
        sorted(
            figures, key=lambda one: (-one.bytes, one.tier, one.user, one.client_id, one.direction)
        )
    )


def _labels(usage: pa.Table) -> Mapping[tuple[str, str, str], Mapping[str, str]]:
    """The labels of each client in its last window."""
    last: dict[tuple[str, str, str], tuple[int, str]] = {}
    for row in grouped(usage, (*CLIENT, "labels"), max=("window_start",)):
        key = row["tier"], row["user"], row["client_id"]
        last[key] = max(last.get(key, (-1, "")), (row["window_start"], row["labels"]))
    return {key: labels_of(text) for key, (_, text) in last.items()}


def _idle_member(charge: Charge, amount: Decimal) -> MemberFigures:
    known = ("member", "tier", "level", "user", "client_id", "direction", "labels")
    return MemberFigures(
        **{name: getattr(charge, name) for name in known},
        brokers=0,
        bytes=0,
        share=0.0,
        change=None,
        amount=amount,
        tolerance=None,
        throttled_seconds=0.0,
        over_contract_seconds=0.0,
        over_contract_share=None,
        deferred_bytes=0,
        coverage=None,
    )


def _tier_figures(
    tiers: pa.Table, members: Sequence[MemberFigures], uses: Sequence[ContractUse]
) -> tuple[TierFigures, ...]:
    """A line for each tier and direction with a member that was seen, most important level first.

    Bytes and amounts are sums of the members' lines, rates the highest of theirs. States come from
    the tier table, None without a row.
    """
    groups: defaultdict[tuple[str, str], list[MemberFigures]] = defaultdict(list)
    for one in members:
        groups[one.tier, one.direction].append(one)
    totals = _bytes_by_direction((one.direction, one.bytes) for one in members)
    rows = grouped(tiers, ("tier", "direction"), sum=("throttle_episodes", *_STATES))
    by_key = {(row["tier"], row["direction"]): row for row in rows}
    rates: defaultdict[tuple[str, str], list[ContractUse]] = defaultdict(list)
    for use in uses:
        rates[use.tier, use.direction].append(use)
    figures = [
        _tier(
            ours,
            totals[direction],
            by_key.get((tier, direction), {}),
            rates[tier, direction],
        )
        for (tier, direction), ours in groups.items()
    ]
    return tuple(sorted(figures, key=lambda one: (one.level or "~", one.tier, one.direction)))


def _tier(
    members: Sequence[MemberFigures], total_bytes: int, row: Row, uses: Sequence[ContractUse]
) -> TierFigures:
    moved = sum(one.bytes for one in members)
    return TierFigures(
        tier=members[0].tier,
        level=members[0].level,
        direction=members[0].direction,
        members=len(members),
        bytes=moved,
        share=share_of(moved, total_bytes),
        amount=total_of(one.amount for one in members),
        throttled_seconds=sum(one.throttled_seconds for one in members),
        deferred_bytes=sum(one.deferred_bytes for one in members),
        peak_rate=max((use.peak_rate for use in uses), default=None),
        highest_p95_rate=max(
            (use.p95_rate for use in uses if use.p95_rate is not None), default=None
        ),
        throttle_episodes=row.get("throttle_episodes"),
        **{state: row.get(state) for state in _STATES},
    )


def _total(
    direction: Direction,
    members: Sequence[MemberFigures],
    brokers: Sequence[BrokerFigures],
    before: Mapping[tuple[str, str, str], int],
    unattributed_amount: Decimal | None,
) -> Total:
    ours = [one for one in members if one.direction == direction]
    nics = [nic for nic in brokers if nic.direction == direction]
    moved = sum(one.bytes for one in ours)
    return Total(
        direction=direction,
        bytes=moved,
        change=change_of(
            moved, sum(count for (_, _, way), count in before.items() if way == direction)
        ),
        amount=total_of(one.amount for one in ours),
        counted_bytes=sum(nic.client_bytes for nic in nics),
        unattributed_bytes=sum(nic.unattributed_bytes for nic in nics),
        unattributed_amount=unattributed_amount,
        throttled_seconds=sum(one.throttled_seconds for one in ours),
        deferred_bytes=sum(one.deferred_bytes for one in ours),
    )


def _top_talkers(members: Sequence[MemberFigures]) -> Iterator[Talker]:
    """The members with most bytes of both directions; `running_share` adds up from the first on."""
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
    member. Without those rows it is the highest p95 of any hour or day, an upper bound of the true
    one. A gauge may read less than the bytes that were scaled to the broker's count, so the peak is
    no lower than the busiest five minutes, or than the highest percentile of an hour or day.
    """
    exact = None if tables.usage_5m is None else _p95_rates(tables.usage_5m)
    busiest = None if tables.usage_5m is None else _busiest_rates(tables.usage_5m)
    found = []
    for row in grouped(tables.usage, (*CLIENT, "direction"), max=("peak_rate", "p95", "p99")):
        who = (row["user"], row["client_id"], row["direction"])
        mean_rate = (row["p99"] or 0.0) if busiest is None else busiest.get(who, 0.0)
        peak_rate = max(row["peak_rate"], mean_rate)
        contract = directory.contract(client_of(row), row["direction"])
        p95_rate = row["p95"] if exact is None else exact.get(who)
        found.append(
            ContractUse(
                **directory.who(client_of(row)),
                direction=row["direction"],
                contract=contract,
                p95_rate=p95_rate,
                p95_share=None if p95_rate is None else share_of(p95_rate, contract),
                peak_rate=peak_rate,
                peak_share=share_of(peak_rate, contract),
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


def _busiest_rates(usage_5m: pa.Table) -> Mapping[tuple[Any, ...], float]:
    """By user, client id and direction the rate of the busiest five minutes on a broker."""
    most = by_keys(usage_5m, ("user", "client_id", "direction"), "max", "bytes")
    return {who: count / (FIVE_MINUTES_MS / 1000) for who, count in most.items()}


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
    """For each row the number of its group, from 0 on, and the keys of each group; needs a row."""
    combined = np.zeros(keys.num_rows, np.int64)
    for name in keys.column_names:
        encoded = keys[name].combine_chunks().dictionary_encode()
        combined = combined * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, keys.take(first)


def nearest_ranks(
    codes: NDArray[np.int64], values: NDArray[np.int64], fraction: float
) -> NDArray[np.int64]:
    """The nearest-rank quantile of each group: its smallest value that is >= this fraction of them.

    `codes` are the groups' numbers from 0 on; none may be empty.
    """
    ordered = values[np.lexsort((values, codes))]
    sizes = np.bincount(codes)
    ends = np.cumsum(sizes)
    ranks: NDArray[np.int64] = ordered[
        ends - sizes + np.ceil(fraction * sizes).astype(np.int64) - 1
    ]
    return ranks


# Brokers against their limits


def _broker_figures(tables: PeriodTables) -> tuple[BrokerFigures, ...]:
    """A line for each broker and direction; means are over the windows with rows, not gaps."""
    finest, step_ms = tables.finest_brokers
    busiest, limits = at_highest(finest, NIC, "nic_bytes"), _last_limits(tables.brokers)
    byte_columns = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
    rows = grouped(
        tables.brokers,
        NIC,
        sum=(*byte_columns, "over_limit_seconds"),
        count_distinct=("window_start",),
    )
    found = []
    for row in sorted(rows, key=nic_of):
        limit, window = limits.get(nic_of(row)), busiest[nic_of(row)]
        mean_rate = row["nic_bytes"] / (row["window_start"] * tables.grain_ms / 1000)
        busiest_rate = window["nic_bytes"] / (step_ms / 1000)
        found.append(
            BrokerFigures(
                **{name: row[name] for name in (*NIC, *byte_columns, "over_limit_seconds")},
                limit=limit,
                mean_rate=mean_rate,
                mean_share=share_of(mean_rate, limit),
                busiest_start=rfc3339_ms(window["window_start"]),
                busiest_seconds=step_ms // 1000,
                busiest_rate=busiest_rate,
                busiest_share=share_of(busiest_rate, limit),
                headroom_rate=None if limit is None else limit - busiest_rate,
            )
        )
    return tuple(found)


def _last_limits(brokers: pa.Table) -> Mapping[tuple[Any, ...], int]:
    """Of each NIC the limit of its last window that has one."""
    known = brokers.filter(pc.is_valid(brokers["limit"]))
    last = by_keys(known, NIC, "max", "window_start")
    limits = by_keys(known, (*NIC, "window_start"), "max", "limit")
    return {nic: limits[*nic, at] for nic, at in last.items()}


# Traffic over time, in few enough steps to draw


def _traffic_points(tables: PeriodTables) -> tuple[TrafficPoint, ...]:
    """The bytes of each tier by direction, time and tier.

    A step is a whole number of windows; the last may be shorter.
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
            rfc3339_ms(row["window_start"]),
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
    """The load of the fullest NICs by broker, direction and time; none without a limit."""
    fullest = sorted(
        (one for one in brokers if one.busiest_share is not None),
        key=lambda one: -(one.busiest_share or 0),
    )
    limits = {
        (one.broker, one.direction): one.limit
        for one in fullest[:NICS_DRAWN]
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
    rows = list(grouped(stepped, ("window_start", *NIC), sum=("nic_bytes",), max=("busiest",)))
    rows.sort(key=lambda row: (row["broker"], row["direction"], row["window_start"]))
    return tuple(
        _load(row, tables, step_ms, window_ms, limits[nic_of(row)])
        for row in rows
        if nic_of(row) in limits
    )


def _load(row: Row, tables: PeriodTables, step_ms: int, window_ms: int, limit: int) -> LoadPoint:
    seconds = _step_seconds(row, tables, step_ms)
    rate, busiest = row["nic_bytes"] / seconds, row["busiest"] / (window_ms / 1000)
    return LoadPoint(
        start=rfc3339_ms(row["window_start"]),
        seconds=seconds,
        broker=row["broker"],
        direction=row["direction"],
        nic_bytes=row["nic_bytes"],
        rate=rate,
        share=share_of(rate, limit),
        busiest_rate=busiest,
        busiest_share=share_of(busiest, limit),
    )


def _step_ms(tables: PeriodTables, window_ms: int, most_steps: int) -> int:
    """One window if the period is short; else whole windows, in at most `most_steps` steps."""
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
    """A line for each window, tier and direction with time below the contract, in order of time."""
    held = tables.tiers.filter(
        pc.greater(pc.add(*(tables.tiers[name] for name in _BELOW_CONTRACT)), 0.0)
    )
    rows = held.sort_by(
        [("window_start", "ascending"), ("tier", "ascending"), ("direction", "ascending")]
    ).to_pylist()
    return tuple(
        ThrottledWindow(
            start=rfc3339_ms(row["window_start"]),
            seconds=tables.grain_ms / 1000,
            level=directory.level(row["tier"]),
            **{
                name: row[name]
                for name in ("tier", "direction", "throttle_episodes", *_BELOW_CONTRACT)
            },
        )
        for row in rows
    )
