"""Credentials come out of a file as they would come out of the Secrets, and never into an error
message.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.commands.credentials_file import CredentialsFile, read_credentials_file
from tidegate.errors import UserActionRequired
from tidegate.kafka.settings import SaslLogin, SaslMechanism, TokenLogin
from tidegate.observe.connections import brokers_connection, zookeeper_connection
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer, TlsTexts
from tidegate.resources.policy import KafkaCluster, Prometheus, ZooKeeperConnection
from tidegate_logic.reasons import Reason

SECRET = "kind: Secret\napiVersion: v1\ndata: {username: YWxpY2U=}\nstringData: {password: hush}\n"
LIST = (
    "kind: List\nitems:\n- {kind: Secret, data: {username: YWxpY2U=}}\n- {kind: Secret, "
    "stringData: {password: hush}}\n"
)
FILE = Path("credentials.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "username: alice\npassword: hush\n",
        SECRET,
        LIST,
        f"{SECRET}---\nkind: Secret\ndata: {{username: YWxpY2U=}}\n",
    ],
    ids=["plain", "a Secret", "a list", "two documents"],
)
def test_all_forms_give_the_same_values(text: str, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(text)
    assert read_credentials_file(tmp_path / "credentials").keys == {
        "username": b"alice",
        "password": b"hush",
    }


@pytest.mark.parametrize(
    "text",
    [
        "password: 12345\n",
        "hush-hush\n",
        "kind: List\nitems: [hush]\n",
        "{hush",
        "kind: Secret\ndata: {password: hush!}\n",
        "password: hush\n---\npassword: hush-hush\n",
        None,
    ],
    ids=["number", "no object", "no object in a list", "no YAML", "no base64", "twice", "missing"],
)
def test_what_is_wrong_is_said_without_the_secret(
    text: str | None, tmp_path: Path, golden: Callable[[str], None]
) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserActionRequired) as caught:
        read_credentials_file(path)
    assert str(path) in caught.value.message
    assert "hush" not in caught.value.message
    assert "12345" not in caught.value.message
    golden(caught.value.message.replace(str(path), "FILE"))


def kafka(**fields: Any) -> KafkaCluster:
    zookeeper = {"connect": "zk:2181"}
    return KafkaCluster.model_validate(
        {
            "bootstrapServers": "kafka:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": zookeeper,
            **fields,
        }
    )


DECLARED = {
    "type": "plain",
    "username": "orders",
    "passwordSecret": {"secretName": "orders", "password": "kafka-password"},
}


def brokers_login(keys: dict[str, bytes], folder: Path, **declared: Any) -> SaslLogin | None:
    spec, secrets = CredentialsFile(FILE, keys).for_brokers(kafka(**declared))
    login = brokers_connection(spec, secrets, folder).sasl
    assert not isinstance(login, TokenLogin)
    return login


def test_what_the_policy_declares_is_filled_from_the_file(tmp_path: Path) -> None:
    keys = {"kafka-password": b"hush"}
    assert brokers_login(keys, tmp_path, authentication=DECLARED) == SaslLogin(
        SaslMechanism.PLAIN, "orders", "hush"
    )
    with pytest.raises(
        UserActionRequired, match=r"Credentials file credentials\.yaml has no key kafka-password"
    ):
        brokers_login({"password": b"hush"}, tmp_path, authentication=DECLARED)


def test_a_user_in_the_file_counts_before_the_policys(tmp_path: Path) -> None:
    login = brokers_login(
        {"username": b"ann", "kafka-password": b"hush"}, tmp_path, authentication=DECLARED
    )
    assert login == SaslLogin(SaslMechanism.PLAIN, "ann", "hush")


def test_without_a_declaration_the_keys_say_what_they_are_for(tmp_path: Path) -> None:
    login = brokers_login({"username": b"ann", "password": b"hush"}, tmp_path)
    assert login == SaslLogin(SaslMechanism.SCRAM_SHA_512, "ann", "hush")
    keys = {"ca.crt": b"authority", "tls.crt": b"certificate", "tls.key": b"key"}
    declared, secrets = CredentialsFile(FILE, keys).for_zookeeper(
        ZooKeeperConnection(connect="zk:2181")
    )
    connection = zookeeper_connection(
        kafka().model_copy(update={"zookeeper": declared}), secrets, tmp_path
    )
    assert connection.sasl is None
    assert connection.tls is not None
    files = connection.tls.ca_file, connection.tls.certificate_file, connection.tls.key_file
    assert [Path(str(file)).read_bytes() for file in files] == [
        b"authority",
        b"certificate",
        b"key",
    ]
    assert zookeeper_login({"username": b"ann", "password": b"hush"}, tmp_path) == SaslLogin(
        SaslMechanism.DIGEST_MD5, "ann", "hush"
    )


@pytest.mark.parametrize(
    ("keys", "identity"),
    [
        (
            {
                "tokenEndpointUri": b"https://idp/token",
                "clientId": b"ann",
                "clientSecret": b"hush",
                "extension.logicalCluster": b"lkc-1",
            },
            "client ann",
        ),
        ({"token": b"hush"}, "the access token in Credentials file credentials.yaml"),
        ({"accessKeyId": b"AKID", "secretAccessKey": b"hush", "region": b"eu-west-1"}, "key AKID"),
    ],
    ids=["client", "token", "aws"],
)
def test_keys_of_a_login_by_tokens_decide_its_type(
    keys: dict[str, bytes], identity: str, tmp_path: Path
) -> None:
    found = tokens_login(keys, tmp_path)
    assert identity in found.identity
    assert found.extensions == ({"logicalCluster": "lkc-1"} if "clientId" in keys else {})
    assert "hush" not in repr(found)


def test_half_of_a_login_by_tokens_is_refused_with_the_policys_words(tmp_path: Path) -> None:
    with pytest.raises(UserActionRequired, match="needs clientId and clientSecret") as refused:
        tokens_login({"tokenEndpointUri": b"https://idp/token", "clientId": b"ann"}, tmp_path)
    assert refused.value.reason is Reason.SECRET_UNREADABLE


def test_a_token_replaces_the_token_file_of_an_operator(tmp_path: Path) -> None:
    by_file = {"type": "oauthbearer", "accessTokenFile": "kafka"}
    found = tokens_login({"token": b"hush"}, tmp_path, authentication=by_file, tls={})
    assert found.tokens.current().value == "hush"


def test_an_access_key_replaces_the_role_of_an_operator(tmp_path: Path) -> None:
    role = {
        "type": "aws-msk-iam",
        "region": "eu-west-1",
        "roleArn": "arn:aws:iam::123456789012:role/tidegate",
        "accessTokenFile": "aws",
    }
    keys = {"accessKeyId": b"AKID", "secretAccessKey": b"hush"}
    found = tokens_login(keys, tmp_path, authentication=role, tls={})
    assert found.identity == "access key AKID"
    assert b"eu-west-1" in base64.urlsafe_b64decode(found.tokens.current().value + "==")


def tokens_login(keys: dict[str, bytes], folder: Path, **declared: Any) -> TokenLogin:
    spec, secrets = CredentialsFile(FILE, keys).for_brokers(
        KafkaCluster.model_validate({"bootstrapServers": "kafka-1:9092", **declared})
    )
    login = brokers_connection(spec, secrets, folder).sasl
    assert isinstance(login, TokenLogin)
    return login


def zookeeper_login(keys: dict[str, bytes], folder: Path) -> SaslLogin | None:
    declared, secrets = CredentialsFile(FILE, keys).for_zookeeper(
        ZooKeeperConnection(connect="zk:2181")
    )
    return zookeeper_connection(
        kafka().model_copy(update={"zookeeper": declared}), secrets, folder
    ).sasl


@pytest.mark.parametrize(
    "keys",
    [{"username": b"ann"}, {"password": b"hush"}, {"tls.crt": b"x"}, {"tls.key": b"hush"}],
    ids=lambda k: next(iter(k)),
)
def test_half_of_a_login_is_refused_without_the_secret(
    keys: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(
        UserActionRequired,
        match=r"credentials\.yaml has no key (username|password|tls\.crt|tls\.key)",
    ) as refused:
        brokers_login(keys, tmp_path)
    assert "hush" not in refused.value.message


def test_the_policys_prometheus_is_reached_with_the_file() -> None:
    declared = Prometheus.model_validate(
        {
            "url": "https://prometheus:9090",
            "tls": {
                "trustedCertificates": (
                    {"secretName": "authority", "certificate": "prometheus.pem"},
                )
            },
            "authentication": {
                "type": "bearer",
                "tokenSecret": {"secretName": "reader", "token": "jwt"},
            },
        }
    )
    server = CredentialsFile(FILE, {"jwt": b"abc", "prometheus.pem": b"authority"}).for_prometheus(
        declared
    )
    assert (server.login, server.tls) == (BearerLogin("abc"), TlsTexts(b"authority"))


# --- a Prometheus that no policy names ------------------------------------------------------------
# A Prometheus that no policy names gets the login and the authority that a credentials file has,
# and half a login is refused.


URL = "https://prometheus:9090"


def named_server(keys: dict[str, bytes]) -> PrometheusServer:
    return CredentialsFile(Path("credentials.yaml"), keys).for_named_prometheus(URL)


def test_without_any_credentials_there_is_no_login() -> None:
    assert named_server({}) == PrometheusServer(URL)


def test_a_token_counts_before_a_password() -> None:
    login = {"username": b"ann", "password": b"secret"}
    assert named_server(login).login == BasicLogin("ann", "secret")
    assert named_server({**login, "token": b"abc\n"}).login == BearerLogin("abc")


def test_an_authority_alone_is_enough() -> None:
    server = named_server({"ca.crt": b"an authority"})
    assert (server.login, server.tls) == (None, TlsTexts(b"an authority"))


def test_a_client_certificate_is_shown() -> None:
    assert named_server({"tls.crt": b"certificate", "tls.key": b"key"}).tls == TlsTexts(
        None, b"certificate", b"key"
    )


@pytest.mark.parametrize(
    "keys",
    [{"username": b"ann"}, {"password": b"x", "ca.crt": b"y"}, {"user": b"ann"}],
    ids=lambda keys: "-".join(keys),
)
def test_what_is_no_login_is_refused_before_anything_is_read(keys: dict[str, bytes]) -> None:
    with pytest.raises(
        UserActionRequired,
        match=r"token, both keys username and password, or ca\.crt; nothing was read",
    ) as refused:
        named_server(keys)
    assert refused.value.reason is Reason.SECRET_UNREADABLE


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(
        UserActionRequired, match=r"credentials\.yaml has no key tls\.key; nothing was read"
    ):
        named_server({"tls.crt": b"certificate"})
