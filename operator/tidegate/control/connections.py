"""The connection of one policy to its Kafka cluster: opened when first needed, opened anew when the policy or a Secret says so.

It does not watch over the connection's health: store and topology reconnect by themselves.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from controller_logic.reasons import Reason
from tidegate.control.observe import KafkaCluster
from tidegate.errors import NeedsMending, TidegateError
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, TlsFiles, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import Kubernetes
from tidegate.prometheus.settings import BasicLogin, BearerLogin, BrokerInstances, BrokerLabel, MetricsSettings, Preset, PrometheusServer
from tidegate.prometheus.settings import Queries as Selectors
from tidegate.resources.fields import SecretRef
from tidegate.resources.policy import BrokerIds, MetricQueries, MetricsSource
from tidegate.resources.policy import KafkaCluster as KafkaSpec

# Turns the keys of a Secret into connection settings for ZooKeeper and for the brokers.
#
# Keys, as in Kubernetes' own Secret types: `username` and `password` (and, for brokers,
# `sasl.mechanism`), `ca.crt`, `tls.crt` and
# `tls.key`. Kafka's libraries want certificates as files, so these are written to a private folder
# that lives as long as
# the connection. No value is ever shown.


SecretData = Mapping[str, bytes]
_BROKER_MECHANISMS = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256, SaslMechanism.PLAIN)
_TLS_KEYS = ("ca.crt", "tls.crt", "tls.key")


def zookeeper_connection(spec: KafkaSpec, secret: SecretData, folder: Path) -> ZooKeeperConnection:
    """How to reach the policy's ZooKeeper. Raises NeedsMending with SECRET_UNREADABLE when the Secret lacks a key."""
    if spec.zookeeper is None:
        raise NeedsMending(Reason.INVALID_SPEC, "spec.kafka.zookeeper is required with quotaStore ZooKeeper; every quota stays as it is")
    login = _login(secret, SaslMechanism.DIGEST_MD5, what="ZooKeeper")
    return ZooKeeperConnection(spec.zookeeper.connect, sasl=login, tls=_tls_files(secret, folder / "zookeeper"))


def brokers_connection(spec: KafkaSpec, secret: SecretData, folder: Path) -> KafkaConnection:
    """How to reach the policy's brokers; SCRAM-SHA-512 where the Secret names no `sasl.mechanism`."""
    login = _login(secret, _mechanism(secret), what="the brokers")
    servers = tuple(spec.bootstrap_servers.split(","))
    return KafkaConnection(servers, sasl=login, tls=_tls_files(secret, folder / "brokers"))


def _mechanism(secret: SecretData) -> SaslMechanism:
    named = secret_text(secret, "sasl.mechanism") or SaslMechanism.SCRAM_SHA_512
    found = next((mechanism for mechanism in _BROKER_MECHANISMS if mechanism == named), None)
    if found is None:
        known = ", ".join(_BROKER_MECHANISMS)
        raise lacking(f"key sasl.mechanism of the Kafka client Secret must be one of {known}")
    return found


def _login(secret: SecretData, mechanism: SaslMechanism, *, what: str) -> SaslLogin | None:
    username, password = secret_text(secret, "username"), secret_text(secret, "password")
    if username is None and password is None:
        return None
    if not username or not password:
        raise lacking(f"the Secret for {what} must have both keys username and password, or neither")
    return SaslLogin(mechanism, username, password)


def _tls_files(secret: SecretData, folder: Path) -> TlsFiles | None:
    given = {key: secret[key] for key in _TLS_KEYS if key in secret}
    if not given:
        return None
    if ("tls.crt" in given) != ("tls.key" in given):
        raise lacking("a Secret with a client certificate must have both keys tls.crt and tls.key")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {key: write_private(folder / key, content) for key, content in given.items()}
    return TlsFiles(ca_file=files.get("ca.crt"), certificate_file=files.get("tls.crt"), key_file=files.get("tls.key"))


