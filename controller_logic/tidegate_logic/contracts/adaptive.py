"""Scaling method Adaptive: a place between Mean and Max where the measured total is the contract.

With uneven leaders no fixed number is right (control.md 5): Max lets greedy clients have skew times
the contract, Mean starves a partition on a crowded broker though the total is not used up. Only
measured rates show which of the two it is:

    total above the contract
        down to where these very rates would add up to the contract, not below Mean
    total below it, and a quota limits a broker
        up by what is lacking, shared by the brokers where it limits, not above Max
    neither, or a leading broker reports nothing
        stay

What clients really get cannot be read from Kafka's metrics in one moment. The byte rate of a
throttled client swings between 0.7 and 1.2 of its quota, one sawtooth period each window; its
throttle time is a mean of up to a minute, and stays when the throttling has ended. So no broker
counts for more than the quota in force, two sawtooth periods are watched, and doubt means to stay:
the total is above the contract by the mean of what was seen, and below it only where brokers that
seem to throttle count in full. Each move waits until the last one can be seen, and longer if it
turns. Lowerings pass the mute guard like all others, see `quotas/steps.py`. Rates are bytes per
second.

The same law, with any method, finds the place of fetch where consumers read from followers. Their
Mean is all brokers in reach sharing the total, their Max one of them serving all that it holds.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import ceil, floor
from statistics import fmean
from typing import Final

from tidegate_logic.contracts.fetch_spread import FetchSpread, Reads
from tidegate_logic.contracts.leader_scaling import (
    ADAPTIVE_SHARES,
    Leaders,
    LeaderSpread,
    expected_scale,
    read_scale,
)
from tidegate_logic.model import (
    BYTE_RATE_OF,
    KEY_OF,
    Direction,
    Entity,
    Member,
    Observation,
    Policy,
    QuotaWindow,
    RateForm,
    RateKey,
    Readings,
    ScalingMethod,
    StoredQuota,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.readings import BINDING, Flows, is_throttled
from tidegate_logic.value import value

# What adaptive scaling is decided on, and what it remembers, as immutable values.
#
# Rates that are promised or set are integers in bytes per second; measured ones are floats. All are
# per broker, but for a contract's total. Times are seconds since the epoch as the caller's clock
# gave them.


@value(frozen=True, slots=True)
class MeasurementContext:
    """What a measurement depends on: once any of it changes, older measurements are void."""

    in_force: int | None
    promised: int
    spread: LeaderSpread
    leads: Set[int]
    throttled: bool


# the end of the basis of a quota whose place measured reads chose
MEASURED_MARK: Final = " @measured"


@value(frozen=True, slots=True)
class ExpectedReads:
    """Where fetch stands until reads are measured: `value` in bytes/s and broker.

    `was_measured` = the ledger says that measured reads chose what is in force.
    """

    value: int
    was_measured: bool


@value(frozen=True, slots=True)
class AdaptiveRate:
    """One entity's promise in one direction, where its leaders are, and what stands.

    `in_force` None = no quota stands. `leads` are the brokers that lead partitions for it.
    `throttled` is true while load holds it below its contract; then `in_force` is that contract, as
    the ledger has it. `expected` is set for reads from followers, whose spread is their reach.
    `is_cap` = nobody was promised it, a budget alone allows it.
    """

    entity: Entity
    direction: Direction
    promised: int
    spread: LeaderSpread
    leads: Set[int]
    in_force: int | None
    throttled: bool = False
    form: RateForm = RateForm.PER_PARTITION
    expected: ExpectedReads | None = None
    is_cap: bool = False

    @property
    def key(self) -> RateKey:
        return (self.entity, self.direction)

    @property
    def total(self) -> int:
        """What the contract promises over all brokers."""
        if self.form is RateForm.TOTAL:
            return self.promised
        return self.promised * self.spread.partitions

    @property
    def lowest(self) -> int:
        """The value of method Mean, in bytes per second."""
        return self.value_at(0)

    @property
    def highest(self) -> int:
        """What Max would set."""
        return self.value_at(ADAPTIVE_SHARES)

    @property
    def scene(self) -> MeasurementContext:
        return MeasurementContext(
            self.in_force, self.promised, self.spread, self.leads, self.throttled
        )

    @property
    def has_choice(self) -> bool:
        """Whether Mean and Max differ."""
        spread = self.spread
        return spread.largest * spread.brokers > spread.partitions * spread.parts

    def value_at(self, share: int) -> int:
        """What this share of the way from Mean to Max would set."""
        return read_scale(self.form, self.spread, share).of(self.promised)

    def value_of(self, known: "Adaptation") -> int:
        """What `known` would set."""
        if self.expected is not None and known.is_expected:
            return self.expected.value
        return self.value_at(known.share)


@dataclass(frozen=True, slots=True)
class AdaptiveInput:
    """Everything that one decision knows."""

    now_seconds: float
    readings: Readings
    rates: tuple[AdaptiveRate, ...]
    window: QuotaWindow = field(default_factory=QuotaWindow)
    minimum_change_percent: int = 10


@dataclass(frozen=True, slots=True)
class Measurement:
    """All leading brokers at once: bytes/s on each, at most the quota in force.

    `throttled` are the brokers that throttled of late, by Kafka's own metric.
    """

    at_seconds: float
    rates: Mapping[int, float]
    throttled: frozenset[int]


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Where one rate stands between Mean (share 0) and Max (share ADAPTIVE_SHARES).

    `sightings` were taken since anything changed. `moved_at_seconds` is when the share was last
    moved, None = never; `moved_up` which way. `is_expected` = no measured reads have moved it yet,
    so that what is expected of them counts, not the share.
    """

    share: int
    scene: MeasurementContext
    steady_since_seconds: float
    sightings: tuple[Measurement, ...] = ()
    moved_at_seconds: float | None = None
    moved_up: bool = False
    is_expected: bool = False

    @property
    def is_moving(self) -> bool:
        """Whether the share was moved and nothing has changed since, not even what is in force."""
        return (
            self.moved_at_seconds is not None and self.moved_at_seconds == self.steady_since_seconds
        )


