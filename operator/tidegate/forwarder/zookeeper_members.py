"""Membership in ZooKeeper: who is there, who decides, who is to have what, and who has it.

    /tidegate/queues/<prefix>/members/<member>   there is such a member             ephemeral
    /tidegate/queues/<prefix>/lock               the member that assigns            ephemeral
    /tidegate/queues/<prefix>/assignment         {"v": 1, "topics": {member: [...]}}
    /tidegate/queues/<prefix>/owners/<topic>     the member that forwards it now    ephemeral

The assignment is what should be; an owner's node is what is. A member that loses a topic finishes
and commits before it deletes its owner's node, and the next one cannot make its own before that. So
a topic never has two owners, not even while members disagree about the assignment.

One thread per member does everything with ZooKeeper, again and again: it looks at all nodes and
makes its own as they should be. Watches only wake it, so an event that is missed costs a moment.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

import structlog
from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from tidegate.errors import Conflict, ForeignContent, Unauthorized, Unreachable
from tidegate.forwarder.session_sign import Clock, SessionSign, seconds_since_boot
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession, start_client, stop_client
from tidegate.kafka.zookeeper.tree import Rejected
from tidegate.kafka.zookeeper.writer import plan_creates
from tidegate.queues.names import QueueNames
from tidegate_logic.queues.assignment import Assignment, assign
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

VERSION = 1
_BEATS_PER_TIMEOUT = 10
_NO_ANSWER = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, KazooTimeoutError)


def parse_assignment(data: bytes, path: str) -> Assignment:
    """The assignment in a node's bytes; no bytes are an empty one.

    Raises ForeignContent for a newer version, and for bytes that are not an assignment.
    """
    if not data:
        return {}
    try:
        fields = json.loads(data)
        version = int(fields["v"])
        if version > VERSION:
            raise ForeignContent(
                f"The assignment at {path} in ZooKeeper is of a newer Tidegate (version {version}, "
                f"known is {VERSION}). This forwarder takes no topic and leaves the node alone. "
                "Update it, or delete the node once no newer forwarder runs."
            )
        return {str(member): tuple(map(str, has)) for member, has in fields["topics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ForeignContent(
            f"The node {path} in ZooKeeper is not an assignment of Tidegate: {data[:80]!r}. This "
            "forwarder takes no topic and leaves the node alone. Delete the node; the forwarders "
            "then write it again."
        ) from error


class ZooKeeperMembers:
    """See Membership. One object is one session: when that is lost, make another object.

    Nodes get the access list of the queue's own node, or of `/config/users` like all of Tidegate's.
    The session timeout must be one that ZooKeeper grants (by default 4 to 40 s).

    `may_send` counts from when the last answered request was sent, by `clock` in seconds. So a
    process that was stopped, or cut off, does not send what may have another owner, unless a
    single send takes longer than a third of the session timeout.
    """

    def __init__(
        self,
        connection: ZooKeeperConnection,
        prefix: str,
        member: str,
        clock: Clock = seconds_since_boot,
    ) -> None:
        """Connect and become a member. Takes as long as `start_timeout_seconds` of `connection`.

        Raises Unreachable and Unauthorized as `start_client` does, WriteRefused if there is no
        Kafka below the chroot, Conflict while there is a member of this name.
        """
        self.member = member
        self._root = root = QueueNames(prefix).zookeeper_root
        self._own_path, self._lock_path = f"{root}/members/{member}", f"{root}/lock"
        self._owners_path, self._assignment_path = f"{root}/owners", f"{root}/assignment"
        self._clock = clock
        self._timeout_seconds = connection.session_timeout_seconds
        self._sign = SessionSign(self._timeout_seconds, clock)
        self._lost = threading.Event()
        self._ending = threading.Lock()  # kazoo cannot be stopped by two threads at a time
        self._wake = threading.Event()
        self._lock = threading.Lock()  # of the three sets below, between worker and forwarder
        self._wanted: frozenset[str] = frozenset()
        self._owned: set[str] = set()  # topics whose owner's node is this session's
        self._held: set[str] = set()  # those that were taken and not released yet
        self._unclear: set[str] = set()  # topics whose owner's node may be ours: no answer came
        self._topics: frozenset[str] | None = None
        self._complaint = ""
        _lay_out(connection, root)
        self._client = start_client(connection, self._on_state)
        try:
            self._join()
        except BaseException:
            stop_client(self._client)
            raise
        self._worker = threading.Thread(target=self._run, name="members", daemon=True)
        self._worker.start()

    def topics(self, names: Iterable[str]) -> None:
        """See Membership."""
        names = frozenset(names)
        if names != self._topics:
            self._topics = names
            self._wake.set()

    def wanted(self) -> frozenset[str]:
        """See Membership."""
        return frozenset() if self._lost.is_set() else self._wanted

    def take(self, topic: str) -> bool:
        """See Membership. Never waits: the owner's node is made as soon as the topic is wanted."""
        with self._lock:
            if self._lost.is_set() or topic not in self._wanted or topic not in self._owned:
                return False
            self._held.add(topic)
            return True

    def release(self, topic: str) -> None:
        """See Membership."""
        with self._lock:
            self._held.discard(topic)
        self._wake.set()

    def may_send(self) -> bool:
        """See Membership."""
        return not self._lost.is_set() and self._sign.is_fresh()

    def is_lost(self) -> bool:
        """See Membership."""
        return self._lost.is_set()

    def close(self) -> None:
        """See Membership. A second call does nothing."""
        self._end()  # here, as it ends what the worker waits for
        self._wake.set()
        self._worker.join()

    def _end(self) -> None:
        self._lost.set()
        with self._ending:
            stop_client(self._client)

    def _on_state(self, state: str) -> None:
        # called by kazoo's own thread, before it replaces a lost session
        if state == KazooState.LOST:
            self._lost.set()
        self._wake.set()

    def _on_watch(self, _event: Any) -> None:
        self._wake.set()

    def _join(self) -> None:
        try:
            (acls_and_stat,) = self._answers(self._client.get_acls_async(self._root))
            self._acl = acls_and_stat[0]
            made = self._settled(self._create(self._own_path))
            (own,) = self._answers(self._client.exists_async(self._own_path))
            self._session = own.owner_session_id
        except NoAuthError as error:
            raise Unauthorized(
                f"ZooKeeper does not let {self.member} make a node at {self._root}, so it forwards "
                "nothing. Give its login the rights to read, create, write and delete there."
            ) from error
        except (KazooException, KazooTimeoutError, AttributeError, TypeError) as error:
            raise Unreachable(
                Reason.ZOOKEEPER_UNREACHABLE,
                f"ZooKeeper broke off while {self.member} joined at {self._root} "
                f"({type(error).__name__}). It forwards nothing; try again.",
            ) from error
        if isinstance(made, NodeExistsError):
            raise Conflict(
                f"ZooKeeper has a member {self.member} at {self._root}. Another process has the "
                "same name, or the last session of this one has not ended yet. Give each process a "
                "name of its own, or try again after the session timeout."
            )

    # the worker

    def _run(self) -> None:
        try:
            while not self._lost.is_set():
                self._wake.clear()
                try:
                    self._look()
                except _NO_ANSWER:
                    pass  # what is known stays; the sign says how old it is
                except KazooException as error:
                    self._complain(
                        f"ZooKeeper refuses {self.member} at {self._root} "
                        f"({type(error).__name__}); it tries again. Check the rights of its login."
                    )
                self._wake.wait(self._timeout_seconds / _BEATS_PER_TIMEOUT)
        except Exception:
            log.exception("Membership failed; its session ends", member=self.member)
        finally:
            self._end()

    def _look(self) -> None:
        """Look at everything once, and make the own nodes as they should be."""
        asked_at = self._clock()
        _, own, lock, owners, node = self._answers(
            # the leader answers it; a server that is cut off from the others still answers reads
            self._client.sync_async(self._root),
            self._client.exists_async(self._own_path, watch=self._on_watch),
            self._client.exists_async(self._lock_path, watch=self._on_watch),
            self._client.get_children_async(self._owners_path, watch=self._on_watch),
            self._client.get_async(self._assignment_path, watch=self._on_watch),
        )
        if not self._is_ours(own) or self._held.difference(owners or ()):
            self._lost.set()  # expired, or somebody has deleted a node of ours
            return
        self._sign.answered(asked_at)
        present = frozenset(owners or ())
        assignment = self._parse(node)
        self._own(frozenset((assignment or {}).get(self.member, ())), present)
        if assignment is not None:
            if self._topics is not None and self._leads(lock):
                self._lead(self._topics, assignment, None if node is None else node[1].version)
            self._complaint = ""

    def _parse(self, node: Any) -> Assignment | None:
        """The assignment in the node; None if it cannot be used."""
        try:
            return parse_assignment(b"" if node is None else node[0], self._assignment_path)
        except ForeignContent as error:
            self._complain(error.message)
            return None

    def _own(self, wanted: frozenset[str], present: frozenset[str]) -> None:
        """Delete owner's nodes of topics that are not wanted and not held; make those wanted."""
        to_ask = (wanted - self._owned | self._unclear) & present
        self._unclear &= to_ask
        for topic, stat in self._each(to_ask, self._client.exists_async):
            if self._is_ours(stat):
                self._owned.add(topic)
            self._unclear.discard(topic)
        with self._lock:
            self._wanted = wanted
            leaving = self._owned - wanted - self._held
            self._owned -= leaving
        # from here on, a topic without an answer may have a node of ours
        self._unclear |= leaving
        for topic, _ in self._each(leaving, self._client.delete_async):
            self._unclear.discard(topic)
        missing = wanted - self._owned - present
        self._unclear |= missing
        for topic, answer in self._each(missing, self._create):
            if isinstance(answer, str):
                self._owned.add(topic)
            self._unclear.discard(topic)

    def _leads(self, lock: Any) -> bool:
        """Whether this member assigns, now or from now on."""
        if lock is not None:
            return self._is_ours(lock)
        return isinstance(self._settled(self._create(self._lock_path)), str)

    def _lead(self, topics: frozenset[str], before: Assignment, version: int | None) -> None:
        """Write who is to have what, if that has changed and nobody else has written meanwhile."""
        (members,) = self._answers(
            self._client.get_children_async(f"{self._root}/members", watch=self._on_watch)
        )
        assignment = assign(topics, members, before)
        if assignment == before:
            return
        text = json.dumps({"v": VERSION, "topics": assignment}, separators=(",", ":")).encode()
        if version is None:
            self._settled(self._create(self._assignment_path, text, ephemeral=False))
        else:
            with contextlib.suppress(BadVersionError):  # its watch wakes us
                self._settled(self._client.set_async(self._assignment_path, text, version))

    # requests

    def _create(self, path: str, data: bytes | None = None, *, ephemeral: bool = True) -> Any:
        data = self.member.encode() if data is None else data
        return self._client.create_async(path, data, acl=self._acl, ephemeral=ephemeral)

    def _each(self, topics: Set[str], call: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """The answer for each topic's owner's node, all under way at once."""
        sent = [(topic, call(f"{self._owners_path}/{topic}")) for topic in sorted(topics)]
        for topic, result in sent:
            yield topic, self._settled(result)

    def _answers(self, *sent: Any) -> list[Any]:
        """The answers in their order; None if there is no node."""
        answers = [self._settled(result) for result in sent]
        return [None if isinstance(answer, NoNodeError) else answer for answer in answers]

    def _settled(self, result: Any) -> Any:
        """The answer of a request, or the error that only says whether the node is there."""
        try:
            return result.get(timeout=self._timeout_seconds)
        except (NoNodeError, NodeExistsError) as error:
            return error

    def _is_ours(self, stat: Any) -> bool:
        """Whether a node is this session's; a node made by another session of ours is not."""
        return stat is not None and getattr(stat, "owner_session_id", None) == self._session

    def _complain(self, complaint: str) -> None:
        """Log what people have to do something about, once."""
        if complaint and complaint != self._complaint:
            log.error("Topics cannot be assigned", member=self.member, error=complaint)
        self._complaint = complaint


def _lay_out(connection: ZooKeeperConnection, root: str) -> None:
    """Make the queue's nodes that last, with the access list of their nearest ancestor."""
    tree = ZooKeeperSession(connection)
    paths = [f"{root}/members", f"{root}/owners"]
    try:
        while missing := [
            path for path, node in zip(paths, tree.read(paths), strict=True) if node is None
        ]:
            with contextlib.suppress(Rejected):  # another member was faster
                tree.commit(plan_creates(tree, dict.fromkeys(missing)))
    finally:
        tree.close()
