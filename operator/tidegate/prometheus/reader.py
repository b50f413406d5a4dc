"""One reading: rates of NICs and clients from a policy's Prometheus, a problem for each gap.

Load is not judged here. From one reading to the next it is kept where readings came from, and rates
of clients, for as long as they are fresh.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.interfaces import judged_directions
from tidegate.prometheus.kafka_clients import (
    ClientSample,
    EntityNames,
    ReadClient,
    Who,
    newest_of_each,
)
from tidegate.prometheus.nics import (
    FUTURE_SECONDS,
    SET_CLOCKS,
    Cables,
    exporters_of,
    nic_spans,
    only_cables,
)
from tidegate.prometheus.queries import background_bytes, broker_of, identity_of, queries_of
from tidegate.prometheus.questions import Asking, Group, Groups
from tidegate.prometheus.series import Series, SeriesProblem, is_amount, problems_of
from tidegate.prometheus.settings import MetricsSettings
from tidegate.prometheus.sources import Found, Key, SourceOf, Sources, Target, source_labels
from tidegate_logic.model import (
    BYTE_RATE_OF,
    DIRECTION_OF,
    BackgroundKind,
    BackgroundSpans,
    ClientRate,
    Direction,
    Entity,
    NicSpan,
    ReadingProblem,
    Readings,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import DIRECTIONS

# Problems of a reading: NICs of live brokers without samples, samples that are too old, missing
# rates of clients. Nothing is filled in.


Nics = Mapping[tuple[int, Direction], tuple[NicSpan, ...]]
Ways = tuple[Direction, ...]


def absent_nics(
    nics: Nics,
    brokers: Collection[int],
    directions: Iterable[Direction],
    *,
    reported: Collection[tuple[int | None, Direction]],
    seconds: float,
) -> Iterable[ReadingProblem]:
    """Live brokers without a span in one of the answered `directions`.

    Those in `reported` have a problem already.
    """
    hint = (
        "Check that Prometheus scrapes their exporters, and that each series names its broker "
        "as metrics.brokerIdentity says."
    )

    def message(which: str, ways: str) -> str:
        return (
            f"{which} without two samples of {ways} in the last {seconds:g} s, so the load is "
            f"not known. {hint}"
        )

    missing = _ways_by_broker(
        brokers, directions, lambda key: key not in reported and not nics.get(key)
    )
    return _for_each_or_all(Reason.METRICS_MISSING, missing, brokers, message)


def stale_nics(
    nics: Nics,
    brokers: Collection[int],
    *,
    read_at_seconds: float,
    stale_after_seconds: float,
    clock_ahead_seconds: float = 0.0,
) -> Iterable[ReadingProblem]:
    """Live brokers whose newest span is older than it may be.

    Samples that are new by Prometheus' clock, which is so far behind ours, are a problem of clocks.
    """
    ahead_seconds = clock_ahead_seconds if clock_ahead_seconds > FUTURE_SECONDS else 0.0

    def is_old(key: tuple[int, Direction], at_seconds: float) -> bool:
        return bool(nics.get(key)) and at_seconds - nics[key][-1].at_seconds > stale_after_seconds

    def is_stale(key: tuple[int, Direction]) -> bool:
        return is_old(key, read_at_seconds - ahead_seconds)

    def looks_stale(key: tuple[int, Direction]) -> bool:
        return is_old(key, read_at_seconds) and not is_stale(key)

    def message(which: str, ways: str) -> str:
        hint = "Check the exporters and the targets of Prometheus."
        return (
            f"{which} with no sample of {ways} that is newer than {stale_after_seconds:g} s. {hint}"
        )

    def clocks(which: str, ways: str) -> str:
        return (
            f"{which} with samples of {ways} that look older than {stale_after_seconds:g} s, "
            f"because Tidegate's clock is {ahead_seconds:.0f} s ahead of Prometheus'. {SET_CLOCKS}"
        )

    for is_so, words in ((is_stale, message), (looks_stale, clocks)):
        ways = _ways_by_broker(brokers, Direction, is_so)
        yield from _for_each_or_all(Reason.METRICS_STALE, ways, brokers, words)


def absent_clients(
    seen: Collection[int], brokers: Collection[int], *, seconds: float
) -> Iterable[ReadingProblem]:
    """Live brokers without the rate of any client; `seen` are the brokers that have one.

    Where no broker has one, the cause is not a single broker's.
    """
    if not seen:
        why = f"No broker reported the rate of any user or client id in the last {seconds:g} s."
        hint = (
            "Kafka meters clients only where a quota exists, and the JMX exporter shows them "
            "only with the rules for it."
        )
        yield ReadingProblem(Reason.CLIENTS_NOT_METERED, f"{why} {hint}")
        return
    for broker in sorted(set(brokers) - set(seen)):
        why = (
            f"Broker {broker} reported the rate of no user or client id in the last "
            f"{seconds:g} s, and others did."
        )
        yield ReadingProblem(
            Reason.CLIENTS_NOT_METERED,
            f"{why} Check its JMX exporter, unless no client uses this broker.",
            broker,
        )


def _ways_by_broker(
    brokers: Iterable[int],
    directions: Iterable[Direction],
    is_so: Callable[[tuple[int, Direction]], bool],
) -> Mapping[int, Ways]:
    ways = {
        broker: tuple(direction for direction in directions if is_so((broker, direction)))
        for broker in sorted(brokers)
    }
    return {broker: found for broker, found in ways.items() if found}


def _for_each_or_all(
    reason: Reason,
    ways: Mapping[int, Ways],
    brokers: Collection[int],
    message: Callable[[str, str], str],
) -> Iterable[ReadingProblem]:
    """One problem for all brokers where it is the same with all, else one each."""
    if len(ways) > 1 and ways.keys() == set(brokers) and len(set(ways.values())) == 1:
        which = next(iter(ways.values()))
        yield ReadingProblem(
            reason, message(f"All {len(ways)} brokers are", " and ".join(which)), directions=which
        )
        return
    for broker, which in ways.items():
        yield ReadingProblem(
            reason, message(f"Broker {broker} is", " and ".join(which)), broker, which
        )


ClientKey = tuple[Entity, int, Direction]
Clients = Mapping[ClientKey, ClientRate]
Unread = dict[Direction, set[int]]  # the brokers whose clients could not be asked for

_SCRAPES = (
    5  # four spans: three for "two of three over the limit", and one for a scrape that failed
)
# at the first reading NICs are read further back: who was their source before we came?
_FIRST_SECONDS, _FIRST_SCRAPES = 3600, 240
_RATE, _THROTTLE = "byte rate", "throttle time"
_RESOURCE = {DIRECTION_OF[key]: word for word, key in BYTE_RATE_OF.items()}


class PrometheusReader:
    """Readings of one policy, connected at the first one. One thread at a time may use it."""

    def __init__(
        self,
        settings: MetricsSettings,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        self._client = PrometheusClient(settings.server, monotonic=monotonic)
        self._names = EntityNames()
        self._queries = queries_of(settings, unnamed=True)
        self._broker_of = broker_of(identity_of(settings))
        self._groups = Groups(identity_of(settings))
        self._clients: Clients = {}  # of the last reading
        # with matchers every series is of the policy's own cluster
        self._source_labels = source_labels(identity_of(settings))
        self._sources = (
            None
            if settings.matchers
            else Sources(self._source_labels, float(settings.scrape_interval_seconds))
        )
        self._is_first = self._sources is not None
        self._nic_seconds = max(
            settings.history_seconds,
            settings.stale_after_seconds,
            _SCRAPES * settings.scrape_interval_seconds,
        )

    def read(self, brokers: Collection[int]) -> Readings:
        """Read everything that Prometheus has now, with problems for gaps of the live `brokers`.

        Nothing is raised: a server that does not answer, refuses or sends nonsense becomes
        `problems`, and its part is absent; of clients that could not be asked for, rates of the
        last reading stay as long as they are fresh. Brokers beyond `brokers` have readings where
        there are any. A call lasts `reading_timeout_seconds` and one read timeout at most, but for
        the lookup of a host name and a server that sends its headers slowly, which are not bounded
        here.
        """
        self._names = EntityNames()
        asking = Asking(
            self._client,
            question_seconds=self._settings.server.question_timeout_seconds,
            reading_seconds=self._settings.reading_timeout_seconds,
            monotonic=self._monotonic,
        )
        sources = SourceOf(self._source_labels, self._broker_of)
        nics = self._ask_nics(asking, sources)
        busiest_first = self._busiest_first(brokers, nics)
        clients, odd, unread = self._ask_clients(asking, sources, busiest_first)
        background = self._ask_background(asking) if self._settings.background else {}
        changed = self._changed(asking, sources.found)
        read_at = self._clock()
        cables = only_cables(nics, self._settings, broker_of=self._broker_of)
        nic, nic_problems = self._nic(cables, brokers, read_at, changed)
        known = self._clients = self._known_clients(clients, unread, read_at, changed)
        problems = (
            *asking.problems,
            *nic_problems,
            *problems_of(odd),
            *self._unmetered(known, unread, brokers, changed),
        )
        return Readings(
            read_at,
            self._settings.scrape_interval_seconds,
            nic,
            known,
            problems,
            {broker: found for broker, found in cables.interfaces.items() if broker in brokers},
            exporters_of(cables, broker_of=self._broker_of) if self._settings.exporters else {},
            background={
                flow: spans
                for flow, spans in background.items()
                if not any(broker == flow[0] for broker, _ in changed)
            },
        )

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _ask_nics(self, asking: Asking, sources: SourceOf) -> Mapping[Direction, list[Series]]:
        queries = {Direction.EGRESS: self._queries.egress, Direction.INGRESS: self._queries.ingress}
        seconds = self._nic_seconds
        if self._is_first:
            further = _FIRST_SCRAPES * self._settings.scrape_interval_seconds
            seconds = max(seconds, min(_FIRST_SECONDS, further))
        answers: dict[Direction, list[Series]] = {}
        for way, query in queries.items():
            answer = asking.ask(query, what=way, seconds=seconds)
            if answer is None:
                continue
            for one in answer:
                sources.note(one, way, counts=True)
            answers[way] = _newest(answer, self._nic_seconds) if self._is_first else answer
        # an answer that is too large is so the next time as well
        self._is_first = self._is_first and asking.given_up
        return answers

    def _ask_background(self, asking: Asking) -> BackgroundSpans:
        """What brokers count of tiered storage. A gap is no problem of this reading.

        Without them, rates that follow these bytes stay as they are.
        """
        found: dict[tuple[int, BackgroundKind], tuple[NicSpan, ...]] = {}
        for kind, way in DIRECTIONS.items():
            query = background_bytes(self._settings, kind)
            answer = asking.ask(query, what=kind.value, seconds=self._nic_seconds)
            spans, _ = nic_spans(
                answer or (), way, broker_of=self._broker_of, read_at_seconds=self._clock()
            )
            found |= {(broker, kind): some for broker, some in spans.items() if some}
        return found

    def _busiest_first(
        self, brokers: Collection[int], nics: Mapping[Direction, list[Series]]
    ) -> list[int]:
        """The brokers in the order in which their clients are asked for: the time may run out."""
        rates: dict[int | None, float] = {}
        for one in (one for series in nics.values() for one in series if len(one.samples) > 1):
            (before_at, before), (at, now) = one.samples[-2:]
            if is_amount(now - before):
                broker = self._broker_of(one.labels)
                rates[broker] = rates.get(broker, 0.0) + (now - before) / (at - before_at)
        return sorted(brokers, key=lambda broker: (-rates.get(broker, 0.0), broker))

    def _ask_clients(
        self, asking: Asking, sources: SourceOf, brokers: list[int]
    ) -> tuple[dict[ClientKey, ClientRate], list[SeriesProblem], Unread]:
        """Rates with throttle times, what is odd, and the brokers that got no answer."""
        queries = self._queries
        of_ways = (
            (Direction.EGRESS, queries.fetch_rate, queries.fetch_throttle),
            (Direction.INGRESS, queries.produce_rate, queries.produce_throttle),
        )
        clients: dict[ClientKey, ClientRate] = {}
        odd: list[SeriesProblem] = []
        unread: Unread = {}
        for group in self._groups.of(brokers):
            for way, rate, throttle in of_ways:
                if rate is None:
                    continue
                rates = self._samples(asking, sources, rate, _RATE, way, group)
                if rates is None:
                    unread.setdefault(way, set()).update(group.brokers)
                    continue
                throttles = self._samples(asking, sources, throttle, _THROTTLE, way, group)
                delays = throttles[0] if throttles is not None else {}
                odd += rates[1] + (throttles[1] if throttles is not None else [])
                for who, sample in rates[0].items():
                    clients[(*who, way)] = _client_rate(sample, delays.get(who))
            self._groups.learn(group)
        return clients, odd, unread

    def _samples(
        self,
        asking: Asking,
        sources: SourceOf,
        query: str | None,
        what: str,
        way: Direction,
        group: Group,
    ) -> tuple[Mapping[Who, ClientSample], list[SeriesProblem]] | None:
        """The newest sample of each client of the group; None = not asked, or no answer."""
        named = f"{_RESOURCE[way]} {what}"
        client = ReadClient(
            named, broker_of=self._broker_of, names=self._names, nan_is_zero=what is _THROTTLE
        )

        def each(series: Series) -> ClientSample | SeriesProblem:
            if self._sources is not None:
                sources.note(series, named, counts=False)
            return client(series)

        seconds = self._settings.stale_after_seconds
        answer = asking.ask_group(query, each, what=named, seconds=seconds, group=group)
        if answer is None:
            return None
        return newest_of_each(answer, named, read_at_seconds=self._clock())

    def _changed(self, asking: Asking, found: Found) -> Mapping[Key, SeriesProblem]:
        """The brokers whose source is not the one of before, by what is read of them."""
        if self._sources is None:
            return {}

        def ask_up(query: str, seconds: float) -> Mapping[Target, float] | None:
            answer = asking.ask(query, what="targets", seconds=seconds)
            if answer is None:
                return None
            newest: dict[Target, float] = {}
            for one in answer:
                target = one.labels.get("job", ""), one.labels.get("instance", "")
                newest[target] = max(newest.get(target, 0.0), one.last_at_seconds)
            return newest

        return self._sources.changed(found, ask_up)

    def _nic(
        self,
        cables: Cables,
        brokers: Collection[int],
        read_at: float,
        changed: Mapping[Key, SeriesProblem],
    ) -> tuple[Nics, tuple[ReadingProblem, ...]]:
        nic = dict[tuple[int, Direction], tuple[NicSpan, ...]]()
        left_out = [*dict.fromkeys(changed.values()), *cables.problems]
        reported: set[tuple[int | None, Direction]] = {
            (problem.broker, way)
            for problem in cables.problems
            for way in judged_directions(self._settings)
        }
        for way, series in cables.series.items():
            spans, odd = nic_spans(series, way, broker_of=self._broker_of, read_at_seconds=read_at)
            nic.update({(broker, way): found for broker, found in spans.items() if found})
            reported |= {(problem.broker, way) for problem in odd}
            left_out += odd
        # where clients' rates may be another cluster's, nothing may be cut for the NIC either
        for key in {(broker, way) for broker, _ in changed for way in Direction}:
            reported.add(key)
            nic.pop(key, None)
        absent = absent_nics(
            nic, brokers, cables.series.keys(), reported=reported, seconds=self._nic_seconds
        )
        stale = stale_nics(
            nic,
            brokers,
            read_at_seconds=read_at,
            stale_after_seconds=self._settings.stale_after_seconds,
            clock_ahead_seconds=read_at - (self._client.server_seconds or read_at),
        )
        return nic, (*problems_of(left_out), *absent, *stale)

    def _known_clients(
        self,
        clients: dict[ClientKey, ClientRate],
        unread: Unread,
        read_at: float,
        changed: Mapping[Key, SeriesProblem],
    ) -> Clients:
        """With what is still fresh of unread brokers; without brokers whose source changed."""
        fresh_since = read_at - self._settings.stale_after_seconds
        if unread:
            for key, rate in self._clients.items():
                if key[1] in unread.get(key[2], ()) and rate.at_seconds >= fresh_since:
                    clients.setdefault(key, rate)
        unknown = _brokers_of_clients(changed)
        if not unknown:
            return clients
        return {key: rate for key, rate in clients.items() if key[1] not in unknown}

    def _unmetered(
        self,
        clients: Clients,
        unread: Unread,
        brokers: Collection[int],
        changed: Mapping[Key, SeriesProblem],
    ) -> Iterable[ReadingProblem]:
        """Brokers that were asked for, and reported no client."""
        if self._queries.fetch_rate is None and self._queries.produce_rate is None:
            return ()
        not_read = set[int]().union(*unread.values())  # there is a problem for it already
        if not_read >= set(brokers):
            return ()
        seen = {broker for _, broker, _ in clients} | _brokers_of_clients(changed) | not_read
        return absent_clients(seen, brokers, seconds=self._settings.stale_after_seconds)


def _brokers_of_clients(changed: Mapping[Key, SeriesProblem]) -> set[int]:
    return {broker for broker, what in changed if what not in tuple(Direction)}


def _newest(answer: list[Series], seconds: float) -> list[Series]:
    """The samples of the last seconds before the newest of all."""
    begin = max((one.last_at_seconds for one in answer), default=0.0) - seconds
    cut = (
        Series(one.labels, tuple(sample for sample in one.samples if sample[0] > begin))
        for one in answer
    )
    return [one for one in cut if one.samples]


def _client_rate(rate: ClientSample, throttle: ClientSample | None) -> ClientRate:
    return ClientRate(rate.at_seconds, rate.amount, None if throttle is None else throttle.amount)
