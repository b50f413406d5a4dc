"""HTML and SVG elements in which no text can become markup: whatever is not made here is escaped.

User names and client ids are chosen by strangers, so nothing of the page is put together in any other way.
"""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """`element("td", "a<b", class_="n", data_figure="/x")`. Children and attributes that are None are left out, as is a trailing `_`."""
    inner = join(child for child in children if child is not None)
    return Markup(f"<{tag}{_attributes(attributes)}>{inner}</{tag}>")


def join(parts: Iterable[str]) -> Markup:
    """One after the other; plain text is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def _attributes(attributes: dict[str, str | float | None]) -> str:
    return "".join(f' {_name(name)}="{_value(value)}"' for name, value in attributes.items() if value is not None)


def _name(name: str) -> str:
    """`viewBox` stays as it is; `data_figure` is `data-figure`."""
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    """Lengths of drawings to a tenth: more digits are only bytes."""
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
