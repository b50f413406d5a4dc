"""The second witness: the bytes that the brokers themselves say they took from clients, read through Prometheus."""

import itertools
from collections.abc import Iterable
from typing import Any

from demo.rates import ByteSeries, Sample, steady_mean
from lab.prometheus import PrometheusLab

_COUNTER = "kafka_broker_bytesin_total"


def counted_by_brokers(prometheus: PrometheusLab, start_seconds: float, *, length_seconds: int) -> float | None:
    """Steady mean of all brokers' intake in bytes per second over the window; None when no broker was scraped in it.

    The counter holds every topic and what a record batch adds to the payload (well below 1 % here); replication is not in it.
    """
    answer = prometheus.query_range(_COUNTER, start_seconds - 1, end_unix_seconds=start_seconds + length_seconds + 1, step_seconds=1)
    series = [ByteSeries(growth(result["values"])) for result in answer]
    return sum(steady_mean(one, start_seconds, length_seconds) for one in series) if series else None


def growth(values: Iterable[list[Any]]) -> list[Sample]:
    """A counter's readings as bytes per interval. A reset (a broker started anew) counts as no growth."""
    readings = [(float(at), float(text)) for at, text in values]
    pairs = itertools.pairwise(readings)
    first = [Sample(readings[0][0], 0)] if readings else []
    return first + [Sample(at, max(0, round(now - before))) for (_, before), (at, now) in pairs]
