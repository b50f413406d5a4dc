"""Prometheus and node_exporter beside a lab's brokers.

It holds no queries of the product; it only scrapes and answers.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util import Retry

from lab import process
from lab.cache import RunDirectory
from lab.doctor import refuse_missing
from lab.errors import say
from lab.kafka import Broker, BrokersLab
from lab.network import free_port
from lab.packages import PROMETHEUS, GoModule, unpacked
from lab.process import NICENESS, Opened, Process, patience, wait_until

# What it shows at its n-th scrape, in Prometheus' text format; scrapes are counted from 0.
Metrics = Callable[[int], str]


class Exporter(ThreadingHTTPServer):
    """Serves `metrics` on a free loopback port while `exporting`."""

    daemon_threads = True

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.metrics = metrics
        self.scrapes = 0

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        page = self.server.metrics(self.server.scrapes).encode()
        self.server.scrapes += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def exporting(metrics: Metrics) -> Iterator[Exporter]:
    """An exporter that runs."""
    exporter = Exporter(metrics)
    thread = threading.Thread(
        target=exporter.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield exporter
    finally:
        exporter.shutdown()
        exporter.server_close()
        thread.join()


PROMETHEUS_3 = GoModule(
    program="prometheus-3",
    directory=Path(__file__).parent / "prometheus_3_binary",
    package="github.com/prometheus/prometheus/cmd/prometheus",
    title="Prometheus 3",
    takes="five minutes",
    packages_compiled=900,
    tags="remove_all_sd",  # of what it can discover; tests name their targets
)

_NODE_EXPORTER_PORT = 9100
_START_TIMEOUT_SECONDS = 60
_QUERY_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class ScrapeTarget:
    """One endpoint to scrape: its job, its host:port, and the broker whose figures it gives.

    `broker_id` None = they are of no broker.
    """

    job: str
    address: str
    broker_id: int | None = None


@dataclass(frozen=True)
class WebAccess:
    """What a Prometheus asks of everybody: TLS with a certificate by `authority`, and a login.

    Its own certificate is the lab's as well. `password_bcrypt` is what `web.yml` has.
    """

    authority: Path
    certificate: Path
    key: Path
    user: str
    password: str
    password_bcrypt: str

    def web_yml(self) -> str:
        """Its `web.yml`; JSON is YAML."""
        tls = {
            "cert_file": str(self.certificate),
            "key_file": str(self.key),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(self.authority),
        }
        users = {self.user: self.password_bcrypt}
        return json.dumps({"tls_server_config": tls, "basic_auth_users": users})


class PrometheusLab(Opened):
    """A Prometheus on a free port of `host`, scraping `targets`.

    A context manager that returns once each was scraped once. With `access` it lets in no one else.
    With `configuration` it scrapes by that, in which `targets` are to be.
    Without, every series gets these `labels`. `options` are further ones of its command.
    """

    def __init__(
        self,
        targets: Sequence[ScrapeTarget] = (),
        *,
        scrape_interval_seconds: int = 1,
        directory: Path | None = None,
        host: str = "127.0.0.1",
        start_timeout_seconds: int = _START_TIMEOUT_SECONDS,
        access: WebAccess | None = None,
        configuration: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        niceness: int = NICENESS,
    ) -> None:
        self._options = options
        self._niceness = niceness
        self._given = configuration
        self._labels = labels or {}
        self._start_timeout_seconds = start_timeout_seconds
        self.targets = tuple(targets)
        self._access = access
        self._host = host
        self.scrape_interval_seconds = scrape_interval_seconds
        self._directory = directory
        self._port = free_port(host)

    def _open(self, stack: ExitStack) -> None:
        refuse_missing("linux", "util-linux", "apt")
        directory = self._directory or stack.enter_context(RunDirectory()).path / "prometheus"
        self._place = directory
        stack.callback(lambda: self.process.stop())  # the one that runs then
        self.restart()
        wait_until(
            self._scrapes_all,
            "a first scrape of each target",
            timeout_seconds=self._start_timeout_seconds,
            processes=[self.process],
        )

    @property
    def url(self) -> str:
        """The address of its web interface and API."""
        scheme = "http" if self._access is None else "https"
        return f"{scheme}://{self._host}:{self._port}"

    def admit(self, access: WebAccess) -> None:
        """Let in only who comes with this, from now on: it reads its `web.yml` at every request."""
        self._access = access
        # replaced in one step, so that it never reads half of it
        (self._place / "web.new").write_text(access.web_yml())
        (self._place / "web.new").replace(self._place / "web.yml")

    def query(self, expression: str, at_unix_seconds: float | None = None) -> list[dict[str, Any]]:
        """The result of an instant query, as its API gives it; empty when nothing matches."""
        moment = {} if at_unix_seconds is None else {"time": repr(at_unix_seconds)}
        with self._api() as api:
            return list(api.custom_query(expression, params=moment))

    def query_range(
        self,
        expression: str,
        start_unix_seconds: float,
        *,
        end_unix_seconds: float,
        step_seconds: float,
    ) -> list[dict[str, Any]]:
        """The result of a range query, as its API gives it."""
        start, end = (
            datetime.fromtimestamp(one, UTC) for one in (start_unix_seconds, end_unix_seconds)
        )
        # the library rounds them to seconds
        exactly = {"start": repr(start_unix_seconds), "end": repr(end_unix_seconds)}
        with self._api() as api:
            return list(
                api.custom_query_range(
                    expression, start, end_time=end, step=repr(step_seconds), params=exactly
                )
            )

    def restart(self) -> None:
        """Start it, again on the same address with all its samples after `process.kill`.

        Returns once it is ready.
        """
        self.process = self._start()
        wait_until(
            self._is_ready,
            "Prometheus to be ready",
            timeout_seconds=self._start_timeout_seconds,
            processes=[self.process],
        )

    def _start(self) -> Process:
        directory = self._place
        directory.mkdir(parents=True, exist_ok=True)
        # Prometheus reads YAML, and JSON is YAML.
        (directory / "prometheus.yml").write_text(json.dumps(self._configuration(), indent=1))
        argv = [
            str(unpacked(PROMETHEUS) / "usr/bin/prometheus"),
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={self._host}:{self._port}",
            *self._options,
        ]
        if self._access is not None:
            self.admit(self._access)
            argv.append(f"--web.config.file={directory}/web.yml")
        return process.start(
            "prometheus",
            argv,
            log_path=directory / "prometheus.log",
            working_directory=directory,
            niceness=self._niceness,
        )

    def _configuration(self) -> Mapping[str, Any]:
        if self._given is not None:
            return self._given
        interval = f"{self.scrape_interval_seconds}s"
        jobs = sorted({target.job for target in self.targets})
        return {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [
                {"job_name": job, "static_configs": self._static_configs(job)} for job in jobs
            ],
        }

    def _static_configs(self, job: str) -> list[dict[str, Any]]:
        mine = [target for target in self.targets if target.job == job]
        return [
            {
                "targets": [target.address],
                "labels": {
                    **self._labels,
                    **({} if target.broker_id is None else {"broker": str(target.broker_id)}),
                },
            }
            for target in mine
        ]

    def _is_ready(self) -> bool:
        try:
            with self._session() as session:
                return session.get(f"{self.url}/-/ready", timeout=patience(1)).ok
        except OSError:
            return False

    def _scrapes_all(self) -> bool:
        return len(self.query("up == 1")) == len(self.targets)

    def _api(self) -> PrometheusConnect:
        return PrometheusConnect(
            self.url,
            session=self._session(),
            timeout=round(patience(_QUERY_TIMEOUT_SECONDS)),
            retry=Retry(0),
        )

    def _session(self) -> requests.Session:
        """A session with what it lets in."""
        session = requests.Session()
        session.trust_env = False  # a proxy of this machine has no way to it
        if self._access is not None:
            session.verify = str(self._access.authority)
            session.cert = str(self._access.certificate), str(self._access.key)
            session.auth = self._access.user, self._access.password
        return session


@contextmanager
def monitoring(
    kafka: BrokersLab,
    *,
    further: Sequence[ScrapeTarget] = (),
    scrape_interval_seconds: int = 1,
    labels: Mapping[str, str] | None = None,
) -> Iterator[PrometheusLab]:
    """A Prometheus over the brokers of `kafka` and over `further` targets, with these `labels`.

    It scrapes the brokers' JMX exporters, and in namespaces a node_exporter each. On loopback there
    is no NIC that belongs to one broker, so there is no node_exporter either, and that is reported.
    """
    targets = [
        *further,
        *(
            ScrapeTarget("kafka", address, broker_id)
            for broker_id, address in kafka.jmx_targets.items()
        ),
    ]
    with ExitStack() as stack:
        if kafka.network is None:
            say("prometheus", _why_no_node_exporter())
        for broker in kafka.brokers:
            if broker.plan.namespace is not None:
                stack.enter_context(_node_exporter(broker))
                targets.append(
                    ScrapeTarget(
                        "node", f"{broker.plan.host}:{_NODE_EXPORTER_PORT}", broker.broker_id
                    )
                )
        # On the bridge it is there for whatever else lives there.
        host = kafka.network.gateway if kafka.network else "127.0.0.1"
        directory = kafka.run.path / "prometheus"
        prometheus = PrometheusLab(
            targets,
            scrape_interval_seconds=scrape_interval_seconds,
            directory=directory,
            host=host,
            labels=labels,
        )
        yield stack.enter_context(prometheus)


def _why_no_node_exporter() -> str:
    cause = "Without root brokers share" if os.geteuid() != 0 else "These brokers share"
    return (
        f"{cause} the loopback device, so there is no node_exporter; traffic per broker comes "
        f"from JMX alone."
    )


def _node_exporter(broker: Broker) -> Process:
    plan = broker.plan
    argv = [
        str(unpacked(PROMETHEUS) / "usr/bin/prometheus-node-exporter"),
        f"--web.listen-address={plan.host}:{_NODE_EXPORTER_PORT}",
        "--collector.disable-defaults",  # a scrape of the NICs alone takes a millisecond
        "--collector.netdev",
        "--collector.netclass",
    ]
    namespace = plan.namespace.name if plan.namespace else None
    return process.start(
        f"node-exporter-{plan.broker_id}",
        argv,
        log_path=plan.directory / "node-exporter.log",
        namespace=namespace,
    )
