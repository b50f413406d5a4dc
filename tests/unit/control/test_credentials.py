"""Settings from `tls`, `authentication` and their Secrets, and refusals that name the Secret and its key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller_logic.reasons import Reason
from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.control.connections import Secrets, brokers_connection, read_secrets, zookeeper_connection
from tidegate.errors import NotFound, UserActionRequired
from tidegate.kafka.settings import SaslLogin, SaslMechanism, TlsFiles
from tidegate.resources.policy import KafkaCluster

# as Strimzi makes them for a KafkaUser with a password, one with a certificate, and a cluster's authority
PASSWORD_USER = {"password": b"ebb\xc3\xa4\n", "sasl.jaas.config": b"org.apache.kafka...;"}
TLS_USER = {"ca.crt": b"of clients", "user.crt": b"certificate", "user.key": b"key", "user.p12": b"\x00", "user.password": b"x"}
CLUSTER_CA = {"ca.crt": b"authority", "ca.p12": b"\x00", "ca.password": b"x"}
SECRETS = Secrets("streaming", {"orders": PASSWORD_USER, "orders-tls": TLS_USER, "kafka-cluster-ca-cert": CLUSTER_CA})

BY_PASSWORD = {"username": "orders", "passwordSecret": {"secretName": "orders", "password": "password"}}
CERTIFICATE = {"secretName": "orders-tls", "certificate": "user.crt", "key": "user.key"}
TRUSTED = {"trustedCertificates": ({"secretName": "kafka-cluster-ca-cert", "certificate": "ca.crt"},)}


def spec(zookeeper: dict[str, Any] | None = None, **fields: Any) -> KafkaCluster:
    document = {
        "bootstrapServers": "kafka-1:9092,kafka-2:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "zk-1:2181,zk-2:2181/kafka", **(zookeeper or {})},
    }
    return KafkaCluster.model_validate({**document, **fields})


def by(kind: str, **changes: Any) -> dict[str, Any]:
    return {"type": kind, **BY_PASSWORD, **changes}


def content(path: str | None) -> bytes:
    return Path(str(path)).read_bytes()


def test_without_both_there_is_no_login_and_nothing_is_encrypted(tmp_path: Path) -> None:
    zookeeper, brokers = zookeeper_connection(spec(), Secrets(), tmp_path), brokers_connection(spec(), Secrets(), tmp_path)
    assert (zookeeper.connect, zookeeper.sasl, zookeeper.tls) == ("zk-1:2181,zk-2:2181/kafka", None, None)
    assert (brokers.bootstrap_servers, brokers.sasl, brokers.tls) == (("kafka-1:9092", "kafka-2:9092"), None, None)
    assert list(tmp_path.iterdir()) == []


def test_zookeeper_logs_in_by_digest_whose_password_may_end_in_the_newline_of_an_editor(tmp_path: Path) -> None:
    login = zookeeper_connection(spec({"authentication": by("digest")}), SECRETS, tmp_path).sasl
    assert login == SaslLogin(SaslMechanism.DIGEST_MD5, "orders", "ebbä")


@pytest.mark.parametrize("kind", ["scram-sha-512", "scram-sha-256", "plain"])
def test_brokers_are_logged_in_to_by_the_mechanism_of_the_type(tmp_path: Path, kind: str) -> None:
    login = brokers_connection(spec(authentication=by(kind)), SECRETS, tmp_path).sasl
    assert login is not None
    assert (login.mechanism.value, login.username, login.password) == (kind.upper(), "orders", "ebbä")


def test_the_secrets_of_a_strimzi_user_with_a_certificate_fit_unchanged(tmp_path: Path) -> None:
    declared = spec(tls=TRUSTED, authentication={"type": "tls", "certificateAndKey": CERTIFICATE})
    connection = brokers_connection(declared, SECRETS, tmp_path)
    assert connection.sasl is None
    assert connection.tls is not None
    assert content(connection.tls.ca_file) == b"authority"
    assert content(connection.tls.certificate_file) == b"certificate"
    assert content(connection.tls.key_file) == b"key"


def test_tls_alone_trusts_the_machines_own_authorities(tmp_path: Path) -> None:
    assert brokers_connection(spec(tls={}), Secrets(), tmp_path).tls == TlsFiles()


def test_a_pattern_and_several_secrets_are_trusted_together(tmp_path: Path) -> None:
    secrets = Secrets("streaming", {"old": {"ca.crt": b"one"}, "new": {"b.crt": b"three", "a.crt": b"two", "ca.p12": b"\x00"}})
    trusted = ({"secretName": "old", "certificate": "ca.crt"}, {"secretName": "new", "pattern": "*.crt"})
    files = brokers_connection(spec(tls={"trustedCertificates": trusted}), secrets, tmp_path).tls
    assert files is not None
    assert content(files.ca_file).split() == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("secrets", "what"),
    [
        ({"orders": {"user": b"x"}}, "Secret streaming/orders has no key password"),
        ({"orders": {"password": b""}}, "Secret streaming/orders has nothing in its key password"),
        ({"orders": {"password": b"\n"}}, "Secret streaming/orders has nothing in its key password"),
        ({"orders": {"password": b"\xff"}}, "Secret streaming/orders must have UTF-8 text in its key password"),
        ({"kafka-cluster-ca-cert": {}}, "Secret streaming/kafka-cluster-ca-cert has no key ca.crt"),
        ({"orders-tls": {"user.crt": b"certificate"}}, "Secret streaming/orders-tls has no key user.key"),
        ({"orders-tls": {"user.key": b"key"}}, "Secret streaming/orders-tls has no key user.crt"),
    ],
)
def test_a_secret_that_does_not_fit_is_refused_by_its_name_and_key(
    tmp_path: Path, secrets: dict[str, Any], what: str, golden: Callable[[str], None]
) -> None:
    declared = spec(tls=TRUSTED, authentication=by("scram-sha-512", certificateAndKey=CERTIFICATE))
    with pytest.raises(UserActionRequired, match=what) as refused:
        brokers_connection(declared, Secrets("streaming", {**SECRETS.data, **secrets}), tmp_path)
    assert refused.value.reason is Reason.SECRET_UNREADABLE
    golden(refused.value.message)


def test_a_pattern_that_nothing_matches_is_refused(tmp_path: Path) -> None:
    trusted = {"trustedCertificates": ({"secretName": "orders", "pattern": "*.crt"},)}
    with pytest.raises(UserActionRequired, match=r"Secret streaming/orders has no key that matches \*\.crt"):
        brokers_connection(spec(tls=trusted), SECRETS, tmp_path)


def test_certificates_are_files_that_no_other_user_can_read(tmp_path: Path) -> None:
    declared = spec({"tls": TRUSTED, "authentication": {"type": "tls", "certificateAndKey": CERTIFICATE}})
    files = zookeeper_connection(declared, SECRETS, tmp_path).tls
    assert files is not None
    paths = [Path(str(path)) for path in (files.ca_file, files.certificate_file, files.key_file)]
    assert [path.read_bytes() for path in paths] == [b"authority", b"certificate", b"key"]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert paths[0].parent.stat().st_mode & 0o777 == 0o700


def test_zookeeper_and_brokers_keep_their_certificates_apart(tmp_path: Path) -> None:
    secrets = Secrets("streaming", {"zookeeper": {"ca.crt": b"of zookeeper"}, "kafka": {"ca.crt": b"of the brokers"}})
    of_zookeeper, of_brokers = (
        {"trustedCertificates": ({"secretName": name, "certificate": "ca.crt"},)} for name in ("zookeeper", "kafka")
    )
    declared = spec({"tls": of_zookeeper}, tls=of_brokers)
    zookeeper, brokers = zookeeper_connection(declared, secrets, tmp_path).tls, brokers_connection(declared, secrets, tmp_path).tls
    assert zookeeper is not None
    assert brokers is not None
    assert (content(zookeeper.ca_file), content(brokers.ca_file)) == (b"of zookeeper", b"of the brokers")


def test_every_secret_that_a_connection_needs_is_named() -> None:
    declared = spec({"authentication": by("digest")}, tls=TRUSTED, authentication={"type": "tls", "certificateAndKey": CERTIFICATE})
    assert declared.secret_names == SECRETS.data.keys()
    assert spec().secret_names == frozenset()


def test_a_secret_that_has_vanished_is_taken_from_what_is_known() -> None:
    kubernetes = InMemoryKubernetes()
    with pytest.raises(NotFound, match="streaming/orders"):
        read_secrets(kubernetes, "streaming", ["orders"])
    assert read_secrets(kubernetes, "streaming", ["orders"], known=SECRETS).data == {"orders": PASSWORD_USER}


def test_no_password_is_ever_shown(tmp_path: Path) -> None:
    secrets = Secrets("streaming", {"orders": {"password": b"swordfish"}})
    declared = spec({"authentication": by("digest")}, authentication=by("plain"))
    shown = secrets, zookeeper_connection(declared, secrets, tmp_path), brokers_connection(declared, secrets, tmp_path)
    assert "swordfish" not in repr(shown)
    with pytest.raises(UserActionRequired) as refused:
        brokers_connection(spec(authentication=by("plain")), Secrets("streaming", {"orders": {"password": b"swordfish\xff"}}), tmp_path)
    assert "swordfish" not in str(refused.value)
