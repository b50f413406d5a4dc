"""How near members came to their contracts, and brokers to their limits."""

from collections.abc import Sequence

from tidegate.rollup.report.bullet_plot import Bullet, Meaning, bullet_plot
from tidegate.rollup.report.drawing import Words
from tidegate.rollup.report.figures import BrokerFigures, ContractUse, ReportFigures
from tidegate.rollup.report.html_table import html_table, pivot_table
from tidegate.rollup.report.load_plot import is_one_window, load_plot
from tidegate.rollup.report.markup import Markup, element, join
from tidegate.rollup.report.section import Section
from tidegate.rollup.report.sheets import LOAD, Column, Sheet
from tidegate.rollup.report.units import Kind, clock, duration, with_unit

_DRAWN = 24
_WAYS = (("fetch", "fetch"), ("produce", "produce"))
_CONTRACTS = (
    "A contract is a rate on each broker, so rates are taken on the broker where they are highest. The peak is the highest reading of a "
    "gauge that runs 3 to 18 % above a quota while a client is throttled: more than 100 % for a moment is no breach."
)
_BOUNDED = "The 5-minute rows are gone or too many, so a p95 here is the highest of its hours or days: the true one is that or less."
_BROKERS = (
    "A card carries clients' bytes, replication between brokers, and what protocols add; its own counter is exact. Fetch is what leaves "
    "a broker, produce what arrives. Headroom is what the busiest window left of the limit."
)


def contracts_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    told = _CONTRACTS if figures.five_minutes else f"{_CONTRACTS} {_BOUNDED}"
    plot = _contract_plot([use for use in figures.contract_use if use.p95_share is not None and use.peak_share is not None])
    table = html_table(sheets["contract_use"], "Rates on one broker against contracts, nearest first", empty="No usage was found.")
    return Section("contracts", "Peaks and p95 against contracts", join([element("p", told), *plot, table]))


def _contract_plot(uses: Sequence[ContractUse]) -> Sequence[Markup]:
    """The nearest to their contracts; nothing where nobody has one."""
    bullets = [
        Bullet(f"{use.member}, {use.direction}", use.p95_share or 0.0, use.peak_share or 0.0, use.direction, _use_tip(use))
        for use in uses[:_DRAWN]
    ]
    if not bullets:
        return ()
    more = f" The {_DRAWN} nearest of {len(uses)}." if len(uses) > _DRAWN else ""
    words = Words("contract-use", "Rates against contracts.", f"p95 of 5-minute rates and peak, on the busiest broker.{more}")
    return (bullet_plot(words, bullets, Meaning("p95", "peak", "share of the contract"), keys=_WAYS),)


def _use_tip(use: ContractUse) -> str:
    return (
        f"{use.member}, {use.direction}\np95 {with_unit(Kind.RATE, use.p95_rate)}, {with_unit(Kind.SHARE, use.p95_share)}\n"
        f"peak {with_unit(Kind.RATE, use.peak_rate)}, {with_unit(Kind.SHARE, use.peak_share)}\n"
        f"contract {with_unit(Kind.RATE, use.contract)}"
    )


def brokers_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    limited = [card for card in figures.brokers if card.mean_share is not None and card.busiest_share is not None]
    none = [] if limited else [element("p", "No broker has a limit in this period, so there is no share of one.", class_="none")]
    table = html_table(sheets["brokers"], "A line a broker's card and direction", empty="No broker was seen in this period.")
    return Section(
        "brokers", "Brokers and their limits", join([element("p", _BROKERS), *none, *_limit_plot(limited), *_load(figures, sheets), table])
    )


def _limit_plot(cards: Sequence[BrokerFigures]) -> Sequence[Markup]:
    fullest = sorted(cards, key=lambda card: -(card.busiest_share or 0.0))[:_DRAWN]
    bullets = [
        Bullet(
            f"broker {card.broker}, {card.direction}", card.mean_share or 0.0, card.busiest_share or 0.0, card.direction, _card_tip(card)
        )
        for card in fullest
    ]
    if not bullets:
        return ()
    window = duration(fullest[0].busiest_seconds)
    words = Words("limits", "Cards against limits.", f"Mean of the period and of the busiest {window}, fullest first.")
    return (bullet_plot(words, bullets, Meaning("mean", f"busiest {window}", "share of the limit"), keys=_WAYS),)


def _card_tip(card: BrokerFigures) -> str:
    return (
        f"broker {card.broker}, {card.direction}\nmean {with_unit(Kind.RATE, card.mean_rate)}, {with_unit(Kind.SHARE, card.mean_share)}\n"
        f"busiest {with_unit(Kind.RATE, card.busiest_rate)}, {with_unit(Kind.SHARE, card.busiest_share)}, {clock(card.busiest_start)} UTC\n"
        f"limit {with_unit(Kind.RATE, card.limit)}"
    )


def _load(figures: ReportFigures, sheets: dict[str, Sheet]) -> Sequence[Markup]:
    """One plot a direction that has a card with a limit."""
    plots = []
    for direction in sorted({point.direction for point in figures.load}):
        rows = [(pointer, row) for pointer, row in sheets["load"].rows if row.direction == direction]
        points = [row for _, row in rows]
        rows.sort(key=lambda one: (one[1].start, one[1].broker))
        shown = "Mean" if is_one_window(points[0]) else "Busiest window"
        caption = f"{shown} of each step as a share of the broker's limit, {direction}"
        share = Column("busiest_share", "Busiest of limit", Kind.SHARE)
        table = pivot_table(Sheet("load", LOAD, rows), column=Column("broker", "Broker"), value=share, caption=caption)
        plots.append(load_plot(figures.period, points, figures.brokers[0].busiest_seconds, below=table))
    return plots
