"""Settings of one operator process, from the command line: ports, namespaces, intervals.

None is read from custom resources, and none belongs to one Kafka cluster.
"""

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

STANDARD_STREAM = (
    "-"  # in place of a file's path: standard output for a writer, standard input for a reader
)


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


def default_identity() -> str:
    """The name of this replica on a Lease: the pod (host) name and a part that is always new."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


ANY = "*"  # in place of a name or host: all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBounds:
    """What policies may make the operator use.

    `allowed_hosts` are `host`, `*.domain` or `*`, each with `:port` where only that one is meant;
    empty = any. `unlabelled_secrets` are the names of Secrets that need no label.
    """

    allowed_hosts: tuple[str, ...] = ()
    unlabelled_secrets: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """For a Job, which reads the policy for itself."""
        return {
            _HOSTS_VARIABLE: ",".join(self.allowed_hosts),
            _SECRETS_VARIABLE: ",".join(self.unlabelled_secrets),
        }

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "PolicyBounds":
        """The bounds that `environment` made, the defaults without them."""

        def listed(variable: str) -> tuple[str, ...]:
            return tuple(one for one in environment.get(variable, "").split(",") if one)

        return cls(
            allowed_hosts=listed(_HOSTS_VARIABLE), unlabelled_secrets=listed(_SECRETS_VARIABLE)
        )


UNBOUNDED = PolicyBounds()
_HOSTS_VARIABLE = "TIDEGATE_ALLOWED_HOSTS"
_SECRETS_VARIABLE = "TIDEGATE_UNLABELLED_SECRETS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOffer:
    """The settings of rollup Jobs.

    `service_account` is that of their Pods, in each policy's namespace.
    """

    image: str
    service_account: str = "default"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process.

    Ports: 0 = any free port, None = do not listen. `namespaces` empty = all of them; Leases are in
    `lease_namespace`, the operator's own. `audit_file` is where the audit trail is appended to;
    `-` = standard output, beside the log lines on standard error. `otlp_endpoint` is the collector
    that spans are sent to; empty = none. `rollups` None = this process makes no rollup Jobs.
    `passes_at_once` passes of one policy for changed objects wait for nothing, then there is one in
    `least_pass_distance_seconds`.
    """

    lease_namespace: str = ""
    namespaces: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    liveness_port: int | None = 8080
    metrics_port: int | None = 9095
    listen_address: str = "0.0.0.0"  # noqa: S104  (probes and Prometheus come from outside the pod)
    log_format: LogFormat = LogFormat.JSON
    log_level: LogLevel = LogLevel.INFO
    audit_file: str = STANDARD_STREAM
    otlp_endpoint: str = ""
    poll_seconds: float = 15.0
    least_pass_distance_seconds: float = 1.0
    passes_at_once: int = 150
    relist_seconds: float = 300.0
    list_stale_after_seconds: float = 900.0
    restore_deadline_seconds: float = 300.0
    stuck_after_seconds: float = 120.0
    rollups: RollupOffer | None = None
    bounds: PolicyBounds = field(default_factory=PolicyBounds)
    identity: str = field(default_factory=default_identity)
