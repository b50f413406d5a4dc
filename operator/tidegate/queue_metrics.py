"""Metrics of DelayQueues: what the operator's last look at each queue found.

Forwarders serve their own, of what they sent themselves. These here are of a whole queue, are also
there when no forwarder runs, and survive a restart of all of them.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.throttle_metrics import POLICY_LABELS, policy_labels

# `namespace` is the label of the Pod that Prometheus scrapes
QUEUE_LABELS = (*POLICY_LABELS, "queue_namespace", "queue")


@dataclass(frozen=True, slots=True)
class QueueReading:
    """One look at a queue, as a scrape reads it out. None = not known, and no series.

    `clock_ms` is the clock of the forwarder that is furthest off, less the brokers'.
    """

    waiting: int | None = None
    oldest_late_seconds: int | None = None
    lost: int | None = None
    dead: int | None = None
    is_held: bool | None = None
    forwarders_wanted: int | None = None
    forwarders_available: int | None = None
    clock_ms: int | None = None

    @property
    def clock_seconds(self) -> float | None:
        return None if self.clock_ms is None else self.clock_ms / 1000


_GAUGES: Sequence[tuple[str, str, Callable[[QueueReading], float | None]]] = (
    (
        "messages_waiting",
        "Messages of all delays that were not sent on yet.",
        lambda one: one.waiting,
    ),
    (
        "oldest_late_seconds",
        "How long the oldest message that waits has been due; 0 = none is.",
        lambda one: one.oldest_late_seconds,
    ),
    (
        "messages_lost",
        "Messages that Kafka deleted before they were sent on, in the topics that exist.",
        lambda one: one.lost,
    ),
    ("messages_dead", "Messages in the queue's dead topic.", lambda one: one.dead),
    (
        "held",
        "1 = due messages wait for brokers, or are sent at the queue's rate after that.",
        lambda one: one.is_held,
    ),
    (
        "forwarders_wanted",
        "Forwarders that the queue wants.",
        lambda one: one.forwarders_wanted,
    ),
    (
        "forwarders_available",
        "Forwarders that are available.",
        lambda one: one.forwarders_available,
    ),
    (
        "clock_offset_seconds",
        "How far the clock of a forwarder is ahead of the brokers', for the one that is furthest "
        "off.",
        lambda one: one.clock_seconds,
    ),
)


class QueueReadings(Collector):
    """Turns the last look at each policy's queues into gauges at a scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_policy: Mapping[str, Mapping[str, QueueReading]] = {}

    def put(self, policy_key: str, found: Mapping[str, QueueReading]) -> None:
        """The queues of a policy by namespace/name; others of it are gone."""
        with self._lock:
            others = {key: one for key, one in self._by_policy.items() if key != policy_key}
            self._by_policy = {**others, policy_key: found} if found else others

    def describe(self) -> list[Metric]:
        """Nothing is collected at registration: nothing was looked at yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges, as prometheus_client asks for them."""
        by_policy = self._by_policy
        for name, text, value_of in _GAUGES:
            family = GaugeMetricFamily(f"tidegate_delay_queue_{name}", text, labels=QUEUE_LABELS)
            for policy_key, queues in by_policy.items():
                for queue_key, reading in queues.items():
                    value = value_of(reading)
                    if value is not None:
                        # a queue's namespace/name splits as a policy's does
                        family.add_metric(
                            (*policy_labels(policy_key), *policy_labels(queue_key)), float(value)
                        )
            yield family
