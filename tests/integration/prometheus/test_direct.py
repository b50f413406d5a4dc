"""Direct readings beside a real Prometheus that scrapes every 15 s: how soon a jump is seen, and
exporters that are unreachable, slow, false, or behind TLS and a login.
"""

from __future__ import annotations

import base64
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lab.process import wait_until
from lab.prometheus import Exporter, PrometheusLab, ScrapeTarget, exporting
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.integration.kafka.certificates import make_certificates
from tidegate.observe.metrics_watch import Dependencies, MetricsWatch
from tidegate.resources.policy import MetricsSource
from tidegate_logic.model import BrokerLimit, BrokerLimits, Direction, Readings
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import newest_direct

pytestmark = pytest.mark.integration

MB = 1_000_000
LIMITS = BrokerLimits(BrokerLimit(egress=100 * MB))
SCRAPE_SECONDS = 15


class Machine:
    """A host whose NIC sends so many MB/s from now on; its exporter may be slow or false."""

    def __init__(self) -> None:
        self.slow_seconds = 0.0
        self.factor = 1
        self._rate = 90.0 * MB
        self._sent = 1e12
        self._since = time.monotonic()

    def send(self, megabytes: float) -> None:
        self._sent, self._since = self.sent, time.monotonic()
        self._rate = megabytes * MB

    @property
    def sent(self) -> float:
        return self._sent + self._rate * (time.monotonic() - self._since)

    def page(self, _: int) -> str:
        time.sleep(self.slow_seconds)
        return "".join(
            f'node_network_{way}_bytes_total{{device="eth0"}} {self.sent * self.factor:.0f}\n'
            for way in ("transmit", "receive")
        )


class Watched:
    """A policy's metrics as its loop uses them."""

    def __init__(self, url: str, kubernetes: InMemoryKubernetes, **direct: Any) -> None:
        self.woken: list[float] = []
        self._watch = MetricsWatch(
            "streaming",
            Dependencies(
                kubernetes,
                lambda: self.woken.append(time.monotonic()),
                lambda: None,
                forget=lambda: None,
            ),
        )
        self._spec = MetricsSource.model_validate(
            {
                "prometheus": {"url": url},
                "scrapeIntervalSeconds": SCRAPE_SECONDS,
                "direct": {"enabled": True, **direct},
            }
        )

    def readings(self) -> Readings | None:
        return self._watch.latest(self._spec, {1}, LIMITS)

    def close(self) -> None:
        self._watch.close()

    def rates(self) -> list[float]:
        """The newest two direct readings, in MB/s, while they may be used."""
        readings = self.readings()
        if readings is None:
            return []
        newest = newest_direct(readings, 1, Direction.EGRESS)
        return [one.bytes_per_second / MB for one in newest]

    def failure(self) -> str:
        """Why broker 1 is not read directly; empty = it is."""
        readings = self.readings()
        return next(
            (
                one.message
                for one in (readings.problems if readings is not None else ())
                if one.reason is Reason.NOT_READ_DIRECTLY
            ),
            "",
        )

    def await_rates(self) -> None:
        wait_until(lambda: bool(self.rates()), "two direct readings", timeout_seconds=90)

    def await_failure(self, words: str) -> None:
        wait_until(lambda: words in self.failure(), words, timeout_seconds=20)
        assert self.rates() == []


@contextmanager
def watching(
    prometheus: PrometheusLab, kubernetes: InMemoryKubernetes | None = None, **direct: Any
) -> Iterator[Watched]:
    watched = Watched(prometheus.url, kubernetes or InMemoryKubernetes(), **direct)
    try:
        yield watched
    finally:
        watched.close()


def port_of(server: Exporter) -> int:
    return int(server.address.rpartition(":")[2])


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="module")
def exporter(machine: Machine) -> Iterator[Exporter]:
    with exporting(machine.page) as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(exporter: Exporter) -> Iterator[PrometheusLab]:
    targets = [ScrapeTarget("node", exporter.address, 1)]
    with PrometheusLab(targets, scrape_interval_seconds=SCRAPE_SECONDS) as server:
        yield server


def test_a_jump_is_seen_by_two_readings_before_the_next_scrape(
    prometheus: PrometheusLab, exporter: Exporter, machine: Machine
) -> None:
    with watching(prometheus, port=port_of(exporter)) as watched:
        watched.await_rates()
        assert watched.rates() == pytest.approx([90, 90], rel=0.1)
        scrapes_seen = watched.readings()
        assert scrapes_seen is not None
        machine.send(120)
        jumped = time.monotonic()
        wait_until(
            lambda: len(watched.rates()) == 2 and min(watched.rates()) > 100,
            "two readings over the limit",
            timeout_seconds=10,
            poll_seconds=0.05,
        )
        seconds = time.monotonic() - jumped
        print(f"seen after {seconds:.1f} s")
        assert seconds < 8  # two readings of 2 s after one that is under way; the machine is busy
        machine.send(90)


def test_whatever_is_wrong_with_an_exporter_leaves_the_broker_to_prometheus(
    prometheus: PrometheusLab, exporter: Exporter, machine: Machine
) -> None:
    with watching(prometheus, port=port_of(exporter)) as watched:
        watched.await_rates()
        machine.slow_seconds = 5
        watched.await_failure("did not answer within 1 s")
        machine.slow_seconds = 0
        watched.await_rates()
        machine.factor = 1000
        watched.await_failure("does not go on from what Prometheus read of eth0")
        machine.factor = 1
        watched.await_rates()
    with watching(prometheus, port=1) as watched:
        watched.await_failure("did not answer")
        readings = watched.readings()
        assert readings is not None
        assert (1, Direction.EGRESS) in readings.nic


LOGIN = b"reader:s3cret, \xc3\xbcn\xc3\xafc\xc3\xb6de"


@contextmanager
def guarded(machine: Machine, folder: Path) -> Iterator[tuple[int, bytes]]:
    """The same exporter behind TLS and a login: its port, and its authority's certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = f"Basic {base64.b64encode(LOGIN).decode()}"
            page = machine.page(0).encode()
            self.send_response(200 if self.headers.get("Authorization") == wanted else 401)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    made = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], made.authority.read_bytes()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_exporters_behind_tls_and_a_login_of_their_own(
    prometheus: PrometheusLab, machine: Machine, tmp_path: Path
) -> None:
    kubernetes = InMemoryKubernetes()
    with guarded(machine, tmp_path) as (port, authority):
        password = LOGIN.partition(b":")[2]
        kubernetes.put_secret("streaming", "exporters", {"ca.crt": authority, "right": password})
        kubernetes.put_secret("streaming", "others", {"ca.crt": authority, "wrong": b"x"})

        def direct(secret: str, key: str) -> dict[str, Any]:
            return {
                "port": port,
                "tls": {"trustedCertificates": ({"secretName": secret, "certificate": "ca.crt"},)},
                "authentication": {
                    "type": "basic",
                    "username": "reader",
                    "passwordSecret": {"secretName": secret, "password": key},
                },
            }

        with watching(prometheus, kubernetes, **direct("exporters", "right")) as watched:
            watched.await_rates()
        with watching(prometheus, kubernetes, **direct("others", "wrong")) as watched:
            watched.await_failure("answered 401")
        with watching(prometheus, kubernetes, **direct("others", "missing")) as watched:
            watched.await_failure("Secret streaming/others has no key missing")
        with watching(prometheus, port=port) as watched:
            watched.await_failure("did not answer")
