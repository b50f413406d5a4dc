"""The published test of a tiered limiter: who passes when, in virtual time."""

import pytest

from bench.limiter_waves import RATE, REQUEST_BYTES, Replay
from bench.limiter_waves import replay as played


@pytest.fixture(scope="module")
def replay() -> Replay:
    return played()


def test_tier_0_passes_to_the_byte(replay: Replay) -> None:
    assert [one[0] for one in replay.passed] == [one[0] for one in replay.offered]


def test_no_second_is_above_the_rate(replay: Replay) -> None:
    assert max(sum(one) for one in replay.passed) <= RATE * 1.01 + 2 * REQUEST_BYTES


def test_no_second_is_below_the_rate_while_anybody_waits(replay: Replay) -> None:
    full = [sum(replay.passed[at]) for at in range(replay.seconds) if replay.waits(at)]
    assert len(full) > 100
    assert min(full) >= RATE * 0.99 - 2 * REQUEST_BYTES


def test_tier_2_falls_first_and_tier_1_is_back_first(replay: Replay) -> None:
    falls = {tier: replay.first(tier, 0.5, start=5) for tier in (1, 2)}
    assert 25 <= falls[2] <= 35
    assert falls[2] + 5 <= falls[1] <= 50
    back = {tier: replay.back(tier, start=falls[1] + 5) for tier in (1, 2)}
    assert 70 <= back[1] <= 90
    assert back[1] + 20 <= back[2] <= 130


def test_everything_passes_in_the_end(replay: Replay) -> None:
    for tier in range(3):
        assert sum(one[tier] for one in replay.passed) == sum(one[tier] for one in replay.offered)
