"""The store on the admin protocol among others, at moments that a seed decides: another writer of the
same quotas, a second process with the same claim, and requests that are lost or end their process.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from lab.kraft import KraftLab
from tests.contract.quota_store_contract import FETCH, POLICY, PRODUCE
from tests.integration.kafka.admin_world import AdminWorld, FaultyClient, around, lose
from tidegate.controller_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaWrite, WriteKind
from tidegate.controller_logic.reasons import Reason
from tidegate.errors import RetryLater
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import KafkaConnection

pytestmark = pytest.mark.integration

USERS = [Entity(f"user-{number}") for number in range(4)]
BEFORE = "777"  # the value from before Tidegate, which no other writer sets
ROUNDS = int(os.environ.get("TIDEGATE_INTERLEAVINGS", "40"))


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


class Process:
    """An operator that wants one value for every user, and remembers nothing but the ledger."""

    def __init__(self, settings: KafkaConnection, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self.restart()

    def restart(self) -> None:
        self.client = FaultyClient(self._settings)
        self.store = AdminQuotaStore(self._settings, self._topic, self.client)

    def pass_once(self, cluster_id: str, wanted: str, at: float) -> bool:
        """Write what differs; whether nothing did."""
        seen = self.store.read(USERS)
        writes = []
        for entity, stored in seen.items():
            present = stored.values.get(PRODUCE)
            known = stored.ledger.entries.get(PRODUCE) if stored.ledger else None
            if present == wanted and known is not None and known.written == wanted:
                continue
            before = known.before if known is not None else present
            entry = LedgerEntry(before, wanted, present, at, Reason.CONTRACT, "basis")
            record = LedgerRecord(entity, POLICY, "uid-1", {PRODUCE: entry})
            is_record = present == wanted
            kind = WriteKind.RECORD if is_record else WriteKind.FIRST
            writes.append(
                QuotaWrite(
                    entity, {PRODUCE: wanted}, stored, record, kind, Reason.CONTRACT, "",
                    charged=False,
                )
            )  # fmt: skip
        return all(one.applied for one in self.store.write(writes, cluster_id)) and not writes

    def until_converged(self, cluster_id: str, wanted: str, at: float) -> None:
        for number in range(10):
            if self.pass_once(cluster_id, wanted, at + number / 100):
                return
        raise AssertionError("the passes do not come to an end")

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def world(kraft: KraftLab, unique_name: str) -> Iterator[AdminWorld]:
    for world in around(kraft, unique_name):
        for entity in USERS:
            world.put(entity, {PRODUCE: BEFORE, FETCH: "5000"})
        yield world


def settle(process: Process, world: AdminWorld, wanted: str, at: float) -> None:
    """Run passes until they find nothing to do, and go on doing so.

    A broker may show what somebody else has changed some milliseconds after it was confirmed.
    """
    for number in range(3):
        process.until_converged(world.cluster_id, wanted, at + number / 10)
        time.sleep(0.03)
    check(world, wanted)


def check(world: AdminWorld, wanted: str) -> None:
    """Quotas, ledger and what was there before agree, as a process that knows nothing sees them."""
    reader = AdminQuotaStore(world.settings, world.topic)
    seen = reader.read(USERS)
    reader.close()
    for entity, stored in seen.items():
        assert stored.problem is None
        assert stored.values == {PRODUCE: wanted, FETCH: "5000"}, entity
        assert stored.ledger is not None
        entry = stored.ledger.entries[PRODUCE]
        assert (entry.before, entry.written) == (BEFORE, wanted), entity


@pytest.mark.timeout(60 + 3 * ROUNDS)
def test_a_writer_of_the_same_quotas_at_any_moment_is_repaired_by_the_next_passes(
    world: AdminWorld,
) -> None:
    """Every value of before is there again in the end, and no pass fights with the other writer."""
    ours = Process(world.settings, world.topic)
    ours.store.claim(Claim(POLICY, "uid-1"))
    ours.until_converged(world.cluster_id, "2000", 0.0)
    chosen = random.Random(7)
    for number in range(ROUNDS):
        wanted = str(3000 + number)
        delay_seconds = chosen.uniform(0.0, 0.12)
        victims = chosen.sample(USERS, 2)

        def disturb(delay: float = delay_seconds, whom: list[Entity] = victims) -> None:
            time.sleep(delay)
            alter(world.others, {one: {PRODUCE: "999999"} for one in whom}, world.topic)

        other = threading.Thread(target=disturb)
        other.start()
        ours.pass_once(world.cluster_id, wanted, float(number))
        other.join()
        settle(ours, world, wanted, number + 0.5)
    ours.close()


KINDS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn", "AlterClientQuotas")


@pytest.mark.timeout(60 + 3 * ROUNDS)
def test_two_processes_and_lost_or_killed_requests_leave_every_quota_with_its_record(
    world: AdminWorld,
) -> None:
    processes = [Process(world.settings, world.topic) for _ in range(2)]
    processes[0].store.claim(Claim(POLICY, "uid-1"))
    processes[0].until_converged(world.cluster_id, "2000", 0.0)
    chosen = random.Random(11)
    for number in range(ROUNDS):
        wanted = str(3000 + number)
        process = chosen.choice(processes)
        order = chosen.choice((process.client.before, process.client.after))
        kind = chosen.choice(KINDS)
        for _ in range(chosen.randrange(2)):
            order(kind, lambda: None)
        order(kind, chosen.choice((lose, kill)))
        try:
            process.pass_once(world.cluster_id, wanted, float(number))
        except Killed:
            process.close()
            process.restart()
        except RetryLater:
            pass
        survivor = chosen.choice(processes)
        survivor.client.forget_faults()
        settle(survivor, world, wanted, number + 0.5)
    for process in processes:
        process.close()
