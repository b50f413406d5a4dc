"""The words of the control pass as immutable values: what is declared, observed and written.

Byte rates are integers in bytes per second and always per broker unless the name says otherwise;
times are seconds since the epoch as the caller's clock gave them. Nothing here computes: see the
modules named after each step. Mappings are treated as immutable everywhere. What a pass decides and
remembers is in `decision.py`.

What a pass makes by the thousand is frozen for mypy only: see `value.py`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from math import inf, isfinite, nan
from typing import NamedTuple, Self

from tidegate_logic.reasons import NewerReason, Reason
from tidegate_logic.recurrence import Recurrence, Window
from tidegate_logic.value import value


class Default(Enum):
    """Kafka's default entity; an own value, so that a user called `<default>` stays a string."""

    # an enum's own is a Python call, and entities are looked up thousands of times in a pass
    __hash__ = object.__hash__

    DEFAULT = "<default>"


EntityPart = str | Default | None

_DEFAULT = Default.DEFAULT


class _EntityParts(NamedTuple):
    user: EntityPart = None
    client_id: EntityPart = None


class Entity(_EntityParts):
    """Whom a quota is for: a user, a client id, or the pair; each part may be Kafka's default.

    None = not part of it. A tuple, because a pass looks entities up thousands of times, and a tuple
    is hashed and compared without a call.
    """

    __slots__ = ()

    def __new__(cls, user: EntityPart = None, client_id: EntityPart = None) -> Self:
        """Make one. Raises ValueError if nothing is named, or by an empty name."""
        if user is None and client_id is None:
            raise ValueError("an entity needs a user, a client id, or both")
        if user == "" or client_id == "":
            raise ValueError("an entity's user and client id must not be empty")
        return super().__new__(cls, user, client_id)

    def __str__(self) -> str:
        parts = (("user", self.user), ("client-id", self.client_id))
        return ", ".join(
            f"{name}={part.value if isinstance(part, Default) else part}"
            for name, part in parts
            if part is not None
        )

    @property
    def is_default(self) -> bool:
        """Whether Kafka's default user or default client id is part of it."""
        return self.user is _DEFAULT or self.client_id is _DEFAULT

    @property
    def sort_key(self) -> str:
        """An order for people: absent, default, then names; a user before that user's clients."""
        user, client = self
        first = "" if user is None else "1" if user is _DEFAULT else f"2{user}"
        return (
            f"{first}\0"
            if client is None
            else f"{first}\0001"
            if client is _DEFAULT
            else f"{first}\0002{client}"
        )


# The closed lists of words that resources, ledger and decisions share.


class QuotaKey(StrEnum):
    """The four client quota keys by Kafka's own names; byte rates are per broker."""

    # an enum's own is a Python call, and these are looked up a hundred thousand times in a pass
    __hash__ = str.__hash__

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


class Level(StrEnum):
    """How important a tier is; L0 is never throttled below its contract."""

    __hash__ = str.__hash__

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Mode(StrEnum):
    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class DeletionPolicy(StrEnum):
    RESTORE = "Restore"
    RETAIN = "Retain"


class ScalingMethod(StrEnum):
    MAX = "Max"
    MEAN = "Mean"
    MIN = "Min"
    ADAPTIVE = "Adaptive"


class ShareGroupRule(StrEnum):
    """What a share group that uses a member means for its fetch quota.

    Protect: there is none. Throttle: it stays, and no lowering mutes for long beside the group's
    record lock.
    """

    PROTECT = "Protect"
    THROTTLE = "Throttle"


class Speed(StrEnum):
    """How an entity moves to its throttled rate: by safe steps, or by drain-then-set where safe."""

    LADDER = "Ladder"
    DRAIN = "Drain"


class RateForm(StrEnum):
    """In which form a rate is promised."""

    __hash__ = str.__hash__

    PER_PARTITION = "perPartition"
    PER_BROKER = "perBroker"
    TOTAL = "total"


# What was measured: NICs of brokers, and bytes and throttling by client.
#
# Rates are bytes per second as floats, because they are measurements; times are seconds since the
# epoch and belong to the sample, not to the moment of the question. Nothing here judges whether a
# reading may be used: that is `nic_status.py`'s.


class Direction(StrEnum):
    """Which way bytes go through a broker's NIC; consumers fill egress, producers ingress.

    COMBINED is both as one, for NICs that are metered so; no client's rate is of it.
    """

    __hash__ = str.__hash__

    EGRESS = "egress"
    INGRESS = "ingress"
    COMBINED = "combined"

    @property
    def parts(self) -> "tuple[Direction, ...]":
        """The directions of client rates that fill it."""
        return tuple(KEY_OF) if self is Direction.COMBINED else (self,)


