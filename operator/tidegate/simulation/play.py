"""Plays a load on a modelled cluster, with every decision made by the operator's own `decide()`.

Prometheus scrapes each broker at a moment of its own, and has a sample a second later. A pass
follows each reading and comes when a write is due in between, as in the operator; brokers obey a
write from the next second on. Before second 0 nothing is wanted for a while, so that contracts are
in force and every series is known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from tidegate.simulation.cluster import (
    Background,
    BucketPlace,
    Demand,
    NicPlace,
    Second,
    SimulatedCluster,
)
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    KEY_OF,
    BrokerLimit,
    Budget,
    ClientRate,
    Direction,
    Entity,
    Mode,
    NicSpan,
    Observation,
    Override,
    Policy,
    QuotaWrite,
    RateKey,
    Readings,
    StoredQuota,
    Tier,
    Topology,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.quotas.precedence import same_bucket_fallbacks
from tidegate_logic.throttle.nic_status import seconds_until_next_reading

_LAG_SECONDS: Final = 1  # from a scrape until its samples can be asked for
_NEWEST_SECONDS: Final = 65.0  # how much of a NIC's past a reading holds, at the least
_SCRAPES: Final = 5  # and so many scrapes
_LONGEST_PAUSE_SECONDS: Final = 15.0  # between two passes
_SHORTEST_PAUSE_SECONDS: Final = 0.05
_MOST_PASSES_A_SECOND: Final = 200
_LEAST_WARM_UP_SECONDS: Final = 120
_CALM_SECONDS: Final = 30  # with everything restored, until a play without a set end is over
LONGEST_AFTERWARDS_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played: what people declare, the cluster it is for, and the load.

    `topology` has the live brokers and the leaders. `epoch_seconds` is what the wall clock says at
    second 0, for what depends on the time of day. `scrape_seconds` is how often Prometheus scrapes,
    `shortest_reading_seconds` how often Tidegate reads at most. `seconds` None = until everything
    is restored after the last change of the load, or an hour after it.
    """

    policy: Policy
    tiers: tuple[Tier, ...]
    topology: Topology
    demands: tuple[Demand, ...]
    background: tuple[Background, ...] = ()
    overrides: tuple[Override, ...] = ()
    scrape_seconds: int = 15
    shortest_reading_seconds: float = 5.0
    epoch_seconds: float = 1_000_000.0
    seconds: int | None = None
    budgets: tuple[Budget, ...] = ()

    @property
    def limits(self) -> Mapping[int, BrokerLimit]:
        """Every live broker's."""
        return {one: self.policy.limits.of(one) for one in sorted(self.topology.brokers)}

    @property
    def last_change(self) -> int:
        """The second after which the load stays as it is."""
        spans = [(one.begin, one.end) for one in self.demands]
        spans += [(one.begin, one.end) for one in self.background]
        return max([begin if end is None else end for begin, end in spans], default=0)

    @property
    def busy_seconds(self) -> int:
        """For how many seconds members want something, summed over them, brokers and ways.

        A play takes about 0.13 ms and 0.8 kB for each.
        """
        latest = self.last_change if self.seconds is None else self.seconds
        return sum(
            [
                max(0, min(latest, latest if one.end is None else one.end) - one.begin)
                for one in self.demands
            ]
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """One decision and when it was made, in seconds from the start of the play."""

    at_seconds: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Member:
    """One member's byte rate one way: who it is, and what it is promised on each broker.

    `contract` None = no quota of its own while it is not throttled.
    """

    report: MemberReport
    direction: Direction
    contract: int | None

    @property
    def key(self) -> RateKey:
        return self.report.entity, self.direction


@dataclass(frozen=True, slots=True)
class Play:
    """What happened, from second 0 on. `quotas` has what was in force in each second."""

    scenario: Scenario
    members: Mapping[RateKey, Member]
    passes: tuple[Pass, ...]
    seconds: tuple[Second, ...]
    quotas: Mapping[RateKey, tuple[int | None, ...]]


OnPass = Callable[[Observation, Decision], None]


def play(scenario: Scenario, on_pass: OnPass | None = None) -> Play:
    """Play it from before the load begins to its end.

    `on_pass` gets every pass with what it was decided on, those before the load too.
    """
    operator = SimulatedOperator(scenario, on_pass)
    first = operator.decide(-float(_warm_up_seconds(scenario)), None)
    members = _members_of(first)
    cluster = SimulatedCluster(
        scenario.limits,
        scenario.policy.window,
        _places(scenario, members.values()),
        scenario.demands,
        scenario.background,
        now=-_warm_up_seconds(scenario),
    )
    return _Run(scenario, operator, cluster, members).to_its_end()


def _warm_up_seconds(scenario: Scenario) -> int:
    return max(
        _LEAST_WARM_UP_SECONDS, 2 * scenario.policy.window.seconds, 4 * scenario.scrape_seconds
    )


def _members_of(decision: Decision) -> Mapping[RateKey, Member]:
    """Who counts, and who is refused: their clients are there too, without a quota of ours."""
    found: dict[RateKey, Member] = {}
    for report in sorted(decision.members, key=lambda one: not one.counts):
        for way, key in KEY_OF.items():
            contract = report.target.get(key) if report.counts else None
            found.setdefault((report.entity, way), Member(report, way, contract))
    return found


def _places(scenario: Scenario, members: Iterable[Member]) -> Iterator[BucketPlace]:
    """Everyone is connected to the brokers that lead for it; without topics, to all."""
    for member in members:
        spread = member.report.spread
        leads = spread.leading if spread is not None and spread.topics else ()
        for broker in leads or sorted(scenario.topology.brokers):
            yield member.key, broker


@dataclass(slots=True)
class _Run:
    """The loop: a second of the cluster, the scrapes at its end, and the passes that are due."""

    scenario: Scenario
    operator: "SimulatedOperator"
    cluster: SimulatedCluster
    members: Mapping[RateKey, Member]
    passes: list[Pass] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    quotas: dict[RateKey, list[int | None]] = field(default_factory=dict)
    _in_force: dict[RateKey, int | None] = field(default_factory=dict)
    _calm_since: int | None = None

    def to_its_end(self) -> Play:
        scrapes = Scrapes(self.cluster, self.scenario)
        reading_due = float(self.cluster.now)
        readings: Readings | None = None
        self.quotas = {key: [] for key in self.members}
        self._obey()
        while not self._is_over():
            second = self.cluster.step()
            self._note(second)
            scrapes.scrape(second)
            now = float(self.cluster.now)
            if now >= reading_due:
                readings = scrapes.readings()
                reading_due = now + seconds_until_next_reading(
                    readings,
                    shortest_seconds=self._shortest_seconds(),
                    now_seconds=self.scenario.epoch_seconds + now,
                )
                self._pass(now, readings)
            self._passes_between(now, readings)
            self._obey()
        return Play(
            self.scenario,
            self.members,
            tuple(self.passes),
            tuple(self.seconds),
            {key: tuple(values) for key, values in self.quotas.items()},
        )

    def _shortest_seconds(self) -> float:
        stale_after_seconds = self.scenario.policy.stale_after_seconds
        return min(self.scenario.shortest_reading_seconds, stale_after_seconds / 2)

    def _passes_between(self, now: float, readings: Readings | None) -> None:
        """The passes that are due before the next second."""
        for _ in range(_MOST_PASSES_A_SECOND):
            if self.operator.due >= now + 1:
                return
            self._pass(max(self.operator.due, now), readings)

    def _pass(self, at_seconds: float, readings: Readings | None) -> None:
        decision = self.operator.decide(at_seconds, readings)
        if at_seconds >= 0:
            self.passes.append(Pass(at_seconds, decision))

    def _obey(self) -> None:
        for key, (quota, is_throttled) in self.operator.taken().items():
            if key in self.members:
                self._in_force[key] = quota
                self.cluster.set_quota(key, quota, is_throttled=is_throttled)

    def _note(self, second: Second) -> None:
        if second.at < 0:
            return
        self.seconds.append(second)
        for key, values in self.quotas.items():
            values.append(self._in_force.get(key))

    def _is_over(self) -> bool:
        now, scenario = self.cluster.now, self.scenario
        if scenario.seconds is not None:
            return now >= scenario.seconds
        quiet_for = now - scenario.last_change
        if quiet_for < 0 or self.operator.holds_anybody or self.cluster.waiting_bytes > 1.0:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        is_calm = self._calm_since is not None and now - self._calm_since >= _CALM_SECONDS
        return is_calm or quiet_for >= LONGEST_AFTERWARDS_SECONDS


class SimulatedOperator:
    """Its memory and the quota store. `due` is when it decides again without a reading."""

    def __init__(self, scenario: Scenario, on_pass: OnPass | None = None) -> None:
        self._scenario, self._on_pass = scenario, on_pass
        # what would be written is what this is about, whatever the policy does today
        self._policy = replace(scenario.policy, mode=Mode.ENFORCE, paused_by=())
        self._memory = Memory()
        self._stored: dict[Entity, StoredQuota] = {}
        self._changed: set[Entity] = set()
        self._throttles: frozenset[RateKey] = frozenset()
        self.due = float("-inf")
        members = [member.entity for tier in scenario.tiers for member in tier.members]
        metered = [Entity(user=one.user) for one in self._policy.defaults if one.user is not None]
        for entity in (*members, *self._policy.defaults, *metered):
            self._stored.setdefault(entity, StoredQuota(entity, {}))

    @property
    def holds_anybody(self) -> bool:
        """Whether any rate is below its contract because of load, or about to be."""
        return bool(self._throttles)

    def decide(
        self, at_seconds: float, readings: Readings | None, *, is_unpaced: bool = False
    ) -> Decision:
        """One pass with its writes, at so many seconds from the start of the play.

        `is_unpaced` = the write budget does not count: contracts that are in force already.
        """
        now_seconds = self._scenario.epoch_seconds + at_seconds
        policy = replace(self._policy, write_budget_changes=10**6) if is_unpaced else self._policy
        seen = Observation(
            now_seconds,
            policy,
            self._scenario.tiers,
            replace(self._scenario.topology, read_at_seconds=now_seconds),
            dict(self._stored),
            readings=readings,
            overrides=self._scenario.overrides,
            budgets=self._scenario.budgets,
            client_quotas_exist=False,
        )
        decision, memory = decide(seen, self._memory)
        if self._on_pass is not None:
            self._on_pass(seen, decision)
        for write in decision.writes:
            self._write(write)
        self._memory = settle(
            memory, decision, [one.entity for one in decision.writes], now_seconds=now_seconds
        )
        self._throttles = frozenset(decision.throttle.steps if decision.throttle else ())
        pause = decision.next_pass_in_seconds
        pause = _LONGEST_PAUSE_SECONDS if pause is None else min(pause, _LONGEST_PAUSE_SECONDS)
        self.due = at_seconds + max(pause, _SHORTEST_PAUSE_SECONDS)
        return decision

    def taken(self) -> Mapping[RateKey, tuple[int | None, bool]]:
        """What brokers have to obey from now on: the quota, and whether it is a throttle."""
        changed, self._changed = self._changed, set()
        return {
            (entity, way): (self.in_force((entity, way)), self._is_throttle(entity, way))
            for entity in changed
            for way in KEY_OF
        }

    def in_force(self, key: RateKey) -> int | None:
        """What limits the member's bucket now: its own quota, or a default entity's."""
        entity, way = key
        for one in (entity, *same_bucket_fallbacks(entity)):
            stored = self._stored.get(one)
            if stored is not None and KEY_OF[way] in stored.values:
                return enforced_rate(stored.values[KEY_OF[way]])
        return None

    def _is_throttle(self, entity: Entity, way: Direction) -> bool:
        ledger = self._stored[entity].ledger
        entry = None if ledger is None else ledger.entries.get(KEY_OF[way])
        return entry is not None and entry.of_contract is not None

    def _write(self, write: QuotaWrite) -> None:
        before = self._stored[write.entity]
        changed = {**before.values, **write.values}
        values = {key: text for key, text in changed.items() if text is not None}
        version = (-1 if before.version is None else before.version) + 1
        self._stored[write.entity] = StoredQuota(
            write.entity,
            values,
            version if values else None,
            write.ledger,
            version if write.ledger else None,
        )
        # a default entity's quota may be that of any member without one of its own
        self._changed |= set(self._stored) if write.entity.is_default else {write.entity}


@dataclass(frozen=True, slots=True)
class _Sample:
    at: int
    moved: Mapping[Direction, float]
    rates: Mapping[BucketPlace, tuple[float, float]]


class Scrapes:
    """What Prometheus has of each broker; each has its own moment in the interval."""

    def __init__(self, cluster: SimulatedCluster, scenario: Scenario) -> None:
        self._cluster, self._scenario = cluster, scenario
        brokers = sorted(scenario.topology.brokers)
        every = scenario.scrape_seconds
        self._phases = {
            broker: place * every // len(brokers) for place, broker in enumerate(brokers)
        }
        self._kept_seconds = max(
            _NEWEST_SECONDS, scenario.policy.stale_after_seconds, float(_SCRAPES * every)
        )
        self._moved: dict[NicPlace, float] = {}
        self._samples: dict[int, list[_Sample]] = {broker: [] for broker in brokers}
        self._places: dict[int, list[BucketPlace]] = {broker: [] for broker in brokers}
        for place in cluster.places():
            self._places[place[1]].append(place)

    def scrape(self, second: Second) -> None:
        """Count the second, and read the brokers whose moment it is."""
        for place, amount in second.carried.items():
            self._moved[place] = self._moved.get(place, 0.0) + amount
        now = self._cluster.now
        for broker, samples in self._samples.items():
            if now % self._scenario.scrape_seconds != self._phases[broker]:
                continue
            rates = {
                place: (
                    self._cluster.byte_rate(place),
                    self._cluster.throttle_milliseconds(place),
                )
                for place in self._places[broker]
            }
            moved = {way: self._moved.get((broker, way), 0.0) for way in KEY_OF}
            samples.append(_Sample(now, moved, rates))
            oldest = now - self._kept_seconds - 2 * self._scenario.scrape_seconds
            while samples[0].at < oldest:
                del samples[0]

    def readings(self) -> Readings:
        """What it answers now, with times of the wall clock."""
        now, epoch = self._cluster.now, self._scenario.epoch_seconds
        nic: dict[NicPlace, tuple[NicSpan, ...]] = {}
        clients: dict[tuple[Entity, int, Direction], ClientRate] = {}
        for broker, samples in self._samples.items():
            known = [one for one in samples if one.at <= now - _LAG_SECONDS]
            if not known:
                continue
            for way in KEY_OF:
                nic[broker, way] = tuple(
                    NicSpan(
                        epoch + new.at,
                        float(new.at - old.at),
                        (new.moved[way] - old.moved[way]) / (new.at - old.at),
                    )
                    for old, new in pairwise(known)
                    if now - new.at <= self._kept_seconds
                )
            newest = known[-1]
            for ((entity, way), _), (rate, throttle_ms) in newest.rates.items():
                clients[entity, broker, way] = ClientRate(epoch + newest.at, rate, throttle_ms)
        return Readings(epoch + now, float(self._scenario.scrape_seconds), nic, clients)
