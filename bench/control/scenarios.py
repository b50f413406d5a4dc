"""Eighteen bad days of a simulated cluster, three times each: how well load is kept within limits.

Steps, waves, bursts, brokers that die, metrics that vanish, load that no quota can help. Each is
played with whole passes of `decide()`, and sums over all plays are held against those of the
controller before it took strides (ADR 0040), on the same clusters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Final

import numpy as np

from bench.control.plant import Blueprint, BrokerDeath, Consumer, Partition, Producer
from bench.control.played import Outcome, Scenario, play
from bench.results import Figure
from tidegate_logic.model import CalendarEntry, Level
from tidegate_logic.recurrence import Recurrence

SEEDS: Final = (1, 2, 3)
SCRAPE_SECONDS: Final = 5
MUTE_BOUND_SECONDS: Final = 22.0
# Sizes are hundredths of what a broker's NIC carries, 2.5 GB/s: so large that no client's floor
# is above the throttled rate of its tier.
_UNIT: Final = 25_000_000.0
_BROKERS, _TOPICS, _PARTITIONS, _REPLICAS = 6, 12, 6, 3
_EVERY_LEVEL = (0, 1, 2, 3)
_FLOORS: Final = {1: 0.40, 2: 0.20, 3: 0.04}  # units/s for each partition
_NO_LIMIT = 1e6
_CONTRACT_OF_A_PRODUCER = 4.0  # times what it usually writes
_CATCH_UP = 25.0

Curve = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A usual cluster, and what a scenario changes of it; rates in units/s.

    Each topic is read by one consumer of every entry of `readers`. `reads_up_to` is the most of
    each, as a multiple of what is written; `contract` too.
    """

    demand: Curve
    egress: Callable[[int], float] = lambda _: 80.0
    ingress: float = _NO_LIMIT
    mean_rate: float = 4.0
    readers: Sequence[int] = _EVERY_LEVEL
    reads_up_to: float = 3.0
    contract: float = 2.5
    producer_level: Callable[[int], int] = lambda _: 0
    leader: Callable[[int, int, np.random.Generator], int] = lambda topic, partition, _: (
        (5 * topic + partition) % _BROKERS
    )
    more: Sequence[tuple[int, int, float, int, float]] = ()
    shared: bool = False
    inflight: float = 1.0
    deaths: Sequence[BrokerDeath] = ()
    foreign: Callable[[int], Mapping[int, float]] = lambda _: {}
    endless: Curve | None = None

    def build(self, seed: int) -> Blueprint:
        """The cluster of this seed."""
        random = np.random.default_rng(100 + seed)
        rates = self.mean_rate * random.lognormal(0.0, 0.35, _TOPICS)
        rates *= self.mean_rate * _TOPICS / rates.sum()
        partitions = [
            Partition(
                topic,
                leader := self.leader(topic, number, random),
                _replicas(topic, number, leader),
            )
            for topic in range(_TOPICS)
            for number in range(_PARTITIONS)
        ]
        producers = [
            Producer(
                f"producer-{topic}",
                self.producer_level(topic),
                float(rate) * _UNIT,
                _CONTRACT_OF_A_PRODUCER * float(rate) * _UNIT / _PARTITIONS,
            )
            for topic, rate in enumerate(rates)
        ]
        consumers = [
            Consumer(
                f"reader-{topic}-L{level}-{place}",
                level,
                topic,
                self.reads_up_to * float(rates[topic]) * _UNIT * random.uniform(1.0, 1.5),
                self.contract
                * float(rates[topic])
                * _UNIT
                / _PARTITIONS
                * random.uniform(1.0, 1.5),
            )
            for topic in range(_TOPICS)
            for place, level in enumerate(self.readers)
        ]
        if self.shared:
            consumers = _sharing(consumers)
        for place, (level, topic, most, starts_at, backlog) in enumerate(self.more):
            contract = 200.0 if level == 0 else 4.0
            consumers.append(
                Consumer(
                    f"late-{place}",
                    level,
                    topic,
                    most * _UNIT,
                    contract * _UNIT,
                    starts_at,
                    backlog * _UNIT,
                )
            )
        last, endless = len(consumers) - 1, self.endless
        return Blueprint(
            producers,
            consumers,
            partitions,
            _BROKERS,
            100.0 * _UNIT,
            lambda second: (self.egress(second) * _UNIT, self.ingress * _UNIT),
            self.demand,
            1.0 * _UNIT,
            self.inflight * _UNIT,
            deaths=self.deaths,
            catch_up=_CATCH_UP * _UNIT,
            foreign=lambda second: {b: rate * _UNIT for b, rate in self.foreign(second).items()},
            endless=(
                (lambda _: {})
                if endless is None
                else (lambda second: {last: endless(second) * _UNIT})
            ),
        )


def _replicas(topic: int, partition: int, leader: int) -> tuple[int, ...]:
    stride = 1 + (topic + partition) % 2
    return tuple((leader + place * stride) % _BROKERS for place in range(_REPLICAS))


