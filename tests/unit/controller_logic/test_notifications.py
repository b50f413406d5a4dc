"""Quotas that are right in ZooKeeper, and of which it is not known that brokers were notified."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    World,
    member,
    per_broker,
    policy,
    stored,
    tier,
)
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    DeletionPolicy,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Mode,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.reasons import Reason

CONTRACT = per_broker(5 * MB, 5 * MB)
VALUES = {FETCH: "5000000", PRODUCE: "5000000"}


def users(count: int) -> list[Entity]:
    return [Entity(f"user-{number:04d}") for number in range(count)]


def silent(entity: Entity) -> StoredQuota:
    """A quota that somebody wrote, perhaps without notifying any broker."""
    return replace(stored(entity, VALUES), notified=False)


def recorded(entity: Entity) -> StoredQuota:
    """The same, recorded long ago by a version that wrote the ledger alone."""
    entries = {
        key: LedgerEntry(text, text, text, 1.0, Reason.CONTRACT, "5 MB/s per broker")
        for key, text in VALUES.items()
    }
    record = LedgerRecord(entity, "streaming/main", "uid-1", entries)
    return replace(silent(entity), ledger=record, ledger_version=0)


def world(*there: StoredQuota, **of_policy: object) -> World:
    members = [member(one.entity, CONTRACT) for one in there]
    quotas = {one.entity: one for one in there}
    return World((tier(*members),), policy(**of_policy), quotas=quotas)


def is_notified(played: World, entity: Entity = ALICE) -> bool:
    assert played.quotas is not None
    return played.quotas[entity].notified


def test_the_first_take_over_notifies_brokers_and_pays_for_it() -> None:
    played = world(silent(ALICE))
    (write,) = played.run().writes
    assert (write.kind, write.values) == (WriteKind.RECORD, {})
    assert write.notifies
    assert write.charged
    assert is_notified(played)
    for _ in range(10):
        played.now_seconds += 30
        assert not played.run().writes


def test_a_take_over_of_many_records_all_and_notifies_for_half_of_the_budget() -> None:
    there = users(30)
    played = world(*map(silent, there), write_budget_changes=20)
    decision = played.run()
    assert len(decision.writes) == 30
    assert {write.kind for write in decision.writes} == {WriteKind.RECORD}
    assert sum(write.notifies for write in decision.writes) == 10
    assert sum(write.charged for write in decision.writes) == 10
    assert decision.deferred_writes == 0
    assert decision.in_sync == 30
    sent = Counter[Entity]()
    for _ in range(100):
        played.now_seconds += 30
        sent.update(write.entity for write in played.run().writes)
    assert all(is_notified(played, one) for one in there)
    assert set(sent.values()) == {1}
    assert len(sent) == 20


def test_after_an_upgrade_at_most_20_a_minute_are_notified_once_and_after_everything_else() -> None:
    there = users(130)
    played = world(*map(recorded, there))
    times: list[float] = []
    first = played.run()
    assert not first.writes
    assert first.in_sync == 130
    assert first.unnotified == 130
    new = member(Entity("new"), CONTRACT)
    while not all(is_notified(played, one) for one in there):
        played.now_seconds += 10
        if len(times) == 20:
            assert played.tiers is not None
            played.tiers = (tier(*played.tiers[0].members, new),)
        decision = played.run()
        kinds = [write.kind for write in decision.writes]
        assert kinds == sorted(kinds, key=list(WriteKind).index)
        assert decision.deferred_writes == 0
        assert decision.in_sync == decision.managed
        times += [played.now_seconds for kind in kinds if kind is WriteKind.NOTIFY]
        assert played.now_seconds < 1_010_000
    assert len(times) == 130
    for at in times:
        assert sum(at - 60 < one <= at for one in times) <= 20
    assert not played.run().writes
    assert played.decide().unnotified == 0


def test_what_only_notifies_leaves_half_of_the_budget_to_what_changes() -> None:
    there = users(40)
    played = world(*map(recorded, there), write_budget_changes=10)
    played.run()
    for _ in range(20):
        played.now_seconds += 30
        played.run()
    assert sum(is_notified(played, one) for one in there) == 5
    members = [member(one, per_broker(6 * MB, 6 * MB)) for one in there]
    played.tiers = (tier(*members),)
    raises = [write for write in played.run().writes if write.kind is WriteKind.RAISE]
    assert len(raises) == 3  # the last fifth is kept for lowerings


def test_a_process_that_begins_again_and_again_notifies_of_nothing() -> None:
    played = world(*map(recorded, users(5)))
    for _ in range(30):
        played.memory = Memory()
        played.now_seconds += 10
        assert not played.run().writes


def test_what_another_tool_put_back_without_a_word_is_notified_with_the_next_pass() -> None:
    played = world(replace(recorded(ALICE), notified=True))
    played.run()
    played.now_seconds += 120
    assert not played.run().writes
    assert played.quotas is not None
    played.quotas[ALICE] = recorded(ALICE)
    played.now_seconds += 30
    (write,) = played.run().writes
    assert (write.kind, write.reason) == (WriteKind.NOTIFY, Reason.BROKERS_NOTIFIED)
    assert write.ledger == write.seen.ledger
    assert "brokers are notified of them once" in write.message


@pytest.mark.parametrize("change", [{"values": {FETCH: "7", PRODUCE: "5000000"}}, {"problem": "?"}])
def test_values_that_are_not_ours_are_not_spread(change: dict[str, object]) -> None:
    played = world(replace(recorded(ALICE), **change))  # type: ignore[arg-type]
    played.run()
    played.now_seconds += 120
    assert all(write.kind is not WriteKind.NOTIFY for write in played.decide().writes)


def test_nothing_is_notified_while_nothing_may_be_written() -> None:
    played = world(recorded(ALICE), mode=Mode.OBSERVE)
    played.run()
    played.now_seconds += 120
    decision = played.run()
    assert not decision.writes
    assert not decision.would_write


@pytest.mark.parametrize("how", list(DeletionPolicy))
def test_what_stays_when_the_policy_goes_is_notified_with_the_end_of_its_record(
    how: DeletionPolicy,
) -> None:
    played = world(recorded(ALICE), deleting=True, deletion_policy=how)
    (write,) = played.run().writes
    assert write.ledger is None
    assert not write.values
    assert write.notifies
    assert not write.charged
