"""How the console writes values as HTML: names, rates, ages, and tables that scroll.

Every value goes through `Markup.format`, which escapes it, so a name is never markup; `<bdi>` keeps
its direction to itself. What is unknown is hatched, with its age, and never zero.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from tidegate.console.parts import ROWS
from tidegate.view.policy import seconds_of
from tidegate_logic.words import UNKNOWN, age_words, clock_words, rate_words

MOST_ROWS: Final = 100
Column = tuple[str, str]  # its head, and its class ("" = none)


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def name(text: object, *, most: int = 60) -> Markup:
    """A name that somebody else chose: as text, with its own direction, cut where it is long."""
    whole = str(text)
    if len(whole) <= most:
        return Markup('<bdi class="name">{}</bdi>').format(whole)
    return Markup('<bdi class="name" title="{}">{}…</bdi>').format(whole, whole[: most - 1])


def rate(bytes_per_second: float | None) -> Markup:
    if bytes_per_second is None:
        return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
    return Markup('<span class="number">{}</span>').format(rate_words(bytes_per_second))


def since(text: str, now_seconds: float) -> str:
    at = seconds_of(text)
    return "" if at is None else f"{clock_words(at)} ({age_words(now_seconds - at)})"


def table(
    columns: Sequence[Column],
    rows: Markup = ROWS,
    *,
    label: str = "",
    labelled_by: str = "",
    caption: str = "",
) -> Markup:
    """A table that scrolls by itself where it is too wide; its rows are parts, or given."""
    head = joined(
        Markup('<th scope="col"{}>{}</th>').format(
            Markup(' class="{}"').format(kind) if kind else "", words
        )
        for words, kind in columns
    )
    named = (
        Markup('aria-labelledby="{}"').format(labelled_by)
        if labelled_by
        else Markup('aria-label="{}"').format(label)
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" {}><table>{}<thead><tr>{}</tr></thead>'
        "<tbody data-rows>{}</tbody></table></div>"
    ).format(named, Markup("<caption>{}</caption>").format(caption) if caption else "", head, rows)


def section(name_: str, title: str, inside: Markup, *, age: str = "") -> Markup:
    """A part of a page with its title; greyed with its `age` where it is not of now."""
    if age:
        return Markup(
            '<section class="aged" aria-labelledby="{}"><h2 id="{}">{} <small>{}</small></h2>{}'
            "</section>"
        ).format(name_, name_, title, age, inside)
    return Markup('<section aria-labelledby="{}"><h2 id="{}">{}</h2>{}</section>').format(
        name_, name_, title, inside
    )
