"""How long from a load to the first throttle where hot brokers are read from their exporters.

Prometheus, the exporters' HTTP, the readings and the decisions are real; what NICs carry is made
up, so that the load rises at a known moment. Many policies run beside one another, each with a
broker of its own. The end is the decision: what a write takes from there is measured elsewhere.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from bench.results import Figure, percentiles
from lab.prometheus import Exporter, PrometheusLab, ScrapeTarget, exporting
from tidegate.kube.api import Kubernetes
from tidegate.observe.metrics_watch import Dependencies, MetricsWatch
from tidegate.resources.policy import MetricsSource
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Contract,
    Entity,
    Level,
    Member,
    Observation,
    Policy,
    QuotaKey,
    RateForm,
    Readings,
    StoredQuota,
    Tier,
    Topology,
)
from tidegate_logic.reasons import Reason

SCRAPE_SECONDS: Final = 15
_MB = 1_000_000
_LIMIT = 50 * _MB
_CONTRACT, _FLOOR, _SENT = 60 * _MB, 1 * _MB, 8 * _MB
_USERS = tuple(Entity(f"throttled-{number}") for number in range(4))
_OVER = 1.5  # of the limit
_NEAR, _HALF = 0.85, 0.5
_WILD = 0.9  # of the limit for two seconds, on top: Prometheus' mean stays below the limit
_RUNS = 8
_POLL_SECONDS = 0.02
_LATEST_SECONDS = 75.0
_NEVER_SECONDS = 86_400.0


class _Nic:
    """One broker's NIC and clients; `share` of the limit is what it carries."""

    def __init__(self, share: float) -> None:
        self._lock = threading.Lock()
        self._share, self._bytes, self._at = share, 5e12, time.monotonic()

    def set(self, share: float) -> None:
        with self._lock:
            self._count()
            self._share = share

    def jump(self, nic_bytes: float) -> None:
        """So many bytes at once: one wild sample."""
        with self._lock:
            self._bytes += nic_bytes

    def page(self, _: int) -> str:
        """What the broker's exporters show."""
        with self._lock:
            self._count()
            sent, share = self._bytes, self._share
        clients = "".join(_client(user, _SENT if share > 1 else _MB) for user in _USERS)
        return f'node_network_transmit_bytes_total{{device="eth0"}} {sent:.0f}\n{clients}'

    def _count(self) -> None:
        now = time.monotonic()
        self._bytes += self._share * _LIMIT * (now - self._at)
        self._at = now


def _client(user: Entity, rate: int) -> str:
    labels = f'resource="Fetch",user="{user.user}"'
    return f"kafka_quota_byte_rate{{{labels}}} {rate}\nkafka_quota_throttle_time{{{labels}}} 0\n"


@dataclass
class _Played:
    """One policy with one broker, and its passes. `throttled_at` is its first throttle."""

    broker: int
    nic: _Nic
    watch: MetricsWatch
    spec: MetricsSource
    woken: threading.Event
    is_direct: bool = False
    rises_at: float = float("inf")
    rose_at: float | None = None
    throttled_at: float | None = None
    refused_at: float | None = None
    memory: Memory = field(default_factory=Memory)
    stored: dict[Entity, StoredQuota] = field(
        default_factory=lambda: {user: StoredQuota(user, {}) for user in _USERS}
    )
    due: float = 0.0

    @property
    def took_seconds(self) -> float:
        """From the load to the first throttle; a day where there was none, or one before it."""
        rose, throttled = self.rose_at or float("inf"), self.throttled_at or float("inf")
        return throttled - rose if rose <= throttled < float("inf") else _NEVER_SECONDS

    def step(self) -> None:
        """Let the load rise, and make a pass, where it is time."""
        now = time.time()
        if now >= self.rises_at and self.rose_at is None:
            self.nic.set(_OVER)
            self.rose_at = now
        if not self.woken.is_set() and now < self.due:
            return
        self.woken.clear()
        limits = BrokerLimits(BrokerLimit(egress=_LIMIT))
        readings = self.watch.latest(self.spec, {self.broker}, limits if self.is_direct else None)
        if readings is not None and _is_refused(readings) and self.refused_at is None:
            self.refused_at = now
        self._pass(now, limits, readings)

    def _pass(self, now: float, limits: BrokerLimits, readings: Readings | None) -> None:
        policy = Policy(
            f"bench/{self.broker}",
            "uid",
            limits=limits,
            measured=True,
            stale_after_seconds=3.0 * SCRAPE_SECONDS,
        )
        tier = Tier("bench/batch", Level.L3, _MEMBERS, (_rate(_FLOOR),))
        topology = Topology(now, frozenset({self.broker}), {})
        seen = Observation(now, policy, (tier,), topology, dict(self.stored), readings=readings)
        decision, memory = decide(seen, self.memory)
        for write in decision.writes:
            before = self.stored[write.entity]
            values = {key: text for key, text in {**before.values, **write.values}.items() if text}
            version = (before.version or 0) + 1
            self.stored[write.entity] = StoredQuota(
                write.entity, values, version, write.ledger, version
            )
            rate = values.get(QuotaKey.CONSUMER_BYTE_RATE)
            if self.throttled_at is None and rate is not None and int(rate) < _CONTRACT:
                self.throttled_at = now
        entities = [one.entity for one in decision.writes]
        self.memory = settle(memory, decision, entities, now_seconds=now)
        pause = decision.next_pass_in_seconds
        self.due = now + (SCRAPE_SECONDS if pause is None else max(pause, 0.05))


def _is_refused(readings: Readings) -> bool:
    return any(one.reason is Reason.NOT_READ_DIRECTLY for one in readings.problems)


def _rate(rate: int) -> Contract:
    return Contract(RateForm.PER_BROKER, rate, None)


