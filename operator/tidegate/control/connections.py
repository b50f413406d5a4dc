"""The connection of one policy to its Kafka cluster: opened when first needed, opened anew when the policy or a Secret says so.

It does not watch over the connection's health: store and topology reconnect by themselves.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tidegate.control.credentials import SecretData
from tidegate.control.kafka_cluster import KafkaCluster
from tidegate.errors import TidegateError
from tidegate.kube.api import Kubernetes
from tidegate.resources.fields import SecretRef
from tidegate.resources.policy import KafkaCluster as KafkaSpec

# A changed Secret is noticed within this time; reading it every pass would be noise in the API server's audit log.
SECRET_AGE_SECONDS = 60.0


class OpenCluster(Protocol):
    """Connects to a cluster; a test hands in its own."""

    def __call__(self, spec: KafkaSpec, *, zookeeper_secret: SecretData, client_secret: SecretData, folder: Path) -> KafkaCluster: ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a connection was made of; the same again needs no new one."""

    spec: KafkaSpec
    zookeeper_secret: SecretData = field(repr=False)
    client_secret: SecretData = field(repr=False)


class Connection:
    """At most one open cluster. `wake` is called when its brokers come, go or elect a controller."""

    def __init__(
        self, namespace: str, *, kubernetes: Kubernetes, opener: OpenCluster, wake: Callable[[], None], monotonic: Callable[[], float]
    ) -> None:
        self._namespace = namespace
        self._kubernetes = kubernetes
        self._opener = opener
        self._wake = wake
        self._monotonic = monotonic
        self._made_of: _Wanted | None = None
        self._secrets_read_at_seconds = 0.0
        self._cluster: KafkaCluster | None = None
        self._folder: Path | None = None

    def cluster(self, spec: KafkaSpec) -> KafkaCluster:
        """The cluster that `spec` means. Raises a TidegateError when a Secret cannot be read or does not fit."""
        if self._cluster is not None and self._made_of is not None and self._made_of.spec == spec and not self._secrets_are_old():
            return self._cluster
        wanted = self._wanted(spec)
        if self._cluster is None or wanted != self._made_of:
            self.close()
            self._cluster = self._open(wanted)
            self._made_of = wanted
        return self._cluster

    def close(self) -> None:
        cluster, self._cluster, self._made_of = self._cluster, None, None
        if cluster is not None:
            cluster.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _open(self, wanted: _Wanted) -> KafkaCluster:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
        cluster = self._opener(
            wanted.spec, zookeeper_secret=wanted.zookeeper_secret, client_secret=wanted.client_secret, folder=self._folder
        )
        try:
            cluster.store.watch(self._wake)
        except TidegateError:
            cluster.close()
            raise
        return cluster

    def _secrets_are_old(self) -> bool:
        return self._monotonic() - self._secrets_read_at_seconds > SECRET_AGE_SECONDS

    def _wanted(self, spec: KafkaSpec) -> _Wanted:
        zookeeper = spec.zookeeper.credentials_secret_ref if spec.zookeeper is not None else None
        old = self._made_of if self._made_of is not None and self._made_of.spec == spec else None
        wanted = _Wanted(
            spec,
            self._secret(zookeeper, known=None if old is None else old.zookeeper_secret),
            self._secret(spec.client_secret_ref, known=None if old is None else old.client_secret),
        )
        self._secrets_read_at_seconds = self._monotonic()
        return wanted

    def _secret(self, reference: SecretRef | None, *, known: SecretData | None) -> SecretData:
        """The Secret's data. One that has vanished under an open connection is remembered: a namespace that is being deleted
        loses its Secrets before its policies, which still have quotas to give back."""
        if reference is None:
            return {}
        try:
            return dict(self._kubernetes.read_secret(self._namespace, reference.name))
        except TidegateError:
            if known is None:
                raise
            return known
