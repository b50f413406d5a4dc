"""Writes what a page's style sheet says of an SVG into the SVG, as attributes of its elements.

Outside a page, and outside a browser, a picture has no style sheet, or one that is not understood:
without colours everything is black. Light colours become attributes, which every program knows. The
dark ones follow in a short sheet for those who prefer them.

It knows the part of CSS that our pages use: elements, classes, `:not(.class)`, descendants,
variables and `light-dark()`. A rule with anything else, such as `:hover`, is left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tidegate.report.svg import dark_rule

SVG = "http://www.w3.org/2000/svg"
_LOOKS = frozenset(
    {
        *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin"),
        *("opacity", "font-size", "font-weight", "paint-order", "marker-end"),
    }
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_AT_RULE = re.compile(r"@[^{]*\{(?:[^{}]|\{[^{}]*\})*\}")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SIMPLE = re.compile(
    r"(?P<tag>[a-z]\w*|:root)?(?P<has>(?:\.[\w-]+)*)(?P<lacks>(?::not\(\.[\w-]+\))*)"
)
_PAIR = re.compile(r"light-dark\(((?:[^(),]|\([^()]*\))+),\s*((?:[^()]|\([^()]*\))+)\)")
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_NAME = re.compile(r"\.([\w-]+)")
# Every value twice: as it is on a light page and on a dark one.
_Values = Mapping[str, tuple[str, str]]


class TwoDarkColoursError(ValueError):
    """One light colour has several dark ones: only the page could distinguish them."""


@dataclass(frozen=True, slots=True)
class _Simple:
    """An element of this tag, with these classes and without those."""

    tag: str
    has: frozenset[str]
    lacks: frozenset[str]

    def fits(self, element: ElementTree.Element) -> bool:
        tag, classes = _tag(element), _classes(element)
        wanted = "svg" if self.tag == ":root" else self.tag
        return wanted in ("", tag) and self.has <= classes and not self.lacks & classes


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is declared of elements that fit the last of `path`, below some that fit the others."""

    path: Sequence[_Simple]
    declared: _Values

    @property
    def weight(self) -> tuple[int, int]:
        classes = sum(len(one.has) + len(one.lacks) for one in self.path)
        return classes, sum(bool(one.tag) for one in self.path)

    def fits(self, element: ElementTree.Element, above: Sequence[ElementTree.Element]) -> bool:
        *outer, own = self.path
        below = iter(above)
        return own.fits(element) and all(any(one.fits(each) for each in below) for one in outer)


def with_colours(svg: str, css: str) -> str:
    """The SVG with its looks as attributes, and no classes. Raises TwoDarkColoursError."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - drawn by ourselves
    dark: dict[tuple[str, str], str] = {}
    _paint(root, (), {}, sorted(_rules(css), key=lambda rule: rule.weight), dark)
    sheet = "".join(
        dark_rule(look, light, shown) for (look, light), shown in dark.items() if light != shown
    )
    style = ElementTree.Element(f"{{{SVG}}}style")
    style.text = f"\n@media (prefers-color-scheme: dark) {{\n{sheet}}}\n"
    style.tail = "\n"
    root.insert(0, style)
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _paint(
    element: ElementTree.Element,
    above: Sequence[ElementTree.Element],
    variables: _Values,
    rules: Sequence[_Rule],
    dark: dict[tuple[str, str], str],
) -> None:
    declared: dict[str, tuple[str, str]] = {}
    for rule in rules:
        if rule.fits(element, above):
            declared |= rule.declared
    variables = {**variables, **{key: declared[key] for key in declared if key.startswith("--")}}
    for look in sorted(_LOOKS & declared.keys()):
        shown = tuple(
            _looked_up(value, variables, number) for number, value in enumerate(declared[look])
        )
        if all(shown):
            _remember(dark, look, *shown)
            element.set(look, shown[0])
    for child in element:
        _paint(child, (*above, element), variables, rules, dark)
    element.attrib.pop("class", None)


def _remember(dark: dict[tuple[str, str], str], look: str, light: str, shown: str) -> None:
    if dark.setdefault((look, light), shown) != shown:
        raise TwoDarkColoursError(
            f"{look} {light} is {dark[look, light]} and {shown} on a dark page. Use one pair of "
            f"colours for both."
        )


def _looked_up(value: str, variables: _Values, number: int) -> str:
    """With the variables' values; empty where one has none, as a declaration without effect."""
    for _ in range(len(variables) + 1):
        found = _VARIABLE.search(value)
        if found is None:
            return "none" if value == "transparent" else value
        if found[1] not in variables:
            return ""
        value = value.replace(found[0], variables[found[1]][number])
    return ""


def _rules(css: str) -> Iterator[_Rule]:
    for selectors, body in _RULE.findall(_AT_RULE.sub("", _COMMENT.sub("", css))):
        declared = {
            name.strip(): (_PAIR.sub(r"\1", value.strip()), _PAIR.sub(r"\2", value.strip()))
            for name, _, value in (one.partition(":") for one in body.split(";"))
            if value
        }
        for selector in selectors.split(","):
            # a child is found as a descendant: our pictures have no place where that differs
            parts = [_SIMPLE.fullmatch(part) for part in selector.replace(">", " ").split()]
            if parts and all(parts):
                yield _Rule([_simple(part) for part in parts if part], declared)


def _simple(part: re.Match[str]) -> _Simple:
    has, lacks = (frozenset(_NAME.findall(part[name])) for name in ("has", "lacks"))
    return _Simple(part["tag"] or "", has, lacks)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _classes(element: ElementTree.Element) -> frozenset[str]:
    return frozenset(element.get("class", "").split())
