"""A Kafka cluster second by second: what clients want, brokers grant and mute, and NICs carry.

Every member has one bucket and one connection on each broker and way, and asks ten times a second
for a tenth of its rate. Kafka's quota windows and mutes are computed as its own classes do
(`sample_ring.py`); what is wanted is a fluid. A NIC that is full is shared by all in proportion.
Times are whole seconds from the start of the play, amounts bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate.simulation.sample_ring import SampleRing, measure, most_held, mute_ms, record
from tidegate_logic.model import BrokerLimit, Direction, Entity, QuotaWindow, RateKey
from tidegate_logic.value import value

REQUESTS_A_SECOND: Final = 10
_STEP_MS: Final = 1000 // REQUESTS_A_SECOND
# Kafka's mean of throttle times is over two samples of 30 s
_THROTTLE_TIME_MS: Final = 60_000
_NOTHING: Final = 1e-6  # bytes: less is rounding

NicPlace = tuple[int, Direction]
BucketPlace = tuple[RateKey, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """What one member wants to move through one broker, from second `begin` to `end`.

    `catch_up_bytes_per_second` is how fast it goes while something waits that it could not move in
    time, the largest of several demands; without any it does not wait for it. `end` None = until
    the play ends.
    """

    entity: Entity
    direction: Direction
    broker: int
    bytes_per_second: float
    begin: int = 0
    end: int | None = None
    catch_up_bytes_per_second: float | None = None

    def wants(self, second: int) -> bool:
        return self.begin <= second and (self.end is None or second < self.end)


@dataclass(frozen=True, slots=True)
class Background:
    """What else goes through a broker's NIC: replication, clients that no tier names."""

    broker: int
    direction: Direction
    bytes_per_second: float
    begin: int = 0
    end: int | None = None

    def flows(self, second: int) -> bool:
        return self.begin <= second and (self.end is None or second < self.end)


@value(frozen=True, slots=True)
class Mute:
    """One mute of one member on one broker, as Kafka says it when it begins."""

    entity: Entity
    direction: Direction
    broker: int
    at_seconds: float
    seconds: float
    by_throttle: bool


@value(frozen=True, slots=True)
class Flow:
    """What one member did on one broker in one second, in bytes.

    `wanted` is new in this second. What was not moved of it was held by a throttle, by the
    contract, or by a full NIC; `caught_up` was held earlier and moved now. `muted` is the share of
    the second in which it was silent.
    """

    wanted: float
    moved: float
    held_by_throttle: float = 0.0
    held_by_contract: float = 0.0
    held_by_nic: float = 0.0
    caught_up: float = 0.0
    muted: float = 0.0

    @property
    def held_back(self) -> float:
        return self.held_by_throttle + self.held_by_contract + self.held_by_nic


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the cluster: bytes through each NIC, and what each member did that wanted."""

    at: int
    carried: Mapping[NicPlace, float]
    background: Mapping[NicPlace, float]
    flows: Mapping[BucketPlace, Flow]
    mutes: Sequence[Mute] = ()

    def through(self, broker: int, way: Direction) -> float:
        """Bytes through a NIC, in one direction or in both."""
        return sum([self.carried[broker, part] for part in way.parts])


@dataclass(slots=True)
class _Bucket:
    """One member's bucket on one broker, with what it still has to catch up on."""

    entity: Entity
    direction: Direction
    broker: int
    demands: list[Demand]
    ring: SampleRing
    quota: int | None = None
    is_throttled: bool = False
    muted_until_ms: int = -(10**9)
    waiting: float = 0.0
    mutes: list[tuple[int, int]] = field(default_factory=list)

    def offer(self, second: int) -> tuple[float, float]:
        """What it newly wants in this second, and what it would move with what waits."""
        fresh = sum([one.bytes_per_second for one in self.demands if one.wants(second)])
        if self.waiting <= _NOTHING:
            return fresh, fresh
        return fresh, min(self.waiting + fresh, max(fresh, self.fastest))

    @property
    def fastest(self) -> float:
        """How fast it goes while something waits; 0 = nothing ever waits."""
        return max([one.catch_up_bytes_per_second or 0.0 for one in self.demands], default=0.0)