def _sharing(consumers: list[Consumer]) -> list[Consumer]:
    """Six users who read one topic as L1 and another as L3, with one quota for both."""
    important = [one for one in consumers if one.level == 1][:6]
    others = [one for one in consumers if one.level == 3][6:12]
    user_of = {low.user: high.user for high, low in zip(important, others, strict=True)}
    return [
        Consumer(
            user_of.get(one.user, one.user),
            one.level,
            one.topic,
            one.most_bytes_per_second,
            one.contract,
        )
        for one in consumers
    ]


def _between(begin: int, end: int, low: float, high: float) -> Curve:
    return lambda second: high if begin <= second < end else low


def _ramp(second: int) -> float:
    up, down = min(max((second - 120) / 900, 0.0), 1.0), min(max((second - 1200) / 300, 0.0), 1.0)
    return 1.0 + 1.2 * (up - down)


def _promotion(second: int) -> float:
    """An evening's rise, a spike at midnight, and the way back."""
    factor = 1.0 + 0.6 / (1.0 + exp(-(second - 500) / 60.0))
    if second >= 1800:
        factor += 0.7 * min(1.0, (second - 1800) / 8.0) * exp(-max(second - 1900, 0) / 200.0)
    return factor - (0.6 * (1.0 - exp(-(second - 2700) / 200.0)) if second >= 2700 else 0.0)


def _crowded(topic: int, partition: int, _: np.random.Generator) -> int:
    """Two more partitions of six topics on broker 3."""
    return 3 if partition < 2 and topic < 6 else (5 * topic + partition) % _BROKERS


def _lopsided(_topic: int, _partition: int, random: np.random.Generator) -> int:
    return int(min(_BROKERS - 1, random.pareto(1.6) * 1.6))


def _floors(scale: float = 1.0) -> dict[int, float]:
    return {level: scale * rate * _UNIT for level, rate in _FLOORS.items()}


def _usual(shape: _Shape, seconds: int, floor_scale: float = 1.0) -> Scenario:
    return Scenario(shape.build, seconds, _floors(floor_scale))


def _one_broker(_: int) -> Blueprint:
    """One broker whose four readers want 60 each, with a limit of 50 for fourteen minutes."""
    readers = [
        Consumer(f"reader-L{level}", level, 0, 60.0 * _UNIT, 60.0 * _UNIT, 0, 1e7 * _UNIT)
        for level in _EVERY_LEVEL
    ]
    return Blueprint(
        [Producer("producer-0", 0, 1e-6 * _UNIT, 1.0 * _UNIT)],
        readers,
        [Partition(0, 0, (0,))],
        1,
        1250.0 * _UNIT,
        lambda second: ((50.0 if 60 <= second < 900 else 1000.0) * _UNIT, _NO_LIMIT * _UNIT),
        lambda _: 1.0,
        1.0 * _UNIT,
        1.0 * _UNIT,
        noisy=False,
    )


