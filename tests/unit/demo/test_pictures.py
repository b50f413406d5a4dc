"""The pictures that the documents take from a report of the demo: each stands for itself."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from demo.report import move_html, report_html, shift_html, throttling_html
from tests.unit.demo.conftest import PlayedMove, PlayedRun, PlayedShift, PlayedThrottling
from tests.unit.pictures import without_a_colour
from tools import demo_pictures
from tools.demo_pictures import PICTURES, NoSuchPlotError, picture, plot_of
from tools.svg_colours import SVG, TwoDarkColoursError, with_colours

CHECKOUT = Path(__file__).parents[3]
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(
    played: PlayedRun,
    played_throttling: PlayedThrottling,
    played_move: PlayedMove,
    played_shift: PlayedShift,
) -> str:
    page = report_html(played())
    throttling = played_throttling()
    later = throttling_html(throttling) + move_html(played_move())
    later += shift_html(replace(played(), throttling=throttling, shift=played_shift()))
    return page.replace("</body>", later + "</body>")


@pytest.mark.parametrize("key", PICTURES)
def test_a_picture_has_its_colours_outside_a_browser_too(report: str, key: str) -> None:
    drawn = picture(report, key)
    root = ElementTree.fromstring(drawn)
    assert root.find(f".//{_SVG}title") is not None
    assert not re.search(r"light-dark|var\(|class=", drawn)
    assert without_a_colour(drawn) == []


@pytest.mark.parametrize("key", PICTURES)
def test_a_picture_has_its_legend_within_its_edges(report: str, key: str) -> None:
    root = ElementTree.fromstring(picture(report, key))
    texts = {text.text: text for text in root.iter(f"{_SVG}text")}
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for _, words in plot_of(report, key).legend:
        assert 0 <= float(texts[words].attrib["x"]) < width
        assert 0 <= float(texts[words].attrib["y"]) < height


def test_a_dark_page_gets_the_second_colour_of_each_pair(report: str) -> None:
    drawn = picture(report, "total")
    assert "@media (prefers-color-scheme: dark)" in drawn
    assert '[stroke="#c0392b"] { stroke: #ff7b6b }' in drawn  # a kill
    assert '[fill="#fff"] { fill: #14181d }' in drawn  # the page
    assert drawn.count('stroke="#c0392b"') > 1


def test_a_light_colour_with_two_dark_ones_is_refused() -> None:
    svg = f'<svg xmlns="{SVG}"><rect class="a"/><rect class="b"/></svg>'
    css = ".a { fill: light-dark(#111, #eee) } .b { fill: light-dark(#111, #ddd) }"
    with pytest.raises(TwoDarkColoursError, match="fill #111 is #eee and #ddd"):
        with_colours(svg, css)


@pytest.mark.parametrize(
    ("css", "fill"),
    [
        ("rect { fill: red } .a { fill: blue }", "blue"),
        (".a { fill: blue } rect { fill: red }", "blue"),
        ("rect { fill: red } rect { fill: blue }", "blue"),
        (".a { fill: blue } rect.a:not(.b) { fill: red }", "red"),
        (".a { fill: blue } rect.a:not(.a) { fill: red }", "blue"),
        (".a { fill: blue } .g .a { fill: red }", "red"),
        (".a { fill: blue } .a .g { fill: red }", "blue"),
        (".a { fill: blue } .a:hover { fill: red }", "blue"),
        (".a { --c: blue } rect { fill: var(--c) }", "blue"),
        (".g { --c: red } .a { --c: blue } rect { fill: var(--c) }", "blue"),
        (".g { --c: blue } rect { fill: var(--c) }", "blue"),
        ("rect { fill: var(--c) }", None),
        ("@media print { rect { fill: red } } rect { fill: blue }", "blue"),
    ],
)
def test_attributes_say_what_the_style_sheet_says(css: str, fill: str | None) -> None:
    svg = f'<svg xmlns="{SVG}"><g class="g"><rect class="a"/></g></svg>'
    rect = ElementTree.fromstring(with_colours(svg, css)).find(f".//{_SVG}rect")
    assert rect is not None
    assert rect.attrib == ({} if fill is None else {"fill": fill})


def test_a_report_without_the_plot_changes_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], played: PlayedRun
) -> None:
    page = report_html(played())  # the other two experiments were not played
    with pytest.raises(NoSuchPlotError, match="episode-tidegate"):
        picture(page, "episode-tidegate")
    (tmp_path / "report.html").write_text(page)
    before = {path: (CHECKOUT / path).read_bytes() for path in PICTURES.values()}
    assert demo_pictures.main([str(tmp_path / "report.html")]) == 1
    assert "No picture was written." in capsys.readouterr().err
    assert {path: (CHECKOUT / path).read_bytes() for path in PICTURES.values()} == before


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs").rglob("*.svg")), ids=lambda it: it.name)
def test_every_picture_of_the_documents_can_be_drawn_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    links = re.findall(r"""(?:href|src)=["']([^"']*)|url\(([^)]*)\)""", text)
    assert [one or other for one, other in links if not (one or other).startswith("#")] == []


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs").rglob("*.svg")), ids=lambda it: it.name)
def test_no_picture_of_the_documents_is_black_outside_a_browser(path: Path) -> None:
    assert without_a_colour(path.read_text(encoding="utf-8")) == []


def test_a_picture_that_only_a_style_sheet_colours_would_be_found() -> None:
    around = f'<svg xmlns="{SVG}"><rect fill="#fff"/>{{}}</svg>'
    assert without_a_colour(around.format('<g fill="#111"><text>a</text></g>')) == []
    for black in (
        '<rect class="l0"/>',
        '<rect fill="var(--l0)"/>',
        '<rect style="fill:var(--l0)"/>',
        "<text>a</text>",
        '<polyline fill="none"/>',
    ):
        assert len(without_a_colour(around.format(black))) == 1, black
    assert without_a_colour(f'<svg xmlns="{SVG}"/>') != []
