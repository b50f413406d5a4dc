"""A pass waits for no broker that is asked for its quota plugin: one real broker, and beside it
sockets that its ZooKeeper knows as brokers.

Two of them accept and never answer, as behind a firewall that answers for them; one has a plugin.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from kafka.protocol.admin import DescribeConfigsResponse
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.process import wait_until
from tests.unit.control.stage import Stage
from tidegate.control.observe import SETTLE_SECONDS
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import KafkaConnection, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SILENT, WITH_PLUGIN = (2, 3, 4, 5), 6
PLUGIN = "io.example.Quotas"


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
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def came(self) -> int:
        return len(self._open)

    def close(self) -> None:
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


@pytest.fixture
def kafka_of_one() -> Iterator[KafkaLab]:
    with KafkaLab(brokers=1) as kafka:
        yield kafka


@pytest.fixture
def listeners(kafka_of_one: KafkaLab) -> Iterator[dict[int, Listener]]:
    """The sockets, known to Kafka's controller as brokers."""
    with ExitStack() as stack:
        made = {one: Listener(one) for one in SILENT}
        made[WITH_PLUGIN] = Listener(WITH_PLUGIN, PLUGIN)
        zookeeper = KazooClient(kafka_of_one.zookeeper_connect)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        real = json.loads(zookeeper.get("/brokers/ids/1")[0])
        for one, listener in made.items():
            stack.callback(listener.close)
            address = f"127.0.0.1:{listener.port}"
            registered = {
                **real,
                "port": listener.port,
                "endpoints": [
                    f"{name}://{address}" for name in real["listener_security_protocol_map"]
                ],
            }
            zookeeper.create(f"/brokers/ids/{one}", json.dumps(registered).encode(), ephemeral=True)
        yield made


@pytest.fixture
def stage(kafka_of_one: KafkaLab, listeners: dict[int, Listener]) -> Iterator[Stage]:
    """An operator on this Kafka, with Kubernetes as a double."""
    kafka_of_one.create_topic("acc", [[1], [1], [1]])
    store = ZooKeeperQuotaStore(
        ZooKeeperSession(ZooKeeperConnection(kafka_of_one.zookeeper_connect))
    )
    topology = KafkaTopology(
        KafkaConnection(tuple(kafka_of_one.bootstrap_servers.split(","))),
        topic_names=store.topic_names,
    )
    wait_until(
        lambda: topology.read([]).brokers == {1, *listeners},
        "the sockets to be brokers",
        timeout_seconds=30,
    )
    yield Stage(store=store, leaders=topology)  # type: ignore[arg-type]  # the real one
    topology.close()
    store.close()


def seconds_of_a_pass(stage: Stage) -> float:
    begun = time.monotonic()
    stage.run()
    return time.monotonic() - begun


def test_a_pass_waits_for_no_silent_broker_and_the_plugin_of_another_is_reported(
    stage: Stage, listeners: dict[int, Listener]
) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    assert stage.produce() == "30000000", "three leaders on the real broker"
    came = {one: listener.came for one, listener in listeners.items()}  # Kafka's controller

    def asked() -> set[int]:
        return {one for one, listener in listeners.items() if listener.came > came[one]}

    stage.now += SETTLE_SECONDS
    begun = time.monotonic()
    assert max(seconds_of_a_pass(stage) for _ in range(3)) < 2.0
    wait_until(lambda: asked() >= {*SILENT, WITH_PLUGIN}, "the question", timeout_seconds=5)
    question = stage.controllers["streaming/orders"]._pass.observer._plugins._question
    assert question is not None
    question.join(20.0)
    assert 4.0 < time.monotonic() - begun < 7.0, "5 s for all of them together"
    assert seconds_of_a_pass(stage) < 2.0
    assert stage.condition(policy, "QuotasInSync") == ("False", "QuotasIgnored")
    assert f"Broker {WITH_PLUGIN} sets client.quota.callback.class to {PLUGIN}" in stage.message(
        policy, "QuotasInSync"
    )
