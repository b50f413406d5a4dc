"""Tokens that an identity of AWS signs, against a check of signatures that is not the product's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.process import patience, wait_until
from tests.doubles.msk_broker import MskBroker, identity_in, signature_of
from tests.integration.kafka.certificates import make_certificates
from tidegate.errors import Unauthorized
from tidegate.kafka.brokers import BrokerConnection
from tidegate.kafka.msk_iam import AwsCredentials, signed_token
from tidegate.kafka.protocol import metadata
from tidegate.kafka.settings import KafkaConnection, TlsFiles, TokenLogin
from tidegate.kafka.tokens import KeptTokens
from tidegate.observe.connections import brokers_connection
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.policy import KafkaCluster

REGION = "eu-central-1"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEYS = {"AKIAIOSFODNN7EXAMPLE": SECRET}
KEY = AwsCredentials("AKIAIOSFODNN7EXAMPLE", SECRET)


def test_the_check_makes_the_signature_of_awss_own_example() -> None:
    """ "Authenticating Requests: Using Query Parameters" of the API reference of Amazon S3."""
    url = (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    )
    assert (
        signature_of(url, SECRET, payload="UNSIGNED-PAYLOAD")
        == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize("session", [None, "a/session+token=="])
def test_a_signed_token_is_one_that_msk_accepts(session: str | None) -> None:
    token = signed_token(AwsCredentials(KEY.access_key_id, SECRET, session), REGION)
    assert identity_in(token.value, region=REGION, secrets=KEYS) == KEY.access_key_id
    assert 890 < token.expires_at_seconds - time.time() <= 900
    assert SECRET not in token.value
    with pytest.raises(ValueError, match="signature"):
        identity_in(token.value, region=REGION, secrets={KEY.access_key_id: "other"})
    with pytest.raises(ValueError, match="for kafka"):
        identity_in(token.value, region="us-east-1", secrets=KEYS)


def test_a_token_ends_no_later_than_the_session_that_signed_it() -> None:
    until = time.time() + 60
    token = signed_token(AwsCredentials("AKID", "secret", "session", until), REGION)
    assert token.expires_at_seconds == until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MskBroker]:
    made = make_certificates(tmp_path / "certificates")
    with MskBroker(REGION, KEYS, certificate=made.certificate, key=made.key) as listening:
        yield listening


def settings(broker: MskBroker, folder: Path, secret: str = SECRET) -> KafkaConnection:
    """As a policy declares it."""
    host, port = broker.address
    spec = KafkaCluster.model_validate(
        {
            "bootstrapServers": f"{host}:{port}",
            "tls": {"trustedCertificates": ({"secretName": "ca", "certificate": "ca.crt"},)},
            "authentication": {
                "type": "aws-msk-iam",
                "region": REGION,
                "accessKey": {"secretName": "aws", "accessKeyId": "id", "secretAccessKey": "key"},
            },
        }
    )
    authority = (folder / "certificates" / "ca.pem").read_bytes()
    aws = {"id": KEY.access_key_id.encode(), "key": secret.encode()}
    return brokers_connection(
        spec, Secrets("streaming", {"ca": {"ca.crt": authority}, "aws": aws}), folder / "files"
    )


def connected(broker: MskBroker, wanted: KafkaConnection) -> BrokerConnection:
    return BrokerConnection(*broker.address, settings=wanted, timeout_seconds=patience(5))


def test_a_policys_access_key_logs_in_and_again_before_the_broker_ends_the_login(
    broker: MskBroker, tmp_path: Path
) -> None:
    broker.lifetime_ms = 1000
    with connected(broker, settings(broker, tmp_path)) as connection:
        assert broker.logins == [KEY.access_key_id]

        def asks_again() -> bool:
            connection.ask(metadata.ApiVersionsRequest(), patience(5))
            return len(broker.logins) >= 3

        wait_until(asks_again, "two more logins on one connection", timeout_seconds=15)


def test_a_wrong_secret_is_refused_with_the_access_key_and_without_the_secret(
    broker: MskBroker, tmp_path: Path
) -> None:
    with pytest.raises(Unauthorized) as refused:
        connected(broker, settings(broker, tmp_path, "wrong-secret"))
    assert f"access key {KEY.access_key_id}" in refused.value.message
    assert "the signature does not match" in refused.value.message
    assert "wrong-secret" not in refused.value.message
    assert not broker.logins


def test_two_policies_have_two_identities(broker: MskBroker, tmp_path: Path) -> None:
    """Not one of the process, as with AWS's own clients."""
    second = AwsCredentials("AKIASECOND", "second-secret")
    other = TokenLogin("second", KeptTokens(lambda: signed_token(second, REGION)))
    tls = TlsFiles(str(tmp_path / "certificates" / "ca.pem"))
    with (
        connected(broker, settings(broker, tmp_path)),
        pytest.raises(Unauthorized, match="the login of second"),
    ):
        connected(broker, KafkaConnection(("x:1",), other, tls))
    assert broker.logins == [KEY.access_key_id]
