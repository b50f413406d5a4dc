"""One reading: asks a policy's Prometheus for NICs and clients and gives back what is known, with what is missing told beside it.

It judges no load and holds no memory: each reading stands for itself, with the times of its samples.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from controller_logic.model import ClientRate, Direction, Entity, NicSpan, ReadingProblem, Readings
from controller_logic.reasons import Reason
from tidegate.prometheus.client import Asking, PrometheusClient
from tidegate.prometheus.clients import ClientSample, ReadClient, newest_of_each
from tidegate.prometheus.nics import nic_spans
from tidegate.prometheus.queries import broker_of, identity_of, queries_of
from tidegate.prometheus.series import Series, SeriesProblem, problems_of
from tidegate.prometheus.settings import MetricsSettings

# What a reading should have and has not: NICs of live brokers, fresh samples, rates of clients.
# It tells; it fills nothing in.


Nics = Mapping[tuple[int, Direction], tuple[NicSpan, ...]]
Ways = tuple[Direction, ...]


def absent_nics(
    nics: Nics,
    brokers: Collection[int],
    directions: Iterable[Direction],
    *,
    told: Collection[tuple[int | None, Direction]],
    seconds: float,
) -> Iterable[ReadingProblem]:
    """Live brokers without a span in one of the `directions` that were answered; where one of `told` has none, that is known already."""
    hint = "Check that Prometheus scrapes their exporters, and that each series names its broker as metrics.brokerIdentity says."

    def message(which: str, ways: str) -> str:
        return f"{which} without two samples of {ways} in the last {seconds:g} s, so the load is not known. {hint}"

    missing = _ways_by_broker(brokers, directions, lambda key: key not in told and not nics.get(key))
    return _for_each_or_all(Reason.METRICS_MISSING, missing, brokers, message)


def stale_nics(nics: Nics, brokers: Collection[int], *, read_at_seconds: float, stale_after_seconds: float) -> Iterable[ReadingProblem]:
    """Live brokers whose newest span is older than it may be."""

    def is_stale(key: tuple[int, Direction]) -> bool:
        return bool(nics.get(key)) and read_at_seconds - nics[key][-1].at_seconds > stale_after_seconds

    def message(which: str, ways: str) -> str:
        hint = "Look at the exporters and at Prometheus' targets."
        return f"{which} with no sample of {ways} that is newer than {stale_after_seconds:g} s. {hint}"

    return _for_each_or_all(Reason.METRICS_STALE, _ways_by_broker(brokers, Direction, is_stale), brokers, message)


def absent_clients(seen: Collection[int], brokers: Collection[int], *, seconds: float) -> Iterable[ReadingProblem]:
    """`seen` are the brokers of which any client's rate is known. None at all has another cause than a single broker's silence."""
    if not seen:
        why = f"No broker told the rate of any user or client id in the last {seconds:g} s."
        hint = "Kafka meters clients only where a quota exists, and the JMX exporter shows them only with the rules for it."
        yield ReadingProblem(Reason.CLIENTS_NOT_METERED, f"{why} {hint}")
        return
    for broker in sorted(set(brokers) - set(seen)):
        why = f"Broker {broker} told the rate of no user or client id in the last {seconds:g} s, and others did."
        yield ReadingProblem(Reason.CLIENTS_NOT_METERED, f"{why} Check its JMX exporter, unless nobody uses this broker.", broker)


def _ways_by_broker(
    brokers: Iterable[int], directions: Iterable[Direction], is_so: Callable[[tuple[int, Direction]], bool]
) -> Mapping[int, Ways]:
    ways = {broker: tuple(direction for direction in directions if is_so((broker, direction))) for broker in sorted(brokers)}
    return {broker: found for broker, found in ways.items() if found}


def _for_each_or_all(
    reason: Reason, ways: Mapping[int, Ways], brokers: Collection[int], message: Callable[[str, str], str]
) -> Iterable[ReadingProblem]:
    """One problem for all brokers where it is the same with all, else one each."""
    if len(ways) > 1 and ways.keys() == set(brokers) and len(set(ways.values())) == 1:
        which = next(iter(ways.values()))
        yield ReadingProblem(reason, message(f"All {len(ways)} brokers are", " and ".join(which)), directions=which)
        return
    for broker, which in ways.items():
        yield ReadingProblem(reason, message(f"Broker {broker} is", " and ".join(which)), broker, which)


Clients = Mapping[tuple[Entity, int, Direction], ClientRate]
_ClientAnswers = Mapping[Direction, list[ClientSample | SeriesProblem]]

_SCRAPES = 5  # four spans: three for "two of three over the limit" (control.md 3.2), and one for a scrape that failed
_RATE, _THROTTLE = "byte rate", "throttle time"
_RESOURCE = {Direction.EGRESS: "fetch", Direction.INGRESS: "produce"}


class PrometheusReader:
    """Readings of one policy. One thread at a time may use it; it connects with the first reading."""

    def __init__(
        self, settings: MetricsSettings, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        self._client = PrometheusClient(settings.server, monotonic=monotonic)
        self._queries = queries_of(settings)
        self._broker_of = broker_of(identity_of(settings))
        self._nic_seconds = max(settings.history_seconds, settings.stale_after_seconds, _SCRAPES * settings.scrape_interval_seconds)

    def read(self, brokers: Collection[int]) -> Readings:
        """Everything that Prometheus knows now; `brokers` are the live ones, of which readings are expected.

        Raises nothing of its own: a server that is away, refuses or lies ends in `problems`, and what it did not tell is absent. Brokers
        beyond `brokers` have readings where there are any. Lasts `reading_timeout_seconds` and one read timeout at most; looking up a host
        name and a server that drips its headers are bounded by nothing here.
        """
        asking = Asking(self._client, until_monotonic_seconds=self._monotonic() + self._settings.server.reading_timeout_seconds)
        nics = self._ask_nics(asking)
        queries = self._queries
        rates = self._ask_clients(asking, _RATE, queries.fetch_rate, queries.produce_rate)
        throttles = self._ask_clients(asking, _THROTTLE, queries.fetch_throttle, queries.produce_throttle)
        read_at = self._clock()
        nic, nic_problems = self._nic(nics, brokers, read_at)
        clients, client_problems = self._rates(rates, throttles, brokers, read_at)
        problems = (*asking.problems, *nic_problems, *client_problems)
        return Readings(read_at, self._settings.scrape_interval_seconds, nic, clients, problems)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _ask_nics(self, asking: Asking) -> Mapping[Direction, list[Series]]:
        queries = {Direction.EGRESS: self._queries.egress, Direction.INGRESS: self._queries.ingress}
        asked = {way: asking.ask(query, lambda series: series, what=way, seconds=self._nic_seconds) for way, query in queries.items()}
        return {way: answer for way, answer in asked.items() if answer is not None}

    def _ask_clients(self, asking: Asking, what: str, fetch: str | None, produce: str | None) -> _ClientAnswers:
        answers: dict[Direction, list[ClientSample | SeriesProblem]] = {}
        for way, query in ((Direction.EGRESS, fetch), (Direction.INGRESS, produce)):
            named = f"{_RESOURCE[way]} {what}"
            each = ReadClient(named, broker_of=self._broker_of, nan_is_zero=what is _THROTTLE)
            answer = asking.ask(query, each, what=named, seconds=self._settings.stale_after_seconds)
            if answer is not None:
                answers[way] = answer
        return answers

    def _nic(
        self, nics: Mapping[Direction, list[Series]], brokers: Collection[int], read_at: float
    ) -> tuple[Nics, tuple[ReadingProblem, ...]]:
        nic, oddities = dict[tuple[int, Direction], tuple[NicSpan, ...]](), list[SeriesProblem]()
        told: set[tuple[int | None, Direction]] = set()
        for way, series in nics.items():
            spans, odd = nic_spans(series, way, broker_of=self._broker_of, read_at_seconds=read_at)
            nic.update({(broker, way): found for broker, found in spans.items() if found})
            told |= {(oddity.broker, way) for oddity in odd}
            oddities += odd
        absent = absent_nics(nic, brokers, nics.keys(), told=told, seconds=self._nic_seconds)
        stale = stale_nics(nic, brokers, read_at_seconds=read_at, stale_after_seconds=self._settings.stale_after_seconds)
        return nic, (*problems_of(oddities), *absent, *stale)

    def _rates(
        self, rates: _ClientAnswers, throttles: _ClientAnswers, brokers: Collection[int], read_at: float
    ) -> tuple[Clients, tuple[ReadingProblem, ...]]:
        clients, oddities = dict[tuple[Entity, int, Direction], ClientRate](), list[SeriesProblem]()
        for way, answer in rates.items():
            newest, odd = newest_of_each(answer, f"{_RESOURCE[way]} {_RATE}", read_at_seconds=read_at)
            throttled, odd_throttles = newest_of_each(throttles.get(way, ()), f"{_RESOURCE[way]} {_THROTTLE}", read_at_seconds=read_at)
            oddities += odd + odd_throttles
            clients.update({(*who, way): _client_rate(sample, throttled.get(who)) for who, sample in newest.items()})
        problems = problems_of(oddities)
        asked = [query for query in (self._queries.fetch_rate, self._queries.produce_rate) if query is not None]
        if asked and len(rates) == len(asked):  # else why nothing is known is told already
            seen = {broker for _, broker, _ in clients}
            problems += tuple(absent_clients(seen, brokers, seconds=self._settings.stale_after_seconds))
        return clients, problems


def _client_rate(rate: ClientSample, throttle: ClientSample | None) -> ClientRate:
    return ClientRate(rate.at_seconds, rate.amount, None if throttle is None else throttle.amount)
