"""The rules of FOCUS 1.2 for a dataset as it is delivered: a CSV file, where an empty cell is null.

The table and the rules are from the specification at its tag v1.2 (`specification/columns/*.md`
and `specification/attributes/*.md` of FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec). Rules about what
is not in any dataset, such as invoices on paper, are left out.
"""

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

# column, feature level, whether nulls are allowed, format of its values
_TABLE: Final = """
AvailabilityZone                   Recommended nullable   text
BilledCost                         Mandatory   never-null number
BillingAccountId                   Mandatory   never-null text
BillingAccountName                 Mandatory   nullable   text
BillingAccountType                 Conditional never-null text
BillingCurrency                    Mandatory   never-null currency
BillingPeriodEnd                   Mandatory   never-null time
BillingPeriodStart                 Mandatory   never-null time
CapacityReservationId              Conditional nullable   text
CapacityReservationStatus          Conditional nullable   values
ChargeCategory                     Mandatory   never-null values
ChargeClass                        Mandatory   nullable   values
ChargeDescription                  Mandatory   nullable   text
ChargeFrequency                    Recommended never-null values
ChargePeriodEnd                    Mandatory   never-null time
ChargePeriodStart                  Mandatory   never-null time
CommitmentDiscountCategory         Conditional nullable   values
CommitmentDiscountId               Conditional nullable   text
CommitmentDiscountName             Conditional nullable   text
CommitmentDiscountQuantity         Conditional nullable   number
CommitmentDiscountStatus           Conditional nullable   values
CommitmentDiscountType             Conditional nullable   text
CommitmentDiscountUnit             Conditional nullable   unit
ConsumedQuantity                   Conditional nullable   number
ConsumedUnit                       Conditional nullable   unit
ContractedCost                     Mandatory   never-null number
ContractedUnitPrice                Conditional nullable   price
EffectiveCost                      Mandatory   never-null number
InvoiceId                          Recommended nullable   text
InvoiceIssuerName                  Mandatory   never-null text
ListCost                           Mandatory   never-null number
ListUnitPrice                      Conditional nullable   price
PricingCategory                    Conditional nullable   values
PricingCurrency                    Conditional nullable   currency
PricingCurrencyContractedUnitPrice Conditional nullable   price
PricingCurrencyEffectiveCost       Conditional nullable   number
PricingCurrencyListUnitPrice       Conditional nullable   price
PricingQuantity                    Mandatory   nullable   number
PricingUnit                        Mandatory   nullable   unit
ProviderName                       Mandatory   never-null text
PublisherName                      Mandatory   never-null text
RegionId                           Conditional nullable   text
RegionName                         Conditional nullable   text
ResourceId                         Conditional nullable   text
ResourceName                       Conditional nullable   text
ResourceType                       Conditional nullable   text
ServiceCategory                    Mandatory   never-null values
ServiceName                        Mandatory   never-null text
ServiceSubcategory                 Recommended never-null values
SkuId                              Conditional nullable   text
SkuMeter                           Conditional nullable   text
SkuPriceDetails                    Conditional nullable   json
SkuPriceId                         Conditional nullable   text
SubAccountId                       Conditional nullable   text
SubAccountName                     Conditional nullable   text
SubAccountType                     Conditional nullable   text
Tags                               Conditional nullable   json
"""
# Columns of features that Kafka has not: a conditional column may be left out for these alone.
WITHOUT: Final = {
    "capacity reservations": ("CapacityReservationId", "CapacityReservationStatus"),
    "commitment discounts": ("CommitmentDiscountQuantity", "CommitmentDiscountUnit"),
    "a pricing currency": (
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
    ),
}
VALUES: Final = {
    "CapacityReservationStatus": ("Used", "Unused"),
    "ChargeCategory": ("Usage", "Purchase", "Tax", "Credit", "Adjustment"),
    "ChargeClass": ("Correction",),
    "ChargeFrequency": ("One-Time", "Recurring", "Usage-Based"),
    "CommitmentDiscountCategory": ("Spend", "Usage"),
    "CommitmentDiscountStatus": ("Used", "Unused"),
    "PricingCategory": ("Standard", "Dynamic", "Committed", "Other"),
    # of the nineteen categories, and of this one's subcategories
    "ServiceCategory": ("Integration",),
    "ServiceSubcategory": (
        "API Management",
        "Messaging",
        "Workflow Orchestration",
        "Other (Integration)",
    ),
}
_NUMBER: Final = r"-?\d+(\.\d+)?(E-?\d+)?"
_SIZE: Final = r"[KMGTPE]?i?[bB]"
_FORMATS: Final = {
    "text": r"(?s).*\S.*",
    "number": _NUMBER,
    "price": r"\d+(\.\d+)?(E-?\d+)?",
    "currency": r"[A-Z]{3}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "unit": rf"(\d+ )?({_SIZE}|[A-Z][a-z]+s)(-[A-Z][a-z]+s|/[A-Z][a-z]+)?",
}

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FocusColumn:
    name: str
    level: str
    nullable: bool
    form: str


