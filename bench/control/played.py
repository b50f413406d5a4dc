"""Plays whole passes of `decide()` on a simulated cluster, and measures what comes of it.

Prometheus scrapes each broker at a moment of its own; what it has is two seconds old. The operator
reads once in a scrape, and decides again in between when one of its writes is due, as the real one
does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, isfinite

import numpy as np

from bench.control.plant import Array, Blueprint, Entity, Plant
from tidegate_logic import model
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Memory
from tidegate_logic.model import Entity as QuotaEntity

_LAG_SECONDS = 2  # from a scrape until its samples can be asked for
_FORGOTTEN_SECONDS = 300  # a series without new samples is gone
_NEWEST_SECONDS = 65.0  # how much of a NIC's past a reading holds
_FIRST_PASS = 30  # by then every series has samples
_MOST_PASSES_A_SECOND = 30
_OVER = 1.01  # of the limit, by a mean of ten seconds
_MEAN_SECONDS = 10
_DIRECTIONS = (model.Direction.EGRESS, model.Direction.INGRESS)
_KEYS = (model.QuotaKey.PRODUCER_BYTE_RATE, model.QuotaKey.CONSUMER_BYTE_RATE)
_SAID_FROM = 0.02  # seconds of throttle time from which a silent client has a series


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, how long it is played, what tiers drop to, and what Prometheus lacks.

    `floors` are bytes/s for each partition by level. `blind` has (from, to, brokers) without NIC
    series; `resets` (second, broker) where its counters restart. `has_rates` is whether brokers
    report their clients. `calendar` is the policy's; second 0 is a Thursday, 00:00 UTC.
    """

    build: Callable[[int], Blueprint]
    seconds: int
    floors: Mapping[int, float]
    blind: Sequence[tuple[int, int, frozenset[int]]] = ()
    resets: Sequence[tuple[int, int]] = ()
    has_rates: bool = True
    calendar: Sequence[model.CalendarEntry] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one play came to, by level L0 to L3 where there are four.

    `backlog_bytes` is the mean of what waits, `below_seconds` how long members were below their
    contracts.
    """

    over_seconds: int
    over_bytes: float
    longest_mute_seconds: float
    backlog_bytes: tuple[float, ...]
    writes: int
    seconds: int
    below_seconds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sample:
    at: int
    moved: Array
    rates: Array
    throttle_seconds: Array


class _Prometheus:
    """What was scraped of each broker. Each has its own phase in the interval."""

    def __init__(self, plant: Plant, scenario: Scenario, scrape_seconds: int, seed: int) -> None:
        self._plant, self._scenario, self._scrape = plant, scenario, scrape_seconds
        brokers = len(plant.alive)
        self._phase = np.random.default_rng(seed).integers(0, scrape_seconds, brokers)
        self._samples: list[list[_Sample]] = [[] for _ in range(brokers)]

    def scrape(self) -> None:
        """Read the brokers whose moment this is."""
        plant, now = self._plant, self._plant.now
        for broker, samples in enumerate(self._samples):
            if now % self._scrape != self._phase[broker] or not plant.alive[broker]:
                continue
            if any(a <= now < b and broker in who for a, b, who in self._scenario.blind):
                continue
            moved = plant.moved[:, broker].copy()
            if any(
                broker == who and abs(now - at) < self._scrape / 2 + 1
                for at, who in self._scenario.resets
            ):
                moved[:] = -1e15
            windows = plant.windows
            samples.append(
                _Sample(
                    now,
                    moved,
                    windows.rates[:, broker],
                    windows.throttle_seconds[:, broker].copy(),
                )
            )
            oldest = now - _NEWEST_SECONDS - 2 * self._scrape
            del samples[: max(0, sum(one.at < oldest for one in samples) - 1)]

    def readings(self) -> model.Readings:
        """What it answers now."""
        now = self._plant.now
        nic: dict[tuple[int, model.Direction], tuple[model.NicSpan, ...]] = {}
        clients: dict[tuple[QuotaEntity, int, model.Direction], model.ClientRate] = {}
        for broker, samples in enumerate(self._samples):
            known = [one for one in samples if one.at <= now - _LAG_SECONDS]
            if not known or now - known[-1].at > _FORGOTTEN_SECONDS:
                continue
            for way, direction in enumerate(_DIRECTIONS):
                nic[broker, direction] = tuple(
                    model.NicSpan(
                        float(new.at),
                        float(new.at - old.at),
                        float((new.moved[way] - old.moved[way]) / (new.at - old.at)),
                    )
                    for old, new in pairwise(known)
                    if now - new.at <= _NEWEST_SECONDS
                )
            if self._scenario.has_rates:
                clients.update(self._clients(broker, known[-1]))
        return model.Readings(float(now), float(self._scrape), nic, clients)

    def _clients(
        self, broker: int, newest: _Sample
    ) -> Mapping[tuple[QuotaEntity, int, model.Direction], model.ClientRate]:
        """A client has a series while it sends, or is throttled."""
        shown = np.nonzero((newest.rates > 1.0) | (newest.throttle_seconds > _SAID_FROM))[0]
        found: dict[tuple[QuotaEntity, int, model.Direction], model.ClientRate] = {}
        for number in shown:
            one = self._plant.entities[number]
            direction = model.Direction.EGRESS if one.consumes else model.Direction.INGRESS
            found[QuotaEntity(one.user), broker, direction] = model.ClientRate(
                float(newest.at),
                float(newest.rates[number]),
                float(newest.throttle_seconds[number] * 1000),
            )
        return found


@dataclass(slots=True)
class _Operator:
    """Its memory, and the quota store. `due` is when it decides again between two readings."""

    plant: Plant
    blueprint: Blueprint
    tiers: tuple[model.Tier, ...]
    calendar: tuple[model.CalendarEntry, ...] = ()
    below: frozenset[model.Level] = frozenset()
    memory: Memory = field(default_factory=Memory)
    stored: dict[QuotaEntity, model.StoredQuota] = field(default_factory=dict)
    due: float | None = None
    writes: int = 0

    def decide(self, now_seconds: float, readings: model.Readings) -> None:
        """One pass, and its writes."""
        for number, entity in enumerate(self.plant.entities):
            if number == len(self.stored):
                name = QuotaEntity(entity.user)
                self.stored[name] = model.StoredQuota(name, {})
        seen = model.Observation(
            now_seconds,
            self._policy(),
            self.tiers,
            self._topology(now_seconds),
            dict(self.stored),
            readings=readings,
        )
        decision, memory = decide(seen, self.memory)
        for write in decision.writes:
            self._write(write)
        self.below = frozenset(one.level for one in decision.levels if one.below_contract)
        self.memory = settle(
            memory, decision, [one.entity for one in decision.writes], now_seconds=now_seconds
        )
        due_seconds = decision.next_pass_in_seconds
        self.due = None if due_seconds is None else now_seconds + max(due_seconds, 0.05)

    def _write(self, write: model.QuotaWrite) -> None:
        before = self.stored[write.entity]
        values = {key: text for key, text in {**before.values, **write.values}.items() if text}
        version = (before.version or 0) + 1
        self.stored[write.entity] = model.StoredQuota(
            write.entity, values, version, write.ledger, version
        )
        place = next(
            number
            for number, one in enumerate(self.plant.entities)
            if one.user == write.entity.user
        )
        text = values.get(_KEYS[self.plant.entities[place].consumes])
        self.writes += isfinite(self.plant.quotas[place])  # the first quota of each is no change
        self.plant.set_quota(place, float(text) if text else float("inf"))

    def _policy(self) -> model.Policy:
        egress, ingress = self.blueprint.limits(self.plant.now)
        capacity = round(self.blueprint.capacity)
        limit = model.BrokerLimit(round(egress), round(ingress), capacity, capacity)
        return model.Policy(
            "bench/main",
            "uid",
            limits=model.BrokerLimits(limit),
            measured=True,
            calendar=self.calendar,
        )

    def _topology(self, now_seconds: float) -> model.Topology:
        topics = {
            f"topic-{number}": model.TopicLeaders(
                {broker: int(count) for broker, count in enumerate(row) if count}
            )
            for number, row in enumerate(self.plant.leading)
        }
        live = frozenset(int(broker) for broker in np.nonzero(self.plant.alive)[0])
        return model.Topology(now_seconds, live, topics)


def _tiers(entities: Sequence[Entity], floors: Mapping[int, float]) -> tuple[model.Tier, ...]:
    tiers = []
    for level in sorted({one.level for one in entities}):
        members = [_member(one) for one in entities if one.level == level]
        floor = ceil(floors.get(level, 0.0))
        throttled = (model.Contract(model.RateForm.PER_PARTITION, floor, floor),) if floor else ()
        tiers.append(
            model.Tier(f"bench/l{level}", model.Level(f"L{level}"), tuple(members), throttled)
        )
    return tuple(tiers)


def _member(one: Entity) -> model.Member:
    rate = ceil(one.contract)
    topics = tuple(f"topic-{topic}" for topic in one.topics)
    contract = model.Contract(
        model.RateForm.PER_PARTITION, rate if one.consumes else None, None if one.consumes else rate
    )
    return model.Member(one.user, QuotaEntity(one.user), topics, contract)


def play(scenario: Scenario, seed: int, scrape_seconds: int) -> Outcome:
    """Play it once. The same seed gives the same cluster, demand and scrapes."""
    blueprint = scenario.build(seed)
    plant = Plant(blueprint, seed)
    prometheus = _Prometheus(plant, scenario, scrape_seconds, seed + 7)
    tiers = _tiers(plant.entities, scenario.floors)
    operator = _Operator(plant, blueprint, tiers, tuple(scenario.calendar))
    readings = prometheus.readings()
    moved, limits, waiting, below = [], [], [], []
    levels = np.array([plant.entities[place].level for place in plant.owners])
    for second in range(scenario.seconds):
        plant.step()
        prometheus.scrape()
        if second >= _FIRST_PASS:
            if second % scrape_seconds == 0:
                readings = prometheus.readings()
                operator.decide(float(plant.now), readings)
            _between(operator, readings)
        moved.append((plant.egress, plant.ingress))
        limits.append(blueprint.limits(plant.now))
        by_stream = plant.backlog.sum(1)
        below.append([level in operator.below for level in model.Level])
        waiting.append([by_stream[levels == level].sum() for level in range(4)])
    over = _over(np.array(moved), np.array(limits))
    return Outcome(
        int((over > 0).any(axis=(1, 2)).sum()),
        float(over.sum()),
        float(plant.windows.longest_mute_seconds.max()),
        tuple(float(one) for one in np.array(waiting).mean(0)),
        operator.writes,
        scenario.seconds,
        tuple(int(one) for one in np.array(below).sum(0)),
    )


def _between(operator: _Operator, readings: model.Readings) -> None:
    """The passes for writes that are due within this second."""
    now = operator.plant.now
    for _ in range(_MOST_PASSES_A_SECOND):
        if operator.due is None or operator.due >= now + 1:
            return
        operator.decide(max(operator.due, float(now)), readings)
    raise RuntimeError(f"{_MOST_PASSES_A_SECOND} passes within a second, at {now} s")


def _over(moved: Array, limits: Array) -> Array:
    """Bytes above the limit by second, direction and broker, of means over ten seconds."""
    smooth = np.ones(_MEAN_SECONDS) / _MEAN_SECONDS
    means = np.apply_along_axis(lambda line: np.convolve(line, smooth, "same"), 0, moved)
    return np.maximum(means - _OVER * limits[:, :, None], 0.0)
