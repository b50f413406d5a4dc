"""What a broker has of a request at the moment that decides whether it is sent."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from tidegate.errors import LeaseLost
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.replication import KafkaReplication
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.replication.throttles import ConfigChange, Operation, topic_resource

SIZE = struct.Struct(">i")
HEADER = struct.Struct(">hhi")
QUOTAS = {Entity(f"user-{number}"): {QuotaKey.PRODUCER_BYTE_RATE: "1024"} for number in range(2000)}


@dataclass
class Broker:
    """Listens, and keeps what came of each connection until it is closed or a request is whole."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    came: bytearray = field(default_factory=bytearray)
    lacks_a_byte: threading.Event = field(default_factory=threading.Event)
    is_whole: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def settings(self) -> KafkaConnection:
        return KafkaConnection((f"127.0.0.1:{self.listener.getsockname()[1]}",))

    def missing(self) -> int:
        """How many bytes of the request have not come."""
        return SIZE.size + int(SIZE.unpack(self.came[: SIZE.size])[0]) - len(self.came)

    def close(self) -> None:
        self.listener.close()

    def _serve(self) -> None:
        with self.listener.accept()[0] as connection:
            while data := connection.recv(1 << 16):
                self.came += data
                if len(self.came) < SIZE.size:
                    continue
                if self.missing() == 1:
                    self.lacks_a_byte.set()
                if not self.missing():
                    self.is_whole.set()
                    connection.sendall(self._answer())
            self.hung_up.set()

    def _answer(self) -> bytes:
        """No throttle and no entries: enough for AlterClientQuotas and IncrementalAlterConfigs."""
        _, _, correlation_id = HEADER.unpack(self.came[SIZE.size : SIZE.size + HEADER.size])
        body = struct.pack(">iii", correlation_id, 0, 0)
        return SIZE.pack(len(body)) + body


@pytest.fixture
def broker() -> Iterator[Broker]:
    with closing(Broker()) as one:
        yield one


def test_the_question_is_the_last_thing_before_the_end_of_the_request(broker: Broker) -> None:
    """It is asked once everything else is done: login, encoding, and sending all but a byte."""
    there: list[bool] = []

    def may_write() -> bool:
        there.append(broker.lacks_a_byte.wait(30) and not broker.is_whole.is_set())
        return True

    with closing(AdminClient(broker.settings)) as client:
        client.may_write = may_write
        assert alter(client, QUOTAS, "ledger") == {}
    assert there == [True]
    assert broker.is_whole.is_set()


@pytest.mark.parametrize("way", ["quotas", "throttles"])
def test_a_change_without_the_lease_reaches_the_broker_without_its_end(
    broker: Broker, way: str
) -> None:
    def send_quotas() -> None:
        with closing(AdminClient(broker.settings)) as client:
            client.may_write = lambda: False
            alter(client, QUOTAS, "ledger")

    def send_throttles() -> None:
        key = "leader.replication.throttled.replicas"
        changes = [
            ConfigChange(topic_resource(f"topic-{number}"), key, Operation.SET, "*")
            for number in range(400)
        ]
        with closing(KafkaReplication(broker.settings)) as replication:
            replication.alter(changes, lambda: False)

    with pytest.raises(LeaseLost):
        {"quotas": send_quotas, "throttles": send_throttles}[way]()
    assert broker.hung_up.wait(30)
    assert broker.missing() == 1
    assert not broker.is_whole.is_set()
