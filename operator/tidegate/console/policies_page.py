"""The page Policies: every policy that the viewer may see, with its verdict in its colour.

Pure: from what is known of policies to the parts of a page.
"""

from collections.abc import Sequence

from markupsafe import Markup

from tidegate.console.banner import TONES, verdict
from tidegate.console.markup import HEAD, Column, Columns, name, page_link, since, table, table_row
from tidegate.console.parts import Page, Part
from tidegate.view.policy import PolicyNow


def policies_page(policies: Sequence[PolicyNow]) -> Page:
    """One row for each policy, of which there is one at least."""
    columns: Columns[PolicyNow] = (
        Column("Policy", lambda now: page_link("/", now.key, name(now.key)), HEAD),
        Column("State", _said, "why"),
        Column("Since", lambda now: since(verdict(now).since, now.now_seconds)),
        Column("Mode", lambda now: now.mode),
        Column("Brokers", lambda now: len(now.brokers), "right"),
        Column("Members", lambda now: len({one.key for one in now.members}), "right"),
    )
    rows = tuple(Part(now.key, table_row(columns, now)) for now in policies)
    counted = "1 policy" if len(policies) == 1 else f"{len(policies)} policies"
    worst = max(map(verdict, policies), key=lambda one: TONES.index(one.tone))
    head = Markup('<h2 data-title="{}">{}</h2>').format(
        f"{worst.word}: {counted} - Tidegate", counted
    )
    return Part("head", head), Part("policies", table(columns, label="Policies"), rows)


def _said(now: PolicyNow) -> Markup:
    found = verdict(now)
    return Markup('<span class="pill tone-{}">{}</span> {}').format(
        found.tone, found.word, name(found.text, most=160)
    )
