"""Reassignments, sizes of logs and replication throttles by the admin protocol.

It works alike on clusters with ZooKeeper and with KRaft. What belongs to one broker, its logs and
its configuration, only that broker answers; they are asked at once, each for some seconds, and one
that is silent is left out.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tidegate.errors import Incomplete, TidegateError, Unauthorized
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.brokers import BrokerConnection
from tidegate.kafka.protocol import admin, for_code
from tidegate.kafka.quota_store import require_lease
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import DIRECTIONS, TIERED_STORAGE, Tiering
from tidegate_logic.replication.moves import (
    ClusterReplication,
    PartitionState,
    ReplicaKey,
)
from tidegate_logic.replication.throttles import (
    BACKGROUND_KEYS,
    KEYS,
    ConfigChange,
    Configs,
    Operation,
    Resource,
    ResourceKind,
    broker_resource,
    topic_resource,
)

_BROKER_SECONDS = 3.0  # for all brokers that are asked together
_LOOK_SECONDS = 1.0  # for the one question between passes
_TOPICS_AT_ONCE = 500
_NONE, _UNKNOWN_TOPIC = 0, 3
_NOT_AUTHORIZED = {29, 31}
_KINDS = {ResourceKind.TOPIC: 2, ResourceKind.BROKER: 4}
_OF_ITS_OWN = {ResourceKind.TOPIC: 1, ResourceKind.BROKER: 2}  # no default, and not of a file
_OPERATIONS = {
    Operation.SET: 0,
    Operation.DELETE: 1,
    Operation.APPEND: 2,
    Operation.SUBTRACT: 3,
}
RIGHTS = (
    "DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster, and the same on the topics that "
    "are moved"
)


class KafkaReplication:
    """Replication of one cluster. One thread at a time may use it."""

    def __init__(
        self, settings: KafkaConnection, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._client = AdminClient(settings)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._open: dict[int, BrokerConnection] = {}
        self._controller: int | None = None
        self._listed: frozenset[_Listed] | None = None

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        """What is moving now; `with_recovery` also every replica that is out of sync.

        Raises Unreachable, Incomplete or Unauthorized where the cluster did not answer in full.
        """
        self._listed = None
        answer = self._metadata(None if with_recovery else ())
        moving = self._reassignments(answer)
        if moving and not with_recovery:
            answer = self._metadata(sorted({topic for topic, _ in moving}))
        brokers = frozenset(self._addresses)
        partitions = tuple(_partitions(answer, moving, brokers))
        sizes = self._sizes(partitions)
        return ClusterReplication(self._clock(), brokers, partitions, sizes)

    def has_changed(self) -> bool:
        """Whether other partitions are reassigned now than when that was last read or asked.

        One small question to the controller between passes. False also where it did not answer
        within a second: the next pass asks in full.
        """
        if self._listed is None or self._controller is None:
            return False
        answer = self._ask_brokers({self._controller: _list()}, _LOOK_SECONDS).get(self._controller)
        if answer is None or answer.error_code != _NONE:
            self._listed = None
            return False
        before, self._listed = self._listed, _listed(answer)
        return self._listed != before

    def configs(self, resources: Collection[Resource]) -> Configs:
        """The throttles of these brokers and topics; a broker that did not answer is left out.

        A topic that does not exist has none.
        """
        topics = sorted(one.name for one in resources if one.kind is ResourceKind.TOPIC)
        found: dict[Resource, Mapping[str, str]] = {}
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            some = [topic_resource(name) for name in topics[start : start + _TOPICS_AT_ONCE]]
            found.update(_configs(self._client.read(_describe(some))))
        ids = {int(one.name) for one in resources if one.kind is ResourceKind.BROKER}
        answers = self._ask_brokers(
            {one: _describe([broker_resource(one)]) for one in ids & self._addresses.keys()}
        )
        for one in answers.values():
            found.update(_configs(one))
        return found

    def tiering(self) -> Mapping[int, Tiering]:
        """What each live broker says of its tiered storage; one that did not answer is left out.

        After `read`. A broker names every setting that it knows, if nothing was set as well.
        """
        names = {BACKGROUND_KEYS[kind]: kind for kind in DIRECTIONS}
        answers = self._ask_brokers(
            {
                broker: _describe([broker_resource(broker)], (TIERED_STORAGE, *names))
                for broker in self._addresses
            }
        )
        found: dict[int, Tiering] = {}
        for broker, answer in answers.items():
            (result,) = answer.results
            _require(result.error_code, f"describe the configuration of broker {broker}")
            values = {one.name: one.value for one in result.configs}
            kinds = frozenset(kind for name, kind in names.items() if name in values)
            found[broker] = Tiering(values.get(TIERED_STORAGE) == "true", kinds)
        return found

    def everywhere(self, resources: Collection[Resource]) -> Mapping[int, Configs | None]:
        """Each live broker's throttles of these topics and of itself; None = it did not answer.

        Without ZooKeeper a broker may show a change later than another one.
        """
        self._metadata(())
        shown: dict[int, Configs | None] = {}
        for broker in self._addresses:
            wanted = [
                one
                for one in sorted(resources)
                if one.kind is ResourceKind.TOPIC or one == broker_resource(broker)
            ]
            parts = range(0, len(wanted), _TOPICS_AT_ONCE)
            answers = [
                self._ask_brokers({broker: _describe(wanted[start : start + _TOPICS_AT_ONCE])})
                for start in parts
            ]
            shown[broker] = (
                {key: value for one in answers for key, value in _configs(one[broker]).items()}
                if all(answers)
                else None
            )
        return shown

    def scan(self) -> Configs:
        """The throttles of every topic and every live broker that has one."""
        answer = self._metadata(None)
        resources = [topic_resource(topic.name) for topic in answer.topics]
        resources += [broker_resource(one) for one in self._addresses]
        return {one: values for one, values in self.configs(resources).items() if values}

    def alter(
        self, changes: Sequence[ConfigChange], may_write: Callable[[], bool] = lambda: True
    ) -> Mapping[Resource, str]:
        """Make these changes; returns why not, for each resource that was not changed for sure.

        Raises Unauthorized if the brokers do not let us, and LeaseLost if `may_write`, asked
        right before the end of each request is sent, says so.
        """
        self._client.may_write = may_write
        failed: dict[Resource, str] = {}
        topics = [one for one in changes if one.resource.kind is ResourceKind.TOPIC]
        for some in _by_resource(topics, _TOPICS_AT_ONCE):
            try:
                answer = self._client.write(_alter(some))
            except Lost as error:
                failed.update({one.resource: str(error) for one in some})
                continue
            failed.update(_refusals(answer))
        requests: dict[int, list[ConfigChange]] = {}
        for one in changes:
            if one.resource.kind is ResourceKind.BROKER:
                requests.setdefault(int(one.resource.name), []).append(one)
        answers = self._ask_brokers(
            {one: _alter(some) for one, some in requests.items()},
            confirm=lambda: require_lease(may_write),
        )
        for broker in requests:
            if broker in answers:
                failed.update(_refusals(answers[broker]))
            else:
                failed[broker_resource(broker)] = "it did not answer"
        return failed

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        self._client.close()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _metadata(self, topics: Collection[str] | None) -> Any:
        answer = self._client.metadata(topics)
        if not answer.brokers:
            raise Incomplete(
                Reason.TOPOLOGY_INCOMPLETE,
                "A broker answered but named no brokers; it has just started.",
                consequence="The next pass asks again.",
            )
        self._addresses = {one.node_id: (one.host, one.port) for one in answer.brokers}
        return answer

    def _ask_controller(self, address: tuple[str, int]) -> Any:
        """The answer of whom the brokers name as the controller, or of one other broker.

        A kept connection may have been idle for too long, so it is asked twice. Without ZooKeeper
        brokers name any of them, one that has just died too, and each of them passes the question
        on; with ZooKeeper another broker says that it is not the controller.
        """
        others = [one for one in self._addresses.values() if one != address]
        for where in (address, address, *others[:1]):
            try:
                return self._client.ask(_list(), at=where)
            except Lost as error:
                lost = error
        raise Incomplete(
            Reason.BROKERS_UNREACHABLE,
            f"The controller did not list reassignments ({lost}).",
            consequence="the next pass asks again.",
        ) from lost

    def _reassignments(self, answer: Any) -> dict[tuple[str, int], Any]:
        """The partitions that are being reassigned, as the controller has them."""
        address = self._addresses.get(answer.controller_id)
        if address is None:
            raise Incomplete(
                Reason.CONTROLLER_ABSENT,
                "The cluster has no active controller that lists reassignments now.",
                consequence="the next pass asks again.",
            )
        listed = self._ask_controller(address)
        _require(listed.error_code, "list reassignments")
        self._controller, self._listed = answer.controller_id, _listed(listed)
        return {
            (topic.name, partition.partition_index): partition
            for topic in listed.topics
            for partition in topic.partitions
        }

    def _sizes(self, partitions: Iterable[PartitionState]) -> dict[ReplicaKey, int]:
        """The sizes of the replicas of these partitions, on the brokers that answer."""
        wanted: dict[int, dict[str, set[int]]] = {}
        for one in partitions:
            for broker in {*one.replicas} & self._addresses.keys():
                wanted.setdefault(broker, {}).setdefault(one.topic, set()).add(one.partition)
        kind = admin.DescribeLogDirsRequest.DescribableLogDirTopic
        answers = self._ask_brokers(
            {
                broker: admin.DescribeLogDirsRequest(
                    topics=[
                        kind(topic=name, partitions=sorted(numbers))
                        for name, numbers in topics.items()
                    ]
                )
                for broker, topics in wanted.items()
            }
        )
        sizes: dict[ReplicaKey, int] = {}
        for broker, answer in answers.items():
            if not answer.results:  # so old brokers refuse those without the right
                raise _unauthorized("describe log directories", "DESCRIBE on the cluster")
            for name, numbers in wanted[broker].items():
                sizes.update({ReplicaKey(name, number, broker): 0 for number in numbers})
            for directory in answer.results:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        key = ReplicaKey(topic.name, partition.partition_index, broker)
                        if not partition.is_future_key:
                            sizes[key] = int(partition.partition_size)
        return sizes

    def _ask_brokers(
        self,
        requests: Mapping[int, Any],
        seconds: float = _BROKER_SECONDS,
        *,
        confirm: Callable[[], None] | None = None,
    ) -> dict[int, Any]:
        """The answers of those brokers that give one within some seconds.

        `confirm` is as in `BrokerConnection.ask`; what is not sent has no answer.
        """
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + seconds
        kept = {broker: self._open.pop(broker, None) for broker in requests}

        def ask(broker: int, request: Any) -> None:
            with contextlib.suppress(OSError, TidegateError):
                connection = kept[broker]
                for attempt in (0, 1):
                    was_kept = connection is not None
                    if connection is None:
                        connection = BrokerConnection(
                            *self._addresses[broker],
                            settings=self._settings,
                            timeout_seconds=max(0.1, deadline - time.monotonic()),
                        )
                    try:
                        answer = connection.ask(request, deadline - time.monotonic(), confirm)
                    except (OSError, TidegateError) as error:
                        connection.close()
                        connection = None
                        # one that was kept may have been idle
                        if attempt or not was_kept or isinstance(error, TidegateError):
                            raise
                        continue
                    if time.monotonic() < deadline:
                        answers[broker] = answer
                        self._open[broker] = connection
                    else:
                        connection.close()
                    return

        threads = [
            threading.Thread(target=ask, args=(broker, request), daemon=True)
            for broker, request in sorted(requests.items())
            if broker in self._addresses
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return dict(answers)


_Listed = tuple[str, int, tuple[int, ...]]  # a partition that is reassigned, and what comes to it


def _list() -> Any:
    return admin.ListPartitionReassignmentsRequest(timeout_ms=2000, topics=None)


def _listed(answer: Any) -> frozenset[_Listed]:
    return frozenset(
        (topic.name, one.partition_index, tuple(sorted(one.adding_replicas)))
        for topic in answer.topics
        for one in topic.partitions
    )


def _partitions(
    answer: Any, moving: Mapping[tuple[str, int], Any], brokers: frozenset[int]
) -> Iterable[PartitionState]:
    """Those that are reassigned, and those with a live replica out of sync."""
    for topic in answer.topics:
        if topic.error_code == _UNKNOWN_TOPIC:
            continue
        _require(topic.error_code, f"describe topic {topic.name}")
        for one in topic.partitions:
            move = moving.get((topic.name, one.partition_index))
            in_sync = frozenset(one.isr_nodes)
            if move is None and not (frozenset(one.replica_nodes) & brokers) - in_sync:
                continue
            yield PartitionState(
                topic.name,
                one.partition_index,
                None if one.leader_id < 0 else one.leader_id,
                tuple(one.replica_nodes if move is None else move.replicas),
                in_sync,
                frozenset() if move is None else frozenset(move.adding_replicas),
                frozenset() if move is None else frozenset(move.removing_replicas),
            )


def _describe(resources: Sequence[Resource], keys: Sequence[str] | None = None) -> Any:
    kind = admin.DescribeConfigsRequest.DescribeConfigsResource
    return admin.DescribeConfigsRequest(
        resources=[
            kind(
                resource_type=_KINDS[one.kind],
                resource_name=one.name,
                configuration_keys=list(keys or KEYS[one.kind]),
            )
            for one in resources
        ],
        include_synonyms=False,
    )


def _configs(answer: Any) -> dict[Resource, dict[str, str]]:
    kinds = {number: kind for kind, number in _KINDS.items()}
    found: dict[Resource, dict[str, str]] = {}
    for result in answer.results:
        resource = Resource(kinds[result.resource_type], result.resource_name)
        if result.error_code == _UNKNOWN_TOPIC:
            found[resource] = {}
            continue
        _require(result.error_code, f"describe the configuration of {resource}")
        found[resource] = {
            one.name: one.value
            for one in result.configs
            if one.name in KEYS[resource.kind]
            and one.value is not None
            and one.config_source == _OF_ITS_OWN[resource.kind]
        }
    return found


def _alter(changes: Sequence[ConfigChange]) -> Any:
    kind = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    by_resource: dict[Resource, list[ConfigChange]] = {}
    for one in changes:
        by_resource.setdefault(one.resource, []).append(one)
    return admin.IncrementalAlterConfigsRequest(
        resources=[
            kind(
                resource_type=_KINDS[resource.kind],
                resource_name=resource.name,
                configs=[
                    kind.AlterableConfig(
                        name=one.key,
                        config_operation=_OPERATIONS[one.operation],
                        value=None if one.operation is Operation.DELETE else one.value,
                    )
                    for one in some
                ],
            )
            for resource, some in by_resource.items()
        ],
        validate_only=False,
    )


def _by_resource(changes: Sequence[ConfigChange], most: int) -> Iterable[tuple[ConfigChange, ...]]:
    """Changes in requests of at most so many resources; a key changed twice goes into two."""
    waiting = list(changes)
    while waiting:
        now: list[ConfigChange] = []
        later: list[ConfigChange] = []
        taken: set[tuple[Resource, str]] = set()
        resources: set[Resource] = set()
        for one in waiting:
            is_new = one.resource not in resources
            if (one.resource, one.key) in taken or (is_new and len(resources) >= most):
                later.append(one)
                continue
            taken.add((one.resource, one.key))
            resources.add(one.resource)
            now.append(one)
        yield tuple(now)
        waiting = later


def _refusals(answer: Any) -> dict[Resource, str]:
    """Why each resource was not changed; a topic that is gone has no throttle any more."""
    kinds = {number: kind for kind, number in _KINDS.items()}
    refused: dict[Resource, str] = {}
    for one in answer.responses:
        if one.error_code in (_NONE, _UNKNOWN_TOPIC):
            continue
        resource = Resource(kinds[one.resource_type], one.resource_name)
        if one.error_code in _NOT_AUTHORIZED:
            raise _unauthorized(f"alter the configuration of {resource}", RIGHTS)
        refused[resource] = one.error_message or for_code(one.error_code).__name__
    return refused


_THROTTLES_STAY = "Every replication throttle stays as it is"


def _require(code: int, what: str) -> None:
    if code in _NOT_AUTHORIZED:
        raise _unauthorized(what, RIGHTS)
    if code != _NONE:
        raise Incomplete(
            Reason.BROKERS_UNREACHABLE,
            f"The brokers did not {what}: {for_code(code).__name__}.",
            consequence=f"{_THROTTLES_STAY}; the next pass asks again.",
        )


def _unauthorized(what: str, rights: str) -> Unauthorized:
    return Unauthorized(
        f"The brokers do not let Tidegate {what}.",
        consequence=f"{_THROTTLES_STAY}.",
        advice=f"For spec.replication and spec.background grant its user {rights}.",
    )
