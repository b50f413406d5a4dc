"""Clients that send, brokers' NICs that carry it, and a Prometheus that scrapes both.

A client sends what it wants up to its quota on each broker that leads its topics; there is no
network and no mute here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.plan import BROKERS, KEYS, MB, SHARED
from tests.simulation.systems import QUOTA_KEYS, Kafka, Link
from tests.simulation.virtual_time import VirtualTime
from tidegate_logic.model import ClientRate, Direction, Entity, NicSpan, Readings

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

DIRECTIONS = {Direction.EGRESS: "fetch", Direction.INGRESS: "produce"}
KEPT_SECONDS = 65.0
WINDOW_SECONDS = 11.0
NOISE = 0.03  # up and down: a load that people call steady
_LIMITED_MILLISECONDS = 1000.0


class Load:
    """The traffic of one Kafka cluster, scraped every `scrape_seconds`."""

    def __init__(self, world: World, kafka: Kafka, scrape_seconds: float) -> None:
        self._world = world
        self._kafka = kafka
        self.scrape_seconds = scrape_seconds
        self.wants: dict[tuple[str, str], float] = {}
        self.other: dict[tuple[int, Direction], float] = {}
        self.is_frozen_until = 0.0
        # of each sample of a client, while members share budgets
        self.noise = NOISE if world.plan.size is SHARED else 0.0
        self._random = Random(f"samples {world.plan.seed}")
        self.changed_at = self.scraped_at = 0.0
        self._spans: dict[tuple[int, Direction], deque[NicSpan]] = {}
        self._clients: dict[tuple[Entity, int, Direction], ClientRate] = {}
        self._sent: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def want(self, factor: float, other: float) -> None:
        """From now on every member wants this share of its contract on each broker."""
        self.changed_at = self._world.scheduler.now
        plan = next(one for one in self._world.plan.policies if one.kafka == self._kafka.name)
        self.wants = {
            (member["user"], key): factor * int(text.removesuffix("M")) * 1e6
            for tier in plan.tiers.values()
            for member in tier["members"]
            for rates in member.get("contract", {}).values()
            for key, text in rates.items()
        }
        self.other = {(broker, way): other for broker in BROKERS for way in DIRECTIONS}

    def demand(self, wants: Mapping[str, float]) -> None:
        """From now on these users want so many MB/s of each direction on each broker."""
        self.changed_at = self._world.scheduler.now
        self.wants = {(user, key): mb * MB for user, mb in wants.items() for key in KEYS}

    def exposure(self, user: str, quota_key: str) -> float:
        """The highest rate at which it sent within the last quota window, on any broker."""
        key = next(name for name, text in QUOTA_KEYS.items() if text == quota_key)
        since = self._world.scheduler.now - WINDOW_SECONDS - self.scrape_seconds
        return max(
            (rate for at, rate in self._sent.get((user, key), ()) if at >= since), default=0.0
        )

    def scrape(self) -> None:
        """Let Prometheus take the samples of now, and come again."""
        self._world.scheduler.after(self.scrape_seconds, self.scrape)
        self._world.invariants.budgets.judge(self._kafka)
        now = self._world.scheduler.now
        sends = {key: self.sends(*key) for key in self.wants}
        for key, rate in sends.items():
            kept = self._sent.setdefault(key, deque(maxlen=12))
            kept.append((now, rate))
        if now < self.is_frozen_until:
            return
        self.scraped_at = now
        wall = VirtualTime.EPOCH_SECONDS + now
        for broker in sorted(self._kafka.brokers):
            for way, key in DIRECTIONS.items():
                carried = self.other.get((broker, way), 0.0)
                for (user, of), rate in sends.items():
                    if of != key:
                        continue
                    is_limited = rate < self.wants[user, of]
                    if self.noise:
                        rate *= 1 + self._random.uniform(-self.noise, self.noise)
                    carried += rate
                    self._clients[Entity(user), broker, way] = ClientRate(
                        wall, rate, _LIMITED_MILLISECONDS if is_limited else 0.0
                    )
                spans = self._spans.setdefault((broker, way), deque())
                spans.append(NicSpan(wall, self.scrape_seconds, carried))
                while wall - spans[0].at_seconds > KEPT_SECONDS:
                    spans.popleft()

    def sent(self, key: str) -> float:
        """What all clients together send on each broker under the quotas of now."""
        return sum(self.sends(user, of) for user, of in self.wants if of == key)

    def sends(self, user: str, key: str) -> float:
        """What a user sends on each broker under the quota of now."""
        text = self._kafka.store_view(Entity(user)).get(QUOTA_KEYS[key])
        wanted = self.wants.get((user, key), 0.0)
        return wanted if text is None else min(wanted, float(text))

    def readings(self, brokers: Collection[int]) -> Readings:
        """What Prometheus answers now."""
        nic = {place: tuple(spans) for place, spans in self._spans.items() if place[0] in brokers}
        clients = {place: rate for place, rate in self._clients.items() if place[1] in brokers}
        wall = VirtualTime.EPOCH_SECONDS + self._world.scheduler.now
        return Readings(wall, self.scrape_seconds, nic, clients)


class Reader:
    """`metrics_watch.Reader` of one process."""

    def __init__(self, process: Process, settings: Any) -> None:
        name = settings.server.url.removeprefix("http://").partition("-prometheus")[0]
        self._load: Load = process.world.loads[name]
        self._link = Link(process, "prometheus")

    def read(self, brokers: Collection[int]) -> Readings:
        answer: Readings = self._link.call("readings", lambda: self._load.readings(brokers))
        return answer

    def close(self) -> None:
        """Nothing is open."""
