"""Live brokers and partition leaders, by one Metadata request to whichever broker answers.

Only the managed topics are asked for. Reading the same from ZooKeeper takes 70 s on a large
cluster. One connection is kept, and opened again when it breaks. The request never creates a topic.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidegate.causes import cause_of, tried_words
from tidegate.errors import Incomplete, InvalidResource, TidegateError, Unauthorized, Unreachable
from tidegate.kafka.protocol import (
    AbstractTokenProvider,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    admin,
    consumer,
    for_code,
    metadata,
    producer,
    sasl,
    sasl_mechanism,
)
from tidegate.kafka.settings import QUOTAS_STAY, KafkaConnection, SaslLogin, Token, TokenLogin
from tidegate.kafka.tokens import claims_of
from tidegate_logic.model import InSync, TopicLeaders, Topology
from tidegate_logic.reasons import Reason

# Brokers and leaders of a Metadata answer. A partition without a certain leader is counted as
# leaderless or refused; nothing is guessed.


_NONE = 0
_UNKNOWN_TOPIC = 3
_LEADER_NOT_AVAILABLE = 5
_REPLICA_NOT_AVAILABLE = 9  # a follower does not answer; the leader is right
_INVALID_TOPIC = 17
_NOT_AUTHORIZED = 29
_ABSENT = {_UNKNOWN_TOPIC, _INVALID_TOPIC}
_USABLE = {_NONE, _LEADER_NOT_AVAILABLE, _REPLICA_NOT_AVAILABLE}


def topology_of(answer: Any, *, read_at_seconds: float, with_in_sync: bool = False) -> Topology:
    """The topology in a Metadata answer (v4), if wanted with the in-sync replicas.

    Raises Incomplete when it names no broker or when a topic comes with an error that says nothing
    about its existence, Unauthorized when a topic may not be described.
    """
    brokers = frozenset(broker.node_id for broker in answer.brokers)
    if not brokers:
        raise Incomplete(
            Reason.TOPOLOGY_INCOMPLETE,
            "A broker answered but named no brokers; it has just started.",
            consequence="The next pass asks again.",
        )
    topics = {topic.name: _leaders(topic, brokers) for topic in answer.topics if _exists(topic)}
    if with_in_sync:
        for topic in answer.topics:
            if topic.name in topics:
                known = topics[topic.name]
                topics[topic.name] = replace(known, in_sync=_in_sync(topic, brokers))
    return Topology(read_at_seconds, brokers, topics, answer.cluster_id)


def matching(patterns: Iterable[str], names: Collection[str]) -> set[str]:
    """The topics to ask for: plain names, and those of `names` under a prefix (ending in `*`)."""
    wanted: set[str] = set()
    for pattern in patterns:
        if pattern.endswith("*"):
            wanted.update(name for name in names if name.startswith(pattern[:-1]))
        else:
            wanted.add(pattern)
    return wanted


def _exists(topic: Any) -> bool:
    code = topic.error_code
    if code == _NOT_AUTHORIZED:
        raise Unauthorized(
            f"The brokers do not let Tidegate describe topic {topic.name}.",
            advice="Grant its user Describe on the topic.",
        )
    if code != _NONE and code not in _ABSENT:
        raise Incomplete(
            Reason.TOPOLOGY_INCOMPLETE,
            f"The leaders of topic {topic.name} are not known: {for_code(code).__name__}.",
            consequence="Quotas stay as they are until they are known.",
        )
    return bool(code == _NONE)


def _leaders(topic: Any, brokers: frozenset[int]) -> TopicLeaders:
    leaders: Counter[int] = Counter()
    leaderless = 0
    for partition in topic.partitions:
        if partition.error_code not in _USABLE:
            raise Incomplete(
                Reason.TOPOLOGY_INCOMPLETE,
                f"The leader of topic {topic.name}, partition {partition.partition_index} is not "
                f"known: {for_code(partition.error_code).__name__}.",
                consequence="Quotas stay as they are until it is known.",
            )
        if partition.leader_id in brokers:
            leaders[partition.leader_id] += 1
        else:
            leaderless += 1
    return TopicLeaders(dict(leaders), leaderless)


def _in_sync(topic: Any, brokers: frozenset[int]) -> tuple[tuple[InSync, int], ...]:
    """Its partitions with a leader, by that leader and the other live in-sync replicas."""
    groups = Counter(
        (one.leader_id, *sorted(brokers.intersection(one.isr_nodes) - {one.leader_id}))
        for one in topic.partitions
        if one.leader_id in brokers
    )
    return tuple(groups.items())


# One connection to one broker: kafka-python's protocol classes over a plain socket, each request
# bounded in time.
#
# kafka-python's own client has a thread, a metadata cache and retries; a control pass wants one
# answer or one error. The request versions work from Kafka 2.2 to 4.x, so nothing is negotiated.


CLIENT_ID = "tidegate"
_MOST_BYTES = 256 * 1024 * 1024
_SIZE = struct.Struct(">i")
# Of the time that a broker lets a login last, when the next one is made on the same connection;
# within a second of the last one, a broker takes none.
_RENEWED_AFTER = 0.85
_LEAST_LOGIN_SECONDS = 1.1
_SPOKEN = {
    metadata.MetadataRequest: (metadata.MetadataResponse, 4),
    admin.DescribeConfigsRequest: (admin.DescribeConfigsResponse, 1),
    admin.DescribeLogDirsRequest: (admin.DescribeLogDirsResponse, 1),
    admin.IncrementalAlterConfigsRequest: (admin.IncrementalAlterConfigsResponse, 0),
    admin.ListPartitionReassignmentsRequest: (admin.ListPartitionReassignmentsResponse, 0),
    sasl.SaslHandshakeRequest: (sasl.SaslHandshakeResponse, 1),
    sasl.SaslAuthenticateRequest: (sasl.SaslAuthenticateResponse, 1),
    # those of the quota store on the admin protocol, which brokers from 2.6 to 4.x understand
    producer.AddPartitionsToTxnRequest: (producer.AddPartitionsToTxnResponse, 1),
    admin.AlterClientQuotasRequest: (admin.AlterClientQuotasResponse, 0),
    metadata.ApiVersionsRequest: (metadata.ApiVersionsResponse, 0),
    admin.CreateTopicsRequest: (admin.CreateTopicsResponse, 2),
    admin.DescribeClientQuotasRequest: (admin.DescribeClientQuotasResponse, 0),
    admin.DescribeQuorumRequest: (admin.DescribeQuorumResponse, 0),
    producer.EndTxnRequest: (producer.EndTxnResponse, 1),
    consumer.FetchRequest: (consumer.FetchResponse, 4),
    metadata.FindCoordinatorRequest: (metadata.FindCoordinatorResponse, 1),
    producer.InitProducerIdRequest: (producer.InitProducerIdResponse, 1),
    consumer.ListOffsetsRequest: (consumer.ListOffsetsResponse, 2),
    producer.ProduceRequest: (producer.ProduceResponse, 7),
    # those of delay queues
    admin.DeleteTopicsRequest: (admin.DeleteTopicsResponse, 1),
    consumer.OffsetFetchRequest: (consumer.OffsetFetchResponse, 5),
    admin.DescribeGroupsRequest: (admin.DescribeGroupsResponse, 3),
    admin.DescribeTransactionsRequest: (admin.DescribeTransactionsResponse, 0),
    # those of share groups, for brokers from 4.1 on
    admin.ListGroupsRequest: (admin.ListGroupsResponse, 5),
    ShareGroupDescribeRequest: (ShareGroupDescribeResponse, 1),
}


class BrokerConnection:
    """An open, logged-in connection to `host:port`; a context manager.

    Raises OSError when the broker does not answer in time or hangs up, Unauthorized when it refuses
    the login, and what `Tokens.current` raises. After any error it is of no further use.

    Where brokers limit how long a login lasts (KIP-368), it logs in again before that.
    """

    def __init__(
        self, host: str, port: int, *, settings: KafkaConnection, timeout_seconds: float
    ) -> None:
        self._login = settings.sasl
        self._is_encrypted = settings.tls is not None
        self._login_until_seconds = float("inf")
        token = self._token()  # it may take its own time
        self._deadline = time.monotonic() + timeout_seconds
        self._correlation_id = 0
        self.address = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        try:
            # the last byte of a change goes out alone, and must not wait for an acknowledgement
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.tls is not None:
                self._socket = settings.tls.context().wrap_socket(
                    self._socket, server_hostname=host
                )
            self._log_in(token)
        except BaseException:
            self.close()
            raise

    def ask(
        self, request: Any, timeout_seconds: float, confirm: Callable[[], None] | None = None
    ) -> Any:
        """Send one request and return the answer. The caller checks the error codes in it.

        `confirm` is called once all of the request but its last byte is sent. A broker does nothing
        about a request without its end, so what `confirm` raises calls it back.
        """
        is_login_due = time.monotonic() >= self._login_until_seconds
        token = self._token() if is_login_due else None
        self._deadline = time.monotonic() + timeout_seconds
        if is_login_due:
            self._log_in(token)
        return self._exchange(request, confirm)

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> "BrokerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, request: Any, confirm: Callable[[], None] | None = None) -> Any:
        response_class, usual_version = _SPOKEN[type(request)]
        version = usual_version if request.API_VERSION is None else request.API_VERSION
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.settimeout(self._left())
        encoded = request.encode(version=version, header=True, framed=True)
        if confirm is None:
            self._socket.sendall(encoded)
        else:
            self._socket.sendall(encoded[:-1])
            self._finish(encoded[-1:], confirm)
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 < size <= _MOST_BYTES:
            raise ConnectionError(
                f"it sent {size} as the size of its answer; this is not a Kafka listener, or it "
                "requires TLS"
            )
        response = response_class.decode(bytes(self._receive(size)), version=version, header=True)
        if response.header.correlation_id != self._correlation_id:
            raise ConnectionError("its answer belongs to another request")
        return response

    def _finish(self, end: bytes, confirm: Callable[[], None]) -> None:
        """Send it as soon as `confirm` returns: it waits for nothing, or is not sent."""
        writable = select.poll()
        writable.register(self._socket, select.POLLOUT)
        if not writable.poll(self._left() * 1000):
            raise TimeoutError("it stopped reading the request")
        self._socket.settimeout(0)
        send = self._socket.sendall
        confirm()
        send(end)

    def _receive(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, done = memoryview(buffer), 0
        while done < size:
            self._socket.settimeout(self._left())
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ConnectionError(
                    "it closed the connection; a listener with TLS or login does that to clients "
                    "without"
                )
            done += count
        return buffer

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it did not answer in time")
        return left

    def _token(self) -> Token | None:
        return self._login.tokens.current() if isinstance(self._login, TokenLogin) else None

    def _log_in(self, token: Token | None) -> None:
        login = self._login
        if login is None:
            return
        handshake = self._exchange(sasl.SaslHandshakeRequest(mechanism=login.mechanism.value))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise Unauthorized(
                f"Broker {self.address} does not offer login by {login.mechanism.value}; it "
                f"offers {offered}."
            )
        mechanism = sasl_mechanism(login.mechanism.value)(
            sasl_mechanism=login.mechanism.value,
            security_protocol="SASL_SSL" if self._is_encrypted else "",
            **_proof(login, token),
        )
        answer = None
        while not mechanism.is_done():
            answer = self._exchange(sasl.SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes()))
            if answer.error_code:
                if isinstance(login, TokenLogin):
                    login.tokens.forget()
                why, fix = _refusal(login, token, answer.error_message)
                raise Unauthorized(f"Broker {self.address} refused the login {why}.", advice=fix)
            mechanism.receive(answer.auth_bytes)
        lasts_seconds = 0.0 if answer is None else answer.session_lifetime_ms / 1000
        self._login_until_seconds = (
            time.monotonic() + max(lasts_seconds * _RENEWED_AFTER, _LEAST_LOGIN_SECONDS)
            if lasts_seconds
            else float("inf")
        )


class _Given(AbstractTokenProvider):  # type: ignore[misc]
    """kafka-python's form of one token."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        super().__init__()
        self._token, self._extensions = token, dict(extensions)

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return self._extensions