class SimulatedCluster:
    """The cluster as it is at second `now`; `step` plays the next one.

    `limits` has an entry for every broker; capacities in it bound what its NIC carries.
    """

    def __init__(
        self,
        limits: Mapping[int, BrokerLimit],
        window: QuotaWindow,
        members: Iterable[BucketPlace],
        demands: Iterable[Demand],
        background: Iterable[Background] = (),
        *,
        now: int = 0,
    ) -> None:
        self.now = now
        self._limits = limits
        self._window = window
        self._background = tuple(background)
        self._buckets = {
            (key, broker): _Bucket(*key, broker, [], SampleRing(window)) for key, broker in members
        }
        for demand in demands:
            self._buckets[(demand.entity, demand.direction), demand.broker].demands.append(demand)
        self._at_nic: dict[NicPlace, list[_Bucket]] = {
            (broker, way): [] for broker in limits for way in Direction.COMBINED.parts
        }
        # what shares a NIC's capacity: one direction, or both
        self._shared: list[tuple[NicPlace, ...]] = []
        for broker, one in limits.items():
            places = tuple((broker, way) for way in Direction.COMBINED.parts)
            is_one = one.combined_capacity is not None
            self._shared += [places] if is_one else [(place,) for place in places]
        for bucket in self._buckets.values():
            if bucket.demands:  # who never wants anything is connected, and costs nothing
                self._at_nic[bucket.broker, bucket.direction].append(bucket)

    def set_quota(self, key: RateKey, quota: int | None, *, is_throttled: bool) -> None:
        """In force on all brokers from the next step on; None = no quota."""
        for bucket in self._of(key):
            bucket.quota, bucket.is_throttled = quota, is_throttled

    def byte_rate(self, place: BucketPlace) -> float:
        """What Kafka reports of it now, in bytes/s."""
        ring = self._buckets[place].ring
        return measure(ring, now_ms=self.now * 1000)[1].rate if ring.samples else 0.0

    def throttle_milliseconds(self, place: BucketPlace) -> float:
        """Kafka's mean throttle time of late; 0 where it was not muted."""
        since_ms = self.now * 1000 - _THROTTLE_TIME_MS
        bucket = self._buckets[place]
        bucket.mutes = [one for one in bucket.mutes if one[0] > since_ms]
        return sum(ms for _, ms in bucket.mutes) / len(bucket.mutes) if bucket.mutes else 0.0

    def places(self) -> Iterable[BucketPlace]:
        """Every member, way and broker that has a bucket."""
        return self._buckets.keys()

    @property
    def waiting_bytes(self) -> float:
        """What clients still want to catch up on."""
        return sum(bucket.waiting for bucket in self._buckets.values())

    def step(self) -> Second:
        """One second goes by."""
        carried: dict[NicPlace, float] = {}
        elsewhere: dict[NicPlace, float] = dict.fromkeys(self._at_nic, 0.0)
        flows: dict[BucketPlace, Flow] = {}
        mutes: list[Mute] = []
        for one in self._background:
            if one.flows(self.now):
                elsewhere[one.broker, one.direction] += one.bytes_per_second
        for places in self._shared:
            buckets = [bucket for place in places for bucket in self._at_nic[place]]
            offers = [_Offer(bucket, *bucket.offer(self.now)) for bucket in buckets]
            offers = [one for one in offers if one.offered > _NOTHING]
            other = sum([elsewhere[place] for place in places])
            share, grants = self._granted(places[0], offers, other)
            for place in places:
                elsewhere[place] *= share
                carried[place] = elsewhere[place]
            for offer, grant in zip(offers, grants, strict=True):
                flow = _taken(offer, grant, share)
                bucket = offer.bucket
                flows[(bucket.entity, bucket.direction), bucket.broker] = flow
                carried[bucket.broker, bucket.direction] += flow.moved
                mutes += [_mute(bucket, at_ms, muted_ms) for at_ms, muted_ms in grant.mutes]
        second = Second(self.now, carried, elsewhere, flows, tuple(mutes))
        self.now += 1
        return second

    def _granted(
        self, place: NicPlace, offers: Sequence["_Offer"], other: float
    ) -> tuple[float, list["_Grant"]]:
        """What quotas let through, and the share of all of it for which the NIC has room.

        `place` may stand for both directions, where these share one capacity.
        """
        grants = [self._grant(one.bucket, one.offered) for one in offers]
        capacity = self._limits[place[0]].capacity(place[1])
        asked = sum([one.moved for one in grants]) + other
        if capacity is None or asked <= capacity:
            return 1.0, grants
        share = capacity / asked
        grants = [self._grant(one.bucket, share * one.offered) for one in offers]
        # who is limited by a quota may still get all of that from a smaller offer
        left = capacity - share * other
        surplus = sum([one.moved for one in grants]) / max(left, _NOTHING)
        for one in grants:
            one.moved /= max(surplus, 1.0)
        return share, grants

    def _grant(self, bucket: _Bucket, offered: float) -> "_Grant":
        """What the quota lets through of this offer in this second; nothing of it is kept yet."""
        begins_ms, quota = self.now * 1000, bucket.quota
        is_awake = bucket.muted_until_ms <= begins_ms
        if is_awake and (quota is None or self._has_room(bucket, quota, offered)):
            ring = record(bucket.ring, offered, now_ms=begins_ms)
            return _Grant(ring, bucket.muted_until_ms, offered)
        grant = _Grant(bucket.ring, bucket.muted_until_ms, is_limited=True)
        now_ms = begins_ms
        while now_ms < begins_ms + 1000:
            if now_ms < grant.muted_until_ms:
                wakes_ms = min(grant.muted_until_ms, begins_ms + 1000)
                grant.silent_ms += wakes_ms - now_ms
                now_ms = wakes_ms
                continue
            grant.ring, passed, muted_ms = _request(
                grant.ring, bucket.direction, quota, offered / REQUESTS_A_SECOND, now_ms
            )
            grant.moved += passed
            if muted_ms:
                grant.muted_until_ms = now_ms + muted_ms
                grant.mutes.append((now_ms, muted_ms))
            if passed:
                now_ms += _STEP_MS
        return grant

    def _has_room(self, bucket: _Bucket, quota: int, offered: float) -> bool:
        """Whether no moment of this second can be above the quota: then no request is looked at."""
        shortest_seconds = max((self._window.samples - 1) * self._window.sample_seconds, 1)
        return most_held(bucket.ring) + offered <= quota * shortest_seconds

    def _of(self, key: RateKey) -> Iterable[_Bucket]:
        return (
            bucket for bucket in self._buckets.values() if (bucket.entity, bucket.direction) == key
        )


