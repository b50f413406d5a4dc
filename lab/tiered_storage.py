"""Brokers whose closed segments go to a directory, as they would to an object store.

    with KraftLab(version=KAFKA_4, jars=with_tiered_storage, server_properties=settings(empty)):
        create_topic("orders", [[1]], config=topic_config(segment_bytes=1 << 20))

The directory has to be empty, or its segments count again.
"""

import urllib.request
from pathlib import Path

from lab.kafka import Broker


def settings(directory: Path) -> dict[str, str]:
    """The settings of every broker; within a second of its end a segment is copied."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "rsm.config.dir": str(directory),
        "remote.log.metadata.manager.listener.name": "INTERNAL",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "1000",
    }


def topic_config(segment_bytes: int) -> dict[str, str]:
    """A topic whose closed segments are kept in the remote store only."""
    return {
        "remote.storage.enable": "true",
        "local.retention.ms": "1000",
        "retention.ms": "3600000",
        "segment.bytes": str(segment_bytes),
    }


def copied_bytes(broker: Broker) -> float:
    """How much it has copied to the remote store since its start, by its exporter."""
    address = f"http://{broker.plan.host}:{broker.plan.ports.jmx}/metrics"
    with urllib.request.urlopen(address, timeout=20) as metrics:
        lines = metrics.read().decode().splitlines()
    named = "kafka_broker_remotecopybytes_total"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(named))
