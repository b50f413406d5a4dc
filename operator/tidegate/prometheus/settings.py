"""Address and login of Prometheus, its queries, and how a series names its broker, as plain values.

Passwords are left out of `repr`, so that a settings object in a log line or a traceback shows none.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# The proxy for requests to Prometheus, of this process and of its rollup Jobs. HTTPS_PROXY is for
# Kubernetes: Prometheus is often inside the cluster, and no login goes through a proxy unasked.
PROXY_VARIABLE = "TIDEGATE_PROMETHEUS_PROXY"


class Preset(StrEnum):
    """The source of the NICs' readings.

    The rates of clients come from the JMX exporter with all but `CUSTOM`.
    """

    NODE_EXPORTER = "NodeExporter"
    CADVISOR = "Cadvisor"
    JMX_EXPORTER = "JmxExporter"
    CUSTOM = "Custom"


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """A token for the header Authorization."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BasicLogin:
    """A user name with its password."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsTexts:
    """Certificates in PEM, which other processes get with the settings, unlike files.

    No `authorities` = the machine's own.
    """

    authorities: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server of Prometheus' query API, such as http://prometheus:9090.

    Authorities: `ca_file`, `tls`, or else the machine's own. `question_timeout_seconds` bounds one
    question, repeats included; `connect_timeout_seconds` and `read_timeout_seconds` bound each
    connection and each wait for bytes, so a question may last one such wait longer.
    `answer_limit_bytes` bounds one answer; the default holds about 200,000 series with three
    samples each. `headers` go with every request. `proxy` is an address such as http://proxy:3128;
    None = none.
    """

    url: str = field(repr=False)  # may hold a password
    login: BearerLogin | BasicLogin | None = None
    ca_file: str | None = None
    tls: TlsTexts | None = None
    connect_timeout_seconds: float = 3.0
    read_timeout_seconds: float = 5.0
    question_timeout_seconds: float = 10.0
    answer_limit_bytes: int = 64 * 1024 * 1024
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = field(default_factory=lambda: os.environ.get(PROXY_VARIABLE) or None)


@dataclass(frozen=True, slots=True)
class BrokerLabel:
    """The label that holds the broker's id, or the name of a Pod with the id at its end.

    Only series whose label matches `pattern`, a regular expression (RE2) of all of it, are asked
    for; None = all.
    """

    name: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerInstances:
    """The value of the label `instance` -> broker id.

    One host with one broker need be named once, whatever the exporters' ports.
    """

    ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Queries:
    """PromQL selectors; None = not asked.

    A selector is `metric{...}` without function, range or aggregation: samples must keep their own
    times. NICs are counters of bytes, one series a NIC; rates are gauges of bytes per second and
    throttle times gauges of milliseconds, one series for each user and client id. Each series names
    its broker.
    """

    egress: str | None = None
    ingress: str | None = None
    fetch_rate: str | None = None
    produce_rate: str | None = None
    fetch_throttle: str | None = None
    produce_throttle: str | None = None


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Everything a reading needs.

    `queries` replace the preset's, each by itself. No `brokers` = the label that goes with the
    preset. `matchers` are labels that every series must have; they are added to all queries,
    declared ones too. `interfaces` are the names of those that are added up as a broker's NIC, with
    `*` for any signs; none = as `interfaces.wired_of` finds them.

    `replica_labels` are those by which replicas differ that usage tables read as one. `exporters` =
    readings also say where each broker's exporter is; `background` = they have the bytes of tiered
    storage. `history_seconds` is how far back NICs are
    read: the spans that a window of the control pass is made of.
    """

    server: PrometheusServer
    preset: Preset = Preset.NODE_EXPORTER
    queries: Queries = Queries()
    brokers: BrokerLabel | BrokerInstances | None = None
    matchers: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[str, ...] = ()
    replica_labels: tuple[str, ...] = ()
    scrape_interval_seconds: int = 15
    stale_after_seconds: int = 45
    history_seconds: int = 60
    exporters: bool = False
    background: bool = False

    @property
    def reading_timeout_seconds(self) -> float:
        """How long all questions of a reading may take together: until the next scrape."""
        return max(self.server.question_timeout_seconds, float(self.scrape_interval_seconds))
