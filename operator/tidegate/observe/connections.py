"""The connection of one policy to its Kafka cluster, opened on first use.

It is opened again when the policy or a Secret changes. Store and topology reconnect by themselves,
so its health is not watched here.
"""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tidegate.errors import TidegateError, UserActionRequired, WriteRefused
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.quota_store import QuotaStore
from tidegate.kafka.settings import (
    KafkaConnection,
    SaslLogin,
    SaslMechanism,
    TlsFiles,
    TokenLogin,
    ZooKeeperConnection,
)
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import ZnodeTree
from tidegate.kube.api import Kubernetes
from tidegate.observe.observation import KafkaCluster, ReplicationSource, TopologySource
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets
from tidegate.observe.share_groups import ShareGroupSource
from tidegate.prometheus.direct import DirectSettings
from tidegate.prometheus.settings import (
    BasicLogin,
    BearerLogin,
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    Preset,
    PrometheusServer,
    TlsTexts,
)
from tidegate.prometheus.settings import Queries as Selectors
from tidegate.resources.authentication import (
    CertificateAndKey,
    KafkaAuthentication,
    PrometheusAuthentication,
    Tls,
    ZooKeeperAuthentication,
)
from tidegate.resources.policy import (
    BrokerIdentity,
    DirectReadings,
    MetricQueries,
    MetricsSource,
)
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate.settings import UNBOUNDED, PolicyBounds
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.kafka.adminapi.store import AdminQuotaStore

# --- settings of the connections, from the policy and the Secrets that it names -------------------
#
# Kafka's libraries want certificates as files, so these are written to a private folder that exists
# as long as the connection. No value of a Secret is ever shown.

QUOTAS_STAY = "every quota stays as it is until then"
_MECHANISMS = {
    "scram-sha-512": SaslMechanism.SCRAM_SHA_512,
    "scram-sha-256": SaslMechanism.SCRAM_SHA_256,
    "plain": SaslMechanism.PLAIN,
    "digest": SaslMechanism.DIGEST_MD5,
}


def zookeeper_connection(spec: KafkaSpec, secrets: Secrets, folder: Path) -> ZooKeeperConnection:
    """The ZooKeeper settings. Raises UserActionRequired when the policy or a Secret lacks one."""
    zookeeper = spec.zookeeper
    if zookeeper is None:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            "spec.kafka.zookeeper is required with quotaStore ZooKeeper",
            consequence="every quota stays as it is",
        )
    tls = _tls_files(zookeeper.tls, zookeeper.authentication, secrets, folder / "zookeeper")
    return ZooKeeperConnection(
        zookeeper.connect, sasl=_login(zookeeper.authentication, secrets), tls=tls
    )


def brokers_connection(spec: KafkaSpec, secrets: Secrets, folder: Path) -> KafkaConnection:
    """The settings for the policy's brokers. Raises like `zookeeper_connection`."""
    tls = _tls_files(spec.tls, spec.authentication, secrets, folder / "brokers")
    return KafkaConnection(
        tuple(spec.bootstrap_servers.split(",")),
        sasl=_brokers_login(spec.authentication, secrets, folder / "tokens"),
        tls=tls,
    )


def trusted_certificates(tls: Tls | None, secrets: Secrets, *, meanwhile: str) -> bytes | None:
    """All trusted certificates, one after the other; None = the machine's own authorities."""
    found: list[bytes] = []
    for trusted in (tls.trusted_certificates or ()) if tls is not None else ():
        name = trusted.secret_name
        keys = (
            [trusted.certificate]
            if trusted.certificate
            else secrets.keys_like(name, trusted.pattern or "*", meanwhile=meanwhile)
        )
        found += [secrets.value(name, key, meanwhile=meanwhile) for key in keys]
    return b"\n".join(found) if found else None


def certificate_and_key(
    where: CertificateAndKey, secrets: Secrets, *, meanwhile: str
) -> tuple[bytes, bytes]:
    """The client certificate and its key, both PEM."""
    certificate = secrets.value(where.secret_name, where.certificate, meanwhile=meanwhile)
    return certificate, secrets.value(where.secret_name, where.key, meanwhile=meanwhile)


