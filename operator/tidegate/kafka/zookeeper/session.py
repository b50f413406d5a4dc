"""The tree of znodes on a real ZooKeeper: one kazoo session, made at the first call and made anew when it died for good.

Reads survive a short loss of the connection; transactions never repeat themselves: after a loss their outcome is unknown and the caller
reads back. Nothing here knows what the nodes mean.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from controller_logic.reasons import Reason
from tidegate.errors import OutcomeUnknown, TidegateError, Unauthorized, Unreachable
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.tree import Acl, AclEntry, Operation, Rejected, Znode
from tidegate.kafka.zookeeper_client import start_client, stop_client
from tidegate.kafka.zookeeper_reads import gather, read_bulk, read_one_by_one
from tidegate.kafka.zookeeper_transaction import first_failure, requests
from tidegate.kafka.zookeeper_watch import ClusterWatch

Answers = TypeVar("Answers")
_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError)
_PAUSE_SECONDS = 0.02
_DEAD = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)


class ZooKeeperSession:
    """A ZnodeTree on ZooKeeper; see the protocol for what each call promises. Several threads may use it."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._kazoo: KazooClient | None = None
        self._closed = False
        self._knows_multi_read = True
        self._wakes: list[Callable[[], None]] = []

    @property
    def address(self) -> str:
        """See ZnodeTree."""
        return self._connection.connect

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        return [answer and Znode(answer[0], answer[1].version, answer[1].numChildren) for answer in self._bulk(paths, wants_children=False)]

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        return self._bulk(paths, wants_children=True)

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        answers = self._surviving(lambda client, left: gather([client.get_acls_async(path) for path in paths], timeout_seconds=left))
        found = self._without_errors(paths, answers)
        return [answer and tuple(AclEntry(acl.perms, acl.id.scheme, acl.id.id) for acl in answer[0]) for answer in found]

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        client = self._client()
        self._await_connection(client, self._connection.request_timeout_seconds)
        transaction = client.transaction()
        transaction.operations.extend(requests(operations, client.chroot))
        try:
            results = transaction.commit_async().get(timeout=self._connection.request_timeout_seconds)
        except (*_LOST, KazooTimeoutError) as error:
            raise OutcomeUnknown(f"The connection to ZooKeeper {self.address} broke during a transaction.") from error
        except KazooException as error:
            raise self._refusal(error) from error
        failure = first_failure(operations, results)
        if failure is not None:
            raise failure if isinstance(failure, Rejected) else self._refusal(failure)

    def sync(self) -> None:
        """See ZnodeTree."""
        self._surviving(lambda client, left: gather([client.sync_async("/")], timeout_seconds=left))

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree. Wakes whenever the connection comes back as well: what happened meanwhile is not known."""
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
                raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, f"The session with ZooKeeper {self.address} was closed.")
            if self._kazoo is not None and self._kazoo.client_state in _DEAD:
                stop_client(self._kazoo)
                self._kazoo = None
            if self._kazoo is None:
                self._kazoo = start_client(self._connection)
                for wake in self._wakes:
                    ClusterWatch(self._kazoo, wake).start()
            return self._kazoo

    def _bulk(self, paths: Sequence[str], *, wants_children: bool) -> list[Any]:
        if not paths:
            return []
        if self._knows_multi_read:
            try:
                answers = self._surviving(
                    lambda client, left: read_bulk(client, paths, wants_children=wants_children, timeout_seconds=left),
                )
                return self._without_errors(paths, answers)
            except UnimplementedError:
                self._knows_multi_read = False
        answers = self._surviving(
            lambda client, left: read_one_by_one(client, paths, wants_children=wants_children, timeout_seconds=left),
        )
        return self._without_errors(paths, answers)

    def _surviving(self, ask: Callable[[KazooClient, float], Answers]) -> Answers:
        """Ask until there is an answer, over lost connections too, for as long as one request may take."""
        deadline = time.monotonic() + self._connection.request_timeout_seconds
        while True:
            client = self._client()
            left = max(deadline - time.monotonic(), 0.0)
            try:
                self._await_connection(client, left)
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

    def _await_connection(self, client: KazooClient, timeout_seconds: float) -> None:
        if not client._live.wait(timeout_seconds):
            raise self._silence()

    def _without_errors(self, paths: Sequence[str], answers: Sequence[Any]) -> list[Any]:
        """None for a node that does not exist; any other refusal is raised with its path."""
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, KazooException) and not isinstance(answer, NoNodeError):
                answer.args = (path,)
                raise self._refusal(answer) from answer
        return [None if isinstance(answer, NoNodeError) else answer for answer in answers]

    def _silence(self) -> Unreachable:
        seconds = self._connection.request_timeout_seconds
        return Unreachable(
            Reason.ZOOKEEPER_UNREACHABLE,
            f"ZooKeeper {self.address} gave no answer within {seconds:g} s; the connection was lost or the server is overloaded. "
            "Every quota stays as it is; the next pass tries again.",
        )

    def _refusal(self, error: KazooException) -> TidegateError:
        path = str(error) or "the request"
        user = self._connection.sasl.username if self._connection.sasl else None
        if isinstance(error, NoAuthError):
            identity = f"user {user}" if user else "Tidegate, which has not logged in"
            return Unauthorized(
                f"ZooKeeper {self.address} does not let {identity} at {path}. Every quota stays as it is. "
                "Give Tidegate the identity of the brokers (their JAAS section Client, or their client certificate).",
            )
        if isinstance(error, AuthFailedError):
            return Unauthorized(f"ZooKeeper {self.address} refused the login as {user}. Every quota stays as it is. Correct the password.")
        return Unreachable(
            Reason.ZOOKEEPER_UNREACHABLE,
            f"ZooKeeper {self.address} refused {path}: {type(error).__name__}. Every quota stays as it is; the next pass tries again.",
        )
