"""A request becomes figures. Each part is computed in a module of its own; here they are only put together."""

from collections.abc import Sequence

from tidegate.rollup.report.brokers import broker_figures
from tidegate.rollup.report.episodes import episodes_of
from tidegate.rollup.report.exactness import calibrations, doubtful_members
from tidegate.rollup.report.figures import (
    BrokerFigures,
    MemberFigures,
    Origin,
    Period,
    Price,
    Recommendation,
    ReportFigures,
    Total,
)
from tidegate.rollup.report.members import member_figures, share_of, top_talkers
from tidegate.rollup.report.period_tables import PeriodTables, period_tables
from tidegate.rollup.report.pricing import total_of
from tidegate.rollup.report.rates import contract_use
from tidegate.rollup.report.recipes import recipes_of
from tidegate.rollup.report.registry import Registry
from tidegate.rollup.report.request import GRAIN_WORDS, Provenance, RecommendedContract, ReportRequest, moment
from tidegate.rollup.report.throttled_windows import are_states_known, throttled_windows
from tidegate.rollup.report.tiers import tier_figures
from tidegate.rollup.report.traffic import load_points, traffic_points
from tidegate.rollup.schemas import Direction
from tidegate.rollup.trail import read_trail

_DIRECTIONS: tuple[Direction, ...] = ("fetch", "produce")


def figures_of(request: ReportRequest) -> ReportFigures:
    """Every number of the report. Raises InvalidResource where the period is empty or cuts a window in two."""
    tables, registry = period_tables(request), Registry(request.members)
    members = member_figures(tables.usage, registry, request.prices)
    brokers = broker_figures(tables)
    uses = contract_use(tables.usage, tables.usage_5m, registry)
    trail = read_trail(request.trail or (), request.policy, end_ms=request.end_ms)
    return ReportFigures(
        policy=request.policy,
        made_at=moment(request.made_at_ms),
        period=_period(tables, request.tables.published),
        currency=request.prices.currency,
        prices=tuple(Price(direction, request.prices.per_gib.get(direction)) for direction in _DIRECTIONS),
        total_bytes=sum(one.bytes for one in members),
        total_amount=total_of(one.amount for one in members),
        totals=tuple(_total(direction, members, brokers) for direction in _DIRECTIONS),
        tiers=tier_figures(tables.tiers, members),
        members=members,
        contract_use=uses,
        talkers=top_talkers(members),
        brokers=brokers,
        traffic=traffic_points(tables),
        load=load_points(tables, brokers),
        trail_given=request.trail is not None,
        episodes=episodes_of(trail, request.start_ms, request.end_ms),
        states_known=are_states_known(tables.tiers),
        throttled_windows=throttled_windows(tables.tiers, registry, grain_ms=tables.grain_ms),
        recommendations=tuple(_recommendation(one, registry) for one in request.recommendations),
        five_minutes=tables.usage_5m is not None,
        calibration=calibrations(tables.usage_5m, brokers),
        doubtful=doubtful_members(tables, members),
        recipes=recipes_of(request, members, brokers, uses),
        origin=_origin(request.provenance),
    )


def _period(tables: PeriodTables, published: int | None) -> Period:
    span_ms = tables.end_ms - tables.start_ms
    return Period(
        start=moment(tables.start_ms),
        end=moment(tables.end_ms),
        seconds=span_ms / 1000,
        grain=GRAIN_WORDS[tables.grain_ms],
        windows=span_ms // tables.grain_ms,
        published_windows=tables.windows_with_rows if published is None else published,
    )


def _total(direction: Direction, members: Sequence[MemberFigures], brokers: Sequence[BrokerFigures]) -> Total:
    ours = [one for one in members if one.direction == direction]
    cards = [card for card in brokers if card.direction == direction]
    return Total(
        direction=direction,
        bytes=sum(one.bytes for one in ours),
        amount=total_of(one.amount for one in ours),
        counted_bytes=sum(card.client_bytes for card in cards),
        unattributed_bytes=sum(card.unattributed_bytes for card in cards),
        throttled_seconds=sum(one.throttled_seconds for one in ours),
        deferred_bytes=sum(one.deferred_bytes for one in ours),
    )


def _recommendation(one: RecommendedContract, registry: Registry) -> Recommendation:
    change = None if one.recommended is None else share_of(one.recommended - (one.contract or 0), one.contract)
    return Recommendation(
        member=registry.name(one.client),
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


def _origin(provenance: Provenance) -> Origin:
    return Origin(
        store=provenance.store_url,
        schema_version=provenance.schema_version,
        transports=", ".join(provenance.transports),
        runs=", ".join(provenance.run_ids),
    )
