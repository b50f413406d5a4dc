"""Shared parts of the tests of a quota store: a Kafka tree, another writer of it, and writes to try."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

import pytest

from controller_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaKey, QuotaWrite, StoredQuota, WriteKind
from controller_logic.reasons import Reason
from tests.doubles.quota_store import FaultyTree
from tidegate.kafka.quota_store import WriteOutcome
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

CLUSTER = "cluster-one"
POLICY = "streaming/orders"
PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
ALICE = Entity("alice")
ALICE_APP = Entity("alice", "app")
BOB = Entity("bob")
SCRAM = r'"SCRAM-SHA-256":"salt=MTIz\/+==,stored_key=a\u002bb=,server_key=c=,iterations=4096"'
KAFKA_PATHS = (
    "/brokers/ids",
    "/brokers/topics",
    "/cluster",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/topics",
    "/config/users",
)


class OtherWriter(Protocol):
    """Kafka and its tools, which write without comparing."""

    def get(self, path: str) -> bytes | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...
    def children(self, path: str) -> list[str]: ...


def lay_out_kafka(others: OtherWriter) -> None:
    """The nodes that a started Kafka has."""
    for path in KAFKA_PATHS:
        others.put(path, b"")
    others.put("/cluster/id", json.dumps({"version": "1", "id": CLUSTER}).encode())
    others.put("/controller_epoch", b"1")
    elect(others)


def elect(others: OtherWriter, kraft_epoch: int = -1) -> None:
    """Another controller: the node is made anew at version 0 and the epoch counts on, as Kafka does it."""
    others.delete("/controller")
    others.put("/controller_epoch", str(int(others.get("/controller_epoch") or b"0") + 1).encode())
    controller = {"version": 2, "brokerid": 1, "timestamp": "0", "kraftControllerEpoch": kraft_epoch}
    others.put("/controller", json.dumps(controller).encode())


def record(entity: Entity, values: Mapping[QuotaKey, str | None], *, before: str | None = None, at: float = 1.0) -> LedgerRecord:
    entries = {key: LedgerEntry(before, value, None, at, Reason.FIRST_QUOTA, "basis") for key, value in values.items()}
    return LedgerRecord(entity, POLICY, "uid-1", entries)


def first(seen: StoredQuota, values: Mapping[QuotaKey, str | None], *, at: float = 1.0) -> QuotaWrite:
    ledger = record(seen.entity, values, at=at)
    return QuotaWrite(seen.entity, values, seen, ledger, WriteKind.FIRST, Reason.FIRST_QUOTA, "", charged=False)


def give_back(seen: StoredQuota, values: Mapping[QuotaKey, str | None]) -> QuotaWrite:
    return QuotaWrite(seen.entity, values, seen, None, WriteKind.GIVE_BACK, Reason.GIVEN_BACK, "", charged=True)


def path_of(name: str) -> str:
    return f"/config/{name}"


class StoreTests:
    """The store under test, on the tree that the fixture `faults` gives."""

    @pytest.fixture
    def store(self, faults: FaultyTree) -> ZooKeeperQuotaStore:
        return ZooKeeperQuotaStore(faults)

    def write(self, store: ZooKeeperQuotaStore, entity: Entity, values: Mapping[QuotaKey, str | None], *, at: float = 1.0) -> WriteOutcome:
        (outcome,) = store.write([first(store.read([entity])[entity], values, at=at)], CLUSTER)
        return outcome