def _login(
    declared: KafkaAuthentication | ZooKeeperAuthentication | None, secrets: Secrets
) -> SaslLogin | None:
    if declared is None or declared.username is None or declared.password_secret is None:
        return None  # type tls: the certificate is the login
    password = secrets.text(
        declared.password_secret.secret_name,
        declared.password_secret.password,
        meanwhile=QUOTAS_STAY,
    )
    return SaslLogin(_MECHANISMS[declared.type], declared.username, password)


def _brokers_login(
    declared: KafkaAuthentication | None, secrets: Secrets, folder: Path
) -> SaslLogin | TokenLogin | None:
    if declared is None or declared.type not in ("oauthbearer", "aws-msk-iam"):
        return _login(declared, secrets)
    from tidegate.observe.token_login import token_login

    trusted = Tls(trusted_certificates=declared.tls_trusted_certificates)
    return token_login(
        declared,
        secrets,
        endpoint_tls=_tls_files(trusted, None, secrets, folder) or TlsFiles(),
        meanwhile=QUOTAS_STAY,
    )


def _tls_files(
    tls: Tls | None,
    login: KafkaAuthentication | ZooKeeperAuthentication | None,
    secrets: Secrets,
    folder: Path,
) -> TlsFiles | None:
    if tls is None:
        return None
    authorities, files = trusted_certificates(tls, secrets, meanwhile=QUOTAS_STAY), TlsFiles()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if authorities is not None:
        files = TlsFiles(ca_file=_write_private(folder / "ca.crt", authorities))
    if login is None or login.certificate_and_key is None:
        return files
    certificate, key = certificate_and_key(
        login.certificate_and_key, secrets, meanwhile=QUOTAS_STAY
    )
    return TlsFiles(
        files.ca_file,
        _write_private(folder / "tls.crt", certificate),
        _write_private(folder / "tls.key", key),
    )


def _write_private(path: Path, content: bytes) -> str:
    """Write a file that only this user may read; returns its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return str(path)


NOT_MEASURED = "load is not read until then"


def metrics_settings(spec: MetricsSource, secrets: Secrets) -> MetricsSettings:
    """The settings for the metrics.

    Raises UserActionRequired when a Secret lacks a key, or a login would go over plain http.
    """
    server = spec.prometheus
    if server.authentication is not None and not server.insecure and _is_plain(server.url):
        raise UserActionRequired(
            Reason.INSECURE_LOGIN,
            f"spec.metrics.prometheus.authentication would go to {server.url} over plain http, "
            "where anyone on the network path can read it",
            consequence=NOT_MEASURED,
            advice="Use an https:// address, or allow it with spec.metrics.prometheus.insecure: "
            "true",
        )
    return settings_of(
        spec,
        prometheus_server(
            spec.prometheus.url, spec.prometheus.tls, spec.prometheus.authentication, secrets
        ),
    )


def _is_plain(url: str) -> bool:
    return url.lower().startswith("http://")


def settings_of(spec: MetricsSource, server: PrometheusServer) -> MetricsSettings:
    """The settings as the policy declares them, with this server."""
    return MetricsSettings(
        replace(server, headers=dict(spec.prometheus.headers or {})),
        Preset(spec.preset),
        _queries(spec.queries),
        None if spec.broker_identity is None else _identity(spec.broker_identity),
        matchers=dict(spec.matchers or {}),
        interfaces=spec.interfaces or (),
        replica_labels=spec.prometheus.replica_labels or (),
        scrape_interval_seconds=spec.scrape_interval_seconds,
        stale_after_seconds=spec.stale_after_seconds,
        exporters=spec.direct is not None and spec.direct.enabled,
    )


def direct_settings(direct: DirectReadings, secrets: Secrets) -> DirectSettings:
    """How brokers' exporters are reached. Raises UserActionRequired when a Secret lacks a key."""
    server = prometheus_server(
        "http:" if direct.tls is None else "https:",
        direct.tls,
        direct.authentication,
        secrets,
        meanwhile="Prometheus' readings alone are used until then",
    )
    return DirectSettings(server, direct.port, direct.path or "/metrics")


