"""A small producer of a throttled user, with the real Java client and its defaults: does a record of it get lost?

Kafka mutes connections of a user, whoever of them used the quota up, and a Java producer gives a record up after two minutes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from lab.java import properties, start_java
from lab.kafka import KafkaLab
from lab.packages import kafka_jars
from lab.process import Process

TOPIC = "neighbour"
_RECORD_BYTES = 10_000
_RECORDS_PER_SECOND = 30
_GRACE_SECONDS = 150.0  # longer than the client's own delivery.timeout.ms


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The running producer of `records` records at 0.3 MB/s."""

    kafka: KafkaLab
    process: Process
    records: int
    offset_before: int

    def lost(self) -> int:
        """Wait for its end and say how many records did not arrive; `LabError` when it failed."""
        self.process.expect_success(self.records / _RECORDS_PER_SECOND + _GRACE_SECONDS)
        return self.records - (_end_offset(self.kafka) - self.offset_before)


@contextmanager
def neighbour(kafka: KafkaLab, user: str, *, seconds: int) -> Iterator[Neighbour]:
    """It produces for that long; the topic must be there, with one partition."""
    config = kafka.run.path / "neighbour" / "producer.properties"
    config.parent.mkdir(parents=True, exist_ok=True)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{kafka.password(user)}";'
    config.write_text(
        properties(
            {
                "bootstrap.servers": kafka.sasl_bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": login,
            }
        )
    )
    records = seconds * _RECORDS_PER_SECOND
    sizes = ["--num-records", str(records), "--record-size", str(_RECORD_BYTES), "--throughput", str(_RECORDS_PER_SECOND)]
    before = _end_offset(kafka)
    with start_java(
        "neighbour",
        "org.apache.kafka.tools.ProducerPerformance",
        arguments=["--topic", TOPIC, *sizes, "--producer.config", str(config)],
        options=["-Xmx96m"],
        jars=kafka_jars(),
        directory=config.parent,
        namespace=kafka.client_namespace.name if kafka.client_namespace else None,
    ) as process:
        yield Neighbour(kafka, process, records, before)


def _end_offset(kafka: KafkaLab) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "neighbour-offsets"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
        return int(end)
    finally:
        consumer.close()
