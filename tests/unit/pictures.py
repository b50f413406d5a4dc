"""What a program that knows no style sheets makes of an SVG: where it finds no colour, it draws
black.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

_AREAS = {"rect", "polygon", "path", "circle", "text"}
_LINES = {"line", "polyline"}
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,6}|none|white|black")


def without_a_colour(svg: str) -> list[str]:
    """Every area without a fill and every line without a stroke of its own or from around it, and
    every colour that is not a plain one.
    """
    root = ElementTree.fromstring(svg)
    return [*_below(root, "", ""), *_unless_the_whole_has_a_background(root)]


def _below(element: ElementTree.Element, fill: str, stroke: str) -> Iterator[str]:
    tag = element.tag.rpartition("}")[2]
    own = dict(re.findall(r"([\w-]+):\s*([^;]+)", element.get("style", "")))
    fill, stroke = (
        own.get(way, element.get(way, around))
        for way, around in (("fill", fill), ("stroke", stroke))
    )
    for colour in (fill, stroke):
        if colour and not _COLOUR.fullmatch(colour):
            yield f"{tag}: {colour}"
    if (tag in _AREAS and not fill) or (tag in _LINES and stroke in ("", "none")):
        yield f"{tag} {element.attrib}"
    for child in element:
        yield from _below(child, fill, stroke)


def _unless_the_whole_has_a_background(root: ElementTree.Element) -> Iterator[str]:
    first = next((one for one in root.iter() if one.tag.endswith("}rect")), None)
    if first is None or first.get("fill", "").lower() not in ("#fff", "#ffffff"):
        yield "the first rectangle is no white background"