COLUMNS: Final[Mapping[str, FocusColumn]] = {
    name: FocusColumn(name, level, null == "nullable", form)
    for name, level, null, form in map(str.split, _TABLE.strip().splitlines())
}


def problems(text: str) -> list[str]:
    """What breaks a rule, each starting with the column; empty for a sound dataset."""
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    names = next(csv.reader(io.StringIO(text, newline="")))
    found = [*_of_columns(names)]
    for number, row in enumerate(rows):
        found += [f"{one} (row {number})" for one in (*_of_cells(row), *_of_row(row))]
    return [*found, *_of_all(rows)]


def _of_columns(names: Sequence[str]) -> Iterator[str]:
    optional = {name for group in WITHOUT.values() for name in group}
    for one in COLUMNS.values():
        if one.name not in names and one.name not in optional:
            yield f"{one.name}: {one.level} and not in the dataset"
    custom = [name for name in names if name.startswith("x_")]
    for name in names:
        if name not in COLUMNS and name not in custom:
            yield f"{name}: no column of FOCUS, and without x_"
        if not re.fullmatch(r"(x_)?([A-Z][a-z]+)+", name) or len(name) > 50:
            yield f"{name}: not in Pascal case, or too long"
    if list(names[len(names) - len(custom) :]) != custom:
        yield "x_: custom columns are not after all others"
    if len(set(names)) < len(names):
        yield "columns: one is there twice"


def _of_cells(row: Row) -> Iterator[str]:
    for name, text in row.items():
        column = COLUMNS.get(name)
        if column is None:
            continue
        if not text:
            if not column.nullable:
                yield f"{name}: null"
        elif column.form == "values":
            if text not in VALUES[name]:
                yield f"{name}: {text!r} is no allowed value"
        elif column.form == "json":
            if not _is_key_values(text):
                yield f"{name}: {text!r} is no JSON object of plain values"
        elif not re.fullmatch(_FORMATS[column.form], text):
            yield f"{name}: {text!r} has not the format {column.form}"


def _is_key_values(text: str) -> bool:
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except ValueError:
        return False
    return (
        isinstance(pairs, list)
        and text.startswith("{")
        and len({key for key, _ in pairs}) == len(pairs)
        and not any(isinstance(value, list) for _, value in pairs)
    )


def _both_or_none(first: str, second: str) -> Callable[[Row], bool]:
    return lambda row: bool(row.get(first)) == bool(row.get(second))


def _needs(name: str, on: str) -> Callable[[Row], bool]:
    return lambda row: not row.get(name) or bool(row.get(on))


def _is_product(cost: str, price: str) -> Callable[[Row], bool]:
    def is_right(row: Row) -> bool:
        if not row[price] or not row["PricingQuantity"]:
            return True
        return Decimal(row[price]) * Decimal(row["PricingQuantity"]) == Decimal(row[cost])

    return lambda row: row["ChargeClass"] == "Correction" or is_right(row)


def _known_if_used(name: str) -> Callable[[Row], bool]:
    """Not null for usage and purchases that are no correction; null for a tax."""

    def is_right(row: Row) -> bool:
        if row["ChargeCategory"] == "Tax":
            return not row[name]
        charged = row["ChargeCategory"] in ("Usage", "Purchase")
        return bool(row[name]) or not charged or row["ChargeClass"] == "Correction"

    return is_right


