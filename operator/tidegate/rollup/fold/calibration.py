"""The estimates of clients, scaled so that they add up to the bytes that the broker itself counted.

Kafka has no counter of bytes by user; it has one for all clients of the broker. What the gauges tell gives the shares, the counter the
sum. How far the two were apart is the factor, published with each row.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.tellers import Counted
from tidegate.rollup.fold.windows import WINDOW_MS

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """Bytes of clients by client and window; the rest by window. Bytes of all clients + `unattributed_bytes` = `client_bytes`, always.

    `factor` is NaN where there is none: the broker's counter was not told, or stood still, or no gauge told of a byte. At 0.5 or 2 it was
    clamped: gauges and counter do not speak of the same. Clients are never given more than was counted.
    """

    bytes_of_clients: Whole
    client_bytes: Whole
    unattributed_bytes: Whole
    factor: Rates


def calibrated(thousandths_of_bytes: Whole, scraped_ms: Whole, counted: Counted) -> Calibrated:
    """`thousandths_of_bytes` by client and window, from scrapes that cover `scraped_ms` of each window.

    Where either covers only a part of a window, the factor compares their means; what was counted is shared out all the same. Without
    the counter clients keep what the gauges tell, and their sum stands for the counter.
    """
    told = thousandths_of_bytes.sum(axis=0) / 1000
    known = counted.covered_ms > 0
    expected = told * np.where(known, counted.covered_ms, WINDOW_MS) / np.where(scraped_ms > 0, scraped_ms, WINDOW_MS)
    comparable = known & (told > 0) & (counted.counted_bytes > 0)
    ratio = np.divide(counted.counted_bytes, expected, out=np.full(len(told), np.nan), where=comparable)
    most = np.rint(MOST_FACTOR * expected).astype(np.int64)
    attributed = np.where(ratio <= MOST_FACTOR, counted.counted_bytes, np.minimum(most, counted.counted_bytes))
    attributed = np.where(comparable, attributed, np.where(known, 0, np.rint(told).astype(np.int64)))
    client_bytes = np.where(known, counted.counted_bytes, attributed)
    shares = np.column_stack([apportioned(int(total), each) for total, each in zip(attributed, thousandths_of_bytes.T, strict=True)])
    return Calibrated(shares, client_bytes, client_bytes - attributed, np.clip(ratio, LEAST_FACTOR, MOST_FACTOR))


def apportioned(total: int, weights: Whole) -> Whole:
    """`total` in whole parts that add up to it, by weight (largest remainder; of equals the first). All zeros where all weights are."""
    whole = weights.sum()
    if not whole:
        return np.zeros(len(weights), np.int64)
    exact = total * (weights / whole)
    parts: Whole = np.floor(exact).astype(np.int64)
    rest = np.where(weights > 0, exact - parts, -1.0)
    parts[np.argsort(-rest, kind="stable")[: total - int(parts.sum())]] += 1
    return parts
