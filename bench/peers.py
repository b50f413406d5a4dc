"""The same work done with Kafka's own tools, on the same machine in the same run: what an operator without Tidegate would call.

`kafka-configs` is a process for each quota. AlterClientQuotas is what it sends, and what a client that batches would send.
"""

import socket
import struct
import time
from statistics import median
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest, AlterClientQuotasResponse

from bench.results import Figure
from lab.java import start_java
from lab.kafka import KafkaLab
from lab.packages import kafka_jars

_TIMEOUT_SECONDS = 120.0
_SIZE = struct.Struct(">i")
_REQUEST_VERSION = 0


def peers(entities: int, commands: int) -> list[Figure]:
    """Set `commands` quotas by kafka-configs, one after the other, and `entities` in one request."""
    with KafkaLab(brokers=3) as kafka:
        by_command = median([_kafka_configs(kafka, number) for number in range(commands)])
        by_request = _alter_client_quotas(kafka, entities)
    return [
        Figure(f"peer: kafka-configs, one quota, median of {commands}", by_command, "s", None),
        Figure(f"peer: AlterClientQuotas, {entities} quotas in one request: answered", by_request, "s", None),
    ]


def _kafka_configs(kafka: KafkaLab, number: int) -> float:
    """Seconds of one whole process, as whoever typed it would wait."""
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--alter", "--add-config", "producer_byte_rate=1048576"]
    arguments += ["--entity-type", "users", "--entity-name", f"peer-{number}"]
    started = time.monotonic()
    directory = kafka.run.path / "kafka-configs"
    with start_java(
        "kafka-configs", "kafka.admin.ConfigCommand", arguments=arguments, options=[], jars=kafka_jars(), directory=directory
    ) as command:
        command.expect_success(_TIMEOUT_SECONDS)
        return time.monotonic() - started


def _alter_client_quotas(kafka: KafkaLab, entities: int) -> float:
    """Seconds from sending one request for all to its answer, which the controller gives when every quota is in ZooKeeper."""
    answer, seconds = _ask(kafka.bootstrap_servers.split(",")[0], AlterClientQuotasRequest(entries=_entries(entities), validate_only=False))
    refused = [entry.error_message for entry in answer.entries if entry.error_code]
    if refused or len(answer.entries) != entities:
        raise RuntimeError(f"AlterClientQuotas: {len(answer.entries)} answers, {len(refused)} refused, first: {refused[:1]}")
    return seconds


def _entries(entities: int) -> list[Any]:
    kinds = AlterClientQuotasRequest.EntryData
    return [
        kinds(
            entity=[kinds.EntityData(entity_type="user", entity_name=f"batch-{number}")],
            ops=[kinds.OpData(key="producer_byte_rate", value=float(1_000_000 + number), remove=False)],
        )
        for number in range(entities)
    ]


def _ask(address: str, request: Any) -> tuple[Any, float]:
    host, _, port = address.rpartition(":")
    request.API_VERSION = _REQUEST_VERSION
    request.with_header(correlation_id=1, client_id="bench")
    sent = request.encode(version=_REQUEST_VERSION, header=True, framed=True)
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as connection, connection.makefile("rb") as answers:
        started = time.monotonic()
        connection.sendall(sent)
        (size,) = _SIZE.unpack(answers.read(_SIZE.size))
        raw = answers.read(size)
        seconds = time.monotonic() - started
    return AlterClientQuotasResponse.decode(raw, version=_REQUEST_VERSION, header=True), seconds
