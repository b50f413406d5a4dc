"""The outside world of a command: streams, clock, ZooKeeper, Kafka, Prometheus and Kubernetes.

Tests pass their own. The context also carries the exit code of the command, and whether errors show
their traceback.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from tidegate.commands.output import ExitCode

if TYPE_CHECKING:
    from tidegate.kafka.adminapi.store import AdminQuotaStore
    from tidegate.kafka.zookeeper.tree import ZnodeTree
    from tidegate.kube.api import Kubernetes
    from tidegate.kube.login import Login
    from tidegate.observe.connections import OpenAdminStore as OpenAdminStore
    from tidegate.observe.connections import OpenReplication as OpenReplication
    from tidegate.observe.connections import OpenShareGroups as OpenShareGroups
    from tidegate.observe.connections import OpenTopology as OpenTopology
    from tidegate.observe.connections import OpenTree as OpenTree
    from tidegate.observe.metrics_watch import OpenReader as OpenReader
    from tidegate.observe.metrics_watch import Reader
    from tidegate.observe.observation import ReplicationSource, TopologySource
    from tidegate.observe.secrets_and_hosts import Secrets
    from tidegate.observe.share_groups import ShareGroupSource
    from tidegate.prometheus.probe import Probe
    from tidegate.prometheus.settings import MetricsSettings
    from tidegate.prometheus.usage import UsageReader
    from tidegate.resources.policy import KafkaCluster as KafkaSpec
    from tidegate.settings import PolicyBounds

# Connections to the real ZooKeeper, brokers, Prometheus and Kubernetes.
#
# Their libraries are imported at first use, so that `tidegate --help` and `version` answer at once.


class OpenKubernetes(Protocol):
    """Open the API server of a kubeconfig (and one of its contexts), or of the command's Pod.

    `as_user` None = as the login's own user.
    """

    def __call__(
        self, kubeconfig: Path | None, context: str | None, as_user: str | None
    ) -> Kubernetes: ...


class OpenLogin(Protocol):
    """Like `OpenKubernetes`, for questions about the login itself."""

    def __call__(
        self, kubeconfig: Path | None, context: str | None, as_user: str | None
    ) -> Login: ...


def open_tree(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ZnodeTree:
    """The ZooKeeper of `spec`, as `observe.connections` opens it; connected to at its first use."""
    from tidegate.observe import connections

    return connections.open_tree(spec, secrets, folder=folder)


def open_admin_store(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> AdminQuotaStore:
    """The quota store on the brokers of `spec`, as `observe.connections` opens it."""
    from tidegate.observe import connections

    return connections.open_admin_store(spec, secrets, folder=folder)


def open_topology(
    spec: KafkaSpec, secrets: Secrets, *, folder: Path, topic_names: Callable[[], frozenset[str]]
) -> TopologySource:
    """The brokers of `spec`, as `observe.connections` opens them; connected to at first use."""
    from tidegate.observe import connections

    return connections.open_topology(spec, secrets, folder=folder, topic_names=topic_names)


def open_replication(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ReplicationSource:
    """Replication on the brokers of `spec`; connected to at first use."""
    from tidegate.observe import connections

    return connections.open_replication(spec, secrets, folder=folder)


def open_share_groups(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ShareGroupSource:
    """A source of the share groups on the brokers of `spec`; connects on first use."""
    from tidegate.observe import connections

    return connections.open_share_groups(spec, secrets, folder=folder)


def open_reader(settings: MetricsSettings) -> Reader:
    """A reader of a policy's Prometheus; connects with the first reading."""
    from tidegate.prometheus.reader import PrometheusReader

    return PrometheusReader(settings)


def open_probe(settings: MetricsSettings) -> Probe:
    """The Prometheus of a policy, for finding out why series are missing."""
    from tidegate.prometheus.probe import Probe

    return Probe(settings)


def open_usage(settings: MetricsSettings) -> UsageReader:
    """The Prometheus of a policy, for what clients moved over days."""
    from tidegate.prometheus.usage import UsageReader

    return UsageReader(settings)


def open_kubernetes(
    kubeconfig: Path | None, context: str | None, as_user: str | None
) -> Kubernetes:
    """The API server of a kubeconfig, or of the pod that the command runs in."""
    from tidegate.kube.client import KubernetesClient, connect

    return KubernetesClient(connect(kubeconfig, context, as_user), identity="tidegate-command")


def context_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace that kubectl would act in with this kubeconfig, or in the command's Pod."""
    from tidegate.kube.client import context_namespace

    return context_namespace(kubeconfig, context)


def open_login(kubeconfig: Path | None, context: str | None, as_user: str | None) -> Login:
    """What the login may do that `open_kubernetes` uses."""
    from tidegate.kube.client import connect
    from tidegate.kube.login import Login

    return Login(connect(kubeconfig, context, as_user))


@dataclass(slots=True)
class CommandContext:
    """The context of one command.

    `exit_code` ends the process when no error is raised; `exit_code_of` gives the code of an error.
    """

    policy_bounds: PolicyBounds | None = None  # None = those of the environment
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    standard_input: TextIO = field(default_factory=lambda: sys.stdin)
    now_seconds: Callable[[], float] = time.time
    wait_seconds: Callable[[float], None] = time.sleep
    open_tree: OpenTree = open_tree
    open_admin_store: OpenAdminStore = open_admin_store
    open_topology: OpenTopology = open_topology
    open_replication: OpenReplication = open_replication
    open_share_groups: OpenShareGroups = open_share_groups
    open_kubernetes: OpenKubernetes = open_kubernetes
    context_namespace: Callable[[Path | None, str | None], str] = context_namespace
    open_reader: OpenReader = open_reader
    open_login: OpenLogin = open_login
    open_probe: Callable[[MetricsSettings], Probe] = open_probe
    open_usage: Callable[[MetricsSettings], UsageReader] = open_usage
    debug: bool = False
    exit_code: int = ExitCode.OK
    exit_code_of: Callable[[Exception], int] = lambda _: ExitCode.ERROR

    @property
    def bounds(self) -> PolicyBounds:
        """What policies may make a command use: all but in a rollup Job, which has bounds."""
        from tidegate.settings import PolicyBounds

        return self.policy_bounds or PolicyBounds.of_environment(os.environ)

    @property
    def reader_has_left(self) -> bool:
        """Whether nobody reads the output any more, so that a command without an end may end."""
        return bool(getattr(self.out, "is_left", False))

    def now_ms(self) -> int:
        """The command's clock in milliseconds since the epoch."""
        return round(self.now_seconds() * 1000)


def command_context(context: typer.Context, *, debug: bool) -> CommandContext:
    """The context that `cli.main` passed to this command, with `--debug` as given."""
    around = context.find_object(CommandContext) or CommandContext()
    around.debug = debug
    return around
