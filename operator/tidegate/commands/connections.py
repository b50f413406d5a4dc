"""The real outside world of a command: ZooKeeper, the brokers, Prometheus, and Kubernetes.

The libraries behind them are imported when they are first needed, so that `tidegate --help` and `version` answer at once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidegate.commands.secret_file import SecretData
from tidegate.control.metrics_watch import OpenReader as OpenReader
from tidegate.control.metrics_watch import Reader
from tidegate.control.observe import TopologySource
from tidegate.kafka.zookeeper.tree import ZnodeTree
from tidegate.kube.api import Kubernetes
from tidegate.prometheus.settings import MetricsSettings
from tidegate.resources.policy import KafkaCluster as KafkaSpec


class OpenTree(Protocol):
    """Opens the ZooKeeper of `spec`. `folder` is private and outlives the connection; certificates are kept there."""

    def __call__(self, spec: KafkaSpec, secret: SecretData, *, folder: Path) -> ZnodeTree: ...


class OpenTopology(Protocol):
    """Opens the brokers of `spec`; `topic_names` lists all topics, for prefixes."""

    def __call__(
        self, spec: KafkaSpec, secret: SecretData, *, folder: Path, topic_names: Callable[[], frozenset[str]]
    ) -> TopologySource: ...


OpenKubernetes = Callable[[Path | None, str | None], Kubernetes]


def open_tree(spec: KafkaSpec, secret: SecretData, *, folder: Path) -> ZnodeTree:
    """See OpenTree; connected to at its first use."""
    from tidegate.control.connections import zookeeper_connection
    from tidegate.kafka.zookeeper.session import ZooKeeperSession

    return ZooKeeperSession(zookeeper_connection(spec, secret, folder))


def open_topology(spec: KafkaSpec, secret: SecretData, *, folder: Path, topic_names: Callable[[], frozenset[str]]) -> TopologySource:
    """See OpenTopology; connected to at its first use."""
    from tidegate.control.connections import brokers_connection
    from tidegate.kafka.brokers import KafkaTopology

    return KafkaTopology(brokers_connection(spec, secret, folder), topic_names=topic_names)


def open_reader(settings: MetricsSettings) -> Reader:
    """The Prometheus of a policy; connected to with the first reading."""
    from tidegate.prometheus.reader import PrometheusReader

    return PrometheusReader(settings)


def open_kubernetes(kubeconfig: Path | None, context: str | None) -> Kubernetes:
    """The API server of a kubeconfig, or of the pod that the command runs in."""
    from tidegate.kube.client import KubernetesClient, connect

    return KubernetesClient(connect(kubeconfig, context), identity="tidegate-command")
