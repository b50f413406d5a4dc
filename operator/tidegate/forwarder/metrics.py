"""Metrics of a forwarder. How many records wait is not counted here: the operator reads it from
offsets.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

LATE_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
_COMMIT_BUCKETS_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class Lateness(Collector):
    """A histogram per delay that counts a chunk of records in a few steps, not one by one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, list[int]] = {}
        self._sums_ms: dict[int, float] = {}

    def observe(self, delay_seconds: int, due_ms: Sequence[int], now_ms: float) -> None:
        """Records with these ascending due times are sent now."""
        if not due_ms:
            return
        # late by at most b = due at now - b or later
        within = [
            len(due_ms) - bisect_right(due_ms, now_ms - bound * 1000 - 1)
            for bound in LATE_BUCKETS_SECONDS
        ]
        with self._lock:
            counts = self._counts.setdefault(delay_seconds, [0] * (len(within) + 1))
            for index, count in enumerate((*within, len(due_ms))):
                counts[index] += count
            late_ms = now_ms * len(due_ms) - sum(due_ms)
            self._sums_ms[delay_seconds] = self._sums_ms.get(delay_seconds, 0.0) + late_ms

    def collect(self) -> Iterator[Metric]:
        """The histogram, as prometheus_client asks for it."""
        family = HistogramMetricFamily(
            "tidegate_queue_late_seconds",
            "How long after its due time a record was sent.",
            labels=["delay_seconds"],
        )
        bounds = [*map(str, LATE_BUCKETS_SECONDS), "+Inf"]
        with self._lock:
            for delay_seconds, counts in self._counts.items():
                family.add_metric(
                    [str(delay_seconds)],
                    buckets=list(zip(bounds, counts, strict=True)),
                    sum_value=self._sums_ms[delay_seconds] / 1000,
                )
        yield family


class ForwarderMetrics:
    """All metrics of a forwarder's process; they outlive a change of its member's name."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.late = Lateness()
        registry.register(self.late)
        self.forwarded = Counter(
            "tidegate_queue_forwarded",
            "Records that arrived, at their target or in the dead topic.",
            ["delay_seconds"],
            registry=registry,
        )
        self.dead = Counter(
            "tidegate_queue_dead",
            "Records that went to the dead topic, by reason.",
            ["reason"],
            registry=registry,
        )
        self.cancelled = Counter(
            "tidegate_queue_cancelled",
            "Records that were not sent because they were cancelled.",
            ["delay_seconds"],
            registry=registry,
        )
        self.hops = Counter(
            "tidegate_queue_hops",
            "Records that were sent to another level topic, because their own due time is later.",
            ["delay_seconds"],
            registry=registry,
        )
        self.lost = Counter(
            "tidegate_queue_lost",
            "Records that retention deleted before they were read.",
            ["delay_seconds"],
            registry=registry,
        )
        self.retries = Counter(
            "tidegate_queue_retries",
            "Times that a level topic went back to its last commit.",
            ["delay_seconds"],
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "tidegate_queue_commit_seconds",
            "From sending records until their position was committed (AtLeastOnce: until they were "
            "acknowledged).",
            buckets=_COMMIT_BUCKETS_SECONDS,
            registry=registry,
        )
        self.clock_offset_seconds = Gauge(
            "tidegate_queue_clock_offset_seconds",
            "How far the machine's clock is ahead of the brokers'.",
            registry=registry,
        )
        self.held = Gauge(
            "tidegate_queue_held",
            "1 while due messages wait because brokers are over their limit, else 0.",
            registry=registry,
        )
        self.level_topics = Gauge(
            "tidegate_queue_level_topics",
            "Level topics that this process forwards.",
            registry=registry,
        )