_MEMBERS = tuple(Member(str(user.user), user, (), _rate(_CONTRACT)) for user in _USERS)


@dataclass(frozen=True)
class _Broker:
    """A NIC, the exporter that Prometheus scrapes, and the one that is read directly.

    They are two, so that the second can go away. `direct` None = Prometheus alone is read.
    """

    nic: _Nic
    scraped: Exporter
    own: ExitStack
    direct: Mapping[str, Any] | None


class _Bench:
    """Policies beside one another, each with a broker of its own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._brokers: list[_Broker] = []
        self.played: list[_Played] = []

    def add(self, share: float, direct: Mapping[str, Any] | None) -> Sequence[int]:
        """Some brokers with this load; `direct` as in a policy."""
        begin = len(self._brokers)
        for _ in range(_RUNS):
            nic = _Nic(share)
            scraped = self._stack.enter_context(exporting(nic.page))
            own = self._stack.enter_context(ExitStack())
            asked = own.enter_context(exporting(nic.page))
            port = {"enabled": True, "port": asked.server_address[1]}
            spec = None if direct is None else {**port, **direct}
            self._brokers.append(_Broker(nic, scraped, own, spec))
        return range(begin, len(self._brokers))

    def start(self) -> None:
        """Prometheus scrapes them all, and each policy begins, without direct readings yet."""
        targets = [
            ScrapeTarget("node", broker.scraped.address, number)
            for number, broker in enumerate(self._brokers)
        ]
        prometheus = self._stack.enter_context(
            PrometheusLab(targets, scrape_interval_seconds=SCRAPE_SECONDS)
        )
        for number, broker in enumerate(self._brokers):
            woken = threading.Event()
            watch = MetricsWatch(
                f"bench/{number}",
                Dependencies(
                    cast(Kubernetes, None),  # no Secret is named
                    wake=woken.set,
                    beat=lambda: None,
                    forget=lambda: None,
                ),
            )
            self._stack.callback(watch.close)
            spec = {
                "prometheus": {"url": prometheus.url},
                "scrapeIntervalSeconds": SCRAPE_SECONDS,
                "staleAfterSeconds": 3 * SCRAPE_SECONDS,
                **({} if broker.direct is None else {"direct": broker.direct}),
            }
            source = MetricsSource.model_validate(spec)
            self.played.append(_Played(number, broker.nic, watch, source, woken))

    def read_directly(self) -> None:
        for one in self.played:
            one.is_direct = True

    def send_away(self, numbers: Sequence[int]) -> None:
        """Nobody answers any more where these are read directly; Prometheus scrapes on."""
        for number in numbers:
            self._brokers[number].own.close()

    def play(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """All policies for so long, or until something is so; returns the cores that it took."""
        begun, processor = time.monotonic(), time.process_time()
        while time.monotonic() < begun + seconds and not until():
            for one in self.played:
                one.step()
            time.sleep(_POLL_SECONDS)
        return (time.process_time() - processor) / (time.monotonic() - begun)


def direct_figures() -> list[Figure]:
    """First throttles with direct readings and without, and what they cost."""
    chance = Random(7)
    with ExitStack() as stack:
        bench = _Bench(stack)
        groups = {
            "near": bench.add(_NEAR, {}),
            "half": bench.add(_HALF, {}),
            "every": bench.add(_HALF, {"abovePercent": 0}),
            "alone": bench.add(_NEAR, None),
            "away": bench.add(_NEAR, {}),
            "wild": bench.add(_NEAR, {}),
        }
        bench.start()
        of = {name: [bench.played[one] for one in numbers] for name, numbers in groups.items()}
        bench.play(3 * SCRAPE_SECONDS)  # each load is known
        without = bench.play(SCRAPE_SECONDS)
        bench.read_directly()
        bench.play(5.0)
        more = bench.play(SCRAPE_SECONDS) - without
        bench.send_away(groups["away"])
        left_at = time.time()
        for one in of["wild"]:
            one.nic.jump(2 * _WILD * _LIMIT)
        bench.play(SCRAPE_SECONDS)
        rising = [one for name, ones in of.items() if name != "wild" for one in ones]
        for one in rising:
            one.rises_at = time.time() + chance.uniform(0, SCRAPE_SECONDS)
        bench.play(_LATEST_SECONDS, lambda: all(one.throttled_at is not None for one in rising))
    gone = [(one.refused_at or left_at + _NEVER_SECONDS) - left_at for one in of["away"]]
    read = 4 * _RUNS
    return [
        *_took("85 to 150 % of the limit, read directly", of["near"], 5.0),
        *_took("50 to 150 %, read directly from 80 % on", of["half"], 20.0),
        *_took("50 to 150 %, abovePercent 0", of["every"], 5.0),
        *_took("85 to 150 %, Prometheus alone", of["alone"], None),
        *_took("85 to 150 %, its exporter gone", of["away"], None),
        Figure(
            f"an exporter goes away: Prometheus alone is used, longest of {_RUNS}",
            max(gone),
            "s",
            float(SCRAPE_SECONDS),
        ),
        Figure(
            f"brokers at 85 % with one wild sample of 2 s that are throttled, of {_RUNS}",
            sum(one.throttled_at is not None for one in of["wild"]),
            "",
            0,
        ),
        Figure(
            "a broker that is read directly: processor, its exporter's included",
            more / read,
            "cores",
            0.02,
        ),
    ]


def _took(what: str, played: Sequence[_Played], bound_seconds: float | None) -> list[Figure]:
    name = f"NIC from {what}: to the first throttle decided, scrape {SCRAPE_SECONDS} s"
    taken = [one.took_seconds for one in played]
    return percentiles(name, taken, "s", {50: None, 95: bound_seconds})
