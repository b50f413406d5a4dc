"""Starting a kazoo client within a bounded time, and saying in words what happened when it does not start.

kazoo on its own waits a whole session timeout for each address that does not answer, backs off for up to an hour, and tells only its
log which addresses it tried.
"""

import contextlib
import socket
import time
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, KazooException
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts

from controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, Unauthorized, Unreachable
from tidegate.kafka.settings import TlsFiles, ZooKeeperConnection

_CONNECT_TIMEOUT_SECONDS = 3.0
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}


def start_client(connection: ZooKeeperConnection) -> KazooClient:
    """A client whose session is there and whose login was accepted.

    Raises Unreachable naming every address and what became of it, Unauthorized when the login is refused, InvalidResource for a
    connect string that is none.
    """
    handler = _Handler()
    client = _new_client(connection, handler)
    try:
        _await_login(client, connection.start_timeout_seconds)
    except (KazooException, KazooTimeoutError) as error:
        stop_client(client)
        if connection.sasl is not None and isinstance(error, AuthFailedError | ConnectionClosedError):
            # kazoo closes a client by itself only when its login is refused, and may tell whoever waits of the closing first
            raise Unauthorized(_refused(connection)) from error
        raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, _silent(connection, handler)) from error
    return client


def _await_login(client: KazooClient, timeout_seconds: float) -> None:
    """The session is there before its login is, so only an answer proves both."""
    deadline = time.monotonic() + timeout_seconds
    if not client.start_async().wait(timeout_seconds):
        raise KazooTimeoutError
    client.exists_async("/").get(timeout=max(deadline - time.monotonic(), 0.1))


def stop_client(client: KazooClient) -> None:
    """End the session and free what it holds, whatever state it is in."""
    with contextlib.suppress(KazooException, OSError):
        client.stop()
    with contextlib.suppress(KazooException, OSError):
        client.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is published without types
    """kazoo's threads, with a short wait for each address and a note of how each attempt went."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: dict[tuple[str, int], str] = {}

    def create_connection(self, address: tuple[str, int], timeout: float, **options: Any) -> socket.socket:
        place = (str(options.get("hostname") or address[0]), address[1])
        self.attempts[place] = "no answer to the session request"
        try:
            connected: socket.socket = super().create_connection(address=address, timeout=min(timeout, _CONNECT_TIMEOUT_SECONDS), **options)
        except Exception as error:
            self.attempts[place] = str(error) or type(error).__name__
            raise
        return connected


def _new_client(connection: ZooKeeperConnection, handler: _Handler) -> KazooClient:
    try:
        return KazooClient(
            hosts=connection.connect,
            timeout=connection.session_timeout_seconds,
            handler=handler,
            connection_retry=_RECONNECT,
            **_login_options(connection),
            **(_tls_options(connection.tls) if connection.tls else {}),
        )
    except ValueError as error:
        raise InvalidResource(
            f"The ZooKeeper address {connection.connect!r} cannot be read ({error}). Write it as Kafka's zookeeper.connect: "
            "host:port,host:port/path."
        ) from error


def _login_options(connection: ZooKeeperConnection) -> dict[str, object]:
    if connection.sasl is None:
        return {}
    login = connection.sasl
    return {"sasl_options": {"mechanism": login.mechanism.value, "username": login.username, "password": login.password}}


def _tls_options(tls: TlsFiles) -> dict[str, object]:
    return {
        "use_ssl": True,
        "ca": tls.ca_file,
        "certfile": tls.certificate_file,
        "keyfile": tls.key_file,
        "keyfile_password": tls.key_password,
        "check_hostname": tls.check_hostname,
    }


def _silent(connection: ZooKeeperConnection, handler: _Handler) -> str:
    hosts, _ = collect_hosts(connection.connect)
    tried = "; ".join(f"{host}:{port}: {handler.attempts.get((host, port), 'the name does not resolve')}" for host, port in hosts)
    return (
        f"ZooKeeper {connection.connect} did not answer within {connection.start_timeout_seconds:g} s ({tried}). "
        "Every quota stays as it is. Check the address, the network policy and, with TLS, that it is the secure port."
    )


def _refused(connection: ZooKeeperConnection) -> str:
    user = connection.sasl.username if connection.sasl else "no user"
    return (
        f"ZooKeeper {connection.connect} refused the login as {user}. Every quota stays as it is. "
        "Give Tidegate the user name and password that the brokers use for ZooKeeper (their JAAS section Client)."
    )
