"""The FOCUS file: every rule of the specification 1.2 (`focus_rules.py`), and the bill's amounts.

A published validator checks the same file in `make test-focus`.
"""

import csv
import io
import json
import re
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.report.focus_rules import COLUMNS, problems
from tests.unit.report.sample_report import (
    PRICES,
    START_MS,
    sample_corrections,
    sample_figures,
    sample_request,
)
from tests.unit.report.small_request import small_request, terms
from tidegate.errors import InvalidResource
from tidegate.report.compute import figures_of
from tidegate.report.figures import ClosedMonth, ReportFigures
from tidegate.report.focus import (
    SCHEMA,
    csv_lines,
    focus_table,
    focus_warnings,
    parquet_bytes,
)
from tidegate.report.rate_card import RateCard, Rates
from tidegate.rollup.schemas import DAY_MS

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def every_model() -> ReportFigures:
    """Prices, a level's price, shares of unattributed and replicated bytes, and a shared cost."""
    second = date(2026, 11, 21)
    first = Rates(
        per_gib={"fetch": Decimal("0.02"), "produce": Decimal("0.013")},
        of_level={"L0": {"fetch": Decimal("0.05")}},
        replication_per_gib=Decimal("0.001"),
        unattributed="OwnLine",
        replication="Members",
    )
    card = RateCard(
        rates=[first, Rates(since=second, cost_per_month=Decimal(12000), share_by="Bytes")],
        currency="EUR",
    )
    assert START_MS % DAY_MS == 0
    return figures_of(sample_request(rate_card=card))


FIGURES = every_model()
TABLE = focus_table(FIGURES, issuer="Data platform")
ROWS = TABLE.to_pylist()


def test_the_table_has_the_columns_of_the_specification() -> None:
    levels = [one.level for one in COLUMNS.values()]
    assert Counter(levels) == {"Mandatory": 21, "Recommended": 4, "Conditional": 32}
    assert {column.name for column in COLUMNS.values() if column.level != "Conditional"} <= set(
        TABLE.column_names
    )
    assert {field.name for field in SCHEMA if not field.nullable} >= {
        one.name for one in COLUMNS.values() if not one.nullable and one.name in SCHEMA.names
    }


@pytest.mark.parametrize("table", ["every model", "the sample", "a closed month", "contracts"])
def test_the_dataset_keeps_every_rule_of_the_specification(table: str) -> None:
    figures = {
        "every model": FIGURES,
        "the sample": sample_figures(),
        "a closed month": closed_figures(),
        "contracts": by_contract(),
    }[table]
    assert problems(csv_lines(focus_table(figures, issuer="Data platform"))) == []


def closed_figures() -> ReportFigures:
    closed = ClosedMonth(
        *("2026-11", "2026-12-01T02:00:00Z", "0" * 64, 5, 5, "2026-12", None),
        invoice_id="2026-11-0123456789abcdef",
    )
    return figures_of(replace(sample_request(), closed=closed))


def by_contract() -> ReportFigures:
    """A member that moved nothing pays for its contract."""
    card = RateCard(rates=[Rates(cost_per_month=Decimal(9), share_by="Contract")], currency="EUR")
    idle, used = terms("idle", fetch=10), terms("used", fetch=20)
    usage = [{"user": "used", "tier": "t", "bytes": 5}]
    return figures_of(small_request(usage, rate_card=card, members=[idle, used]))