def write_private(path: Path, content: bytes) -> str:
    """Write a file that only this user may read; returns its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return str(path)


def secret_text(secret: SecretData, key: str) -> str | None:
    """The value as text without line ends around it; None where the Secret has no such key. Raises NeedsMending for what is no text."""
    value = secret.get(key)
    if value is None:
        return None
    try:
        return value.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise lacking(f"key {key} of the Secret must be UTF-8 text") from None


def lacking(what_must_hold: str, *, meanwhile: str = "every quota stays as it is until then") -> NeedsMending:
    """The error for a Secret that does not hold what it must; `meanwhile` says what happens until it does."""
    return NeedsMending(Reason.SECRET_UNREADABLE, f"{what_must_hold[0].upper()}{what_must_hold[1:]}; {meanwhile}")


# Turns a policy's `metrics` and its Secrets into settings for reading Prometheus. No value of a
# Secret is ever shown.
#
# Keys: `token`, or `username` and `password`, in the Secret of credentials; `ca.crt` in that of
# the certificate authority, which is
# written to a private folder because the HTTP library wants a file.


def metrics_settings(spec: MetricsSource, *, login: SecretData, authority: SecretData, folder: Path) -> MetricsSettings:
    """How to read the policy's metrics. Raises NeedsMending with SECRET_UNREADABLE when a Secret lacks a key."""
    server = PrometheusServer(spec.prometheus.url, login=_prometheus_login(spec, login), ca_file=_authority(spec, authority, folder))
    return MetricsSettings(
        server,
        Preset(spec.preset_or_default),
        _queries(spec.queries),
        None if spec.broker_ids is None else _identity(spec.broker_ids),
        scrape_interval_seconds=spec.scrape_interval_seconds_or_default,
        stale_after_seconds=spec.stale_after_seconds_or_default,
    )


def named_server(url: str, secret: SecretData, folder: Path) -> PrometheusServer:
    """A server that no policy names, with whatever of the keys there is: a login, an authority, both, or neither.

    Raises NeedsMending with SECRET_UNREADABLE for half a login, and where there are keys but none of these.
    """
    login, has_authority = _login_in(secret), "ca.crt" in secret
    has_half = login is None and bool({"token", "username", "password"} & secret.keys())
    if has_half or (secret and login is None and not has_authority):
        raise lacking("credentials for Prometheus must have the key token, both keys username and password, or ca.crt", meanwhile=_NOT_READ)
    return PrometheusServer(url, login=login, ca_file=_authority_in(secret, folder) if has_authority else None)


def _prometheus_login(spec: MetricsSource, secret: SecretData) -> BearerLogin | BasicLogin | None:
    if spec.prometheus.credentials_secret_ref is None:
        return None
    login = _login_in(secret)
    if login is None:
        raise lacking("the Secret for Prometheus must have the key token, or both keys username and password", meanwhile=_MEANWHILE)
    return login


def _login_in(secret: SecretData) -> BearerLogin | BasicLogin | None:
    token, username, password = (secret_text(secret, key) for key in ("token", "username", "password"))
    if token:
        return BearerLogin(token)
    return BasicLogin(username, password) if username and password else None


def _authority(spec: MetricsSource, secret: SecretData, folder: Path) -> str | None:
    if spec.prometheus.ca_secret_ref is None:
        return None
    if "ca.crt" not in secret:
        raise lacking("the Secret named by metrics.prometheus.caSecretRef must have the key ca.crt", meanwhile=_MEANWHILE)
    return _authority_in(secret, folder)


def _authority_in(secret: SecretData, folder: Path) -> str:
    return write_private(folder / "prometheus-ca.crt", secret["ca.crt"])


_MEANWHILE = "load is not read until then"
_NOT_READ = "nothing was read"


def _queries(declared: MetricQueries | None) -> Selectors:
    if declared is None:
        return Selectors()
    return Selectors(declared.egress, declared.ingress, declared.user_fetch, declared.user_produce)


def _identity(ids: BrokerIds) -> BrokerLabel | BrokerInstances:
    if ids.label is not None:
        return BrokerLabel(ids.label)
    return BrokerInstances({entry.instance: entry.id for entry in ids.instances or ()})


# Connects a policy to its real cluster: quotas through ZooKeeper, leaders from the brokers.
# Neither is contacted before its first use.


def open_cluster(spec: KafkaSpec, *, zookeeper_secret: SecretData, client_secret: SecretData, folder: Path) -> KafkaCluster:
    """The real thing. Neither side is contacted before its first use."""
    zookeeper = zookeeper_connection(spec, zookeeper_secret, folder)
    brokers = brokers_connection(spec, client_secret, folder)
    store = ZooKeeperQuotaStore(ZooKeeperSession(zookeeper))
    return KafkaCluster(zookeeper.connect, store, KafkaTopology(brokers, topic_names=store.topic_names))


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
