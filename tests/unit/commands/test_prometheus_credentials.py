"""A Prometheus that no policy names gets the login and the authority that a credentials file has, and half a login is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller_logic.reasons import Reason
from tidegate.commands.credentials_file import CredentialsFile
from tidegate.errors import UserActionRequired
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer, TlsTexts

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
    assert named_server({"tls.crt": b"certificate", "tls.key": b"key"}).tls == TlsTexts(None, b"certificate", b"key")


@pytest.mark.parametrize(
    "keys", [{"username": b"ann"}, {"password": b"x", "ca.crt": b"y"}, {"user": b"ann"}], ids=lambda keys: "-".join(keys)
)
def test_what_is_no_login_is_refused_before_anything_is_read(keys: dict[str, bytes]) -> None:
    with pytest.raises(UserActionRequired, match=r"token, both keys username and password, or ca\.crt; nothing was read") as refused:
        named_server(keys)
    assert refused.value.reason is Reason.SECRET_UNREADABLE


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(UserActionRequired, match=r"credentials\.yaml has no key tls\.key; nothing was read"):
        named_server({"tls.crt": b"certificate"})