@value(frozen=True, slots=True)
class _Offer:
    """What a bucket newly wants in a second, and what it would move with what waits."""

    bucket: _Bucket
    fresh: float
    offered: float


@dataclass(slots=True)
class _Grant:
    """What a bucket gets in one second, and its state after it."""

    ring: SampleRing
    muted_until_ms: int
    moved: float = 0.0
    silent_ms: int = 0
    is_limited: bool = False
    mutes: list[tuple[int, int]] = field(default_factory=list)


def _taken(offer: _Offer, grant: _Grant, share: float) -> Flow:
    """Keep what was granted, and say what became of what was wanted."""
    bucket = offer.bucket
    bucket.ring, bucket.muted_until_ms = grant.ring, grant.muted_until_ms
    bucket.mutes += grant.mutes
    moved = min(grant.moved, offer.offered)
    held = max(0.0, offer.fresh - moved)
    # what the NIC had no room for; the rest was kept back by the quota
    by_nic = min(held, offer.fresh * (1.0 - share)) if grant.is_limited else held
    by_quota = held - by_nic
    if bucket.fastest:
        bucket.waiting = max(0.0, bucket.waiting + offer.fresh - moved)
    return Flow(
        offer.fresh,
        moved,
        by_quota if bucket.is_throttled else 0.0,
        0.0 if bucket.is_throttled else by_quota,
        by_nic,
        max(0.0, moved - offer.fresh),
        grant.silent_ms / 1000,
    )


def _mute(bucket: _Bucket, at_ms: int, muted_ms: int) -> Mute:
    return Mute(
        bucket.entity,
        bucket.direction,
        bucket.broker,
        at_ms / 1000,
        muted_ms / 1000,
        bucket.is_throttled,
    )


def _request(
    before: SampleRing, direction: Direction, quota: int | None, wanted: float, now_ms: int
) -> tuple[SampleRing, float, int]:
    """What one request moves, and for how many milliseconds the broker then mutes the client.

    A produce is taken in and counted before the mute; a fetch that is too much is answered empty,
    is not counted, and is never asked for more than an empty window holds.
    """
    if direction is Direction.EGRESS and quota is not None:
        window = before.window
        wanted = min(wanted, float(quota * max(window.samples - 1, 1) * window.sample_seconds))
    ring, measured = measure(record(before, wanted, now_ms=now_ms), now_ms=now_ms)
    muted_ms = 0 if quota is None else mute_ms(measured, quota)
    if muted_ms and direction is Direction.EGRESS:
        return before, 0.0, muted_ms
    return ring, wanted, muted_ms
