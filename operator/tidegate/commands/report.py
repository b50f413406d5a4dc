"""`tidegate report`: the chargeback report of a period, as a page and as CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, bounds_of, policy_of, terms_of
from tidegate.commands.output import Page
from tidegate.commands.rollup import PolicyFiles, Store, store_address
from tidegate.commands.rollup_job import require_extra
from tidegate.errors import InvalidResource, NotFound
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.report.closing import Month
    from tidegate.report.figures import Recommendation
    from tidegate.report.rate_card import RateCard
    from tidegate.report.request import MemberTerms, SourceSeries, UsageTables
    from tidegate.rollup.fold.broker import FactorBounds
    from tidegate.rollup.schemas import Direction
    from tidegate.rollup.tables.store import UsageStore

# The policy's share of a report: names of members, contracts, recommendations, prices, and the
# series behind its tables. Neither Kubernetes nor a Secret is read.


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """A policy's share of a report; without a policy only the series of the usual exporters."""

    key: str = ""
    members: Sequence[MemberTerms] = ()
    recommendations: Sequence[Recommendation] = ()
    per_gib: Mapping[Direction, Decimal] = field(default_factory=dict)
    series: Sequence[SourceSeries] = ()
    bounds: FactorBounds = field(default_factory=lambda: bounds_of(None))


def policy_parts(
    source: PolicySource | None, store: UsageStore, tables: UsageTables, start_ms: int, end_ms: int
) -> PolicyParts:
    """Recommendations rest on the period [start, end). Raises what reading the store does."""
    import pyarrow.compute as pc

    from tidegate.report.request import member_terms, recommendations, source_series
    from tidegate.rollup.member_usage import member_usage

    terms = terms_of(source)
    if source is None or terms is None:
        return PolicyParts(series=tuple(source_series(MetricsSettings(PrometheusServer("")))))
    brokers = frozenset(pc.unique(tables.brokers["broker"]).to_pylist())
    usage = member_usage(store, terms.tiers, start_ms, end_ms)
    return PolicyParts(
        terms.key,
        member_terms(terms, brokers=len(brokers)),
        recommendations(source.declared.policy, terms, usage, brokers),
        policy_prices(source),
        tuple(source_series(_settings(source))),
        bounds_of(source),
    )


def policy_prices(source: PolicySource) -> Mapping[Direction, Decimal]:
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
    from tidegate.observe.connections import settings_of

    spec = source.declared.spec.metrics
    if spec is None:
        return MetricsSettings(PrometheusServer(""))
    return settings_of(spec, PrometheusServer(spec.prometheus.url))


_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_LABEL = "label:"
_PERIOD, _MONEY = "The period", "Money"
_DIGEST = re.compile(r"(?:(\d{4}-\d\d)=)?([0-9a-f]{64})")


RateCardFile = Annotated[
    Path | None,
    typer.Option(
        "--rate-card",
        metavar="FILE",
        help="Prices by day, level and direction, or a cost to share; and budgets by label.",
        rich_help_panel=_MONEY,
    ),
]
Currency = Annotated[
    str,
    typer.Option(
        "--currency", metavar="TEXT", help="Currency shown beside amounts.", rich_help_panel=_MONEY
    ),
]
ExpectedDigests = Annotated[
    list[str] | None,
    typer.Option(
        "--expect-sha256",
        metavar="[MONTH=]DIGEST",
        help="Refuse to run unless the closed month has this SHA-256, which `close` printed. May "
        "be repeated for other months.",
        rich_help_panel=_MONEY,
    ),
]


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """[start, end) in ms, and the period before it. `month` is the one that was asked for."""

    start_ms: int
    end_ms: int
    before: tuple[int, int]
    month: Month | None = None

    @property
    def is_whole_month(self) -> bool:
        return self.month is not None and self.end_ms == self.month.end_ms


