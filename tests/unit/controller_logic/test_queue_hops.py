"""A message with a due time of its own is never early, and late by less than the shortest delay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.queues.due import next_wait_seconds

POWERS = [1 << n for n in range(17)]  # a second to 18 hours


@pytest.mark.parametrize(
    ("left_ms", "expected"),
    [(-5, None), (0, None), (1, 1), (999, 1), (1000, 1), (1993, 2), (1991, 1), (1e9, 65536)],
)
def test_the_longest_wait_that_is_over_in_time_is_chosen(
    left_ms: float, expected: int | None
) -> None:
    assert next_wait_seconds(POWERS, left_ms) == expected


def test_without_delays_nothing_waits() -> None:
    assert next_wait_seconds([], 5000) is None


@given(
    delays=st.lists(st.integers(1, 100_000), min_size=1, max_size=20, unique=True),
    left_ms=st.integers(0, 10_000_000),
    extra_ms=st.integers(0, 3),
)
def test_it_ends_in_time_whatever_the_delays(
    delays: list[int], left_ms: int, extra_ms: int
) -> None:
    """Each wait takes its delay, and a little more."""
    delays.sort()
    gone_ms, hops = 0, 0
    while (wait := next_wait_seconds(delays, left_ms - gone_ms)) is not None:
        gone_ms += wait * 1000 + extra_ms
        hops += 1
    assert gone_ms >= left_ms
    assert gone_ms < left_ms + delays[0] * 1000 + extra_ms or not hops
    assert hops <= left_ms / (delays[0] * 1000) + 1


@given(left_ms=st.integers(0, 86_400_000))
def test_with_powers_of_two_few_waits_are_enough(left_ms: int) -> None:
    gone_ms, hops = 0, 0
    while (wait := next_wait_seconds(POWERS, left_ms - gone_ms)) is not None:
        gone_ms += wait * 1000
        hops += 1
    assert hops <= 18
