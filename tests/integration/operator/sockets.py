"""Sockets that a real cluster's ZooKeeper knows as brokers: silent ones, and some with a plugin."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from kafka.protocol.admin import DescribeConfigsResponse
from kazoo.client import KazooClient

from lab.kafka import KafkaLab


class Listener:
    """A socket that accepts, and counts who came. With `plugin` it answers what its broker's
    setting is.
    """

    def __init__(self, broker_id: int, plugin: str = "") -> None:
        self._broker_id = broker_id
        self._plugin = plugin
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def came(self) -> int:
        return len(self._open)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends `accept`
        self._accepting.join()
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                if self._plugin:
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error):
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            request = connection.recv(size, socket.MSG_WAITALL)
            key, _, correlation_id = struct.unpack(">hhi", request[:8])
            if key != 32:  # not DescribeConfigs: this is Kafka's controller
                return
            results = DescribeConfigsResponse.DescribeConfigsResult
            config = results.DescribeConfigsResourceResult(
                name="client.quota.callback.class",
                value=self._plugin,
                read_only=True,
                config_source=4,
                is_sensitive=False,
                synonyms=[],
            )
            result = results(
                error_code=0,
                error_message=None,
                resource_type=4,
                resource_name=str(self._broker_id),
                configs=[config],
            )
            answer = DescribeConfigsResponse(throttle_time_ms=0, results=[result])
            body = struct.pack(">i", correlation_id) + bytes(answer.encode(version=1))
            connection.sendall(struct.pack(">i", len(body)) + body)


@contextmanager
def registered(kafka: KafkaLab, plugins: Mapping[int, str]) -> Iterator[dict[int, Listener]]:
    """Sockets by broker id, known to Kafka's controller as brokers; "" = it never answers."""
    with ExitStack() as stack:
        made = {one: Listener(one, plugin) for one, plugin in plugins.items()}
        zookeeper = KazooClient(kafka.zookeeper_connect)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        real = json.loads(zookeeper.get("/brokers/ids/1")[0])
        for one, listener in made.items():
            stack.callback(listener.close)
            address = f"127.0.0.1:{listener.port}"
            said = {
                **real,
                "port": listener.port,
                "endpoints": [
                    f"{name}://{address}" for name in real["listener_security_protocol_map"]
                ],
            }
            zookeeper.create(f"/brokers/ids/{one}", json.dumps(said).encode(), ephemeral=True)
        yield made
