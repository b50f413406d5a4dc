"""The log of a ledger asks who leads before it begins a transaction, and never begins one towards a
leader that is gone: Kafka takes a second to end such a transaction.
"""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any, cast
from uuid import UUID

import pytest
from kafka.record import MemoryRecordsBuilder

from tidegate.kafka.adminapi import log as log_module
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.log import LedgerLog
from tidegate.kafka.quota_store import LedgerFacts

Address = tuple[str, int]
COORDINATOR: Address = ("coordinator", 9092)
LEADERS: dict[int, Address] = {1: ("first", 9092), 2: ("second", 9092)}


class Brokers:
    """Answers as brokers do of which `leader` leads the ledger's topic; -1 = none does."""

    def __init__(self) -> None:
        self.leader = 1
        self.written = 0  # the end of the log
        self.committed = [0]  # the end of what is committed, by question; the last one stays
        self.sent: list[tuple[str, Address | None]] = []
        self.topic_id: UUID | None = None
        self.start = 0
        self.cleanup_policy = "compact"
        self.partitions = 1
        self.is_broken = False

    def metadata(self, topics: object = ()) -> Any:
        brokers = [Answer(node_id=one, host=at[0], port=at[1]) for one, at in LEADERS.items()]
        partitions = [
            Answer(partition_index=number, leader_id=self.leader)
            for number in reversed(range(self.partitions))
        ]
        topic = Answer(error_code=0, topic_id=self.topic_id, partitions=partitions)
        return Answer(brokers=brokers, topics=[topic])

    def read(self, request: Any) -> Any:
        if type(request).__name__ == "FindCoordinatorRequest":
            return Answer(error_code=0, host=COORDINATOR[0], port=COORDINATOR[1])
        policy = Answer(name="cleanup.policy", value=self.cleanup_policy)
        return Answer(results=[Answer(error_code=0, configs=[policy])])

    def write(self, request: Any, at: Address | None = None) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        self.sent.append((kind, at))
        if kind == "ListOffsets":
            return self._end(request)
        if kind == "Fetch" and self.is_broken:
            raise Lost("the broker hung up")
        if kind == "Fetch":
            content = records(0, self.written)  # a batch comes as a whole
            found = Answer(error_code=0, aborted_transactions=None, records=content)
            responses = [Answer(partitions=[found])]
            return Answer(error_code=0, throttle_time_ms=0, responses=responses)
        partition = Answer(partition_error_code=0, error_code=0, base_offset=7)
        return Answer(
            error_code=0,
            producer_id=1,
            producer_epoch=0,
            results_by_topic_v3_and_below=[Answer(results_by_partition=[partition])],
            responses=[Answer(partition_responses=[partition])],
        )

    ask = write

    def _end(self, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        if asked.timestamp == -2:
            offset = self.start
        elif request.isolation_level == 0:
            offset = self.written
        else:
            offset = self.committed.pop(0) if len(self.committed) > 1 else self.committed[0]
        return Answer(topics=[Answer(partitions=[Answer(error_code=0, offset=offset)])])


def records(start: int, end: int) -> bytes:
    """A batch of the format of Kafka >= 0.11 with one record at each offset from `start` on."""
    batch = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    for number in range(start, end):
        batch.append(timestamp=None, key=b"%d" % number, value=b"{}")
    batch.close()
    return bytes(batch.buffer())


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def log(brokers: Brokers) -> LedgerLog:
    made = LedgerLog(cast(AdminClient, brokers), "ledger")
    made.become_writer()
    brokers.sent.clear()
    return made


def test_a_transaction_after_an_election_goes_to_the_new_leader_only(
    brokers: Brokers, log: LedgerLog
) -> None:
    log.commit([(b"claim", b"{}")])
    brokers.leader = 2
    log.commit([(b"claim", b"{}")])
    assert log.is_writer
    one = ["AddPartitionsToTxn", "Produce", "EndTxn"]
    assert [kind for kind, _ in brokers.sent] == one * 2
    assert [at for kind, at in brokers.sent if kind == "Produce"] == [LEADERS[1], LEADERS[2]]


def test_without_a_leader_no_transaction_is_begun(brokers: Brokers, log: LedgerLog) -> None:
    brokers.leader = -1
    with pytest.raises(Lost, match="no leader"):
        log.commit([(b"claim", b"{}")])
    assert brokers.sent == []
    assert not log.is_writer


def test_a_reader_waits_for_the_mark_that_ends_what_another_process_committed(
    brokers: Brokers,
) -> None:
    brokers.written, brokers.committed = 2, [0, 0, 2]
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    assert [entry.key for entry in log.news()[1]] == [b"0", b"1"]


def test_a_transaction_that_stays_open_is_left_out_after_a_while(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_MARKED_WITHIN_SECONDS", 0.05)
    brokers.written, brokers.committed = 2, [0]
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    assert log.news() == (False, [])


def test_the_writer_does_not_wait_for_the_end_of_its_own_transaction(
    brokers: Brokers, log: LedgerLog
) -> None:
    brokers.written, brokers.committed = 2, [0]
    assert log.news() == (False, [])
    asked = [kind for kind, _ in brokers.sent]
    assert asked == ["ListOffsets", "ListOffsets"]  # the end and the beginning, once each


def test_a_topic_that_was_made_again_is_read_from_its_beginning(brokers: Brokers) -> None:
    """Also where it has more records than the one before."""
    brokers.topic_id, brokers.written, brokers.committed = UUID(int=1), 2, [2]
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    log.news()
    brokers.topic_id, brokers.written, brokers.committed = UUID(int=2), 3, [3]
    is_anew, entries = log.news()
    assert (is_anew, [entry.key for entry in entries]) == (True, [b"0", b"1", b"2"])
    assert log.news() == (False, [])


def test_a_topic_that_lost_its_beginning_is_read_again_from_there(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.written, brokers.committed = 3, [3]
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    log.news()
    brokers.start = 2
    assert log.news() == (False, [])  # it is looked at now and then
    monkeypatch.setattr(log_module, "LOOK_SECONDS", 0.0)
    brokers.is_broken = True
    with pytest.raises(Lost):
        log.news()
    brokers.is_broken = False
    is_anew, entries = log.news()  # a try that failed does not make it forget
    assert (is_anew, [entry.key for entry in entries]) == (True, [b"2"])
    assert log.news() == (False, [])


def test_nothing_is_committed_to_a_topic_that_was_made_again(brokers: Brokers) -> None:
    brokers.topic_id, brokers.written, brokers.committed = UUID(int=1), 2, [2]
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    log.become_writer()
    log.news()
    brokers.topic_id = UUID(int=2)
    with pytest.raises(Lost, match="deleted or recreated"):
        log.commit([(b"claim", b"{}")])


def test_another_cleanup_policy_and_more_partitions_are_seen_while_it_is_read(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LOOK_SECONDS", 0.0)
    log = LedgerLog(cast(AdminClient, brokers), "ledger")
    log.news()
    assert log.facts == LedgerFacts("ledger")
    brokers.cleanup_policy, brokers.partitions = "compact,delete", 2
    log.news()
    assert "cleanup.policy=compact,delete" in log.facts.risk
    assert log.facts.partitions == 2
