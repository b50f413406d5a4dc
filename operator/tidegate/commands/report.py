"""`tidegate report`: the chargeback report of a period, as a page and as CSV and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc
import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext, command_context
from tidegate.commands.inputs import PolicySource, bounds_of, policy_of, terms_of
from tidegate.commands.output import Page
from tidegate.commands.rollup import TIME, PolicyFiles, Store, store_address
from tidegate.commands.rollup_job import require_extra
from tidegate.control.audit.lines import lines_in
from tidegate.control.connections import settings_of
from tidegate.controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, NotFound
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.resources.fields import moment
from tidegate.rollup.fold.broker import BOUNDS, FactorBounds
from tidegate.rollup.member_usage import member_usage
from tidegate.rollup.report.request import (
    MemberTerms,
    Prices,
    RecommendedContract,
    ReportRequest,
    SourceSeries,
    UsageTables,
    member_terms,
    recommendations,
    source_series,
    stored_provenance,
    stored_tables,
)
from tidegate.rollup.schemas import Direction
from tidegate.rollup.tables.store import UsageStore

# The policy's share of a report: names of members, contracts, recommendations, prices, and the
# series behind its tables. Neither Kubernetes nor a Secret is read.


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """A policy's share of a report; without a policy only the series of the usual exporters."""

    key: str = ""
    members: Sequence[MemberTerms] = ()
    recommendations: Sequence[RecommendedContract] = ()
    per_gib: Mapping[Direction, Decimal] = field(default_factory=dict)
    series: Sequence[SourceSeries] = ()
    bounds: FactorBounds = BOUNDS


def policy_parts(
    source: PolicySource | None, store: UsageStore, tables: UsageTables, start_ms: int, end_ms: int
) -> PolicyParts:
    """Recommendations rest on the period [start, end). Raises what reading the store does."""
    terms = terms_of(source)
    if source is None or terms is None:
        return PolicyParts(series=tuple(source_series(MetricsSettings(PrometheusServer("")))))
    brokers = frozenset(pc.unique(tables.brokers["broker"]).to_pylist())
    usage = member_usage(store, terms.tiers, start_ms, end_ms)
    return PolicyParts(
        terms.key,
        member_terms(terms, brokers=len(brokers)),
        recommendations(source.declared.policy, terms, usage, brokers),
        _prices(source),
        tuple(source_series(_settings(source))),
        bounds_of(source),
    )


def _prices(source: PolicySource) -> Mapping[Direction, Decimal]:
    rollup = source.declared.spec.rollup
    price = rollup.price_per_gib if rollup is not None else None
    declared: Mapping[Direction, str | None] = (
        {} if price is None else {"fetch": price.fetch, "produce": price.produce}
    )
    return {
        direction: Decimal(amount) for direction, amount in declared.items() if amount is not None
    }


def _settings(source: PolicySource) -> MetricsSettings:
    """Which series are read; the login is left out."""
    spec = source.declared.spec.metrics
    if spec is None:
        return MetricsSettings(PrometheusServer(""))
    return settings_of(spec, PrometheusServer(spec.prometheus.url))


_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


def report(
    context: typer.Context,
    *,
    store: Store,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help=f"The first hour. {TIME}")],
    until: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="The end; an hour that is not over by then is left out."
        ),
    ] = "0s",
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Where report.html, report.json and the CSV files go."
        ),
    ] = Path("tidegate-report"),
    fetch_price: Annotated[
        str | None,
        typer.Option("--fetch-price", metavar="AMOUNT", help="Of a GiB (2^30 bytes) read."),
    ] = None,
    produce_price: Annotated[
        str | None, typer.Option("--produce-price", metavar="AMOUNT", help="Of a GiB written.")
    ] = None,
    currency: Annotated[
        str, typer.Option("--currency", metavar="TEXT", help="Shown beside amounts.")
    ] = "",
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="The operator's audit trail, for the timeline of throttle episodes.",
        ),
    ] = None,
    file: PolicyFiles = None,
    debug: options.Debug = False,
) -> None:
    """Write the report of whole hours, or of whole days where the period begins and ends with one,
    and say where the page is.

    With the policy's files members go by their names, contracts are recommended, and prices are the
    policy's unless given.
    """
    around = command_context(context, debug=debug)
    require_extra()
    from tidegate.rollup.report.compute import figures_of
    from tidegate.rollup.report.page import write_report

    given: Mapping[Direction, Decimal | None] = {
        "fetch": _amount(fetch_price),
        "produce": _amount(produce_price),
    }
    start_ms, end_ms = (_hour(around, text) for text in (since, until))
    grain_ms = _HOUR_MS if start_ms % _DAY_MS or end_ms % _DAY_MS else _DAY_MS
    found = UsageStore.at(store_address(store))
    tables = stored_tables(found, start_ms, end_ms, grain_ms=grain_ms)
    if not tables.published:
        nothing = (
            f"Nothing is published at {found.storage.shown} for the time asked for, so no "
            f"report was written."
        )
        raise NotFound(
            Reason.USAGE_UNKNOWN,
            f"{nothing} Check the address, and run `tidegate rollup run` for that time.",
        )
    parts = policy_parts(policy_of(around, file), found, tables, start_ms, end_ms)
    prices = {
        **parts.per_gib,
        **{way: amount for way, amount in given.items() if amount is not None},
    }
    request = ReportRequest(
        policy=parts.key,
        start_ms=start_ms,
        end_ms=end_ms,
        made_at_ms=int(around.now_seconds() * 1000),
        tables=tables,
        members=parts.members,
        prices=Prices(per_gib=prices, currency=currency),
        recommendations=parts.recommendations,
        trail=None if audit_file is None else lines_in(audit_file),
        bounds=parts.bounds,
        provenance=replace(stored_provenance(found, start_ms, end_ms), series=parts.series),
    )
    page = write_report(figures_of(request), out)
    Page(around.out).say(
        f"The report is {page}; the same figures are in {page.with_name('report.json')} and the "
        f"CSV files beside it."
    )


def _hour(around: CommandContext, text: str) -> int:
    at_ms = int(moment(text, now_seconds=around.now_seconds()) * 1000)
    return at_ms - at_ms % _HOUR_MS


def _amount(text: str | None) -> Decimal | None:
    try:
        amount = None if text is None else Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    if amount is not None and not (amount.is_finite() and amount >= 0):
        raise InvalidResource(f"{text!r} is not a price. Write an amount such as 0.02.")
    return amount