def _is_in_its_period(row: Row) -> bool:
    """A charge of an earlier billing period is a correction, and no other is one."""
    begin, end = row["ChargePeriodStart"], row["ChargePeriodEnd"]
    if row["ChargeClass"]:
        return begin < end <= row["BillingPeriodStart"]
    return row["BillingPeriodStart"] <= begin < end <= row["BillingPeriodEnd"]


_ROW_RULES: Final[Sequence[tuple[str, str, Callable[[Row], bool]]]] = (
    (
        "BillingAccountType",
        "null with its id alone",
        _both_or_none("BillingAccountType", "BillingAccountId"),
    ),
    (
        "BillingPeriodEnd",
        "after its start",
        lambda r: r["BillingPeriodStart"] < r["BillingPeriodEnd"],
    ),
    ("ChargeClass", "Correction of an earlier period alone", _is_in_its_period),
    (
        "ChargeFrequency",
        "a purchase is not Usage-Based",
        lambda r: (r["ChargeCategory"], r["ChargeFrequency"]) != ("Purchase", "Usage-Based"),
    ),
    ("ConsumedQuantity", "known for usage", _known_if_used("ConsumedQuantity")),
    ("ConsumedUnit", "null with the quantity", _both_or_none("ConsumedUnit", "ConsumedQuantity")),
    ("ContractedCost", "price x quantity", _is_product("ContractedCost", "ContractedUnitPrice")),
    ("ContractedUnitPrice", "known for usage", _known_if_used("ContractedUnitPrice")),
    ("ListCost", "price x quantity", _is_product("ListCost", "ListUnitPrice")),
    ("ListUnitPrice", "known for usage", _known_if_used("ListUnitPrice")),
    ("PricingCategory", "known for usage", _known_if_used("PricingCategory")),
    ("PricingQuantity", "known for usage", _known_if_used("PricingQuantity")),
    ("PricingUnit", "null with the quantity", _both_or_none("PricingUnit", "PricingQuantity")),
    ("RegionName", "null with its id", _both_or_none("RegionName", "RegionId")),
    ("ResourceName", "null without an id", _needs("ResourceName", "ResourceId")),
    (
        "ResourceName",
        "not a copy of the id",
        lambda r: not r["ResourceId"] or r["ResourceName"] != r["ResourceId"],
    ),
    ("ResourceType", "null with its id", _both_or_none("ResourceType", "ResourceId")),
    ("SkuId", "known for usage", _known_if_used("SkuId")),
    ("SkuMeter", "null with its id", _both_or_none("SkuMeter", "SkuId")),
    ("SkuPriceDetails", "null without an id", _needs("SkuPriceDetails", "SkuPriceId")),
    ("SkuPriceId", "known for usage", _known_if_used("SkuPriceId")),
    (
        "SkuPriceId",
        "consistent over time, so without a date",
        lambda r: not re.search(r"\d{4}-\d\d", r["SkuPriceId"]),
    ),
    ("SubAccountName", "null with its id", _both_or_none("SubAccountName", "SubAccountId")),
    ("SubAccountType", "null with its id", _both_or_none("SubAccountType", "SubAccountId")),
    (
        "CommitmentDiscountId",
        "its columns are null without it",
        lambda r: (
            bool(r["CommitmentDiscountId"])
            or not any(text for name, text in r.items() if name.startswith("CommitmentDiscount"))
        ),
    ),
)


def _of_row(row: Row) -> Iterator[str]:
    for name, rule, is_kept in _ROW_RULES:
        if name in row and not is_kept(row):
            yield f"{name}: {rule}"


_ONE_EACH: Final = (
    ("ServiceName", "ServiceCategory"),
    ("ServiceName", "ServiceSubcategory"),
    ("SkuPriceId", "SkuId"),
    ("SkuPriceId", "PricingUnit"),
    ("SkuId", "SkuMeter"),
    ("BillingAccountId", "BillingAccountName"),
    ("ResourceId", "BillingAccountId"),
    ("SubAccountId", "SubAccountName"),
    ("InvoiceId", "BillingAccountId"),
)


def _of_all(rows: Sequence[Row]) -> Iterator[str]:
    """What an id stands for is the same in every row that has it."""
    for name, of in _ONE_EACH:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows:
            if row.get(name):
                found[row[name]].add(row[of])
        for key, values in found.items():
            if len(values) > 1:
                yield f"{name}: {key!r} has more than one {of}: {', '.join(sorted(values))}"
