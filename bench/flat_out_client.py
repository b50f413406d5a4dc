"""A producer that sends as fast as its quota lets it, against the broker's own arithmetic: when it sends, and what its gauge tells.

Kafka since 3.8, `quota.window.num` 11 of a second: twelve samples in a ring, each forgotten eleven seconds after its last byte; the rate is
their sum over the time since the oldest began and as many whole seconds as are missing to ten; who is above the quota waits until he
would not be. Such a client sends its window in a second, then waits, and no two rounds are alike.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_SAMPLES = 11
_SAMPLE_MS = 1000.0
REQUESTS_PER_QUOTA_SECOND = 5  # a request is a fifth of what the quota allows in a second
_TRANSFER_MS = 20.0  # ten times as fast as the quota
_PAUSE_MS = 30.0  # at most, before it sends again


@dataclass(slots=True)
class _Sample:
    began_ms: float
    last_ms: float
    requests: float = 0.0


@dataclass(slots=True)
class _Ring:
    samples: list[_Sample] = field(default_factory=list)
    current: int = 0

    def record(self, now_ms: float) -> None:
        if not self.samples:
            self.samples.append(_Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].began_ms >= _SAMPLE_MS:
            self.current = (self.current + 1) % (_SAMPLES + 1)
            self.samples[self.current : self.current + 1] = [_Sample(now_ms, now_ms)]
        self.samples[self.current].requests += 1
        self.samples[self.current].last_ms = now_ms

    def window_and_requests(self, now_ms: float) -> tuple[float, float]:
        """The milliseconds by which the broker divides, and what it divides."""
        for sample in self.samples:
            if now_ms - sample.last_ms >= _SAMPLES * _SAMPLE_MS:
                sample.began_ms, sample.last_ms, sample.requests = now_ms, now_ms, 0.0
        elapsed = now_ms - min((sample.began_ms for sample in self.samples), default=now_ms)
        missing = max(0.0, _SAMPLES - 1 - elapsed // _SAMPLE_MS) * _SAMPLE_MS
        return max(1.0, elapsed + missing), sum(sample.requests for sample in self.samples)


def flat_out(
    chance: np.random.Generator, until_seconds: int, read_at_ms: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Requests in each second from 0 on, and the gauge at these times as a multiple of the quota."""
    ring, sent, told = _Ring(), np.zeros(until_seconds, np.int64), np.zeros(len(read_at_ms))
    now_ms, read = float(chance.random() * 1000), 0
    while now_ms < until_seconds * 1000:
        while read < len(read_at_ms) and read_at_ms[read] <= now_ms:
            window_ms, requests = ring.window_and_requests(float(read_at_ms[read]))
            told[read] = requests / REQUESTS_PER_QUOTA_SECOND / (window_ms / 1000)
            read += 1
        ring.record(now_ms)
        sent[int(now_ms // 1000)] += 1
        window_ms, requests = ring.window_and_requests(now_ms)
        excess_ms = requests / REQUESTS_PER_QUOTA_SECOND * 1000 - window_ms
        now_ms += _TRANSFER_MS + (excess_ms + float(chance.random()) * _PAUSE_MS if excess_ms > 0 else 0.0)
    return sent, told
