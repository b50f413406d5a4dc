"""The FOCUS file: rules of the specification 1.2 on every column, and amounts that are the bill's.

A published validator checks the same file in `make test-focus`.
"""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.report.sample_report import (
    PRICES,
    START_MS,
    sample_corrections,
    sample_figures,
    sample_request,
)
from tests.unit.report.small_request import small_request
from tidegate.errors import InvalidResource
from tidegate.report.compute import figures_of
from tidegate.report.figures import ReportFigures
from tidegate.report.focus import SCHEMA, csv_lines, focus_table, parquet_bytes
from tidegate.report.rate_card import RateCard, Rates
from tidegate.rollup.schemas import DAY_MS

# Columns that a dataset of 1.2 must have, whatever is in it, and those that must not be null.
MANDATORY = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
]
NEVER_NULL = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
ALLOWED = {
    "ChargeCategory": {"Usage"},
    "ChargeFrequency": {"Usage-Based", "Recurring"},
    "PricingCategory": {"Standard", "Other"},
    "PricingUnit": {"GiB", "Shares"},
    "ConsumedUnit": {"GiB"},
    "ServiceCategory": {"Integration"},
    "ServiceSubcategory": {"Messaging"},
}


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


def test_every_column_that_must_be_there_is_and_has_no_null_where_none_may_be() -> None:
    assert set(MANDATORY) <= set(TABLE.column_names)
    for name in NEVER_NULL:
        assert TABLE[name].null_count == 0, name
    assert not [
        name for name in TABLE.column_names if not re.fullmatch(r"(x_)?[A-Z][A-Za-z]*", name)
    ]


def test_values_are_of_the_lists_that_the_specification_has() -> None:
    for name, allowed in ALLOWED.items():
        assert set(TABLE[name].to_pylist()) <= allowed, name
    assert set(TABLE["ChargeClass"].to_pylist()) == {None, "Correction"}
    assert all(re.fullmatch("[A-Z]{3}", one) for one in TABLE["BillingCurrency"].to_pylist())


def test_units_and_quantities_are_null_together() -> None:
    for row in ROWS:
        for quantity, unit in (
            ("PricingQuantity", "PricingUnit"),
            ("ConsumedQuantity", "ConsumedUnit"),
        ):
            assert (row[quantity] is None) == (row[unit] is None)
        assert (row["SkuId"] is None) == (row["SkuMeter"] is None)
        assert (row["ResourceId"] is None) == (row["ResourceType"] is None)


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