RateKey = tuple[Entity, Direction]


@dataclass(frozen=True, slots=True)
class NicSpan:
    """Mean rate of one broker's NIC between two neighbouring samples; `at_seconds` of the later."""

    at_seconds: float
    seconds: float
    bytes_per_second: float


@value(frozen=True, slots=True)
class ClientRate:
    """What Kafka says of one quota entity on one broker, in one direction.

    `entity` is the one whose quota meters the client, by the tags of the broker's metric.
    `throttle_milliseconds` is Kafka's own mean throttle time; None = that series is missing, which
    is not the same as zero.
    """

    at_seconds: float
    bytes_per_second: float
    throttle_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReadingProblem:
    """A reading that is missing or cannot be trusted, for people; `broker` None = all of them.

    `directions` are those of NICs that it concerns; empty = it is of no NIC, or of both directions.
    """

    reason: Reason
    message: str
    broker: int | None = None
    directions: tuple[Direction, ...] = ()


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface that counts as a broker's NIC, and what it carried in about a minute."""

    name: str
    egress_bytes_per_second: float
    ingress_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Exporter:
    """Where Prometheus reads a broker's NIC: the label `instance`, and the newest scrape.

    `counters` are bytes by interface, those that count as the NIC.
    """

    instance: str
    at_seconds: float
    counters: Mapping[Direction, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class DirectReading:
    """What was read from a broker's own exporter since then; spans are oldest first."""

    since_seconds: float
    by_direction: Mapping[Direction, tuple[NicSpan, ...]] = field(default_factory=dict)

    def spans(self, direction: Direction) -> tuple[NicSpan, ...]:
        """The spans of a NIC; combined ones as far as both directions were read."""
        read = [self.by_direction.get(part, ()) for part in direction.parts]
        return read[0] if len(read) == 1 else _sums(*read)


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything measured that one pass knows. What is absent is unknown, never zero.

    `nic` holds the spans of about the last minute, oldest first, for each broker and direction.
    `clients` holds the newest rate of each entity on each broker. `scrape_seconds` is how often a
    new sample is to be expected; `problems` name what is missing and why. `interfaces` are those
    that `nic` adds up, by name, for people; a broker is absent where its source has no interfaces.
    `exporters` are the brokers' own, where they are asked for; `direct` is what those said since.
    `background` is what brokers count of tiered storage, where that is asked for.

    `by_sender`, `busiest`, `totals` (bytes/s) and `clients_read_seconds`, the oldest and the newest
    of them, follow from `clients`. They are made once here, because many passes look at the same
    readings.
    """

    read_at_seconds: float
    scrape_seconds: float
    nic: Mapping[tuple[int, Direction], tuple[NicSpan, ...]] = field(default_factory=dict)
    clients: Mapping[tuple[Entity, int, Direction], ClientRate] = field(default_factory=dict)
    problems: tuple[ReadingProblem, ...] = ()
    interfaces: Mapping[int, tuple[Interface, ...]] = field(default_factory=dict)
    exporters: Mapping[int, Exporter] = field(default_factory=dict)
    direct: Mapping[int, DirectReading] = field(default_factory=dict)
    background: "BackgroundSpans" = field(default_factory=dict)
    by_sender: Mapping[RateKey, Mapping[int, ClientRate]] = field(
        init=False, repr=False, compare=False
    )
    busiest: Mapping[RateKey, ClientRate] = field(init=False, repr=False, compare=False)
    totals: Mapping[tuple[int, Direction], float] = field(init=False, repr=False, compare=False)
    clients_read_seconds: tuple[float, float] = field(init=False, repr=False, compare=False)

    def spans(self, broker: int, direction: Direction) -> tuple[NicSpan, ...]:
        """The spans of a NIC; combined ones as far as both directions were read."""
        read = [self.nic.get((broker, part), ()) for part in direction.parts]
        return read[0] if len(read) == 1 else _sums(*read)

    def __post_init__(self) -> None:
        by_sender, totals = by_sender_and_broker(self.clients)
        times = [rate.at_seconds for rate in self.clients.values()] or [self.read_at_seconds]
        object.__setattr__(self, "by_sender", by_sender)
        object.__setattr__(self, "busiest", busiest_of(by_sender))
        object.__setattr__(self, "totals", totals)
        object.__setattr__(self, "clients_read_seconds", (min(times), max(times)))

    def with_direct(
        self, direct: Mapping[int, DirectReading], problems: tuple[ReadingProblem, ...]
    ) -> Self:
        """The same with these direct readings, and further problems.

        Clients are not added up again: there may be a million, and this happens every few seconds.
        """
        more = copy(self)
        object.__setattr__(more, "direct", direct)
        object.__setattr__(more, "problems", (*self.problems, *problems))
        return more


def _sums(spans: tuple[NicSpan, ...], others: tuple[NicSpan, ...]) -> tuple[NicSpan, ...]:
    """Each span with what the others carried in it; left out where they do not cover it."""
    found = []
    for one in spans:
        begin_seconds, covered, carried = one.at_seconds - one.seconds, 0.0, 0.0
        for other in others:
            seconds = min(one.at_seconds, other.at_seconds) - max(
                begin_seconds, other.at_seconds - other.seconds
            )
            if seconds > 0:
                covered += seconds
                carried += seconds * other.bytes_per_second
        if covered >= one.seconds - _COVERS_SECONDS and covered > 0:
            # an absurd part must not hide in a sum that is not
            absurd = one.bytes_per_second < 0 or carried < 0
            rate = nan if absurd else one.bytes_per_second + carried / covered
            found.append(NicSpan(one.at_seconds, one.seconds, rate))
    return tuple(found)


_COVERS_SECONDS = 0.001  # clocks' rounding


def by_sender_and_broker(
    clients: Mapping[tuple[Entity, int, Direction], ClientRate],
) -> tuple[Mapping[RateKey, Mapping[int, ClientRate]], Mapping[tuple[int, Direction], float]]:
    """Client rates by entity and direction, and their sums by broker in bytes/s.

    Rates that are negative or not finite are left out.
    """
    by_sender: dict[RateKey, dict[int, ClientRate]] = {}
    totals: dict[tuple[int, Direction], float] = {}
    for (entity, broker, direction), rate in clients.items():
        bytes_per_second = rate.bytes_per_second
        if 0 <= bytes_per_second < inf and isfinite(rate.at_seconds):
            by_sender.setdefault((entity, direction), {})[broker] = rate
            totals[broker, direction] = totals.get((broker, direction), 0.0) + bytes_per_second
    return by_sender, totals


def busiest_of(
    by_sender: Mapping[RateKey, Mapping[int, ClientRate]],
) -> Mapping[RateKey, ClientRate]:
    """The newest time, the highest rate and the longest throttle time of each, on any broker."""
    return {key: _busiest(flows.values()) for key, flows in by_sender.items() if flows}


def _busiest(flows: Collection[ClientRate]) -> ClientRate:
    throttled = [flow.throttle_milliseconds for flow in flows if flow.throttle_milliseconds]
    return ClientRate(
        max([flow.at_seconds for flow in flows]),
        max([flow.bytes_per_second for flow in flows]),
        max([milliseconds for milliseconds in throttled if milliseconds > 0], default=None),
    )


# The one translation between fetch and produce, quota keys, and directions of a NIC.
BYTE_RATE_OF = {"fetch": QuotaKey.CONSUMER_BYTE_RATE, "produce": QuotaKey.PRODUCER_BYTE_RATE}
KEY_OF = {Direction.EGRESS: BYTE_RATE_OF["fetch"], Direction.INGRESS: BYTE_RATE_OF["produce"]}
DIRECTION_OF = {key: direction for direction, key in KEY_OF.items()}
BYTE_RATE_KEYS = frozenset(DIRECTION_OF)


class BackgroundKind(StrEnum):
    """Bytes that brokers move for themselves, apart from replication; Kafka has a rate for each."""

    REMOTE_COPY = "RemoteCopy"
    REMOTE_FETCH = "RemoteFetch"
    LOG_DIRS = "LogDirs"


@dataclass(frozen=True, slots=True)
class ReplicationBeside:
    """What replication means for the clients on one side of a NIC, in bytes/s.

    `gives` is how much it is slowed down, before any level is. `leaves` has each level that makes
    room for more important replication there: what it and the levels below it may send together
    above their throttled rates, while that replication has what it can use.
    """

    gives: float = 0.0
    leaves: Mapping[Level, float] = field(default_factory=dict)


ReplicationOnNics = Mapping[tuple[int, Direction], ReplicationBeside]
# by broker and kind, oldest first
BackgroundSpans = Mapping[tuple[int, BackgroundKind], tuple[NicSpan, ...]]


# What people declare of the brokers' NICs: limits above which tiers are throttled, and speeds.


@dataclass(frozen=True, slots=True)
class BrokerLimit:
    """A broker's limits and its NIC's own speed, in bytes/s. None = no limit; speed not known.

    One with a limit on both directions combined has none on a single one.
    """

    egress: int | None = None
    ingress: int | None = None
    egress_capacity: int | None = None
    ingress_capacity: int | None = None
    combined: int | None = None
    combined_capacity: int | None = None

    def limit(self, direction: Direction) -> int | None:
        if direction is Direction.COMBINED:
            return self.combined
        return self.egress if direction is Direction.EGRESS else self.ingress

    def limit_of_rates(self, direction: Direction) -> int | None:
        """The limit that client rates of this direction count against."""
        return self.limit(direction) if self.combined is None else self.combined

    def capacity(self, direction: Direction) -> int | None:
        """The speed of the NIC; what both directions share bounds each of them."""
        own = {
            Direction.EGRESS: self.egress_capacity,
            Direction.INGRESS: self.ingress_capacity,
        }.get(direction)
        return self.combined_capacity if own is None else own


def metered(limits: Iterable[BrokerLimit]) -> tuple[Direction, ...]:
    """How the NICs of brokers with these limits are judged: each direction, or both as one."""
    if any(one.combined is not None for one in limits):
        return (Direction.COMBINED,)
    return tuple(KEY_OF)


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The limit of every broker, and of the brokers that have one of their own.

    What an exception does not set is already filled in from `everywhere`.
    """

    everywhere: BrokerLimit = BrokerLimit()
    exceptions: Mapping[int, BrokerLimit] = field(default_factory=dict)

    def of(self, broker: int) -> BrokerLimit:
        return self.exceptions.get(broker, self.everywhere)


# What usage tables say of the members of tiers, and how contracts may follow from it.
#
# A rollup Job makes the figures from tables of five minutes. The caller that puts usage into an
# observation has checked that they are still good.


@dataclass(frozen=True, slots=True)
class DirectionUsage:
    """What one entity moved one way over the whole window; bytes/s, means of five minutes each.

    `p99_total` is what 99 % of all five minutes stayed under, on all brokers together;
    `p99_busiest` the same on the broker where it is highest; `brokers` how many brokers the entity
    moved bytes on. `coverage` is the share of the window that samples cover, and `throttled_share`
    the share of it in which the entity was held below its contract (both 0 to 1).
    """

    p99_total: float
    p99_busiest: float
    brokers: int
    coverage: float
    throttled_share: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage by entity and byte rate; an entity without figures is absent.

    `days` is how long the window was, `until_seconds` when it ended. `which` names it in messages:
    the `last` days, or the `reported` ones, which may be long past.
    """

    days: float
    until_seconds: float
    figures: Mapping[tuple[Entity, QuotaKey], DirectionUsage] = field(default_factory=dict)
    which: str = "last"


@dataclass(frozen=True, slots=True)
class AdviceTerms:
    """A policy's terms for recommendations. `max_change_percent` None = shown, never applied."""

    headroom_percent: int = 30
    max_change_percent: int | None = None


@value(frozen=True, slots=True)
class Advice:
    """What usage says of one byte rate of a contract, in the contract's form and bytes/s.

    `recommended` None = nothing, for `reason`. `applied` is what stands instead of `declared`;
    None = the declared rate stands.
    """

    tier_key: str
    member_name: str
    key: QuotaKey
    declared: int
    reason: Reason
    message: str
    recommended: int | None = None
    applied: int | None = None


MAX_BYTE_RATE = 2**53 - 1
STALE_AFTER_SECONDS = 45.0  # three scrapes of the usual 15 s
_MEASURED_STEP_DISTANCE = (30, 11)  # seconds between safe steps, for a window of so many seconds
MIN_BYTE_RATE = 1024  # a smaller Kafka quota throttles nothing (kafka-quotas 4.6)
_JAVA_BUFFER_BYTES = 32 * 1024 * 1024  # buffer.memory of the Java producer
_JAVA_DELIVERY_SECONDS = 120  # delivery.timeout.ms
# below these, clients break: 0.28 MB/s, or a full buffer expires ...
PRODUCER_FLOOR_BYTES_PER_SECOND = -(-_JAVA_BUFFER_BYTES // _JAVA_DELIVERY_SECONDS)
# ... and a fetch of a partition's usual 1 MiB in about a second
CONSUMER_FLOOR_BYTES_PER_SECOND = 1_000_000


# --- what is declared ---


@dataclass(frozen=True, slots=True)
class Contract:
    """What a member is promised: byte rates in one form, and two per-broker quotas.

    None = not managed. `override_only_keys` are the byte rates that only an override or a budget
    gives: they end with it. A contract that `is_empty` limits nothing.
    """

    form: RateForm
    fetch_bytes_per_second: int | None = None
    produce_bytes_per_second: int | None = None
    request_percentage: int | None = None
    controller_mutations_per_second: int | None = None
    override_only_keys: frozenset[QuotaKey] = frozenset()
    is_empty: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        byte_rates = (
            self.fetch_bytes_per_second is not None or self.produce_bytes_per_second is not None
        )
        is_empty = (
            not byte_rates
            and self.request_percentage is None
            and self.controller_mutations_per_second is None
        )
        object.__setattr__(self, "is_empty", is_empty)

    def byte_rate(self, key: QuotaKey) -> int | None:
        """The byte rate that it names for this key; None for keys that are no byte rates."""
        if key is QuotaKey.CONSUMER_BYTE_RATE:
            return self.fetch_bytes_per_second
        return self.produce_bytes_per_second if key is QuotaKey.PRODUCER_BYTE_RATE else None

    def gives(self, key: QuotaKey) -> bool:
        """Whether it names a byte rate for this key."""
        return self.byte_rate(key) is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One entity of a tier. `topics` are names, or prefixes ending in `*`; no contract = unlimited.

    `override` is the key of the override that is laid over the contract, None = none; an `exempt`
    member is never throttled. `labels` are for bills and for budgets. `racks` are where
    its consumers are (their client.rack); empty = not declared.
    `share_group_names` are those that its clients use, as far as that is declared: names, or
    prefixes ending in `*`. A pass fills in what follows from share groups that run now:
    `protected` says why there is no fetch quota ("" = there may be one), `longest_mute_seconds`
    bounds a lowering beside what the policy allows.
    """

    name: str
    entity: Entity
    topics: tuple[str, ...] = ()
    contract: Contract | None = None
    exempt: bool = False
    override: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    share_groups: ShareGroupRule = ShareGroupRule.PROTECT
    share_group_names: tuple[str, ...] = ()
    protected: str = ""
    longest_mute_seconds: int | None = None
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """One BusinessTier. `key` is namespace/name.

    Tiers are given to the core oldest first (that one wins an overlap). `throttled` is what members
    drop to while a broker is over its limit, at most once in each form.
    """

    key: str
    level: Level
    members: tuple[Member, ...]
    throttled: tuple[Contract, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """The brokers' quota.window.num and quota.window.size.seconds, and times that follow from them.

    `seconds` is W, how long the window is when all samples are kept. `sawtooth_period_seconds` is
    the rhythm of a throttled client: it sends its whole window at once and then waits for it to
    empty. `step_distance_seconds` is how long to wait between two lowerings, so that the next one
    does not meet the burst that follows a mute: 30 s were measured for a window of 11 s; others in
    proportion.
    """

    samples: int = 11
    sample_seconds: int = 1
    seconds: int = field(init=False, repr=False, compare=False)
    sawtooth_period_seconds: int = field(init=False, repr=False, compare=False)
    step_distance_seconds: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seconds = self.samples * self.sample_seconds
        distance_seconds, of_window_seconds = _MEASURED_STEP_DISTANCE
        object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "sawtooth_period_seconds", seconds + self.sample_seconds)
        object.__setattr__(
            self, "step_distance_seconds", -(-seconds * distance_seconds // of_window_seconds)
        )


@dataclass(frozen=True, slots=True)
class Override:
    """One QuotaOverride, for one `entity` or a whole `level`. `key` is namespace/name.

    It either sets `rates` (byte rates only, one of them at least) or, without them, exempts from
    throttling. It lasts from `starts_at_seconds` until `expires_at_seconds`; with a `recurrence`,
    only at its times in between. Overrides are given to the core oldest first (of two equals that
    one wins).
    """

    key: str
    expires_at_seconds: float
    reason: str
    entity: Entity | None = None
    level: Level | None = None
    rates: Contract | None = None
    starts_at_seconds: float = 0.0
    recurrence: Recurrence | None = None

    @property
    def exempt(self) -> bool:
        """Whether it leaves the contract as it is and only forbids throttling."""
        return self.rates is None

    @property
    def target(self) -> str:
        """Whom it is for, in words: an entity, or a level."""
        return str(self.entity) if self.level is None else self.level.value

    def sets(self, key: QuotaKey) -> bool:
        """Whether it says what this byte rate is."""
        return self.rates is not None and self.rates.gives(key)

    def window(self, now_seconds: float) -> Window | None:
        """The time of it that the moment is in, or the next one; None = it is over."""
        begin_seconds, end_seconds = self.starts_at_seconds, self.expires_at_seconds
        if self.recurrence is not None and now_seconds < end_seconds:
            stretch = self.recurrence.stretch(max(now_seconds, begin_seconds))
            begin_seconds = max(begin_seconds, stretch.begin_seconds)
            end_seconds = min(end_seconds, stretch.end_seconds)
        is_over = now_seconds >= end_seconds or begin_seconds >= end_seconds
        return None if is_over else Window(begin_seconds, end_seconds)

    def lasts(self, now_seconds: float) -> bool:
        window = self.window(now_seconds)
        return window is not None and window.has(now_seconds)

    def until_seconds(self, now_seconds: float) -> float:
        """When it ends: while it lasts, this time of it; else for good."""
        window = self.window(now_seconds)
        is_known = window is not None and window.has(now_seconds)
        return window.end_seconds if window and is_known else self.expires_at_seconds

    def names(self, tier: Tier, member: Member) -> bool:
        """Whether it is for this member: user and client id exactly, or the level of its tier."""
        return tier.level is self.level or member.entity == self.entity


@dataclass(frozen=True, slots=True)
class Budget:
    """One BandwidthBudget: what its members may have together. `key` is namespace/name.

    `totals` are in bytes/s of the whole cluster, for the byte rates that it limits. Its members are
    those of `tiers` (namespace/name), and those with all of `labels`; neither = only the budgets
    whose `parent` (namespace/name) it is. Each member has at least `minimum_percent` of the total
    while it uses that; `weight` counts beside the other budgets of the parent. Budgets are given to
    the core oldest first (of two for one member that one wins).
    """

    key: str
    totals: Mapping[QuotaKey, int]
    tiers: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    parent: str | None = None
    minimum_percent: int = 5
    weight: int = 1

    def names(self, tier: Tier, member: Member) -> bool:
        """Whether the member is in it."""
        return tier.key in self.tiers or bool(self.labels and self.labels.issubset(member.labels))


@dataclass(frozen=True, slots=True)
class AllowedEntities:
    """Entities that tiers may name: users and client ids, each whole or a prefix ending in `*`.

    It is for tiers of these `namespaces`; empty = of every one.
    """

    users: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """A time that comes back, and the share of their contracts that levels may use then.

    A share is above 0 and below 1. Where entries overlap, the lower one counts. L0 has none.
    """

    recurrence: Recurrence
    shares: Mapping[Level, float]


@dataclass(frozen=True, slots=True)
class LimitSchedule:
    """Limits that count at times that come back, with what it does not set filled in.

    `is_ready_before` = quotas are lowered for it in advance; else from its first moment on.
    """

    recurrence: Recurrence
    limits: BrokerLimits
    is_ready_before: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """One BrokerBandwidthPolicy, with every unset field already at its documented default.

    `paused_by` names what pauses it, such as `spec.suspend`; empty where nothing does. `limits`
    are those in force; where `schedules` have changed them, `usual` has those of other times.
    """

    key: str
    uid: str
    mode: Mode = Mode.ENFORCE
    paused_by: tuple[str, ...] = ()
    deleting: bool = False
    deletion_policy: DeletionPolicy = DeletionPolicy.RESTORE
    scaling: ScalingMethod = ScalingMethod.MAX
    minimum_change_percent: int = 10
    window: QuotaWindow = QuotaWindow()
    max_mute_seconds: int = 12
    write_budget_changes: int = 300
    write_budget_period_seconds: float = 900.0
    max_removal_percent: int = 50
    confirmed_removal: str = ""
    resync: str = ""  # the value of the annotation that asks to compare everything again, once
    defaults: Mapping[Entity, Mapping[QuotaKey, int]] = field(default_factory=dict)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    schedules: tuple[LimitSchedule, ...] = ()
    usual: BrokerLimits | None = None
    # whether it names metrics: without them nothing is throttled, and nothing stays throttled
    measured: bool = False
    stale_after_seconds: float = STALE_AFTER_SECONDS
    # how long a broker's load may be unknown until throttles go; None = they stay
    release_after_seconds: float | None = None
    cut_to_percent: int = 97
    raise_to_percent: int = 95
    hold_seconds: float = 45.0
    speed: Speed = Speed.LADDER
    calendar: tuple[CalendarEntry, ...] = ()
    metering_enabled: bool = False
    advice: AdviceTerms = field(default_factory=AdviceTerms)
    # what tiers may name; None = every entity
    allowed: tuple[AllowedEntities, ...] | None = None

    @property
    def usual_limits(self) -> BrokerLimits:
        """The limits at times of no schedule."""
        return self.limits if self.usual is None else self.usual

    def with_limits(self, limits: BrokerLimits) -> "Policy":
        """The policy while these limits are in force."""
        return replace(self, limits=limits, usual=self.usual_limits)

    def limits_at(self, schedule: int | None) -> BrokerLimits:
        """Those of a schedule, by its index; None = at times of no schedule."""
        return self.usual_limits if schedule is None else self.schedules[schedule].limits

    @property
    def limits_of_all_times(self) -> tuple[BrokerLimits, ...]:
        """The limits at times of no schedule, and those of each schedule."""
        return (self.usual_limits, *(one.limits for one in self.schedules))

    @property
    def paused(self) -> bool:
        """Whether a person wants everything to stay as it is."""
        return bool(self.paused_by)


# --- what is observed ---


# a partition's leader, then its other in-sync replicas, in the order of their ids
InSync = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """One topic's partitions by leading broker (brokers with none are absent), and leaderless.

    `in_sync` counts the partitions with a leader by their in-sync replicas; empty = not looked up.
    """

    leaders: Mapping[int, int]
    leaderless: int = 0
    in_sync: tuple[tuple[InSync, int], ...] = ()

    @property
    def partitions(self) -> int:
        return sum(self.leaders.values()) + self.leaderless


@dataclass(frozen=True, slots=True)
class ReplicaSelection:
    """Which leaders send consumers to another replica (KIP-392), and the racks of brokers.

    `by_rack` have Kafka's RackAwareReplicaSelector, `otherwise` a selector whose rule is not known,
    and of `unknown` it is not known whether they have one. `racks` lacks brokers without a rack.
    """

    by_rack: frozenset[int] = frozenset()
    otherwise: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    racks: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    """Live brokers and the leaders of the managed topics, read at one moment.

    `topics` lacks a named topic that does not exist; `cluster_id` is what the brokers report, None
    = they did not. `selection` None = it is not known whether followers serve reads.
    """

    read_at_seconds: float
    brokers: frozenset[int]
    topics: Mapping[str, TopicLeaders]
    cluster_id: str | None = None
    selection: ReplicaSelection | None = None


@value(frozen=True, slots=True)
class LedgerEntry:
    """What we know of one quota key that we wrote.

    `before` is the exact text that stood there before Tidegate first wrote (None = the key was
    absent); `written` the exact text that we wrote last; `previous` the text in force before that
    write (None = none); `basis` says for which promise it was computed, so that a small leader move
    and an edited contract can be distinguished. `of_contract` is the contract in bytes/s that
    `written` is a throttle of; None = it is no throttle.
    """

    before: str | None
    written: str | None
    previous: str | None
    written_at_seconds: float
    reason: Reason | NewerReason
    basis: str = ""
    of_contract: int | None = None


_NO_ENTRIES: Mapping[QuotaKey, LedgerEntry] = {}


@value(frozen=True, slots=True)
class LedgerRecord:
    """Proof of ownership: which policy wrote which keys of an entity, and what was there before."""

    entity: Entity
    policy_key: str
    policy_uid: str
    entries: Mapping[QuotaKey, LedgerEntry]


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """One entity as it stands in Kafka's quota store, with our ledger record for it.

    `values` maps the quota keys that are present to their exact texts. `version` and
    `ledger_version` are what a later compare-and-set must still find (None = the node does not
    exist). `problem` is set when the content cannot be read safely; then `values` is empty and the
    entity must not be written. `notified` False = it is not known that any broker has learned of
    the values as they stand; where the brokers themselves say what is in force, they have.
    """

    entity: Entity
    values: Mapping[QuotaKey, str]
    version: int | None = None
    ledger: LedgerRecord | None = None
    ledger_version: int | None = None
    problem: str | None = None
    notified: bool = True

    def is_of(self, policy: Policy) -> bool:
        """Whether the ledger names this policy as owner; one re-created by the same name counts."""
        return self.ledger is not None and self.ledger.policy_key == policy.key

    def entries_of(self, policy: Policy) -> Mapping[QuotaKey, LedgerEntry]:
        """The ledger's entries if they are this policy's; none of another's."""
        return (
            self.ledger.entries
            if self.ledger is not None and self.ledger.policy_key == policy.key
            else _NO_ENTRIES
        )


@dataclass(frozen=True, slots=True)
class KafkaUser:
    """One of Strimzi's KafkaUsers. `key` is namespace/name, `kafka_name` its name in Kafka.

    `declares_quotas` holds for an empty declaration too: that it has none. While it `is_paused`
    Strimzi's User Operator leaves its quotas alone.
    """

    key: str
    kafka_name: str
    declares_quotas: bool = False
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class StrimziUsers:
    """The KafkaUsers of the Strimzi cluster (namespace/name) that the policy's Kafka cluster is.

    `users` are by their own names; None = they may not be read, or are not known. `unread` says why
    they, or the newest of them, are not known although they were asked for; "" = nothing is to wait
    for them.
    """

    cluster: str
    users: Mapping[str, KafkaUser] | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """One share group that has members now, with the client ids and topics of these.

    `lock_seconds` is for how long a delivered record is locked; None = that is not known.
    """

    name: str
    client_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    lock_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A missing input: nothing is tightened or released because of it, from `since_seconds` on."""

    reason: Reason
    message: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one pass knows.

    None for `tiers`, `topology` or `quotas` = not known in full; `missing` gives the reasons in
    words. `readings` None = load is not measured, or no reading has come yet; it holds nothing up.
    `quotas` has an entry for every entity that a tier or a default names and for every entity in
    the ledger (an absent znode is an entry with version None); an entity that it lacks is unknown,
    not unlimited. `client_quotas_exist` says whether anyone has set a byte rate for a client id
    without a user; None = it was not looked up. `usage` None = no usage table can be used now.
    `frozen` are entities left out of `quotas` on purpose, each with the reason and why. `strimzi`
    None = the cluster is not known as one of Strimzi's. `replication` is what the last pass found
    of it on each side of a NIC where the policy throttles it. `share_groups` None = not known yet,
    or not now.
    """

    now_seconds: float
    policy: Policy
    tiers: tuple[Tier, ...] | None
    topology: Topology | None
    quotas: Mapping[Entity, StoredQuota] | None
    missing: tuple[tuple[Reason, str], ...] = ()
    readings: Readings | None = None
    overrides: tuple[Override, ...] = ()
    client_quotas_exist: bool | None = None
    usage: Usage | None = None
    frozen: Mapping[Entity, tuple[Reason, str]] = field(default_factory=dict)
    strimzi: StrimziUsers | None = None
    replication: ReplicationOnNics = field(default_factory=dict)
    share_groups: tuple[ShareGroup, ...] | None = ()
    budgets: tuple[Budget, ...] = ()


# --- what is written ---


class WriteKind(StrEnum):
    """Why a write exists, in the order in which a pass sends them."""

    __hash__ = str.__hash__

    # a raise, because leaders moved: some entity gets less than promised right now
    RECOVERY = "Recovery"
    LOWERING = "Lowering"
    RAISE = "Raise"
    FIRST = "First"
    GIVE_BACK = "GiveBack"
    RECORD = "Record"  # the quota is right already; only the ledger learns that it is ours
    # quota and ledger are right already; it is not known that brokers were notified, so they are
    NOTIFY = "Notify"


@value(frozen=True, slots=True)
class QuotaWrite:
    """One entity's next write: quota keys and ledger together, or nothing.

    `values` has only the keys to change: exact text, or None to remove the key. `seen` is what the
    decision was made on; the store writes only if both versions are still the same. `ledger` is the
    record after the write (None = delete it). `wording` is what `message` says: the text, or what
    puts it together when it is read. `notifies` = brokers are notified though no value changes;
    where a value changes they always are.
    """

    entity: Entity
    values: Mapping[QuotaKey, str | None]
    seen: StoredQuota
    ledger: LedgerRecord | None
    kind: WriteKind
    reason: Reason
    wording: "str | Callable[[QuotaWrite], str]"
    charged: bool
    predicted_mute_seconds: float = 0.0
    notifies: bool = False

    @property
    def message(self) -> str:
        """What changes, from what to what and why, for people."""
        return self.wording if isinstance(self.wording, str) else self.wording(self)


# --- what people read ---


@dataclass(frozen=True, slots=True)
class Note:
    """Something for people to see about the policy as a whole or about one entity."""

    reason: Reason
    message: str
    entity: Entity | None = None
    tier_key: str | None = None
