"""Topics, positions and claims of delay queues by the admin protocol.

A level topic's records wait from its position (the offset that forwarders committed) to its end.
What one broker does not answer about a topic is unknown, never empty. The policy's own login asks
and writes; forwarders have another one.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import ForeignContent, Incomplete, TidegateError, UserActionRequired
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.prefix_claims import (
    PrefixClaims,
    lost_is_unreachable,
    require,
    require_rights,
)
from tidegate.kafka.protocol import MemoryRecords, admin, consumer, for_code, metadata
from tidegate.kafka.settings import KafkaConnection
from tidegate.queues.names import LevelTopic, QueueNames
from tidegate.queues.position import PositionNote, parse_note
from tidegate_logic.queues.levels import RETENTION_MS, TIMESTAMP_TYPE, FoundTopic
from tidegate_logic.reasons import Reason

_LATEST, _EARLIEST = -1, -2
_COMMITTED_ONLY = 1
_TOPIC_RESOURCE, _OF_THE_TOPIC, _SET = 2, 1, 0
_TOPICS_AT_ONCE = 200
_FETCH_BYTES = 64 << 10
_FETCHES = 20  # through the ends of transactions, which are no records
_EXISTS_ALREADY, _UNKNOWN_TOPIC, _BAD_REPLICATION = 36, 3, 38
_CREATE_SECONDS = 5.0
# Forwarders read the brokers' time from records that they write there, under one key. The segment
# that is written to is never compacted, and a start of the operator reads all of it.
CONTROL_SETTINGS = {
    "cleanup.policy": "compact",
    TIMESTAMP_TYPE: "LogAppendTime",
    "segment.bytes": str(16 << 20),
    "segment.ms": str(24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_LEADER_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_SETTINGS = (TIMESTAMP_TYPE, RETENTION_MS, "retention.bytes", "cleanup.policy")


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """Partitions of a topic, and where the leader of the first answers (None = it has none)."""

    partitions: int
    leader: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Every topic of the cluster, by name."""

    topics: Mapping[str, TopicPlace]
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class LevelSeen:
    """A level topic that exists, and the note of its forwarder.

    `problem` is why the note cannot be read; the topic's position then counts as unknown.
    """

    found: FoundTopic
    note: PositionNote | None = None
    problem: TidegateError | None = None