@pytest.mark.parametrize(
    ("right", "wrong", "column"),
    [
        ("BilledCost", "Cost", "BilledCost"),
        ("InvoiceId", "x_InvoiceId", "InvoiceId"),
        ("x_ChargeKind", "ChargeKind", "ChargeKind"),
        (",EUR,", ",EURO,", "BillingCurrency"),
        (",EUR,", ",,", "BillingCurrency"),
        (",Integration,", ",Cables,", "ServiceCategory"),
        (",Messaging,", ",Queues,", "ServiceSubcategory"),
        (",Usage-Based,", ",Hourly,", "ChargeFrequency"),
        (",Usage,", ",Use,", "ChargeCategory"),
        (",Standard,", ",,", "PricingCategory"),
        (",Correction,", ",,", "ChargeClass"),
        (",GiB,", ",gibibyte,", "ConsumedUnit"),
        ("T00:00:00Z", " 00:00", "BillingPeriodStart"),
        ("kafka-usage-fetch-L0", "kafka-usage-fetch-L0@2026-11-20", "SkuPriceId"),
        (",Data fetched from Kafka brokers,", ",,", "SkuMeter"),
        (',"{""costCenter"": ""4711""', ',"{""costCenter"": [1]', "Tags"),
        (",Kafka client,", ",,", "ResourceType"),
        (",BusinessTier,", ",,", "SubAccountType"),
        (",0.05,", ",0.06,", "ListCost"),
        (",0.05,", ",-0.05,", "ListUnitPrice"),
    ],
)
def test_a_broken_rule_is_found(right: str, wrong: str, column: str) -> None:
    text = csv_lines(TABLE)
    assert right in text
    found = problems(text.replace(right, wrong))
    assert column in {one.partition(":")[0] for one in found}


def test_an_invoice_adds_up_to_what_is_due() -> None:
    figures = closed_figures()
    rows = focus_table(figures, issuer="x").to_pylist()
    assert {row["InvoiceId"] for row in rows} == {"2026-11-0123456789abcdef"}
    assert sum(row["BilledCost"] for row in rows) == figures.amount_due


@pytest.mark.parametrize(
    ("cluster", "is_whole", "said"),
    [
        ("kafka-a", True, []),
        ("kafka-a", False, ["a whole month"]),
        ("", True, ["no Kafka cluster id"]),
    ],
)
def test_what_a_cost_tool_cannot_know_is_said(
    cluster: str, is_whole: bool, said: list[str]
) -> None:
    figures = replace(sample_figures(), kafka_cluster_id=cluster)
    warnings = list(focus_warnings(figures, is_whole_month=is_whole))
    assert len(warnings) == len(said)
    for words, expected in zip(warnings, said, strict=True):
        assert expected in words


def test_costs_are_price_times_quantity_and_no_further_from_what_is_billed_than_a_line() -> None:
    for row in ROWS:
        assert row["ListCost"] == row["ListUnitPrice"] * row["PricingQuantity"]
        assert row["ContractedCost"] == row["ContractedUnitPrice"] * row["PricingQuantity"]
        assert row["BilledCost"] == row["EffectiveCost"]
        if row["x_ChargeKind"] == "Usage":
            assert abs(row["BilledCost"] - row["ContractedCost"]) <= Decimal("0.00501")


def test_what_is_billed_is_the_reports_total_to_the_hundredth() -> None:
    own = [row for row in ROWS if row["ChargeClass"] is None]
    assert sum(row["BilledCost"] for row in own) == FIGURES.total_amount
    assert sum(row["BilledCost"] for row in ROWS) == FIGURES.amount_due
    assert len(own) == len(FIGURES.charges)
    assert {row["x_ChargeKind"] for row in ROWS} == {"Usage", "Unattributed", "Replication"}


def test_charge_periods_are_within_the_billing_period_but_for_corrections_of_earlier_ones() -> None:
    for row in ROWS:
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        if row["ChargeClass"] is None:
            assert row["BillingPeriodStart"] <= row["ChargePeriodStart"]
            assert row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        else:
            assert row["ChargePeriodEnd"] <= row["BillingPeriodStart"]


