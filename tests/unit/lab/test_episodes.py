"""The figures of a played episode, out of recorded seconds."""

from __future__ import annotations

import pytest

from lab.episodes import Business, Episode, runs_of_nothing
from lab.quota_watch import QuotaWrite
from lab.rates import ByteSeries, Sample

LIMIT = 25_000_000
L0 = Business("L0", "checkout", 16_000_000, None, 30_000_000)
L3 = Business("L3", "reports", 10, 4, contract=20)


def series(rates: list[int], begin: int = 0) -> ByteSeries:
    return ByteSeries(Sample(begin + second + 1, rate) for second, rate in enumerate(rates))


def played(
    l3: list[int], nic: list[int], *, writes: list[QuotaWrite], raised: float = 0.0
) -> Episode:
    of_l3 = series(l3)
    return Episode(
        limit=LIMIT,
        businesses=(L3,),
        limited_at_seconds=0.0,
        measured_from_seconds=2.0,
        measured_seconds=36,
        raised_at_seconds=raised or float(len(nic)),
        ended_seconds=float(len(l3)),
        moved={L3.user: of_l3},
        nic=series(nic),
        writes=writes,
    )


def lowered(at_seconds: float, after: int) -> QuotaWrite:
    return QuotaWrite(at_seconds, L3.user, L3.contract, after)


@pytest.mark.parametrize(
    ("rates", "longest"), [([], 0), ([1, 1], 0), ([0, 1, 0, 0], 2), ([0, 0, 1], 2)]
)
def test_the_longest_silence_may_lie_at_either_end(rates: list[float], longest: int) -> None:
    assert max((length for _, length in runs_of_nothing(rates)), default=0) == longest


def test_a_silence_before_the_first_write_is_not_ours() -> None:
    assert played([0, 0, 0, 5, 0, 5], [1] * 6, writes=[lowered(3, 4)]).longest_silence("L3") == 1


def test_a_nic_that_dips_within_the_limit_for_less_than_a_sawtooth_is_not_within() -> None:
    # each mean of 24 s with all 14 empty seconds in it is within the limit: 11 of them
    nic = [12 * LIMIT // 5] * 30 + [0] * 14 + [12 * LIMIT // 5] * 40
    assert played([1] * 84, nic, writes=[lowered(30, 4)]).seconds_until_within() is None
