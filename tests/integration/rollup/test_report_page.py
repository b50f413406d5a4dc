"""The report in a real browser: it shows the numbers of the JSON, its script runs under its own
policy, and no name is run as code.
"""

import json
import re
import subprocess
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lab.browser import chromium
from lab.process import patience
from tests.unit.report.sample_report import START_MS, sample_figures, sample_request
from tests.unit.report.small_request import small_request, write_line
from tidegate.report.compute import figures_of
from tidegate.report.figures import ReportFigures
from tidegate.report.page import write_report
from tidegate.report.rate_card import GIB
from tidegate.rollup.schemas import HOUR_MS

pytestmark = pytest.mark.integration

_HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"
)
_DOES = {
    "sorts by name": (
        "document.querySelector('#table-members th:nth-child(1) button').click();"
        "return document.querySelector('#table-members tbody td').textContent;",
        "checkout",
    ),
    "sorts by a number, largest first": (
        "document.querySelector('#table-brokers th:nth-child(1) button').click();"
        "return document.querySelector('#table-brokers tbody td').textContent;",
        "6",
    ),
    "filters rows": (
        "const field = document.getElementById('filter-members'); field.value = 'SCANNER'; "
        "field.dispatchEvent(new Event('input'));"
        "return "
        "document.querySelector('#table-members').closest('.sheet').querySelector('.found').textContent;",
        "2 of 27 rows",
    ),
    "walks through a plot by the keyboard": (
        "document.querySelector('svg.plot').dispatchEvent(new KeyboardEvent('keydown', {key: "
        "'ArrowDown'}));"
        "return document.getElementById('tip').textContent.split('\\n')[0];",
        "checkout",
    ),
    "chooses dark": (
        "const theme = document.getElementById('theme'); theme.value = 'dark'; "
        "theme.dispatchEvent(new Event('change'));"
        "return getComputedStyle(document.body).backgroundColor;",
        "rgb(20, 24, 29)",
    ),
}


