"""Reading brokers and leaders out of a Metadata answer. What is not certain is counted as leaderless or refused, never guessed."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from controller_logic.model import TopicLeaders, Topology
from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, Unauthorized
from tidegate.kafka.broker_messages import for_code

_NONE = 0
_UNKNOWN_TOPIC = 3
_LEADER_NOT_AVAILABLE = 5
_REPLICA_NOT_AVAILABLE = 9  # some follower is away; the leader that is named is right
_INVALID_TOPIC = 17
_NOT_AUTHORIZED = 29
_ABSENT = {_UNKNOWN_TOPIC, _INVALID_TOPIC}
_USABLE = {_NONE, _LEADER_NOT_AVAILABLE, _REPLICA_NOT_AVAILABLE}


def topology_of(answer: Any, *, read_at_seconds: float) -> Topology:
    """The topology in a Metadata answer (v4).

    Raises Incomplete when it names no broker or when a topic comes with an error that says nothing about its existence, Unauthorized
    when a topic may not be described.
    """
    brokers = frozenset(broker.node_id for broker in answer.brokers)
    if not brokers:
        raise Incomplete(
            Reason.TOPOLOGY_INCOMPLETE, "A broker answered but named no brokers; it has just started. The next pass asks again."
        )
    topics = {topic.name: _leaders(topic, brokers) for topic in answer.topics if _exists(topic)}
    return Topology(read_at_seconds, brokers, topics, answer.cluster_id)


def matching(patterns: Iterable[str], names: Collection[str]) -> set[str]:
    """The topics to ask for: names as they are, and for each prefix (ending in `*`) those of `names` that start with it."""
    wanted: set[str] = set()
    for pattern in patterns:
        if pattern.endswith("*"):
            wanted.update(name for name in names if name.startswith(pattern[:-1]))
        else:
            wanted.add(pattern)
    return wanted


def _exists(topic: Any) -> bool:
    code = topic.error_code
    if code == _NOT_AUTHORIZED:
        raise Unauthorized(f"The brokers do not let Tidegate describe topic {topic.name}. Grant its user Describe on the topic.")
    if code != _NONE and code not in _ABSENT:
        raise Incomplete(
            Reason.TOPOLOGY_INCOMPLETE,
            f"The leaders of topic {topic.name} are not known: {for_code(code).__name__}. Quotas stay as they are until they are.",
        )
    return bool(code == _NONE)


def _leaders(topic: Any, brokers: frozenset[int]) -> TopicLeaders:
    leaders: Counter[int] = Counter()
    leaderless = 0
    for partition in topic.partitions:
        if partition.error_code not in _USABLE:
            raise Incomplete(
                Reason.TOPOLOGY_INCOMPLETE,
                f"The leader of topic {topic.name}, partition {partition.partition_index} is not known: "
                f"{for_code(partition.error_code).__name__}. Quotas stay as they are until it is.",
            )
        if partition.leader_id in brokers:
            leaders[partition.leader_id] += 1
        else:
            leaderless += 1
    return TopicLeaders(dict(leaders), leaderless)
