"""A member in a process of its own: `member_process NAME TOPICS_FILE zookeeper|kafka ADDRESS PREFIX`."""

import sys
from pathlib import Path

from tests.contract.membership_contract import SHORT_SECONDS, play
from tidegate.forwarder.kafka_members import KafkaMembers
from tidegate.forwarder.membership import Membership
from tidegate.forwarder.zookeeper_members import ZooKeeperMembers
from tidegate.kafka.settings import ZooKeeperConnection

NAME, TOPICS_FILE, KIND, ADDRESS, PREFIX = sys.argv[1:]


def join(member: str) -> Membership:
    """One session after another, each of the short timeout."""
    if KIND == "kafka":
        return KafkaMembers({"bootstrap.servers": ADDRESS}, PREFIX, member, SHORT_SECONDS)
    connection = ZooKeeperConnection(ADDRESS, session_timeout_seconds=SHORT_SECONDS)
    return ZooKeeperMembers(connection, PREFIX, member)


play(join, NAME, Path(TOPICS_FILE))
