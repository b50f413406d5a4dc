"""What clients moved over days, in windows of five minutes, from a policy's Prometheus.

For `tidegate import --from-usage`. Prometheus makes the means, so that a week of a client is 2016
numbers and not 40,000 samples. It is asked group of brokers by group, and day by day or in shorter
pieces, so that no answer is larger than a reading's (ADR 0039). A piece that is not answered is
asked for in halves down to an hour; what is not known then is said and counted, never taken for
zero.
"""

import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidegate.errors import Incomplete, InvalidResource
from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.http import TooLarge, TooSlow
from tidegate.prometheus.kafka_clients import EntityNames, entity_of, without_client
from tidegate.prometheus.nics import without_broker
from tidegate.prometheus.queries import (
    BrokerOf,
    broker_of,
    identity_of,
    narrowed,
    over_last,
    queries_of,
    these_brokers,
)
from tidegate.prometheus.series import Series, SeriesProblem, is_amount
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings
from tidegate.prometheus.sources import source_labels
from tidegate.prometheus.usage_windows import (
    NARROW,
    WINDOW_SECONDS,
    Gathering,
    Period,
    Row,
    Track,
    UsageReading,
    Wanted,
    way_words,
)
from tidegate_logic.model import Direction, Entity
from tidegate_logic.readings import BINDING_MILLISECONDS
from tidegate_logic.reasons import Reason

Item = TypeVar("Item")

_HOUR, _DAY = 3600, 86_400
_WINDOWS_OF_AN_ANSWER = 500_000  # 11 to 18 MB


@dataclass(frozen=True, slots=True)
class _Group:
    """Brokers that are asked for together, in pieces of so many seconds."""

    brokers: tuple[int, ...]
    matcher: str
    seconds: int


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

        Raises InvalidResource if two sources speak for one broker at once, Incomplete if
        Prometheus has no rate of any client or leaves too many questions unanswered, and what the
        client raises where it cannot be asked.
        """
        reading = Gathering(period, wanted)
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

    def _counts(self, rate: str, way: Direction, reading: Gathering) -> dict[int, int]:
        """By broker: the most clients that it had at once. Of days each hour is looked at, which
        PromQL takes as whole hours of the clock, and of the last hour each window: otherwise a
        cluster of this hour would have nobody.
        """
        identity, period = self._identity, reading.period
        label = identity.name if isinstance(identity, BrokerLabel) else "instance"
        looks = [(min(period.seconds, _HOUR), WINDOW_SECONDS), (period.seconds, _HOUR)]
        if period.seconds <= _DAY:
            looks = [(period.seconds, WINDOW_SECONDS)]
        sources: dict[str, Series] = {}
        most: dict[str, int] = {}
        for seconds, step in looks:
            asked = f"count by ({label}) ({rate})[{seconds}s:{step}s]"
            for one in self._ask(asked, at_seconds=period.end_seconds):
                source = one.labels.get(label, "")
                amounts = [int(amount) for _, amount in one.samples if is_amount(amount)]
                sources[source] = one
                most[source] = max(most.get(source, 0), *amounts, 0)
        counts: dict[int, int] = {}
        for source, one in sources.items():
            broker = self._broker_of(one.labels)
            if broker is None:
                reading.odd.append(without_broker(one, way_words(way)))
                continue
            counts[broker] = counts.get(broker, 0) + most[source]
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

    def _read_group(self, reading: Gathering, way: Direction, rate: str, group: _Group) -> None:
        tracks: dict[tuple[Entity, int], Track] = {}
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
                rows = self._client.stream(
                    asked,
                    read,
                    until_monotonic_seconds=self._until(),
                    at_seconds=piece.end_seconds,
                )
            except (TooLarge, TooSlow, InvalidResource) as error:
                # refused are also too many samples at once, and two names of a metric in one piece
                if piece.seconds > _HOUR:
                    most_seconds = -(-piece.seconds // (2 * _HOUR)) * _HOUR
                    left.append(piece)
                else:
                    reading.leave_out(piece, way, group.brokers, error.message)
                continue
            except Incomplete as error:
                reading.leave_out(piece, way, group.brokers, error.message)
                continue
            for row in rows:
                if isinstance(row, SeriesProblem):
                    reading.odd.append(row)
                else:
                    reading.take(way, row, tracks, piece)
        reading.close_group(way, tracks)

    def _read_throttles(self, reading: Gathering, way: Direction, throttle: str) -> None:
        """The days on which clients were throttled, as far as Prometheus says; no more is lost."""
        names = EntityNames()
        for day, piece in enumerate(reading.period.pieces(_DAY)):
            highest = f"max_over_time({over_last(throttle, piece.seconds)})"
            try:
                answer = self._ask(highest, at_seconds=piece.end_seconds)
            except (Incomplete, InvalidResource) as error:
                reading.throttles_unknown(way, error.message)
                continue
            except TooSlow as error:
                reading.throttles_unknown(way, error.message)
                return
            for one in answer:
                entity, milliseconds = entity_of(one.labels, names), one.samples[-1][1]
                if entity is None or not reading.wanted(entity):
                    continue
                days = reading.throttled.setdefault((entity, way), set())
                if milliseconds > BINDING_MILLISECONDS:
                    days.add(day)

    def _ask(self, promql: str, *, at_seconds: int) -> list[Series]:
        return self._client.query(
            promql, until_monotonic_seconds=self._until(), at_seconds=at_seconds
        )

    def _until(self) -> float:
        return self._monotonic() + self._settings.server.question_timeout_seconds

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
        broker: BrokerOf,
        labels: tuple[str, ...],
        reading: Gathering,
        way: Direction,
    ) -> None:
        self._broker_of = broker
        self._labels = labels
        self._reading = reading
        self._what = way_words(way)
        self._names = EntityNames()

    def __call__(self, series: Series) -> Row | SeriesProblem:
        labels = series.labels
        broker, entity = self._broker_of(labels), entity_of(labels, self._names)
        if broker is None:
            return without_broker(series, self._what)
        if entity is None:
            return without_client(series, self._what, broker)
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
        return Row(broker, source, entity if is_wanted else None, windows, rates)

    def _unreadable(self, entity: Entity, broker: int, amount: float) -> SeriesProblem:
        what = f"a client's {self._what} are not amounts, so this part of them is unknown"
        example, hint = f"{amount} for {entity}", "Look at the exporter."
        return SeriesProblem(Reason.METRICS_UNREADABLE, what, example, broker, hint)


def _stranger(broker: int) -> SeriesProblem:
    return SeriesProblem(
        Reason.SOURCE_CHANGED,
        "there are rates of a broker that the cluster does not have now",
        "it may be another cluster's, or gone",
        broker,
        NARROW,
    )


def _not_asked(way: Direction) -> SeriesProblem:
    return SeriesProblem(
        Reason.METRICS_NOT_WATCHED,
        f"The policy has no query for {way_words(way)}, and preset Custom does not include one",
        "no contract is proposed for them",
        hint="Add it to spec.metrics.queries.",
    )