def prometheus_server(
    url: str,
    tls: Tls | None,
    login: PrometheusAuthentication | None,
    secrets: Secrets,
    *,
    meanwhile: str = NOT_MEASURED,
) -> PrometheusServer:
    """Server settings. Raises UserActionRequired, ending in `meanwhile`, for a missing key."""
    authorities = trusted_certificates(tls, secrets, meanwhile=meanwhile)
    certificate, key = None, None
    if login is not None and login.certificate_and_key is not None:
        certificate, key = certificate_and_key(
            login.certificate_and_key, secrets, meanwhile=meanwhile
        )
    given = authorities is not None or certificate is not None
    return PrometheusServer(
        url,
        _prometheus_login(login, secrets, meanwhile),
        tls=TlsTexts(authorities, certificate, key) if given else None,
    )


def _prometheus_login(
    declared: PrometheusAuthentication | None, secrets: Secrets, meanwhile: str
) -> BearerLogin | BasicLogin | None:
    if declared is None:
        return None
    if declared.token_secret is not None:
        return BearerLogin(
            secrets.text(
                declared.token_secret.secret_name, declared.token_secret.token, meanwhile=meanwhile
            )
        )
    if declared.username is None or declared.password_secret is None:
        return None  # type tls: the certificate is the login
    password = secrets.text(
        declared.password_secret.secret_name, declared.password_secret.password, meanwhile=meanwhile
    )
    return BasicLogin(declared.username, password)


def _queries(declared: MetricQueries | None) -> Selectors:
    if declared is None:
        return Selectors()
    return Selectors(declared.egress, declared.ingress, declared.user_fetch, declared.user_produce)


def _identity(ids: BrokerIdentity) -> BrokerLabel | BrokerInstances:
    if ids.label is not None:
        return BrokerLabel(ids.label, ids.pod_pattern)
    return BrokerInstances({entry.instance: entry.id for entry in ids.instances or ()})


# --- opening: quotas through ZooKeeper or brokers, leaders from brokers, none before its first use
#
# The libraries are imported on opening, so that a command which opens nothing answers at once.


_IMPORTED_ON_OPENING = (
    "tidegate.kafka.adminapi.store",
    "tidegate.kafka.brokers",
    "tidegate.kafka.replication",
    "tidegate.kafka.zookeeper.session",
)


def import_libraries() -> None:
    """Import what opening a cluster imports, which takes a fifth of a second of processor.

    An operator does so at its start, so that no first quota waits for it.
    """
    for name in _IMPORTED_ON_OPENING:
        import_module(name)


