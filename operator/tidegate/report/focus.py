"""The bill as a FOCUS dataset (FinOps Open Cost and Usage Specification 1.2), for cost tools.

A row is a line of the bill: one member and direction, for as long as its rates were the same.
BilledCost is the line's amount in hundredths, so that rows add up to the report; ListCost and
ContractedCost are exactly price times quantity, as the specification asks. A share of a cost is
one share at the price of its amount. Labels are Tags. Lines of earlier months, which were closed
and corrected since, have ChargeClass Correction: their charge period is in that month, quantities
and costs may be below zero, and prices never are.

The billing account is the Kafka cluster, by its own id, and the policy is its name. A month that
was closed before that keeps its rows to the byte: see `_former_row`.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import InvalidResource
from tidegate.report.columns import harmless
from tidegate.report.figures import Charge, Correction, ReportFigures
from tidegate.report.rate_card import GIB

FOCUS_VERSION: Final = "1.2"
_QUANTITY = Decimal("0.000000000001")
_DIGITS = 60

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_COST, _AMOUNT = pa.decimal128(38, 20), pa.decimal128(38, 12)

SCHEMA: Final = pa.schema(
    [
        pa.field(name, kind, nullable=nullable)
        for name, kind, nullable in (
            ("AvailabilityZone", _TEXT, True),
            ("BilledCost", _COST, False),
            ("BillingAccountId", _TEXT, False),
            ("BillingAccountName", _TEXT, True),
            ("BillingAccountType", _TEXT, False),
            ("BillingCurrency", _TEXT, False),
            ("BillingPeriodEnd", _TIME, False),
            ("BillingPeriodStart", _TIME, False),
            ("ChargeCategory", _TEXT, False),
            ("ChargeClass", _TEXT, True),
            ("ChargeDescription", _TEXT, True),
            ("ChargeFrequency", _TEXT, False),
            ("ChargePeriodEnd", _TIME, False),
            ("ChargePeriodStart", _TIME, False),
            ("CommitmentDiscountCategory", _TEXT, True),
            ("CommitmentDiscountId", _TEXT, True),
            ("CommitmentDiscountName", _TEXT, True),
            ("CommitmentDiscountStatus", _TEXT, True),
            ("CommitmentDiscountType", _TEXT, True),
            ("ConsumedQuantity", _AMOUNT, True),
            ("ConsumedUnit", _TEXT, True),
            ("ContractedCost", _COST, False),
            ("ContractedUnitPrice", _AMOUNT, True),
            ("EffectiveCost", _COST, False),
            ("InvoiceId", _TEXT, True),
            ("InvoiceIssuerName", _TEXT, False),
            ("ListCost", _COST, False),
            ("ListUnitPrice", _AMOUNT, True),
            ("PricingCategory", _TEXT, True),
            ("PricingQuantity", _AMOUNT, True),
            ("PricingUnit", _TEXT, True),
            ("ProviderName", _TEXT, False),
            ("PublisherName", _TEXT, False),
            ("RegionId", _TEXT, True),
            ("RegionName", _TEXT, True),
            ("ResourceId", _TEXT, True),
            ("ResourceName", _TEXT, True),
            ("ResourceType", _TEXT, True),
            ("ServiceCategory", _TEXT, False),
            ("ServiceName", _TEXT, False),
            ("ServiceSubcategory", _TEXT, False),
            ("SkuId", _TEXT, True),
            ("SkuMeter", _TEXT, True),
            ("SkuPriceDetails", _TEXT, True),
            ("SkuPriceId", _TEXT, True),
            ("SubAccountId", _TEXT, True),
            ("SubAccountName", _TEXT, True),
            ("SubAccountType", _TEXT, True),
            ("Tags", _TEXT, True),
            ("x_ChargeKind", _TEXT, False),
            ("x_CorrectedMonth", _TEXT, True),
            ("x_KafkaClientId", _TEXT, True),
            ("x_KafkaClusterId", _TEXT, True),
            ("x_KafkaUser", _TEXT, True),
        )
    ],
    metadata={"FocusVersion": FOCUS_VERSION},
)
_NEWER: Final = ("InvoiceId", "x_KafkaClusterId")
_FORMER_SCHEMA: Final = pa.schema(
    [field for field in SCHEMA if field.name not in _NEWER], metadata=SCHEMA.metadata
)
_METERS: Mapping[str, str] = {
    "fetch": "Data fetched from Kafka brokers",
    "produce": "Data produced to Kafka brokers",
    "": "Cost of a Kafka cluster",
}


def focus_table(figures: ReportFigures, *, issuer: str) -> pa.Table:
    """The lines of the bill. `issuer` provides the service and sends the bill.

    Raises InvalidResource if nothing is charged, or in no currency.
    """
    if not figures.charges and not figures.corrections:
        raise InvalidResource(
            "There is nothing to put into a FOCUS file, because nothing is charged: set "
            "pricePerGiB in the policy, or give --rate-card."
        )
    if len(figures.currency) != 3 or not figures.currency.isupper():
        raise InvalidResource(
            f"A FOCUS file needs a currency by its code of three letters, such as EUR; this report "
            f"has {figures.currency or 'none'}. Give --currency, or name it in the rate card."
        )
    lines = (*figures.charges, *figures.corrections)
    if figures.closed is not None and figures.closed.former_account:
        account = figures.closed.former_account
        rows = [_former_row(_row(figures, one, issuer), one, account) for one in lines]
        return pa.Table.from_pylist(rows, _FORMER_SCHEMA)
    return pa.Table.from_pylist([_row(figures, one, issuer) for one in lines], SCHEMA)


def focus_warnings(figures: ReportFigures, *, is_whole_month: bool) -> Iterator[str]:
    """What a cost tool cannot know from the file, as sentences."""
    period = figures.period
    if not is_whole_month:
        yield (
            f"The FOCUS file has {period.start} to {period.end} as its billing period, and cost "
            f"tools expect a whole month. Load it only to try it out; for the bill, use --month "
            f"once the month is over."
        )
    if not figures.kafka_cluster_id:
        yield (
            "The tables have no Kafka cluster id, so the FOCUS file names its billing account by "
            "the policy alone, and bills of two clusters may look like one. Rollup Jobs write the "
            "id; `tidegate rollup run` has --cluster-id."
        )


def focus_files(table: pa.Table) -> Mapping[str, str | bytes]:
    """`focus.parquet` and `focus.csv` with the same rows."""
    return {"focus.parquet": parquet_bytes(table), "focus.csv": csv_lines(table)}


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file. Its metadata names the version of FOCUS."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def csv_lines(table: pa.Table) -> str:
    """The table as CSV: times as FOCUS writes them, decimals with every digit, null empty.

    A text that a spreadsheet would run as a formula has a quote before it; Parquet has it as it is.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table.column_names)
    is_former = table.column_names == _FORMER_SCHEMA.names
    for row in table.to_pylist():
        cells = [_csv_cell(value) for value in row.values()]
        texts = [isinstance(value, str) and not is_former for value in row.values()]
        writer.writerow(
            [harmless(cell) if text else cell for cell, text in zip(cells, texts, strict=True)]
        )
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, Decimal):
        whole = format(value.normalize(), "f")
        return "0" if whole == "-0" else whole
    return "" if value is None else str(value)