def _proof(login: SaslLogin | TokenLogin, token: Token | None) -> dict[str, Any]:
    """What a mechanism of kafka-python takes for this login."""
    if isinstance(login, SaslLogin):
        return {"sasl_plain_username": login.username, "sasl_plain_password": login.password}
    value = "" if token is None else token.value
    return {"sasl_oauth_token_provider": _Given(value, login.extensions)}


def _refusal(
    login: SaslLogin | TokenLogin, token: Token | None, said: str | None
) -> tuple[str, str]:
    """Whose login was refused and why, and what to do."""
    if isinstance(login, SaslLogin):
        why = f"as {login.username} by {login.mechanism.value}: {said}"
        return why, "Correct the user name and password for the brokers."
    claims = claims_of("" if token is None else token.value)
    shown = ", ".join(
        f"{name} {str(claims[name])[:100]}" for name in ("iss", "aud") if name in claims
    )
    fix = (
        f"The token has {shown}: compare this with what the brokers expect, and check their clocks."
        if shown
        else "Check that the brokers accept this identity, and the clocks."
    )
    return f"of {login.identity} by {login.mechanism.value}: {said}", fix


_CONNECT_TIMEOUT_SECONDS = 3.0
_QUESTION_SECONDS = 5.0  # for all brokers that are asked together
_BROKER_RESOURCE = 4


