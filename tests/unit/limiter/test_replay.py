"""The published test of a tiered limiter, in virtual time: 100 MB/s in refills of 10 ms; tier 0 a
wave with a peak of 100 MB/s, tiers 1 and 2 waves with peaks of 60 MB/s, each of two minutes.
"""

from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.unit.limiter.waves import PEAKS, RATE, REQUEST_BYTES, offers
from tidegate.limiter import Bucket

_OFFER_SECONDS = 360
_LONGEST_SECONDS = 900


@dataclass
class Replay:
    """Bytes by second and tier: what was asked for, and what was let by."""

    offered: list[list[int]] = field(
        default_factory=lambda: [[0, 0, 0] for _ in range(_LONGEST_SECONDS)]
    )
    passed: list[list[int]] = field(
        default_factory=lambda: [[0, 0, 0] for _ in range(_LONGEST_SECONDS)]
    )
    seconds: int = 0

    def waits(self, second: int) -> bool:
        """Whether bytes waited over the whole of that second."""
        until = range(second + 1)
        offered = sum(sum(self.offered[at]) for at in range(second))
        return offered > sum(sum(self.passed[at]) for at in until)

    def first(self, tier: int, below: float, *, start: int) -> int:
        """The first second from `start` on in which less than this share of the offer passed."""
        return next(
            at
            for at in range(start, self.seconds)
            if self.passed[at][tier] < below * self.offered[at][tier]
        )

    def back(self, tier: int, *, start: int) -> int:
        """The first second from `start` on in which it passes half of its peak again."""
        return next(
            at for at in range(start, self.seconds) if self.passed[at][tier] > PEAKS[tier] / 2
        )


@pytest.fixture(scope="module")
def replay() -> Replay:
    bucket, seen = Bucket(RATE), Replay()
    feeds = [offers(tier) for tier in range(3)]
    for step in count():
        now = step / 400
        for ticket in bucket.advance(now):
            assert ticket.done_seconds is not None
            seen.passed[int(ticket.done_seconds + 1e-9)][ticket.tier] += ticket.size_bytes
        if now < _OFFER_SECONDS:
            for tier, feed in enumerate(feeds):
                for _ in range(feed(now)):
                    seen.offered[int(now)][tier] += REQUEST_BYTES
                    if bucket.put(REQUEST_BYTES, tier, now).done_seconds is not None:
                        seen.passed[int(now)][tier] += REQUEST_BYTES
        elif not bucket.waiting:
            break
    seen.seconds = int(now) + 1
    return seen


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
