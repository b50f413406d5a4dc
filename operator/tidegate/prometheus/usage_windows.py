"""Windows of five minutes of clients over days, gathered series by series, and their figures.

Nothing is filled in: a window without a rate is not known.
"""

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from tidegate.errors import Incomplete, InvalidResource
from tidegate.prometheus.series import SeriesProblem, problems_of
from tidegate.prometheus.sources import Source
from tidegate_logic.model import Direction, Entity, ReadingProblem
from tidegate_logic.reasons import Reason

Wanted = Callable[[Entity], bool]

WINDOW_SECONDS = 300
_HOUR = 3600
_MOST_UNREAD = 6  # pieces without an answer, before the server is left alone
# A broker that began again has two series in the window of its restart; more in a row are two
# series, or two brokers, at once.
_ROW = 3


@dataclass(frozen=True, slots=True)
class Period:
    """Whole windows; both ends are seconds since the epoch, the first one not included."""

    start_seconds: int
    end_seconds: int

    @classmethod
    def before(cls, now_seconds: float, seconds: int) -> "Period":
        """The last whole windows of so many `seconds`."""
        end = int(now_seconds // WINDOW_SECONDS) * WINDOW_SECONDS
        return cls(end - max(1, seconds // WINDOW_SECONDS) * WINDOW_SECONDS, end)

    @property
    def seconds(self) -> int:
        """How long it is."""
        return self.end_seconds - self.start_seconds

    @property
    def windows(self) -> int:
        """How many windows it has."""
        return self.seconds // WINDOW_SECONDS

    def number_of(self, at_seconds: float) -> int | None:
        """Which window ends then, counted from 0; None = none of these."""
        number = math.ceil((at_seconds - self.start_seconds) / WINDOW_SECONDS) - 1
        return number if 0 <= number < self.windows else None

    def ends_at(self, window: int) -> int:
        """When this window ends."""
        return self.start_seconds + (window + 1) * WINDOW_SECONDS

    def pieces(self, seconds: int) -> Iterator["Period"]:
        """The same in parts of at most so many seconds, the first ones first."""
        for start in range(self.start_seconds, self.end_seconds, seconds):
            yield Period(start, min(start + seconds, self.end_seconds))


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """What one client moved one way, on the broker where its `p99` is highest; bytes/s.

    `p99` is the rate that 99 % of the windows stayed under in which it moved anything there (by
    nearest rank), `peak` the highest window, which ended at `peak_at_seconds`. All are 0 where it
    moved nothing at all. `throttled_days` are days with a throttle time that shows; None = no
    throttle times are known.
    """

    broker: int
    p99: float
    peak: float
    peak_at_seconds: int
    throttled_days: int | None = None


@dataclass(frozen=True, slots=True)
class KnownTime:
    """How long a client was seen, and how long the rates of all its brokers are known."""

    client_seconds: int
    known_seconds: int


@dataclass(frozen=True, slots=True)
class UsageReading:
    """The wanted clients with what they moved, and what is not known.

    `known_seconds` says by broker for how long the rate of any client was seen there.
    `both_at_once` are clients of which two series gave different accounts: nothing is said of them.
    """

    period: Period
    clients: Mapping[tuple[Entity, Direction], ClientUsage] = field(default_factory=dict)
    seen: Mapping[Entity, KnownTime] = field(default_factory=dict)
    known_seconds: Mapping[int, int] = field(default_factory=dict)
    both_at_once: frozenset[Entity] = frozenset()
    problems: tuple[ReadingProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One series of one piece: which windows it has, with rates where its client is wanted."""

    broker: int
    source: Source
    entity: Entity | None
    windows: "array[int]"
    rates: "array[float]"


@dataclass(slots=True)
class Track:
    """The windows of one client on one broker; -1 = not seen. `doubled` were given twice."""

    rates: "array[float]"
    doubled: set[int] = field(default_factory=set)


class Gathering:
    """What has been read so far. Windows are the bits of a number, the first one the lowest."""

    def __init__(self, period: Period, wanted: Wanted) -> None:
        self.period = period
        self.odd: list[SeriesProblem] = []
        self.counted: dict[Direction, set[int]] = {}
        self.throttled: dict[tuple[Entity, Direction], set[int]] = {}
        self._wanted = wanted
        self._asked: dict[Entity, bool] = {}
        self._sources: dict[tuple[int, Direction], dict[Source, bytearray]] = {}
        self._unread: dict[tuple[Direction, str], list[tuple[Period, tuple[int, ...]]]] = {}
        self._no_throttles: dict[Direction, str] = {}
        self._clients: dict[tuple[Entity, Direction], ClientUsage] = {}
        self._seen: dict[Entity, dict[int, int]] = {}
        self._both_at_once: set[Entity] = set()

    def wanted(self, entity: Entity) -> bool:
        """Whether the usage of this client is asked for."""
        if entity not in self._asked:
            self._asked[entity] = self._wanted(entity)
        return self._asked[entity]

    def leave_out(
        self, piece: Period, way: Direction, brokers: tuple[int, ...], message: str
    ) -> None:
        """A piece that was not answered. Raises Incomplete when there are too many of them."""
        self._unread.setdefault((way, message), []).append((piece, brokers))
        if sum(map(len, self._unread.values())) >= _MOST_UNREAD:
            raise Incomplete(
                Reason.METRICS_INCOMPLETE,
                f"{_MOST_UNREAD} parts of the usage could not be read, so the rest was not "
                f"requested. {message} A shorter --from-usage asks for less.",
            )

    def throttles_unknown(self, way: Direction, message: str) -> None:
        """That throttle times of a direction are not known in full."""
        self._no_throttles.setdefault(way, message)

    def take(
        self,
        way: Direction,
        row: Row,
        tracks: dict[tuple[Entity, int], Track],
        piece: Period,
    ) -> None:
        """Add one series of an answered piece. Windows beyond the piece are the next one's."""
        first = self.period.number_of(piece.start_seconds + WINDOW_SECONDS) or 0
        last = first + piece.windows
        sources = self._sources.setdefault((row.broker, way), {})
        seen = sources.setdefault(row.source, bytearray(self.period.windows))
        track = None
        if row.entity is not None:
            track = tracks.setdefault(
                (row.entity, row.broker), Track(array("d", [-1.0]) * self.period.windows)
            )
        for place, window in enumerate(row.windows):
            if not first <= window < last:
                continue
            seen[window] = 1
            if track is None:
                continue
            before = track.rates[window]
            if before >= 0:
                track.doubled.add(window)
            track.rates[window] = max(before, row.rates[place])

    def close_group(self, way: Direction, tracks: Mapping[tuple[Entity, int], Track]) -> None:
        """Keep the figures of a group's clients, and let go of the windows."""
        for (entity, broker), track in tracks.items():
            if _in_a_row(_bits(window in track.doubled for window in range(self.period.windows))):
                self._both_at_once.add(entity)
                self.odd.append(_two_at_once(entity, broker, way))
                continue
            seen = self._seen.setdefault(entity, {})
            seen[broker] = seen.get(broker, 0) | _bits(rate >= 0 for rate in track.rates)
            usage = self._usage(broker, track.rates)
            known = self._clients.get((entity, way))
            if known is None or (usage.p99, usage.peak) > (known.p99, known.peak):
                self._clients[entity, way] = usage

    def _usage(self, broker: int, rates: "array[float]") -> ClientUsage:
        moved = sorted(rate for rate in rates if rate > 0)
        if not moved:
            return ClientUsage(broker, 0.0, 0.0, self.period.end_seconds)
        p99 = moved[-(-99 * len(moved) // 100) - 1]
        return ClientUsage(broker, p99, moved[-1], self.period.ends_at(rates.index(moved[-1])))

    def result(self, brokers: Collection[int] | None) -> UsageReading:
        """The usage that was read. Raises InvalidResource if two sources overlap for a broker."""
        known: dict[int, int] = {}
        for (broker, way), sources in self._sources.items():
            bits = {source: _bits(seen) for source, seen in sources.items()}
            for one, other in combinations(sorted(bits), 2):
                if _in_a_row(bits[one] & bits[other]):
                    raise _two_sources(broker, way, one, other)
            for each in bits.values():
                known[broker] = known.get(broker, 0) | each
        for broker in sorted(set(brokers or ()) - known.keys()):
            self.odd.append(_no_client_on(broker))
        return UsageReading(
            self.period,
            {
                who: ClientUsage(
                    *(usage.broker, usage.p99, usage.peak, usage.peak_at_seconds),
                    self._throttled_days(*who),
                )
                for who, usage in self._clients.items()
                if who[0] not in self._both_at_once
            },
            {
                entity: self._seconds_of(on, known)
                for entity, on in self._seen.items()
                if entity not in self._both_at_once
            },
            {broker: known[broker].bit_count() * WINDOW_SECONDS for broker in sorted(known)},
            frozenset(self._both_at_once),
            (*self._gaps(), *problems_of(self.odd)),
        )

    def _throttled_days(self, entity: Entity, way: Direction) -> int | None:
        days = self.throttled.get((entity, way))
        # a day that was not answered may have been one more: what is known still is
        return None if days is None or (not days and way in self._no_throttles) else len(days)

    def _seconds_of(self, on: Mapping[int, int], known: Mapping[int, int]) -> KnownTime:
        client, of_all = 0, (1 << self.period.windows) - 1
        for broker, bits in on.items():
            client |= bits
            of_all &= known[broker]
        return KnownTime(client.bit_count() * WINDOW_SECONDS, of_all.bit_count() * WINDOW_SECONDS)

    def _gaps(self) -> Iterator[ReadingProblem]:
        for (way, message), parts in self._unread.items():
            hours = sum(piece.seconds for piece, _ in parts) / _HOUR
            named = sorted({broker for _, group in parts for broker in group})
            yield ReadingProblem(
                Reason.METRICS_INCOMPLETE,
                f"{hours:.0f} hours of {way_words(way)} were not read (brokers "
                f"{', '.join(map(str, named))}), and may hold higher peaks. {message}",
            )
        for way, message in self._no_throttles.items():
            yield ReadingProblem(
                Reason.METRICS_INCOMPLETE,
                f"Whether clients were throttled is not known for all {way_words(way)}. {message}",
            )


def _bits(windows: Iterable[int]) -> int:
    text = "".join("1" if one else "0" for one in windows)
    return int(text[::-1] or "0", 2)


def _in_a_row(bits: int) -> bool:
    """Whether so many windows follow each other that no restart explains them."""
    for _ in range(_ROW - 1):
        bits &= bits >> 1
    return bits != 0


_WAYS = {Direction.EGRESS: "fetch rates", Direction.INGRESS: "produce rates"}


def way_words(way: Direction) -> str:
    """What its clients' rates are called."""
    return _WAYS[way]


NARROW = (
    "Narrow the series to one Kafka cluster and one replica of Prometheus: spec.metrics.matchers "
    "of the policy, or --matcher LABEL=VALUE."
)


def _two_sources(broker: int, way: Direction, one: Source, other: Source) -> InvalidResource:
    def shown(source: Source) -> str:
        return "/".join(part or "-" for part in source)

    return InvalidResource(
        f"Two sources speak for broker {broker} at the same time, {shown(one)} and {shown(other)} "
        f"({way_words(way)}): they look like two Kafka clusters on one Prometheus, and clients of "
        f"one would be taken for the other's. Nothing is proposed. {NARROW}",
        Reason.METRICS_AMBIGUOUS,
    )


def _two_at_once(entity: Entity, broker: int, way: Direction) -> SeriesProblem:
    what = f"two series have the {way_words(way)} of one client at the same time"
    return SeriesProblem(Reason.METRICS_AMBIGUOUS, what, str(entity), broker, NARROW)


def _no_client_on(broker: int) -> SeriesProblem:
    return SeriesProblem(
        Reason.CLIENTS_NOT_METERED,
        "no rate of any user or client id is there",
        "what clients moved on it is not known",
        broker,
        "Check its JMX exporter, unless no client uses this broker.",
    )
