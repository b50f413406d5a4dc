"""What the keys of a Secret become, and what is refused with a sentence that names the key."""

from pathlib import Path
from typing import Any

import pytest

from controller_logic.reasons import Reason
from tidegate.control.connections import brokers_connection, zookeeper_connection
from tidegate.errors import NeedsMending
from tidegate.kafka.settings import SaslLogin, SaslMechanism
from tidegate.resources.policy import KafkaCluster

LOGIN = {"username": b"tidegate", "password": b"tide\xc3\xa4\n"}


def spec(**fields: Any) -> KafkaCluster:
    document = {
        "bootstrapServers": "kafka-1:9092,kafka-2:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "zk-1:2181,zk-2:2181/kafka"},
    }
    return KafkaCluster.model_validate({**document, **fields})


def test_without_secrets_nobody_logs_in_and_nothing_is_encrypted(tmp_path: Path) -> None:
    zookeeper, brokers = zookeeper_connection(spec(), {}, tmp_path), brokers_connection(spec(), {}, tmp_path)
    assert (zookeeper.connect, zookeeper.sasl, zookeeper.tls) == ("zk-1:2181,zk-2:2181/kafka", None, None)
    assert (brokers.bootstrap_servers, brokers.sasl, brokers.tls) == (("kafka-1:9092", "kafka-2:9092"), None, None)
    assert list(tmp_path.iterdir()) == []


def test_zookeeper_logs_in_by_digest_whose_password_may_end_in_the_newline_of_an_editor(tmp_path: Path) -> None:
    assert zookeeper_connection(spec(), LOGIN, tmp_path).sasl == SaslLogin(SaslMechanism.DIGEST_MD5, "tidegate", "tideä")


@pytest.mark.parametrize(
    ("named", "mechanism"),
    [(None, "SCRAM-SHA-512"), (b"SCRAM-SHA-512", "SCRAM-SHA-512"), (b"SCRAM-SHA-256", "SCRAM-SHA-256"), (b"PLAIN\n", "PLAIN")],
)
def test_brokers_are_logged_in_to_by_the_mechanism_that_the_secret_names(tmp_path: Path, named: bytes | None, mechanism: str) -> None:
    secret = LOGIN if named is None else {**LOGIN, "sasl.mechanism": named}
    login = brokers_connection(spec(), secret, tmp_path).sasl
    assert login is not None
    assert (login.mechanism.value, login.username) == (mechanism, "tidegate")


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ({"username": b"tidegate"}, "password"),
        ({"password": b"tide"}, "username"),
        ({"username": b"", "password": b"tide"}, "username"),
        ({"username": b"\xff", "password": b"tide"}, "username"),
        ({**LOGIN, "sasl.mechanism": b"GSSAPI"}, "sasl.mechanism"),
        ({**LOGIN, "sasl.mechanism": b"DIGEST-MD5"}, "sasl.mechanism"),
        ({"tls.crt": b"certificate"}, "tls.key"),
        ({"tls.key": b"key"}, "tls.crt"),
    ],
)
def test_a_secret_that_does_not_fit_is_refused_by_the_name_of_its_key(tmp_path: Path, secret: dict[str, bytes], key: str) -> None:
    with pytest.raises(NeedsMending, match=key) as refused:
        brokers_connection(spec(), secret, tmp_path)
    assert refused.value.reason is Reason.SECRET_UNREADABLE
    assert "stays as it is" in refused.value.message


def test_certificates_are_files_that_nobody_else_can_read(tmp_path: Path) -> None:
    secret = {"ca.crt": b"authority", "tls.crt": b"certificate", "tls.key": b"key"}
    files = zookeeper_connection(spec(), secret, tmp_path).tls
    assert files is not None
    paths = [Path(str(path)) for path in (files.ca_file, files.certificate_file, files.key_file)]
    assert [path.read_bytes() for path in paths] == [b"authority", b"certificate", b"key"]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert paths[0].parent.stat().st_mode & 0o777 == 0o700


def test_zookeeper_and_brokers_keep_their_certificates_apart(tmp_path: Path) -> None:
    zookeeper = zookeeper_connection(spec(), {"ca.crt": b"of zookeeper"}, tmp_path).tls
    brokers = brokers_connection(spec(), {"ca.crt": b"of the brokers"}, tmp_path).tls
    assert zookeeper is not None
    assert brokers is not None
    assert Path(str(zookeeper.ca_file)).read_bytes() == b"of zookeeper"
    assert Path(str(brokers.ca_file)).read_bytes() == b"of the brokers"


def test_no_password_is_ever_shown(tmp_path: Path) -> None:
    secret = {"username": b"tidegate", "password": b"swordfish"}
    assert "swordfish" not in repr((zookeeper_connection(spec(), secret, tmp_path), brokers_connection(spec(), secret, tmp_path)))
    with pytest.raises(NeedsMending) as refused:
        brokers_connection(spec(), {**secret, "sasl.mechanism": b"GSSAPI"}, tmp_path)
    assert "swordfish" not in str(refused.value)
