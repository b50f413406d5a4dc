"""Which series hold what of a broker: the selections of a policy's metrics, by direction and role.

Cards, clients' rates and throttle times are asked for exactly as the control pass asks (`prometheus.presets`), so a table and a decision
never speak of different series. What only tables need are the brokers' own counters of clients' and replicas' bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.prometheus.queries import broker_matcher, identity_of, is_equal, matches, queries_of, selector
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.samples import Selection
from tidegate.rollup.schemas import Direction
from tidegate.rollup.transport.selection_text import selection_of

# This project's rules, the JMX exporter's example for Kafka, Strimzi's reporter.
_CLIENT_BYTES = (
    "kafka_broker_bytes{way}_total",
    "kafka_server_brokertopicmetrics_bytes{way}_total",
    "kafka_server_brokertopicmetrics_bytes{way}persec_total",
)
_REPLICATION_BYTES = tuple(name.replace("bytes{way}", "replicationbytes{way}") for name in _CLIENT_BYTES)
_WAY = {"fetch": "out", "produce": "in"}


@dataclass(frozen=True, slots=True)
class DirectionSelections:
    """Where to read one direction; None = the policy names no such series, and nothing is read."""

    cards: Selection | None
    client_bytes: Selection
    replication_bytes: Selection
    rates: Selection | None
    throttle_times: Selection | None


def catalogue(settings: MetricsSettings) -> Mapping[Direction, DirectionSelections]:
    """The selections for all brokers together. Raises InvalidResource for a query of the policy that is no plain selector."""
    queries = queries_of(settings)
    brokers = broker_matcher(identity_of(settings))
    return {
        "produce": _direction(queries.ingress, queries.produce_rate, queries.produce_throttle, brokers=brokers, direction="produce"),
        "fetch": _direction(queries.egress, queries.fetch_rate, queries.fetch_throttle, brokers=brokers, direction="fetch"),
    }


def _direction(
    cards: str | None, rates: str | None, throttle_times: str | None, *, brokers: str, direction: Direction
) -> DirectionSelections:
    return DirectionSelections(
        cards=_selection(cards),
        client_bytes=_counters(_CLIENT_BYTES, direction, brokers=brokers),
        replication_bytes=_counters(_REPLICATION_BYTES, direction, brokers=brokers),
        rates=_selection(rates),
        throttle_times=_selection(throttle_times),
    )


def _selection(query: str | None) -> Selection | None:
    return None if query is None else selection_of(query)


def _counters(names: tuple[str, ...], direction: Direction, *, brokers: str) -> Selection:
    """The broker's total; series of single topics count the same bytes once more."""
    metric = matches("__name__", *(name.format(way=_WAY[direction]) for name in names))
    return selection_of(selector(metric, is_equal("topic", ""), brokers))
