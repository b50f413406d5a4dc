"""What producers, forwarders and people do with the topics of a delay queue in a test."""

import uuid

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lab.process import patience
from tidegate.queues.names import QueueNames
from tidegate.queues.position import PositionNote


class QueueClients:
    """Clients of one cluster without a login."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._admin = AdminClient(self._servers)

    def produce(self, topic: str, count: int = 1, *, key: str | None = None) -> None:
        """Write so many records and wait for the brokers' acknowledgement."""
        producer = Producer({**self._servers, "acks": "all"})
        for number in range(count):
            producer.produce(topic, f"message {number}", key=key, partition=0)
        assert producer.flush(patience(30)) == 0

    def produce_in_transaction(self, topic: str, count: int, *, commit: bool = True) -> None:
        """The same as one transaction, which ends with a record of Kafka's own."""
        settings = {**self._servers, "transactional.id": f"test-{uuid.uuid4().hex}"}
        producer = Producer(settings)
        producer.init_transactions(patience(30))
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, f"message {number}", partition=0)
        producer.flush(patience(30))
        if commit:
            producer.commit_transaction(patience(30))
        else:
            producer.abort_transaction(patience(30))

    def commit(
        self, names: QueueNames, topic: str, offset: int, note: PositionNote | str = ""
    ) -> None:
        """Commit a position as a forwarder does, with a note."""
        text = note if isinstance(note, str) else note.text()
        consumer = Consumer({**self._servers, "group.id": names.group})
        try:
            position = TopicPartition(topic, 0, offset, metadata=text)
            consumer.commit(offsets=[position], asynchronous=False)
        finally:
            consumer.close()

    def delete_records(self, topic: str, before: int) -> None:
        """Delete what lies before an offset, as retention does."""
        for done in self._admin.delete_records([TopicPartition(topic, 0, before)]).values():
            done.result(patience(30))

    def topics(self, prefix: str) -> set[str]:
        """The topics that begin with the prefix and a dot."""
        found = self._admin.list_topics(timeout=patience(30)).topics
        return {name for name in found if name.startswith(f"{prefix}.")}

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (done,) = self._admin.describe_configs([resource]).values()
        found = done.result(patience(30))
        return {name: one.value for name, one in found.items() if one.source == _OF_THE_TOPIC}

    def set(self, topic: str, name: str, value: str) -> None:
        """Change one setting of the topic, as a person does."""
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(patience(30))

    def values(self, topic: str, key: bytes) -> list[bytes | None]:
        """The values of a key that were committed, oldest first; compaction may leave some out."""
        settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self._servers, **settings})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        try:
            while (message := consumer.poll(patience(30))) is not None:
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                if message.key() == key:
                    found.append(message.value())
        finally:
            consumer.close()
        raise AssertionError(f"{topic} was not read to its end in time")


_OF_THE_TOPIC = 1