class KafkaTopology:
    """Brokers and leaders of one cluster. Several threads may use it; one asks at a time.

    `topic_names` gives the names of all topics, for prefixes; it is called only when there is one.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        topic_names: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = connection
        self._topic_names = topic_names
        self._clock = clock
        self._servers = [host_and_port(server) for server in connection.bootstrap_servers]
        self._lock = threading.Lock()
        self._open: BrokerConnection | None = None
        self._closed = False
        self._addresses: Mapping[int, tuple[str, int]] = {}

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        """Read live brokers, and the leaders of the topics that match `patterns`, now.

        A pattern is a topic name or a prefix that ends in `*`. A topic that does not exist is left
        out. In-sync replicas are in the same answer, and are counted if wanted. Raises Unreachable
        when no broker answers, Incomplete when the answer is not whole, Unauthorized when the login
        or a topic is refused.
        """
        has_prefix = any(pattern.endswith("*") for pattern in patterns)
        wanted = matching(patterns, self._topic_names() if has_prefix else ())
        answer = self._metadata(sorted(wanted))
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return topology_of(answer, read_at_seconds=self._clock(), with_in_sync=with_in_sync)

    def settings(
        self, brokers: Collection[int], names: Collection[str]
    ) -> Mapping[int, Mapping[str, str]]:
        """Broker id -> its settings of these names, without those that are unset or not known.

        All are asked at once, at the addresses of the last `read`. Those that do not answer within
        5 s are left out: one that is silent, or whose name is not found, costs the others nothing.
        One that refuses to tell its settings has an empty answer.
        """
        answers: dict[int, Mapping[str, str]] = {}
        deadline = time.monotonic() + _QUESTION_SECONDS

        def ask(broker_id: int, host: str, port: int) -> None:
            with contextlib.suppress(OSError, TidegateError):
                answers[broker_id] = self._settings_of(broker_id, (host, port), names, deadline)

        addresses = self._addresses
        threads = [
            threading.Thread(target=ask, args=(one, *addresses[one]), daemon=True)
            for one in sorted(brokers)
            if one in addresses
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return dict(answers)

    def close(self) -> None:
        """Hang up; later calls raise Unreachable. A second call does nothing."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _metadata(self, topics: Collection[str]) -> Any:
        with self._lock:
            if self._closed:
                raise Unreachable(
                    Reason.BROKERS_UNREACHABLE,
                    "The connection to the brokers at "
                    f"{','.join(self._settings.bootstrap_servers)} was closed.",
                )
            deadline = time.monotonic() + self._settings.request_timeout_seconds
            tried: dict[str, str] = {}
            # the kept connection may have died unnoticed: its broker gets a second try in its turn
            for attempts_left in range(1 + len(self._servers), 0, -1):
                share_seconds = max(deadline - time.monotonic(), 0.0) / attempts_left
                was_kept = self._open is not None
                try:
                    return self._connection(share_seconds).ask(
                        _metadata_request(topics), share_seconds
                    )
                except OSError as error:
                    tried[":".join(map(str, self._servers[0]))] = cause_of(error)
                    self._hang_up()
                    if not was_kept:
                        self._servers = [*self._servers[1:], self._servers[0]]
                except TidegateError:  # a login that was due and is refused
                    self._hang_up()
                    raise
            raise no_answer(self._settings, tried)

    def _connection(self, left_seconds: float) -> BrokerConnection:
        if self._open is None:
            host, port = self._servers[0]
            self._open = self._connect(host, port, min(left_seconds, _CONNECT_TIMEOUT_SECONDS))
        return self._open

    def _connect(self, host: str, port: int, timeout_seconds: float) -> BrokerConnection:
        return BrokerConnection(
            host, port, settings=self._settings, timeout_seconds=timeout_seconds
        )

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _settings_of(
        self, broker_id: int, address: tuple[str, int], names: Collection[str], deadline: float
    ) -> Mapping[str, str]:
        resource = admin.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE,
            resource_name=str(broker_id),
            configuration_keys=list(names),
        )
        request = admin.DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        with self._connect(*address, _CONNECT_TIMEOUT_SECONDS) as connection:
            answer = connection.ask(request, deadline - time.monotonic())
        return {
            config.name: str(config.value)
            for result in answer.results
            for config in result.configs
            if config.name in names and config.value
        }


def no_answer(settings: KafkaConnection, tried: Mapping[str, str]) -> Unreachable:
    """The error when no broker answered; `tried` has each server with what went wrong there."""
    return Unreachable(
        Reason.BROKERS_UNREACHABLE,
        f"No broker answered{tried_words(tried, settings.request_timeout_seconds)}.",
        consequence=QUOTAS_STAY,
        advice="Check bootstrapServers, the network policy, and whether this listener requires "
        "TLS or a login.",
    )


def _metadata_request(topics: Collection[str]) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )


def host_and_port(server: str) -> tuple[str, int]:
    """Host and port of a bootstrap server. Raises InvalidResource."""
    host, separator, port = server.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidResource(
            f"The bootstrap server {server!r} cannot be read.",
            advice="Write it as host:port, for example kafka-1:9092.",
        )
    return host.strip("[]"), int(port)