Adaptations = Mapping[RateKey, Adaptation]


TOLERANCE_PERCENT: Final = 5.0  # a total this near the contract is right
FEWEST_SIGHTINGS: Final = 2  # one reading may be a peak of the sawtooth
FULL: Final = 0.97  # whose highest reading comes to this share of the quota uses all of it
# of the quota: consumers with large fetches get no more than half of it while they are throttled
SLUGGISH: Final = 0.4


def adapt(given: AdaptiveInput, flows: Flows, memory: Adaptations) -> dict[RateKey, Adaptation]:
    """The share of every rate, moved where measurements say so; all others are forgotten.

    `flows` are the usable client rates of the readings. A rate that memory lacks (a new operator)
    starts where the quota in force says, without one at Max: a promise is not broken until more is
    known, and a budget, which starts at Mean, is not exceeded.
    """
    law = _AdaptiveController(given, flows)
    return {rate.key: law.adapted(rate, memory.get(rate.key)) for rate in given.rates}


@dataclass(frozen=True, slots=True)
class _Times:
    """How long to look and to wait, in seconds, by the quota window and the scrape interval."""

    seen_in_full: float  # after a change, until the window holds only what was sent since
    evidence: float
    between_moves: float
    before_turning: float

    @classmethod
    def of(cls, given: AdaptiveInput) -> "_Times":
        window = given.window
        seen_in_full_seconds = float(window.sawtooth_period_seconds)
        evidence_seconds = max(
            2 * seen_in_full_seconds, FEWEST_SIGHTINGS * given.readings.scrape_seconds
        )
        between_seconds = max(
            float(window.step_distance_seconds), seen_in_full_seconds + evidence_seconds
        )
        return cls(
            seen_in_full_seconds,
            evidence_seconds,
            between_seconds,
            max(3.0 * window.step_distance_seconds, between_seconds),
        )


