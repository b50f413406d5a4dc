"""The names of a DelayQueue's topics, group, transactions, nodes and headers."""

import re
from dataclasses import dataclass
from enum import StrEnum

TARGET_HEADER = "tidegate-target"
"""Where a record goes; the queue's default target without it."""
ID_HEADER = "tidegate-id"
"""By which a message can be cancelled, where the queue allows that."""
DUE_HEADER = "tidegate-due"
"""Added to what is forwarded: when it was due, in ms since 1970 by the brokers' clock."""
REASON_HEADER = "tidegate-reason"
"""Added to records in the dead topic: why they could not go to their target."""

_PREFIX = re.compile(r"[a-zA-Z0-9._-]+")
_LEVEL = re.compile(r"(?P<seconds>[1-9][0-9]{0,8})\.(?P<number>0|[1-9][0-9]{0,3})")
_LONGEST_TOPIC_NAME = 249  # Kafka's own limit
LONGEST_PREFIX = _LONGEST_TOPIC_NAME - len(".999999999.9999")


class Guarantee(StrEnum):
    """How often a record may arrive."""

    AT_LEAST_ONCE = "AtLeastOnce"
    EXACTLY_ONCE = "ExactlyOnce"


@dataclass(frozen=True, slots=True, order=True)
class LevelTopic:
    """A topic whose records wait `delay_seconds`; `number` tells topics of one delay apart."""

    prefix: str
    delay_seconds: int
    number: int

    @property
    def name(self) -> str:
        """Its name in Kafka."""
        return f"{self.prefix}.{self.delay_seconds}.{self.number}"


@dataclass(frozen=True, slots=True)
class QueueNames:
    """Everything that is named after a queue's prefix, such as `shop.unpaid`."""

    prefix: str

    @property
    def is_valid(self) -> bool:
        """Whether Kafka allows topics with this prefix."""
        return len(self.prefix) <= LONGEST_PREFIX and _PREFIX.fullmatch(self.prefix) is not None

    @property
    def dead_topic(self) -> str:
        """Records that could not go to their target, each with a reason."""
        return f"{self.prefix}.dead"

    @property
    def control_topic(self) -> str:
        """What the operator says about the queue: who has claimed the prefix."""
        return f"{self.prefix}.control"

    @property
    def cancelled_topic(self) -> str:
        """The ids of cancelled messages, as keys."""
        return f"{self.prefix}.cancelled"

    @property
    def group(self) -> str:
        """The consumer group whose offsets are the positions. It never has members."""
        return f"{self.prefix}.forwarders"

    @property
    def members_group(self) -> str:
        """The consumer group of membership by Kafka's protocol.

        It is a separate one: brokers refuse plain offset commits in a group that has members.
        """
        return f"{self.prefix}.members"

    def transactional_id(self, member: str) -> str:
        """The id of a member's transactions."""
        return f"{self.group}.{member}"

    @property
    def zookeeper_root(self) -> str:
        """The node of the forwarders' membership, under Kafka's chroot."""
        return f"/tidegate/queues/{self.prefix}"

    def level_topic(self, delay_seconds: int, number: int) -> LevelTopic:
        """The `number`th topic of a delay."""
        return LevelTopic(self.prefix, delay_seconds, number)

    def parse_level(self, topic: str) -> LevelTopic | None:
        """The level topic of this name; None for any other topic.

        A delay with leading zeros has no meaning here, so that one level has one name.
        """
        start = f"{self.prefix}."
        match = _LEVEL.fullmatch(topic, len(start)) if topic.startswith(start) else None
        return match and LevelTopic(self.prefix, int(match["seconds"]), int(match["number"]))

    def is_own(self, topic: str) -> bool:
        """Whether a topic is part of this queue, and so never a target."""
        own = (self.dead_topic, self.control_topic, self.cancelled_topic)
        return topic in own or self.parse_level(topic) is not None
