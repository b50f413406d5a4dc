"""A load client's demand: steady, in steps, flat out, with or without a backlog."""

from __future__ import annotations

import pytest

from lab.load import Pacing, RateStep

MESSAGE = 10_000


def moved_bytes(pacing: Pacing, *, seconds: float, served: tuple[float, float] = (0, 1e9)) -> int:
    """Bytes that a client moves that asks every millisecond and is served only between the two moments of `served`."""
    moved = 0
    for millisecond in range(int(seconds * 1000)):
        now = millisecond / 1000
        while served[0] <= now < served[1] and pacing.wait_seconds(now) == 0 and moved < 10**8:
            pacing.moved(MESSAGE)
            moved += MESSAGE
        pacing.wait_seconds(now)
    return moved


@pytest.mark.parametrize("rate", [50_000, 1_000_000, 25_000_000])
def test_a_served_client_moves_its_rate(rate: int) -> None:
    assert moved_bytes(Pacing([RateStep(0, rate)], catch_up_seconds=2), seconds=2) == pytest.approx(2 * rate, abs=2 * MESSAGE)


def test_a_client_flat_out_never_waits() -> None:
    pacing = Pacing([RateStep(0, None)], catch_up_seconds=0)
    pacing.moved(10**12)
    assert pacing.wait_seconds(0.001) == 0


def test_no_demand_moves_nothing() -> None:
    assert moved_bytes(Pacing([RateStep(0, 0)], catch_up_seconds=5), seconds=1) == 0


def test_steps_change_the_demand() -> None:
    pacing = Pacing([RateStep(0, 1_000_000), RateStep(1, 0), RateStep(2, 3_000_000)], catch_up_seconds=0)
    assert moved_bytes(pacing, seconds=3) == pytest.approx(4_000_000, rel=0.02)


@pytest.mark.parametrize(("catch_up_seconds", "made_up_for"), [(0, 0), (1, 1), (60, 3)])
def test_missed_demand_is_made_up_for_within_the_backlog(catch_up_seconds: float, made_up_for: float) -> None:
    pacing = Pacing([RateStep(0, 1_000_000)], catch_up_seconds=catch_up_seconds)
    moved = moved_bytes(pacing, seconds=4, served=(3, 4))
    assert moved == pytest.approx((1 + made_up_for) * 1_000_000, abs=3 * MESSAGE)
