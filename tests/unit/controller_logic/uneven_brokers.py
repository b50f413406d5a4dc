"""Brokers that lead unequally many partitions of one topic, metered and muted event by event as
Kafka does it.

Each partition has one producer with one request in flight. Time is whole milliseconds since the
start; readings count from EPOCH_SECONDS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil

from tidegate.simulation.sample_ring import SampleRing, measure, mute_ms, record
from tidegate_logic.contracts.adaptive import (
    Adaptation,
    Adaptations,
    AdaptiveInput,
    AdaptiveRate,
    adapt,
)
from tidegate_logic.contracts.leader_scaling import ADAPTIVE_SHARES, LeaderSpread
from tidegate_logic.model import (
    STALE_AFTER_SECONDS,
    ClientRate,
    Direction,
    Entity,
    RateKey,
    Readings,
)
from tidegate_logic.readings import flows_of

MB = 1_000_000
USER = Entity("orders")
IN = Direction.INGRESS
EPOCH_SECONDS = 1_000_000.0
REQUEST_BYTES = 2 * MB
_SERVICE_MS = 10  # so a producer without bounds offers 200 MB/s
_THROTTLE_TIME_MS = (
    60_000  # two samples of 30 s: what Kafka's mean of throttle times may look back on
)

Demand = Callable[
    [float], float | None
]  # what one partition is offered in bytes/s at a second; None = without bounds


def spread_of(leaders: Mapping[int, int]) -> LeaderSpread:
    counts = leaders.values()
    return LeaderSpread(
        1,
        sum(counts),
        len(counts),
        max(counts),
        min(counts),
        0,
        (),
        len(counts) * max(counts) / sum(counts),
    )


def adapted(given: AdaptiveInput, memory: Adaptations) -> dict[RateKey, Adaptation]:
    """The shares by the usable client rates of these readings."""
    flows = flows_of(
        given.readings, now_seconds=given.now_seconds, stale_after_seconds=STALE_AFTER_SECONDS
    )
    return adapt(given, flows, memory)


def rate_of(
    leaders: Mapping[int, int],
    promised_mb: int = 10,
    in_force: int | None = None,
    **changes: object,
) -> AdaptiveRate:
    made: dict[str, object] = {
        "spread": spread_of(leaders),
        "leads": frozenset(leaders),
        "in_force": in_force,
        **changes,
    }
    return AdaptiveRate(USER, IN, promised_mb * MB, **made)  # type: ignore[arg-type]


@dataclass(slots=True)
class Broker:
    """One bucket with its producers, each with bytes that wait for it."""

    producers: int
    ring: SampleRing = field(default_factory=SampleRing)
    events: list[tuple[int, int]] = field(default_factory=list)
    waiting: dict[int, tuple[int, float]] = field(default_factory=dict)
    mutes: list[tuple[int, int]] = field(default_factory=list)
    sent: float = 0.0

    def __post_init__(self) -> None:
        for producer in range(self.producers):
            heappush(self.events, (3 * producer, producer))

    def run(self, until_ms: int, quota: int, demand: Demand) -> None:
        while self.events[0][0] < until_ms:
            now_ms, producer = heappop(self.events)
            lacking_ms = self._lacking_ms(producer, now_ms, demand)
            if lacking_ms:
                heappush(self.events, (now_ms + lacking_ms, producer))
                continue
            self.ring = record(self.ring, REQUEST_BYTES, now_ms=now_ms)
            self.ring, measured = measure(self.ring, now_ms=now_ms)
            muted_ms = mute_ms(measured, quota)
            if muted_ms:
                self.mutes.append((now_ms, muted_ms))
            self.sent += REQUEST_BYTES
            heappush(self.events, (now_ms + max(_SERVICE_MS, muted_ms), producer))

    def _lacking_ms(self, producer: int, now_ms: int, demand: Demand) -> int:
        """How long until a whole request waits to be sent; 0 = it is sent now. What waits is
        dropped beyond a minute's worth.
        """
        offered = demand(now_ms / 1000)
        last_ms, waiting = self.waiting.get(producer, (now_ms, 0.0))
        if offered is not None:
            waiting = min(waiting + offered * (now_ms - last_ms) / 1000, 60 * offered)
        lacking = 0.0 if offered is None else max(0.0, REQUEST_BYTES - waiting)
        self.waiting[producer] = (
            now_ms,
            waiting if lacking or offered is None else waiting - REQUEST_BYTES,
        )
        return ceil(lacking / offered * 1000) if offered else 0

    def reading(self, now_ms: int) -> ClientRate:
        _, measured = measure(self.ring, now_ms=now_ms)
        of_late = [muted for at, muted in self.mutes if now_ms - at < _THROTTLE_TIME_MS]
        return ClientRate(
            EPOCH_SECONDS + now_ms / 1000,
            measured.rate,
            sum(of_late) / len(of_late) if of_late else 0.0,
        )


@dataclass(slots=True)
class UnevenBrokers:
    """Adaptive scaling in a closed loop: scrapes of each broker at its own phase, a decision every
    five seconds, quotas applied at once.
    """

    leaders: Mapping[int, int]
    share: int = ADAPTIVE_SHARES
    scrape_seconds: int = 15
    reports_throttle_time: bool = True
    memory: dict[RateKey, Adaptation] = field(default_factory=dict)
    clients: dict[tuple[Entity, int, Direction], ClientRate] = field(default_factory=dict)
    writes: list[int] = field(default_factory=list)
    in_force: int = 0
    second: int = 0
    brokers: dict[int, Broker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.brokers = {broker: Broker(count) for broker, count in self.leaders.items()}
        self.in_force = self.rate.value_at(self.share)

    @property
    def rate(self) -> AdaptiveRate:
        return rate_of(self.leaders, in_force=self.in_force)

    def play(self, seconds: int, demand: Demand) -> float:
        """So many more seconds; the total in bytes/s over the last three minutes of them, or
        fewer.
        """
        counted = min(180, seconds)
        sent = 0.0
        for left in range(seconds, 0, -1):
            if left == counted:
                sent = self._sent()
            self._second(demand)
        return (self._sent() - sent) / counted

    def forget(self) -> None:
        """The operator is restarted."""
        self.memory = {}

    def _sent(self) -> float:
        return sum(broker.sent for broker in self.brokers.values())

    def _second(self, demand: Demand) -> None:
        self.second += 1
        for number, broker in self.brokers.items():
            broker.run(self.second * 1000, self.in_force, demand)
            if self.second % self.scrape_seconds == number * 7 % self.scrape_seconds:
                reading = broker.reading(self.second * 1000)
                reported = reading.throttle_milliseconds if self.reports_throttle_time else None
                self.clients[USER, number, IN] = ClientRate(
                    reading.at_seconds, reading.bytes_per_second, reported
                )
        if self.second % 5 == 0:
            self._decide()

    def _decide(self) -> None:
        now_seconds = EPOCH_SECONDS + self.second
        rate = self.rate
        readings = Readings(now_seconds, float(self.scrape_seconds), clients=dict(self.clients))
        self.memory = adapted(AdaptiveInput(now_seconds, readings, (rate,)), self.memory)
        wanted = rate.value_at(self.memory[rate.key].share)
        if abs(wanted - self.in_force) * 100 >= 10 * self.in_force:
            self.in_force = wanted
            self.writes.append(wanted)
