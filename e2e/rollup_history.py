"""A Prometheus on the lab's bridge with three hours of two days ago in it: brokers and users whose
every byte is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from lab.kafka import KafkaLab
from tests.integration.rollup.history_server import HistoryServer

BROKERS = range(1, 7)
USERS = {f"user-{number}": 100_000 * number for number in range(1, 11)}  # bytes/s on every broker
HOURS = 3
_SCRAPE_SECONDS = 15


def window() -> tuple[datetime, datetime]:
    """The last hours of a day so long over that a Job computes no earlier ones for late samples; no
    retention reaches it.
    """
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
        days=1
    )
    return midnight - timedelta(hours=HOURS), midnight


def bytes_of(user: str) -> int:
    """What the user fetched within the window, on all brokers together."""
    return USERS[user] * len(BROKERS) * HOURS * 3600


@contextmanager
def made_up_history(kafka: KafkaLab) -> Iterator[HistoryServer]:
    """It serves while the context is open."""
    directory = kafka.run.path / "history"
    directory.mkdir()
    with HistoryServer(directory, kafka.bridge.gateway) as server:
        for broker in BROKERS:
            _write_broker(server, broker)
        yield server


def _write_broker(server: HistoryServer, broker: int) -> None:
    start, end = (round(edge.timestamp()) for edge in window())
    times = range(start - 60, end + 61, _SCRAPE_SECONDS)
    labels, total = {"broker": str(broker)}, sum(USERS.values())
    server.write(
        "kafka_broker_bytesout_total",
        (labels, [(at * 1000, total * (at - times.start)) for at in times]),
    )
    server.write(
        "node_network_transmit_bytes_total",
        (
            {**labels, "device": "eth0"},
            [(at * 1000, 1.05 * total * (at - times.start)) for at in times],
        ),
    )
    for metric, factor in (("kafka_quota_byte_rate", 1.04), ("kafka_quota_throttle_time", 0.0)):
        clients = [{**labels, "user": user, "resource": "Fetch"} for user in USERS]
        server.write(
            metric,
            *(
                (client, [(at * 1000, factor * USERS[client["user"]]) for at in times])
                for client in clients
            ),
        )