@dataclass(frozen=True, slots=True)
class _View:
    """One broker over all sightings, in bytes/s, and whether the quota keeps clients from more.

    `mean` is what clients got on the mean; `at_most` is the same, or the quota in force where they
    may have used all of it.
    """

    mean: float
    at_most: float
    is_limited: bool

    @classmethod
    def of(cls, broker: int, sightings: tuple[Measurement, ...], in_force: int) -> "_View":
        seen = [one.rates[broker] for one in sightings]
        throttled = any(broker in one.throttled for one in sightings)
        highest, mean = max(seen), fmean(seen)
        full = highest >= FULL * in_force or (throttled and highest >= BINDING * in_force)
        limited = highest >= (SLUGGISH if throttled else BINDING) * in_force
        return cls(mean, float(in_force) if full else mean, limited)


class _AdaptiveController:
    """Looks at one rate after the other, at one moment."""

    def __init__(self, given: AdaptiveInput, flows: Flows) -> None:
        self._given = given
        self._now_seconds = given.now_seconds
        self._times = _Times.of(given)
        self._flows = flows
        # so that the least change worth a write cannot carry a total across the contract and back
        self._tolerance = max(TOLERANCE_PERCENT, given.minimum_change_percent / 2) / 100

    def adapted(self, rate: AdaptiveRate, was: Adaptation | None) -> Adaptation:
        known = self._brought_up_to_date(rate, was)
        in_force = rate.in_force
        if in_force is None or not self._may_move(rate, in_force, known):
            return known
        sighting = self._sighting(rate, in_force)
        if sighting is None:
            return known
        known = self._with(known, sighting)
        goal = self._goal(rate, in_force, known.sightings) if self._is_ripe(known) else None
        if goal is None or not self._may_turn(known, up=goal > in_force):
            return known
        return self._moved(rate, known, goal, up=goal > in_force)

    def _brought_up_to_date(self, rate: AdaptiveRate, was: Adaptation | None) -> Adaptation:
        """Drop what was measured under other circumstances, or stamped by a clock of the future."""
        if was is None:
            share = _found_share(rate)
            expected = rate.expected is not None and not (
                rate.expected.was_measured and share is not None
            )
            start = 0 if rate.is_cap else ADAPTIVE_SHARES
            found = start if share is None else share
            return Adaptation(found, rate.scene, self._now_seconds, is_expected=expected)
        scene = rate.scene
        if scene != was.scene or was.steady_since_seconds > self._now_seconds:
            return replace(was, scene=scene, steady_since_seconds=self._now_seconds, sightings=())
        return was

    def _may_move(self, rate: AdaptiveRate, in_force: int, known: Adaptation) -> bool:
        """Whether measurements may move the share now.

        Not while throttled, on incomplete leaders, where nothing is to choose, or while the quota
        is on its way somewhere.
        """
        if rate.throttled or not rate.spread.complete or not rate.has_choice:
            return False
        return not self._is_worth_a_write(rate.value_of(known), in_force)

    def _sighting(self, rate: AdaptiveRate, in_force: int) -> Measurement | None:
        """All brokers that lead for it; None if any of them reports nothing usable."""
        flows = self._flows.of(rate.key)
        rates: dict[int, float] = {}
        throttled: set[int] = set()
        times: list[float] = []
        for broker in sorted(rate.leads):
            flow = flows.get(broker)
            if flow is None:
                if self._is_unknown(rate, broker):
                    return None
                rates[broker] = 0.0  # Kafka meters nothing for a client that sends nothing
                continue
            times.append(flow.at_seconds)
            rates[broker] = min(flow.bytes_per_second, float(in_force))
            if is_throttled(flow):
                throttled.add(broker)
        return Measurement(min(times), rates, frozenset(throttled)) if times else None

    def _is_unknown(self, rate: AdaptiveRate, broker: int) -> bool:
        reported = (rate.entity, broker, rate.direction) in self._given.readings.clients
        return reported or not self._flows.is_measured(broker, rate.direction)

    def _with(self, known: Adaptation, sighting: Measurement) -> Adaptation:
        """The newest sightings, with this one if it counts.

        One taken while the window still held bytes from before the last change does not.
        """
        last_seconds = (
            known.sightings[-1].at_seconds
            if known.sightings
            else known.steady_since_seconds + self._times.seen_in_full
        )
        if sighting.at_seconds <= last_seconds:
            return known
        kept = [
            one
            for one in known.sightings
            if sighting.at_seconds - one.at_seconds < self._times.evidence
        ]
        return replace(known, sightings=(*kept, sighting))

    def _is_ripe(self, known: Adaptation) -> bool:
        waited = self._now_seconds - known.steady_since_seconds >= self._times.between_moves
        return waited and len(known.sightings) >= FEWEST_SIGHTINGS

    def _may_turn(self, known: Adaptation, *, up: bool) -> bool:
        if known.moved_at_seconds is None or up == known.moved_up:
            return True
        return not 0 <= self._now_seconds - known.moved_at_seconds < self._times.before_turning

    def _goal(
        self, rate: AdaptiveRate, in_force: int, sightings: tuple[Measurement, ...]
    ) -> float | None:
        """The value that the measurements ask for, within Mean and Max; None = no change."""
        views = [_View.of(broker, sightings, in_force) for broker in rate.leads]
        least = in_force * self._given.minimum_change_percent / 100 + 1
        excess = sum(view.mean for view in views) - rate.total
        lacking = rate.total - sum(view.at_most for view in views)
        limited = sum(view.is_limited for view in views)
        if excess > self._tolerance * rate.total:
            goal = min(level_of([view.mean for view in views], rate.total), in_force - least)
        elif lacking > self._tolerance * rate.total and limited:
            goal = in_force + max(lacking / limited, least)
        else:
            return None
        goal = _at_an_end(
            goal, rate, up=goal > in_force, near=goal * self._given.minimum_change_percent / 100
        )
        return goal if self._is_worth_a_write(goal, in_force) else None

    def _is_worth_a_write(self, goal: float, in_force: int) -> bool:
        return abs(goal - in_force) * 100 >= max(self._given.minimum_change_percent, 1) * in_force

    def _moved(self, rate: AdaptiveRate, known: Adaptation, goal: float, *, up: bool) -> Adaptation:
        exact = (goal - rate.lowest) / (rate.highest - rate.lowest) * ADAPTIVE_SHARES
        share = min(ADAPTIVE_SHARES, max(0, ceil(exact) if up else floor(exact)))
        return Adaptation(
            share, known.scene, self._now_seconds, moved_at_seconds=self._now_seconds, moved_up=up
        )


