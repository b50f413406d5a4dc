"""A small simulated cluster: clients send what they want up to their quota, NICs carry what is
sent, quotas are applied at once.

It closes the loop around `throttle` without a Kafka: `tools.simulate` plays scenarios on it,
property tests play random ones. It has no quota window, no mute and no network; only a real broker
shows what a client does while it is muted. Rates are bytes per second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller_logic.model import (
    BrokerLimit,
    ClientRate,
    Direction,
    Entity,
    Level,
    NicSpan,
    RateKey,
    Readings,
)
from controller_logic.readings import BINDING, flows_of
from controller_logic.throttle.decision import ThrottleDecision, ThrottleStep
from controller_logic.throttle.input import (
    LastChange,
    ManagedRate,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from controller_logic.throttle.throttle_pass import throttle

_NEWEST_SECONDS = 65.0  # how much of a NIC's past a reading holds
_LIMITED_MILLISECONDS = 1000.0


def decided(
    given: ThrottleInput, memory: ThrottleMemory | None = None
) -> tuple[ThrottleDecision, ThrottleMemory]:
    """One decision of the throttle, with the usable client rates of these readings."""
    flows = flows_of(
        given.readings,
        now_seconds=given.now_seconds,
        stale_after_seconds=given.settings.stale_after_seconds,
    )
    return throttle(given, flows, memory)


@dataclass(frozen=True, slots=True)
class SimulatedClient:
    """One entity in one direction: its contract and throttled rate for each leader (the most
    leaders on one broker count), and its place.

    `leaders` is how many partitions each broker leads for it; `producers` are those known behind
    it.
    """

    entity: Entity
    direction: Direction
    level: Level
    contract: int
    throttled: int | None
    leaders: Mapping[int, int]
    producers: int = 0

    @property
    def key(self) -> RateKey:
        return (self.entity, self.direction)

    @property
    def scale(self) -> int:
        return max((count for count in self.leaders.values() if count > 0), default=1)

    @property
    def promised(self) -> int:
        return self.contract * self.scale


@dataclass(slots=True)
class SimulatedCluster:
    """The cluster at one moment. The player changes its fields between rounds.

    `wants` is what each actor would send on each broker, `other` what else goes through a NIC
    (replication, foreign traffic); `lies` replaces the reading of a NIC (None = no reading);
    `silent` brokers report no client rates.
    """

    limits: dict[int, BrokerLimit]
    actors: list[SimulatedClient]
    settings: ThrottleSettings = field(default_factory=ThrottleSettings)
    scrape_seconds: float = 15.0
    now_seconds: float = 0.0
    wants: dict[tuple[RateKey, int], float] = field(default_factory=dict)
    other: dict[tuple[int, Direction], float] = field(default_factory=dict)
    lies: dict[tuple[int, Direction], float | None] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    in_force: dict[RateKey, int] = field(default_factory=dict)
    changes: dict[RateKey, LastChange] = field(default_factory=dict)
    memory: ThrottleMemory = field(default_factory=ThrottleMemory)
    _spans: dict[tuple[int, Direction], tuple[NicSpan, ...]] = field(default_factory=dict)
    _clients: dict[tuple[Entity, int, Direction], ClientRate] = field(default_factory=dict)

    def sends(self, actor: SimulatedClient, broker: int) -> float:
        """The rate that it sends there now: what it wants, up to its quota."""
        if broker in self.dead or not actor.leaders.get(broker):
            return 0.0
        return min(
            self.wants.get((actor.key, broker), 0.0),
            float(self.in_force.get(actor.key, actor.promised)),
        )

    def carries(self, broker: int, direction: Direction) -> float:
        """The rate through the NIC, up to its speed."""
        sent = sum(
            self.sends(actor, broker) for actor in self.actors if actor.direction is direction
        )
        capacity = self.limits[broker].capacity(direction)
        carried = sent + self.other.get((broker, direction), 0.0)
        return carried if capacity is None else min(carried, float(capacity))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in one span of every NIC, and read everything at its end."""
        self.now_seconds += seconds
        for broker in self.limits.keys() - self.dead:
            for direction in Direction:
                self._read_nic(broker, direction, seconds)
            if broker not in self.silent:
                self._read_clients(broker)

    def given(self) -> ThrottleInput:
        """The input of `throttle` now."""
        readings = Readings(
            self.now_seconds, self.scrape_seconds, dict(self._spans), dict(self._clients)
        )
        live = frozenset(self.limits.keys() - self.dead)
        return ThrottleInput(
            self.now_seconds,
            readings,
            self.limits,
            live,
            tuple(map(self._managed, self.actors)),
            self.settings,
        )

    def decide(self) -> ThrottleDecision:
        """Decide and remember, without applying anything."""
        decision, self.memory = decided(self.given(), self.memory)
        return decision

    def run(
        self, seconds: float, admits: Callable[[ThrottleStep], bool] = lambda _: True
    ) -> ThrottleDecision:
        """Let time pass, decide, and apply what `admits` lets through."""
        self.pass_time(seconds)
        decision = self.decide()
        for actor in self.actors:
            step = decision.steps.get(actor.key)
            if step is None or admits(step):
                self.apply(actor.key, actor.promised if step is None else step.value)
        return decision

    def apply(self, key: RateKey, value: int) -> None:
        """Put a value in force and note it as the ledger would."""
        previous = self.in_force.get(key)
        if previous != value:
            self.in_force[key] = value
            self.changes[key] = LastChange(self.now_seconds, previous)

    def _read_nic(self, broker: int, direction: Direction, seconds: float) -> None:
        place = (broker, direction)
        rate = self.lies[place] if place in self.lies else self.carries(broker, direction)
        spans = tuple(
            span
            for span in self._spans.get(place, ())
            if self.now_seconds - span.at_seconds <= _NEWEST_SECONDS
        )
        self._spans[place] = (
            spans if rate is None else (*spans, NicSpan(self.now_seconds, seconds, rate))
        )

    def _read_clients(self, broker: int) -> None:
        for actor in self.actors:
            sent = self.sends(actor, broker)
            cap = self.in_force.get(actor.key, actor.promised)
            limited = (
                _LIMITED_MILLISECONDS
                if self.wants.get((actor.key, broker), 0.0) > cap and sent >= BINDING * cap
                else 0.0
            )
            if sent > 0:
                self._clients[actor.entity, broker, actor.direction] = ClientRate(
                    self.now_seconds, sent, limited
                )
            else:
                self._clients.pop((actor.entity, broker, actor.direction), None)

    def _managed(self, actor: SimulatedClient) -> ManagedRate:
        floor = None if actor.throttled is None else actor.throttled * actor.scale
        leads = frozenset(broker for broker, count in actor.leaders.items() if count > 0)
        in_force, change = self.in_force.get(actor.key), self.changes.get(actor.key)
        return ManagedRate(
            *(actor.entity, actor.direction, actor.level, actor.promised, floor, in_force, leads),
            last_change=change,
            producers=actor.producers,
        )
