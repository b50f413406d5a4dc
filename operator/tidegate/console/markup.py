"""How the console writes values as HTML: names, rates, ages, and tables that scroll.

Every value goes through `Markup.format`, which escapes it, so a name is never markup; `<bdi>` keeps
its direction to itself. What is unknown is hatched, with its age, and never zero.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from markupsafe import Markup, escape

from tidegate.console.parts import ROWS
from tidegate.view.load import state_words
from tidegate.view.policy import seconds_of
from tidegate_logic.words import UNKNOWN, age_words, clock_words, rate_words

MOST_ROWS: Final = 100
HEAD: Final = "head"
_OF_HEADS_TOO: Final = frozenset({"right", "lane"})
Row = TypeVar("Row")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def name(text: object, *, most: int = 60) -> Markup:
    """A name that someone else chose: as text, with its own direction, cut where it is long."""
    whole = str(text)
    if len(whole) <= most:
        return Markup('<bdi class="name">{}</bdi>').format(whole)
    return Markup('<bdi class="name" title="{}">{}…</bdi>').format(whole, whole[: most - 1])


def unknown() -> Markup:
    return Markup('<span class="unknown">{}</span>').format(UNKNOWN)


def rate(bytes_per_second: float | None) -> Markup:
    if bytes_per_second is None:
        return unknown()
    return Markup('<span class="number">{}</span>').format(rate_words(bytes_per_second))


def address_of(path: str, policy_key: str, **query: str) -> str:
    """The address of a page for this policy."""
    return f"{path}?{urlencode({'policy': policy_key, **query})}"


def page_link(path: str, policy_key: str, words: object, **query: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address_of(path, policy_key, **query), words)


def member_link(policy_key: str, member_key: str, shown: str, *, most: int = 60) -> Markup:
    return page_link("/member", policy_key, name(shown, most=most), member=member_key)


def broker_link(policy_key: str, broker: int, words: str = "Broker {}") -> Markup:
    return page_link("/broker", policy_key, words.format(broker), broker=str(broker))


def asks(words: object, choice: str, value: str, *, is_chosen: bool) -> Markup:
    """A button that sets a choice of the page's viewer (see `choices.py`)."""
    return Markup(
        '<button type="button" class="ask" data-choice="{}" data-value="{}" aria-pressed="{}">{}'
        "</button>"
    ).format(choice, value, "true" if is_chosen else "false", words)


def since(text: str, now_seconds: float) -> str:
    at = seconds_of(text)
    return "" if at is None else f"{clock_words(at)} ({age_words(now_seconds - at)})"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its head, what a row has in it, and its class (`HEAD` = the row's own head).

    `sort` names the choice by which rows are ordered by this column; `order` is of the table now,
    "ascending" or "descending" where it is by this column.
    """

    head: str
    cell: Callable[[Row], object]
    kind: str = ""
    sort: str = ""
    order: str = ""

    def of(self, row: Row) -> str:
        if self.kind == HEAD:
            return f'<th scope="row">{escape(self.cell(row))}</th>'
        kind = f' class="{self.kind}"' if self.kind else ""
        # on a narrow page, where a row is a card, each value has its head beside it
        return f'<td{kind} data-head="{escape(self.head)}">{escape(self.cell(row))}</td>'

    @property
    def title(self) -> str:
        kind = f' class="{self.kind}"' if self.kind in _OF_HEADS_TOO else ""
        if not self.sort:
            return f'<th scope="col"{kind}>{escape(self.head)}</th>'
        order = f' aria-sort="{self.order}"' if self.order else ""
        button = asks(self.head, "sort", self.sort, is_chosen=bool(self.order))
        return f'<th scope="col"{kind}{order}>{button}</th>'


Columns = Sequence[Column[Row]]


def table_row(columns: Columns[Row], row: Row, kind: str | None = None) -> Markup:
    """A row of a table; `kind` is its class."""
    opened = "<tr>" if kind is None else f'<tr class="{escape(kind)}">'
    cells = "".join(column.of(row) for column in columns)
    return Markup(f"{opened}{cells}</tr>")  # noqa: S704  # each cell is escaped


def table(
    columns: Columns[Row],
    rows: Iterable[Row] | None = None,
    *,
    label: str = "",
    labelled_by: str = "",
    caption: str = "",
    kind_of: Callable[[Row], str | None] = lambda _: None,
) -> Markup:
    """A table that scrolls by itself where it is too wide; without `rows` they are parts."""
    named = f'aria-labelledby="{labelled_by}"' if labelled_by else f'aria-label="{label}"'
    head = "".join(column.title for column in columns)
    body = ROWS if rows is None else joined(table_row(columns, one, kind_of(one)) for one in rows)
    return Markup(
        '<div class="scroll" tabindex="0" role="region" {}><table>{}<thead><tr>{}</tr></thead>'
        "<tbody data-rows>{}</tbody></table></div>"
    ).format(
        Markup(named),  # noqa: S704  # literals
        Markup("<caption>{}</caption>").format(caption) if caption else "",
        Markup(head),  # noqa: S704  # each title is escaped
        body,
    )


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


def state(word: str, missing: str = "") -> Markup:
    """The state of a level or member, in its colour."""
    return Markup('<span class="state state-{}">{}</span>').format(
        word.lower() or missing, state_words(word) or UNKNOWN
    )
