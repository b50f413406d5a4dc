"""What one reading of a large cluster costs: 50 brokers with 5000 metered clients each.

A real Prometheus scrapes made-up exporters, one for each broker: a million series of clients, in
four questions for each group of brokers. The bound is one scrape interval of one core: the
processor's time of the reader's only thread. Prometheus' own time and the exporters' are not in it.
"""

import time
from contextlib import ExitStack

import psutil

from bench.results import Figure, median_of
from lab.process import wait_until
from lab.prometheus import Exporter, Metrics, PrometheusLab, ScrapeTarget, exporting
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate_logic.readings import flows_of
from tidegate_logic.reasons import Reason

BROKERS, CLIENTS, RUNS = 50, 5000, 3
SCRAPE_SECONDS = 60  # the machine needs most of that to take so many series in
BOUND_SECONDS = 15.0  # the usual scrape interval
_START_SECONDS = 300
_SCRAPES = 4  # three samples in the time for which clients are asked
_STEP_BYTES = 15_000_000  # of a broker's own counters, for each scrape


def reading_figures(brokers: int = BROKERS, clients: int = CLIENTS) -> list[Figure]:
    """Processor, clock and memory of whole readings, the first one apart.

    Raises RuntimeError where a reading lacks anything.
    """
    with ExitStack() as stack:
        exporters = [
            stack.enter_context(exporting(page_of(broker, clients))) for broker in range(brokers)
        ]
        targets = [
            ScrapeTarget("kafka", exporter.address, broker)
            for broker, exporter in enumerate(exporters)
        ]
        server = stack.enter_context(
            PrometheusLab(
                targets,
                scrape_interval_seconds=SCRAPE_SECONDS,
                start_timeout_seconds=_START_SECONDS,
            )
        )
        _wait_for_history(exporters)
        return _measured(server.url, brokers, clients)


def page_of(broker: int, clients: int) -> Metrics:
    """What the broker's exporter shows: its own counters, and of each client four gauges."""
    lines = [
        f'kafka_quota_{what}{{resource="{resource}",user="user-{client:05d}"}} '
        f"{client * 1000.25 + broker}"
        for what in ("byte_rate", "throttle_time")
        for resource in ("Fetch", "Produce")
        for client in range(clients)
    ]
    gauges = "\n".join(lines)

    def page(scrape: int) -> str:
        moved = scrape * _STEP_BYTES
        return (
            f"kafka_broker_bytesout_total {moved}\nkafka_broker_bytesin_total {moved}\n{gauges}\n"
        )

    return page


def _wait_for_history(exporters: list[Exporter]) -> None:
    wait_until(
        lambda: min(exporter.scrapes for exporter in exporters) >= _SCRAPES,
        f"{_SCRAPES} scrapes of each broker",
        timeout_seconds=_START_SECONDS + _SCRAPES * SCRAPE_SECONDS,
    )


def _measured(url: str, brokers: int, clients: int) -> list[Figure]:
    settings = MetricsSettings(
        # how long it waits for a Prometheus on the same two cores is not what is measured
        PrometheusServer(url, read_timeout_seconds=300.0, question_timeout_seconds=1200.0),
        Preset.JMX_EXPORTER,
        scrape_interval_seconds=SCRAPE_SECONDS,
        stale_after_seconds=3 * SCRAPE_SECONDS,
    )
    reader = PrometheusReader(settings)
    before_bytes = psutil.Process().memory_info().rss
    what = (
        f"{brokers} brokers with {clients} metered clients each, {4 * brokers * clients:,} series"
    )
    processor: list[Figure] = []
    clock: list[Figure] = []
    flows: list[Figure] = []
    for _ in range(RUNS):
        started = time.thread_time(), time.perf_counter()
        readings = reader.read(range(brokers))
        took = time.thread_time() - started[0], time.perf_counter() - started[1]
        # NICs are asked for first; on a busy machine they are old when the last answer comes
        odd = [one for one in readings.problems if one.reason is not Reason.METRICS_STALE]
        if odd or len(readings.clients) != 2 * brokers * clients:
            raise RuntimeError(f"{len(readings.clients)} rates were read, {odd[:3]}")
        processor.append(Figure(f"{what}: processor of a reading", took[0], "s", BOUND_SECONDS))
        clock.append(
            Figure(f"{what}: from the first question to the last answer", took[1], "s", None)
        )
        started_flows = time.thread_time()
        flows_of(readings, now_seconds=readings.read_at_seconds, stale_after_seconds=1e6)
        taken = time.thread_time() - started_flows
        flows.append(
            Figure(f"{what}: processor of sorting its rates, once a pass", taken, "s", None)
        )
    reader.close()
    grown = (psutil.Process().memory_info().rss - before_bytes) / 1e6
    memory = Figure(f"{what}: memory of a reading and of the one before", grown, "MB", None)
    return [median_of(processor), median_of(clock), median_of(flows), memory]
