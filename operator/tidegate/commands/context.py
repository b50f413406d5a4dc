"""What a command may touch outside itself: streams, the clock, ZooKeeper, Kafka, Prometheus and Kubernetes. Tests hand in their own.

It holds also the two things that a command leaves behind: its exit code, and whether errors show their traceback.
"""

from __future__ import annotations

import base64
import binascii
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from controller_logic.reasons import Reason
from tidegate.commands.output import ExitCode
from tidegate.errors import NeedsMending

if TYPE_CHECKING:
    from tidegate.control.metrics_watch import OpenReader as OpenReader
    from tidegate.control.metrics_watch import Reader
    from tidegate.control.observe import TopologySource
    from tidegate.kafka.zookeeper.tree import ZnodeTree
    from tidegate.kube.api import Kubernetes
    from tidegate.prometheus.settings import MetricsSettings
    from tidegate.resources.policy import KafkaCluster as KafkaSpec


# Credentials from a file, for when there is no Kubernetes to read the policy's Secret from.
#
# The file is YAML with the keys and plain values of the Secret, or the Secret itself as `kubectl
# get secret -o yaml` prints it.
# Values are never shown, in errors neither.


SecretData = Mapping[str, bytes]


def read_secret_file(path: Path | None) -> SecretData:
    """The keys and decoded values; empty without a file. Raises NeedsMending naming the file and what must hold."""
    if path is None:
        return {}
    import yaml  # a part of every command's context, and most commands read no file

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"cannot be read ({error})") from error
    except yaml.YAMLError:
        raise _unreadable(path, "is not YAML") from None
    if not isinstance(document, dict):
        raise _unreadable(path, "must be a YAML object of keys and values, such as `username: tidegate`")
    if document.get("kind") == "Secret":
        return _secret_values(path, document)
    return _encoded(_texts(path, document))


def _secret_values(path: Path, secret: Mapping[str, object]) -> SecretData:
    encoded, plain = secret.get("data") or {}, secret.get("stringData") or {}
    if not isinstance(encoded, dict) or not isinstance(plain, dict):
        raise _unreadable(path, "is a Secret whose data is not an object")
    try:
        decoded = {key: base64.b64decode(value, validate=True) for key, value in _texts(path, encoded).items()}
    except binascii.Error:
        raise _unreadable(path, "is a Secret with a value that is not base64") from None
    return {**decoded, **_encoded(_texts(path, plain))}


def _encoded(values: Mapping[str, str]) -> SecretData:
    return {key: value.encode() for key, value in values.items()}


def _texts(path: Path, values: Mapping[str, object]) -> Mapping[str, str]:
    wrong = sorted(str(key) for key, value in values.items() if not isinstance(key, str) or not isinstance(value, str))
    if wrong:
        raise _unreadable(path, f"has values that are not text: {', '.join(wrong)} (put quotes around a number)")
    return {key: str(value) for key, value in values.items()}


def _unreadable(path: Path, what: str) -> NeedsMending:
    return NeedsMending(Reason.SECRET_UNREADABLE, f"Credentials file {path} {what}. Nothing was done.")


# The real outside world of a command: ZooKeeper, the brokers, Prometheus, and Kubernetes.
#
# The libraries behind them are imported when they are first needed, so that `tidegate --help` and
# `version` answer at once.


class OpenTree(Protocol):
    """Opens the ZooKeeper of `spec`. `folder` is private and outlives the connection; certificates are kept there."""

    def __call__(self, spec: KafkaSpec, secret: SecretData, *, folder: Path) -> ZnodeTree: ...


class OpenTopology(Protocol):
    """Opens the brokers of `spec`; `topic_names` lists all topics, for prefixes."""

    def __call__(
        self, spec: KafkaSpec, secret: SecretData, *, folder: Path, topic_names: Callable[[], frozenset[str]]
    ) -> TopologySource: ...


OpenKubernetes = Callable[[Path | None, str | None], "Kubernetes"]


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


@dataclass(slots=True)
class Surroundings:
    """The world of one command. `exit_code` is what the process ends with when no error is raised, `exit_code_of` what when one is."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    standard_input: TextIO = field(default_factory=lambda: sys.stdin)
    now_seconds: Callable[[], float] = time.time
    wait_seconds: Callable[[float], None] = time.sleep
    open_tree: OpenTree = open_tree
    open_topology: OpenTopology = open_topology
    open_kubernetes: OpenKubernetes = open_kubernetes
    open_reader: OpenReader = open_reader
    debug: bool = False
    exit_code: int = ExitCode.OK
    exit_code_of: Callable[[Exception], int] = lambda _: ExitCode.ERROR


def surroundings_of(context: typer.Context, *, debug: bool) -> Surroundings:
    """The surroundings that `cli.main` handed to this command, told whether `--debug` was given."""
    around = context.find_object(Surroundings) or Surroundings()
    around.debug = debug
    return around
