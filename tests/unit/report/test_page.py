"""The page holds the figures, whatever people are called, and needs nothing but itself."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.unit.pictures import without_a_colour
from tests.unit.report.sample_report import sample_figures, sample_request
from tests.unit.report.small_request import (
    PRICES,
    START_MS,
    small_request,
    terms,
    write_line,
)
from tidegate.report.compute import figures_of
from tidegate.report.figures import ClosedMonth
from tidegate.report.page import page_html
from tidegate.report.request import ReportRequest
from tidegate.report.sheets import document_of, embedded_json, sheets_of
from tidegate.rollup.schemas import HOUR_MS
from tools.svg_colours import SVG, with_colours

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "\u2028\u202e",
    "${x}",
]
ROOT = Path(__file__).parents[3]
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Every element with its attributes and its own text; raises where elements do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.elements[self._open[-1]][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, "".join(text)) for name, attributes, text in self.elements if name == tag
        ]


SAMPLE_PAGE = page_html(sample_figures())
PARSED = Page(SAMPLE_PAGE)


def test_every_cell_points_to_its_number_in_the_json() -> None:
    document = json.loads(embedded_json(sample_figures()))
    pointers = [
        attributes["data-figure"]
        for _, attributes, _ in PARSED.elements
        if "data-figure" in attributes
    ]
    assert len(pointers) > 1000
    for pointer in pointers:
        value: object = document
        for name in str(pointer).split("/")[1:]:
            value = value[int(name)] if isinstance(value, list) else value[name]  # type: ignore[index]
        assert not isinstance(value, (list, dict)) or str(pointer).endswith("/labels")


def test_the_embedded_json_is_the_json() -> None:
    (text,) = [
        text for attributes, text in PARSED.all("script") if attributes.get("id") == "figures"
    ]
    assert json.loads(text) == document_of(sample_figures())


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    linked = [
        value
        for _, attributes, _ in PARSED.elements
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "style")
    ]
    assert all(str(value).startswith("#") for value in linked)
    assert not re.search(r"url\(|@import|https?://", SAMPLE_PAGE)


def test_its_own_policy_lets_only_its_own_script_and_style_run() -> None:
    (policy,) = [
        attributes["content"] for attributes, _ in PARSED.all("meta") if "http-equiv" in attributes
    ]
    texts = [text for attributes, text in PARSED.all("script") if "type" not in attributes] + [
        text for _, text in PARSED.all("style")
    ]
    for text in texts:
        assert "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in str(
            policy
        )
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)


def test_ids_are_unique_and_every_link_and_label_leads_somewhere() -> None:
    ids = [attributes["id"] for _, attributes, _ in PARSED.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [
        attributes[name]
        for _, attributes, _ in PARSED.elements
        for name in ("for", "aria-labelledby", "aria-describedby")
        if name in attributes
    ]
    assert {*named, *(str(attributes["href"])[1:] for attributes, _ in PARSED.all("a"))} <= set(ids)


def test_every_plot_says_what_it_shows() -> None:
    plots = [attributes for attributes, _ in PARSED.all("svg")]
    assert len(plots) == len(PARSED.all("title")) - 1 == len(PARSED.all("desc")) >= 8
    assert all(text for _, text in PARSED.all("desc"))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_can_add_an_element_or_end_a_script(name: str) -> None:
    page, plain = (
        Page(page_html(figures_of(small_request(**named))))
        for named in (hostile_request(name), hostile_request("a harmless name"))
    )
    shape = [tag for tag, _, _ in page.elements]
    assert shape == [tag for tag, _, _ in plain.elements]
    assert not any(
        attribute.startswith("on") for _, attributes, _ in page.elements for attribute in attributes
    )
    (figures,) = [
        text for attributes, text in page.all("script") if attributes.get("id") == "figures"
    ]
    assert json.loads(figures)["members"][0]["user"] == name
    assert any(text == name for _, text in page.all("td"))


def hostile_request(name: str) -> dict[str, object]:
    """The name everywhere where a stranger's text can get to."""
    usage = {
        "user": name,
        "client_id": name,
        "tier": name,
        "bytes": 9,
        "peak_rate": 2.0,
        "p95": 1.0,
        "throttled_seconds": 5.0,
    }
    return {
        "policy": name,
        "usage": [usage],
        "members": [terms(name, tier=name, name=name, fetch=100)],
        "trail": [write_line(1, name, 100, 50, policy=name, tier=name, level=name)],
        "usage_5m": [{"user": name, "client_id": name, "bytes": 9, "coverage": 0.1}],
    }


def test_the_page_is_well_below_the_size_that_mail_takes() -> None:
    assert len(SAMPLE_PAGE.encode()) < 1_000_000


def test_a_large_cluster_fits_too_and_what_is_left_out_of_the_page_is_in_the_files() -> None:
    figures = figures_of(large_request())
    page = page_html(figures)
    assert len(page.encode()) < 1_500_000
    assert "1,850 more rows are in the CSV file members.csv" in page
    assert len(sheets_of(figures)["members"].rows) == 2000


