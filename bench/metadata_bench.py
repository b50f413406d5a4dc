"""How long it takes to know the leaders of 20,000 partitions from the bytes of one Metadata answer (bound: 300 ms).

Only decoding and counting are measured; the broker and the network are not. The bound is held against the clock; processor time is
printed beside it, so that a busy machine shows.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from bench.results import Figure
from tidegate.kafka.brokers import MetadataResponse, topology_of

BROKERS, TOPICS, PARTITIONS_PER_TOPIC, REPLICAS = 50, 1000, 20, 3
BOUND_MILLISECONDS = 300.0
_RUNS = 20
_VERSION = 4


def synthetic_answer() -> bytes:
    """A Metadata answer (v4) as one broker of a large cluster would send it: 860 kB."""
    topics = [_topic(number) for number in range(TOPICS)]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=i, host=f"broker-{i}", port=9092, rack=None) for i in range(BROKERS)]
    answer = MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id="bench", controller_id=1, topics=topics)
    return bytes(answer.encode(version=_VERSION))


def measure(data: bytes) -> tuple[list[float], list[float]]:
    """Milliseconds of each run from bytes to topology: of the processor, and of the clock."""
    processor, clock = [], []
    for _ in range(_RUNS):
        started = time.process_time(), time.perf_counter()
        topology = topology_of(MetadataResponse.decode(data, version=_VERSION), read_at_seconds=0.0)
        processor.append((time.process_time() - started[0]) * 1000)
        clock.append((time.perf_counter() - started[1]) * 1000)
        if sum(topic.partitions for topic in topology.topics.values()) != TOPICS * PARTITIONS_PER_TOPIC:
            raise RuntimeError("partitions were lost on the way")
    return processor, clock


def metadata_figures() -> list[Figure]:
    """The clock's median against the bound, and the processor's beside it."""
    data = synthetic_answer()
    processor, clock = measure(data)
    partitions, size = f"{TOPICS * PARTITIONS_PER_TOPIC:,}", f"{len(data) / 1e3:.0f} kB"
    what = f"leaders of {partitions} partitions on {BROKERS} brokers from one Metadata answer of {size}"
    note = f"best {min(clock):.0f} ms, worst {max(clock):.0f} ms; processor median {median(processor):.0f} ms, best {min(processor):.0f} ms"
    return [Figure(f"{what}, median of {len(clock)}", median(clock), "ms", BOUND_MILLISECONDS, note)]


def _topic(number: int) -> Any:
    topic = MetadataResponse.MetadataResponseTopic
    partitions = []
    for index in range(PARTITIONS_PER_TOPIC):
        replicas = [(number + index + offset) % BROKERS for offset in range(REPLICAS)]
        partitions.append(
            topic.MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=replicas[0], replica_nodes=replicas, isr_nodes=replicas
            )
        )
    return topic(error_code=0, name=f"topic-{number:04d}", is_internal=False, partitions=partitions)
