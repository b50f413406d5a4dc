"""A Prometheus that no policy names gets the login and the authority that a credentials file has, and half a login is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller_logic.reasons import Reason
from tidegate.control.connections import named_server
from tidegate.errors import NeedsMending
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer

URL = "https://prometheus:9090"


def test_without_any_credentials_nobody_logs_in(tmp_path: Path) -> None:
    assert named_server(URL, {}, tmp_path) == PrometheusServer(URL)


def test_a_token_counts_before_a_password(tmp_path: Path) -> None:
    login = {"username": b"ann", "password": b"secret"}
    assert named_server(URL, login, tmp_path).login == BasicLogin("ann", "secret")
    assert named_server(URL, {**login, "token": b"abc\n"}, tmp_path).login == BearerLogin("abc")


def test_an_authority_alone_is_enough_and_is_a_file_that_only_we_read(tmp_path: Path) -> None:
    server = named_server(URL, {"ca.crt": b"an authority"}, tmp_path)
    assert server.login is None
    assert server.ca_file is not None
    file = Path(server.ca_file)
    assert (file.read_bytes(), file.stat().st_mode & 0o077) == (b"an authority", 0)


@pytest.mark.parametrize(
    "keys", [{"username": b"ann"}, {"password": b"x", "ca.crt": b"y"}, {"user": b"ann"}], ids=lambda keys: "-".join(keys)
)
def test_what_is_no_login_is_refused_before_anything_is_read(keys: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(NeedsMending, match=r"token, both keys username and password, or ca\.crt; nothing was read") as refused:
        named_server(URL, keys, tmp_path)
    assert refused.value.reason is Reason.SECRET_UNREADABLE
