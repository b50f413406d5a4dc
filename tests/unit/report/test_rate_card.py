"""Rate cards: what is refused, days in a time zone, shares that add up."""

from datetime import UTC, date
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidResource
from tidegate.report.closing import Month
from tidegate.report.rate_card import (
    RateCard,
    Rates,
    midnight_ms,
    months_share,
    read_rate_card,
    shared,
)
from tidegate.rollup.schemas import HOUR_MS
from tidegate_logic.words import rfc3339_ms

BERLIN = ZoneInfo("Europe/Berlin")


def month_of(name: str, zone: ZoneInfo) -> tuple[int, int]:
    month = Month.named(name, zone)
    return month.start_ms, month.end_ms


CARD = """
currency: EUR
issuer: Data platform
rates:
  - perGiB: {fetch: "0.02", produce: "0.01"}
  - from: 2026-10-15
    perGiB: {fetch: "0.03", replication: "0.001"}
    levels: {L0: {fetch: "0.05"}}
    unattributed: OwnLine
    replication: Members
  - from: 2026-11-01
    costPerMonth: "12000"
    shareBy: Contract
budgets:
  - {label: team, value: shop, amountPerMonth: "500"}
"""


def card(tmp_path: Path, text: str) -> RateCard:
    file = tmp_path / "rates.yaml"
    file.write_text(text)
    return read_rate_card(file)


def test_a_card_has_its_rates_in_order_of_their_days(tmp_path: Path) -> None:
    found = card(tmp_path, CARD)
    assert (found.currency, found.issuer) == ("EUR", "Data platform")
    assert [one.since for one in found.rates] == [None, date(2026, 10, 15), date(2026, 11, 1)]
    first, second, third = found.rates
    assert (first.price("fetch"), first.price("fetch", "L0")) == (Decimal("0.02"),) * 2
    assert second.price("fetch", "L0") == Decimal("0.05")
    assert (second.price("produce"), second.replication_per_gib) == (None, Decimal("0.001"))
    assert (third.cost_per_month, third.share_by) == (Decimal(12000), "Contract")
    assert found.budgets[0].amount_per_month == Decimal(500)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("currency: EUR", "rates"),
        ("rates: [{perGiB: {fetch: '1'}}]", "currency"),
        ("currency: euro\nrates: [{perGiB: {fetch: '1'}}]", "currency"),
        ("currency: EUR\nrates: []", "rates"),
        ("currency: EUR\nrates: [{perGiB: {fetch: '-1'}}]", "rates[0].perGiB.fetch"),
        ("currency: EUR\nrates: [{perGiB: {fetch: '1e3'}}]", "rates[0].perGiB.fetch"),
        ("currency: EUR\nrates: [{perGiB: {read: '1'}}]", "rates[0].perGiB.read"),
        ("currency: EUR\nrates: [{}]", "either perGiB or costPerMonth"),
        ("currency: EUR\nrates: [{costPerMonth: '1'}]", "shareBy is required"),
        ("currency: EUR\nrates: [{costPerMonth: '1', shareBy: Luck}]", "rates[0].shareBy"),
        (
            "currency: EUR\nrates: [{costPerMonth: '1', shareBy: Bytes, levels: {L0: {}}}]",
            "levels are prices of a GiB",
        ),
        ("currency: EUR\nrates: [{perGiB: {fetch: '1'}, replication: Members}]", "go together"),
        (
            "currency: EUR\nrates: [{perGiB: {fetch: '1'}}, {perGiB: {fetch: '1'}}]",
            "from is required",
        ),
        (
            "currency: EUR\nrates: [{from: 2026-02-01, perGiB: {fetch: '1'}}, "
            "{from: 2026-01-01, perGiB: {fetch: '1'}}]",
            "in the order of their days",
        ),
        ("currency: EUR\nrates: [{from: 2026-02-30, perGiB: {fetch: '1'}}]", "day is out of range"),
        ("- 1", ""),
        ("{", "is not YAML"),
    ],
)
def test_a_wrong_card_is_refused_by_the_field(tmp_path: Path, wrong: str, named: str) -> None:
    with pytest.raises(InvalidResource) as refused:
        card(tmp_path, wrong)
    assert named in str(refused.value)
    assert "rates.yaml" in str(refused.value)


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidResource, match=r"none\.yaml"):
        read_rate_card(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("month", "zone", "start", "end", "hours"),
    [
        ("2026-10", "Europe/Berlin", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", 745),
        ("2026-03", "Europe/Berlin", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", 743),
        ("2026-02", "UTC", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", 672),
        ("2026-12", "America/New_York", "2026-12-01T05:00:00Z", "2027-01-01T05:00:00Z", 744),
    ],
)
def test_a_month_is_as_long_as_its_hours_are(
    month: str, zone: str, start: str, end: str, hours: int
) -> None:
    start_ms, end_ms = month_of(month, ZoneInfo(zone))
    assert (rfc3339_ms(start_ms), rfc3339_ms(end_ms)) == (start, end)
    assert (end_ms - start_ms) / HOUR_MS == hours
    assert months_share(start_ms, end_ms, ZoneInfo(zone)) == 1


def test_rates_begin_at_midnight_of_the_time_zone() -> None:
    rates = Rates(), Rates(since=date(2026, 10, 25)), Rates(since=date(2026, 10, 26))
    start_ms, end_ms = month_of("2026-10", BERLIN)
    spans = list(RateCard(rates=rates).spans(start_ms, end_ms, BERLIN))
    assert [(end - start) // HOUR_MS for start, end, _ in spans] == [24 * 24, 25, 6 * 24]
    assert (spans[0][0], spans[-1][1]) == (start_ms, end_ms)


def test_what_lies_before_the_first_rates_is_not_charged() -> None:
    card = RateCard(rates=[Rates(since=date(2026, 10, 15))])
    start_ms, end_ms = month_of("2026-10", ZoneInfo("UTC"))
    ((begin, until, _),) = card.spans(start_ms, end_ms, UTC)
    assert (begin, until) == (midnight_ms(date(2026, 10, 15), UTC), end_ms)


@given(
    st.integers(0, 10**9),
    st.lists(st.one_of(st.integers(0, 2**50), st.floats(0, 1e12)), max_size=40),
)
def test_shares_add_up_to_the_hundredth_and_none_is_further_than_one_from_its_weight(
    cents: int, weights: list[int | float]
) -> None:
    amount = Decimal(cents) / 100
    parts = shared(amount, weights)
    total = sum(map(Decimal, weights), Decimal(0))
    assert sum(parts, Decimal(0)) == (amount if total > 0 else 0)
    for part, weight in zip(parts, weights, strict=True):
        if total > 0:
            assert abs(part - amount * Decimal(weight) / total) <= Decimal("0.0101")
