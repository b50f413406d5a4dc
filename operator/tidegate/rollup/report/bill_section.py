"""What was used and what it costs: the totals, the tiers, the members, and who moves most."""

from collections.abc import Iterator, Sequence

from tidegate.rollup.report.bar_plot import Bar, bar_plot
from tidegate.rollup.report.drawing import Words
from tidegate.rollup.report.figures import ReportFigures, Talker
from tidegate.rollup.report.html_table import html_table, pivot_table
from tidegate.rollup.report.markup import Markup, element, join
from tidegate.rollup.report.pricing import GIB
from tidegate.rollup.report.section import Section
from tidegate.rollup.report.sheets import TRAFFIC, Column, Sheet
from tidegate.rollup.report.traffic_plot import traffic_plot
from tidegate.rollup.report.units import Kind, with_unit, words

_NO_USAGE = "No usage was found in this period."


def cards(figures: ReportFigures) -> Markup:
    """What somebody with half a minute reads."""
    found = [_card(label, value, pointer, note=note) for label, value, pointer, note in _headlines(figures)]
    return element("ul", *found, class_="cards")


def _headlines(figures: ReportFigures) -> Iterator[tuple[str, str, str, str]]:
    """(what, how much, JSON pointer, remark)."""
    price = "no price is set" if figures.total_amount is None else f"{words(Kind.MONEY, figures.total_amount)} {figures.currency}".rstrip()
    yield "Price", price, "/totalAmount", _price_words(figures)
    yield "Volume", with_unit(Kind.VOLUME, figures.total_bytes), "/totalBytes", "of all members, both directions"
    for place, total in enumerate(figures.totals):
        seconds = total.throttled_seconds
        throttled = f"throttled for {words(Kind.SECONDS, seconds)}" if seconds else "nobody was throttled"
        yield total.direction.capitalize(), with_unit(Kind.VOLUME, total.bytes), f"/totals/{place}/bytes", throttled


def _price_words(figures: ReportFigures) -> str:
    priced = [f"{price.direction} {price.per_gib:f}" for price in figures.prices if price.per_gib is not None]
    return f"a GiB: {', '.join(priced)}" if priced else "give pricePerGiB in the policy"


def _card(label: str, value: str, pointer: str, *, note: str) -> Markup:
    return element("li", label, element("b", value, data_figure=pointer), element("small", note))


def bill_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    return Section(
        "bill",
        "The bill",
        join(
            (
                element("p", _bill_words(figures)),
                html_table(sheets["totals"], "All members together, by direction", empty=_NO_USAGE),
                element("h3", "By tier"),
                html_table(sheets["tiers"], "Tiers, most important level first", empty=_NO_USAGE),
            )
        ),
    )


def _bill_words(figures: ReportFigures) -> str:
    units = f"Volumes are in GiB ({GIB:,} bytes), rates in MB/s (1,000,000 bytes per second)."
    if figures.total_amount is None:
        return f"The policy sets no price, so nothing is charged. {units}"
    free = [price.direction for price in figures.prices if price.per_gib is None]
    unpriced = f" For {', '.join(free)} none is set, so it costs nothing." if free else ""
    money = f"Amounts are in {figures.currency}" if figures.currency else "Amounts are in the currency of the policy's pricePerGiB"
    return f"{money}; each line is rounded to hundredths, and totals are the sums of lines.{unpriced} {units}"


def members_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    return Section(
        "members",
        "Members",
        join(
            (
                *([_talkers_plot(figures.talkers)] if figures.talkers else []),
                html_table(sheets["talkers"], "Top talkers, both directions together", empty=_NO_USAGE),
                element("h3", "Every member"),
                html_table(sheets["members"], "A line a member and direction, most bytes first", empty=_NO_USAGE),
            )
        ),
    )


def _talkers_plot(talkers: Sequence[Talker]) -> Markup:
    bars = [Bar(one.member, (("fetch", one.fetch_bytes / GIB), ("produce", one.produce_bytes / GIB)), _talker_tip(one)) for one in talkers]
    described = Words("talkers", "Top talkers.", "Volume of the period by member, in GiB.")
    return bar_plot(described, bars, axis="GiB", keys=(("fetch", "fetch"), ("produce", "produce")))


def _talker_tip(one: Talker) -> str:
    volumes = [f"{way}: {with_unit(Kind.VOLUME, count)}" for way, count in (("fetch", one.fetch_bytes), ("produce", one.produce_bytes))]
    return "\n".join([one.member, *volumes, f"{words(Kind.SHARE, one.share)} of everything"])


def traffic_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    """One plot a direction that moved anything."""
    parts = []
    for direction in sorted({point.direction for point in figures.traffic}):
        rows = [(pointer, row) for pointer, row in sheets["traffic"].rows if row.direction == direction]
        value = Column("rate", "Mean", Kind.RATE)
        caption = f"Mean rates by tier in MB/s, {direction}"
        table = pivot_table(Sheet("traffic", TRAFFIC, rows), column=Column("tier", "Tier", absent="no tier"), value=value, caption=caption)
        parts.append(traffic_plot(figures.period, figures.traffic, direction, below=table))
    return Section("traffic", "Traffic over time", join(parts or [element("p", _NO_USAGE, class_="none")]))