@options.command
def report(
    around: CommandContext,
    *,
    store: Store,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help=f"Start, the first hour. {options.TIME}",
            rich_help_panel=_PERIOD,
        ),
    ] = None,
    until: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIME",
            help="End; hours not over by then are left out.",
            rich_help_panel=_PERIOD,
        ),
    ] = "0s",
    month: Annotated[
        str | None,
        typer.Option(
            "--month",
            metavar="YYYY-MM",
            help="Report on this month, as far as it is over, instead of --from and --to.",
            rich_help_panel=_PERIOD,
        ),
    ] = None,
    timezone: Annotated[
        str,
        typer.Option(
            "--timezone",
            metavar="NAME",
            help="Time zone of the month, of the days of the rate card and of times without an "
            "offset, such as Europe/Berlin.",
            rich_help_panel=_PERIOD,
        ),
    ] = "UTC",
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Directory for report.html, report.json and the CSV files."
        ),
    ] = Path("tidegate-report"),
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="label:NAME",
            help="Group by a label of tiers and members, such as label:team. May be repeated.",
        ),
    ] = None,
    labels_of_today: Annotated[
        bool,
        typer.Option(
            "--labels-of-today",
            help="Use the labels in the policy's files instead of those that members had at the "
            "time.",
        ),
    ] = False,
    rate_card: RateCardFile = None,
    fetch_price: Annotated[
        str | None,
        typer.Option(
            "--fetch-price",
            metavar="AMOUNT",
            help="Price of a GiB (2^30 bytes) read.",
            rich_help_panel=_MONEY,
        ),
    ] = None,
    produce_price: Annotated[
        str | None,
        typer.Option(
            "--produce-price",
            metavar="AMOUNT",
            help="Price of a GiB written.",
            rich_help_panel=_MONEY,
        ),
    ] = None,
    currency: Currency = "",
    expect_sha256: ExpectedDigests = None,
    focus: Annotated[
        bool,
        typer.Option(
            "--focus",
            help="Also write the bill as focus.parquet and focus.csv, for cost tools (FOCUS 1.2).",
            rich_help_panel=_MONEY,
        ),
    ] = False,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            metavar="FILE",
            help="Also write amounts and budgets by label in Prometheus' text format.",
            rich_help_panel=_MONEY,
        ),
    ] = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="Operator's audit trail, for the timeline of throttle episodes.",
        ),
    ] = None,
    file: PolicyFiles = None,
) -> None:
    """Write the usage report of a period.

    The period is whole hours, or whole days if it begins and ends with one. The command prints
    where the page is.

    With the policy's files, members are shown by name, contracts are recommended, and prices
    default to the policy's.
    """
    require_extra()
    from tidegate.control.audit.lines import lines_in
    from tidegate.report.closing import (
        closed_bill,
        closed_figures,
        closed_months_words,
        corrections,
        require_digests,
    )
    from tidegate.report.compute import figures_of
    from tidegate.report.focus import focus_files, focus_table, focus_warnings
    from tidegate.report.page import metrics_text, write_files, write_report
    from tidegate.report.rate_card import RateCard
    from tidegate.report.request import (
        ReportRequest,
        stored_before,
        stored_days,
        stored_provenance,
        stored_tables,
    )
    from tidegate.report.trends import WEEKS_COMPARED
    from tidegate.rollup.tables.store import UsageStore

    zone = zone_named(timezone)
    names = _label_names(by or ())
    period = _period(around, since, until, month, zone)
    given: Mapping[Direction, Decimal | None] = {
        "fetch": _amount(fetch_price),
        "produce": _amount(produce_price),
    }
    prices = {way: amount for way, amount in given.items() if amount is not None}
    card = card_given(rate_card, prices, currency)
    start_ms, end_ms = period.start_ms, period.end_ms
    found = UsageStore.at(store_address(store))
    require_digests(found, expected_digests(expect_sha256, month))
    closed = None if period.month is None else closed_bill(found, period.month)
    priced = closed if closed is not None and closed.card.rates else None
    card = card if priced is None else priced.card
    grain_ms = _grain_ms(period, card, zone)
    tables = stored_tables(found, start_ms, end_ms, grain_ms=grain_ms)
    if not tables.published:
        nothing = (
            f"Nothing is published at {found.storage.shown} for the requested time, so no report "
            "was written."
        )
        raise NotFound(
            Reason.USAGE_UNKNOWN,
            f"{nothing} Check the address, and run `tidegate rollup run` for that time.",
        )
    parts = policy_parts(policy_of(around, file), found, tables, start_ms, end_ms)
    made_from = stored_provenance(found, start_ms, end_ms, grain_ms=grain_ms)
    request = ReportRequest(
        policy=parts.key,
        start_ms=start_ms,
        end_ms=end_ms,
        made_at_ms=int(around.now_seconds() * 1000),
        tables=tables,
        members=parts.members,
        rate_card=card or RateCard.flat({**parts.per_gib, **prices}, currency),
        by_labels=names,
        labels_of_today=labels_of_today,
        month="" if period.month is None else period.month.name,
        zone=zone,
        before=stored_before(found, *period.before, grain_ms=grain_ms),
        days=stored_days(found, start_ms, end_ms, weeks=WEEKS_COMPARED),
        recommendations=parts.recommendations,
        trail=None if audit_file is None else lines_in(audit_file),
        bounds=parts.bounds,
        closed=None
        if closed is None
        else closed_figures(found, closed, account=parts.key or "Kafka"),
        closed_charges=None if priced is None else priced.charges,
        corrections=() if period.month is None else corrections(found, period.month),
        provenance=replace(
            made_from,
            series=parts.series,
            policy=made_from.policy if closed is None else closed.policy,
            cluster=made_from.cluster if closed is None else closed.cluster,
        ),
    )
    for words in closed_months_words(found, start_ms, end_ms):
        Page(around.err).warn(words)
    figures = figures_of(request)
    dataset = focus_table(figures, issuer=request.rate_card.issuer) if focus else None
    page = write_report(figures, out)
    if dataset is not None:
        write_files(focus_files(dataset), out)
        for words in focus_warnings(figures, is_whole_month=period.is_whole_month):
            Page(around.err).warn(words)
    if metrics_file is not None:
        write_files({metrics_file.name: metrics_text(figures)}, metrics_file.parent)
    Page(around.out).say(
        f"The report is {page}; the same figures are in {page.with_name('report.json')} and the "
        f"CSV files beside it."
    )
    if figures.corrections:
        months = ", ".join(sorted({one.corrected_month for one in figures.corrections}))
        Page(around.out).say(
            f"It carries corrections of {months} (lines: {len(figures.corrections)}), "
            f"{figures.corrections_amount:+} {figures.currency}: with them "
            f"{figures.amount_due} {figures.currency} are due.".replace("  ", " ")
        )


