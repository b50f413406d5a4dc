"""What the quota store on the admin protocol reads and writes, byte by byte, without a broker."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import FetchResponse

from tests.contract.quota_store_contract import (
    ALICE,
    BOB,
    FETCH,
    PRODUCE,
    REQUEST,
    first,
    give_back,
    record,
)
from tidegate.errors import ForeignContent, Unauthorized, UserActionRequired
from tidegate.kafka.adminapi import quotas
from tidegate.kafka.adminapi.client import AdminClient, Fenced, Lost, require_done
from tidegate.kafka.adminapi.journal import (
    Journal,
    claim_record,
    intent,
    outcome,
    record_after,
)
from tidegate.kafka.adminapi.log import Entry, LedgerLog
from tidegate.kafka.claim import claim_to_bytes
from tidegate.kafka.ledger import record_to_bytes
from tidegate.kafka.protocol import admin
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Default, Entity, LedgerRecord, QuotaKey, StoredQuota

# --- the protocol ---------------------------------------------------------------------------------
# Bodies as they were taken from a broker, by hand.


class Recorded(AdminClient):
    """Answers with given bodies, and keeps those of the requests."""

    def __init__(self, response_class: type, *answers: str) -> None:
        super().__init__(KafkaConnection(("kafka:9092",)))
        self._response_class = response_class
        self._answers = [bytes.fromhex(answer) for answer in answers]
        self.bodies: list[str] = []

    def read(self, request: object) -> object:
        self.bodies.append(bytes(request.encode(version=0)).hex())  # type: ignore[attr-defined]
        body = self._answers.pop(0)
        return self._response_class.decode(body, version=0)  # type: ignore[attr-defined]

    def write(self, request: object, at: object = None) -> object:
        return self.read(request)

    ask = write


ALICE_HAS_1_MIB = (
    "000000000000ffff00000001000000010004757365720005616c69636500000001001270726f64756365"
    "725f627974655f726174654130000000000000"
)
DEFAULT_USER_IS_BAD = "0000000000000001002a000362616400000001000475736572ffff"


def test_a_change_is_sent_as_brokers_read_it() -> None:
    client = Recorded(admin.AlterClientQuotasResponse, "0000000000000000", "0000000000000000")
    quotas.alter(client, {ALICE: {PRODUCE: "1048576"}}, "t")
    quotas.alter(client, {Entity(Default.DEFAULT, "c1"): {FETCH: None}}, "t")
    assert client.bodies == [
        "00000001000000010004757365720005616c69636500000001001270726f64756365725f627974655f7261"
        "746541300000000000000000",
        "0000000100000002000475736572ffff0009636c69656e742d696400026331000000010012636f6e73756d"
        "65725f627974655f7261746500000000000000000100",
    ]


def test_one_entity_is_asked_for_exactly_and_many_by_all_there_are() -> None:
    client = Recorded(admin.DescribeClientQuotasResponse, ALICE_HAS_1_MIB, ALICE_HAS_1_MIB)
    assert quotas.describe(client, [ALICE], "t") == {ALICE: {PRODUCE: "1048576"}}
    many = [ALICE, *(Entity(f"u{number}") for number in range(9))]
    assert quotas.describe(client, many, "t") == {ALICE: {PRODUCE: "1048576"}}
    assert client.bodies == ["000000010004757365720000" + "05616c69636501", "0000000000"]


def test_a_refusal_is_of_its_own_entity() -> None:
    client = Recorded(admin.AlterClientQuotasResponse, DEFAULT_USER_IS_BAD)
    default = Entity(Default.DEFAULT)
    assert quotas.alter(client, {default: {PRODUCE: "5"}}, "t") == {default: "bad"}


@pytest.mark.parametrize(
    ("key", "number", "text"),
    [
        (PRODUCE, 2048.0, "2048"),
        (PRODUCE, float(2**53 - 1), str(2**53 - 1)),
        (PRODUCE, float(2**63), str(2**63 - 1)),
        (REQUEST, 12.5, "12.5"),
        (REQUEST, 200.0, "200"),
        (QuotaKey.CONTROLLER_MUTATION_RATE, 0.1, "0.1"),
    ],
)
def test_a_double_reads_as_the_text_that_was_written(
    key: QuotaKey, number: float, text: str
) -> None:
    assert quotas.text_of(key, number) == text
    assert float(text) == number


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (6, Lost, "NotLeader"),
        (51, Lost, "Concurrent"),
        (90, Fenced, "Fenced"),
        (47, Fenced, "Epoch"),
        (31, Unauthorized, "ALTER_CONFIGS and DESCRIBE_CONFIGS on the cluster"),
        (53, Unauthorized, "WRITE on the transactional id our-topic"),
        (38, UserActionRequired, "make a topic"),
    ],
)
def test_an_error_code_is_tried_again_or_reported(
    code: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        require_done(code, "make a topic", "our-topic")
    require_done(0, "make a topic", "our-topic")


# --- the journal ----------------------------------------------------------------------------------


BEFORE = record(ALICE, {PRODUCE: "1000"}, before="500")
AFTER = record(ALICE, {PRODUCE: "2048"}, before="500")


def journal(*records: tuple[bytes, bytes | None]) -> Journal:
    made = Journal("our-topic")
    made.take(Entry(number, key, value) for number, (key, value) in enumerate(records))
    return made


def under_way(ledger: LedgerRecord | None = AFTER) -> Journal:
    """Alice's produce quota goes from 1000 to 2048, or away."""
    before = record_to_bytes(BEFORE)
    base = journal(outcome(ALICE, before))
    seen = StoredQuota(ALICE, {PRODUCE: "1000"}, 0, BEFORE)
    write = first(seen, {PRODUCE: "2048"}) if ledger else give_back(seen, {PRODUCE: None})
    after = record_to_bytes(ledger) if ledger is not None else record_after(write, before)
    base.take([Entry(7, *intent(write, before, after))])
    return base