def large_request() -> ReportRequest:
    """A thousand members in eight tiers on a hundred brokers, by the hour of five days."""
    ways, hours = ("fetch", "produce"), [START_MS + hour * HOUR_MS for hour in range(120)]
    usage = [
        {
            "user": f"user-with-a-name-{place}",
            "tier": f"streaming/tier-{place % 8}",
            "direction": way,
            "bytes": place + 1,
            **more,
        }
        for place, way in product(range(1000), ways)
        for more in (
            {
                "peak_rate": 2.0,
                "p95": 1.0,
                "throttled_seconds": 9.0,
                "window_start": hours[place % 120],
            },
        )
    ]
    brokers = [
        {"broker": broker, "direction": way, "nic_bytes": broker, "limit": 5, "window_start": hour}
        for broker, way, hour in product(range(100), ways, hours)
    ]
    fine = [row | {"coverage": 0.5} for row in usage]
    members = [terms(str(row["user"]), tier=str(row["tier"]), fetch=100) for row in usage]
    return small_request(
        usage, brokers, usage_5m=fine, members=members, rate_card=PRICES, end_ms=hours[-1] + HOUR_MS
    )


@pytest.mark.parametrize(
    ("expected", "request_of"),
    [
        ("No usage was found in this period.", {}),
        ("The policy sets no price", {}),
        ("No audit trail was given", {}),
        ("By the audit trail no quota was below its contract", {"trail": []}),
        ("No broker has a limit", {"brokers": [{"nic_bytes": 1}]}),
        (
            "This report is incomplete: 1 of 2 windows of one hour are not in the tables.",
            {"usage": [{"user": "a", "bytes": 1}]},
        ),
        ("The 5-minute rows are gone", {"usage": [{"user": "a", "bytes": 1}]}),
        ("No recommendations were made", {}),
    ],
)
def test_what_is_not_known_is_said(expected: str, request_of: dict[str, object]) -> None:
    assert expected in page_html(figures_of(small_request(**request_of)))  # type: ignore[arg-type]


def test_a_report_of_a_single_window_can_be_drawn() -> None:
    request = small_request(
        [{"user": "a", "bytes": 1}],
        [{"nic_bytes": 1, "limit": 2}],
        trail=[write_line(1, "a", 100, 99)],
    )
    assert Page(page_html(figures_of(request))).all("svg")


def test_the_sample_request_is_drawn_without_its_five_minutes_too() -> None:
    assert Page(page_html(figures_of(sample_request(with_five_minutes=False)))).all("svg")


def test_the_wheel_has_every_template() -> None:
    builder = WheelBuilder(str(ROOT))
    packed = {Path(file.distribution_path) for file in builder.recurse_included_files()}
    folder = Path("tidegate/report/templates")
    used = {folder / name for name in ("macros.html", "page.css", "page.html", "page.js")}
    assert used == {path for path in packed if path.parent == folder}


def test_corrections_of_earlier_months_are_on_the_page_and_apart_from_the_bill() -> None:
    figures = sample_figures()
    assert str(figures.corrections_amount) == "1.43"
    assert figures.amount_due == (figures.total_amount or 0) + Decimal("1.43")
    texts = {
        attributes["data-figure"]: "".join(text)
        for _, attributes, text in PARSED.elements
        if "data-figure" in attributes
    }
    assert texts["/correctionsAmount"] == "+1.43"
    assert texts["/corrections/1/amount"] == "−0.50"
    assert texts["/corrections/1/correctedMonth"] == "2026-10"
    assert texts["/amountDue"] == f"{figures.amount_due:,.2f}"
    assert 'id="corrections"' not in page_html(figures_of(small_request([{"user": "a"}])))


@pytest.mark.parametrize(
    ("more", "amount", "said"),
    [
        (0, None, "Amounts are those of then."),
        (1500, Decimal("-0.20"), "The difference of −0.20 EUR is not on this bill"),
    ],
)
def test_a_closed_month_has_its_bill_of_then(more: int, amount: Decimal | None, said: str) -> None:
    figures = sample_figures()
    then = [replace(figures.charges[0], amount=Decimal("7.77"))]
    closed = ClosedMonth(
        "2026-11", "2026-12-01T02:00:00Z", "0" * 64, 5, 5 + more, "2027-01", amount
    )
    request = replace(sample_request(), closed=closed, closed_charges=then)
    made = figures_of(request)
    assert (made.total_amount, made.charges) == (Decimal("7.77"), tuple(then))
    text = " ".join(page_html(made).split())
    assert said in text
    assert ("+1,500 bytes" in text) == (more > 0)


@pytest.mark.parametrize(
    "plot", re.findall(r"<svg.*?</svg>", SAMPLE_PAGE, re.DOTALL), ids=lambda it: it.split('"')[9]
)
def test_a_plot_can_leave_the_page_with_its_colours(plot: str) -> None:
    """As a picture for another document, which has no style sheet for it."""
    style = re.search(r"<style>(.*?)</style>", SAMPLE_PAGE, re.DOTALL)
    assert style is not None
    background = f'<svg xmlns="{SVG}"><rect fill="#fff"/>{plot}</svg>'
    assert without_a_colour(with_colours(background, style[1])) == []