def zone_named(name: str) -> tzinfo:
    """Raises InvalidResource for what is not a time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidResource(
            f"{name!r} is not a time zone. Write its name in the tz database, such as "
            "Europe/Berlin."
        ) from None


def expected_digests(given: Sequence[str] | None, month: str | None) -> Mapping[str, str]:
    """Digests by month; one without a month is of the command's. Raises InvalidResource."""
    expected: dict[str, str] = {}
    for text in given or ():
        found = _DIGEST.fullmatch(text.lower())
        of = None if found is None else found[1] or month
        if found is None or of is None:
            raise InvalidResource(
                f"--expect-sha256 {text!r} is not a digest of a month: write the 64 hexadecimal "
                f"digits that `tidegate report close` printed, for another month than --month as "
                f"2026-10=DIGEST."
            )
        expected[of] = found[2]
    return expected


def _label_names(by: Sequence[str]) -> Sequence[str]:
    for text in by:
        if not text.startswith(_LABEL) or text == _LABEL:
            raise InvalidResource(
                f"--by {text!r} is not known: write label: and the name of a label, such as "
                "label:team."
            )
    return tuple(dict.fromkeys(text.removeprefix(_LABEL) for text in by))


def _period(
    around: CommandContext, since: str | None, until: str, month: str | None, zone: tzinfo
) -> ReportPeriod:
    """A month not over is cut to its whole hours, and compared with as much of the one before."""
    from tidegate.report.closing import Month

    if (since is None) == (month is None):
        raise InvalidResource("Give the period: either --month 2026-10, or --from and --to.")
    if month is None:
        start_ms, end_ms = (_hour(around, text, zone) for text in (since or "", until))
        return ReportPeriod(start_ms, end_ms, (2 * start_ms - end_ms, start_ms))
    found = Month.named(month, zone)
    start_ms, end_ms = found.start_ms, found.end_ms
    last = Month.named(f"{datetime.fromtimestamp(start_ms / 1000 - 1, zone):%Y-%m}", zone)
    before = last.start_ms, last.end_ms
    now_ms = int(around.now_seconds() * 1000)
    over_ms = now_ms - now_ms % _HOUR_MS
    if over_ms <= start_ms:
        raise InvalidResource(f"No hour of {month} is over yet, so there is nothing to report.")
    if over_ms < end_ms:
        end_ms = over_ms
        before = before[0], min(before[1], before[0] + end_ms - start_ms)
    return ReportPeriod(start_ms, end_ms, before, found)


def card_given(
    path: Path | None, prices: Mapping[Direction, Decimal], currency: str
) -> RateCard | None:
    from tidegate.report.rate_card import read_rate_card

    if path is None:
        return None
    if prices or currency:
        raise InvalidResource(
            "--rate-card has prices and currency: leave out --fetch-price, --produce-price and "
            "--currency."
        )
    return read_rate_card(path)


def _grain_ms(period: ReportPeriod, card: RateCard | None, zone: tzinfo) -> int:
    """Days where the period and all rates begin with a day of UTC, else hours."""
    from tidegate.report.rate_card import midnight_ms

    changes = [
        midnight_ms(one.since, zone)
        for one in (card.rates if card is not None else ())
        if one.since is not None
    ]
    edges = [
        period.start_ms,
        period.end_ms,
        *(at for at in changes if period.start_ms < at < period.end_ms),
    ]
    return _HOUR_MS if any(at % _DAY_MS for at in edges) else _DAY_MS


def _hour(around: CommandContext, text: str, zone: tzinfo) -> int:
    """The whole hour of UTC. Raises InvalidResource if a whole hour of the zone is none."""
    from tidegate.resources.fields import is_ago, moment

    written = text
    if not is_ago(text):
        try:
            local = datetime.fromisoformat(text)
            written = (local if local.tzinfo else local.replace(tzinfo=zone)).isoformat()
            utc = datetime.fromisoformat(written).astimezone(UTC)
        except ValueError:
            pass  # `moment` has the words
        else:
            if not local.minute and not local.second and utc.minute:
                raise InvalidResource(
                    f"{text} is not a whole hour in UTC, and the tables have whole hours. Take a "
                    "time that is one, such as half an hour earlier."
                )
    at_ms = int(moment(written, now_seconds=around.now_seconds()) * 1000)
    return at_ms - at_ms % _HOUR_MS


def _amount(text: str | None) -> Decimal | None:
    try:
        amount = None if text is None else Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    if amount is not None and not (amount.is_finite() and amount >= 0):
        raise InvalidResource(f"{text!r} is not a price. Write an amount such as 0.02.")
    return amount
