"""How long it takes to know the leaders of 20,000 partitions from the bytes of one Metadata answer (bound: 300 ms).

Only decoding and counting are measured; the broker and the network are not. The bound is held against processor time, which on an idle
core is the time that passes; both are printed, so that a busy machine shows. `python -m bench.metadata_bench`
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from tidegate.kafka.broker_messages import MetadataResponse
from tidegate.kafka.leaders import topology_of

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


def main() -> int:
    """Print one line; 1 when the bound is missed at the median."""
    data = synthetic_answer()
    processor, clock = measure(data)
    median = statistics.median(processor)
    print(
        f"{TOPICS * PARTITIONS_PER_TOPIC} partitions, {BROKERS} brokers, {len(data) / 1e3:.0f} kB: processor median {median:.0f} ms, "
        f"worst of {_RUNS} {max(processor):.0f} ms; clock median {statistics.median(clock):.0f} ms (bound {BOUND_MILLISECONDS:.0f} ms)"
    )
    return int(median > BOUND_MILLISECONDS)


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


if __name__ == "__main__":
    raise SystemExit(main())
