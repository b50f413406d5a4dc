"""`tidegate forward` as a process."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.process import Process, start
from tests.integration.forwarder.queue_world import QueueWorld

SESSION_SECONDS = 6


def start_forwarder(
    queue: QueueWorld, name: str, folder: Path, *, zookeeper: str | None
) -> Process:
    """A forwarder of this queue, with membership in ZooKeeper or by Kafka's protocol."""
    arguments = [
        *("--prefix", queue.prefix),
        *("--bootstrap-servers", queue.kafka.bootstrap_servers),
        *("--guarantee", queue.guarantee),
        *("--allowed", f"{queue.prefix}-*"),
        *("--default-target", queue.target),
        *("--member", name),
        *("--session-timeout", str(SESSION_SECONDS)),
        *("--metrics-port", "0"),
        *("--listen-address", "127.0.0.1"),
    ]
    if zookeeper is not None:
        arguments += ["--zookeeper", zookeeper]
    return start(
        name,
        [sys.executable, "-m", "tidegate", "forward", *arguments],
        log_path=folder / f"{name}.log",
        niceness=0,
    )
