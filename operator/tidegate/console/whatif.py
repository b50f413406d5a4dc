"""What if: the operator's own decisions on an edited cluster, played for some minutes.

Pure: nothing is read and nothing is written. What clients want is taken as it is measured now and
stays the same; it goes through each broker up to the member's quota there. NICs are sampled as
Prometheus would, `decide()` sees the samples, and its writes are obeyed from the next second on.
The second-by-second model of `tidegate simulate` has the brokers' quota windows too; this one has
mutes as the decision predicts them, so that a cluster of 50 brokers and 1000 members is played in
seconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import yaml

from tidegate.simulation.play import Scenario, SimulatedOperator
from tidegate.yaml_text import yaml_text
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    DIRECTION_OF,
    KEY_OF,
    BrokerLimit,
    ClientRate,
    Contract,
    Direction,
    Entity,
    Level,
    Member,
    NicSpan,
    Override,
    Policy,
    RateKey,
    Readings,
    Tier,
    TopicLeaders,
    Topology,
    metered,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.readings import BINDING_MILLISECONDS
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.throttle.schedules import in_force

SECONDS: Final = 600
_LARGE_PLACES: Final = 2000  # members on brokers; from here on Prometheus is asked less often
_LARGE_STEP_SECONDS: Final = 30
_MOST_PASSES_A_STEP: Final = 4
_NEAR: Final = 0.9  # of its limit: no one is lowered for a NIC that stays below
_NIC_SPANS: Final = 6  # that a reading holds, at the least
_ROUNDS: Final = 4  # of a throttled client's rhythm, which it holds too: a NIC is judged over two
_LAST_SECONDS: Final = 60  # what is looked at for "is it enough"

NicPlace = tuple[int, Direction]
Place = tuple[RateKey, int]
MemberName = tuple[str, str]  # tier (namespace/name), member


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster and its load as it is now. Rates are bytes per second.

    `wants` is what each member moves on each broker; of those in `held` a quota keeps it below
    that, so at least their contract is taken. `other` is what else goes through a NIC: replication,
    and clients that no tier names. `remarks` say what was assumed.
    """

    policy: Policy
    tiers: tuple[Tier, ...]
    topology: Topology
    wants: Mapping[Place, float]
    other: Mapping[NicPlace, float]
    held: frozenset[Place] = frozenset()
    overrides: tuple[Override, ...] = ()
    now_seconds: float = 1_000_000.0
    scrape_seconds: int = 15
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to be different. `limits` is of every broker, None = as it is, in bytes/s.

    `load_percent` is of what members want: of all under None, of one under its name.
    """

    limits: Mapping[Direction, int] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()
    contracts: Mapping[MemberName, Contract] = field(default_factory=dict)
    levels: Mapping[str, Level] = field(default_factory=dict)
    load_percent: Mapping[MemberName | None, float] = field(default_factory=dict)

    @property
    def are_empty(self) -> bool:
        return not (self.limits or self.dead or self.contracts or self.levels or self.load_percent)


@dataclass(frozen=True, slots=True)
class NicResult:
    """One NIC over the play, in bytes/s. `rates` has a value for each step.

    `limit` None = it has none. `over_seconds` are those in which it carried more than that.
    """

    broker: int
    direction: Direction
    limit: int | None
    rates: tuple[float, ...]
    over_seconds: int
    is_over_at_end: bool

    @property
    def highest(self) -> float:
        return max(self.rates, default=0.0)

    @property
    def at_end(self) -> float:
        return self.rates[-1] if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class MemberResult:
    """One member one way, per broker but for what it wants and moves (over all brokers).

    `contract` and quotas None = unlimited. `brokers` are those whose load lowered it.
    """

    tier_key: str
    member_name: str
    level: Level
    entity: Entity
    direction: Direction
    contract: int | None
    lowest: int | None
    at_end: int | None
    wants: float
    moves_at_end: float
    longest_mute_seconds: float
    lowered_at: float | None
    brokers: tuple[int, ...]

    @property
    def gives(self) -> float:
        """What it wants and cannot move at the end, in bytes/s."""
        return max(0.0, self.wants - self.moves_at_end)


@dataclass(frozen=True, slots=True)
class Result:
    """A play: its NICs, the members that were lowered (most bytes first), and what it found."""

    seconds: int
    step_seconds: int
    nics: tuple[NicResult, ...]
    lowered: tuple[MemberResult, ...]
    findings: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def is_enough(self) -> bool:
        """Whether every NIC is within its limit in the last minute."""
        return not any(one.is_over_at_end for one in self.nics)

    @property
    def over(self) -> tuple[NicResult, ...]:
        return tuple(one for one in self.nics if one.is_over_at_end)

    @property
    def longest_mute_seconds(self) -> float:
        return max([one.longest_mute_seconds for one in self.lowered], default=0.0)

    def gives(self, level: Level) -> float:
        """What members of the level want and cannot move at the end, in bytes/s."""
        return sum(one.gives for one in self.lowered if one.level is level)


# The situation now, from what is known of the cluster


def situation_of(
    policy: Policy,
    tiers: tuple[Tier, ...],
    topology: Topology,
    readings: Readings,
    *,
    overrides: tuple[Override, ...] = (),
    quotas: Mapping[RateKey, int] | None = None,
    remarks: tuple[str, ...] = (),
) -> Situation:
    """What members and others move by these readings; a rate that is missing counts as none.

    `quotas` are those in force per broker: they show which members run at theirs. The limits are
    those in force at the time of the readings, and stay.
    """
    policy = in_force(policy, tiers, readings.read_at_seconds)
    policy = replace(policy, schedules=(), usual=None)
    members = {member.entity for tier in tiers for member in tier.members}
    wants: dict[Place, float] = {}
    held: set[Place] = set()
    by_nic: dict[NicPlace, float] = defaultdict(float)
    for (entity, broker, way), rate in readings.clients.items():
        if entity not in members or broker not in topology.brokers:
            continue
        place = ((entity, way), broker)
        wants[place] = rate.bytes_per_second
        by_nic[broker, way] += rate.bytes_per_second
        quota = (quotas or {}).get((entity, way))
        is_muted = (rate.throttle_milliseconds or 0.0) > BINDING_MILLISECONDS
        if is_muted or (quota is not None and rate.bytes_per_second >= 0.8 * quota):
            held.add(place)
    other = {
        (broker, way): max(0.0, spans[-1].bytes_per_second - by_nic[broker, way])
        for (broker, way), spans in readings.nic.items()
        if spans and broker in topology.brokers
    }
    unread = sorted(
        f"{broker} {way.value}"
        for broker in topology.brokers
        for way in KEY_OF
        if policy.limits.of(broker).limit_of_rates(way) is not None and (broker, way) not in other
    )
    if unread:
        remarks = (*remarks, f"no reading of brokers' NICs: {', '.join(unread)}; assumed idle")
    if held:
        remarks = (
            *remarks,
            "a client at its quota is assumed to want its whole contract, because its real demand "
            "is unknown",
        )
    return Situation(
        policy,
        tiers,
        topology,
        wants,
        other,
        frozenset(held),
        overrides,
        readings.read_at_seconds,
        round(readings.scrape_seconds) or 15,
        remarks,
    )


# Edits


def edited(situation: Situation, edits: Edits) -> Situation:
    """The situation with the edits in it."""
    after = replace(
        situation,
        policy=_limited(situation.policy, edits.limits),
        tiers=tuple(_edited_tier(tier, edits) for tier in situation.tiers),
        wants=_with_load(situation, edits.load_percent),
    )
    dead = edits.dead & situation.topology.brokers
    if dead == situation.topology.brokers and dead:
        raise ValueError("at least one broker has to stay alive")
    return _without(after, dead) if dead else after


def _limited(policy: Policy, limits: Mapping[Direction, int]) -> Policy:
    def changed(one: BrokerLimit) -> BrokerLimit:
        return replace(one, **{way.value: limit for way, limit in limits.items()})

    if not limits:
        return policy
    exceptions = {broker: changed(one) for broker, one in policy.limits.exceptions.items()}
    everywhere = changed(policy.limits.everywhere)
    return replace(
        policy, limits=replace(policy.limits, everywhere=everywhere, exceptions=exceptions)
    )


def _edited_tier(tier: Tier, edits: Edits) -> Tier:
    def member_of(member: Member) -> Member:
        contract = edits.contracts.get((tier.key, member.name))
        return member if contract is None else replace(member, contract=contract)

    return replace(
        tier,
        level=edits.levels.get(tier.key, tier.level),
        members=tuple(member_of(member) for member in tier.members),
    )


def _with_load(
    situation: Situation, percents: Mapping[MemberName | None, float]
) -> Mapping[Place, float]:
    if not percents:
        return situation.wants
    everybody = percents.get(None, 100.0)
    own = {
        member.entity: percents[tier.key, member.name]
        for tier in situation.tiers
        for member in tier.members
        if (tier.key, member.name) in percents
    }
    return {
        place: rate * own.get(place[0][0], everybody) / 100
        for place, rate in situation.wants.items()
    }


def _without(situation: Situation, dead: frozenset[int]) -> Situation:
    """The cluster after these brokers died: the others lead, and clients follow the leaders."""
    live = situation.topology.brokers - dead
    topics = {
        name: _without_leaders(topic, dead, live)
        for name, topic in situation.topology.topics.items()
    }
    topology = replace(situation.topology, brokers=live, topics=topics)
    before, after = Leaders(situation.topology), Leaders(topology)
    gained: dict[Entity, Mapping[int, float]] = {}
    for member in (member for tier in situation.tiers for member in tier.members):
        was, now = before.spread(member.topics).led, after.spread(member.topics).led
        more = {broker: float(now[broker] - was.get(broker, 0)) for broker in now}
        gains = {broker: one for broker, one in more.items() if one > 0}
        gained.setdefault(member.entity, gains or dict.fromkeys(live, 1.0))
    wants: dict[Place, float] = defaultdict(float)
    held: set[Place] = set()
    for (key, broker), rate in situation.wants.items():
        weights = {broker: 1.0} if broker in live else gained.get(key[0], {})
        total = sum(weights.values())
        for to, weight in weights.items():
            wants[key, to] += rate * weight / total
            if (key, broker) in situation.held:
                held.add((key, to))
    other: dict[NicPlace, float] = defaultdict(float)
    for (broker, way), rate in situation.other.items():
        for to in (broker,) if broker in live else live:
            other[to, way] += rate if broker in live else rate / len(live)
    return replace(situation, topology=topology, wants=wants, other=other, held=frozenset(held))


def _without_leaders(
    topic: TopicLeaders, dead: frozenset[int], live: frozenset[int]
) -> TopicLeaders:
    """Each leader goes to the broker that leads fewest of those that lead the topic."""
    leaders = {broker: count for broker, count in topic.leaders.items() if broker in live}
    leaders = leaders or dict.fromkeys(sorted(live), 0)
    for _ in range(sum(topic.leaders.get(broker, 0) for broker in dead)):
        leaders[min(leaders, key=lambda broker: (leaders[broker], broker))] += 1
    return replace(topic, leaders={broker: count for broker, count in leaders.items() if count})


# The play


def play_what_if(situation: Situation, edits: Edits, *, seconds: int = SECONDS) -> Result:
    """What the operator would do from now on. Raises ValueError if no broker would live.

    It starts with every member at its contracted rate, as after a calm time. Only members that move
    bytes through a NIC near its limit are decided on: no one else is ever lowered for load.
    """
    return _WhatIf(edited(situation, edits), seconds).played()


@dataclass(slots=True)
class _Lowered:
    at: float
    lowest: int
    mute_seconds: float = 0.0
    brokers: tuple[int, ...] = ()


def _operator(
    situation: Situation, tiers: Iterable[Tier], scrape_seconds: int
) -> SimulatedOperator:
    """One that has had its contracts in force for long; no sample is stale before the third."""
    stale_after_seconds = max(situation.policy.stale_after_seconds, 3.0 * scrape_seconds)
    return SimulatedOperator(
        Scenario(
            replace(situation.policy, stale_after_seconds=stale_after_seconds),
            tuple(tiers),
            situation.topology,
            (),
            (),
            situation.overrides,
            scrape_seconds=scrape_seconds,
            epoch_seconds=situation.now_seconds,
        )
    )


def _reports(operator: SimulatedOperator, situation: Situation) -> Mapping[Entity, MemberReport]:
    """Its members, after the pass that put their contracts in force."""
    long_ago = -10 * situation.policy.write_budget_period_seconds
    decision = operator.decide(long_ago, None, is_unpaced=True)
    return {one.entity: one for one in decision.members if one.counts}


def _only(tier: Tier, entities: Set[Entity]) -> Tier:
    return replace(
        tier, members=tuple(member for member in tier.members if member.entity in entities)
    )


class _WhatIf:
    """One play: members' quotas by the operator, and NICs by what these let through."""

    def __init__(self, situation: Situation, seconds: int) -> None:
        self._situation = situation
        at_contract = _operator(situation, situation.tiers, situation.scrape_seconds)
        reports = _reports(at_contract, situation)
        self._contracts = {
            (entity, way): at_contract.in_force((entity, way))
            for entity in reports
            for way in KEY_OF
        }
        self._quotas = dict(self._contracts)
        self._wants = dict(situation.wants)
        for place in situation.held:
            contract = self._contracts.get(place[0])
            self._wants[place] = max(self._wants[place], float(contract or 0))
        self._asked: dict[NicPlace, float] = {
            (broker, way): situation.other.get((broker, way), 0.0)
            for broker in situation.topology.brokers
            for way in KEY_OF
        }
        self._places: dict[RateKey, list[int]] = defaultdict(list)
        for key, broker in self._wants:
            self._places[key].append(broker)
        self._moved: dict[Place, float] = {}
        self._let_through(self._places)
        involved = self._involved = self._near_limits()
        places = sum(len(self._places[key]) for key in involved)
        is_large = places >= _LARGE_PLACES
        self._most_passes = 1 if is_large else _MOST_PASSES_A_STEP
        self._step = max(situation.scrape_seconds, _LARGE_STEP_SECONDS if is_large else 1)
        rounds_seconds = _ROUNDS * situation.policy.window.sawtooth_period_seconds
        self._most_spans = max(_NIC_SPANS, ceil(rounds_seconds / self._step))
        self._steps = max(1, seconds // self._step)
        entities = {entity for entity, _ in involved}
        self._operator = _operator(
            situation, [_only(tier, entities) for tier in situation.tiers], self._step
        )
        self._reports = _reports(self._operator, situation)
        self._spans: dict[NicPlace, list[NicSpan]] = {place: [] for place in self._asked}
        ways = metered(map(situation.policy.limits.of, situation.topology.brokers))
        self._rates: dict[NicPlace, list[float]] = {
            (broker, way): [] for broker in situation.topology.brokers for way in ways
        }
        self._lowered: dict[RateKey, _Lowered] = {}
        self._findings: dict[tuple[Reason, int | None, Entity | None], str] = {}
        self._last = Decision()

    def _near_limits(self) -> set[RateKey]:
        """Who moves bytes through a NIC that is near its limit, that way."""
        limits = self._situation.policy.limits
        near = {
            (broker, part)
            for broker in self._situation.topology.brokers
            for way in Direction
            if (limit := limits.of(broker).limit(way)) is not None
            and self._asks(broker, way) > _NEAR * limit
            for part in way.parts
        }
        return {
            key for key, broker in self._wants if (broker, key[1]) in near and key in self._quotas
        }

    def played(self) -> Result:
        for before in range(self._most_spans, 0, -1):  # the load that is there already
            self._sample(-float(before * self._step))
        for step in range(self._steps):
            now = float(step * self._step)
            self._sample(now)
            changed = self._passes(now)
            for place, rates in self._rates.items():
                rates.append(self._carries(place))
            if changed:
                self._let_through(changed)
            elif self._is_settled():
                for place, rates in self._rates.items():
                    rates += [self._carries(place)] * (self._steps - 1 - step)
                break
        return self._result()

    def _is_settled(self) -> bool:
        """Whether nothing will ever change: no one is held, and no NIC is over its limit."""
        watched = self._last.watched or ()
        calm = all(one.pressure is Pressure.WITHIN for one in watched)
        return calm and not self._operator.holds_anybody and not self._last.deferred_writes

    def _passes(self, now: float) -> set[RateKey]:
        """The passes until the next sample; returns whose quota changed."""
        epoch = self._situation.now_seconds
        readings = Readings(
            epoch + now,
            float(self._step),
            {place: tuple(spans) for place, spans in self._spans.items()},
            self._clients(now),
        )
        changed: set[RateKey] = set()
        at = now
        for _ in range(self._most_passes):
            self._last = self._operator.decide(at, readings)
            changed |= set(self._written(at, self._last))
            at = max(self._operator.due, at + 1.0)
            if at >= now + self._step:
                break
        return changed

    def _written(self, at: float, decision: Decision) -> Iterator[RateKey]:
        throttle = decision.throttle
        for round_ in throttle.rounds if throttle is not None else ():
            for one in round_.findings:
                self._findings.setdefault((one.reason, one.broker, one.entity), one.message)
        for write in decision.writes:
            for name, text in write.values.items():
                way = DIRECTION_OF.get(name)
                if way is None or write.entity not in self._reports:
                    continue
                key = (write.entity, way)
                after = enforced_rate(text) if text is not None else self._operator.in_force(key)
                self._note(at, key, after, write.predicted_mute_seconds, decision)
                self._quotas[key] = after
                yield key

    def _note(
        self, at: float, key: RateKey, after: int | None, mute: float, decision: Decision
    ) -> None:
        contract = self._contracts[key]
        if after is None or (contract is not None and after >= contract):
            return
        before = self._quotas[key]
        step = decision.throttle.steps.get(key) if decision.throttle is not None else None
        one = self._lowered.setdefault(key, _Lowered(at, after))
        one.lowest = min(one.lowest, after)
        if before is None or after < before:
            one.mute_seconds = max(one.mute_seconds, mute)
            one.brokers = tuple(sorted({*one.brokers, *(step.brokers if step else ())}))

    def _let_through(self, keys: Iterable[RateKey]) -> None:
        """What quotas let through as they are, for these members."""
        for key in keys:
            quota = self._quotas.get(key)
            for broker in self._places.get(key, ()):
                wanted = self._wants[key, broker]
                moved = wanted if quota is None else min(wanted, float(quota))
                self._asked[broker, key[1]] += moved - self._moved.get((key, broker), 0.0)
                self._moved[key, broker] = moved

    def _asks(self, broker: int, way: Direction) -> float:
        return sum([self._asked[broker, part] for part in way.parts])

    def _carries(self, place: NicPlace) -> float:
        """A NIC that is full is shared by all in proportion."""
        broker, way = place
        limits = self._situation.policy.limits.of(broker)
        asked, capacity = self._asks(broker, way), limits.capacity(way)
        if limits.combined_capacity is None or way is Direction.COMBINED:
            return asked if capacity is None else min(asked, float(capacity))
        everything = self._asks(broker, Direction.COMBINED)
        return asked * min(1.0, limits.combined_capacity / everything) if everything else 0.0

    def _gets(self, key: RateKey, broker: int) -> float:
        place = (broker, key[1])
        asked = self._asked[place]
        return self._moved[key, broker] * (self._carries(place) / asked if asked else 1.0)

    def _sample(self, now: float) -> None:
        at = self._situation.now_seconds + now
        for place, spans in self._spans.items():
            spans.append(NicSpan(at, float(self._step), self._carries(place)))
            del spans[: -self._most_spans]

    def _clients(self, now: float) -> Mapping[tuple[Entity, int, Direction], ClientRate]:
        """What Kafka says of those that are decided on; who wants more than its quota is muted."""
        at = self._situation.now_seconds + now
        return {
            (key[0], broker, key[1]): ClientRate(
                at,
                self._gets(key, broker),
                0.0 if self._moved[key, broker] >= self._wants[key, broker] else 1000.0,
            )
            for key in self._involved
            for broker in self._places[key]
        }

    def _result(self) -> Result:
        nics = tuple(self._nic(place, tuple(rates)) for place, rates in sorted(self._rates.items()))
        lowered = sorted(
            (self._member(key, one) for key, one in self._lowered.items()),
            key=lambda one: (-one.gives, one.entity.sort_key, one.direction),
        )
        return Result(
            self._steps * self._step,
            self._step,
            nics,
            tuple(lowered),
            tuple(self._findings.values()),
            self._situation.remarks,
        )

    def _nic(self, place: NicPlace, rates: Sequence[float]) -> NicResult:
        limit = self._situation.policy.limits.of(place[0]).limit(place[1])
        over = [limit is not None and rate > limit for rate in rates]
        last = over[-max(1, _LAST_SECONDS // self._step) :]
        return NicResult(*place, limit, tuple(rates), sum(over) * self._step, all(last))

    def _member(self, key: RateKey, one: _Lowered) -> MemberResult:
        report, (entity, way) = self._reports[key[0]], key
        brokers = self._places.get(key, ())
        return MemberResult(
            report.tier_key,
            report.member_name,
            report.level,
            entity,
            way,
            self._contracts[key],
            one.lowest,
            self._quotas[key],
            sum(self._wants[key, broker] for broker in brokers),
            sum(self._gets(key, broker) for broker in brokers),
            one.mute_seconds,
            one.at,
            one.brokers,
        )


# The edits as objects to apply

RawObject = Mapping[str, Any]
_PARTS = ("apiVersion", "kind", "metadata", "spec")


def edits_as_yaml(policy: RawObject, tiers: Iterable[RawObject], edits: Edits) -> str:
    """The objects with the edits in their specs, for `kubectl apply`; "" where none changes.

    A dead broker and more load are no part of any object. A limit is that of all times: schedules
    that set it get it too.
    """
    changed = []
    if edits.limits:
        body = _bare(policy)
        brokers = body["spec"].setdefault("brokers", {})
        for way, limit in edits.limits.items():
            brokers[way.value] = {**(brokers.get(way.value) or {}), "limit": quantity(limit)}
            for one in (*(brokers.get("overrides") or ()), *(brokers.get("schedules") or ())):
                if way.value in one and "limit" in one[way.value]:
                    one[way.value]["limit"] = quantity(limit)
        changed.append(body)
    for raw in tiers:
        key = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
        named = {name: one for (tier, name), one in edits.contracts.items() if tier == key}
        if not named and key not in edits.levels:
            continue
        body = _bare(raw)
        if key in edits.levels:
            body["spec"]["level"] = edits.levels[key].value
        for member in body["spec"].get("members") or ():
            if member.get("name") in named:
                contract = named[member["name"]]
                declared = member.setdefault("contract", {})
                declared[contract.form.value] = _rates(contract)
        changed.append(body)
    return yaml_text(*changed) if changed else ""


def _bare(raw: RawObject) -> dict[str, Any]:
    """A copy with what a person writes: no status, nothing that the server keeps."""
    body: dict[str, Any] = yaml.safe_load(
        yaml.safe_dump({part: raw[part] for part in _PARTS if part in raw})
    )
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {part: body["metadata"][part] for part in kept if body["metadata"].get(part)}
    annotations = {
        name: text
        for name, text in (metadata.pop("annotations", None) or {}).items()
        if not name.startswith("kubectl.kubernetes.io/")
    }
    return {**body, "metadata": metadata | ({"annotations": annotations} if annotations else {})}


def _rates(contract: Contract) -> dict[str, str]:
    rates = (
        ("fetch", contract.fetch_bytes_per_second),
        ("produce", contract.produce_bytes_per_second),
    )
    return {name: quantity(rate) for name, rate in rates if rate is not None}


def quantity(rate: int) -> str:
    """A byte rate as the resources write it: `40M` where that is exact, else every digit."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rate % size == 0 and rate:
            return f"{rate // size}{unit}"
    return str(rate)
