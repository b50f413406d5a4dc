"""What the rollups' benchmarks do in a process of its own; it prints JSON at its end.

So no Java machine stays in the process that measures. `python -m bench.rollup.process URL FROM_MS
TO_MS STORE ROUNDS` reads and folds the hours once to warm up, then so many times by the
clock, then carries out a whole run, and prints what merged sketches show of each broker.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
from pyspark import SparkContext

from bench.rollup.synthetic import SCRAPE_MS
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.fold.hours import GROWTH
from tidegate.rollup.ingest import IngestOrder, WorkItem, read_source
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import spark_started
from tidegate.rollup.spark.stages import ingest_all
from tidegate.rollup.tables.format import new_run_id
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import open_reader
from tidegate.rollup.transport.remote_read import RemoteReadChunks

_MASTER = "local[2,3]"
QUANTILES = (0.5, 0.95, 0.99)


def warm(url: str, start_ms: int, end_ms: int, *, store_url: str, rounds: int) -> dict[str, object]:
    """Seconds of each round of reading, folding and writing, and of a whole run; and quantiles."""
    server = PrometheusServer(url)
    history = HistorySettings(server, scrape_interval_ms=SCRAPE_MS)
    order = IngestOrder(
        new_run_id(end_ms), store_url, RemoteReadChunks.name, MetricsSettings(server), history
    )
    reader = open_reader(order.transport, history)
    brokers = read_source(reader, order.metrics, start_ms, end_ms).brokers
    hours = range(start_ms, end_ms, HOUR_MS)
    items = [
        WorkItem(broker, hour, hour + HOUR_MS, part)
        for part, (hour, broker) in enumerate((h, b) for h in hours for b in brokers)
    ]
    with spark_started("bench", master=_MASTER) as spark:
        _ingested(spark.context, order, items)
        seconds = [_ingested(spark.context, order, items) for _ in range(rounds)]
        started = time.perf_counter()
        run = RollupRun(
            replace(order, run_id=new_run_id(end_ms)),
            start_ms,
            end_ms,
            clock_ms=lambda: end_ms,
            tell=lambda _: None,
        )
        run_rollup(spark, run, reader)
        whole = time.perf_counter() - started
        reader.close()
        return {
            "rounds": seconds,
            "whole": whole,
            "quantiles": _quantiles(store_url, start_ms, end_ms),
        }


def _ingested(context: SparkContext, order: IngestOrder, items: list[WorkItem]) -> float:
    started = time.perf_counter()
    if not ingest_all(context, order, items):
        raise RuntimeError("nothing was read, so nothing was measured")
    return time.perf_counter() - started


def _quantiles(store_url: str, start_ms: int, end_ms: int) -> list[list[object]]:
    """Broker, direction, and the five-minute rates of its clients at `QUANTILES`.

    They come from all their sketches added up.
    """
    counts: dict[tuple[int, str], Counter[int]] = {}
    rows = UsageStore.at(store_url).rows(
        "usage_1h", start_ms, end_ms, columns=["broker", "direction", "sketch"]
    )
    for row in rows.to_pylist():
        counts.setdefault((row["broker"], row["direction"]), Counter()).update(dict(row["sketch"]))
    return [
        [*key, *(_at(added, share) for share in QUANTILES)] for key, added in sorted(counts.items())
    ]


def _at(counts: Counter[int], share: float) -> float:
    """The rate at a rank, as docs/usage-tables.md has it."""
    buckets = sorted(counts)
    until = np.cumsum([counts[bucket] for bucket in buckets])
    bucket = buckets[int(np.searchsorted(until, share * until[-1]))]
    return 0.0 if bucket == 0 else 2 * GROWTH**bucket / (GROWTH + 1)


def main() -> int:
    """Do what the arguments say, and say what came of it."""
    url, start_ms, end_ms, store_url, rounds = sys.argv[1:]
    done = warm(
        url,
        int(start_ms),
        int(end_ms),
        store_url=store_url,
        rounds=int(rounds),
    )
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
