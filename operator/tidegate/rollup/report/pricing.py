"""Bytes as money. Lines of the bill are rounded to hundredths, half up; a total is the sum of its lines, as a reader adds them up."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, localcontext

from tidegate.rollup.report.request import Prices
from tidegate.rollup.schemas import Direction

GIB = 2**30
_HUNDREDTH = Decimal("0.01")
_DIGITS = 60  # 2^63 bytes times any price are exact before they are rounded


def amount_of(prices: Prices, direction: Direction, count_bytes: int) -> Decimal | None:
    """What so many bytes cost; None where the direction has no price, 0.00 for no bytes."""
    price = prices.per_gib.get(direction)
    if price is None:
        return None
    with localcontext() as context:
        context.prec = _DIGITS
        return (Decimal(count_bytes) * price / GIB).quantize(_HUNDREDTH, ROUND_HALF_UP)


def total_of(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """The sum of the lines that have a price; None where none has."""
    priced = [amount for amount in amounts if amount is not None]
    return sum(priced, Decimal("0.00")) if priced else None
