"""The frame of every plot: a picture that scales, says what it is to those who cannot see it, and keeps its figures beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.rollup.report.markup import Markup, element

WIDTH = 880
NAMES_WIDTH = 244  # left of bars that belong to somebody: room for so many signs of a wide font
_LABEL_SIGNS = 32


@dataclass(frozen=True, slots=True)
class Words:
    """A plot's name, what it shows in a sentence, and an id that is its own on the page."""

    key: str
    title: str
    description: str


def drawing(words: Words, *parts: Markup | None, height: float) -> Markup:
    """An `<svg>` as wide as the page allows. Parts with `data-tip` can be hovered, and walked through by the arrow keys."""
    return element(
        "svg",
        element("title", words.title, id=f"{words.key}-title"),
        element("desc", words.description, id=f"{words.key}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        tabindex="0",
        aria_labelledby=f"{words.key}-title",
        aria_describedby=f"{words.key}-desc",
        class_="plot",
    )


def figure(words: Words, picture: Markup, *below: Markup | None) -> Markup:
    """The plot with its title, a sentence, and what goes below it: a legend, the figures."""
    caption = element("figcaption", element("b", words.title), " ", words.description)
    return element("figure", caption, element("div", picture, class_="wide"), *below)


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """(class of the mark, words) one after the other."""
    items = [element("li", element("span", class_=f"key {kind}"), words) for kind, words in entries]
    return element("ul", *items, class_="legend")


def bar(x: float, y: float, width: float, height: float, **attributes: str | float | None) -> Markup:
    """A rectangle; one that is narrower than a hair is drawn as one, so that what is there is seen."""
    return element("rect", x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **attributes)


def short(label: str) -> str:
    """As much of a name as there is room for; the tip and the table have all of it."""
    return label if len(label) <= _LABEL_SIGNS else label[: _LABEL_SIGNS - 1] + "…"
