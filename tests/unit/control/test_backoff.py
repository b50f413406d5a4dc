"""The wait after a failed pass: longer each time, never too long, and never in step with others."""

import pytest

from tidegate.control.runtime import Backoff


def test_each_failure_doubles_the_wait_up_to_the_most() -> None:
    backoff = Backoff(first_seconds=1.0, most_seconds=30.0, jitter=lambda: 1.0)
    assert [backoff.next_seconds() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize(("drawn", "waited_seconds"), [(0.0, 4.0), (0.5, 6.0), (1.0, 8.0)])
def test_jitter_takes_away_up_to_half(drawn: float, waited_seconds: float) -> None:
    assert Backoff(first_seconds=8.0, jitter=lambda: drawn).next_seconds() == waited_seconds


def test_a_pass_that_went_well_begins_anew() -> None:
    backoff = Backoff(jitter=lambda: 1.0)
    for _ in range(5):
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() == 1.0


def test_days_of_failures_do_not_overflow() -> None:
    backoff = Backoff(most_seconds=30.0, jitter=lambda: 1.0)
    assert {backoff.next_seconds() for _ in range(5000)} >= {30.0}
    assert backoff.next_seconds() == 30.0
