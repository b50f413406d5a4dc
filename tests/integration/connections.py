"""Connections to the lab's brokers that wait as long as a busy machine needs."""

from __future__ import annotations

from tidegate.kafka.settings import KafkaConnection, SaslLogin

ANSWER_SECONDS = 60.0


def connection_of(bootstrap_servers: str, sasl: SaslLogin | None = None) -> KafkaConnection:
    """Brokers that do answer: Tidegate's 10 s are too few where forty processes share a core."""
    servers = tuple(bootstrap_servers.split(","))
    return KafkaConnection(servers, sasl=sasl, request_timeout_seconds=ANSWER_SECONDS)
