"""Means over a sawtooth: what a window shows must not depend on where in the sawtooth it begins."""

import pytest

from lab.rates import ByteSeries, Sample, steady_mean
from tests.goldens.golden import numbers

TENTH = 0.1


def sawtooth(
    period_seconds: float, *, mean: float, seconds: int, busy_share: float = 0.4
) -> ByteSeries:
    """A client that sends only in the first part of each period; ten samples a second."""
    burst = mean / busy_share
    ticks = [tick * TENTH for tick in range(1, seconds * 10 + 1)]
    return ByteSeries(
        Sample(at, round(burst * TENTH) if at % period_seconds < busy_share * period_seconds else 0)
        for at in ticks
    )


@pytest.mark.parametrize("start", [12.0, 15.5, 18.0, 21.3])
@pytest.mark.parametrize("period", [11.4, 11.7, 12.0])
@pytest.mark.parametrize("length", [24, 48])
def test_steady_mean_does_not_depend_on_the_phase_of_the_sawtooth(
    start: float, period: float, length: int
) -> None:
    series = sawtooth(period, mean=10e6, seconds=100)
    assert steady_mean(series, start, length) == pytest.approx(10e6, rel=0.02)


def test_a_plain_mean_does_depend_on_the_phase_which_is_why_the_steady_one_exists() -> None:
    series = sawtooth(11.4, mean=10e6, seconds=100)
    plain = [series.mean(start / 2, 24) for start in range(24, 48)]
    assert max(plain) / min(plain) > 1.05


def test_between_two_samples_bytes_are_spread_evenly() -> None:
    series = ByteSeries([Sample(10.0, 0), Sample(12.0, 200)])
    assert series.delivered_until(11.0) == 100


@pytest.mark.parametrize(("at", "delivered"), [(9.0, 0), (10.0, 50), (30.0, 250)])
def test_nothing_is_delivered_outside_the_samples(at: float, delivered: float) -> None:
    assert ByteSeries([Sample(10.0, 50), Sample(12.0, 200)]).delivered_until(at) == delivered


def test_a_series_without_samples_is_a_rate_of_zero() -> None:
    assert steady_mean(ByteSeries([]), 0.0, 24) == 0


@pytest.mark.parametrize("length", [0, 11.9])
def test_a_window_shorter_than_one_sawtooth_is_refused(length: float) -> None:
    with pytest.raises(ValueError) as refused:
        steady_mean(ByteSeries([]), 0.0, length)
    assert 12 in numbers(str(refused.value))
