"""Who was throttled, when, how far, and what contracts would have fitted."""

from collections.abc import Sequence

from tidegate.rollup.report.bar_plot import Bar, bar_plot
from tidegate.rollup.report.drawing import Words
from tidegate.rollup.report.episode_plot import episode_plot, overview_plot
from tidegate.rollup.report.figures import MemberFigures, ReportFigures
from tidegate.rollup.report.html_table import html_table
from tidegate.rollup.report.markup import Markup, element, join
from tidegate.rollup.report.section import Section
from tidegate.rollup.report.sheets import Sheet
from tidegate.rollup.report.throttled_plot import throttled_plot
from tidegate.rollup.report.units import Kind, with_unit

_CLOSE_UP = 6
_DRAWN = 10
_TOLD = (
    "Two clocks, which need not agree. Throttled is the time in which brokers delayed a client, by their own gauge: for its contract "
    "just as for a lowered quota, and added up over brokers. An episode is the time in which Tidegate had lowered a quota below its "
    "contract to keep a broker within its limit, by the audit trail or by its metrics. Deferred bytes are an estimate of what was held "
    "back in that time: Kafka delays, and drops nothing."
)


def throttle_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    held = sorted((one for one in figures.members if one.throttled_seconds > 0), key=lambda one: -one.throttled_seconds)
    bars = [_throttled_plot(held)] if held else [element("p", "Brokers delayed nobody in this period.", class_="none")]
    return Section("throttling", "Throttling", join([element("p", _TOLD), *bars, *_episodes(figures, sheets)]))


def _throttled_plot(held: Sequence[MemberFigures]) -> Markup:
    bars = [Bar(f"{one.member}, {one.direction}", ((one.direction, one.throttled_seconds / 60),), _held_tip(one)) for one in held[:_DRAWN]]
    words = Words("throttled", "Time throttled.", "Minutes in which brokers delayed a member, added up over brokers.")
    return bar_plot(words, bars, axis="minutes", keys=(("fetch", "fetch"), ("produce", "produce")))


def _held_tip(one: MemberFigures) -> str:
    seconds, deferred = with_unit(Kind.SECONDS, one.throttled_seconds), with_unit(Kind.VOLUME, one.deferred_bytes)
    return f"{one.member}, {one.direction}\nthrottled {seconds} on {one.brokers} brokers\ndeferred about {deferred}"


def _episodes(figures: ReportFigures, sheets: dict[str, Sheet]) -> Sequence[Markup]:
    heading = element("h3", "Episodes")
    if not figures.trail_given:
        return heading, *_by_tables(figures, sheets)
    if not figures.episodes:
        return heading, element("p", "By the audit trail no quota was below its contract in this period.", class_="none")
    close_ups = sorted(sorted(figures.episodes, key=lambda one: -one.seconds)[:_CLOSE_UP], key=lambda one: one.number)
    spans = html_table(sheets["episode_spans"], "Every quota below its contract", empty="")
    return (
        heading,
        overview_plot(figures.period, figures.episodes),
        html_table(sheets["episodes"], "Episodes", empty=""),
        *map(episode_plot, close_ups),
        element("details", element("summary", "The figures of these plots"), spans),
    )


def _by_tables(figures: ReportFigures, sheets: dict[str, Sheet]) -> Sequence[Markup]:
    """Without a trail, what the tier tables say of it."""
    if not figures.states_known:
        told = "No audit trail was given (tidegate report --audit-file), and the tables tell no states of tiers, so nothing is known here."
        return (element("p", told, class_="none"),)
    if not figures.throttled_windows:
        return (element("p", "By the operator's metrics no quota was below its contract in this period.", class_="none"),)
    told = (
        "By the operator's metrics, a window at a time: for how long any member of the tier had a quota below its contract. The audit trail"
        " (tidegate report --audit-file) tells each cut."
    )
    table = html_table(sheets["throttled_windows"], "Windows with time below the contract", empty="")
    return element("p", told), throttled_plot(figures.period, figures.throttled_windows), table


def recommendations_section(sheets: dict[str, Sheet]) -> Section:
    told = (
        "What a contract would have to be for 99 of 100 five-minute windows to fit below it, with headroom, in the form in which it is "
        "promised. Nothing is recommended to a member that was throttled for most of the time, or of which too little was measured: its "
        "usage does not say what it needs."
    )
    table = html_table(sheets["recommendations"], "Recommended contracts", empty="No recommendations were made for this period.")
    return Section("recommendations", "Recommended contracts", join([element("p", told), table]))