class OpenTree(Protocol):
    """Opens the ZooKeeper of `spec`. Certificates go to `folder`, which outlives the connection."""

    def __call__(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ZnodeTree: ...


class OpenAdminStore(Protocol):
    """Opens the quota store on the brokers of `spec`."""

    def __call__(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> "AdminQuotaStore": ...


class OpenTopology(Protocol):
    """Opens the brokers of `spec`; `topic_names` lists all topics, for prefixes."""

    def __call__(
        self,
        spec: KafkaSpec,
        secrets: Secrets,
        *,
        folder: Path,
        topic_names: Callable[[], frozenset[str]],
    ) -> TopologySource: ...


class OpenReplication(Protocol):
    """Opens what asks the brokers of `spec` for reassignments and replication throttles."""

    def __call__(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ReplicationSource: ...


class OpenShareGroups(Protocol):
    """Opens what asks the brokers of `spec` for share groups."""

    def __call__(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ShareGroupSource: ...


def open_tree(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ZnodeTree:
    """See OpenTree. Raises UserActionRequired when a Secret does not hold what it must."""
    from tidegate.kafka.zookeeper.session import ZooKeeperSession

    return ZooKeeperSession(zookeeper_connection(spec, secrets, folder))


def open_admin_store(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> "AdminQuotaStore":
    """See OpenAdminStore. Raises UserActionRequired when a Secret does not hold what it must."""
    from tidegate.kafka.adminapi.store import LEDGER_TOPIC, AdminQuotaStore

    return AdminQuotaStore(
        brokers_connection(spec, secrets, folder), spec.ledger_topic or LEDGER_TOPIC
    )


def open_topology(
    spec: KafkaSpec, secrets: Secrets, *, folder: Path, topic_names: Callable[[], frozenset[str]]
) -> TopologySource:
    """See OpenTopology. Raises UserActionRequired when a Secret does not hold what it must."""
    from tidegate.kafka.brokers import KafkaTopology

    return KafkaTopology(brokers_connection(spec, secrets, folder), topic_names=topic_names)


def open_replication(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ReplicationSource:
    """See OpenReplication. Raises UserActionRequired when a Secret lacks what it must hold."""
    from tidegate.kafka.replication import KafkaReplication

    return KafkaReplication(brokers_connection(spec, secrets, folder))


def open_share_groups(spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> ShareGroupSource:
    """See OpenShareGroups. Raises UserActionRequired when a Secret lacks what it must hold."""
    from tidegate.kafka.share_groups import KafkaShareGroups

    return KafkaShareGroups(brokers_connection(spec, secrets, folder))


def open_cluster(
    spec: KafkaSpec,
    *,
    secrets: Secrets,
    folder: Path,
    brokers_secrets: Secrets | None = None,
    open_tree: OpenTree = open_tree,
    open_admin_store: OpenAdminStore = open_admin_store,
    open_topology: OpenTopology = open_topology,
    open_replication: OpenReplication = open_replication,
    open_share_groups: OpenShareGroups = open_share_groups,
) -> KafkaCluster:
    """The cluster of `spec`. Raises UserActionRequired when a Secret does not hold what it must.

    `brokers_secrets` are those of the brokers, where they come from elsewhere than ZooKeeper's.
    With quotaStore Auto and a ZooKeeper, the brokers are asked first where the ledger is: raises
    Unreachable, and WriteRefused if it may be in a ZooKeeper that does not answer.
    """
    of_brokers = brokers_secrets or secrets

    def open_brokers() -> "AdminQuotaStore":
        return open_admin_store(spec, of_brokers, folder=folder)

    store: QuotaStore
    move: LedgerMove | None = None
    if spec.zookeeper is None and spec.quota_store != "ZooKeeper":
        store = open_brokers()
    elif spec.quota_store == "Auto":
        store, move = _where_the_ledger_is(
            open_brokers, lambda: open_tree(spec, secrets, folder=folder)
        )
    else:
        store = ZooKeeperQuotaStore(open_tree(spec, secrets, folder=folder))
    with ExitStack() as opened:
        opened.enter_context(closing(store))
        topology = open_topology(spec, of_brokers, folder=folder, topic_names=store.topic_names)
        opened.enter_context(closing(topology))
        groups = open_share_groups(spec, of_brokers, folder=folder)
        replication = open_replication(spec, of_brokers, folder=folder)
        opened.pop_all()
    return KafkaCluster(store.address, store, topology, move, replication, groups)


def _where_the_ledger_is(
    open_brokers: "Callable[[], AdminQuotaStore]", open_tree: Callable[[], ZnodeTree]
) -> tuple[QuotaStore, LedgerMove | None]:
    """The store on the brokers when they run KRaft and have the ledger, else that on ZooKeeper.

    What ZooKeeper has does not count once the ledger has moved: its claim and records stay there,
    and are those of before.
    """
    brokers = open_brokers()
    try:
        is_kraft = brokers.is_kraft()
        if is_kraft and brokers.has_ledger():
            return brokers, None
    except BaseException:
        brokers.close()
        raise
    brokers.close()
    tree = open_tree()
    store = ZooKeeperQuotaStore(tree)
    if is_kraft:
        try:
            _require_readable(store, brokers.address)
        except BaseException:
            store.close()
            raise
    return store, LedgerMove(tree, open_brokers)


def _require_readable(store: QuotaStore, brokers_address: str) -> None:
    """Raise where brokers have moved to KRaft and the ledger from before cannot be read.

    A new ledger would take what Tidegate wrote for what was there before it.
    """
    try:
        store.facts()
    except TidegateError as error:
        raise WriteRefused(
            Reason.MIGRATION_RUNNING,
            f"The brokers at {brokers_address} run KRaft, and the ledger may be in ZooKeeper "
            f"{store.address}, which cannot be read: {error.for_command}",
            consequence="Every quota stays as it is.",
            advice="Let that ZooKeeper answer until the ledger has moved; where Tidegate never "
            "managed this cluster, remove spec.kafka.zookeeper",
        ) from error


# a changed Secret is noticed within this; reading every pass would fill the API server's audit log
SECRET_AGE_SECONDS = 60.0

Origin = TypeVar("Origin")
Opened = TypeVar("Opened")


class OpenCluster(Protocol):
    """Connects to a cluster; a test hands in its own."""

    def __call__(self, spec: KafkaSpec, *, secrets: Secrets, folder: Path) -> KafkaCluster: ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The origin of a connection; the same again needs no new one."""

    spec: KafkaSpec
    secrets: Secrets


class Renewed(Generic[Origin, Opened]):
    """An open resource with a private folder, opened again when its origin has changed.

    One thread at a time may use it. `read` gets the last origin and returns the present one, with
    its Secrets; it is called once a minute. `close` must not raise.
    """

    def __init__(
        self,
        *,
        read: Callable[[Origin | None], Origin],
        opener: Callable[[Origin, Path], Opened],
        close: Callable[[Opened], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._read = read
        self._opener = opener
        self._close = close
        self._monotonic = monotonic
        self._origin: Origin | None = None
        self._read_at_seconds = float("-inf")
        self._opened: Opened | None = None
        self._folder: Path | None = None

    @property
    def origin(self) -> Origin | None:
        """The origin of what is open; None while nothing is."""
        return self._origin

    def current(self, *, is_outdated: bool = False) -> Opened:
        """The open resource; `is_outdated` = read again now. Raises what `read` and `opener` do."""
        if (
            self._opened is not None
            and not is_outdated
            and self._monotonic() - self._read_at_seconds <= SECRET_AGE_SECONDS
        ):
            return self._opened
        origin = self._read(self._origin)
        self._read_at_seconds = self._monotonic()
        if self._opened is not None and origin == self._origin:
            return self._opened
        self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
        self._opened = opened = self._opener(origin, self._folder)
        self._origin = origin
        return opened

    def close(self) -> None:
        """Close it and remove its folder. A second call does nothing."""
        opened, self._opened, self._origin = self._opened, None, None
        if opened is not None:
            self._close(opened)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class Connection:
    """At most one open cluster. `wake` is called when brokers come, go or elect a controller.

    `may_write` is the policy's Lease: see `QuotaStore.only_while`.
    """

    def __init__(
        self,
        namespace: str,
        *,
        kubernetes: Kubernetes,
        opener: OpenCluster,
        wake: Callable[[], None],
        may_write: Callable[[], bool],
        monotonic: Callable[[], float],
        bounds: PolicyBounds = UNBOUNDED,
    ) -> None:
        self._namespace = namespace
        self._may_write = may_write
        self._bounds = bounds
        self._kubernetes = kubernetes
        self._opener = opener
        self._wake = wake
        self._spec: KafkaSpec | None = None
        self._renewed = Renewed(
            read=self._wanted, opener=self._open, close=KafkaCluster.close, monotonic=monotonic
        )

    def cluster(self, spec: KafkaSpec) -> KafkaCluster:
        """The cluster of `spec`. Raises a TidegateError when a Secret cannot be read or used."""
        self._spec = spec
        origin = self._renewed.origin
        return self._renewed.current(is_outdated=origin is not None and origin.spec != spec)

    def close(self) -> None:
        self._renewed.close()

    def _open(self, wanted: _Wanted, folder: Path) -> KafkaCluster:
        cluster = self._opener(wanted.spec, secrets=wanted.secrets, folder=folder)
        cluster.store.only_while(self._may_write)
        try:
            cluster.store.watch(self._wake)
        except TidegateError:
            cluster.close()
            raise
        return cluster

    def _wanted(self, before: _Wanted | None) -> _Wanted:
        """Read spec and Secrets. A Secret that vanished under an open connection is remembered.

        A namespace in deletion loses Secrets before its policies, which have quotas to restore.
        """
        spec = self._spec
        if spec is None:
            raise ValueError("a connection is asked for the cluster of a spec")
        known = before.secrets if before is not None and before.spec == spec else None
        secrets = read_secrets(
            self._kubernetes, self._namespace, spec.secret_names, known=known, bounds=self._bounds
        )
        return _Wanted(spec, secrets)
