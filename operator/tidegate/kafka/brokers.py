"""Where partition leaders are, asked of the brokers: one Metadata request for the managed topics, from whichever broker answers.

ZooKeeper would take 70 s for what Metadata tells in one (kafka-quotas 2.3). One connection is kept and made anew when it breaks. No topic
is ever created by asking.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from controller_logic.model import Topology
from controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, Unreachable
from tidegate.kafka.broker_connection import BrokerConnection
from tidegate.kafka.broker_messages import DescribeConfigsRequest, MetadataRequest
from tidegate.kafka.leaders import matching, topology_of
from tidegate.kafka.settings import KafkaConnection

_CONNECT_TIMEOUT_SECONDS = 3.0
_BROKER_RESOURCE = 4
_CALLBACK_SETTING = "client.quota.callback.class"


class KafkaTopology:
    """Brokers and leaders of one cluster. Several threads may use it; one asks at a time.

    `topic_names` gives the names of all topics, for prefixes; it is called only when there is one.
    """

    def __init__(
        self, connection: KafkaConnection, *, topic_names: Callable[[], Collection[str]], clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = connection
        self._topic_names = topic_names
        self._clock = clock
        self._servers = [_host_and_port(server) for server in connection.bootstrap_servers]
        self._lock = threading.Lock()
        self._open: BrokerConnection | None = None
        self._closed = False
        self._callbacks: dict[int, str | None] = {}

    def read(self, patterns: Collection[str]) -> Topology:
        """Live brokers, and the leaders of the topics that these names and prefixes (ending in `*`) match, read now.

        A topic that does not exist is left out. Raises Unreachable when no broker answers, Incomplete when the answer is not whole,
        Unauthorized when the login or a topic is refused.
        """
        has_prefix = any(pattern.endswith("*") for pattern in patterns)
        wanted = matching(patterns, self._topic_names() if has_prefix else ())
        answer = self._metadata(sorted(wanted))
        return topology_of(answer, read_at_seconds=self._clock())

    def quota_callbacks(self) -> Mapping[int, str]:
        """Broker -> class name, for brokers that replaced Kafka's quotas by a plugin and so ignore what is written.

        Each broker is asked once while it stays in the cluster; one that does not answer now is left out and asked again next time.
        """
        brokers = {broker.node_id: broker for broker in self._metadata([]).brokers}
        known = {broker_id: name for broker_id, name in self._callbacks.items() if broker_id in brokers}
        for broker_id in sorted(brokers.keys() - known.keys()):
            try:
                known[broker_id] = self._callback_of(brokers[broker_id])
            except OSError:
                continue
        self._callbacks = known
        return {broker_id: name for broker_id, name in known.items() if name}

    def close(self) -> None:
        """Hang up; later calls raise Unreachable. A second call does nothing."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _metadata(self, topics: Collection[str]) -> Any:
        with self._lock:
            if self._closed:
                raise Unreachable(Reason.BROKERS_UNREACHABLE, f"The connection to the brokers at {self._address} was closed.")
            deadline = time.monotonic() + self._settings.request_timeout_seconds
            tried: dict[str, str] = {}
            # the kept connection may have died unnoticed, so its broker gets a second chance in its turn
            for attempts_left in range(1 + len(self._servers), 0, -1):
                share_seconds = max(deadline - time.monotonic(), 0.0) / attempts_left
                was_kept = self._open is not None
                try:
                    return self._connection(share_seconds).ask(_metadata_request(topics), share_seconds)
                except OSError as error:
                    tried[":".join(map(str, self._servers[0]))] = str(error)
                    self._hang_up()
                    if not was_kept:
                        self._servers = [*self._servers[1:], self._servers[0]]
            raise self._unreachable(tried)

    def _connection(self, left_seconds: float) -> BrokerConnection:
        if self._open is None:
            host, port = self._servers[0]
            self._open = self._connect(host, port, min(left_seconds, _CONNECT_TIMEOUT_SECONDS))
        return self._open

    def _connect(self, host: str, port: int, timeout_seconds: float) -> BrokerConnection:
        return BrokerConnection(host, port, settings=self._settings, timeout_seconds=timeout_seconds)

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _callback_of(self, broker: Any) -> str | None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(broker.node_id), configuration_keys=[_CALLBACK_SETTING]
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        with self._connect(broker.host, broker.port, _CONNECT_TIMEOUT_SECONDS) as connection:
            answer = connection.ask(request, self._settings.request_timeout_seconds)
        values = [config.value for result in answer.results for config in result.configs if config.name == _CALLBACK_SETTING]
        return str(values[0]) if values and values[0] else None

    @property
    def _address(self) -> str:
        return ",".join(self._settings.bootstrap_servers)

    def _unreachable(self, tried: Mapping[str, str]) -> Unreachable:
        attempts = "; ".join(f"{server}: {error}" for server, error in tried.items())
        return Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"No broker at {self._address} answered within {self._settings.request_timeout_seconds:g} s ({attempts}). "
            "Every quota stays as it is. Check bootstrapServers, the network policy, and whether this listener wants TLS or a login.",
        )


def _metadata_request(topics: Collection[str]) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False)


def _host_and_port(server: str) -> tuple[str, int]:
    host, separator, port = server.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidResource(f"The bootstrap server {server!r} cannot be read. Write it as host:port, for example kafka-1:9092.")
    return host.strip("[]"), int(port)
