"""The store on the admin protocol among others, at moments that a seed decides: another writer of the
same quotas, a second process with the same claim, and requests that are lost or end their process.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lab.kraft import KraftLab
from tests.contract.quota_store_contract import FETCH, POLICY, PRODUCE
from tests.integration.kafka.admin_world import AdminWorld, FaultyClient, around, lose
from tidegate.errors import RetryLater
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaWrite, WriteKind
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

USERS = [Entity(f"user-{number}") for number in range(4)]
BEFORE = "777"  # the value from before Tidegate, which no other writer sets
FOREIGN = "999999"  # the other writer's
ROUNDS = int(os.environ.get("TIDEGATE_INTERLEAVINGS", "40"))


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


class Process:
    """An operator that wants one value for every user, and remembers nothing but the ledger."""

    def __init__(self, settings: KafkaConnection, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self.foreign: set[Entity] = set()  # the last pass read the other writer's value of these
        self.dropped: set[Entity] = set()  # and did not write these, as somebody had changed them
        self.restart()

    def restart(self) -> None:
        self.client = FaultyClient(self._settings)
        self.store = AdminQuotaStore(self._settings, self._topic, self.client)

    def pass_once(
        self,
        cluster_id: str,
        wanted: str,
        at: float,
        *,
        before_writing: Callable[[], None] = lambda: None,
    ) -> bool:
        """Write what differs; whether nothing did. `before_writing` comes between the two."""
        seen = self.store.read(USERS)
        self.foreign = {one for one in USERS if seen[one].values.get(PRODUCE) == FOREIGN}
        self.dropped = set()
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
        before_writing()
        outcomes = self.store.write(writes, cluster_id)
        self.dropped = {one.entity for one in outcomes if one.reason is Reason.CONFLICT}
        assert all(one.applied or one.entity in self.dropped for one in outcomes)
        return not writes

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
        world.let_it_show()
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


@pytest.mark.timeout(max(600, 60 + 3 * ROUNDS))
def test_a_writer_of_the_same_quotas_at_any_moment_is_told_and_repaired_by_the_next_pass(
    world: AdminWorld,
) -> None:
    """A race that is lost is seen by the very next pass, which puts everything right with one write
    for each quota; the pass after it has nothing to do, so that nobody fights.
    """
    ours = Process(world.settings, world.topic)
    ours.store.claim(Claim(POLICY, "uid-1"))
    ours.until_converged(world.cluster_id, "2000", 0.0)
    chosen = random.Random(7)
    seen_first = dropped = lost = 0
    took_seconds = 0.05  # the last pass, so that the moments are within the next one
    for number in range(ROUNDS):
        wanted = str(3000 + number)
        delay_seconds = chosen.uniform(0.0, 1.1 * took_seconds)
        victims = chosen.sample(USERS, 2)

        def disturb(delay: float = delay_seconds, whom: list[Entity] = victims) -> None:
            time.sleep(delay)
            alter(world.others, {one: {PRODUCE: FOREIGN} for one in whom}, world.topic)

        if number % 8 == 7:  # chance alone meets these milliseconds on a slow machine only

            def just_before(whom: list[Entity] = victims) -> None:
                alter(world.others, {one: {PRODUCE: FOREIGN} for one in whom}, world.topic)
                world.let_it_show()

            ours.pass_once(world.cluster_id, wanted, float(number), before_writing=just_before)
            assert ours.dropped == set(victims), f"round {number}"
        else:
            other = threading.Thread(target=disturb)
            began_seconds = time.monotonic()
            other.start()
            ours.pass_once(world.cluster_id, wanted, float(number))
            took_seconds = time.monotonic() - began_seconds
            other.join()
            if number % 8 == 3:  # nor these
                alter(world.others, {one: {PRODUCE: FOREIGN} for one in victims}, world.topic)
        world.let_it_show()
        seen_first += bool(ours.foreign)
        dropped += bool(ours.dropped)
        in_force = {one for one in USERS if world.quotas(one)[PRODUCE] == FOREIGN}
        lost += bool(in_force)

        written = ours.client.altered
        ours.pass_once(world.cluster_id, wanted, number + 0.25)
        assert ours.foreign == in_force, f"round {number}"
        assert ours.dropped == set(), f"round {number}"
        assert ours.client.altered - written <= len(USERS)
        assert ours.pass_once(world.cluster_id, wanted, number + 0.5), f"round {number}"
        check(world, wanted)
    print(
        f"{ROUNDS} rounds: the other writer came before our reading in {seen_first}, before our "
        f"writing in {dropped}, and after it in {lost}"
    )
    assert dropped  # else the moments that are meant were not met
    assert lost
    ours.close()


KINDS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn", "AlterClientQuotas")


@pytest.mark.timeout(max(600, 60 + 3 * ROUNDS))
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
