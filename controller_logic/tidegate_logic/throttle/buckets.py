"""One entity's bucket in one direction: its cap, what it sends where, what its window may hold.

Measured rates are floats, quotas integers, both in bytes per second and per broker. A rate that is
not measured is never taken for zero: its exposure is its cap, and its cap is taken to bind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from math import ceil

from tidegate_logic.model import (
    KEY_OF,
    MIN_BYTE_RATE,
    ClientRate,
    Direction,
    Level,
    RateKey,
)
from tidegate_logic.quotas.mute import (
    largest_safe_step,
    predicted_mute_seconds,
    shortest_bound,
)
from tidegate_logic.readings import Flows, is_limited
from tidegate_logic.throttle.input import (
    FREE,
    GROWTH,
    ActiveThrottle,
    ClientFloors,
    ManagedRate,
    RateHistory,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from tidegate_logic.throttle.nic_status import grown_unseen
from tidegate_logic.value import value
from tidegate_logic.words import rate_words

# What was seen of each rate lately, from which follows what a window may hold.


_NEVER = RateHistory()


def seen_of(
    given: ThrottleInput, flows: Flows, memory: ThrottleMemory
) -> dict[RateKey, RateHistory]:
    """What was seen of every rate that may be throttled, this moment included."""
    watch = _Watch(given)
    return {
        rate.key: watch.seen(rate, flows, memory.seen.get(rate.key, _NEVER))
        for rate in given.rates
        if rate.throttleable
    }


class _Watch:
    """Looks at one rate after the other, at one moment."""

    def __init__(self, given: ThrottleInput) -> None:
        self._now_seconds = given.now_seconds
        self._dwell_seconds = given.settings.dwell_seconds
        # so that peaks stay few whatever the interval of the rounds
        self._slot_seconds = self._dwell_seconds / 2
        self._peak_seconds = given.settings.peak_seconds + self._slot_seconds

    def seen(self, rate: ManagedRate, flows: Flows, was: RateHistory) -> RateHistory:
        busiest = flows.busiest.get(rate.key)
        highest = 0.0 if busiest is None else busiest.bytes_per_second
        rates = was.rates
        if busiest is not None and (not rates or rates[-1][0] < busiest.at_seconds):
            rates = (*rates[-1:], (busiest.at_seconds, highest))
        since_seconds = self._now_seconds if was.since_seconds is None else was.since_seconds
        return RateHistory(
            self._caps(rate, was),
            self._peaks(was, highest),
            rates,
            since_seconds,
            self._now_seconds - since_seconds,
        )

    def _caps(self, rate: ManagedRate, was: RateHistory) -> tuple[tuple[float, int], ...]:
        """Values in force within a dwell; also the one before our last write, for a new memory."""
        in_force, change = rate.in_force, rate.last_change
        caps = [
            (at, value)
            for at, value in was.caps
            if value != in_force and self._now_seconds - at < self._dwell_seconds
        ]
        if (
            change is not None
            and change.previous is not None
            and abs(self._now_seconds - change.at_seconds) < self._dwell_seconds
        ):
            known = {in_force, *(value for _, value in caps)}
            caps += [(change.at_seconds, change.previous)] if change.previous not in known else []
        if in_force is not None:
            caps.append((self._now_seconds, in_force))
        return tuple(caps)

    def _peaks(self, was: RateHistory, highest: float) -> tuple[tuple[float, float], ...]:
        """The highest rates by slots, each with the moment at which it began."""
        kept = tuple(
            [
                (begin, rate)
                for begin, rate in was.peaks
                if self._now_seconds - begin < self._peak_seconds
            ]
        )
        if kept and 0 <= self._now_seconds - kept[-1][0] < self._slot_seconds:
            begin, rate = kept[-1]
            return (*kept[:-1], (begin, max(rate, highest)))
        return (*kept, (self._now_seconds, highest))


# The rate that an entity is never throttled below: its tier's, or what its clients need.
#
# A producer that gets less than a full buffer per delivery timeout loses records of every client
# that shares the quota; a consumer starves below a fetch. Where that is more than the tier's
# throttled rate, it is said, not hidden.


@value(frozen=True, slots=True)
class Floor:
    """The lowest quota in bytes/s; `because` says what raised it, empty = nothing did.

    What raises it lies above the tier's throttled rate.
    """

    value: int
    because: str = ""


def floor_of(rate: ManagedRate, floors: ClientFloors) -> Floor:
    """Never above the contract. Raises ValueError for a rate that is never throttled."""
    if rate.floor is None:
        raise ValueError(f"{rate.entity} is never throttled, so it has no floor")
    tier = max(rate.floor, MIN_BYTE_RATE)
    is_consumer = rate.direction is Direction.EGRESS
    needed = floors.consumer if is_consumer else rate.producers * floors.per_producer
    if needed <= tier or rate.contract <= tier:
        return Floor(min(rate.contract, tier))
    because = (
        f"a consumer needs {rate_words(floors.consumer)}"
        if is_consumer
        else f"{rate.producers} producers need {rate_words(floors.per_producer)} each, or their "
        "buffers expire"
    )
    return Floor(min(rate.contract, needed), because)


@value(frozen=True, slots=True)
class Bucket:
    """One rate as it is capped and measured now. `held` None = it is at its contract.

    `busiest` has the highest of its rates. `unmeasured` are the brokers that lead for it and report
    no client rates. `cap` is what is in force; without a quota the contract, for the arithmetic.
    `wanted` is what the throttle decided so far: the held fraction of today's contract, never below
    the floor. `sending` is bytes/s as measured on each broker, `giving` the most that a cut to the
    floor takes off there, where it is any. `rests_seconds` is how long it stays where a lowering
    left it; None = a dwell. `unseen` is what it may send on a broker beyond its newest rate there,
    by direct readings of the NICs, in bytes/s.
    """

    rate: ManagedRate
    floor: Floor
    flows: Mapping[int, ClientRate]
    busiest: ClientRate | None
    held: ActiveThrottle | None = None
    seen: RateHistory = field(default_factory=RateHistory)
    unmeasured: frozenset[int] = frozenset()
    window_seconds: float = 0.0
    rests_seconds: float | None = None
    unseen: float = 0.0
    key: RateKey = field(init=False, repr=False, compare=False)
    level: Level = field(init=False, repr=False, compare=False)
    contract: int = field(init=False, repr=False, compare=False)
    cap: int = field(init=False, repr=False, compare=False)
    is_throttled: bool = field(init=False, repr=False, compare=False)
    wanted: int = field(init=False, repr=False, compare=False)
    binding: tuple[int, ...] = field(init=False, repr=False, compare=False)
    sending: Mapping[int, float] = field(init=False, repr=False, compare=False)
    giving: Mapping[int, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rate, held = self.rate, self.held
        contract = rate.contract
        object.__setattr__(self, "key", rate.key)
        object.__setattr__(self, "level", rate.level)
        object.__setattr__(self, "contract", contract)
        object.__setattr__(self, "cap", contract if rate.in_force is None else rate.in_force)
        object.__setattr__(self, "is_throttled", held is not None and held.value < held.contract)
        wanted = (
            contract if held is None else min(contract, max(self.floor.value, held.of(contract)))
        )
        object.__setattr__(self, "wanted", wanted)
        object.__setattr__(self, "binding", self._binding())
        object.__setattr__(self, "sending", self._sending())
        object.__setattr__(self, "giving", self._giving())

    def _binding(self) -> tuple[int, ...]:
        """The brokers where our cap keeps it from sending more, or may do so."""
        if not self.is_throttled and not self.is_to_rise:
            return ()
        limited = {broker for broker, flow in self.flows.items() if is_limited(flow, self.cap)}
        return tuple(sorted(limited | self.unmeasured if self.flows else self.rate.leads))

    def _sending(self) -> dict[int, float]:
        """Kafka's byte rate of a throttled client reads up to a fifth above its quota.

        What is not sent cannot be given.
        """
        sending = {broker: flow.bytes_per_second for broker, flow in self.flows.items()}
        if self.is_throttled:
            most = float(self.cap)
            sending = {broker: min(sends, most) for broker, sends in sending.items()}
        return sending

    def _giving(self) -> dict[int, float]:
        """Where nothing is measured, by its cap."""
        floor = self.floor.value
        giving = {broker: sends - floor for broker, sends in self.sending.items() if sends > floor}
        if self.unmeasured and (gives := float(min(self.cap, self.contract) - floor)) > 0:
            giving |= dict.fromkeys(self.unmeasured, gives)
        return giving

    def sends(self, broker: int) -> float:
        """Bytes/s as measured; 0 where no series is, so not for a broker in `unmeasured`."""
        return self.sending.get(broker, 0.0)

    def gives(self, broker: int) -> float:
        """The most that a cut to the floor takes off this broker, in bytes/s."""
        return self.giving.get(broker, 0.0)

    @property
    def is_free(self) -> bool:
        """Whether nothing suggests that its cap binds anywhere."""
        return bool(self.flows) and not self.binding and self.cap >= FREE * self.seen.peak

    @property
    def is_to_rise(self) -> bool:
        """Whether a raise was decided on load that is not in force yet."""
        held = self.held
        return held is not None and not held.applied and self.wanted > self.cap

    @property
    def _is_limited(self) -> bool:
        """Whether its cap binds on any broker."""
        return self.busiest is not None and is_limited(self.busiest, self.cap)

    @property
    def exposure(self) -> int:
        """An upper bound in bytes/s on what any broker's window of it may hold.

        The highest cap of late; less only where every broker that leads for it reports a rate, none
        of them is near the cap, and it has been watched for longer than a window.
        """
        measured = (
            bool(self.flows)
            and not self.unmeasured
            and self.seen.known_seconds >= self.window_seconds
        )
        likely = ceil(GROWTH * self.seen.peak + self.unseen)
        if self.rate.in_force is None:
            return likely if measured else max(likely, self.contract)
        highest = max([cap for _, cap in self.seen.caps] + [self.cap])
        if not measured or self._is_limited:
            return highest
        return min(highest, likely)

    def in_stride(self, settings: ThrottleSettings, now_seconds: float) -> "Bucket":
        """The same where it may be lowered again a stride after it was lowered, not a dwell."""
        caps = [
            (at, cap) for at, cap in self.seen.caps if now_seconds - at < settings.stride_seconds
        ]
        return replace(
            self,
            seen=replace(self.seen, caps=tuple(caps)),
            rests_seconds=settings.stride_seconds,
        )

    def safe_step(self, settings: ThrottleSettings) -> int:
        """The lowest value in bytes/s that mutes no client for longer than allowed."""
        return largest_safe_step(
            self.exposure, self.longest_mute_seconds(settings), settings.window
        )

    def safe_step_later(self, settings: ThrottleSettings) -> int:
        """The same once it has been at its cap for a dwell: then no window holds more than that."""
        return largest_safe_step(
            min(self.cap, self.exposure), self.longest_mute_seconds(settings), settings.window
        )

    def longest_mute_seconds(self, settings: ThrottleSettings) -> int:
        """What one lowering may cause: as the policy says, or less for a share group."""
        bound = self.rate.longest_mute_seconds
        if bound is None:
            return settings.max_mute_seconds
        return min(settings.max_mute_seconds, shortest_bound(bound, settings.window))

    def predicted_mute_seconds(self, value: int, settings: ThrottleSettings) -> float:
        return (
            predicted_mute_seconds(self.exposure, value, settings.window)
            if value < self.cap
            else 0.0
        )

    def was_changed_within(self, seconds: float, now_seconds: float) -> bool:
        """Whether we changed it so recently.

        A change in the far future was stamped by a wrong clock and does not count.
        """
        change = self.rate.last_change
        return change is not None and abs(now_seconds - change.at_seconds) < seconds

    def was_lowered_within(self, seconds: float, now_seconds: float) -> bool:
        change, in_force = self.rate.last_change, self.rate.in_force
        if change is None or in_force is None or not self.was_changed_within(seconds, now_seconds):
            return False
        if change.previous is None:  # its first quota lowered it only if it presses
            return self._is_limited
        return change.previous > in_force

    def seconds_until_lowered_again(self, settings: ThrottleSettings, now_seconds: float) -> float:
        """How long it must still stay where the last lowering left it; 0 = it may go lower now."""
        change = self.rate.last_change
        rests_seconds = settings.dwell_seconds if self.rests_seconds is None else self.rests_seconds
        if change is None or not self.was_lowered_within(rests_seconds, now_seconds):
            return 0.0
        return rests_seconds - (now_seconds - change.at_seconds)


def buckets_of(
    given: ThrottleInput,
    flows: Flows,
    held: Mapping[RateKey, ActiveThrottle],
    seen: Mapping[RateKey, RateHistory],
) -> tuple[Bucket, ...]:
    """The bucket of every rate that may be throttled, in a fixed order; the first entry counts."""
    found: dict[RateKey, Bucket] = {}
    measured = {
        way: frozenset([broker for broker, of_way in flows.totals if of_way is way])
        for way in KEY_OF
    }
    grown = grown_unseen(given.readings)
    for rate in given.rates:
        if rate.throttleable and rate.key not in found:
            found[rate.key] = Bucket(
                rate,
                floor_of(rate, given.settings.floors),
                flows.of(rate.key),
                flows.busiest.get(rate.key),
                held.get(rate.key),
                seen.get(rate.key, _NEVER),
                _unmeasured(rate, measured[rate.direction]),
                given.settings.window.seconds,
                unseen=max((grown.get((at, rate.direction), 0.0) for at in rate.leads), default=0.0)
                if grown
                else 0.0,
            )
    return tuple(
        sorted(
            found.values(), key=lambda bucket: (bucket.rate.direction, bucket.rate.entity.sort_key)
        )
    )


_EVERY_BROKER_REPORTS: frozenset[int] = frozenset()


def _unmeasured(rate: ManagedRate, measured: frozenset[int]) -> frozenset[int]:
    if rate.leads <= measured:
        return _EVERY_BROKER_REPORTS
    return frozenset(rate.leads - measured)


def sawteeth_of(buckets: Iterable[Bucket], direction: Direction) -> dict[int, float]:
    """The sum of the caps that bind on each broker, in bytes/s; each the highest of late."""
    found: dict[int, float] = {}
    parts = direction.parts
    for bucket in buckets:
        if bucket.rate.direction not in parts or not bucket.is_throttled:
            continue
        highest = max([cap for _, cap in bucket.seen.caps] + [bucket.cap])
        for broker in bucket.binding:
            found[broker] = found.get(broker, 0.0) + highest
    return found
