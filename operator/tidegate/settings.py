"""Settings of one operator process, from the command line: ports, namespaces, intervals.

None is read from custom resources, and none belongs to one Kafka cluster.
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

STANDARD_STREAM = (
    "-"  # instead of a file's path: standard output for a writer, standard input for a reader
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


ANY = "*"  # instead of a name or host: all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBounds:
    """What policies may make the operator use.

    `allowed_hosts` are `host`, `*.domain` or `*`, each with `:port` where only that one is meant;
    empty = any. `unlabelled_secrets` are the names of Secrets that need no label. `token_folder`
    has a folder for each namespace, with the token files that its policies may send to brokers.
    """

    allowed_hosts: tuple[str, ...] = ()
    unlabelled_secrets: tuple[str, ...] = ()
    token_folder: str = "/var/run/secrets/tidegate.io/tokens"  # noqa: S105  (a path)

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


_USER_ID = 65532  # of the image


def _restricted_pod() -> Mapping[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER_ID,
        "runAsGroup": _USER_ID,
        "fsGroup": _USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _restricted_container() -> Mapping[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityContexts:
    """`securityContext` of Pods that we create and of their containers, as a manifest writes them.

    The defaults are Kubernetes' profile `restricted`, as the user of the image.
    """

    pod: Mapping[str, Any] = field(default_factory=_restricted_pod)
    container: Mapping[str, Any] = field(default_factory=_restricted_container)

    def environment(self) -> dict[str, str]:
        """For a Job, whose executors have the same."""
        return {_SECURITY_VARIABLE: json.dumps({"pod": self.pod, "container": self.container})}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "SecurityContexts":
        """The contexts that `environment` made, the defaults without them.

        Raises ValueError for a text that is something else.
        """
        if _SECURITY_VARIABLE not in environment:
            return cls()
        try:
            known = json.loads(environment[_SECURITY_VARIABLE])
            return cls(pod=dict(known["pod"]), container=dict(known["container"]))
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{_SECURITY_VARIABLE} is not the JSON of two security contexts"
            ) from None


_SECURITY_VARIABLE = "TIDEGATE_SECURITY_CONTEXTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOffer:
    """The settings of rollup Jobs.

    `service_account` is that of their Pods, in each policy's namespace.
    """

    image: str
    service_account: str = "default"
    pull_secrets: tuple[str, ...] = ()
    security: SecurityContexts = field(default_factory=SecurityContexts)


@dataclass(frozen=True, slots=True)
class PodToken:
    """A token of a Pod's own ServiceAccount, by the name that queues of a namespace know it by."""

    namespace: str
    name: str
    audience: str
    expiration_seconds: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderOffer:
    """The settings of the Pods that forward the messages of DelayQueues."""

    image: str
    pull_secrets: tuple[str, ...] = ()
    security: SecurityContexts = field(default_factory=SecurityContexts)
    tokens: tuple[PodToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process.

    Ports: 0 = any free port, None = do not listen. `namespaces` empty = all of them; Leases are in
    `lease_namespace`, the operator's own. `audit_file` is where the audit trail is appended to;
    `-` = standard output, beside the log lines on standard error. `otlp_endpoint` is the collector
    that spans are sent to; empty = none. `rollups` None = this process makes no rollup Jobs,
    `forwarders` None = it serves no DelayQueues.
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
    forwarders: ForwarderOffer | None = None
    bounds: PolicyBounds = field(default_factory=PolicyBounds)
    identity: str = field(default_factory=default_identity)