_STEP = _Shape(_between(120, 900, 1.1, 2.1))
_LATE_READERS = (
    *((3, topic, 60.0, 300 + 40 * topic, 9000.0) for topic in range(4)),
    *((2, topic, 60.0, 420 + 40 * (topic - 4), 4000.0) for topic in range(4, 6)),
)
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "steady": _usual(_STEP, 2400),
    "ramp": _usual(_Shape(_ramp), 3000),
    "burst": _usual(
        _Shape(lambda second: 2.2 if second > 100 and second % 300 < 45 else 1.2), 2400
    ),
    "wave": _usual(_Shape(lambda second: 1.82 if (second // 45) % 2 else 1.52), 3600),
    "catch-up": _usual(_Shape(lambda _: 1.25, more=_LATE_READERS), 3600),
    "latent": _usual(_Shape(_between(200, 900, 1.2, 2.3), reads_up_to=6.0), 3000),
    "hot broker": _usual(_Shape(_between(200, 1200, 0.75, 1.3), leader=_crowded), 2700),
    "death": _usual(
        _Shape(_between(200, 1400, 1.0, 1.75), deaths=(BrokerDeath(2, 600, 1200, 1500),)), 2700
    ),
    "metrics lost": Scenario(
        _Shape(_between(200, 1300, 1.0, 2.0)).build,
        2700,
        _floors(),
        blind=((500, 800, frozenset(range(_BROKERS))), (1000, 1600, frozenset({3}))),
        resets=((900, 1), (1700, 4)),
    ),
    "L0 only": _usual(
        _Shape(
            lambda _: 0.5, more=((0, 3, 900.0, 0, 0.0),), endless=_between(200, 1500, 0.0, 84.0)
        ),
        2100,
    ),
    "foreign": _usual(
        _Shape(
            lambda _: 0.6,
            foreign=lambda second: {1: 78.0, 2: 78.0} if 300 <= second < 1500 else {},
        ),
        2100,
    ),
    "uneven": _usual(_Shape(_between(200, 1200, 0.45, 0.85), leader=_lopsided), 2700),
    "overlap": _usual(_Shape(_between(200, 1000, 1.1, 2.1), shared=True), 2700),
    "many": _usual(
        _Shape(_between(200, 1000, 1.0, 1.9), mean_rate=1.0, readers=(0, 1, 2, *[3] * 20)),
        2400,
        0.5,
    ),
    "promotion": _usual(_Shape(_promotion, deaths=(BrokerDeath(4, 1860, 2400, 2600),)), 3600),
    "ingress": _usual(
        _Shape(
            _between(200, 1100, 1.0, 2.0),
            ingress=42.0,
            readers=(0,),
            producer_level=lambda topic: topic % 4,
            inflight=0.25,
        ),
        2400,
        4.0,
    ),
    "one broker": Scenario(_one_broker, 1500, {1: 10 * _UNIT, 2: 5 * _UNIT, 3: 1 * _UNIT}),
    "no client rates": Scenario(_STEP.build, 2400, _floors(), has_rates=False),
}


@dataclass(frozen=True, slots=True)
class Sums:
    """What all plays came to: seconds and GB over limits, mean backlog of L1, longest mute."""

    plays: int
    over_seconds: int
    over_gb: float
    l1_backlog_gb: float
    longest_mute_seconds: float
    writes: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Sums":
        """At least one outcome is needed."""
        return cls(
            len(outcomes),
            sum(one.over_seconds for one in outcomes),
            sum(one.over_bytes for one in outcomes) / 1e9,
            sum(one.backlog_bytes[1] for one in outcomes) / len(outcomes) / 1e9,
            max(one.longest_mute_seconds for one in outcomes),
            sum(one.writes for one in outcomes),
        )


# The same plays with the controller of d583831, scrapes of 15 s as usual then.
BEFORE: Final = Sums(54, 19443, 22423.92, 13888.23, 21.76, 10585)


def scenario_figures() -> list[Figure]:
    """All plays, their sums against what they were, and each scenario's part."""
    outcomes = {
        name: [play(scenario, seed, SCRAPE_SECONDS) for seed in SEEDS]
        for name, scenario in SCENARIOS.items()
    }
    sums = Sums.of([one for plays in outcomes.values() for one in plays])
    return [*compared(sums), *(_part(name, plays) for name, plays in outcomes.items())]


def _declared(begin: int, end: int, shares: Mapping[Level, float]) -> tuple[CalendarEntry, ...]:
    """From one minute to another of every day."""
    return (CalendarEntry(Recurrence(frozenset(range(7)), begin, end), shares),)


# Without L3 the wave stays below the limit; the bursts do not, so they are declared for L2, too.
DECLARED: Final = {
    "burst": (_declared(5, 36, {Level.L2: 0.15, Level.L3: 0.02}), 40.0),
    "wave": (_declared(1, 60, {Level.L3: 0.2}), 30.0),
}


def calendar_figures() -> list[Figure]:
    """The bursts and the wave as people declare them: what is left over the limit, and who pays."""
    figures = []
    for name, (calendar, bound_seconds) in DECLARED.items():
        scenario = replace(SCENARIOS[name], calendar=calendar)
        plays = [play(scenario, seed, SCRAPE_SECONDS) for seed in SEEDS]
        named = {level for entry in calendar for level in entry.shares}
        others = sum(
            seconds
            for one in plays
            for level, seconds in zip(Level, one.below_seconds, strict=True)
            if level not in named
        )
        what = f"{name} with a calendar for {' and '.join(sorted(named))}"
        over = [one.over_seconds for one in plays]
        note = f"{Sums.of(plays).over_gb:.3g} GB over in all {len(plays)}"
        figures += [
            Figure(f"{what}: over a limit, longest", max(over), "s", bound_seconds, note),
            Figure(f"{what}: another level below its contracts", others, "s", 0),
        ]
    return figures


def compared(sums: Sums, of: Sums = BEFORE) -> list[Figure]:
    """The sums with their bounds, which are parts of what they were before."""
    what = f"{sums.plays} plays of {len(SCENARIOS)} simulated bad days"
    return [
        _sum(f"{what}: over a limit", sums.over_seconds, of.over_seconds, "s", 0.92),
        _sum(f"{what}: bytes over limits", sums.over_gb, of.over_gb, "GB", 0.92),
        _sum(f"{what}: backlog of L1, mean", sums.l1_backlog_gb, of.l1_backlog_gb, "GB", 1.0),
        Figure(f"{what}: longest mute", sums.longest_mute_seconds, "s", MUTE_BOUND_SECONDS),
        _sum(f"{what}: changes of quotas", sums.writes, of.writes, "", 1.05),
    ]


def _sum(name: str, value: float, before: float, unit: str, most: float) -> Figure:
    if not before:
        return Figure(name, value, unit, None)
    note = f"{100 * (value / before - 1):+.1f} % against {before:,.4g} {unit}".rstrip() + " before"
    return Figure(name, value, unit, most * before, note)


def _part(name: str, plays: Sequence[Outcome]) -> Figure:
    sums = Sums.of(plays)
    note = (
        f"{sums.over_gb:.3g} GB over; longest mute {sums.longest_mute_seconds:.1f} s; L1 waits for "
        f"{sums.l1_backlog_gb:.3g} GB on the mean; {sums.writes} changes of quotas"
    )
    return Figure(f"{name}, {sums.plays} plays: over a limit", sums.over_seconds, "s", None, note)