def _row(figures: ReportFigures, charge: Charge, issuer: str) -> dict[str, Any]:
    quantity, price, unit = _priced(charge)
    with localcontext() as context:
        context.prec = _DIGITS
        exact = quantity * price
    sku = f"kafka-{charge.kind.lower()}" + (f"-{charge.direction}" if charge.direction else "")
    name = figures.policy or "Kafka"
    account = figures.kafka_cluster_id or name
    period = figures.period
    return {
        "BilledCost": charge.amount,
        "BillingAccountId": account,
        "BillingAccountName": name,
        "BillingAccountType": "Kafka cluster",
        "BillingCurrency": charge.currency if isinstance(charge, Correction) else figures.currency,
        "BillingPeriodStart": _time(period.start),
        "BillingPeriodEnd": _time(period.end),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if isinstance(charge, Correction) else None,
        "ChargeDescription": _description(charge),
        "ChargeFrequency": "Usage-Based" if charge.bytes or charge.per_gib else "Recurring",
        "ChargePeriodStart": _time(charge.start),
        "ChargePeriodEnd": _time(charge.end),
        "ConsumedQuantity": _gib(charge.bytes),
        "ConsumedUnit": "GiB",
        "ContractedCost": exact,
        "ContractedUnitPrice": price,
        "EffectiveCost": charge.amount,
        "InvoiceId": (figures.closed.invoice_id or None) if figures.closed else None,
        "InvoiceIssuerName": issuer,
        "ListCost": exact,
        "ListUnitPrice": price,
        "PricingCategory": "Standard" if charge.per_gib is not None else "Other",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": issuer,
        "PublisherName": issuer,
        "ServiceCategory": "Integration",
        "ServiceName": "Apache Kafka",
        "ServiceSubcategory": "Messaging",
        "SkuId": sku,
        "SkuMeter": _METERS[charge.direction],
        "SkuPriceId": _price_id(sku, charge) + ("" if charge.per_gib is not None else "-share"),
        "Tags": json.dumps(dict(charge.labels), sort_keys=True, ensure_ascii=False),
        "x_ChargeKind": charge.kind,
        "x_CorrectedMonth": charge.corrected_month if isinstance(charge, Correction) else None,
        "x_KafkaClusterId": figures.kafka_cluster_id or None,
        **(_of_member(account, charge) if charge.member else {}),
    }


