"""Leaders are read from a Metadata answer without guessing: absent, leaderless and unknown are
three different things.
"""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.errors import Incomplete, TidegateError, Unauthorized
from tidegate.kafka.brokers import matching, topology_of
from tidegate.kafka.protocol import metadata
from tidegate_logic.model import TopicLeaders

Broker = metadata.MetadataResponse.MetadataResponseBroker
Topic = metadata.MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def topic(name: str, *partitions: tuple[int, int], error_code: int = 0) -> Any:
    """A topic with (leader, error code) for each partition."""
    made = [
        Partition(
            error_code=code, partition_index=index, leader_id=leader, replica_nodes=[], isr_nodes=[]
        )
        for index, (leader, code) in enumerate(partitions)
    ]
    return Topic(error_code=error_code, name=name, is_internal=False, partitions=made)


def answer(*topics: Any, brokers: tuple[int, ...] = (1, 2, 3)) -> Any:
    """An answer as a broker would send it, through bytes and back."""
    made = [Broker(node_id=broker, host="b", port=9092, rack=None) for broker in brokers]
    sent = metadata.MetadataResponse(
        throttle_time_ms=0, brokers=made, cluster_id="c", controller_id=1, topics=list(topics)
    )
    return metadata.MetadataResponse.decode(sent.encode(version=4), version=4)


def test_leaders_are_counted_for_each_broker_and_topic() -> None:
    topology = topology_of(
        answer(topic("a", (1, 0), (2, 0), (1, 9)), topic("b", (3, 0))), read_at_seconds=5.0
    )
    assert topology.brokers == {1, 2, 3}
    assert topology.topics == {"a": TopicLeaders({1: 2, 2: 1}), "b": TopicLeaders({3: 1})}
    assert topology.read_at_seconds == 5.0
    assert topology.cluster_id == "c"


def test_in_sync_replicas_are_counted_if_wanted_without_brokers_that_are_gone() -> None:
    asked = topic("a", (1, 0), (2, 0), (1, 9), (-1, 5))
    for partition, in_sync in zip(asked.partitions, ([1, 3], [9, 3, 2], [3, 1], [2]), strict=True):
        partition.isr_nodes = in_sync
    topology = topology_of(answer(asked), read_at_seconds=0.0, with_in_sync=True)
    assert dict(topology.topics["a"].in_sync) == {(1, 3): 2, (2, 3): 1}


@pytest.mark.parametrize(
    "partition", [(-1, 5), (-1, 0), (9, 0)], ids=["not available", "none", "a broker that is gone"]
)
def test_a_partition_without_a_living_leader_is_leaderless(partition: tuple[int, int]) -> None:
    topology = topology_of(answer(topic("a", (1, 0), partition)), read_at_seconds=0.0)
    assert topology.topics["a"] == TopicLeaders({1: 1}, leaderless=1)


@pytest.mark.parametrize("code", [3, 17], ids=["unknown", "impossible name"])
def test_a_topic_that_does_not_exist_is_left_out(code: int) -> None:
    assert topology_of(answer(topic("a", error_code=code)), read_at_seconds=0.0).topics == {}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (answer(topic("a", error_code=5)), Incomplete),
        (answer(topic("a", error_code=-1)), Incomplete),
        (answer(topic("a", (1, -1))), Incomplete),
        (answer(brokers=()), Incomplete),
        (answer(topic("a", error_code=29)), Unauthorized),
    ],
    ids=["topic not ready", "topic error", "partition error", "no brokers", "not authorized"],
)
def test_an_answer_that_says_nothing_for_certain_is_refused(
    wrong: Any, error: type[TidegateError]
) -> None:
    with pytest.raises(error):
        topology_of(wrong, read_at_seconds=0.0)


def test_prefixes_are_resolved_and_names_are_taken_as_they_are() -> None:
    names = {"clicks.de", "clicks.fr", "clicksfr", "other"}
    assert matching(["clicks.*", "orders"], names) == {"clicks.de", "clicks.fr", "orders"}
    assert matching(["none.*"], names) == set()