def test_corrections_name_their_month_and_have_no_price_below_zero() -> None:
    corrected = [row for row in ROWS if row["ChargeClass"] == "Correction"]
    assert [
        (row["ResourceName"], row["BilledCost"], row["ConsumedQuantity"], row["x_CorrectedMonth"])
        for row in corrected
    ] == [
        ("checkout", Decimal("2.00"), Decimal(100), "2026-10"),
        ("cart", Decimal("-0.50"), Decimal(-25), "2026-10"),
        ("etl", Decimal("-0.07"), Decimal(0), "2026-10"),
    ]
    assert {row["ChargeCategory"] for row in corrected} == {"Usage"}
    assert all(row["ListUnitPrice"] >= 0 for row in ROWS)
    assert all(row["ChargeDescription"].startswith("Correction of 2026-10") for row in corrected)
    assert {row["x_CorrectedMonth"] for row in ROWS if row["ChargeClass"] is None} == {None}


def test_labels_are_tags_and_a_resource_has_one_name() -> None:
    by_member = {row["ResourceName"]: json.loads(row["Tags"]) for row in ROWS}
    assert by_member["checkout"] == {"costCenter": "4711", "team": "shop"}
    assert by_member["reports"] == {}
    names: dict[str, set[str]] = {}
    for row in ROWS:
        if row["ResourceId"] is not None:
            names.setdefault(row["ResourceId"], set()).add(row["ResourceName"])
    assert all(len(found) == 1 for found in names.values())


def test_the_budget_of_a_member_is_a_tag() -> None:
    used = [{"user": "a", "bytes": 1, "labels": '{"tidegate.io/budget":"search"}'}]
    card = RateCard.flat({"fetch": Decimal(1)}, "EUR")
    figures = figures_of(small_request(used, rate_card=card))
    (row,) = focus_table(figures, issuer="x").to_pylist()
    assert json.loads(row["Tags"]) == {"tidegate.io/budget": "search"}


def test_csv_has_the_rows_of_parquet_in_the_formats_of_the_specification() -> None:
    stored = pq.read_table(pa.BufferReader(parquet_bytes(TABLE)))
    assert stored.equals(TABLE)
    assert stored.schema.metadata[b"FocusVersion"] == b"1.2"
    rows = list(csv.DictReader(io.StringIO(csv_lines(TABLE))))
    assert list(rows[0]) == SCHEMA.names
    for row, same in zip(rows, ROWS, strict=True):
        for field in SCHEMA:
            text = row[field.name]
            if same[field.name] is None:
                assert text == ""
            elif pa.types.is_timestamp(field.type):
                assert TIME.fullmatch(text)
            elif pa.types.is_decimal(field.type):
                assert NUMBER.fullmatch(text)
                assert Decimal(text) == same[field.name]
            else:
                assert text == same[field.name]


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (RateCard(), "nothing is charged"),
        (replace(PRICES, currency=""), "a currency by its code"),
        (replace(PRICES, currency="euro"), "a currency by its code"),
    ],
)
def test_what_cannot_be_billed_is_no_file(card: RateCard, words: str) -> None:
    with pytest.raises(InvalidResource, match=words):
        focus_table(
            figures_of(small_request([{"user": "a", "bytes": 1}], rate_card=card)), issuer="x"
        )


def test_the_sample_is_a_dataset_too() -> None:
    figures = sample_figures()
    lines = len(figures.charges) + len(figures.corrections)
    assert focus_table(figures, issuer="x").num_rows == lines


def test_a_correction_in_another_currency_is_billed_in_it_and_in_no_sum() -> None:
    corrections = [replace(one, currency="CHF") for one in sample_corrections()]
    figures = figures_of(replace(sample_request(), corrections=corrections))
    assert figures.corrections_amount is None
    assert figures.amount_due == figures.total_amount
    rows = focus_table(figures, issuer="x").to_pylist()
    assert {(row["ChargeClass"], row["BillingCurrency"]) for row in rows} == {
        (None, "EUR"),
        ("Correction", "CHF"),
    }


def test_a_bill_of_corrections_alone_is_a_dataset() -> None:
    request = small_request(
        [{"user": "a", "bytes": 1}], rate_card=RateCard(), corrections=sample_corrections()
    )
    figures = figures_of(request)
    assert (figures.total_amount, figures.amount_due) == (None, Decimal("1.43"))
    assert focus_table(figures, issuer="x").num_rows == 3