def level_of(rates: Iterable[float], total: float) -> float:
    """The cap under which these rates add up to `total` (all bytes/s); at most the highest rate."""
    left, cap = total, 0.0
    ascending = sorted(rates)
    for place, rate in enumerate(ascending):
        cap = left / (len(ascending) - place)
        if rate >= cap:
            return cap
        left -= rate
    return ascending[-1] if ascending else cap


def _at_an_end(goal: float, rate: AdaptiveRate, *, up: bool, near: float) -> float:
    """Within Mean and Max; the end ahead if near, as the rest would never be worth a write."""
    if up:
        return float(rate.highest) if goal >= rate.highest - near else goal
    return float(rate.lowest) if goal <= rate.lowest + near else goal


def _found_share(rate: AdaptiveRate) -> int | None:
    """The share of a rate that is not remembered, by the quota in force.

    None = it has none between Mean and Max: Max counts, where no partition starves.
    """
    if rate.in_force is None or not rate.has_choice:
        return None
    lowest, highest = rate.lowest, rate.highest
    if lowest == highest or not lowest <= rate.in_force <= highest:
        return None  # it was set for other leaders
    return round((rate.in_force - lowest) / (highest - lowest) * ADAPTIVE_SHARES)


# Adaptive scaling's part of a pass: every contract per partition, from what the pass observed.
#
# While anything holds the pass, shares stay as they are. Of two members with the same entity the
# first counts, as everywhere.


_USUAL_SCRAPE_SECONDS = 15.0


def adaptations(
    observation: Observation,
    leaders: Leaders | None,
    flows: Flows,
    memory: Adaptations,
    *,
    reads: Reads | None = None,
    held: bool,
) -> Adaptations:
    """The shares of this pass; none with another scaling method.

    So switching to Adaptive begins with what is in force then.
    """
    policy = observation.policy
    if policy.scaling is not ScalingMethod.ADAPTIVE or policy.deleting:
        return {}
    if held or leaders is None or observation.quotas is None:
        return memory
    rates = tuple(_rates(_members(observation), leaders, reads, observation.quotas, policy=policy))
    return adapt(_given(observation, rates), flows, memory)


