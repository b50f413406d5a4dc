"""A simulated Kafka cluster, second by second: quota windows, mutes, NICs, replication, backlog.

It is what `scenarios.py` plays the controller against, where real brokers would need hours. One
step is one second; amounts are bytes, rates bytes/s, arrays are entities or streams by broker.
What clients send is a fluid; how Kafka throttles it is computed as its brokers do, from a window of
eleven samples of one second. Not modelled: TCP, reconnecting clients, the time that ZooKeeper takes
beyond a second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, sqrt

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
WINDOW_SECONDS = 11
_NOTHING = 1e-6  # bytes: less is rounding
_PRODUCER_BUFFER_SECONDS = 30.0  # of its usual rate; more is refused to the application
_CATCHING_UP = 3.0  # a producer that was held back sends at most so many times its usual rate
_THROTTLE_TIME_DECAYS_SECONDS = 15.0
_NOISE, _NOISE_STAYS = 0.06, 0.95  # of a topic's rate, and how much of it a second later


class QuotaWindows:
    """What Kafka remembers of each entity on each broker, and for how long it mutes it.

    `fetch_bytes` is what a consumer asks for at once: it comes whole, or not at all.
    `inflight_bytes` is what a producer has under way: it is taken in before the mute begins.
    """

    def __init__(self, fetch_bytes: Array, inflight_bytes: Array, brokers: int) -> None:
        entities = len(fetch_bytes)
        self._samples = np.zeros((WINDOW_SECONDS, entities, brokers))
        self._now = 0
        self._muted_seconds = np.zeros((entities, brokers))
        self._fetch = fetch_bytes[:, None]
        self._inflight = inflight_bytes[:, None]
        self.total = np.zeros((entities, brokers))
        self.throttle_seconds = np.zeros((entities, brokers))
        self.longest_mute_seconds = np.zeros((entities, brokers))

    @property
    def rates(self) -> Array:
        """The byte rate that Kafka reports."""
        return self.total / WINDOW_SECONDS

    def forget(self, broker: int) -> None:
        """The broker is gone, with its windows and mutes."""
        self._samples[:, :, broker] = 0.0
        self.total[:, broker] = 0.0
        self._muted_seconds[:, broker] = 0.0

    def granted(self, offered: Array, quotas: Array, part: slice) -> Array:
        """What passes in this second of what these entities offer; mutes begin with it.

        A quota of infinity is none.
        """
        quota = np.broadcast_to(quotas[part][:, None], offered.shape)
        limited = np.isfinite(quota)
        rate = np.where(limited, np.maximum(quota, 1.0), 1.0)
        before, muted = self.total[part], self._muted_seconds[part]
        kept = before - self._samples[self._now][part]  # the oldest sample is about to go
        room = np.where(limited, rate * WINDOW_SECONDS - kept, inf)
        wanted = offered * np.clip(1.0 - muted, 0.0, 1.0)
        asks = wanted > _NOTHING
        # the broker shrinks a fetch to what the window could hold at all
        fetch = np.minimum(np.minimum(self._fetch[part], (WINDOW_SECONDS - 1) * rate), wanted)
        fetches = fetch > 0
        refused = limited & asks & (room < np.maximum(fetch, _NOTHING))
        under_way = np.minimum(wanted, self._inflight[part])
        most = np.minimum(wanted, np.maximum(room, self._inflight[part]))
        whole = np.where(
            fetches & (wanted > room),
            np.floor(most / np.maximum(fetch, _NOTHING) + 1e-9) * fetch,
            most,
        )
        taken_in = np.where(fetches, 0.0, under_way)
        passed = np.where(refused, taken_in, np.where(limited, whole, wanted))
        short = limited & (wanted > passed + 1e-3)
        first = np.where(
            fetches,
            (kept + fetch) / rate - (WINDOW_SECONDS - 1),
            (before + 0.5 * under_way) / rate - WINDOW_SECONDS,
        )
        mute = np.where(refused, np.maximum(first, 0.0), 0.0)
        # after whole fetches the next one is refused within the same second
        second = np.maximum((kept + passed + fetch) / rate - (WINDOW_SECONDS - 1), 0.0)
        second = np.where(short & ~refused & fetches, second, 0.0)
        used = np.minimum(1.0, passed / np.maximum(offered, _NOTHING))
        left = np.maximum(muted - 1.0, 0.0)
        left = np.maximum(left, np.where(refused, mute - 1.0, 0.0))
        self._muted_seconds[part] = np.maximum(left, np.where(second > 0, second - 1.0 + used, 0.0))
        longest = np.maximum(mute, second)
        self.longest_mute_seconds[part] = np.maximum(self.longest_mute_seconds[part], longest)
        lacking = np.maximum((wanted - passed) / rate, 0.05)
        shown = np.where(refused | (second > 0), np.maximum(longest, 0.1), 0.0)
        shown = np.where((shown == 0.0) & short, lacking, shown)
        decayed = self.throttle_seconds[part] * exp(-1.0 / _THROTTLE_TIME_DECAYS_SECONDS)
        self.throttle_seconds[part] = np.maximum(decayed, shown)
        return passed

    def record(self, sent: Array) -> None:
        """The second is over: what was sent is its sample."""
        self.total += sent - self._samples[self._now]
        self._samples[self._now] = sent
        self._now = (self._now + 1) % WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class Producer:
    """It writes one topic at about this rate (bytes/s), all its partitions alike."""

    user: str
    level: int
    bytes_per_second: float
    contract: float  # bytes/s for each partition


@dataclass(frozen=True, slots=True)
class Consumer:
    """It reads the topic of this number, as fast as it can up to `most_bytes_per_second`.

    It begins at `starts_at`, with `backlog_bytes` to read first. Consumers of one `user` share a
    quota.
    """

    user: str
    level: int
    topic: int
    most_bytes_per_second: float
    contract: float  # bytes/s for each partition
    starts_at: int = 0
    backlog_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic: its leader, and all its replicas (the leader among them)."""

    topic: int
    leader: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerDeath:
    """A broker goes and comes back; later the leaders move to where they were."""

    broker: int
    at: int
    back_at: int
    leaders_back_at: int


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What a cluster is made of. Rates are bytes/s.

    `producers` has one for each topic, in the order of topics. `demand` is the factor on what
    producers write at a second; `foreign` what else leaves each broker; `endless` adds bytes/s for
    a consumer (by its place) to read on each broker that leads for it. `limits` are every broker's,
    egress and ingress, at a second. `fetch_bytes` are asked for at once for each partition that
    one broker leads; `catch_up` is how fast a broker fetches what it missed.
    """

    producers: Sequence[Producer]
    consumers: Sequence[Consumer]
    partitions: Sequence[Partition]
    brokers: int
    capacity: float
    limits: Callable[[int], tuple[float, float]]
    demand: Callable[[int], float]
    fetch_bytes: float
    inflight_bytes: float
    deaths: Sequence[BrokerDeath] = ()
    catch_up: float = 0.0
    foreign: Callable[[int], Mapping[int, float]] = lambda _: {}
    endless: Callable[[int], Mapping[int, float]] = lambda _: {}
    noisy: bool = True


@dataclass(slots=True)
class Entity:
    """One quota entity: its streams, and the most important level and largest contract of them."""

    user: str
    consumes: bool
    level: int
    contract: float
    topics: tuple[int, ...]
    streams: list[int] = field(default_factory=list)


class Plant:
    """The cluster as it runs. `step` is one second; `quotas` of entities obey a second later."""

    def __init__(self, blueprint: Blueprint, seed: int) -> None:
        self._blueprint = blueprint
        self._random = np.random.default_rng(seed)
        self._streams = [*blueprint.producers, *blueprint.consumers]
        self._writers = len(blueprint.producers)
        self.entities, self.owners = _entities(blueprint)
        self._first_reader = sum(not one.consumes for one in self.entities)
        self._partition_topic = np.array([one.topic for one in blueprint.partitions])
        self._leaders = np.array([one.leader for one in blueprint.partitions])
        self._home = self._leaders.copy()
        self.alive = np.ones(blueprint.brokers, bool)
        self._topic = np.array([*range(self._writers), *(one.topic for one in blueprint.consumers)])
        self._usual = np.array([one.bytes_per_second for one in blueprint.producers])
        self._most = np.array([one.most_bytes_per_second for one in blueprint.consumers])
        self._starts = np.array([one.starts_at for one in blueprint.consumers])
        self._place()
        shape = (len(self._streams), blueprint.brokers)
        self.backlog = np.zeros(shape)
        self.quotas = np.full(len(self.entities), inf)
        self._obeyed = self.quotas.copy()
        self._coming: list[tuple[int, int, float]] = []
        self.windows = QuotaWindows(*self._requests(), blueprint.brokers)
        self._wobble = np.zeros(self._writers)
        self._squeeze = np.ones(blueprint.brokers)
        self._missed = np.zeros(blueprint.brokers)
        self._behind = np.zeros(blueprint.brokers)
        self.now = 0
        self.egress = np.zeros(blueprint.brokers)
        self.ingress = np.zeros(blueprint.brokers)
        self.moved = np.zeros((2, blueprint.brokers))  # counters: out, in

    def _requests(self) -> tuple[Array, Array]:
        fetch = np.array(
            [
                self._blueprint.fetch_bytes * max(1.0, self.leaders_of(one).max())
                if one.consumes
                else 0.0
                for one in self.entities
            ]
        )
        inflight = [
            0.0 if one.consumes else self._blueprint.inflight_bytes for one in self.entities
        ]
        return fetch, np.array(inflight)

    def _place(self) -> None:
        """Shares of topics by broker, and what is copied from where to where."""
        blueprint, topics = self._blueprint, self._writers
        self.leading = np.zeros((topics, blueprint.brokers))
        copies = np.zeros((topics, blueprint.brokers, blueprint.brokers))
        np.add.at(self.leading, (self._partition_topic, self._leaders), 1.0)
        for number, partition in enumerate(blueprint.partitions):
            leader = self._leaders[number]
            for replica in partition.replicas:
                if replica != leader and self.alive[replica]:
                    copies[partition.topic, leader, replica] += 1.0
        self._share = self.leading / self.leading.sum(1, keepdims=True)
        self._copies = copies / np.maximum(self.leading, 1.0)[:, :, None]

    def leaders_of(self, entity: Entity) -> Array:
        """How many partitions each broker leads for it."""
        topics: Array = self.leading[list(entity.topics)].sum(0)
        return topics

    def set_quota(self, entity: int, bytes_per_second: float) -> None:
        """Written now; brokers obey from the next second on."""
        self.quotas[entity] = bytes_per_second
        self._coming.append((self.now + 1, entity, bytes_per_second))

    def step(self) -> None:
        """One second goes by."""
        self._obey()
        self._die_and_return()
        blueprint, first = self._blueprint, self._writers
        due = self._arriving()
        arriving = due[:, None] * self._share
        offered = _at_most((arriving + self.backlog[:first]) * self.alive, _CATCHING_UP * due)
        # with acks=all a producer is as slow as the brokers that its records are copied from
        written = self._pass(offered, slice(0, self._first_reader)) * self._squeeze
        copied = np.einsum("tl,tlf->f", written, self._copies)
        room = np.maximum(blueprint.capacity - written.sum(0) - copied, 0.0)
        caught_up = np.minimum(self._behind, np.minimum(room, blueprint.catch_up))
        coming_in = written.sum(0) + copied + caught_up
        written = written * np.minimum(1.0, blueprint.capacity / np.maximum(coming_in, 1.0))
        copied = np.einsum("tl,tlf->f", written, self._copies)
        sent_copies = (written * self._copies.sum(2)).sum(0) + self._foreign()
        sent_copies += self._sent_to_those_behind(caught_up)
        read_now = written[self._topic[first:]] * (self.now >= self._starts)[:, None]
        self._begin_reading()
        readable = (self.backlog[first:] + read_now) * self.alive
        readable *= (self.now >= self._starts)[:, None]
        read = self._pass(
            _at_most(readable, self._most), slice(self._first_reader, len(self.entities))
        )
        self._squeeze = np.minimum(
            1.0, blueprint.capacity / np.maximum(read.sum(0) + sent_copies, 1.0)
        )
        read = read * self._squeeze
        sent_copies = sent_copies * self._squeeze
        self.windows.record(self._by_entity(np.vstack([written, read])))
        self._behind = np.maximum(self._behind - caught_up, 0.0)
        self._missed[~self.alive] += copied.sum() / max(self.alive.sum(), 1)
        waiting = np.maximum(self.backlog[:first] + arriving - written, 0.0)
        full = _PRODUCER_BUFFER_SECONDS * arriving + 1e-3
        self.backlog[:first] = np.minimum(waiting, full)
        self.backlog[first:] = np.maximum(self.backlog[first:] + read_now - read, 0.0)
        self.egress = read.sum(0) + sent_copies
        self.ingress = written.sum(0) + copied + caught_up
        self.moved += np.vstack([self.egress, self.ingress])
        self.now += 1

    def _obey(self) -> None:
        for _, entity, quota in (one for one in self._coming if one[0] <= self.now):
            self._obeyed[entity] = quota
        self._coming = [one for one in self._coming if one[0] > self.now]

    def _die_and_return(self) -> None:
        for death in self._blueprint.deaths:
            if self.now == death.at:
                self.alive[death.broker] = False
                self._squeeze[death.broker] = 1.0
                self._missed[death.broker] = 0.0
                self._move_leaders(self._without(death.broker))
                self.windows.forget(death.broker)
            elif self.now == death.back_at:
                self.alive[death.broker] = True
                self._behind[death.broker] = self._missed[death.broker]
                self._place()
            elif self.now == death.leaders_back_at:
                self._move_leaders(self._home.copy())

    def _without(self, broker: int) -> npt.NDArray[np.int64]:
        leaders = self._leaders.copy()
        for number, partition in enumerate(self._blueprint.partitions):
            if leaders[number] == broker:
                others = [one for one in partition.replicas if one != broker and self.alive[one]]
                leaders[number] = others[number % len(others)]
        return leaders

    def _move_leaders(self, leaders: npt.NDArray[np.int64]) -> None:
        """What waited on the old leader of a partition waits on the new one."""
        before, leading = self._leaders, self.leading.copy()
        moved: dict[tuple[int, int, int], float] = {}
        for topic, old, new in zip(self._partition_topic, before, leaders, strict=True):
            if old != new:
                moved[topic, old, new] = moved.get((topic, old, new), 0.0) + 1.0
        backlog = self.backlog.copy()
        for (topic, old, new), partitions in moved.items():
            streams = np.nonzero(self._topic == topic)[0]
            amount = self.backlog[streams, old] * partitions / leading[topic, old]
            backlog[streams, old] -= amount
            backlog[streams, new] += amount
        self.backlog = np.maximum(backlog, 0.0)
        self._leaders = leaders
        self._place()

    def _arriving(self) -> Array:
        """What applications hand to their producers in this second."""
        if self._blueprint.noisy:
            shock = self._random.standard_normal(self._writers)
            spread = _NOISE * sqrt(1 - _NOISE_STAYS**2)
            self._wobble = _NOISE_STAYS * self._wobble + spread * shock
        arriving: Array = self._usual * self._blueprint.demand(self.now) * np.exp(self._wobble)
        return arriving

    def _foreign(self) -> Array:
        foreign = np.zeros(self._blueprint.brokers)
        for broker, rate in self._blueprint.foreign(self.now).items():
            foreign[broker] = rate
        return foreign

    def _sent_to_those_behind(self, caught_up: Array) -> Array:
        """A broker that came back fetches what it missed from all the others alike."""
        sent = np.zeros(self._blueprint.brokers)
        for broker in np.nonzero(caught_up > 0)[0]:
            others = self.alive.astype(float)
            others[broker] = 0.0
            sent += caught_up[broker] * others / others.sum()
        return sent

    def _begin_reading(self) -> None:
        first = self._writers
        for number, consumer in enumerate(self._blueprint.consumers):
            if consumer.backlog_bytes and self.now == consumer.starts_at:
                share = self._share[consumer.topic]
                self.backlog[first + number] += consumer.backlog_bytes * share
        for number, rate in self._blueprint.endless(self.now).items():
            topic = self._blueprint.consumers[number].topic
            self.backlog[first + number] += rate * (self.leading[topic] > 0)

    def _pass(self, offered: Array, part: slice) -> Array:
        """What passes of each stream: streams of one entity share what its window grants."""
        owners = self.owners[: self._writers] if part.start == 0 else self.owners[self._writers :]
        together = np.zeros((part.stop - part.start, offered.shape[1]))
        np.add.at(together, owners - part.start, offered)
        granted = self.windows.granted(together, self._obeyed, part)
        share = np.where(together > _NOTHING, granted / np.maximum(together, _NOTHING), 0.0)
        passed: Array = offered * share[owners - part.start]
        return passed

    def _by_entity(self, sent: Array) -> Array:
        together = np.zeros((len(self.entities), sent.shape[1]))
        np.add.at(together, self.owners, sent)
        return together


def _at_most(offered: Array, most: Array) -> Array:
    """Each row scaled down to the most that its client sends on all brokers together."""
    scale = np.minimum(1.0, most / np.maximum(offered.sum(1), _NOTHING))
    scaled: Array = offered * scale[:, None]
    return scaled


def _entities(blueprint: Blueprint) -> tuple[list[Entity], npt.NDArray[np.int64]]:
    """Producers first, each with its own quota; then consumers, by user."""
    found: dict[tuple[str, bool], int] = {}
    entities: list[Entity] = []
    of_stream: list[int] = []
    streams = [
        *(
            (one.user, False, one.level, one.contract, n)
            for n, one in enumerate(blueprint.producers)
        ),
        *((one.user, True, one.level, one.contract, one.topic) for one in blueprint.consumers),
    ]
    for number, (user, consumes, level, contract, topic) in enumerate(streams):
        place = found.setdefault((user, consumes), len(entities))
        if place == len(entities):
            entities.append(Entity(user, consumes, level, contract, (topic,)))
        one = entities[place]
        one.level, one.contract = min(one.level, level), max(one.contract, contract)
        one.topics = tuple(dict.fromkeys((*one.topics, topic)))
        one.streams.append(number)
        of_stream.append(place)
    return entities, np.array(of_stream)
