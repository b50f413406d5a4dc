"""A page as parts with names, and what differs between two of them: only that is sent.

A part is one HTML element, such as a section or a row of a table. A part with rows has a hole for
them, in an element of its own. So a page of a thousand rows of which three differ is kept up with
three rows, and neither focus nor scrolling of the rest is lost. Nor is a part made again while what
it is made of stays the same. Pure; `live.js` is the other end.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from markupsafe import Markup

_TAG: Final = re.compile(r"<[a-z][a-z0-9]*")
_ROWS: Final = Markup("\x00rows\x00")

Piece = TypeVar("Piece")
Placed = list[tuple[str, str | None]]  # a name, and its new text; None = as it was
Changes = dict[str, Placed]  # by the part whose rows they are; "" = the page itself


@dataclass(frozen=True, slots=True)
class Part:
    """One element of a page. `name` is unlike that of every other beside it.

    With `rows`, `html` has one `ROWS`, alone in an element with the attribute `data-rows`.
    """

    name: str
    html: Markup
    rows: "tuple[Part, ...] | None" = None

    @property
    def shell(self) -> str:
        """Its own text, with its name on its first tag and without its rows."""
        tag = _TAG.match(self.html)
        if tag is None:
            raise ValueError(f"part {self.name} does not begin with an element")
        marked = Markup(' data-part="{}"').format(self.name)
        return f"{tag[0]}{marked}{self.html[tag.end() :]}"

    def __str__(self) -> str:
        if self.rows is None:
            return self.shell
        return self.shell.replace(_ROWS, "".join(map(str, self.rows)), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Something that a piece is made of, compared by identity: comparing all of it costs more."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Kept:
    """Pieces of one page with what they are made of. What the page has no more is forgotten."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[object, Any]] = {}
        self._now: dict[str, tuple[object, Any]] = {}
        self.made = 0  # how many pieces had to be made

    def begin(self) -> None:
        """Begin the page again."""
        self._before, self._now = self._now, {}

    def piece(self, name: str, of: tuple[object, ...], make: Callable[[], Piece]) -> Piece:
        """The piece with this name, unlike every other on the page, as it was or made of `of`."""
        found = self._before.get(name)
        if found is None or found[0] != of:
            self.made += 1
            found = of, make()
        self._now[name] = found
        piece: Piece = found[1]
        return piece


ROWS: Final = _ROWS
Page = Sequence[Part]


def page_html(page: Page) -> str:
    return "".join(map(str, page))


def changes_between(before: Page, after: Page) -> Changes | None:
    """What makes the one page of the other; None if they are the same."""
    found: Changes = {}
    known = {part.name: part for part in before}
    placed: Placed = []
    for part in after:
        old = known.get(part.name)
        if old is part:
            placed.append((part.name, None))
            continue
        if old is None or old.html != part.html or (old.rows is None) != (part.rows is None):
            placed.append((part.name, str(part)))
            continue
        placed.append((part.name, None))
        rows = _placed(old.rows or (), part.rows or ())
        if rows is not None:
            found[part.name] = rows
    if [name for name, _ in placed] != list(known) or any(html for _, html in placed):
        found[""] = placed
    return found or None


def _placed(before: Iterable[Part], after: Iterable[Part]) -> Placed | None:
    known = {part.name: part for part in before}
    placed: Placed = [
        (part.name, None if known.get(part.name) == part else str(part)) for part in after
    ]
    is_same = [name for name, _ in placed] == list(known) and not any(html for _, html in placed)
    return None if is_same else placed
