"""Errors of a ZooKeeper client that does not start. Starts against real servers are in the integration tests."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, KazooException

from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.settings import SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper import session
from tidegate.kafka.zookeeper.session import start_client

LOGIN = SaslLogin(SaslMechanism.DIGEST_MD5, "kafka", "wrong")


@pytest.mark.parametrize(
    ("login", "error", "raised"),
    [
        (LOGIN, AuthFailedError(), Unauthorized),
        (LOGIN, ConnectionClosedError("Connection has been closed"), Unauthorized),
        (LOGIN, ConnectionLoss(), Unreachable),
        (None, ConnectionClosedError("Connection has been closed"), Unreachable),
    ],
)
def test_a_refused_login_is_distinguished_from_silence(
    login: SaslLogin | None, error: KazooException, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(raised, match=r"127\.0\.0\.1:1"):
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=login), lambda _: None)


def test_a_refused_login_reads_like_this(monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]) -> None:
    def fails(*_: Any) -> None:
        raise AuthFailedError

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(Unauthorized) as refused:
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=LOGIN), lambda _: None)
    golden(refused.value.message)
