"""A whole estate as Prometheus holds it: brokers with their cards, counters and clients, of which every byte is known.

The brokers are `bench.rollup_truth`'s. A few are made and many are told: broker n does what broker n modulo `_MADE` does, and each hour
is the first one again, because making them takes longer than measuring.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bench.rollup_truth import MadeDirection, made_direction
from tidegate.rollup.fold.windows import Windows
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction

SCRAPE_MS = 15_000
_MADE = 4
_CARD_OVERHEAD = 1.05
_WAYS = {"produce": ("Produce", "in", "receive"), "fetch": ("Fetch", "out", "transmit")}


@dataclass(frozen=True)
class Estate:
    """`brokers` with so many clients in each direction, over whole hours from `start_ms` on.

    A scrape falls onto each edge with `offset_ms` 0; then counters are exact in each single window.
    """

    start_ms: int
    hours: int = 1
    brokers: int = 20
    clients: int = 250
    offset_ms: int = 0

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.hours * HOUR_MS

    @property
    def rate_series(self) -> int:
        """Byte rates of clients; a tenth as many throttle times and a few counters come on top."""
        return self.brokers * len(DIRECTIONS) * self.clients

    @property
    def samples(self) -> int:
        """Of byte rates and throttle times within the hours: what is read beyond their edges, and the counters, are not counted."""
        series = self.rate_series + self.brokers * sum(len(made.samples.throttle_times) for made in self._made[0].values())
        return series * self.hours * HOUR_MS // SCRAPE_MS

    def made(self, broker: int) -> dict[Direction, MadeDirection]:
        """What this broker (from 1 on) moved in the first hour."""
        return self._made[broker % len(self._made)]

    def series(self) -> Iterator[SeriesSamples]:
        """Everything, with names, as a server would have scraped it."""
        for broker in range(1, self.brokers + 1):
            for way, made in self.made(broker).items():
                yield from (self._repeated(one) for one in _of_broker(broker, way, made))

    def _repeated(self, one: SeriesSamples) -> SeriesSamples:
        """Hour after hour the same; a counter goes on from where it was, a gauge starts over."""
        first, last = np.searchsorted(one.times_ms, (self.start_ms, self.start_ms + HOUR_MS), side="right")
        hour, risen = slice(first, last), 0.0
        if one.labels["__name__"].endswith("_total"):
            risen = one.values[last - 1] - one.values[first - 1]
        after = np.arange(self.hours) * float(HOUR_MS), np.arange(self.hours) * risen
        times, values = (np.add.outer(step, told[hour]).ravel() for step, told in zip(after, (one.times_ms, one.values), strict=True))
        times = np.concatenate([one.times_ms[:first], times.astype(np.int64), one.times_ms[last:] + (self.hours - 1) * HOUR_MS])
        return SeriesSamples(one.labels, times, np.concatenate([one.values[:first], values, one.values[last:] + (self.hours - 1) * risen]))

    @cached_property
    def _made(self) -> list[dict[Direction, MadeDirection]]:
        first_hour = Windows(self.start_ms, self.start_ms + HOUR_MS)
        return [
            {
                way: made_direction(first_hour, self.clients, 2 * pattern + number, offset_ms=self.offset_ms)
                for number, way in enumerate(DIRECTIONS)
            }
            for pattern in range(min(_MADE, self.brokers))
        ]


def _of_broker(broker: int, way: Direction, made: MadeDirection) -> Iterator[SeriesSamples]:
    resource, flow, wire = _WAYS[way]
    own, total = {"broker": str(broker)}, made.samples.client_bytes[0]
    yield replace(total, labels={**own, "__name__": f"kafka_broker_bytes{flow}_total"})
    on_wire = np.floor(total.values * _CARD_OVERHEAD)
    yield replace(total, labels={**own, "__name__": f"node_network_{wire}_bytes_total", "device": "eth0"}, values=on_wire)
    for name, gauges in (("kafka_quota_byte_rate", made.samples.rates), ("kafka_quota_throttle_time", made.samples.throttle_times)):
        for one in gauges:
            client = {"user": one.labels["user"], "client_id": one.labels["client_id"]}
            yield replace(one, labels={**own, **client, "__name__": name, "resource": resource})
