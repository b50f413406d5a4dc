"""One Prometheus for all these tests, scraping made-up exporters of three brokers every second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from controller_logic.model import Readings
from lab.process import wait_until
from lab.prometheus import Exporter, PrometheusLab, ScrapeTarget, exporting
from tests.integration.prometheus.exporter_pages import broker_page, node_page, twin_page
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer, Queries

BROKERS = frozenset({1, 2, 3})
HISTORY_SCRAPES = 7

Read = Callable[..., Readings]


@pytest.fixture(scope="session")
def exporters() -> Iterator[dict[tuple[str, int], Exporter]]:
    """The exporters, by job and broker."""
    with ExitStack() as stack:
        pages = {("node", broker): partial(node_page, broker) for broker in BROKERS}
        pages |= {("kafka", broker): partial(broker_page, broker) for broker in BROKERS}
        pages["twin", 1] = twin_page
        yield {key: stack.enter_context(exporting(page)) for key, page in pages.items()}


@pytest.fixture(scope="session")
def prometheus_of_cases(exporters: dict[tuple[str, int], Exporter]) -> Iterator[PrometheusLab]:
    """A Prometheus that scrapes the made-up exporters, with some seconds of history."""
    targets = [ScrapeTarget(job, exporter.address, broker) for (job, broker), exporter in exporters.items()]
    with PrometheusLab(targets) as server:
        wait_until(lambda: min(exporter.scrapes for exporter in exporters.values()) >= HISTORY_SCRAPES, "some history", timeout_seconds=30)
        yield server


@pytest.fixture
def read(prometheus_of_cases: PrometheusLab) -> Iterator[Read]:
    """A function that reads once, at a scrape interval of 1 s.

    Its arguments replace settings: `server` those of the server, `clock` the time, all others those of the metrics.
    """
    readers: list[PrometheusReader] = []

    def once(*, server: dict[str, object] | None = None, clock: Callable[[], float] | None = None, **settings: object) -> Readings:
        given = {"scrape_interval_seconds": 1, "stale_after_seconds": 3, **settings}
        where = PrometheusServer(**{"url": prometheus_of_cases.url, **(server or {})})  # type: ignore[arg-type]
        reader = PrometheusReader(MetricsSettings(where, **given), **({} if clock is None else {"clock": clock}))  # type: ignore[arg-type]
        readers.append(reader)
        return reader.read(BROKERS)

    yield once
    for reader in readers:
        reader.close()


def egress(case: str) -> Queries:
    """Queries for the counters of this case only."""
    return Queries(egress=f'moved{{case="{case}"}}')


def fetch(case: str) -> Queries:
    """Queries for the clients' rates of this case only."""
    return Queries(fetch_rate=f'rate{{case="{case}"}}')
