"""The pictures that the documents take from a report of the demo: each stands for itself."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from demo.report import move_html, report_html, shift_html, throttling_html
from tests.unit.demo.conftest import PlayedMove, PlayedRun, PlayedShift, PlayedThrottling
from tools import demo_pictures
from tools.demo_pictures import PICTURES, NoSuchPlotError, picture, plot_of

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
def test_a_picture_has_what_its_marks_need(report: str, key: str) -> None:
    drawn = picture(report, key)
    root = ElementTree.fromstring(drawn)
    assert root.find(f".//{_SVG}title") is not None
    assert "light-dark" not in drawn  # which older browsers and other programs do not know
    coloured = set(re.findall(r"\.([\w-]+) \{--colour", drawn))
    for mark in [*root.iter(f"{_SVG}polyline"), *root.iter(f"{_SVG}polygon")]:
        assert coloured & set(mark.attrib["class"].split()), mark.attrib["class"]


@pytest.mark.parametrize("key", PICTURES)
def test_a_picture_has_its_legend_within_its_edges(report: str, key: str) -> None:
    root = ElementTree.fromstring(picture(report, key))
    texts = {text.text: text for text in root.iter(f"{_SVG}text")}
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for _, words in plot_of(report, key).legend:
        assert 0 <= float(texts[words].attrib["x"]) < width
        assert 0 <= float(texts[words].attrib["y"]) < height


def test_a_dark_page_gets_the_second_colour_of_each_pair(report: str) -> None:
    light, _, dark = picture(report, "total").partition("@media (prefers-color-scheme: dark)")
    assert ".kill {--colour: #c0392b}" in light
    assert ".kill {--colour: #ff7b6b}" in dark
    assert "--page: #fff;" in light
    assert "--page: #14181d;" in dark


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
