"""What one login may do with the topics and groups of a delay queue, and whether they can be used.

Brokers are asked which operations they allow, so that nothing has to be tried. Nothing is changed:
an internal topic that is missing is not asked for in a way that creates it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tidegate.errors import Unreachable
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.protocol import admin, for_code, metadata
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.reasons import Reason

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
_MAY_NOT_SEE_TOPIC = 29
_NO_SUCH_TRANSACTION = 105
_NOT_AUTHORIZED = frozenset({30, 53})
_OF_A_GROUP, _OF_A_TRANSACTION = 0, 1


class Operation(IntEnum):
    """Kafka's number of an operation."""

    READ = 3
    WRITE = 4


@dataclass(frozen=True, slots=True)
class ProbedTopic:
    """A topic as one login sees it. One that is hidden, or does not exist, has no more fields.

    `fewest_replicas` is of the partition that has the fewest, `leaderless` counts partitions.
    """

    exists: bool
    is_hidden: bool = False
    fewest_replicas: int = 0
    leaderless: int = 0
    operations: frozenset[int] = frozenset()

    def allows(self, operation: Operation) -> bool:
        """Whether this login may do that with the topic."""
        return operation in self.operations


class QueueProbe:
    """Questions by one login. Its calls raise Unreachable and Unauthorized."""

    def __init__(self, settings: KafkaConnection) -> None:
        self._client = AdminClient(settings)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def topics(self, names: Collection[str]) -> Mapping[str, ProbedTopic]:
        """Each of these topics, as this login sees it. Needs brokers of Kafka 2.3 or later."""
        kind = metadata.MetadataRequest.MetadataRequestTopic
        request = metadata.MetadataRequest[8](
            topics=[kind(name=name) for name in sorted(names)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        return {topic.name: _probed(topic) for topic in self._client.read(request).topics}

    def may_commit_in(self, group: str) -> bool:
        """Whether this login may read the group, which lets it join and commit."""
        request = admin.DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        answer = self._ask_coordinator(group, _OF_A_GROUP, request)
        if answer is None:
            return False
        (found,) = answer.groups
        if found.error_code in _NOT_AUTHORIZED:
            return False
        _require(found.error_code, f"The coordinator of group {group}")
        return Operation.READ in found.authorized_operations

    def may_use_transactions(self, transactional_id: str) -> bool:
        """Whether this login may see the transactional id. Raises Unreachable if its coordinator
        is not ready. Needs brokers of Kafka 3.0 or later.
        """
        request = admin.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = self._ask_coordinator(transactional_id, _OF_A_TRANSACTION, request)
        if answer is None:
            return False
        (found,) = answer.transaction_states
        if found.error_code in _NOT_AUTHORIZED:
            return False
        if found.error_code != _NO_SUCH_TRANSACTION:
            _require(found.error_code, f"The coordinator of transactional id {transactional_id}")
        return True

    def _ask_coordinator(self, key: str, kind: int, request: Any) -> Any | None:
        """The coordinator's answer; None = this login may not even know who it is."""
        found = self._client.read(metadata.FindCoordinatorRequest(key=key, key_type=kind))
        if found.error_code in _NOT_AUTHORIZED:
            return None
        _require(found.error_code, f"The coordinator of {key}")
        try:
            return self._client.ask(request, (found.host, found.port))
        except Lost as error:
            raise Unreachable(
                Reason.BROKERS_UNREACHABLE,
                f"The coordinator of {key}, {found.host}:{found.port}, does not answer ({error}).",
            ) from error


def _probed(topic: Any) -> ProbedTopic:
    if topic.error_code == _MAY_NOT_SEE_TOPIC:
        return ProbedTopic(exists=False, is_hidden=True)
    if not topic.partitions:
        return ProbedTopic(exists=False)
    return ProbedTopic(
        exists=True,
        fewest_replicas=min(len(one.replica_nodes) for one in topic.partitions),
        leaderless=sum(one.leader_id < 0 for one in topic.partitions),
        operations=frozenset(topic.authorized_operations),
    )


def _require(code: int, what: str) -> None:
    if code:
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE, f"{what} is not available ({for_code(code).__name__})."
        )
