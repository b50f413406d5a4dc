"""How to reach a server's history and how hard to press it; plain values. The server itself is told as the operator's readings tell it.

Its `reading_timeout_seconds` is for the control loop and not used here: history takes minutes where a reading may take seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.prometheus.settings import PrometheusServer


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Files in PEM with which we show who we are."""

    certificate_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What every way of reading shares.

    `token_file` goes before a token in `server.login` and is read again when it changes. `headers` go with every request, such as Mimir's
    X-Scope-OrgID. `parallel_requests` bounds those of all processes on this machine to this server together; Prometheus' own default for
    remote read is 10. `request_timeout_seconds` bounds one attempt, `deadline_seconds` one `read` with all attempts and waits.
    """

    server: PrometheusServer
    token_file: str | None = None
    client_certificate: ClientCertificate | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    replica_labels: tuple[str, ...] = ()
    external_labels: tuple[str, ...] = ()
    scrape_interval_ms: int = 15_000
    parallel_requests: int = 4
    attempts: int = 5
    read_timeout_seconds: float = 60.0
    request_timeout_seconds: float = 120.0
    deadline_seconds: float = 600.0
    answer_limit_bytes: int = 512 * 1024 * 1024
