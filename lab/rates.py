"""Rates out of what clients counted: bytes per second, and means that no window's place sways.

A client that wants more than its quota runs in a sawtooth of 11 to 12 seconds (Kafka's window of
eleven samples), so a plain mean over a window swings by several percent with the phase at which it
is taken. `steady_mean` averages all 12-second means inside the window instead, which takes the
sawtooth out. Nothing here knows partitions, quotas or phases.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

SAWTOOTH_SECONDS = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """`count` bytes were delivered from the sample before until `at_seconds`."""

    at_seconds: float
    count: int


class ByteSeries:
    """The bytes that one client delivered, as a function of time.

    Between two samples they are spread evenly. Before the first sample nothing was delivered, after
    the last one nothing more.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        ordered = sorted(samples, key=lambda sample: sample.at_seconds)
        self._times = [sample.at_seconds for sample in ordered]
        self._totals = list(accumulate(sample.count for sample in ordered))

    @property
    def end_seconds(self) -> float:
        """When the last sample ended; 0 without samples."""
        return self._times[-1] if self._times else 0.0

    def delivered_until(self, at_seconds: float) -> float:
        """All bytes delivered up to `at_seconds`."""
        later = bisect_left(self._times, at_seconds)
        if later == len(self._times):
            return float(self._totals[-1]) if self._totals else 0.0
        if later == 0:
            return 0.0 if at_seconds < self._times[0] else float(self._totals[0])
        begin, end = self._times[later - 1], self._times[later]
        share = (at_seconds - begin) / (end - begin)
        return self._totals[later - 1] + share * (self._totals[later] - self._totals[later - 1])

    def mean(self, start_seconds: float, length_seconds: float) -> float:
        """Bytes per second over the window; a window without length is a mistake of the caller."""
        if length_seconds <= 0:
            raise ValueError(f"a mean needs a window longer than {length_seconds} s")
        return (
            self.delivered_until(start_seconds + length_seconds)
            - self.delivered_until(start_seconds)
        ) / length_seconds

    def per_second(self, start_seconds: float, seconds: int) -> list[float]:
        """The rate of each of `seconds` whole seconds from `start_seconds`, in bytes per second."""
        return [self.mean(start_seconds + second, 1) for second in range(seconds)]


def steady_mean(series: ByteSeries, start_seconds: float, length_seconds: float) -> float:
    """Bytes per second over the window: the mean of its 12-second means, one every half second.

    What a period of 11.5 s still contributes is below 1 % of its swing from 24 s on; a plain mean
    leaves up to 6 %. Raises ValueError when the window is shorter than 12 s.
    """
    if length_seconds < SAWTOOTH_SECONDS:
        raise ValueError(
            f"a steady mean needs at least {SAWTOOTH_SECONDS} s, got {length_seconds} s"
        )
    steps = int((length_seconds - SAWTOOTH_SECONDS) * 2) + 1
    means = [series.mean(start_seconds + step / 2, SAWTOOTH_SECONDS) for step in range(steps)]
    return sum(means) / len(means)


def growth(values: Iterable[list[Any]]) -> list[Sample]:
    """A counter's readings as bytes per interval.

    A reset (a broker was restarted) counts as no growth.
    """
    readings = [(float(at), float(text)) for at, text in values]
    pairs = pairwise(readings)
    first = [Sample(readings[0][0], 0)] if readings else []
    return first + [Sample(at, max(0, round(now - before))) for (_, before), (at, now) in pairs]
