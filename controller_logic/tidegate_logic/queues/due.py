"""When records of level topics are due, and what time it is for the brokers.

A record with a due time of its own waits in one level topic after the other: each time in the
longest that is over before then, and at the end in the shortest. So it is never early, and late by
less than the shortest delay.

Times are in ms. A record is due when its append time plus its level's delay has passed by the
brokers' clock, which only a bound is known of: sending waits for the bound, so it is never early.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

_LONGEST_LOOK_MS = 100.0
_TOLERANCE_MS = 8  # so much after a record's due time a wait may end


def due_times(append_ms: Iterable[int], delay_ms: int, *, after_ms: int = 0) -> list[int]:
    """When records in log order are due; `after_ms` is when the record before them was.

    A record is never due before the one that precedes it, so that order is kept where the append
    times go back, as they may when another broker takes the lead.
    """
    due = accumulate((appended + delay_ms for appended in append_ms), max, initial=after_ms)
    next(due)
    return list(due)


def count_due(due_ms: Sequence[int], now_ms: float, *, start: int = 0) -> int:
    """How many of the ascending due times have passed, with those before `start`."""
    return bisect_right(due_ms, now_ms, lo=start)


def next_look_ms(now_ms: float, delay_ms: int) -> float:
    """When to look at a level again that had nothing to read."""
    return now_ms + min(delay_ms / 4, _LONGEST_LOOK_MS)


def next_wait_seconds(delays_seconds: Sequence[int], left_ms: float) -> int | None:
    """Which of the ascending delays to wait now, if it is due in so long; None = it is due."""
    if left_ms <= 0 or not delays_seconds:
        return None
    fitting = [one for one in delays_seconds if one * 1000 <= left_ms + _TOLERANCE_MS]
    return fitting[-1] if fitting else delays_seconds[0]


class DueHeap:
    """When to look at each level next. The earliest one sets the only timer."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._when: dict[str, float] = {}

    def schedule(self, topic: str, when_ms: float) -> None:
        """Look at it then, and not when it was scheduled before."""
        self._when[topic] = when_ms
        heapq.heappush(self._heap, (when_ms, topic))

    def drop(self, topic: str) -> None:
        """Do not look at it any more."""
        self._when.pop(topic, None)

    def pop_due(self, now_ms: float) -> list[str]:
        """Take out the topics whose time has come, the earliest first."""
        found = []
        while self.next_ms() <= now_ms:
            _, topic = heapq.heappop(self._heap)
            del self._when[topic]
            found.append(topic)
        return found

    def next_ms(self) -> float:
        """When the earliest is; infinity for none."""
        heap = self._heap
        while heap and self._when.get(heap[0][1]) != heap[0][0]:  # scheduled again or dropped
            heapq.heappop(heap)
        return heap[0][0] if heap else float("inf")


_KEPT_PROBES = 12
_DRIFT = 100e-6  # two clocks that NTP corrects differ by less; oscillators without it by 50 ppm


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The own clock was between `least_ms` and `most_ms` ahead of the brokers' at `at_ms`."""

    at_ms: float
    least_ms: float
    most_ms: float


class ClockOffset:
    """How far the own clock is ahead of the brokers', from the append times of probes.

    The own clock must not jump: a monotonic one. Where the brokers' clock jumps, the next probe
    contradicts those before it, which then count no more.
    """

    def __init__(self) -> None:
        self._probes: deque[_Bounds] = deque(maxlen=_KEPT_PROBES)
        self._best: _Bounds | None = None  # replaced as a whole, so that any thread may read it

    def add(self, sent_ms: float, answered_ms: float, append_ms: int) -> None:
        """A record that was sent and acknowledged at these own times, and appended then.

        Brokers cut their time to whole milliseconds.
        """
        new = _Bounds(answered_ms, sent_ms - append_ms - 1, answered_ms - append_ms)
        if self._best is not None and not (
            new.least_ms <= _most(self._best, answered_ms)
            and self._least(answered_ms) <= new.most_ms
        ):
            self._probes.clear()
        self._probes.append(new)
        self._best = min(self._probes, key=lambda probe: _most(probe, answered_ms))

    def most_ms(self, now_ms: float) -> float | None:
        """The most that the own clock can be ahead now; None before the first probe.

        The own time less this is never later than the brokers' time.
        """
        return None if self._best is None else _most(self._best, now_ms)

    def _least(self, now_ms: float) -> float:
        return max(p.least_ms - (now_ms - p.at_ms) * _DRIFT for p in self._probes)


def _most(probe: _Bounds, now_ms: float) -> float:
    return probe.most_ms + max(0.0, now_ms - probe.at_ms) * _DRIFT
