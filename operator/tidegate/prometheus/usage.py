"""What clients moved over days, in windows of five minutes, from a policy's Prometheus.

For `tidegate import --from-usage`. Prometheus makes the means, so that a week of a client is 2016
numbers and not 40,000 samples. It is asked group of brokers by group, and day by day or in shorter
pieces, so that no answer is larger than a reading's (ADR 0039). A piece that is not answered is
asked for in halves down to an hour; what is not known then is said and counted, never taken for
zero.
"""

import math
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from controller_logic.model import Direction, Entity, ReadingProblem
from controller_logic.readings import BINDING_MILLISECONDS
from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, InvalidResource
from tidegate.prometheus.client import PrometheusClient, TooLarge, TooSlow
from tidegate.prometheus.kafka_clients import EntityNames, entity_of
from tidegate.prometheus.nics import without_broker
from tidegate.prometheus.queries import (
    broker_of,
    identity_of,
    narrowed,
    over_last,
    queries_of,
    these_brokers,
)
from tidegate.prometheus.series import Series, SeriesProblem, is_amount, problems_of
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings
from tidegate.prometheus.sources import Source, source_labels

Item = TypeVar("Item")
Wanted = Callable[[Entity], bool]

WINDOW_SECONDS = 300
_HOUR, _DAY = 3600, 86_400
_WINDOWS_OF_AN_ANSWER = 500_000  # 11 to 18 MB
_MOST_UNREAD = 6  # pieces without an answer, before the server is left alone
# A broker that began anew has two series in the window of its restart; more in a row are two
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
class Seen:
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
    seen: Mapping[Entity, Seen] = field(default_factory=dict)
    known_seconds: Mapping[int, int] = field(default_factory=dict)
    both_at_once: frozenset[Entity] = frozenset()
    problems: tuple[ReadingProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """Brokers that are asked for together, in pieces of so many seconds."""

    brokers: tuple[int, ...]
    matcher: str
    seconds: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One series of one piece: which windows it has, with rates where its client is wanted."""

    broker: int
    source: Source
    entity: Entity | None
    windows: array[int]
    rates: array[float]


@dataclass(slots=True)
class _Track:
    """The windows of one client on one broker; -1 = not seen. `doubled` were given twice."""

    rates: array[float]
    doubled: set[int] = field(default_factory=set)


class UsageReader:
    """Asks one Prometheus. One thread at a time may use it."""

    def __init__(
        self, settings: MetricsSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._client = PrometheusClient(settings.server, monotonic=monotonic)
        self._queries = queries_of(settings)
        self._identity = identity_of(settings)
        self._broker_of = broker_of(self._identity)
        self._source_labels = source_labels(self._identity)

    def read(
        self, period: Period, *, wanted: Wanted, brokers: Collection[int] | None
    ) -> UsageReading:
        """What the wanted clients moved on these `brokers`; None = on whichever there are.

        Raises InvalidResource where two sources speak for one broker at once, Incomplete where
        Prometheus has no rate of any client or leaves too many questions unanswered, and what the
        client raises where it cannot be asked.
        """
        reading = _Reading(period, wanted)
        ways = (
            (Direction.EGRESS, self._queries.fetch_rate, self._queries.fetch_throttle),
            (Direction.INGRESS, self._queries.produce_rate, self._queries.produce_throttle),
        )
        for way, rate, throttle in ways:
            if rate is None:
                reading.odd.append(_not_asked(way))
                continue
            counts = self._counts(rate, way, reading)
            for broker in sorted(counts.keys() - set(counts if brokers is None else brokers)):
                reading.odd.append(_stranger(broker))
                del counts[broker]
            reading.counted[way] = set(counts)
            for group in self._groups(counts):
                self._read_group(reading, way, narrowed(rate, [group.matcher]), group)
                if throttle is not None:
                    self._read_throttles(reading, way, narrowed(throttle, [group.matcher]))
        if not any(reading.counted.values()):
            raise Incomplete(Reason.CLIENTS_NOT_METERED, self._nothing(period))
        return reading.result(brokers)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _counts(self, rate: str, way: Direction, reading: "_Reading") -> dict[int, int]:
        """By broker: the most clients that it had at once, looked at each hour."""
        identity = self._identity
        label = identity.name if isinstance(identity, BrokerLabel) else "instance"
        asked = f"count by ({label}) ({rate})[{reading.period.seconds}s:{_HOUR}s]"
        counts: dict[int, int] = {}
        for one in self._ask(asked, lambda series: series, at_seconds=reading.period.end_seconds):
            broker = self._broker_of(one.labels)
            if broker is None:
                reading.odd.append(without_broker(one, _words(way)))
                continue
            most = max((int(amount) for _, amount in one.samples if is_amount(amount)), default=0)
            counts[broker] = counts.get(broker, 0) + most
        return counts

    def _groups(self, counts: Mapping[int, int]) -> Iterator[_Group]:
        most = _WINDOWS_OF_AN_ANSWER // (_DAY // WINDOW_SECONDS)
        members: list[int] = []
        for broker in sorted(counts):
            if members and sum(counts[one] for one in (*members, broker)) > most:
                yield self._group(members, counts)
                members = []
            members.append(broker)
        if members:
            yield self._group(members, counts)

    def _group(self, members: Sequence[int], counts: Mapping[int, int]) -> _Group:
        clients = max(1, sum(counts[one] for one in members))
        hours = _WINDOWS_OF_AN_ANSWER // (clients * (_HOUR // WINDOW_SECONDS))
        matcher = these_brokers(self._identity, members)
        return _Group(tuple(members), matcher, min(_DAY, max(1, hours) * _HOUR))

    def _read_group(self, reading: "_Reading", way: Direction, rate: str, group: _Group) -> None:
        tracks: dict[tuple[Entity, int], _Track] = {}
        read = _ReadRow(self._broker_of, self._source_labels, reading, way)
        left, most_seconds = [reading.period], group.seconds
        while left:
            piece = left.pop()
            if piece.seconds > most_seconds:
                left += reversed(list(piece.pieces(most_seconds)))
                continue
            means = f"round(avg_over_time({over_last(rate, WINDOW_SECONDS)}))"
            asked = f"{means}[{piece.seconds}s:{WINDOW_SECONDS}s]"
            try:
                rows = self._ask(asked, read, at_seconds=piece.end_seconds)
            except (TooLarge, TooSlow) as error:
                if piece.seconds > _HOUR:
                    most_seconds = -(-piece.seconds // (2 * _HOUR)) * _HOUR
                    left.append(piece)
                else:
                    reading.leave_out(piece, way, group, error.message)
                continue
            except Incomplete as error:
                reading.leave_out(piece, way, group, error.message)
                continue
            for row in rows:
                if isinstance(row, SeriesProblem):
                    reading.odd.append(row)
                else:
                    reading.take(way, row, tracks, piece)
        reading.close_group(way, tracks)

    def _read_throttles(self, reading: "_Reading", way: Direction, throttle: str) -> None:
        """The days on which clients were throttled, as far as Prometheus says; no more is lost."""
        names = EntityNames()

        def read(series: Series) -> tuple[Entity | None, float]:
            return entity_of(series.labels, names), series.samples[-1][1]

        for day, piece in enumerate(reading.period.pieces(_DAY)):
            highest = f"max_over_time({over_last(throttle, piece.seconds)})[1s:1s]"
            try:
                answer = self._ask(highest, read, at_seconds=piece.end_seconds)
            except Incomplete as error:
                reading.throttles_unknown(way, error.message)
                continue
            except TooSlow as error:
                reading.throttles_unknown(way, error.message)
                return
            for entity, milliseconds in answer:
                if entity is None or not reading.wanted(entity):
                    continue
                days = reading.throttled.setdefault((entity, way), set())
                if milliseconds > BINDING_MILLISECONDS:
                    days.add(day)

    def _ask(self, promql: str, each: Callable[[Series], Item], *, at_seconds: int) -> list[Item]:
        until = self._monotonic() + self._settings.server.question_timeout_seconds
        return self._client.query(
            promql, each, until_monotonic_seconds=until, at_seconds=at_seconds
        )

    def _nothing(self, period: Period) -> str:
        matchers = ", ".join(f"{name}={one}" for name, one in self._settings.matchers.items())
        return (
            f"Prometheus at {self._client.address} has no rate of any user or client id of this "
            f"cluster in the {period.seconds // _HOUR} hours asked for"
            f"{f' (with {matchers})' if matchers else ''}, so nothing can be proposed from usage. "
            "Kafka meters only clients that some quota covers: spec.defaults.metering: Enabled "
            "meters everybody without limiting anyone. tidegate doctor says which series are "
            "missing."
        )


class _ReadRow:
    """Makes a row or a problem of each series as it arrives. It changes nothing: a piece may be
    asked for again.
    """

    def __init__(
        self,
        broker: Callable[[Mapping[str, str]], int | None],
        labels: tuple[str, ...],
        reading: "_Reading",
        way: Direction,
    ) -> None:
        self._broker_of = broker
        self._labels = labels
        self._reading = reading
        self._what = _words(way)
        self._names = EntityNames()

    def __call__(self, series: Series) -> _Row | SeriesProblem:
        labels = series.labels
        broker, entity = self._broker_of(labels), entity_of(labels, self._names)
        if broker is None:
            return without_broker(series, self._what)
        if entity is None:
            what = f"the query for {self._what} gave a series that does not name its client"
            hint = "The labels user and client_id must hold Kafka's tags as the brokers spell them."
            return SeriesProblem(Reason.METRICS_AMBIGUOUS, what, str(series), broker, hint)
        period = self._reading.period
        is_wanted = self._reading.wanted(entity)
        windows, rates = array("l"), array("d")
        for at_seconds, amount in series.samples:
            number = period.number_of(at_seconds)
            if number is None:
                continue
            if not is_amount(amount):
                if is_wanted:
                    return self._unreadable(entity, broker, amount)
                continue
            windows.append(number)
            if is_wanted:
                rates.append(amount)
        source = tuple([labels.get(name, "") for name in self._labels])
        return _Row(broker, source, entity if is_wanted else None, windows, rates)

    def _unreadable(self, entity: Entity, broker: int, amount: float) -> SeriesProblem:
        what = f"a client's {self._what} are no amounts, so this part of them is not known"
        example, hint = f"{amount} for {entity}", "Look at the exporter."
        return SeriesProblem(Reason.METRICS_UNREADABLE, what, example, broker, hint)


class _Reading:
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

    def leave_out(self, piece: Period, way: Direction, group: _Group, message: str) -> None:
        """A piece that was not answered. Raises Incomplete when there are too many of them."""
        self._unread.setdefault((way, message), []).append((piece, group.brokers))
        if sum(map(len, self._unread.values())) >= _MOST_UNREAD:
            raise Incomplete(
                Reason.METRICS_INCOMPLETE,
                f"{_MOST_UNREAD} parts of the usage were not to be had, and the others were not "
                f"asked for any more. {message} A shorter --from-usage asks for less.",
            )

    def throttles_unknown(self, way: Direction, message: str) -> None:
        """That throttle times of a direction are not known in full."""
        self._no_throttles.setdefault(way, message)

    def take(
        self,
        way: Direction,
        row: _Row,
        tracks: dict[tuple[Entity, int], _Track],
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
                (row.entity, row.broker), _Track(array("d", [-1.0]) * self.period.windows)
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

    def close_group(self, way: Direction, tracks: Mapping[tuple[Entity, int], _Track]) -> None:
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

    def _usage(self, broker: int, rates: array[float]) -> ClientUsage:
        moved = sorted(rate for rate in rates if rate > 0)
        if not moved:
            return ClientUsage(broker, 0.0, 0.0, self.period.end_seconds)
        p99 = moved[-(-99 * len(moved) // 100) - 1]
        return ClientUsage(broker, p99, moved[-1], self.period.ends_at(rates.index(moved[-1])))

    def result(self, brokers: Collection[int] | None) -> UsageReading:
        """Everything. Raises InvalidResource where two sources spoke for a broker at once."""
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

    def _seconds_of(self, on: Mapping[int, int], known: Mapping[int, int]) -> Seen:
        client, of_all = 0, (1 << self.period.windows) - 1
        for broker, bits in on.items():
            client |= bits
            of_all &= known[broker]
        return Seen(client.bit_count() * WINDOW_SECONDS, of_all.bit_count() * WINDOW_SECONDS)

    def _gaps(self) -> Iterator[ReadingProblem]:
        for (way, message), parts in self._unread.items():
            hours = sum(piece.seconds for piece, _ in parts) / _HOUR
            named = sorted({broker for _, group in parts for broker in group})
            yield ReadingProblem(
                Reason.METRICS_INCOMPLETE,
                f"{hours:.0f} hours of {_words(way)} were not read (brokers "
                f"{', '.join(map(str, named))}), and may hold higher peaks. {message}",
            )
        for way, message in self._no_throttles.items():
            yield ReadingProblem(
                Reason.METRICS_INCOMPLETE,
                f"Whether clients were throttled is not known for all {_words(way)}. {message}",
            )


def _bits(windows: Collection[int] | Iterator[bool]) -> int:
    text = "".join("1" if one else "0" for one in windows)
    return int(text[::-1] or "0", 2)


def _in_a_row(bits: int) -> bool:
    """Whether so many windows follow each other that no restart explains them."""
    for _ in range(_ROW - 1):
        bits &= bits >> 1
    return bits != 0


_WAYS = {Direction.EGRESS: "fetch rates", Direction.INGRESS: "produce rates"}


def _words(way: Direction) -> str:
    return _WAYS[way]


_NARROW = (
    "Narrow the series to one Kafka cluster and one replica of Prometheus: spec.metrics.matchers "
    "of the policy, or --matcher LABEL=VALUE."
)


def _two_sources(broker: int, way: Direction, one: Source, other: Source) -> InvalidResource:
    def shown(source: Source) -> str:
        return "/".join(part or "-" for part in source)

    return InvalidResource(
        f"Two sources speak for broker {broker} at the same time, {shown(one)} and {shown(other)} "
        f"({_words(way)}): they look like two Kafka clusters on one Prometheus, and clients of one "
        f"would be taken for the other's. Nothing is proposed. {_NARROW}",
        Reason.METRICS_AMBIGUOUS,
    )


def _two_at_once(entity: Entity, broker: int, way: Direction) -> SeriesProblem:
    what = f"two series have the {_words(way)} of one client at the same time"
    return SeriesProblem(Reason.METRICS_AMBIGUOUS, what, str(entity), broker, _NARROW)


def _stranger(broker: int) -> SeriesProblem:
    return SeriesProblem(
        Reason.SOURCE_CHANGED,
        "there are rates of a broker that the cluster does not have now",
        "it may be another cluster's, or gone",
        broker,
        _NARROW,
    )


def _no_client_on(broker: int) -> SeriesProblem:
    return SeriesProblem(
        Reason.CLIENTS_NOT_METERED,
        "no rate of any user or client id is there",
        "what clients moved on it is not known",
        broker,
        "Check its JMX exporter, unless no client uses this broker.",
    )


def _not_asked(way: Direction) -> SeriesProblem:
    return SeriesProblem(
        Reason.METRICS_NOT_WATCHED,
        f"The policy has no query for {_words(way)}, and preset Custom none of its own",
        "no contract is proposed for them",
        hint="Add it to spec.metrics.queries.",
    )
