"""The report's part on usage: who moved what by the tables, what was held back, what of it is exact. It only adds up."""

from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from demo.marks import clock
from demo.tide.script import BUSINESSES, LOWERED
from demo.usage.commands import REPORT, TABLES, Done
from demo.usage.outcome import UsageOutcome
from demo.usage.stored import StoredUsage, UserUsage

_TEMPLATE = Path(__file__).parent / "section.html.template"
_LINES_SHOWN = 20


def section_html(usage: UsageOutcome) -> str:
    """The whole part, for the report's page; where a command failed, what it said."""
    if usage.stored is None or usage.witnesses is None:
        return _failed_html(usage.failed)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        page=f"{REPORT}/report.html",
        tables=f"out/demo/{TABLES}",
        rows="\n".join(_rows(usage.stored)),
        held_back=", ".join(f"{one.level} {usage.witnesses.held_back[one.level] / 1e6:,.0f} MB" for one in LOWERED),
        read=_gigabytes(usage.stored, "fetch"),
        written=_gigabytes(usage.stored, "produce"),
        end=clock(usage.stored.end_ms / 1000),
        commands=escape("\n\n".join(f"$ {done.words}" for done in usage.commands)),
    )


def _failed_html(failed: Done | None) -> str:
    words = "" if failed is None else f"$ {failed.words}\n" + "\n".join(failed.said[-_LINES_SHOWN:])
    return (
        '<h2 class="experiment">Usage: not known</h2>\n'
        f"<p>The demo's own traffic was not rolled up, because this command failed:</p>\n<pre>{escape(words)}</pre>"
    )


def _rows(stored: StoredUsage) -> Iterator[str]:
    """A line a user, the most important tier first, those of none last."""
    level_of = {business.user: business.level for business in BUSINESSES}
    episodes: dict[str, float] = {}
    for one in stored.episodes:
        episodes[one.tier] = episodes.get(one.tier, 0.0) + one.seconds_below
    by_user = sorted(stored.users, key=lambda one: (one.tier == "", level_of.get(one.user, ""), one.tier, one.user))
    for (tier, user), ways in groupby(by_user, key=lambda one: (one.tier, one.user)):
        yield _row(tier, user, list(ways), level=level_of.get(user), seconds_below=episodes.get(tier))


def _row(tier: str, user: str, ways: list[UserUsage], *, level: str | None, seconds_below: float | None) -> str:
    moved = {way.direction: way.moved_bytes for way in ways}
    named = f"{tier.rpartition('/')[2]} ({level})" if level else tier.rpartition("/")[2] or "none"
    cells = [
        escape(named),
        escape(user or "not logged in"),
        *(f"{moved[way] / 1e6:,.0f} MB" if way in moved else "" for way in ("fetch", "produce")),
        f"{sum(way.held_back_bytes for way in ways) / 1e6:,.0f} MB",
        f"{sum(way.throttled_seconds for way in ways):,.0f} s",
        "" if seconds_below is None else f"{seconds_below:,.0f} s",
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _gigabytes(stored: StoredUsage, direction: str) -> str:
    return f"{sum(moved for (_, way), moved in stored.by_broker.items() if way == direction) / 1e9:.2f}"
