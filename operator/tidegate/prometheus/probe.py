"""Which of the series that control needs exist in a Prometheus, and where not, what is near.

For `tidegate doctor`: readings say that a broker is not measured, this finds out why. A query that
finds nothing is asked again without the broker's label and without the matchers, for an example.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields, replace

from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.queries import (
    broker_of,
    identity_of,
    matchers_of,
    matches,
    narrowed,
    over_last,
    queries_of,
    selector,
)
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, Queries

_EXAMPLES = 3
_QUESTION_SECONDS = 5.0
# What may be meant by another name comes first, then what every exporter of Kafka shows.
_BYTES = ("(?i:kafka_.*bytes_?{way}.*)",)
_CLIENTS = ("(?i:kafka_.*{way}.*(byte_?rate|throttle).*)", "(?i:kafka_.*quota.*)")
_NEAR = {
    "egress": [one.format(way="out") for one in _BYTES],
    "ingress": [one.format(way="in") for one in _BYTES],
    "fetch_rate": [one.format(way="fetch") for one in _CLIENTS],
    "produce_rate": [one.format(way="produce") for one in _CLIENTS],
    "fetch_throttle": [one.format(way="fetch") for one in _CLIENTS],
    "produce_throttle": [one.format(way="produce") for one in _CLIENTS],
}
_EXPORTER = ("jmx_exporter_build_info", "jmx_scrape_duration_seconds", "kafka_.*")


@dataclass(frozen=True, slots=True)
class Found:
    """What one query found: `count` series, of these brokers.

    Examples, for a query that found none of the cluster's brokers: `unlabelled` is a series that
    lacks only the broker's label, `elsewhere` one that only the matchers leave out, `related`
    another of a Kafka exporter; "" = there is none. `labels` are those of `unlabelled` that do name
    one of the cluster's brokers.
    """

    name: str
    query: str
    count: int = 0
    brokers: frozenset[int] = frozenset()
    unlabelled: str = ""
    labels: tuple[str, ...] = ()
    elsewhere: str = ""
    related: str = ""


class Probe:
    """Asks one Prometheus. One thread at a time may use it. Raises what the client raises."""

    def __init__(
        self, settings: MetricsSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._client = PrometheusClient(settings.server, monotonic=monotonic)

    @property
    def server_seconds(self) -> float | None:
        """The server's clock now; None before the first answer, or where it gives no date."""
        return self._client.server_seconds

    def look(self, brokers: Collection[int]) -> tuple[Found, ...]:
        """Each query of the settings with what it finds, in the order of `Queries`."""
        queries = queries_of(self._settings)
        return tuple(
            self._found(field.name, query, brokers)
            for field in fields(Queries)
            if (query := getattr(queries, field.name)) is not None
        )

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _found(self, name: str, query: str, brokers: Collection[int]) -> Found:
        identity = identity_of(self._settings)
        of = broker_of(identity)
        label = identity.name if isinstance(identity, BrokerLabel) else "instance"
        # counted there: a large cluster has a series for each client and broker
        counts = self._ask(
            f"count by ({label}) ({self._newest(query)})",
        )
        named = frozenset(broker for one in counts if (broker := of(one.labels)) is not None)
        found = Found(name, query, sum(int(one.samples[-1][1]) for one in counts), named)
        return found if named & set(brokers) else self._with_examples(found, brokers)

    def _with_examples(self, found: Found, brokers: Collection[int]) -> Found:
        identity = self._settings.brokers
        anyone = replace(identity, pattern=None) if isinstance(identity, BrokerLabel) else identity
        anywhere = replace(self._settings, matchers={}, brokers=anyone)
        unlabelled = self._examples(queries_of(self._settings, any_broker=True), found.name)
        if unlabelled:
            return replace(
                found,
                unlabelled=str(unlabelled[0]),
                labels=_naming_brokers(unlabelled, brokers),
            )
        if matchers_of(self._settings):
            elsewhere = self._examples(queries_of(anywhere, any_broker=True), found.name)
            if elsewhere:
                return replace(found, elsewhere=str(elsewhere[0]))
        for names in (_NEAR[found.name], _EXPORTER):
            near = selector(matches("__name__", *names))
            related = self._some(narrowed(near, matchers_of(self._settings)))
            if related:
                return replace(found, related=str(related[0]))
        return found

    def _examples(self, queries: Queries, name: str) -> list[Series]:
        query = getattr(queries, name)
        return [] if query is None else self._some(query)

    def _some(self, query: str) -> list[Series]:
        return self._ask(f"topk({_EXAMPLES}, {self._newest(query)})")

    def _newest(self, query: str) -> str:
        return f"last_over_time({over_last(query, self._settings.stale_after_seconds)})"

    def _ask(self, promql: str) -> list[Series]:
        until = self._monotonic() + _QUESTION_SECONDS
        return self._client.query(promql, until_monotonic_seconds=until)


def _naming_brokers(series: Iterable[Series], brokers: Collection[int]) -> tuple[str, ...]:
    """The labels that name one of these brokers in every series, by its id or its Pod."""
    shared: set[str] | None = None
    for one in series:
        naming = {
            label for label in one.labels if broker_of(BrokerLabel(label))(one.labels) in brokers
        }
        shared = naming if shared is None else shared & naming
    return tuple(sorted(shared or ()))
