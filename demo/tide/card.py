"""What the broker's network card sent, second by second, as Prometheus scraped it.

Without root no broker has a card of its own. The operator then reads what the broker says it sent (JMX); the experiment is judged by what
its readers got: there are no others.
"""

from demo.tide.script import BROKER
from lab.kafka import KafkaLab
from lab.prometheus import PrometheusLab
from lab.rates import ByteSeries, growth

_CARD = f'node_network_transmit_bytes_total{{broker="{BROKER}",device="eth0"}}'
_JMX = f'kafka_broker_bytesout_total{{broker="{BROKER}",topic=""}}'


def card_source(kafka: KafkaLab) -> str:
    """Where the bytes of the card come from, in words."""
    if kafka.network is None:
        return "what all four clients got together (only in a network namespace has a broker its own card, and that needs root)"
    return "the network card of the broker's own namespace (node_exporter), scraped once a second by Prometheus"


def sent_by_card(prometheus: PrometheusLab, *, start_seconds: float, end_seconds: float) -> ByteSeries:
    """Bytes per second over the span; empty where nothing was scraped."""
    answer = prometheus.query_range(_CARD, start_seconds, end_unix_seconds=end_seconds, step_seconds=1)
    return ByteSeries(growth(answer[0]["values"]) if answer else ())


def recent_card_rate(kafka: KafkaLab, prometheus: PrometheusLab, *, seconds: int) -> float | None:
    """The mean of the last seconds in bytes per second; None before enough was scraped."""
    counter = _JMX if kafka.network is None else _CARD
    answer = prometheus.query(f"rate({counter}[{seconds + 1}s])")
    return float(answer[0]["value"][1]) if answer else None
