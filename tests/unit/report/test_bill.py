"""What finance asks of a bill: the tolerance of each line, and that nothing is missing."""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.unit.report.sample_report import sample_figures, sample_request
from tests.unit.report.small_request import PRICES, START_MS, small_request, terms
from tidegate.report.bill import MEASURED_ERROR, MEASURED_ERROR_THROTTLED, PEAK_ERROR
from tidegate.report.compute import figures_of
from tidegate.report.figures import ClosedMonth, ReportFigures
from tidegate.report.page import csv_text, page_html
from tidegate.report.rate_card import GIB, RateCard, Rates, ShareBy
from tidegate.report.sheets import sheets_of
from tidegate.rollup.schemas import HOUR_MS

WIDEST = 0.15  # the highest factor of the bounds is 1.15


def figures(
    *, factor: float | None = 1.0, known: int = 100, hours: Mapping[str, object] | None = None
) -> ReportFigures:
    """One client with 100 bytes, of which `known` have a row of 5 minutes with that factor."""
    fine = {"user": "a", "bytes": known, "calibration": factor}
    usage = {"user": "a", "bytes": 100, **(hours or {})}
    return figures_of(small_request([usage], usage_5m=[fine] if known else None, rate_card=PRICES))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, MEASURED_ERROR, id="nothing but the measured error"),
        pytest.param(
            {"hours": {"throttled_seconds": 5.0}}, MEASURED_ERROR_THROTTLED, id="throttled"
        ),
        pytest.param({"factor": 1.04}, MEASURED_ERROR + 0.04, id="scaled up"),
        pytest.param({"factor": 0.9}, MEASURED_ERROR + 0.1, id="scaled down"),
        pytest.param({"factor": 0.4}, MEASURED_ERROR + 0.6, id="counted twice"),
        pytest.param({"factor": 3.0}, MEASURED_ERROR + WIDEST, id="no more than is billed"),
        pytest.param({"factor": None}, MEASURED_ERROR + WIDEST, id="never scaled"),
        pytest.param({"known": 0}, MEASURED_ERROR + WIDEST, id="no rows of 5 minutes"),
        pytest.param(
            {"known": 80, "factor": 1.05}, MEASURED_ERROR + 0.8 * 0.05 + 0.2 * WIDEST, id="some"
        ),
        pytest.param({"hours": {"coverage": 0.9}}, MEASURED_ERROR + 0.1, id="samples missing"),
        pytest.param({"hours": {"coverage": 0.0}, "factor": 0.1}, 1.0, id="at most all of it"),
    ],
)
def test_a_line_says_how_far_it_may_be_off(given: dict[str, object], expected: float) -> None:
    made = figures(**given)  # type: ignore[arg-type]
    assert made.members[0].tolerance == pytest.approx(expected)
    assert made.charges[0].tolerance == pytest.approx(expected)
    assert made.tier_totals[0].tolerance == pytest.approx(expected)


def test_every_line_of_the_sample_has_its_tolerance_on_page_and_in_csv() -> None:
    made = sample_figures()
    assert all(one.tolerance for one in (*made.members, *made.labels, *made.tier_totals))
    page = page_html(made)
    assert f"± {(made.members[0].tolerance or 0) * 100:.1f} %" in page
    rows = csv.DictReader(io.StringIO(csv_text(sheets_of(made)["charges"])))
    assert all(0 < float(row["tolerance"]) < 1 for row in rows if row["member"])


@pytest.mark.parametrize(
    ("share_by", "tolerance"),
    [("Contract", None), ("Bytes", MEASURED_ERROR + WIDEST), ("Peak", PEAK_ERROR)],
)
def test_a_share_is_as_uncertain_as_what_it_is_shared_by(
    share_by: ShareBy, tolerance: float | None
) -> None:
    card = RateCard(rates=[Rates(cost_per_month=Decimal(900), share_by=share_by)], currency="EUR")
    usage = [{"user": "a", "tier": "t", "bytes": 5, "peak_rate": 2.0}]
    request = small_request(usage, rate_card=card, members=[terms("a", fetch=10)])
    (line,) = [one for one in figures_of(request).charges if one.bytes]
    assert line.tolerance == (None if tolerance is None else pytest.approx(tolerance))


def test_a_line_of_no_member_is_exact() -> None:
    card = RateCard(rates=[Rates(per_gib={"fetch": Decimal(1)}, unattributed="OwnLine")])
    brokers = [{"client_bytes": 3 * GIB, "unattributed_bytes": GIB}]
    made = figures_of(small_request([{"user": "a", "bytes": 2 * GIB}], brokers, rate_card=card))
    assert [(one.kind, one.tolerance is None) for one in made.charges] == [
        ("Usage", False),
        ("Unattributed", True),
    ]
    fetch, _, both = made.reconciliation
    assert fetch.unattributed_amount == fetch.unattributed_charged == Decimal("1.00")
    assert both.unattributed_charged == Decimal("1.00")
    assert "The rate card charges unattributed bytes." in page_html(made)


