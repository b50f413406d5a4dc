"""Prices: exact, rounded half up, totals that add up."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.report.rate_card import GIB, amount_of
from tidegate.report.request import total_of


@pytest.mark.parametrize(
    ("count", "price", "amount"),
    [
        (0, "0.02", "0.00"),
        (GIB, "0.02", "0.02"),
        (GIB, "0.005", "0.01"),
        (GIB, "0.0149999", "0.01"),
        (3 * GIB // 2, "0.01", "0.02"),
    ],
)
def test_an_amount_is_rounded_half_up_to_hundredths(count: int, price: str, amount: str) -> None:
    assert amount_of(count, Decimal(price)) == Decimal(amount)


@given(st.integers(0, 2**63 - 1), st.decimals(0, 10**6, places=6))
def test_no_amount_is_further_from_the_exact_one_than_half_a_hundredth(
    count: int, price: Decimal
) -> None:
    amount = amount_of(count, price)
    assert amount is not None
    assert abs(Fraction(amount) - Fraction(count) * Fraction(price) / GIB) <= Fraction(1, 200)


def test_a_direction_without_a_price_costs_nothing_known() -> None:
    assert amount_of(GIB, None) is None


def test_a_total_leaves_out_what_has_no_price_and_is_unknown_where_nothing_has_one() -> None:
    assert total_of([Decimal("0.10"), None, Decimal("0.20")]) == Decimal("0.30")
    assert total_of([None]) is None
