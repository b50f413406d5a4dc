"""The arithmetic that the experiment is held against."""

import pytest

from demo.script import PHASES, expected_by_broker, quota_of

CONTRACT = 10_000_000
OFFERED = 25_000_000


@pytest.mark.parametrize(
    ("phase", "total"),
    [("fixed-before", 30e6), ("fixed-killed", 20e6), ("max-before", 30e6), ("max-killed", 40e6), ("mean-killed", 30e6)],
)
def test_totals_are_those_of_leaders_times_quota(phase: str, total: float) -> None:
    played = next(one for one in PHASES if one.key == phase)
    expected = expected_by_broker(played.leaders, quota_of(played, CONTRACT), offered_bytes_per_second=OFFERED)
    assert sum(expected.values()) == total


def test_a_broker_cannot_deliver_more_than_is_offered_to_it() -> None:
    assert expected_by_broker({0: 1, 1: 2}, 100, offered_bytes_per_second=70) == {1: 70, 2: 70}


def test_the_offer_is_above_the_quota_of_every_broker_in_every_phase() -> None:
    for phase in PHASES:
        quota = quota_of(phase, CONTRACT)
        expected = expected_by_broker(phase.leaders, quota, offered_bytes_per_second=OFFERED)
        assert set(expected.values()) == {quota}, phase.key
