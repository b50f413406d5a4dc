"""Requests of the admin protocol to one Kafka cluster, each bounded in time.

`read` asks whichever broker answers and asks another when one does not. `ask` sends a request once,
to one broker. So does `write`, for requests that change something: only the store knows whether one
may be sent again, and none is sent without the policy's Lease. The errors of an answer become
ours in one place, with the rights that a user lacks.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

from tidegate.causes import cause_of
from tidegate.errors import Unauthorized, Unreachable, UserActionRequired
from tidegate.kafka.brokers import BrokerConnection, host_and_port, no_answer
from tidegate.kafka.protocol import admin, for_code, metadata
from tidegate.kafka.quota_store import require_lease
from tidegate.kafka.settings import QUOTAS_STAY, KafkaConnection
from tidegate_logic.reasons import Reason

_CONNECT_TIMEOUT_SECONDS = 3.0
_ALTER_CLIENT_QUOTAS, _DESCRIBE_QUORUM = 49, 55  # request numbers
_METADATA_TOPIC = "__cluster_metadata"
_NOT_AUTHORIZED = {29: "the topic", 30: "a group", 31: "the cluster", 53: "the transactional id"}
# a leader, coordinator or controller that is elected, loaded or busy just now
_PASSING = frozenset({-1, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 74, 75, 76})
# another writer of the same transactional id has come, or this one was forgotten
_FENCED = frozenset({45, 46, 47, 48, 49, 59, 67, 90})


class Lost(Exception):
    """A request had no answer, or one that says to try again; it may have been done."""


class Fenced(Exception):
    """Another process has become the writer of the ledger's topic."""


