"""The brokers' own counters, sample by sample: the witness against which tables are held to the byte.

It shares no code with the rollups. A byte between two samples belongs to the time between them; at the end of the last window it is
shared out by time, in whole bytes.
"""

from collections.abc import Iterable
from itertools import pairwise

from demo.usage_outcome import Way
from lab.prometheus import PrometheusLab

# As Kafka sees it: a client that writes sends bytes in.
COUNTERS = {"produce": "kafka_broker_bytesin_total", "fetch": "kafka_broker_bytesout_total"}
Reading = tuple[int, int]  # when, in milliseconds since the epoch, and the count


def counted_by_brokers(prometheus: PrometheusLab, *, until_ms: int, longest_seconds: int) -> dict[Way, int]:
    """Bytes of clients by broker and direction, from the first sample to `until_ms`; of samples later than that the first is needed."""
    counted: dict[Way, int] = {}
    for direction, counter in COUNTERS.items():
        for series in prometheus.query(f"{counter}[{longest_seconds}s]"):
            readings = [(round(float(at) * 1000), int(float(count))) for at, count in series["values"]]
            way = (int(series["metric"]["broker"]), direction)
            counted[way] = counted.get(way, 0) + grown_until(readings, until_ms)
    return counted


def grown_until(readings: Iterable[Reading], until_ms: int) -> int:
    """By how much a counter grew. One that fell began anew (its broker was killed): it grew by what it shows."""
    total = 0
    for (before_ms, before), (at_ms, count) in pairwise(readings):
        grown = count - before if count >= before else count
        if at_ms <= until_ms:
            total += grown
        elif before_ms < until_ms:
            total += grown * (until_ms - before_ms) // (at_ms - before_ms)
    return total
