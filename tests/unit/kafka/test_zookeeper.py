"""The store in ZooKeeper: ledger records and claims, and errors of a client that does not start."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, KazooException

from controller_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaKey
from controller_logic.reasons import Reason
from tidegate.errors import ForeignContent, Unauthorized, Unreachable
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper import session
from tidegate.kafka.zookeeper.nodes import (
    claim_to_bytes,
    claimed_elsewhere,
    ledger_path,
    parse_claim,
    parse_record,
    record_to_bytes,
)
from tidegate.kafka.zookeeper.session import start_client

# --- records and claims ---------------------------------------------------------------------------
# A ledger record or claim reads back as it was written, and anything else is refused.


ALICE = Entity("alice", "app 1")
ENTRY = LedgerEntry(
    "500", "2048", None, 1795265242.25, Reason.LEADERS_MOVED, "perPartition 10 MB/s, Größe ≤ 3"
)
RECORD = LedgerRecord(ALICE, "streaming/orders", "uid-1", {QuotaKey.PRODUCER_BYTE_RATE: ENTRY})
CLAIM = Claim("streaming/orders", "u", "tidegate-0_1_ab", 3, 1795265242.0, ("s", "t"))


def test_a_record_reads_back_exactly() -> None:
    assert parse_record(ALICE, record_to_bytes(RECORD)) == RECORD
    assert ledger_path(ALICE) == "/tidegate/ledger/users%2Falice%2Fclients%2Fapp%25201"


def test_a_throttle_reads_back_with_its_contract_and_a_contract_has_no_word_of_it() -> None:
    throttled = replace(
        RECORD, entries={QuotaKey.PRODUCER_BYTE_RATE: replace(ENTRY, of_contract=60_000_000)}
    )
    assert parse_record(ALICE, record_to_bytes(throttled)) == throttled
    assert b"of_contract" not in record_to_bytes(RECORD)


def test_a_claim_reads_back_exactly() -> None:
    assert parse_claim(claim_to_bytes(CLAIM)) == CLAIM


def test_a_claim_of_version_0_1_has_no_epoch_holder_or_time() -> None:
    data = b'{"version":1,"policy_key":"a/b","policy_uid":"u"}'
    assert parse_claim(data) == Claim("a/b", "u", holder="", epoch=0, since_seconds=0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": 1},
        {"policy_uid": None},
        {"holder": None},
        {"since_seconds": "now"},
        {"former": "t"},
        {"former": [1]},
        {"more": 1},
    ]
    + [{"epoch": epoch} for epoch in (0, -1, True, 1.5, "2", None)],
)
def test_a_claim_of_another_shape_is_refused(change: dict[str, object]) -> None:
    content = {**json.loads(claim_to_bytes(CLAIM)), **change}
    with pytest.raises(ForeignContent, match="nothing is written"):
        parse_claim(json.dumps(content).encode())


def test_a_claim_that_is_held_elsewhere_reads_like_this(golden: Callable[[str], None]) -> None:
    golden(
        "\n".join(
            (
                claimed_elsewhere(CLAIM, "other"),
                claimed_elsewhere(CLAIM, "t"),
                claimed_elsewhere(Claim("streaming/orders", "u"), "other"),
            )
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"policy_key": 5},
        {"entries": []},
        {"entries": {"unknown_key": {}}},
        {"entries": {"producer_byte_rate": {"before": None}}},
        {"more": 1},
    ],
)
def test_a_record_of_another_shape_is_refused(change: dict[str, object]) -> None:
    content = {**json.loads(record_to_bytes(RECORD)), **change}
    with pytest.raises(ForeignContent):
        parse_record(ALICE, json.dumps(content).encode())


def test_a_record_of_another_shape_reads_like_this(golden: Callable[[str], None]) -> None:
    content = {**json.loads(record_to_bytes(RECORD)), "version": 2}
    with pytest.raises(ForeignContent) as refused:
        parse_record(ALICE, json.dumps(content).encode())
    golden(refused.value.message)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reason", "Whim"),
        ("written_at_seconds", True),
        ("written_at_seconds", -1),
        ("written", 2048),
    ]
    + [("of_contract", value) for value in (0, -1, True, "60", None, 1.5)],
)
def test_an_entry_with_a_wrong_field_is_refused(field: str, value: object) -> None:
    content = json.loads(record_to_bytes(RECORD))
    content["entries"]["producer_byte_rate"][field] = value
    with pytest.raises(ForeignContent):
        parse_record(ALICE, json.dumps(content).encode())


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000], ids=lambda data: repr(data)[:20]
)
def test_what_is_no_json_object_is_refused(data: bytes | None) -> None:
    with pytest.raises(ForeignContent):
        parse_record(ALICE, data)
    with pytest.raises(ForeignContent, match="/tidegate/claim"):
        parse_claim(data)


# --- starting a client ----------------------------------------------------------------------------
# Errors of a ZooKeeper client that does not start. Starts against real servers are in the
# integration tests.


LOGIN = SaslLogin(SaslMechanism.DIGEST_MD5, "kafka", "wrong")


@pytest.mark.parametrize(
    ("login", "error", "raised"),
    [
        (LOGIN, AuthFailedError(), Unauthorized),
        (LOGIN, ConnectionClosedError("Connection has been closed"), Unauthorized),
        (LOGIN, ConnectionLoss(), Unreachable),
        (None, ConnectionClosedError("Connection has been closed"), Unreachable),
    ],
)
def test_a_refused_login_is_distinguished_from_silence(
    login: SaslLogin | None,
    error: KazooException,
    raised: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(raised, match=r"127\.0\.0\.1:1"):
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=login), lambda _: None)


def test_a_refused_login_reads_like_this(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    def fails(*_: Any) -> None:
        raise AuthFailedError

    monkeypatch.setattr(session, "_await_login", fails)
    with pytest.raises(Unauthorized) as refused:
        start_client(ZooKeeperConnection("127.0.0.1:1", sasl=LOGIN), lambda _: None)
    golden(refused.value.message)
