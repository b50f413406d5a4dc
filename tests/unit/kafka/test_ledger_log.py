"""The log of a ledger asks who leads before it begins a transaction, and never begins one towards a
leader that is gone: Kafka takes a second to end such a transaction.
"""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any, cast

import pytest

from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.log import LedgerLog

Address = tuple[str, int]
COORDINATOR: Address = ("coordinator", 9092)
LEADERS: dict[int, Address] = {1: ("first", 9092), 2: ("second", 9092)}


class Brokers:
    """Answers as brokers do of which `leader` leads the ledger's topic; -1 = none does."""

    def __init__(self) -> None:
        self.leader = 1
        self.sent: list[tuple[str, Address | None]] = []

    def metadata(self, topics: object = ()) -> Any:
        brokers = [Answer(node_id=one, host=at[0], port=at[1]) for one, at in LEADERS.items()]
        partition = Answer(leader_id=self.leader)
        topic = Answer(error_code=0, partitions=[partition])
        return Answer(brokers=brokers, topics=[topic])

    def read(self, request: Any) -> Any:
        if type(request).__name__ == "FindCoordinatorRequest":
            return Answer(error_code=0, host=COORDINATOR[0], port=COORDINATOR[1])
        policy = Answer(name="cleanup.policy", value="compact")
        return Answer(results=[Answer(error_code=0, configs=[policy])])

    def write(self, request: Any, at: Address | None = None) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        self.sent.append((kind, at))
        partition = Answer(partition_error_code=0, error_code=0, base_offset=7)
        return Answer(
            error_code=0,
            producer_id=1,
            producer_epoch=0,
            results_by_topic_v3_and_below=[Answer(results_by_partition=[partition])],
            responses=[Answer(partition_responses=[partition])],
        )


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