def _former_row(row: Mapping[str, Any], charge: Charge, account: str) -> dict[str, Any]:
    """The row as it was before 0.2, for a month that was closed then.

    Its account was the policy's name, which two clusters may share, and a price had another id each
    month. A dataset that was delivered must not change, so these months keep both.
    """
    return {
        **{name: value for name, value in row.items() if name not in _NEWER},
        "BillingAccountId": account,
        "BillingAccountName": account,
        "ChargeFrequency": "Usage-Based" if charge.bytes else "Recurring",
        "SkuPriceId": f"{_price_id(row['SkuId'], charge)}@{charge.start[:10]}",
        **({"ResourceId": _resource_id(account, charge)} if charge.member else {}),
    }


def _price_id(sku: str, charge: Charge) -> str:
    """The same in every month: the price of a level's members, or of anyone's."""
    return f"{sku}-{charge.level}" if charge.level else sku


def _resource_id(account: str, charge: Charge) -> str:
    return json.dumps([account, charge.tier, charge.user, charge.client_id], ensure_ascii=False)


def _of_member(account: str, charge: Charge) -> dict[str, Any]:
    return {
        "ResourceId": _resource_id(account, charge),
        "ResourceName": charge.member,
        "ResourceType": "Kafka client",
        "SubAccountId": charge.tier or None,
        "SubAccountName": charge.tier or None,
        "SubAccountType": "BusinessTier" if charge.tier else None,
        "x_KafkaClientId": charge.client_id or None,
        "x_KafkaUser": charge.user or None,
    }


def _priced(charge: Charge) -> tuple[Decimal, Decimal, str]:
    """Quantity, unit price and unit."""
    if charge.per_gib is None:
        return Decimal(-1 if charge.amount < 0 else 1), abs(charge.amount), "Shares"
    return _gib(charge.bytes), charge.per_gib, "GiB"


def _gib(count_bytes: int) -> Decimal:
    with localcontext() as context:
        context.prec = _DIGITS
        return (Decimal(count_bytes) / GIB).quantize(_QUANTITY)


def _description(charge: Charge) -> str:
    who = charge.member or "no member"
    what = f"{charge.direction} of {who}" if charge.direction else who
    words = f"{charge.kind} Kafka bytes, {what}" if charge.direction else f"{charge.kind} cost"
    if charge.kind == "Usage":
        words = f"Kafka {what}"
    if isinstance(charge, Correction):
        return f"Correction of {charge.corrected_month}: {words}"
    return words


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