@pytest.mark.parametrize(
    ("values", "settled"),
    [({}, None), ({PRODUCE: "2048"}, AFTER), ({PRODUCE: "9999"}, AFTER)],
    ids=str,
)
def test_a_change_that_may_arrive_late_is_known_also_where_the_quota_was_restored(
    values: dict[QuotaKey, str], settled: LedgerRecord | None
) -> None:
    item = under_way().item(ALICE)
    assert item is not None
    assert item.intent is not None
    kept = journal(outcome(ALICE, None, item.intent.over({}))).item(ALICE)
    assert kept is not None
    assert (kept.problem, kept.record, kept.settled(values)) == (None, None, settled)
    assert kept.intent is not None
    assert kept.intent.is_same(item.intent)


@pytest.mark.parametrize(
    ("values", "settled"),
    [
        ({PRODUCE: "1000"}, BEFORE),
        ({PRODUCE: "2048"}, AFTER),
        ({PRODUCE: "9999"}, AFTER),
        ({}, AFTER),
        ({PRODUCE: "1000", FETCH: "1"}, BEFORE),
    ],
    ids=str,
)
def test_what_brokers_have_settles_what_was_under_way(
    values: dict[QuotaKey, str], settled: LedgerRecord
) -> None:
    item = under_way().item(ALICE)
    assert item is not None
    assert item.intent is not None
    assert item.settled(values) == settled
    assert item.settled_raw(values) == record_to_bytes(settled)


def test_giving_back_that_was_made_leaves_no_record() -> None:
    item = under_way(ledger=None).item(ALICE)
    assert item is not None
    assert item.settled({}) is None
    assert item.settled({PRODUCE: "1000"}) == BEFORE


def test_the_newest_record_of_a_key_counts_and_none_removes_it() -> None:
    made = journal(
        claim_record(claim_to_bytes(Claim("a/b", "u", epoch=1))),
        outcome(ALICE, record_to_bytes(BEFORE)),
        outcome(BOB, record_to_bytes(record(BOB, {PRODUCE: "1"}))),
        outcome(ALICE, record_to_bytes(AFTER)),
        outcome(BOB, None),
    )
    item = made.item(ALICE)
    assert item is not None
    assert (item.record, item.offset, item.problem) == (AFTER, 3, None)
    assert made.items.keys() == {ALICE}
    assert made.claim == Claim("a/b", "u", epoch=1)
    made.take([Entry(9, *claim_record(None))])
    assert made.claim is None


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{", b"[]", b"\xff", b'{"version":2,"record":null}', b'{"version":1}'),
        *(b'{"version":1,"record":{}}', b'{"version":1,"record":null,"more":1}'),
        b'{"version":1,"record":null,"intent":{"values":{}}}',
        b'{"version":1,"record":null,"intent":{"values":{"x":"1"},"seen":{},"record":null}}',
        b"[" * 100_000,
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_record_that_cannot_be_read_is_a_problem_of_its_entity_only(value: bytes) -> None:
    made = journal((b"users/alice", value), outcome(BOB, None))
    item = made.item(ALICE)
    assert item is not None
    assert item.problem is not None
    assert "users/alice in the topic our-topic" in item.problem
    assert (item.record, item.settled({})) == (None, None)


def test_a_claim_that_cannot_be_read_names_the_topic() -> None:
    with pytest.raises(ForeignContent, match="our-topic"):
        _ = journal(claim_record(b"{}")).claim


def test_keys_of_no_entity_are_kept_apart() -> None:
    made = journal((b"users/a b", b"{}"), (b"\xff", b"{}"), (b"users/%41", b"{}"))
    assert len(made.strange) == 3
    made.take([Entry(5, b"users/a b", None)])
    assert len(made.strange) == 2
    assert not made.items


# --- a login that quotas throttle -----------------------------------------------------------------


class Throttled:
    """Answers a fetch with nothing and a delay, as a broker does to who is over its quota."""

    def __init__(self, *answers: FetchResponse) -> None:
        self._answers = list(answers)
        self.asked = 0

    def ask(self, request: object, at: object) -> FetchResponse:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


def fetched(throttle_ms: int, *, is_empty: bool) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData(
        partition_index=0, error_code=0, aborted_transactions=None, records=b""
    )
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=0,
        responses=[] if is_empty else [topic(topic="ledger", partitions=[partition])],
    )


def test_a_fetch_that_a_quota_delays_is_asked_again() -> None:
    client = Throttled(fetched(20, is_empty=True), fetched(0, is_empty=False))
    log = LedgerLog(client, "ledger")  # type: ignore[arg-type]
    assert log._fetched(("kafka", 9092), 3) == ([], 3)
    assert client.asked == 2


def test_a_fetch_that_is_delayed_for_too_long_says_whose_quota_it_is() -> None:
    client = Throttled(fetched(30_000, is_empty=True))
    log = LedgerLog(client, "ledger")  # type: ignore[arg-type]
    with pytest.raises(Lost) as caught:
        log._fetched(("kafka", 9092), 3)
    assert str(caught.value) == (
        "a broker throttles Tidegate's own login for 30.0 s by a quota, and returned nothing from "
        "topic ledger; that login needs a quota that leaves it room"
    )
