"""The lines of the bill: every model, what becomes of bytes of no member, rates by day."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.unit.report.sample_report import sample_request
from tests.unit.report.small_request import START_MS, small_request, terms
from tidegate.errors import InvalidResource
from tidegate.report.compute import figures_of
from tidegate.report.figures import ReportFigures
from tidegate.report.rate_card import GIB, Budget, RateCard, Rates
from tidegate.rollup.labels import labels_text
from tidegate.rollup.schemas import DAY_MS, HOUR_MS

FETCH = Decimal("0.02")
USED = [
    {"user": "a", "tier": "t", "bytes": 30 * GIB, "peak_rate": 10.0},
    {"user": "b", "tier": "t", "bytes": 10 * GIB, "peak_rate": 30.0},
]
BROKERS = [
    {"client_bytes": 44 * GIB, "unattributed_bytes": 4 * GIB},
    {"direction": "produce", "replication_bytes": 20 * GIB},
]


def billed(rates: Rates, **more: Any) -> ReportFigures:
    given = {"usage": USED, "brokers": BROKERS, **more}
    return figures_of(small_request(rate_card=RateCard(rates=[rates], currency="EUR"), **given))


def lines(figures: ReportFigures) -> list[tuple[str, str, str]]:
    return [(one.kind, one.member, str(one.amount)) for one in figures.charges]


def test_a_price_of_a_level_goes_before_that_of_the_direction() -> None:
    rates = Rates(per_gib={"fetch": FETCH}, of_level={"L1": {"fetch": Decimal("0.10")}})
    figures = billed(rates, members=[terms("a"), terms("b")])
    assert lines(figures) == [("Usage", "a", "3.00"), ("Usage", "b", "1.00")]


def test_unattributed_bytes_are_charged_to_nobody_unless_the_card_says_so() -> None:
    assert lines(billed(Rates(per_gib={"fetch": FETCH}))) == [
        ("Usage", "user=a", "0.60"),
        ("Usage", "user=b", "0.20"),
    ]


def test_unattributed_bytes_may_be_a_line_of_their_own() -> None:
    figures = billed(Rates(per_gib={"fetch": FETCH}, unattributed="OwnLine"))
    assert lines(figures)[-1] == ("Unattributed", "", "0.08")
    assert figures.total_amount == Decimal("0.88")
    assert sum(one.amount or 0 for one in figures.members) == Decimal("0.80")


def test_unattributed_bytes_may_be_shared_by_members_to_the_hundredth() -> None:
    figures = billed(Rates(per_gib={"fetch": FETCH}, unattributed="Members"))
    assert lines(figures)[2:] == [
        ("Unattributed", "user=a", "0.06"),
        ("Unattributed", "user=b", "0.02"),
    ]
    assert sum(one.bytes for one in figures.charges if one.kind == "Unattributed") == 4 * GIB
    assert {one.member: one.amount for one in figures.members} == {
        "user=a": Decimal("0.66"),
        "user=b": Decimal("0.22"),
    }


def test_replication_is_counted_once_and_shared_by_what_was_produced() -> None:
    rates = Rates(replication_per_gib=Decimal("0.01"), replication="Members")
    produced = {"user": "a", "tier": "t", "direction": "produce", "bytes": 1}
    assert lines(billed(rates, usage=[*USED, produced])) == [("Replication", "user=a", "0.20")]


def test_what_nobody_can_share_is_a_line_of_its_own() -> None:
    rates = Rates(replication_per_gib=Decimal("0.01"), replication="Members")
    assert lines(billed(rates)) == [("Replication", "", "0.20")]


MONTHS = 30 * 24  # hours of November; the requests are of two
COST = Decimal("3600")


@pytest.mark.parametrize(
    ("share_by", "amounts"),
    [("Bytes", ("7.50", "2.50")), ("Peak", ("2.50", "7.50")), ("Contract", ("2.00", "8.00"))],
)
def test_a_cost_is_shared_by_weight_and_by_hours_of_the_month(
    share_by: Any, amounts: tuple[str, str]
) -> None:
    figures = billed(
        Rates(cost_per_month=COST, share_by=share_by),
        members=[terms("a", fetch=100), terms("b", fetch=400)],
    )
    assert tuple(str(one.amount) for one in figures.charges) == amounts
    assert figures.total_amount == COST * 2 / MONTHS


def test_who_has_a_contract_and_moved_nothing_pays_for_it() -> None:
    figures = billed(
        Rates(cost_per_month=COST, share_by="Contract"),
        members=[terms("a", fetch=100), terms("idle", fetch=300)],
    )
    assert ("Usage", "idle", "7.50") in lines(figures)
    idle = next(one for one in figures.members if one.member == "idle")
    assert (idle.bytes, idle.amount, idle.coverage) == (0, Decimal("7.50"), None)
    assert sum(one.amount or 0 for one in figures.members) == figures.total_amount


def test_a_cost_without_anybody_to_share_it_is_not_lost() -> None:
    assert lines(billed(Rates(cost_per_month=COST), usage=[])) == [("Unshared", "", "10.00")]


def test_unattributed_bytes_may_have_their_share_of_a_cost() -> None:
    figures = billed(Rates(cost_per_month=COST, unattributed="OwnLine"))
    assert lines(figures) == [
        ("Usage", "user=a", "6.82"),
        ("Usage", "user=b", "2.27"),
        ("Unattributed", "", "0.91"),
    ]


def test_each_day_has_its_own_rates() -> None:
    start_ms = START_MS - 2 * HOUR_MS  # two hours of November the 19th
    rows = [
        {"user": "a", "bytes": GIB, "window_start": start_ms + hour * HOUR_MS} for hour in range(4)
    ]
    rates = [
        Rates(per_gib={"fetch": Decimal(1)}),
        Rates(since=date(2026, 11, 20), per_gib={"fetch": Decimal(10)}),
    ]
    figures = figures_of(
        small_request(rows, start_ms=start_ms, rate_card=RateCard(rates=rates, currency="EUR"))
    )
    assert [(one.start, one.bytes, one.amount) for one in figures.charges] == [
        ("2026-11-19T22:00:00Z", 2 * GIB, Decimal("2.00")),
        ("2026-11-20T00:00:00Z", 2 * GIB, Decimal("20.00")),
    ]
    assert figures.members[0].amount == figures.total_amount == Decimal("22.00")


def test_rates_that_change_within_a_window_are_refused() -> None:
    request = small_request(
        USED,
        rate_card=RateCard(rates=[Rates(), Rates(since=date(2026, 11, 21))]),
        end_ms=START_MS + 2 * DAY_MS,
    )

    days = replace(request, tables=replace(request.tables, grain_ms=DAY_MS))
    with pytest.raises(InvalidResource, match="within a day of the tables"):
        figures_of(replace(days, zone=ZoneInfo("Europe/Berlin")))


SHOP, OPS = labels_text([("team", "shop")]), labels_text([("team", "ops")])


def test_labels_are_those_of_the_hour_and_amounts_of_all_values_are_the_bill() -> None:
    rows = [
        {"user": "a", "bytes": 3 * GIB, "labels": SHOP},
        {"user": "a", "bytes": GIB, "labels": OPS, "window_start": START_MS + HOUR_MS},
        {"user": "b", "bytes": 2 * GIB},
    ]
    card = RateCard(
        rates=[Rates(per_gib={"fetch": Decimal(1)}, unattributed="OwnLine")],
        currency="EUR",
        budgets=[Budget("team", "shop", Decimal(720)), Budget("team", "idle", Decimal(72))],
    )
    figures = figures_of(small_request(rows, BROKERS, rate_card=card, by_labels=("team",)))
    found = {one.value: (one.bytes // GIB, one.amount, one.budget) for one in figures.labels}
    assert found == {
        "shop": (3, Decimal("3.00"), Decimal("2.00")),
        "ops": (1, Decimal("1.00"), None),
        "": (2, Decimal("6.00"), None),  # with the unattributed line
        "idle": (0, Decimal("0.00"), Decimal("0.20")),
    }
    assert sum(one.amount or 0 for one in figures.labels) == figures.total_amount
    assert next(one for one in figures.labels if one.value == "shop").budget_share == 1.5


def test_by_any_label_the_sample_adds_up() -> None:

    for name in ("team", "costCenter", "nobody"):
        figures = figures_of(replace(sample_request(), by_labels=(name,)))
        assert sum(one.bytes for one in figures.labels) == figures.total_bytes
        assert sum(one.amount or 0 for one in figures.labels) == figures.total_amount