def measured_reads(
    observation: Observation,
    leaders: Leaders | None,
    flows: Flows,
    memory: Adaptations,
    *,
    reads: Reads | None,
    held: bool,
) -> Adaptations:
    """The shares of fetch, with any method, where more than one broker may serve a partition.

    They stay while it is not known whether followers serve reads.
    """
    if observation.policy.deleting:
        return {}
    if held or leaders is None or observation.quotas is None or leaders.topology.selection is None:
        return memory
    if reads is None:
        return {}
    quotas = observation.quotas
    rates = [
        _read_rate(member, spread, quotas.get(member.entity), observation.policy)
        for member in _members(observation)
        if (spread := reads.of(member)) is not None and spread.reach is not None
    ]
    return adapt(
        _given(observation, tuple(rate for rate in rates if rate is not None)), flows, memory
    )


def _read_rate(
    member: Member, spread: FetchSpread, stored: StoredQuota | None, policy: Policy
) -> AdaptiveRate | None:
    contract, reach = member.contract, spread.reach
    promised = None if contract is None else contract.fetch_bytes_per_second
    if contract is None or promised is None or stored is None or reach is None:
        return None
    scale = expected_scale(contract.form, spread.expected, policy.scaling)
    if scale is None:  # per broker, wherever consumers read
        return None
    direction = Direction.EGRESS
    in_force, throttled = _standing(stored, direction, policy)
    entry = stored.entries_of(policy).get(BYTE_RATE_OF["fetch"])
    was_measured = entry is not None and MEASURED_MARK in entry.basis
    return AdaptiveRate(
        member.entity,
        direction,
        promised,
        reach,
        reach.leading,
        in_force,
        throttled,
        contract.form,
        ExpectedReads(scale.of(promised), was_measured),
    )


def _given(observation: Observation, rates: tuple[AdaptiveRate, ...]) -> AdaptiveInput:
    policy, now_seconds = observation.policy, observation.now_seconds
    return AdaptiveInput(
        now_seconds,
        observation.readings or Readings(now_seconds, _USUAL_SCRAPE_SECONDS),
        rates,
        policy.window,
        policy.minimum_change_percent,
    )


def _members(observation: Observation) -> Iterable[Member]:
    owners: dict[Entity, Member] = {}
    for tier in observation.tiers or ():
        for member in tier.members:
            owners.setdefault(member.entity, member)
    return owners.values()


def _rates(
    members: Iterable[Member],
    leaders: Leaders,
    reads: Reads | None,
    quotas: Mapping[Entity, StoredQuota],
    *,
    policy: Policy,
) -> Iterator[AdaptiveRate]:
    for member in members:
        contract, stored = member.contract, quotas.get(member.entity)
        if contract is None or contract.form is not RateForm.PER_PARTITION or stored is None:
            continue
        by_leaders = leaders.spread(member.topics)
        fetch = reads.of(member) if reads is not None else None
        for direction, key in KEY_OF.items():
            spread = by_leaders
            if fetch is not None and direction is Direction.EGRESS:
                if fetch.reach is not None:  # see `measured_reads`
                    continue
                spread = fetch.expected
            if (rate := contract.byte_rate(key)) is not None:
                in_force, throttled = _standing(stored, direction, policy)
                yield AdaptiveRate(
                    member.entity,
                    direction,
                    rate,
                    spread,
                    spread.leading,
                    in_force,
                    throttled,
                    is_cap=member.override is None and key in contract.override_only_keys,
                )


def _standing(stored: StoredQuota, direction: Direction, policy: Policy) -> tuple[int | None, bool]:
    """The contract in force, and whether it is throttled now."""
    key = KEY_OF[direction]
    entry = stored.entries_of(policy).get(key)
    if entry is not None and entry.of_contract:
        return entry.of_contract, True
    return enforced_rate(stored.values.get(key)), False
