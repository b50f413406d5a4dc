"""The tree of znodes on a real ZooKeeper: one kazoo session, opened again when it has ended.

Reads are repeated over a short loss of the connection. Transactions are not: after a loss their
outcome is unknown and the caller reads back.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import CheckVersion
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest
from kazoo.protocol.states import EventType, KeeperState
from kazoo.security import ACL, Id

from tidegate.causes import NO_SUCH_HOST, REFUSED, cause_of, tried_words
from tidegate.errors import (
    InvalidResource,
    OutcomeUnknown,
    TidegateError,
    Unauthorized,
    Unreachable,
)
from tidegate.kafka.settings import TlsFiles, ZooKeeperConnection
from tidegate.kafka.zookeeper.multi_read import multi_reads, send_multi_read
from tidegate.kafka.zookeeper.tree import (
    Acl,
    AclEntry,
    Check,
    Create,
    CreateSequential,
    Delete,
    Failure,
    Operation,
    Rejected,
    SetData,
    Znode,
)
from tidegate_logic.reasons import Reason

# Start of a kazoo client within a bounded time, with the reason where it fails.
#
# kazoo alone waits a whole session timeout for each address that does not answer, backs off for up
# to an hour, and names the addresses that it tried only in its log.


_CONNECT_TIMEOUT_SECONDS = 3.0
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}


def start_client(connection: ZooKeeperConnection, on_state: Callable[[str], None]) -> KazooClient:
    """A client that has a session and is logged in; `on_state` hears every change of the session.

    Raises Unreachable with the result of every address, Unauthorized when the login is refused,
    InvalidResource for a connect string that cannot be read.
    """
    handler = _Handler(connection.tls)
    client = _new_client(connection, handler)
    client.add_listener(on_state)
    try:
        _await_login(client, connection.start_timeout_seconds)
    except (KazooException, KazooTimeoutError) as error:
        stop_client(client)
        if connection.sasl is not None and isinstance(
            error, AuthFailedError | ConnectionClosedError
        ):
            # kazoo closes a client by itself only when its login is refused; a waiting request may
            # get the error of the closing first
            raise _refused(connection) from error
        seconds = connection.start_timeout_seconds
        raise _silent(connection, _attempts(connection, handler), seconds) from error
    return client


def _await_login(client: KazooClient, timeout_seconds: float) -> None:
    """Wait for the session and its login.

    The session comes first, so only the answer to a request proves both.
    """
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
    """kazoo's threads, with a short wait for each address and a note of how each attempt went.

    TLS is ours: kazoo's own trusts the machine's authorities beside the CA that it is given.
    """

    def __init__(self, tls: TlsFiles | None) -> None:
        super().__init__()
        self._tls = tls
        self._attempts: dict[tuple[str, int], dict[str, str]] = {}

    def attempts(self, host: str, port: int) -> str:
        """How it went at each address of this name; empty where the name has none."""
        return ", ".join(dict.fromkeys(list(self._attempts.get((host, port), {}).values())))

    def create_connection(
        self, address: tuple[str, int], timeout: float, hostname: str, **_: Any
    ) -> socket.socket:
        attempts = self._attempts.setdefault((hostname, address[1]), {})
        attempts[address[0]] = "no answer to the session request"
        limit = min(timeout, _CONNECT_TIMEOUT_SECONDS)
        try:
            connected: socket.socket = super().create_connection(address, timeout=limit)
            return connected if self._tls is None else _encrypted(connected, self._tls, hostname)
        except Exception as error:
            attempts[address[0]] = cause_of(error)
            raise


def _encrypted(connected: socket.socket, tls: TlsFiles, hostname: str) -> socket.socket:
    try:
        return tls.context().wrap_socket(connected, server_hostname=hostname)
    except OSError:
        connected.close()
        raise


def _new_client(connection: ZooKeeperConnection, handler: _Handler) -> KazooClient:
    try:
        return KazooClient(
            hosts=connection.connect,
            timeout=connection.session_timeout_seconds,
            handler=handler,
            connection_retry=_RECONNECT,
            **_login_options(connection),
        )
    except ValueError as error:
        raise InvalidResource(
            f"The ZooKeeper address {connection.connect!r} cannot be read ({error}).",
            advice="Write it as Kafka's zookeeper.connect: host:port,host:port/path.",
        ) from error


def _login_options(connection: ZooKeeperConnection) -> dict[str, object]:
    if connection.sasl is None:
        return {}
    login = connection.sasl
    return {
        "sasl_options": {
            "mechanism": login.mechanism.value,
            "username": login.username,
            "password": login.password,
        }
    }


def _attempts(connection: ZooKeeperConnection, handler: _Handler) -> dict[str, str]:
    hosts, _ = collect_hosts(connection.connect)
    return {f"{host}:{port}": handler.attempts(host, port) or NO_SUCH_HOST for host, port in hosts}


def _silent(
    connection: ZooKeeperConnection, attempts: dict[str, str], seconds: float
) -> Unreachable:
    return Unreachable(
        Reason.ZOOKEEPER_UNREACHABLE,
        f"ZooKeeper {connection.connect} did not answer{tried_words(attempts, seconds)}.",
        consequence=connection.meanwhile,
        advice="Check the address, the network policy and, with TLS, that it is the secure port.",
    )


def _refused(connection: ZooKeeperConnection) -> Unauthorized:
    user = connection.sasl.username if connection.sasl else "no user"
    return Unauthorized(
        f"ZooKeeper {connection.connect} refused the login as {user}.",
        consequence=connection.meanwhile,
        advice="Give Tidegate the user name and password that the brokers use for ZooKeeper "
        "(their JAAS section Client).",
    )


# Watches that call back when brokers come or go or the controller changes.
#
# Two plain watches set themselves again from kazoo's callback thread and never wait there. kazoo's
# own watch recipes read on that thread, and start a thread for each watch after every lost
# connection.


_BROKERS_PATH = "/brokers/ids"
_CONTROLLER_PATH = "/controller"


class ClusterWatch:
    """Watches of one client, for as long as it lives."""

    def __init__(self, client: KazooClient, wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake

    def start(self) -> None:
        """Arm the watches now and after every lost connection."""
        self._client.add_listener(self._on_state)
        self._arm_brokers()
        self._arm_controller()

    def _on_state(self, state: str) -> None:
        # a lost connection drops all watches, and what happened meanwhile is not known
        if state == KazooState.CONNECTED:
            self._arm_brokers()
            self._arm_controller()
            self._wake()

    def _on_brokers(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._arm_brokers()
            self._wake()

    def _on_controller(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._arm_controller()
            self._wake()

    def _arm_brokers(self) -> None:
        self._client.get_children_async(_BROKERS_PATH, watch=self._on_brokers)

    def _arm_controller(self) -> None:
        self._client.exists_async(_CONTROLLER_PATH, watch=self._on_controller)


# Bulk reads: MultiRead in chunks, and pipelined single reads for servers without it.


def read_bulk(
    client: KazooClient, paths: Sequence[str], *, wants_children: bool, timeout_seconds: float
) -> list[Any]:
    """Data with stat, or child names, for each path; an error is in its place, not raised.

    Raises UnimplementedError on servers before 3.6, which close the connection as well.
    """
    full = [with_chroot(client, path) for path in paths]
    sent = [
        send_multi_read(client, request)
        for request in multi_reads(full, wants_children=wants_children)
    ]
    deadline = time.monotonic() + timeout_seconds
    return [answer for result in sent for answer in result.get(timeout=_left(deadline))]


def read_one_by_one(
    client: KazooClient, paths: Sequence[str], *, wants_children: bool, timeout_seconds: float
) -> list[Any]:
    """The same by single reads, all under way at once; for servers before 3.6."""
    call = client.get_children_async if wants_children else client.get_async
    return gather([call(path) for path in paths], timeout_seconds=timeout_seconds)


def gather(sent: Sequence[Any], *, timeout_seconds: float) -> list[Any]:
    """The answers of requests that are under way, in their order.

    A refusal is returned in its place; a lost connection is raised.
    """
    deadline = time.monotonic() + timeout_seconds
    answers: list[Any] = []
    for result in sent:
        try:
            answers.append(result.get(timeout=_left(deadline)))
        except (NoNodeError, NoAuthError) as error:
            answers.append(error)
    return answers


def with_chroot(client: KazooClient, path: str) -> str:
    """The path with the chroot, which kazoo adds only to its own requests."""
    return f"{client.chroot}{path}" if path != "/" else client.chroot or "/"


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


# Transactions: operations as kazoo's requests, and the one failure among the results, which kazoo
# returns instead of raising.


_PERSISTENT, _PERSISTENT_SEQUENTIAL = 0, 2
_FAILURES = {
    BadVersionError: Failure.BAD_VERSION,
    NodeExistsError: Failure.NODE_EXISTS,
    NoNodeError: Failure.NO_NODE,
    NotEmptyError: Failure.NOT_EMPTY,
}


def requests(operations: Sequence[Operation], chroot: str) -> list[object]:
    """kazoo's request for each operation; kazoo's own builder cannot send null data."""
    return [_request(operation, f"{chroot}{operation.path}") for operation in operations]


def first_failure(
    operations: Sequence[Operation], results: Sequence[object]
) -> Rejected | NoAuthError | ZookeeperError | None:
    """The error that rejected the transaction; None = it was done.

    The other results only say that nothing was done.
    """
    errors = [
        (operation, result)
        for operation, result in zip(operations, results, strict=False)
        if isinstance(result, ZookeeperError)
    ]
    for operation, error in errors:
        if type(error) in _FAILURES:
            return Rejected(operation, _FAILURES[type(error)])
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            error.args = (operation.path,)
            return error
    return errors[0][1] if errors else None


def _request(operation: Operation, path: str) -> object:
    match operation:
        case Create(_, data, acl):
            return CreateRequest(path, data, _kazoo_acl(acl), _PERSISTENT)
        case CreateSequential(_, data, acl):
            return CreateRequest(path, data, _kazoo_acl(acl), _PERSISTENT_SEQUENTIAL)
        case SetData(_, data, version):
            return SetDataRequest(path, data, version)
        case Delete(_, version):
            return DeleteRequest(path, version)
        case Check(_, version):
            return CheckVersion(path, version)


def _kazoo_acl(acl: Acl) -> list[ACL]:
    return [ACL(entry.permissions, Id(entry.scheme, entry.identity)) for entry in acl]


Answers = TypeVar("Answers")
_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError)
_PAUSE_SECONDS = 0.02
_DEAD = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)


class ZooKeeperSession:
    """A ZnodeTree on ZooKeeper, for several threads; the protocol says what each call promises."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._kazoo: KazooClient | None = None
        self._connected = threading.Event()
        self._closed = False
        self._knows_multi_read = True
        self._wakes: list[Callable[[], None]] = []

    @property
    def address(self) -> str:
        """See ZnodeTree."""
        return self._connection.connect

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        return [
            answer and Znode(answer[0], answer[1].version, answer[1].numChildren, answer[1].mzxid)
            for answer in self._bulk(paths, wants_children=False)
        ]

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        return self._bulk(paths, wants_children=True)

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        answers = self._surviving(
            lambda client, left: gather(
                [client.get_acls_async(path) for path in paths], timeout_seconds=left
            )
        )
        found = self._without_errors(paths, answers)
        return [
            answer and tuple(AclEntry(acl.perms, acl.id.scheme, acl.id.id) for acl in answer[0])
            for answer in found
        ]

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        client = self._client()
        self._await_connection(self._connection.request_timeout_seconds)
        transaction = client.transaction()
        transaction.operations.extend(requests(operations, client.chroot))
        try:
            results = transaction.commit_async().get(
                timeout=self._connection.request_timeout_seconds
            )
        except (*_LOST, KazooTimeoutError) as error:
            raise OutcomeUnknown(
                f"The connection to ZooKeeper {self.address} broke during a transaction."
            ) from error
        except KazooException as error:
            raise self._refusal(error) from error
        failure = first_failure(operations, results)
        if failure is not None:
            raise failure if isinstance(failure, Rejected) else self._refusal(failure)

    def sync(self) -> None:
        """See ZnodeTree."""
        self._surviving(lambda client, left: gather([client.sync_async("/")], timeout_seconds=left))

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree. Wakes as well when the connection comes back.

        What happened meanwhile is not known.
        """
        client = self._client()
        self._wakes.append(wake)
        ClusterWatch(client, wake).start()

    def close(self) -> None:
        """See ZnodeTree."""
        with self._lock:
            self._closed = True
            client, self._kazoo = self._kazoo, None
        if client is not None:
            stop_client(client)

    def _client(self) -> KazooClient:
        with self._lock:
            if self._closed:
                raise Unreachable(
                    Reason.ZOOKEEPER_UNREACHABLE,
                    f"The session with ZooKeeper {self.address} was closed.",
                )
            if self._kazoo is not None and self._kazoo.client_state in _DEAD:
                stop_client(self._kazoo)
                self._kazoo = None
            if self._kazoo is None:
                self._connected = threading.Event()
                self._kazoo = start_client(self._connection, _follow(self._connected))
                for wake in self._wakes:
                    ClusterWatch(self._kazoo, wake).start()
            return self._kazoo

    def _bulk(self, paths: Sequence[str], *, wants_children: bool) -> list[Any]:
        if not paths:
            return []
        if self._knows_multi_read:
            try:
                answers = self._surviving(
                    lambda client, left: read_bulk(
                        client, paths, wants_children=wants_children, timeout_seconds=left
                    ),
                )
                return self._without_errors(paths, answers)
            except UnimplementedError:
                self._knows_multi_read = False
        answers = self._surviving(
            lambda client, left: read_one_by_one(
                client, paths, wants_children=wants_children, timeout_seconds=left
            ),
        )
        return self._without_errors(paths, answers)

    def _surviving(self, ask: Callable[[KazooClient, float], Answers]) -> Answers:
        """Ask until there is an answer, over lost connections too, in the time of one request."""
        deadline = time.monotonic() + self._connection.request_timeout_seconds
        while True:
            client = self._client()
            left = max(deadline - time.monotonic(), 0.0)
            try:
                self._await_connection(left)
                return ask(client, left)
            except UnimplementedError:
                raise
            except _LOST as error:
                if time.monotonic() >= deadline:
                    raise self._silence() from error
                time.sleep(_PAUSE_SECONDS)
            except KazooTimeoutError as error:
                raise self._silence() from error
            except KazooException as error:
                raise self._refusal(error) from error

    def _await_connection(self, timeout_seconds: float) -> None:
        if not self._connected.wait(timeout_seconds):
            raise self._silence()

    def _without_errors(self, paths: Sequence[str], answers: Sequence[Any]) -> list[Any]:
        """None for a node that does not exist; any other refusal is raised with its path."""
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, KazooException) and not isinstance(answer, NoNodeError):
                answer.args = (path,)
                raise self._refusal(answer) from answer
        return [None if isinstance(answer, NoNodeError) else answer for answer in answers]

    def _silence(self) -> Unreachable:
        seconds, client = self._connection.request_timeout_seconds, self._kazoo
        attempts = {} if client is None else _attempts(self._connection, client.handler)
        if set(attempts.values()) == {REFUSED}:
            return _silent(self._connection, attempts, seconds)
        return Unreachable(
            Reason.ZOOKEEPER_UNREACHABLE,
            f"ZooKeeper {self.address} did not answer within {seconds:g} s; the connection was "
            "lost or the server is overloaded.",
            consequence=f"{self._connection.meanwhile} Tidegate tries again.",
        )

    def _refusal(self, error: KazooException) -> TidegateError:
        path = str(error) or "the request"
        user = self._connection.sasl.username if self._connection.sasl else None
        if isinstance(error, NoAuthError):
            identity = f"user {user}" if user else "Tidegate, which has not logged in"
            return Unauthorized(
                f"ZooKeeper {self.address} does not let {identity} at {path}.",
                consequence=self._connection.meanwhile,
                advice="Give Tidegate the identity of the brokers (their JAAS section Client, or "
                "their client certificate).",
            )
        if isinstance(error, AuthFailedError):
            return Unauthorized(
                f"ZooKeeper {self.address} refused the login as {user}.",
                consequence=self._connection.meanwhile,
                advice="Correct the password.",
            )
        return Unreachable(
            Reason.ZOOKEEPER_UNREACHABLE,
            f"ZooKeeper {self.address} refused {path}: {type(error).__name__}.",
            consequence=f"{self._connection.meanwhile} Tidegate tries again.",
        )


def _follow(connected: threading.Event) -> Callable[[str], None]:
    """A listener that keeps the event set while the session is connected."""

    def on_state(state: str) -> None:
        if state == KazooState.CONNECTED:
            connected.set()
        else:
            connected.clear()

    return on_state
