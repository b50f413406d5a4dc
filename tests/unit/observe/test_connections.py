"""A policy's connection: settings from `tls`, `authentication` and their Secrets, kept while
nothing changes, closed without a trace.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.doubles.quota_store import MemoryQuotaStore, MemoryTree
from tests.unit.control.stage import AWAY
from tidegate.errors import NotFound, TidegateError, Unreachable, UserActionRequired
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import SaslLogin, SaslMechanism, TlsFiles
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.connections import (
    SECRET_AGE_SECONDS,
    Connection,
    Secrets,
    brokers_connection,
    open_cluster,
    read_secrets,
    zookeeper_connection,
)
from tidegate.observe.observation import KafkaCluster
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate_logic.reasons import Reason

# --- settings and Secrets -------------------------------------------------------------------------
# Settings from `tls`, `authentication` and their Secrets, and refusals that name the Secret and its
# key.


# as Strimzi makes them for a KafkaUser with a password, one with a certificate, and a cluster's
# authority
PASSWORD_USER = {"password": b"ebb\xc3\xa4\n", "sasl.jaas.config": b"org.apache.kafka...;"}
TLS_USER = {
    "ca.crt": b"of clients",
    "user.crt": b"certificate",
    "user.key": b"key",
    "user.p12": b"\x00",
    "user.password": b"x",
}
CLUSTER_CA = {"ca.crt": b"authority", "ca.p12": b"\x00", "ca.password": b"x"}
SECRETS = Secrets(
    "streaming",
    {"orders": PASSWORD_USER, "orders-tls": TLS_USER, "kafka-cluster-ca-cert": CLUSTER_CA},
)

BY_PASSWORD = {
    "username": "orders",
    "passwordSecret": {"secretName": "orders", "password": "password"},
}
CERTIFICATE = {"secretName": "orders-tls", "certificate": "user.crt", "key": "user.key"}
TRUSTED = {
    "trustedCertificates": ({"secretName": "kafka-cluster-ca-cert", "certificate": "ca.crt"},)
}


def kafka_spec(zookeeper: dict[str, Any] | None = None, **fields: Any) -> KafkaSpec:
    document = {
        "bootstrapServers": "kafka-1:9092,kafka-2:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "zk-1:2181,zk-2:2181/kafka", **(zookeeper or {})},
    }
    return KafkaSpec.model_validate({**document, **fields})


def by(kind: str, **changes: Any) -> dict[str, Any]:
    return {"type": kind, **BY_PASSWORD, **changes}


def content(path: str | None) -> bytes:
    return Path(str(path)).read_bytes()


def test_without_both_there_is_no_login_and_nothing_is_encrypted(tmp_path: Path) -> None:
    zookeeper, brokers = (
        zookeeper_connection(kafka_spec(), Secrets(), tmp_path),
        brokers_connection(kafka_spec(), Secrets(), tmp_path),
    )
    assert (zookeeper.connect, zookeeper.sasl, zookeeper.tls) == (
        "zk-1:2181,zk-2:2181/kafka",
        None,
        None,
    )
    assert (brokers.bootstrap_servers, brokers.sasl, brokers.tls) == (
        ("kafka-1:9092", "kafka-2:9092"),
        None,
        None,
    )
    assert list(tmp_path.iterdir()) == []


def test_zookeeper_logs_in_by_digest_whose_password_may_end_in_the_newline_of_an_editor(
    tmp_path: Path,
) -> None:
    login = zookeeper_connection(
        kafka_spec({"authentication": by("digest")}), SECRETS, tmp_path
    ).sasl
    assert login == SaslLogin(SaslMechanism.DIGEST_MD5, "orders", "ebbä")


@pytest.mark.parametrize("kind", ["scram-sha-512", "scram-sha-256", "plain"])
def test_brokers_are_logged_in_to_by_the_mechanism_of_the_type(tmp_path: Path, kind: str) -> None:
    login = brokers_connection(kafka_spec(authentication=by(kind)), SECRETS, tmp_path).sasl
    assert login is not None
    assert (login.mechanism.value, login.username, login.password) == (
        kind.upper(),
        "orders",
        "ebbä",
    )


def test_the_secrets_of_a_strimzi_user_with_a_certificate_fit_unchanged(tmp_path: Path) -> None:
    declared = kafka_spec(
        tls=TRUSTED, authentication={"type": "tls", "certificateAndKey": CERTIFICATE}
    )
    connection = brokers_connection(declared, SECRETS, tmp_path)
    assert connection.sasl is None
    assert connection.tls is not None
    assert content(connection.tls.ca_file) == b"authority"
    assert content(connection.tls.certificate_file) == b"certificate"
    assert content(connection.tls.key_file) == b"key"


def test_tls_alone_trusts_the_machines_own_authorities(tmp_path: Path) -> None:
    assert brokers_connection(kafka_spec(tls={}), Secrets(), tmp_path).tls == TlsFiles()


def test_a_pattern_and_several_secrets_are_trusted_together(tmp_path: Path) -> None:
    secrets = Secrets(
        "streaming",
        {"old": {"ca.crt": b"one"}, "new": {"b.crt": b"three", "a.crt": b"two", "ca.p12": b"\x00"}},
    )
    trusted = (
        {"secretName": "old", "certificate": "ca.crt"},
        {"secretName": "new", "pattern": "*.crt"},
    )
    files = brokers_connection(
        kafka_spec(tls={"trustedCertificates": trusted}), secrets, tmp_path
    ).tls
    assert files is not None
    assert content(files.ca_file).split() == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("secrets", "what"),
    [
        ({"orders": {"user": b"x"}}, "Secret streaming/orders has no key password"),
        ({"orders": {"password": b""}}, "Secret streaming/orders has nothing in its key password"),
        (
            {"orders": {"password": b"\n"}},
            "Secret streaming/orders has nothing in its key password",
        ),
        (
            {"orders": {"password": b"\xff"}},
            "Secret streaming/orders must have UTF-8 text in its key password",
        ),
        ({"kafka-cluster-ca-cert": {}}, "Secret streaming/kafka-cluster-ca-cert has no key ca.crt"),
        (
            {"orders-tls": {"user.crt": b"certificate"}},
            "Secret streaming/orders-tls has no key user.key",
        ),
        ({"orders-tls": {"user.key": b"key"}}, "Secret streaming/orders-tls has no key user.crt"),
    ],
)
def test_a_secret_that_does_not_fit_is_refused_by_its_name_and_key(
    tmp_path: Path, secrets: dict[str, Any], what: str, golden: Callable[[str], None]
) -> None:
    declared = kafka_spec(
        tls=TRUSTED, authentication=by("scram-sha-512", certificateAndKey=CERTIFICATE)
    )
    with pytest.raises(UserActionRequired, match=what) as refused:
        brokers_connection(declared, Secrets("streaming", {**SECRETS.data, **secrets}), tmp_path)
    assert refused.value.reason is Reason.SECRET_UNREADABLE
    golden(refused.value.message)


def test_a_pattern_that_nothing_matches_is_refused(tmp_path: Path) -> None:
    trusted = {"trustedCertificates": ({"secretName": "orders", "pattern": "*.crt"},)}
    with pytest.raises(
        UserActionRequired, match=r"Secret streaming/orders has no key that matches \*\.crt"
    ):
        brokers_connection(kafka_spec(tls=trusted), SECRETS, tmp_path)


def test_certificates_are_files_that_no_other_user_can_read(tmp_path: Path) -> None:
    declared = kafka_spec(
        {"tls": TRUSTED, "authentication": {"type": "tls", "certificateAndKey": CERTIFICATE}}
    )
    files = zookeeper_connection(declared, SECRETS, tmp_path).tls
    assert files is not None
    paths = [Path(str(path)) for path in (files.ca_file, files.certificate_file, files.key_file)]
    assert [path.read_bytes() for path in paths] == [b"authority", b"certificate", b"key"]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert paths[0].parent.stat().st_mode & 0o777 == 0o700


def test_zookeeper_and_brokers_keep_their_certificates_apart(tmp_path: Path) -> None:
    secrets = Secrets(
        "streaming",
        {"zookeeper": {"ca.crt": b"of zookeeper"}, "kafka": {"ca.crt": b"of the brokers"}},
    )
    of_zookeeper, of_brokers = (
        {"trustedCertificates": ({"secretName": name, "certificate": "ca.crt"},)}
        for name in ("zookeeper", "kafka")
    )
    declared = kafka_spec({"tls": of_zookeeper}, tls=of_brokers)
    zookeeper, brokers = (
        zookeeper_connection(declared, secrets, tmp_path).tls,
        brokers_connection(declared, secrets, tmp_path).tls,
    )
    assert zookeeper is not None
    assert brokers is not None
    assert (content(zookeeper.ca_file), content(brokers.ca_file)) == (
        b"of zookeeper",
        b"of the brokers",
    )


def test_every_secret_that_a_connection_needs_is_named() -> None:
    declared = kafka_spec(
        {"authentication": by("digest")},
        tls=TRUSTED,
        authentication={"type": "tls", "certificateAndKey": CERTIFICATE},
    )
    assert declared.secret_names == SECRETS.data.keys()
    assert kafka_spec().secret_names == frozenset()


def test_a_secret_that_has_vanished_is_taken_from_what_is_known() -> None:
    kubernetes = InMemoryKubernetes()
    with pytest.raises(NotFound, match="streaming/orders"):
        read_secrets(kubernetes, "streaming", ["orders"])
    assert read_secrets(kubernetes, "streaming", ["orders"], known=SECRETS).data == {
        "orders": PASSWORD_USER
    }


def test_no_password_is_ever_shown(tmp_path: Path) -> None:
    secrets = Secrets("streaming", {"orders": {"password": b"swordfish"}})
    declared = kafka_spec({"authentication": by("digest")}, authentication=by("plain"))
    shown = (
        secrets,
        zookeeper_connection(declared, secrets, tmp_path),
        brokers_connection(declared, secrets, tmp_path),
    )
    assert "swordfish" not in repr(shown)
    with pytest.raises(UserActionRequired) as refused:
        brokers_connection(
            kafka_spec(authentication=by("plain")),
            Secrets("streaming", {"orders": {"password": b"swordfish\xff"}}),
            tmp_path,
        )
    assert "swordfish" not in str(refused.value)


# --- one connection a policy ----------------------------------------------------------------------
# A policy has one connection: kept while nothing changes, replaced when the spec or a Secret does,
# closed without a trace.


@dataclass
class Opened:
    """One connection that was opened, as store and topology in one; `brokers_changed` does what a
    watch does.
    """

    secrets: Secrets
    folder: Path
    watch_error: TidegateError | None
    closed: int = 0
    brokers_changed: Callable[[], None] = lambda: None

    def only_while(self, may_write: Callable[[], bool]) -> None:
        pass

    def watch(self, wake: Callable[[], None]) -> None:
        if self.watch_error is not None:
            raise self.watch_error
        self.brokers_changed = wake

    def close(self) -> None:
        self.closed += 1


@dataclass
class House:
    """A Connection with hands on its clock, its Kubernetes and everything that it opened."""

    kubernetes: InMemoryKubernetes = field(default_factory=InMemoryKubernetes)
    opened: list[Opened] = field(default_factory=list)
    now: float = 1000.0
    wakes: int = 0
    watch_error: TidegateError | None = None

    def __post_init__(self) -> None:
        self.connection = Connection(
            "streaming",
            kubernetes=self.kubernetes,
            opener=self._open,
            wake=self._wake,
            may_write=lambda: True,
            monotonic=lambda: self.now,
        )

    def _open(self, spec: KafkaSpec, *, secrets: Secrets, folder: Path) -> KafkaCluster:
        (folder / "ca.crt").write_text("certificate")
        self.opened.append(Opened(secrets, folder, self.watch_error))
        return KafkaCluster("zk:2181", self.opened[-1], self.opened[-1])  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.wakes += 1


@pytest.fixture
def house() -> House:
    house = House()
    house.kubernetes.put_secret("streaming", "zookeeper", {"password": b"old"})
    return house


def spec(connect: str = "zk:2181", **fields: Any) -> KafkaSpec:
    login = {
        "type": "digest",
        "username": "tidegate",
        "passwordSecret": {"secretName": "zookeeper", "password": "password"},
    }
    zookeeper = {"connect": connect, "authentication": login}
    return KafkaSpec.model_validate(
        {
            "bootstrapServers": "kafka:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": zookeeper,
            **fields,
        }
    )


def test_the_same_spec_again_needs_no_new_connection(house: House) -> None:
    first = house.connection.cluster(spec())
    assert house.connection.cluster(spec()) is first
    assert (len(house.opened), house.opened[0].closed) == (1, 0)


def test_a_changed_spec_closes_the_old_connection_before_it_opens_the_next(house: House) -> None:
    house.connection.cluster(spec())
    house.connection.cluster(spec("zk-2:2181"))
    assert [opened.closed for opened in house.opened] == [2, 0]  # store and topology
    assert not house.opened[0].folder.exists()


@pytest.mark.parametrize(
    ("age_seconds", "opened"), [(SECRET_AGE_SECONDS - 1, 1), (SECRET_AGE_SECONDS + 1, 2)]
)
def test_a_changed_secret_is_noticed_after_a_minute(
    house: House, age_seconds: float, opened: int
) -> None:
    house.connection.cluster(spec())
    house.kubernetes.put_secret("streaming", "zookeeper", {"password": b"new"})
    house.now += age_seconds
    house.connection.cluster(spec())
    assert len(house.opened) == opened


def test_a_secret_that_did_not_change_keeps_the_connection_however_old_it_is(house: House) -> None:
    house.connection.cluster(spec())
    house.now += 10 * SECRET_AGE_SECONDS
    house.connection.cluster(spec())
    assert len(house.opened) == 1


def brokers_login(secret: str) -> dict[str, Any]:
    return {
        "type": "plain",
        "username": "orders",
        "passwordSecret": {"secretName": secret, "password": "password"},
    }


def test_every_secret_that_either_side_names_is_read(house: House) -> None:
    house.kubernetes.put_secret("streaming", "clients", {"password": b"x"})
    house.kubernetes.put_secret("streaming", "unrelated", {"password": b"y"})
    house.connection.cluster(spec(authentication=brokers_login("clients")))
    assert house.opened[0].secrets == Secrets(
        "streaming", {"zookeeper": {"password": b"old"}, "clients": {"password": b"x"}}
    )


def test_a_missing_secret_opens_nothing_and_is_named(house: House) -> None:
    with pytest.raises(NotFound, match="streaming/nowhere") as missing:
        house.connection.cluster(spec(authentication=brokers_login("nowhere")))
    assert (missing.value.reason, house.opened) == (Reason.SECRET_UNREADABLE, [])


@pytest.mark.parametrize(
    "error",
    [AWAY, NotFound(Reason.SECRET_UNREADABLE, "Secret streaming/zookeeper does not exist.")],
)
def test_an_open_connection_outlives_its_secret_so_that_quotas_can_still_be_given_back(
    house: House, error: TidegateError
) -> None:
    first = house.connection.cluster(spec())
    house.kubernetes.fail_with(error)
    house.now += SECRET_AGE_SECONDS + 1
    assert house.connection.cluster(spec()) is first


def test_a_secret_known_for_one_spec_is_not_used_for_another(house: House) -> None:
    house.connection.cluster(spec())
    house.kubernetes.fail_with(AWAY)
    with pytest.raises(Unreachable):
        house.connection.cluster(spec("zk-2:2181"))


def test_brokers_that_come_or_go_wake_the_policy(house: House) -> None:
    house.connection.cluster(spec())
    house.opened[0].brokers_changed()
    assert house.wakes == 1


def test_a_connection_that_cannot_watch_is_closed_and_tried_anew(house: House) -> None:
    house.watch_error = Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "zk:2181 does not answer.")
    with pytest.raises(Unreachable):
        house.connection.cluster(spec())
    house.watch_error = None
    house.connection.cluster(spec())
    assert [opened.closed for opened in house.opened] == [2, 0]
    assert not house.opened[0].folder.exists()


def test_closing_leaves_no_certificate_behind_and_may_be_done_twice(house: House) -> None:
    house.connection.cluster(spec())
    house.connection.close()
    house.connection.close()
    assert (house.opened[0].closed, house.opened[0].folder.exists()) == (2, False)


# --- where quotas are written ---------------------------------------------------------------------


@dataclass
class Brokers:
    """A quota store on brokers that only says how these keep their metadata."""

    kraft: bool | None  # None = they do not answer
    topic: str | None = None
    claim: Claim | None = None
    questions: int = 0
    closed: int = 0
    address: str = "kafka-1:9092"

    def is_kraft(self) -> bool:
        self.questions += 1
        if self.kraft is None:
            raise Unreachable(Reason.BROKERS_UNREACHABLE, "no broker answered")
        return self.kraft

    def has_ledger(self) -> bool:
        return self.claim is not None

    def topic_names(self) -> frozenset[str]:
        return frozenset({"of-brokers"})

    def close(self) -> None:
        self.closed += 1


@dataclass
class Places:
    """Opens what a spec asks for, and counts."""

    folder: Path
    kraft: bool | None = None
    claim: Claim | None = None
    tree: MemoryTree = field(default_factory=MemoryTree)
    trees: int = 0
    brokers: list[Brokers] = field(default_factory=list)
    topic_names: frozenset[str] = frozenset()

    def open(self, **kafka: Any) -> KafkaCluster:
        return open_cluster(
            KafkaSpec.model_validate({"bootstrapServers": "kafka-1:9092", **kafka}),
            secrets=Secrets(),
            folder=self.folder,
            open_tree=self._tree,
            open_admin_store=self._store,  # type: ignore[arg-type]
            open_topology=self._topology,
        )

    def _tree(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> Any:
        self.trees += 1
        return self.tree

    def _store(self, spec: KafkaSpec, secrets: Secrets, *, folder: Path) -> Brokers:
        self.brokers.append(Brokers(self.kraft, spec.ledger_topic, self.claim))
        return self.brokers[-1]

    def _topology(self, *_: Any, topic_names: Callable[[], frozenset[str]], **__: Any) -> Any:
        return topic_names


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


ZOOKEEPER = {"connect": "zk-1:2181"}


@pytest.mark.parametrize("quota_store", [{}, {"quotaStore": "Auto"}, {"quotaStore": "AdminApi"}])
def test_without_a_zookeeper_quotas_go_through_brokers_of_whatever_mode(
    places: Places, quota_store: dict[str, str]
) -> None:
    cluster = places.open(**quota_store, ledgerTopic="our-ledger")
    (brokers,) = places.brokers
    assert (cluster.store, cluster.address) == (brokers, "kafka-1:9092")
    assert (brokers.topic, brokers.questions, places.trees) == ("our-ledger", 0, 0)
    assert cluster.topology() == {"of-brokers"}  # type: ignore[operator]


def test_with_quota_store_zookeeper_the_brokers_are_not_asked(places: Places) -> None:
    cluster = places.open(quotaStore="ZooKeeper", zookeeper=ZOOKEEPER)
    assert isinstance(cluster.store, ZooKeeperQuotaStore)
    assert (cluster.address, places.brokers) == ("memory", [])


def test_auto_takes_the_zookeeper_of_brokers_that_use_it(places: Places) -> None:
    places.kraft = False
    cluster = places.open(zookeeper=ZOOKEEPER)
    assert isinstance(cluster.store, ZooKeeperQuotaStore)
    assert [(one.questions, one.closed) for one in places.brokers] == [(1, 1)]


def test_auto_holds_while_brokers_that_use_zookeeper_or_not_are_silent(places: Places) -> None:
    with pytest.raises(TidegateError) as held:
        places.open(zookeeper=ZOOKEEPER)
    assert held.value.reason is Reason.BROKERS_UNREACHABLE
    assert (places.trees, [one.closed for one in places.brokers]) == (0, [1])


def test_auto_takes_the_brokers_of_a_cluster_whose_ledger_has_moved(places: Places) -> None:
    places.kraft, places.claim = True, Claim("n/orders", "uid-1", epoch=1)
    cluster = places.open(zookeeper=ZOOKEEPER)
    assert cluster.store is places.brokers[0]
    assert (cluster.ledger_move, places.trees, places.brokers[0].closed) == (None, 0, 0)


def test_auto_keeps_to_the_zookeeper_until_the_ledger_has_moved(places: Places) -> None:
    places.kraft, places.tree = True, MemoryQuotaStore().tree
    cluster = places.open(zookeeper=ZOOKEEPER)
    assert isinstance(cluster.store, ZooKeeperQuotaStore)
    assert cluster.ledger_move is not None
    assert [one.closed for one in places.brokers] == [1]


def test_only_auto_moves_a_ledger(places: Places) -> None:
    assert places.open(quotaStore="ZooKeeper", zookeeper=ZOOKEEPER).ledger_move is None
    assert places.open().ledger_move is None


def test_auto_begins_no_second_ledger_where_the_first_cannot_be_read(places: Places) -> None:
    places.kraft = True
    with pytest.raises(TidegateError) as held:
        places.open(zookeeper=ZOOKEEPER)
    assert held.value.reason is Reason.MIGRATION_RUNNING
    assert held.value.message == (
        "The brokers at kafka-1:9092 run KRaft, and the ledger may be in ZooKeeper memory, which "
        "cannot be read: There is no Kafka cluster at ZooKeeper memory: /cluster/id does not exist "
        "there. Nothing is written. Check the path after the host names (Kafka's "
        "zookeeper.connect has the same one). Every quota stays as it is. Let that ZooKeeper "
        "answer until the ledger has moved; where Tidegate never managed this cluster, remove "
        "spec.kafka.zookeeper"
    )
    assert (places.trees, [one.closed for one in places.brokers]) == (1, [1])
