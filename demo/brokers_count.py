"""The second witness: the bytes that the brokers themselves say they took from clients, read through Prometheus."""

from lab.prometheus import PrometheusLab
from lab.rates import ByteSeries, growth, steady_mean

_COUNTER = "kafka_broker_bytesin_total"


def counted_by_brokers(prometheus: PrometheusLab, start_seconds: float, *, length_seconds: int) -> float | None:
    """Steady mean of all brokers' intake in bytes per second over the window; None when no broker was scraped in it.

    The counter holds every topic and what a record batch adds to the payload (well below 1 % here); replication is not in it.
    """
    answer = prometheus.query_range(_COUNTER, start_seconds - 1, end_unix_seconds=start_seconds + length_seconds + 1, step_seconds=1)
    series = [ByteSeries(growth(result["values"])) for result in answer]
    return sum(steady_mean(one, start_seconds, length_seconds) for one in series) if series else None
