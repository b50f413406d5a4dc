"""A host's cables, read from a real Prometheus that scrapes hosts of many network plugins.

Every host truly sends 100 and receives 30 MB a second. A Pod's end of a pair shows the same bytes
the other way round, a bond and a bridge show them once more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pytest

from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from tests.unit.prometheus.hosts import HOSTS, UNCLEAR
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate_logic.model import Direction, Readings
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

OUT, IN = 100_000_000, 30_000_000
SAME_WAY = re.compile(r"(bond|team|lacp|vmbr|fw|enP5|right).*|.*[v_][0-9]+|.*\\.[0-9]+")
BROKERS = {name: number for number, name in enumerate((*HOSTS, *UNCLEAR), start=1)}
LATE, LATE_SCRAPE = 99, 8  # a broker, and the scrape at which an interface appears


def page(cables: Sequence[str], twins: Sequence[str], scrape: int) -> str:
    """What node_exporter and cAdvisor show of a host; both names, so that each preset finds one."""
    carried = {name: (OUT // len(cables), IN // len(cables)) for name in cables}
    carried |= {name: (OUT, IN) if SAME_WAY.fullmatch(name) else (IN, OUT) for name in twins}
    return "".join(
        f'node_network_{way}_bytes_total{{device="{name}"}} {amount * scrape}\n'
        f'container_network_{way}_bytes_total{{interface="{name}",pod="kafka-0"}} {amount * scrape}\n'
        for name, amounts in carried.items()
        for way, amount in zip(("transmit", "receive"), amounts, strict=True)
    )


def unclear_page(names: Sequence[str], scrape: int) -> str:
    """The last carries a tenth of each other."""
    *most, last = names
    small = page([last], [], scrape).replace(f" {OUT * scrape}\n", f" {OUT // 10 * scrape}\n")
    return "".join(page([one], [], scrape) for one in most) + small


def late_page(scrape: int) -> str:
    return page(["eth0", "eth1"] if scrape >= LATE_SCRAPE else ["eth0"], [], scrape)


def dated(shown: Callable[[int], str]) -> Callable[[int], str]:
    """The same by the second and not by the scrape, at the time that is said beside each sample.

    So a scrape that comes late, or is lost, on a busy machine changes no rate.
    """
    began_ms = round(time.time() * 1000)

    def at(scrape: int) -> str:
        now_ms, scrape = round(time.time() * 1000), max(scrape, 1)
        samples = (line.rpartition(" ") for line in shown(scrape).splitlines())
        return "".join(
            f"{series} {int(value) // scrape * (now_ms - began_ms) // 1000} {now_ms}\n"
            for series, _, value in samples
        )

    return at


@pytest.fixture(scope="module")
def prometheus() -> Iterator[PrometheusLab]:
    pages = {name: partial(page, *of) for name, of in HOSTS.items()}
    pages |= {name: partial(unclear_page, names) for name, names in UNCLEAR.items()}
    with ExitStack() as stack:
        exporters = {
            BROKERS[name]: stack.enter_context(exporting(dated(shown)))
            for name, shown in pages.items()
        }
        exporters[LATE] = stack.enter_context(exporting(dated(late_page)))
        targets = [ScrapeTarget("node", one.address, broker) for broker, one in exporters.items()]
        lab = stack.enter_context(PrometheusLab(targets))
        wait_until(
            lambda: min(one.scrapes for one in exporters.values()) >= LATE_SCRAPE + 3,
            "scrapes of every host",
            timeout_seconds=120,
        )
        yield lab


def read(prometheus: PrometheusLab, brokers: Sequence[int], **settings: object) -> Readings:
    reader = PrometheusReader(
        MetricsSettings(
            PrometheusServer(prometheus.url),
            scrape_interval_seconds=1,
            stale_after_seconds=5,
            **settings,  # type: ignore[arg-type]
        )
    )
    try:
        return reader.read(brokers)
    finally:
        reader.close()


def megabytes(readings: Readings, broker: int) -> tuple[float, float] | None:
    """Both ways over all spans; None = not known."""
    found = [readings.nic.get((broker, way), ()) for way in (Direction.EGRESS, Direction.INGRESS)]
    if not all(found):
        return None
    egress, ingress = (
        sum(one.bytes_per_second * one.seconds for one in spans) / sum(one.seconds for one in spans)
        for spans in found
    )
    return round(egress / 1e6, 1), round(ingress / 1e6, 1)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_read_as_what_its_cables_carry(prometheus: PrometheusLab, host: str) -> None:
    readings = read(prometheus, [BROKERS[host]])
    assert megabytes(readings, BROKERS[host]) == (100.0, 30.0)
    counted = {one.name for one in readings.interfaces[BROKERS[host]]}
    assert counted == set(HOSTS[host][0])


@pytest.mark.parametrize("host", UNCLEAR)
def test_a_host_whose_cables_cannot_be_told_is_unknown_with_names_until_they_are_given(
    prometheus: PrometheusLab, host: str
) -> None:
    broker, names = BROKERS[host], UNCLEAR[host]
    readings = read(prometheus, [broker])
    assert megabytes(readings, broker) is None
    (problem,) = [
        one
        for one in readings.problems
        if one.reason is Reason.INTERFACES_UNCLEAR and one.broker == broker
    ]
    assert all(name in problem.message for name in names)
    named = read(prometheus, [broker], interfaces=(names[0],))
    assert megabytes(named, broker) == (100.0, 30.0)


def test_an_interface_that_appears_makes_its_broker_unknown_before_it_counts(
    prometheus: PrometheusLab,
) -> None:
    readings = read(prometheus, [LATE], history_seconds=60)
    assert megabytes(readings, LATE) is None
    assert any("eth1" in one.message for one in readings.problems)


def test_cadvisor_of_a_pod_on_the_hosts_network_is_read_alike(prometheus: PrometheusLab) -> None:
    broker = BROKERS["AWS VPC CNI"]
    readings = read(
        prometheus,
        [0],
        preset=Preset.CADVISOR,
        matchers={"broker": str(broker)},
    )
    assert megabytes(readings, 0) == (100.0, 30.0)