class AdminClient:
    """Connections to the brokers of one cluster. One thread at a time may use it.

    `may_write` is the policy's Lease; who has none, such as a command, leaves it as it is.
    """

    def __init__(self, settings: KafkaConnection) -> None:
        self.may_write: Callable[[], bool] = lambda: True
        self.address = ",".join(settings.bootstrap_servers)
        self._settings = settings
        self._servers = [host_and_port(server) for server in settings.bootstrap_servers]
        self._open: dict[tuple[str, int], BrokerConnection] = {}
        self._closed = False

    def read(self, request: Any) -> Any:
        """Ask any broker, one after the other. Raises Unreachable when none answers in time."""
        tried: dict[str, str] = {}
        deadline = time.monotonic() + self._settings.request_timeout_seconds
        for left in range(2 * len(self._servers), 0, -1):
            share_seconds = max(deadline - time.monotonic(), 0.0) / left
            server = self._servers[0]
            was_open = server in self._open
            try:
                return self._ask(server, request, share_seconds)
            except OSError as error:
                tried[":".join(map(str, server))] = cause_of(error)
                if not was_open:  # one that was open may only have been idle for too long
                    self._servers = [*self._servers[1:], server]
        raise no_answer(self._settings, tried)

    def ask(self, request: Any, at: tuple[str, int] | None = None) -> Any:
        """Ask the broker at this address, or the one that `read` asks. Raises Lost."""
        return self._ask_once(request, at, None)

    def write(self, request: Any, at: tuple[str, int] | None = None) -> Any:
        """The same with a request that changes something.

        Raises LeaseLost if `may_write` says so, asked when nothing but the last byte of the
        request is left to be sent.
        """
        return self._ask_once(request, at, lambda: require_lease(self.may_write))

    def metadata(self, topics: Collection[str] | None = ()) -> Any:
        """Brokers, cluster id and these topics; None = all. It never makes a topic."""
        wanted = (
            None
            if topics is None
            else [metadata.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        )
        return self.read(metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))

    def is_kraft(self) -> bool:
        """Whether the brokers have their metadata from a quorum.

        Raises UserActionRequired if they are too old for quotas by the admin protocol.
        """
        known = self._requests()
        if _ALTER_CLIENT_QUOTAS not in known:
            raise UserActionRequired(
                Reason.INVALID_SPEC,
                f"The brokers at {self.address} are older than Kafka 2.6 and accept no quotas "
                "through the admin protocol.",
                consequence=QUOTAS_STAY,
                advice="Set spec.kafka.quotaStore to ZooKeeper and give "
                "spec.kafka.zookeeper.connect.",
            )
        return _DESCRIBE_QUORUM in known

    def has_request(self, number: int) -> bool:
        """Whether the brokers understand the request of this number."""
        return number in self._requests()

    def _requests(self) -> frozenset[int]:
        answer = self.read(metadata.ApiVersionsRequest())
        return frozenset(one.api_key for one in answer.api_keys)

    def controllers(self) -> frozenset[int]:
        """The ids of the controllers, be they brokers as well or not.

        Empty where this login may not know them (DESCRIBE on the cluster). Raises Unreachable.
        """
        kind = admin.DescribeQuorumRequest.TopicData
        answer = self.read(
            admin.DescribeQuorumRequest(
                topics=[
                    kind(
                        topic_name=_METADATA_TOPIC,
                        partitions=[kind.PartitionData(partition_index=0)],
                    )
                ]
            )
        )
        return frozenset(
            voter.replica_id
            for topic in answer.topics or ()
            for partition in topic.partitions
            for voter in partition.current_voters or ()
        )

    def close(self) -> None:
        """Hang up everywhere; later calls raise Unreachable. A second call does nothing."""
        self._closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """Close every connection; the next request opens one."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _ask_once(
        self, request: Any, at: tuple[str, int] | None, confirm: Callable[[], None] | None
    ) -> Any:
        server = at or self._servers[0]
        try:
            return self._ask(server, request, self._settings.request_timeout_seconds, confirm)
        except OSError as error:
            raise Lost(cause_of(error)) from error

    def _ask(
        self,
        server: tuple[str, int],
        request: Any,
        timeout_seconds: float,
        confirm: Callable[[], None] | None = None,
    ) -> Any:
        if self._closed:
            raise Unreachable(
                Reason.BROKERS_UNREACHABLE, "The connection with the brokers was closed."
            )
        connection = self._open.get(server)
        try:
            if connection is None:
                connection = BrokerConnection(
                    *server,
                    settings=self._settings,
                    timeout_seconds=min(timeout_seconds, _CONNECT_TIMEOUT_SECONDS),
                )
                self._open[server] = connection
            return connection.ask(request, timeout_seconds, confirm)
        except BaseException:
            self._open.pop(server, None)
            if connection is not None:
                connection.close()
            raise


def rights_needed(topic: str) -> str:
    """Every right that the quota store needs, for a message."""
    return (
        "ALTER_CONFIGS and DESCRIBE_CONFIGS on the cluster; CREATE, DESCRIBE, DESCRIBE_CONFIGS, "
        f"READ and WRITE on the topic {topic}; DESCRIBE and WRITE on the transactional id {topic}"
    )


def is_refusal(code: int) -> bool:
    """Whether an error code is of what was asked for, and comes again however often it is asked."""
    return bool(code) and code not in {*_PASSING, *_FENCED, *_NOT_AUTHORIZED}


def require_done(code: int, what: str, topic: str) -> None:
    """Raise what an error code means to the caller that asked for `what`; 0 is none.

    Raises Lost, Fenced, Unauthorized or, for any other code, UserActionRequired.
    """
    if not code:
        return
    name = for_code(code).__name__
    if code in _PASSING:
        raise Lost(f"{what}: {name}")
    if code in _FENCED:
        raise Fenced(f"{what}: {name}")
    if code in _NOT_AUTHORIZED:
        raise Unauthorized(
            f"The brokers did not let Tidegate {what} ({name}: a right on "
            f"{_NOT_AUTHORIZED[code]}).",
            consequence=QUOTAS_STAY,
            advice=f"Grant its user all of these: {rights_needed(topic)}.",
        )
    raise UserActionRequired(
        Reason.FOREIGN_CONTENT,
        f"The brokers refused to {what}: {name}.",
        consequence=QUOTAS_STAY,
    )
