"""A plant for the tests of the throttle: brokers with limits and users with levels whose clients
send what they want up to their quota, at once.

It closes the loop around `throttle` without a Kafka: `simulated_cluster` makes one with all at
their contracted rates, `want` says what is wanted, `run` lets time pass, decides and applies. It
has no quota window, no mute and no network; `tidegate.simulation`, on which `tidegate simulate`
plays whole passes of `decide()`, has the first two. `asked` and `spans` are readings made by hand.
Rates are bytes per second, those that end in `_mb` megabytes per second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_logic.model import (
    BrokerLimit,
    CalendarEntry,
    ClientRate,
    Direction,
    Entity,
    Level,
    NicSpan,
    RateKey,
    Readings,
)
from tidegate_logic.readings import BINDING, flows_of
from tidegate_logic.throttle.decision import StepKind, ThrottleDecision, ThrottleStep
from tidegate_logic.throttle.input import (
    ClientFloors,
    LastChange,
    ManagedRate,
    RateHistory,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from tidegate_logic.throttle.throttle_pass import throttle

MB = 1_000_000
OUT = Direction.EGRESS
IN = Direction.INGRESS
BARE = ClientFloors(0, 0)  # so that a test's small floors are what it says
LEVELS = {level.value: level for level in Level}
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
    calendar: tuple[CalendarEntry, ...] = ()
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
            self.sends(actor, broker) for actor in self.actors if actor.direction in direction.parts
        )
        capacity = self.limits[broker].capacity(direction)
        carried = sent + sum(self.other.get((broker, part), 0.0) for part in direction.parts)
        return carried if capacity is None else min(carried, float(capacity))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in one span of every NIC, and read everything at its end."""
        self.now_seconds += seconds
        for broker in self.limits.keys() - self.dead:
            for direction in Direction.COMBINED.parts:
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
            calendar=self.calendar,
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
            owed=actor.promised if in_force is not None and in_force < actor.promised else 0,
        )


# Small clusters, and readings made by hand.


def limit(egress_mb: float = 100, capacity_mb: float | None = None) -> BrokerLimit:
    """Egress limited; ingress without a limit, so that nothing of it disturbs a test."""
    return BrokerLimit(
        round(egress_mb * MB), None, None if capacity_mb is None else round(capacity_mb * MB)
    )


def actor(
    name: str,
    level: str,
    contract_mb: float,
    floor_mb: float | None = 1,
    leaders: Mapping[int, int] | None = None,
) -> SimulatedClient:
    floor = None if level == "L0" or floor_mb is None else round(floor_mb * MB)
    return SimulatedClient(
        Entity(name), OUT, LEVELS[level], round(contract_mb * MB), floor, leaders or {1: 1}
    )


def simulated_cluster(
    *actors: SimulatedClient,
    brokers: int = 1,
    limit_mb: float = 100,
    capacity_mb: float | None = None,
    **settings: object,
) -> SimulatedCluster:
    """All at their contracted rates and sending nothing, watched since long ago."""
    made = replace(ThrottleSettings(floors=BARE), **settings)  # type: ignore[arg-type]
    limits = {broker: limit(limit_mb, capacity_mb) for broker in range(1, brokers + 1)}
    played = SimulatedCluster(limits, list(actors), made, now_seconds=1000.0)
    for one in actors:
        played.in_force[one.key] = one.promised
    played.memory = ThrottleMemory(seen={one.key: RateHistory(since_seconds=0.0) for one in actors})
    return played


def want(played: SimulatedCluster, **wanted_mb: float) -> None:
    """What users want from now on, on each broker that leads for them."""
    for one in played.actors:
        if str(one.entity.user) in wanted_mb:
            played.wants |= {
                (one.key, broker): wanted_mb[str(one.entity.user)] * MB for broker in one.leaders
            }


def in_force_mb(played: SimulatedCluster) -> dict[str, float]:
    return {str(one.entity.user): played.in_force[one.key] / MB for one in played.actors}


def steps_of(decision: ThrottleDecision, kind: StepKind) -> dict[str, ThrottleStep]:
    return {str(step.entity.user): step for step in decision.steps.values() if step.kind is kind}


def spans(*rates_mb: float, seconds: float = 15.0, until: float = 1000.0) -> tuple[NicSpan, ...]:
    """One NIC's readings, oldest first; the last ends at `until`."""
    newest = len(rates_mb) - 1
    return tuple(
        NicSpan(until - (newest - place) * seconds, seconds, rate * MB)
        for place, rate in enumerate(rates_mb)
    )


def asked(
    nics: Mapping[int, tuple[NicSpan, ...]],
    rates: tuple[ManagedRate, ...] = (),
    clients_mb: Mapping[tuple[str, int], float] | None = None,
    scrape_seconds: float = 15.0,
    **settings: object,
) -> ThrottleInput:
    """What the throttle is asked at second 1000 about egress limits of 100 MB/s and NICs of 125
    MB/s.
    """
    clients = {
        (Entity(name), broker, OUT): ClientRate(1000.0, rate * MB, 0.0)
        for (name, broker), rate in (clients_mb or {}).items()
    }
    readings = Readings(
        1000.0, scrape_seconds, {(broker, OUT): said for broker, said in nics.items()}, clients
    )
    made = replace(ThrottleSettings(floors=BARE), **settings)  # type: ignore[arg-type]
    return ThrottleInput(
        1000.0, readings, {broker: limit(100, 125) for broker in nics}, frozenset(nics), rates, made
    )