class QueueTopics:
    """The topics of delay queues on one cluster. One thread at a time may use it.

    Every call raises Unreachable where Kafka does not answer in time, and Unauthorized with the
    rights that the login lacks. Changes raise LeaseLost once the Lease is lost.
    """

    def __init__(self, settings: KafkaConnection, *, wall: Callable[[], float] = time.time) -> None:
        self._client = AdminClient(settings)
        self._wall = wall
        self.claims = PrefixClaims(self._client)

    def only_while(self, may_write: Callable[[], bool]) -> None:
        """Change nothing unless `may_write`, asked right before a request's last byte is sent."""
        self._client.may_write = may_write

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        self._client.close()

    # --- reading ----------------------------------------------------------------------------------

    def listing(self) -> Listing:
        """The topics that exist now."""
        answer = self._client.metadata(None)
        if not answer.brokers:
            raise Incomplete(
                Reason.TOPOLOGY_INCOMPLETE,
                "A broker answered but named no brokers; it has just started.",
                consequence="It is asked again.",
            )
        addresses = {one.node_id: (one.host, one.port) for one in answer.brokers}
        topics: dict[str, TopicPlace] = {}
        for topic in answer.topics:
            leaders = {one.partition_index: one.leader_id for one in topic.partitions}
            place = TopicPlace(len(topic.partitions), addresses.get(leaders.get(0, -1)))
            topics[topic.name] = place
        return Listing(topics, answer.cluster_id)

    def levels(self, names: QueueNames, listing: Listing) -> dict[LevelTopic, LevelSeen]:
        """Every level topic of the queue that exists."""
        levels = {
            level: place
            for name, place in listing.topics.items()
            if (level := names.parse_level(name)) is not None
        }
        if not levels:
            return {}
        settings = self.settings(names, [level.name for level in levels])
        positions = self._positions(names, [level.name for level in levels])
        begins = self._offsets({level: (place, _EARLIEST) for level, place in levels.items()})
        ends = self._offsets({level: (place, _LATEST) for level, place in levels.items()})
        seen: dict[LevelTopic, LevelSeen] = {}
        for level, place in levels.items():
            position, note, problem = positions.get(level.name, (None, None, None))
            is_known = level.name in positions and problem is None
            found = FoundTopic(
                partitions=place.partitions,
                settings=settings.get(level.name),
                begin=begins.get(level),
                end=ends.get(level),
                position=position,
                position_known=is_known,
            )
            seen[level] = LevelSeen(found, note, problem)
        return self._with_lateness(levels, seen)

    def count(self, topic: str, listing: Listing) -> int | None:
        """How many records the topic has; 0 where it does not exist, None = unknown.

        Ends of transactions are counted as well.
        """
        place = listing.topics.get(topic)
        if place is None:
            return 0
        level = LevelTopic(topic, 0, 0)  # only its place is used
        named = {level: (place, _EARLIEST)}
        begin = self._offsets(named, name=lambda _: topic).get(level)
        end = self._offsets({level: (place, _LATEST)}, name=lambda _: topic).get(level)
        return None if begin is None or end is None else end - begin

    def _with_lateness(
        self, levels: Mapping[LevelTopic, TopicPlace], seen: Mapping[LevelTopic, LevelSeen]
    ) -> dict[LevelTopic, LevelSeen]:
        """The same with how late the oldest waiting record is.

        A record is read only where Kafka says that the one at the position was appended long
        enough ago.
        """
        now_ms = round(self._wall() * 1000)
        waiting = {level: one for level, one in seen.items() if one.found.waiting}
        due = self._offsets(
            {
                level: (levels[level], max(0, now_ms - level.delay_seconds * 1000 + 1))
                for level in waiting
            }
        )
        result = dict(seen)
        for level, one in seen.items():
            late_seconds: float | None = 0.0 if one.found.waiting == 0 else None
            found = one.found
            if level in due:
                start = max(found.position or 0, found.begin or 0)
                if 0 <= due[level] <= start:
                    late_seconds = 0.0
                else:
                    found, late_seconds = self._read_oldest(
                        level, levels[level], found, start, now_ms
                    )
            result[level] = _seen_late(one, found, late_seconds)
        return result

    def _read_oldest(
        self, level: LevelTopic, place: TopicPlace, found: FoundTopic, start: int, now_ms: int
    ) -> tuple[FoundTopic, float | None]:
        """The topic, and for how long its record at `start` has been due.

        Where nothing but ends of transactions follows, nothing waits.
        """
        end = found.end or 0
        try:
            appended_ms, position = self._first_record(level.name, place, start)
        except Lost:
            return found, None
        if appended_ms is not None:
            late_ms = now_ms - appended_ms - level.delay_seconds * 1000
            return found, max(0.0, late_ms / 1000)
        if position < end:
            return found, None
        return _at_the_end(found), 0.0

    def _first_record(self, topic: str, place: TopicPlace, position: int) -> tuple[int | None, int]:
        """When the first record from `position` on was appended, in ms, and where it was looked."""
        kind = consumer.FetchRequest.FetchTopic
        for _ in range(_FETCHES):
            asked = kind.FetchPartition(
                partition=0, fetch_offset=position, partition_max_bytes=_FETCH_BYTES
            )
            request = consumer.FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=_FETCH_BYTES,
                isolation_level=_COMMITTED_ONLY,
                topics=[kind(topic=topic, partitions=[asked])],
            )
            answer = self._client.ask(request, place.leader)
            if not answer.responses:
                raise Lost("throttled")
            (partition,) = answer.responses[0].partitions
            if partition.error_code:
                raise Lost(for_code(partition.error_code).__name__)
            before = position
            for batch in _committed(partition):
                if batch.next_offset <= position:
                    continue
                position = batch.next_offset
                if not batch.is_control_batch:
                    return int(batch.max_timestamp), position
            position = max(position, _skipped(partition, position))
            if position == before:
                break
        return None, position

    def settings(self, names: QueueNames, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        """The settings of these topics themselves; one that is gone meanwhile is left out."""
        kind = admin.DescribeConfigsRequest.DescribeConfigsResource
        found: dict[str, Mapping[str, str]] = {}
        for some in _parts(sorted(topics)):
            resources = [
                kind(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=topic,
                    configuration_keys=list(_SETTINGS),
                )
                for topic in some
            ]
            answer = self._client.read(
                admin.DescribeConfigsRequest(resources=resources, include_synonyms=False)
            )
            for result in answer.results:
                if result.error_code == _UNKNOWN_TOPIC:
                    continue
                require(result.error_code, f"describe topic {result.resource_name}", names.prefix)
                found[result.resource_name] = {
                    one.name: one.value
                    for one in result.configs
                    if one.config_source == _OF_THE_TOPIC and one.value is not None
                }
        return found

    def _positions(
        self, names: QueueNames, topics: Collection[str]
    ) -> dict[str, tuple[int | None, PositionNote | None, TidegateError | None]]:
        """Position, note and what is wrong with the note, by topic; empty = no such group."""
        found: dict[str, tuple[int | None, PositionNote | None, TidegateError | None]] = {}
        coordinator = self._client.read(
            metadata.FindCoordinatorRequest(key=names.group, key_type=0)
        )
        if coordinator.error_code:
            require_rights(coordinator.error_code, f"find the group {names.group}", names.prefix)
            return found
        kind = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
        request = consumer.OffsetFetchRequest(
            group_id=names.group,
            topics=[kind(name=topic, partition_indexes=[0]) for topic in sorted(topics)],
        )
        try:
            answer = self._client.ask(request, (coordinator.host, coordinator.port))
        except Lost:
            return found
        if answer.error_code:
            require_rights(
                answer.error_code, f"read positions of group {names.group}", names.prefix
            )
            return found
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    require_rights(
                        one.error_code, f"read the position of topic {topic.name}", names.prefix
                    )
                    continue
                found[topic.name] = _position(one)
        return found

    def _offsets(
        self,
        wanted: Mapping[LevelTopic, tuple[TopicPlace, int]],
        *,
        name: Callable[[LevelTopic], str] = lambda level: level.name,
    ) -> dict[LevelTopic, int]:
        """The first offset at or after each time (ms, or a special one), -1 = there is none.

        Topics are left out whose leader does not answer.
        """
        kind = consumer.ListOffsetsRequest.ListOffsetsTopic
        by_leader: dict[tuple[str, int], list[LevelTopic]] = {}
        for level, (place, _) in wanted.items():
            if place.leader is not None:
                by_leader.setdefault(place.leader, []).append(level)
        found: dict[LevelTopic, int] = {}
        for leader, levels in by_leader.items():
            request = consumer.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    kind(
                        name=name(level),
                        partitions=[
                            kind.ListOffsetsPartition(partition_index=0, timestamp=wanted[level][1])
                        ],
                    )
                    for level in levels
                ],
            )
            try:
                answer = self._client.ask(request, leader)
            except Lost:
                continue
            offsets = {
                topic.name: one.offset
                for topic in answer.topics
                for one in topic.partitions
                if not one.error_code
            }
            for level in levels:
                if name(level) in offsets:
                    found[level] = int(offsets[name(level)])
        return found

    # --- changes ----------------------------------------------------------------------------------

    def create(
        self,
        names: QueueNames,
        topics: Mapping[str, Mapping[str, str]],
        *,
        replication_factor: int,
    ) -> None:
        """Make these topics of one partition; one that exists by now is left as it is."""
        kind = admin.CreateTopicsRequest.CreatableTopic
        for some in _parts(sorted(topics)):
            wanted = [
                kind(
                    name=topic,
                    num_partitions=1,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[
                        kind.CreatableTopicConfig(name=key, value=value)
                        for key, value in topics[topic].items()
                    ],
                )
                for topic in some
            ]
            request = admin.CreateTopicsRequest(
                topics=wanted, timeout_ms=round(_CREATE_SECONDS * 1000), validate_only=False
            )
            for made in self._to_controller(request).topics:
                if made.error_code == _BAD_REPLICATION:
                    raise UserActionRequired(
                        Reason.INVALID_SPEC,
                        f"Topic {made.name} cannot have {replication_factor} replicas: "
                        f"{made.error_message or 'there are fewer brokers'}. Lower "
                        "spec.topics.replicationFactor, or add brokers",
                    )
                if made.error_code != _EXISTS_ALREADY:
                    require(
                        made.error_code,
                        f"create topic {made.name}",
                        names.prefix,
                        made.error_message,
                    )

    def keep_control_topic(
        self, names: QueueNames, listing: Listing, *, replication_factor: int
    ) -> None:
        """Make the control topic where there is none, or have it keep the time of its records.

        Any other setting of one that exists stays.
        """
        topic = names.control_topic
        if topic in listing.topics:
            found = self.settings(names, [topic]).get(topic, {})
            wanted = {TIMESTAMP_TYPE: CONTROL_SETTINGS[TIMESTAMP_TYPE]}
            if found.get("cleanup.policy") == "compact" and not wanted.items() <= found.items():
                self.correct(names, {topic: wanted})
            return
        self.create(names, {topic: CONTROL_SETTINGS}, replication_factor=replication_factor)
        deadline = time.monotonic() + _LEADER_SECONDS
        while time.monotonic() < deadline:
            place = self.listing().topics.get(topic)
            if place is not None and place.leader is not None:
                return
            time.sleep(_PAUSE_SECONDS)

    def correct(self, names: QueueNames, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Set these settings of topics; others stay."""
        kind = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
        for some in _parts(sorted(topics)):
            resources = [
                kind(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=topic,
                    configs=[
                        kind.AlterableConfig(name=key, config_operation=_SET, value=value)
                        for key, value in sorted(topics[topic].items())
                    ],
                )
                for topic in some
            ]
            request = admin.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
            with lost_is_unreachable():
                answer = self._client.write(request)
            for one in answer.responses:
                if one.error_code != _UNKNOWN_TOPIC:
                    what = f"change the settings of topic {one.resource_name}"
                    require(one.error_code, what, names.prefix, one.error_message)

    def delete(self, names: QueueNames, topics: Collection[str]) -> None:
        """Delete these topics; one that is gone is fine."""
        for some in _parts(sorted(topics)):
            request = admin.DeleteTopicsRequest(
                topic_names=list(some), timeout_ms=round(_CREATE_SECONDS * 1000)
            )
            for gone in self._to_controller(request).responses:
                if gone.error_code != _UNKNOWN_TOPIC:
                    require(gone.error_code, f"delete topic {gone.name}", names.prefix)

    def _to_controller(self, request: Any) -> Any:
        answer = self._client.metadata()
        addresses = {one.node_id: (one.host, one.port) for one in answer.brokers}
        with lost_is_unreachable():
            return self._client.write(request, addresses.get(answer.controller_id))


def _position(one: Any) -> tuple[int | None, PositionNote | None, TidegateError | None]:
    if one.committed_offset < 0:
        return None, None, None
    try:
        # confluent-kafka sends the end of its text along, a NUL
        return int(one.committed_offset), parse_note((one.metadata or "").rstrip("\0")), None
    except ForeignContent as problem:
        return int(one.committed_offset), None, problem


def _seen_late(one: LevelSeen, found: FoundTopic, late_seconds: float | None) -> LevelSeen:
    return replace(one, found=replace(found, late_seconds=late_seconds))


def _at_the_end(found: FoundTopic) -> FoundTopic:
    return replace(found, position=found.end)


def _committed(partition: Any) -> Iterator[Any]:
    """The batches of an answer that no producer took back, with the ends of transactions."""
    aborted = sorted(
        ((one.first_offset, one.producer_id) for one in partition.aborted_transactions or ()),
        reverse=True,
    )
    records = MemoryRecords(bytes(partition.records or b""))
    undone: set[int] = set()
    while (batch := records.next_batch()) is not None:
        while aborted and aborted[-1][0] <= batch.base_offset:
            undone.add(aborted.pop()[1])
        if batch.is_control_batch:
            undone.discard(batch.producer_id)
            yield batch
        elif batch.producer_id not in undone:
            yield batch


def _skipped(partition: Any, position: int) -> int:
    """The offset after everything in an answer, taken back or not."""
    records = MemoryRecords(bytes(partition.records or b""))
    while (batch := records.next_batch()) is not None:
        position = max(position, batch.next_offset)
    return position


def _parts(topics: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        yield topics[start : start + _TOPICS_AT_ONCE]
