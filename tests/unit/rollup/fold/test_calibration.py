"""Clients' bytes add up to what the broker counted, and never to more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.rollup.fold.broker import Calibrated, apportioned, calibrated
from tidegate.rollup.fold.counters import Counted
from tidegate.rollup.fold.windows import WINDOW_MS

weights = st.lists(st.integers(0, 10**15), min_size=1, max_size=30)


def calibrate(
    gauged: list[int],
    counted_bytes: int,
    *,
    covered_ms: int = WINDOW_MS,
    scraped_ms: int = WINDOW_MS,
) -> Calibrated:
    """One window; `gauged` in bytes, by client."""
    counted = Counted(np.array([counted_bytes]), np.array([covered_ms]), np.array([0]))
    return calibrated(
        np.array(gauged, np.int64).reshape(len(gauged), 1) * 1000, np.array([scraped_ms]), counted
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**13), weights)
def test_parts_add_up_to_the_byte_and_are_no_byte_off_their_share(
    total: int, weights: list[int]
) -> None:
    parts = apportioned(total, np.array(weights, np.int64))
    whole = sum(weights)
    assert parts.sum() == (total if whole else 0)
    for part, weight in zip(parts.tolist(), weights, strict=True):
        assert abs(part - (total * weight / whole if whole else 0)) < 1.01
        assert part >= 0
        assert weight or not part


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        pytest.param(10, [1, 1, 1], [4, 3, 3], id="of equals the first"),
        pytest.param(10, [2, 1, 4], [3, 1, 6], id="largest remainder"),
        pytest.param(0, [2, 1], [0, 0], id="nothing to share"),
        pytest.param(7, [0, 0], [0, 0], id="no client to share among"),
        pytest.param(1, [0, 5], [0, 1], id="a gauge of 0 gets nothing"),
    ],
)
def test_shares(total: int, weights: list[int], parts: list[int]) -> None:
    assert apportioned(total, np.array(weights, np.int64)).tolist() == parts


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
    st.integers(0, 10**13),
    st.sampled_from([0, 15_000, WINDOW_MS]),
    st.sampled_from([15_000, 150_000, WINDOW_MS]),
)
def test_clients_and_unattributed_are_always_what_was_counted(
    gauged: list[int], counted_bytes: int, covered_ms: int, scraped_ms: int
) -> None:
    found = calibrate(
        gauged, counted_bytes if covered_ms else 0, covered_ms=covered_ms, scraped_ms=scraped_ms
    )
    assert found.bytes_of_clients.sum() + found.unattributed_bytes[0] == found.client_bytes[0]
    assert found.unattributed_bytes[0] >= 0
    assert (found.bytes_of_clients >= 0).all()
    expected = sum(gauged) * (covered_ms or WINDOW_MS) / scraped_ms
    if covered_ms:
        assert found.bytes_of_clients.sum() <= 1.15 * expected + 1


@pytest.mark.parametrize(
    ("gauged", "counted_bytes", "clients", "factor"),
    [
        pytest.param([600, 300], 1000, [667, 333], 10 / 9, id="gauges read a little less"),
        pytest.param([600, 600], 1000, [500, 500], 5 / 6, id="gauges read more"),
        pytest.param(
            [300, 200],
            1000,
            [345, 230],
            2.0,
            id="gauges read half of it: what no client's gauge has is unattributed",
        ),
        pytest.param(
            [3000, 1000],
            1000,
            [750, 250],
            0.25,
            id="gauges read far more: never more than was counted",
        ),
        pytest.param([300, 100], 0, [0, 0], None, id="the counter stood still: nothing moved"),
        pytest.param(
            [0, 0], 1000, [0, 0], None, id="no gauge reads a byte: all of it is unattributed"
        ),
    ],
)
def test_the_factor_is_what_was_counted_over_what_gauges_read(
    gauged: list[int], counted_bytes: int, clients: list[int], factor: float | None
) -> None:
    found = calibrate(gauged, counted_bytes)
    assert found.bytes_of_clients[:, 0].tolist() == clients
    assert found.unattributed_bytes.tolist() == [counted_bytes - sum(clients)]
    assert found.factor.tolist() == pytest.approx(
        [float("nan") if factor is None else factor], nan_ok=True
    )


def test_where_scrapes_cover_half_a_window_the_factor_compares_like_with_like() -> None:
    found = calibrate([500], 1000, scraped_ms=WINDOW_MS // 2)
    assert (found.factor.tolist(), found.bytes_of_clients.tolist()) == ([1.0], [[1000]])


def test_where_the_counter_covers_half_a_window_so_it_does() -> None:
    found = calibrate([1000], 500, covered_ms=WINDOW_MS // 2)
    assert (
        found.factor.tolist(),
        found.bytes_of_clients.tolist(),
        found.client_bytes.tolist(),
    ) == ([1.0], [[500]], [500])


def test_without_the_counter_clients_keep_what_gauges_read() -> None:
    found = calibrate([700, 300], 0, covered_ms=0)
    assert (
        found.bytes_of_clients.tolist(),
        found.client_bytes.tolist(),
        found.unattributed_bytes.tolist(),
    ) == (
        [[700], [300]],
        [1000],
        [0],
    )
    assert np.isnan(found.factor).all()