def browsed(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """Run the browser and return its standard output and its standard error."""
    command = [
        str(chromium()),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ]
    command += [
        f"--user-data-dir={profile}",
        "--enable-logging=stderr",
        "--v=0",
        *options,
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=patience(90), check=True)
    return run.stdout, run.stderr


def dumped(page: Path, profile: Path) -> tuple[str, str]:
    """The document after its script ran, and the messages of the browser."""
    return browsed(page, profile, "--dump-dom")


def changed(page: Path, addition: str) -> None:
    """Add something to the end of the body. The page's policy would block it, so the policy is
    removed.
    """
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    page.write_text(text.replace("</body>", f"{addition}</body>"))


class Cells(HTMLParser):
    """Text and title of every element with `data-figure`, by JSON pointer."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}
        self._pointer: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._pointer = attributes.get("data-figure")
        if self._pointer is not None:
            self.found[self._pointer] = ("", attributes.get("title") or "")

    def handle_data(self, data: str) -> None:
        if self._pointer is not None:
            text, title = self.found[self._pointer]
            self.found[self._pointer] = (text + data, title)

    def handle_endtag(self, tag: str) -> None:
        self._pointer = None


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    folder = tmp_path_factory.mktemp("report")
    page = write_report(sample_figures(), folder)
    return *dumped(page, tmp_path_factory.mktemp("profile")), folder


def number(text: str) -> float:
    return float(re.sub(r"[^\d.−-]", "", text).replace("−", "-"))


def value_at(document: object, pointer: str) -> object:
    for name in pointer.split("/")[1:]:
        document = document[int(name)] if isinstance(document, list) else document[name]  # type: ignore[index]
    return document


def test_every_byte_count_on_the_page_is_the_one_of_the_json_file(
    shown: tuple[str, str, Path],
) -> None:
    document = json.loads((shown[2] / "report.json").read_text())
    cells = {
        pointer: cell
        for pointer, cell in Cells(shown[0]).found.items()
        if re.search(r"[bB]ytes$", pointer)
    }
    assert len(cells) > 100
    for pointer, (text, title) in cells.items():
        count = value_at(document, pointer)
        assert isinstance(count, int)
        if title:
            assert number(title) == count, pointer
        assert text.startswith("<0.001") or number(text) == pytest.approx(
            count / GIB, rel=0.005, abs=0.0005
        ), pointer


def test_every_price_on_the_page_is_the_one_of_the_json_file(shown: tuple[str, str, Path]) -> None:
    document = json.loads((shown[2] / "report.json").read_text())
    amounts = {
        pointer: text
        for pointer, (text, _) in Cells(shown[0]).found.items()
        if pointer.endswith(("/amount", "/totalAmount"))
    }
    assert len(amounts) > 30
    for pointer, text in amounts.items():
        plain = text.replace(",", "").replace("\N{MINUS SIGN}", "-").removesuffix(" EUR")
        assert plain == value_at(document, pointer)


def test_the_browser_has_nothing_to_complain_of(shown: tuple[str, str, Path]) -> None:
    assert not [line for line in shown[1].splitlines() if "CONSOLE" in line]


def test_the_script_ran_under_the_pages_own_policy(shown: tuple[str, str, Path]) -> None:
    assert re.search(r'<html[^>]* class="scripted"', shown[0])


def test_another_script_does_not_run_under_the_pages_policy(tmp_path: Path) -> None:
    page = write_report(sample_figures(), tmp_path / "report")
    page.write_text(
        page.read_text().replace("</body>", "<script>document.title = 'taken'</script></body>")
    )
    document, said = dumped(page, tmp_path / "profile")
    assert "<title>taken</title>" not in document
    assert "CONSOLE" in said


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A second script acts as a reader would. The page's policy would block it, so it is
    removed.
    """
    page = write_report(sample_figures(), tmp_path_factory.mktemp("report"))
    steps = ",".join(
        f"{json.dumps(name)}: (() => {{ {script} }})()" for name, (script, _) in _DOES.items()
    )
    changed(page, f"<script>document.title = JSON.stringify({{{steps}}});</script>")
    document = dumped(page, tmp_path_factory.mktemp("profile"))[0]
    found: dict[str, str] = json.loads(
        unescape(document.partition("<title>")[2].partition("</title>")[0])
    )
    return found


@pytest.mark.parametrize("does", _DOES)
def test_what_a_reader_does_is_answered(does: str, answers: dict[str, str]) -> None:
    assert answers[does] == _DOES[does][1]


def hostile_figures() -> ReportFigures:
    usage = {
        "user": _HOSTILE,
        "client_id": _HOSTILE,
        "tier": _HOSTILE,
        "bytes": 9,
        "peak_rate": 2.0,
        "p95": 1.0,
        "throttled_seconds": 1.0,
    }
    trail = [write_line(1, _HOSTILE, 100, 50, policy=_HOSTILE)]
    return figures_of(small_request([usage], policy=_HOSTILE, trail=trail))


def test_no_name_runs_in_the_readers_browser(tmp_path: Path) -> None:
    page = write_report(hostile_figures(), tmp_path / "report")
    document, said = dumped(page, tmp_path / "profile")
    assert "<title>taken</title>" not in document
    assert not re.search(r"<img\b", document)
    assert "CONSOLE" not in said


def test_five_minutes_of_a_short_period_are_drawn_as_the_json_file_has_them(tmp_path: Path) -> None:
    end_ms = START_MS + HOUR_MS
    page = write_report(
        figures_of(replace(sample_request(), start_ms=START_MS, end_ms=end_ms)), tmp_path / "report"
    )
    document, said = dumped(page, tmp_path / "profile")
    found = json.loads((page.parent / "report.json").read_text())
    cells = Cells(document).found
    rates = {
        f"/traffic/{place}/rate": point["rate"] / 1e6
        for place, point in enumerate(found["traffic"])
    }
    shares = {
        f"/load/{place}/busiestShare": point["busiestShare"] * 100
        for place, point in enumerate(found["load"])
    }
    assert (len(rates), len(shares)) == (
        4 * 2 * 12,
        6 * 2 * 12,
    )  # tiers or brokers, directions, windows
    for pointer, value in (rates | shares).items():
        assert number(cells[pointer][0]) == pytest.approx(value, rel=0.005, abs=0.05), pointer
    assert document.count("UTC, 5 min\n") == 2 * 12
    assert "CONSOLE" not in said


def texts_by_printed_page(pdf: bytes) -> list[int]:
    """How many pieces of text each page shows."""
    streams = {
        place: zlib.decompress(data)
        for place, data in re.findall(
            rb"(\d+) 0 obj\n<<[^>]*FlateDecode[^>]*>> stream\n(.*?)\nendstream", pdf, re.DOTALL
        )
    }
    pages = re.findall(rb"/Type /Page\n.*?/Contents (\d+) 0 R", pdf, re.DOTALL)
    return [len(re.findall(rb"\bT[jJ]\b", streams[place])) for place in pages]


def test_every_printed_page_of_a_table_has_its_columns_titles(tmp_path: Path) -> None:
    """The titles are buttons, which Chromium by default prints on a table's first page only. Here
    they are the only remaining text.
    """
    page = write_report(sample_figures(), tmp_path / "report")
    others = ":not(:has(#table-members)):not(#table-members, #table-members *) { display: none; }"
    changed(
        page,
        (
            f"<style>{others} caption {{ display: none; }} td {{ font-size: 0 !important; height: "
            f"3cm; }}</style>"
        ),
    )
    browsed(
        page,
        tmp_path / "profile",
        "--no-pdf-header-footer",
        f"--print-to-pdf={tmp_path / 'page.pdf'}",
    )
    first, *following = texts_by_printed_page((tmp_path / "page.pdf").read_bytes())
    assert len(following) >= 4
    assert {first} == set(following) != {0}
