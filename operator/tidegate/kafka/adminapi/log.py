"""A compacted topic of one partition as a log that one process at a time may write.

Who writes is decided by Kafka's own fence: everyone uses one transactional id, and asking for a
producer id ends all earlier ones. So a transaction that is committed is known to follow everything
that this process has read. The requests are sent one by one and bounded in time; after an error the
producer is given up and the next one reads what became of its transaction.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidegate.errors import TidegateError, Unauthorized, UserActionRequired
from tidegate.kafka import protocol
from tidegate.kafka.adminapi.client import (
    AdminClient,
    Fenced,
    Lost,
    require_done,
    rights_needed,
)
from tidegate.kafka.quota_store import LedgerFacts
from tidegate.kafka.settings import QUOTAS_STAY
from tidegate_logic.reasons import Reason

_ALL, _COMMITTED_ONLY = 0, 1  # isolation levels
_LATEST, _EARLIEST = -1, -2
_FETCH_BYTES = 8 << 20
_BATCH_BYTES = 900_000  # brokers take 1,048,588 by default, and count what is compressed
_RECORDS_PER_BATCH = 500
_GZIP = 1
_TRANSACTION_SECONDS = 30  # a writer that died holds readers up for so long, a new one ends it
_PATIENCE_SECONDS = 8.0  # for an election, and for the end of another writer's transaction
_PAUSE_SECONDS = 0.01
_MARKED_WITHIN_SECONDS = 1.0  # a transaction's end is in the log after the answer that it ended
_FORGOTTEN_SECONDS = 3600.0  # Kafka keeps the mark of a removed key for a day by default
_TOPIC_RESOURCE = 2
_EXISTS_ALREADY = 36
_UNKNOWN_TOPIC = 3
_NOT_AUTHORIZED_TOPIC = 29
_MOST_REPLICAS = 3
_PARTITION = 0  # the ledger's; another one may be added by hand, and is left alone
LOOK_SECONDS = 30.0  # between looks at the topic's settings and its first offset

Record = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed record; `value` None = what had the key is gone."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int
    coordinator: tuple[str, int]
    sequence: int = 0
    leader: tuple[str, int] | None = None
    end: int = 0  # the offset after our last record


class LedgerLog:
    """The topic `topic` of one cluster. One thread at a time may use it."""

    def __init__(
        self, client: AdminClient, topic: str, *, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are further ones of a topic that is made here."""
        self.topic = topic
        self._settings = settings or {}
        self._client = client
        self._position = 0
        self._read_at_seconds = time.monotonic()
        self._producer: _Producer | None = None
        self._topic: object = None  # its id, from the last answer; None = the brokers give it none
        self._read_topic: object = None  # the same of what was read
        self._is_outdated = False  # what was read is not of this topic, or not all of it is left
        self._start = 0  # the first offset that is left of it
        self._looked_at_seconds = float("-inf")
        self._partitions = 1
        self._cleanup_policy = "compact"  # as it was last asked
        self._is_whole = True  # whether the last `news` could read all that was written

    @property
    def is_writer(self) -> bool:
        """Whether this process became the writer and has not been found out of it since."""
        return self._producer is not None

    def give_up(self) -> None:
        """Be the writer no more."""
        self._producer = None

    def news(self) -> tuple[bool, list[Entry]]:
        """What was committed since the last call, oldest first; whether it starts from nothing.

        A topic that does not exist is an empty one. One that was made again, or has lost records at
        its beginning, is read again from there. Raises Lost and Unauthorized.
        """
        leader = self._leader()
        if leader is None:
            was_read, self._position, self._is_whole = self._position > 0, 0, True
            self._read_at_seconds = time.monotonic()
            return was_read, []
        self._is_whole = True
        end = self._offset(leader, _LATEST) if self.is_writer else self._decided_end(leader)
        # what is committed may lag behind what we have just committed, but never the end of the log
        is_reset = self._position > end and self._position > self._offset(leader, _LATEST, _ALL)
        start = self._start
        is_looked_at = self._look(leader)
        is_other = self._read_topic != self._topic or start < self._start
        # it stays so until all of it was read
        self._is_outdated |= self._position > 0 and (is_reset or is_other)
        self._read_topic = self._topic
        # what was removed is forgotten by the topic after a day, and later readers miss the removal
        is_old = time.monotonic() - self._read_at_seconds > _FORGOTTEN_SECONDS
        is_reset = self._is_outdated or is_old
        position = 0 if is_reset else self._position
        if not position:
            if not is_looked_at:
                self._start = self._offset(leader, _EARLIEST)
            position = self._start
        found: list[Entry] = []
        while position < end:
            entries, after = self._fetched(leader, position)
            found += entries
            if after <= position:
                raise Lost(f"topic {self.topic} returned nothing from offset {position} to {end}")
            position = after
        self._position = max(position, 0 if is_reset else self._position)
        self._is_outdated = False
        self._read_at_seconds = time.monotonic()
        return is_reset, found

    def _look(self, leader: tuple[str, int]) -> bool:
        """Ask for the first offset that is left and for the settings, now and then; whether it did.

        Compaction leaves the first offset as it is. Retention, or someone who deletes records,
        moves it.
        """
        if time.monotonic() - self._looked_at_seconds < LOOK_SECONDS:
            return False
        self._start = self._offset(leader, _EARLIEST)
        with suppress(TidegateError, Lost):  # a reader may lack the right
            self._cleanup_policy = self._cleanup_policy_now()
        self._looked_at_seconds = time.monotonic()
        return True

    def become_writer(self) -> None:
        """Fence every other writer, and make the topic where there is none.

        Read `news` afterwards: no other process writes from then on, unless `commit` raises.
        Raises Lost, LeaseLost, Unauthorized, and UserActionRequired for a topic that would lose the
        ledger.
        """
        self.give_up()
        if self._leader() is None:
            # the first time ever, brokers make the log of transactions while we make the topic
            self._client.read(self._coordinator_request())
            self._create()
        else:
            self._require_sound()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause_seconds = _PAUSE_SECONDS
        while True:
            try:
                self._producer = self._new_producer()
                return
            except Lost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, 5 * _PAUSE_SECONDS)

    def commit(self, records: Sequence[Record]) -> int:
        """Append all of them or none; returns the offset of the first.

        Raises Lost if it may have happened, Fenced and LeaseLost where it has not. This process
        is no writer any more then.
        """
        producer = self._producer
        if producer is None:
            raise Fenced("this process has not become the writer")
        try:
            # asked again: one that died would leave an open transaction, which the coordinator
            # takes a second to end, as it goes on asking the dead broker
            leader = self._leader()
            is_other = self._position > 0 and self._topic != self._read_topic
            if leader is None or self._is_outdated or is_other:
                raise Lost(f"topic {self.topic} was deleted or recreated")
            self._begin(producer)
            batches = _batches(records, producer)
            offsets = [self._append(producer, leader, batch) for batch in batches]
            self._end(producer)
        except BaseException:
            self.give_up()
            raise
        # between two of our transactions there is the end of the first and nothing else
        if 0 <= offsets[0] - self._position <= 1:
            self._position = offsets[0] + len(records)
        return offsets[0]

    def require_alone(self) -> None:
        """Raise Fenced if anyone has written to the topic since our last commit. Raises Lost.

        The mark that ends our own transaction is written after the answer, and is one offset.
        """
        producer = self._producer
        if producer is None or producer.leader is None:
            raise Fenced("this process has not become the writer")
        if self._offset(producer.leader, _LATEST, _ALL) > producer.end + 1:
            raise Fenced("another process has written since")

    # --- one transaction --------------------------------------------------------------------------

    def _new_producer(self) -> _Producer:
        found = self._client.read(self._coordinator_request())
        require_done(found.error_code, "find the coordinator of its transactions", self.topic)
        coordinator = (found.host, found.port)
        request = protocol.producer.InitProducerIdRequest(
            transactional_id=self.topic, transaction_timeout_ms=_TRANSACTION_SECONDS * 1000
        )
        answer = self._client.write(request, coordinator)
        require_done(answer.error_code, "begin to write its ledger", self.topic)
        return _Producer(answer.producer_id, answer.producer_epoch, coordinator)

    def _coordinator_request(self) -> Any:
        return protocol.metadata.FindCoordinatorRequest(key=self.topic, key_type=1)

    def _begin(self, producer: _Producer) -> None:
        topic = protocol.producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
            name=self.topic, partitions=[_PARTITION]
        )
        request = protocol.producer.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.topic,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[topic],
        )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._client.write(request, producer.coordinator)
            (code,) = (
                partition.partition_error_code
                for one in answer.results_by_topic_v3_and_below
                for partition in one.results_by_partition
            )
            # the end of our own last transaction is still being written down
            if code != _CONCURRENT or time.monotonic() > deadline:
                require_done(code, "write its ledger", self.topic)
                return
            time.sleep(_PAUSE_SECONDS / 2)

    def _append(
        self, producer: _Producer, leader: tuple[str, int], batch: tuple[bytes, int]
    ) -> int:
        records, count = batch
        kind = protocol.producer.ProduceRequest.TopicProduceData
        data = kind(
            name=self.topic, partition_data=[kind.PartitionProduceData(index=0, records=records)]
        )
        request = protocol.producer.ProduceRequest(
            transactional_id=self.topic,
            acks=-1,
            timeout_ms=round(_PATIENCE_SECONDS * 1000),
            topic_data=[data],
        )
        answer = self._client.write(request, leader)
        (partition,) = answer.responses[0].partition_responses
        require_done(partition.error_code, "write its ledger", self.topic)
        producer.sequence += count
        producer.leader, producer.end = leader, int(partition.base_offset) + count
        return int(partition.base_offset)

    def _end(self, producer: _Producer) -> None:
        answer = self._client.write(
            protocol.producer.EndTxnRequest(
                transactional_id=self.topic,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=True,
            ),
            producer.coordinator,
        )
        require_done(answer.error_code, "write its ledger", self.topic)

    # --- reading ----------------------------------------------------------------------------------

    def _offset(
        self, leader: tuple[str, int], which: int, isolation_level: int = _COMMITTED_ONLY
    ) -> int:
        kind = protocol.consumer.ListOffsetsRequest.ListOffsetsTopic
        asked = kind.ListOffsetsPartition(partition_index=0, timestamp=which)
        request = protocol.consumer.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[kind(name=self.topic, partitions=[asked])],
        )
        (partition,) = self._client.ask(request, leader).topics[0].partitions
        require_done(partition.error_code, "read its ledger", self.topic)
        return int(partition.offset)

    def _decided_end(self, leader: tuple[str, int]) -> int:
        """Where the committed records end, with what another process committed just now.

        The mark that ends its transaction may come later than the answer to it. A transaction that
        stays open is left out after a second: the next writer ends it.
        """
        written = self._offset(leader, _LATEST, _ALL)
        deadline = time.monotonic() + _MARKED_WITHIN_SECONDS
        while (end := self._offset(leader, _LATEST)) < written and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        self._is_whole = end >= written
        return end

    def _fetched(self, leader: tuple[str, int], position: int) -> tuple[list[Entry], int]:
        """The committed records from an offset on, and the offset after them."""
        kind = protocol.consumer.FetchRequest.FetchTopic
        asked = kind.FetchPartition(
            partition=0, fetch_offset=position, partition_max_bytes=_FETCH_BYTES
        )
        request = protocol.consumer.FetchRequest(
            replica_id=-1,
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=_COMMITTED_ONLY,
            topics=[kind(topic=self.topic, partitions=[asked])],
        )
        (partition,) = self._unthrottled(request, leader).responses[0].partitions
        require_done(partition.error_code, "read its ledger", self.topic)
        aborted = sorted(
            ((one.first_offset, one.producer_id) for one in partition.aborted_transactions or ()),
            reverse=True,
        )
        records = protocol.MemoryRecords(bytes(partition.records or b""))
        found: list[Entry] = []
        undone: set[int] = set()
        while (batch := records.next_batch()) is not None:
            while aborted and aborted[-1][0] <= batch.base_offset:
                undone.add(aborted.pop()[1])
            if batch.is_control_batch:
                undone.discard(batch.producer_id)
            elif batch.producer_id not in undone:
                found += [
                    Entry(record.offset, bytes(record.key), _bytes(record.value))
                    for record in batch
                    if record.key is not None and record.offset >= position
                ]
            position = max(position, batch.next_offset)
        return found, position

    def _unthrottled(self, request: protocol.consumer.FetchRequest, leader: tuple[str, int]) -> Any:
        """The answer to a fetch. One that a quota delays is empty: it is asked again after that."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._client.ask(request, leader)
            require_done(answer.error_code or 0, "read its ledger", self.topic)
            if answer.responses:
                return answer
            delay_seconds = (answer.throttle_time_ms or 0) / 1000
            if time.monotonic() + delay_seconds > deadline:
                why = (
                    f"throttles Tidegate's own login for {delay_seconds:.1f} s by a quota, and "
                    f"returned nothing from topic {self.topic}; that login needs a quota that "
                    "leaves it room"
                    if delay_seconds
                    else f"returned nothing from topic {self.topic} for {_PATIENCE_SECONDS:.0f} s"
                )
                raise Lost(f"a broker {why}")
            time.sleep(max(delay_seconds, _PAUSE_SECONDS))

    def _leader(self) -> tuple[str, int] | None:
        """Where the partition's leader answers; None = there is no such topic. Raises Lost."""
        answer = self._client.metadata([self.topic])
        (topic,) = answer.topics
        if topic.error_code == _UNKNOWN_TOPIC:
            self._partitions, self._cleanup_policy = 1, "compact"  # as we make it
            self._looked_at_seconds = float("-inf")
            return None
        require_done(topic.error_code, "describe its ledger's topic", self.topic)
        self._partitions = len(topic.partitions)
        self._topic = topic.topic_id if topic.topic_id and topic.topic_id.int else None
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        first = (one.leader_id for one in topic.partitions if one.partition_index == _PARTITION)
        leader = addresses.get(next(first, -1))
        if leader is None:
            raise Lost(f"topic {self.topic} has no leader")
        return leader

    # --- making the topic -------------------------------------------------------------------------

    def _create(self) -> None:
        answer = self._client.metadata()
        replicas = min(_MOST_REPLICAS, len(answer.brokers))
        settings = {**_settings(replicas), **self._settings}
        config = protocol.admin.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        topic = protocol.admin.CreateTopicsRequest.CreatableTopic(
            name=self.topic,
            num_partitions=1,
            replication_factor=replicas,
            assignments=[],
            configs=[config(name=key, value=value) for key, value in settings.items()],
        )
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        (made,) = self._client.write(
            protocol.admin.CreateTopicsRequest(
                topics=[topic], timeout_ms=5000, validate_only=False
            ),
            addresses.get(answer.controller_id),
        ).topics
        if made.error_code not in (0, _EXISTS_ALREADY):
            if made.error_code in (_NOT_AUTHORIZED_TOPIC, 31):
                raise Unauthorized(
                    f"The topic {self.topic} for Tidegate's ledger does not exist, and Tidegate is "
                    "not allowed to create it.",
                    consequence=QUOTAS_STAY,
                    advice="Create it first (one partition, cleanup.policy=compact) and name "
                    "it in spec.kafka.ledgerTopic, or grant CREATE. All the rights that it needs: "
                    f"{rights_needed(self.topic)}.",
                )
            require_done(made.error_code, f"make the topic {self.topic}", self.topic)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._is_led():
            if time.monotonic() > deadline:
                raise Lost(f"topic {self.topic} was created and has no leader yet")
            time.sleep(_PAUSE_SECONDS)
        if made.error_code == _EXISTS_ALREADY:  # somebody else made it meanwhile
            self._require_sound()

    def _is_led(self) -> bool:
        try:
            return self._leader() is not None
        except Lost:
            return False

    def _require_sound(self) -> None:
        """Raise for a topic whose records go away with time: a ledger would be lost with them."""
        self._cleanup_policy = self._cleanup_policy_now()
        if self._risk:
            raise UserActionRequired(Reason.LEDGER_AT_RISK, f"{self._risk}.")

    @property
    def facts(self) -> LedgerFacts:
        """How the topic was doing when it was looked at last."""
        return LedgerFacts(self.topic, self._risk, self._partitions, self._is_whole)

    @property
    def _risk(self) -> str:
        if self._cleanup_policy == "compact":
            return ""
        return (
            f"The topic {self.topic} has cleanup.policy={self._cleanup_policy or 'none'}, so Kafka "
            "deletes Tidegate's ledger in it after a while. Nothing is written, and every quota "
            "stays as it is. Set cleanup.policy=compact: kafka-configs.sh --alter --entity-type "
            f"topics --entity-name {self.topic} --add-config cleanup.policy=compact"
        )

    def _cleanup_policy_now(self) -> str:
        resource = protocol.admin.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=self.topic,
            configuration_keys=["cleanup.policy"],
        )
        answer = self._client.read(
            protocol.admin.DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        )
        (result,) = answer.results
        require_done(result.error_code, "describe the settings of its ledger's topic", self.topic)
        policies = [one.value for one in result.configs if one.name == "cleanup.policy"]
        return str(policies[0]) if policies else ""


_CONCURRENT = 51


def _settings(replicas: int) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "min.insync.replicas": str(min(2, replicas)),
        "unclean.leader.election.enable": "false",
        # the segment that is written to is never compacted, and a start reads all of it
        "segment.bytes": str(16 << 20),
        "segment.ms": str(24 * 3600 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
    }


def _batches(records: Sequence[Record], producer: _Producer) -> Iterator[tuple[bytes, int]]:
    for start in range(0, len(records), _RECORDS_PER_BATCH):
        part = records[start : start + _RECORDS_PER_BATCH]
        builder = protocol.MemoryRecordsBuilder(
            magic=2,
            compression_type=_GZIP,
            batch_size=1 << 30,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
        )
        now_ms = int(time.time() * 1000)
        for key, value in part:
            builder.append(now_ms, key, value)
        builder.close()
        yield bytes(builder.buffer()), len(part)


def _bytes(content: Any) -> bytes | None:
    return None if content is None else bytes(content)