def test_billed_and_unattributed_bytes_are_what_was_counted() -> None:
    made = sample_figures()
    fetch, produce, both = made.reconciliation
    assert (fetch.direction, produce.direction, both.direction) == ("fetch", "produce", "both")
    for one in made.reconciliation:
        assert one.billed_bytes + one.unattributed_bytes == one.counted_bytes
        assert (one.difference_bytes, one.unattributed_charged) == (0, None)
    assert both.billed_bytes == made.total_bytes
    assert both.counted_bytes == fetch.counted_bytes + produce.counted_bytes
    amounts = [one.unattributed_amount or Decimal(0) for one in (fetch, produce)]
    assert both.unattributed_amount == sum(amounts)
    assert "their cost is shown here alone" in page_html(made)


def test_bytes_that_are_on_no_line_are_a_difference() -> None:
    made = figures_of(small_request([{"user": "a", "bytes": 5}], [{"client_bytes": 9}]))
    assert made.reconciliation[0].difference_bytes == 4


def test_a_tier_has_one_line_for_both_directions_that_adds_up() -> None:
    made = sample_figures()
    assert len({one.tier for one in made.tier_totals}) == len(made.tier_totals)
    assert sum(one.bytes for one in made.tier_totals) == made.total_bytes
    assert sum(one.amount or Decimal(0) for one in made.tier_totals) == made.total_amount
    for one in made.tier_totals:
        assert one.fetch_bytes + one.produce_bytes == one.bytes


def test_a_cost_centre_is_as_uncertain_as_its_members_together() -> None:
    """One with 300 bytes and a tolerance of 0.8 %, one with 100 bytes and 0.8 + 10 %."""
    labels = '{"team":"shop"}'
    usage = [
        {"user": "a", "bytes": 300, "labels": labels},
        {"user": "b", "bytes": 100, "labels": labels, "coverage": 0.9},
        {"user": "c", "bytes": 0, "window_start": START_MS + HOUR_MS},
    ]
    fine = [{**row, "calibration": 1.0} for row in usage]
    made = figures_of(small_request(usage, usage_5m=fine, by_labels=("team",)))
    found = {one.value: (one.members, one.tolerance) for one in made.labels}
    assert found == {"shop": (2, pytest.approx(MEASURED_ERROR + 0.25 * 0.1)), "": (1, None)}


# The page.


def test_the_amount_due_is_the_large_figure_and_the_correction_is_a_line() -> None:
    text = " ".join(page_html(sample_figures()).split())
    made = sample_figures()
    assert f'Amount due<b data-figure="/amountDue">{made.amount_due:,.2f} EUR</b>' in text
    assert f'bill of this period <span data-figure="/totalAmount">{made.total_amount:,.2f}' in text
    assert 'data-figure="/correctionsAmount">+1.43</a>' in text
    assert "no price is set" in page_html(figures_of(small_request([{"user": "a", "bytes": 5}])))


def test_the_summary_by_cost_centre_is_before_the_bill() -> None:
    page = page_html(sample_figures())
    assert page.index('<h2 id="labels">By team</h2>') < page.index('<h2 id="bill">')
    assert "(no team)" in page
    without = page_html(figures_of(replace(sample_request(), by_labels=())))
    assert 'id="labels"' not in without
    assert without.index('id="table-tier_totals"') < without.index('id="table-totals"')


def test_titles_are_those_of_finance() -> None:
    page = page_html(sample_figures())
    for title in ("Unattributed cost", "Total at brokers", "Held back (estimate)", "Tolerance"):
        assert f">{title}" in page
    for former in ("Price of it", "Counted by brokers", "Deferred", "without it"):
        assert f">{former}" not in page


def test_cluster_policy_and_who_closed_the_month_are_on_the_page() -> None:
    closed = ClosedMonth(
        *("2026-11", "2026-12-01T02:00:00Z", "ab" * 32, 5, 5, "2026-12", None),
        closed_by="jo@billing",
        invoice_id="2026-11-abab",
    )
    request = sample_request()
    given = replace(request.provenance, cluster="Qk3f", policy="streaming/main")
    page = page_html(figures_of(replace(request, closed=closed, provenance=given)))
    text = " ".join(page.split())
    assert "<h1>streaming/main</h1>" in text
    assert '<b data-figure="/kafkaClusterId">Qk3f</b>' in text
    assert "UTC by jo@billing with 5 bytes, as invoice 2026-11-abab." in text
    assert "ab" * 32 in text
