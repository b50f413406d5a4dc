"""A key goes to the partition that Java's producers choose for it."""

from __future__ import annotations

import pytest
from kafka.partitioner.default import murmur2

from tests.integration.forwarder.queue_world import QueueWorld

pytestmark = pytest.mark.integration

# from Kafka's own UtilsTest.testMurmur2
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def test_keys_keep_the_partition_that_java_gives_them(queue: QueueWorld) -> None:
    assert {key: murmur2(key) & 0xFFFFFFFF for key in JAVA_MURMUR2} == {
        key: value & 0xFFFFFFFF for key, value in JAVA_MURMUR2.items()
    }
    (level,) = queue.create(partitions=7)
    keys = [*JAVA_MURMUR2, *(b"key-%d" % number for number in range(100))]
    with queue.forwarding(), queue.reading() as reader:
        queue.send(level, keys, key=lambda number: keys[number])
        records = reader.until(len(keys))
    assert {r.key: r.partition for r in records} == {key: partition_of(key, 7) for key in keys}
