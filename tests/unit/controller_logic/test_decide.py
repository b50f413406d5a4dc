"""Whose entity it is, who writes it too, and how much may be written."""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    FETCH,
    MB,
    World,
    fixed_world,
    many_world,
    member,
    per_broker,
    policy,
    report_of,
    stored,
    tier,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    Contract,
    DeletionPolicy,
    LedgerRecord,
    Mode,
    QuotaKey,
    RateForm,
    WriteKind,
)
from tidegate_logic.reasons import Reason


def test_an_equal_quota_is_not_rewritten_but_recorded_so_that_it_can_be_given_back() -> None:
    world = World(
        (tier(member(ALICE, Contract(RateForm.PER_BROKER, request_percentage=50))),),
        policy=policy(max_removal_percent=100),
    )
    world.quotas = {ALICE: stored(ALICE, {QuotaKey.REQUEST_PERCENTAGE: "50.0"})}
    decision = world.run()
    assert [(write.kind, dict(write.values)) for write in decision.writes] == [
        (WriteKind.RECORD, {})
    ]
    world.tiers = ()
    world.after_grace(60)
    assert world.text(ALICE, QuotaKey.REQUEST_PERCENTAGE) == "50.0"
    assert world.quotas[ALICE].ledger is None


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [(None, Reason.FIRST_QUOTA), ("5000000", Reason.ADOPTED), ("11000000", Reason.ADOPTED)],
    ids=["nothing", "smaller", "larger"],
)
def test_a_quota_of_somebody_else_is_adopted_and_only_where_none_was_it_is_the_first(
    foreign: str | None, reason: Reason
) -> None:
    world = fixed_world(10 * MB)
    world.quotas = {ALICE: stored(ALICE, {} if foreign is None else {FETCH: foreign})}
    assert [write.reason for write in world.run().writes] == [reason]
    assert world.quotas[ALICE].ledger.entries[FETCH].before == foreign  # type: ignore[union-attr]


def test_foreign_content_stops_its_own_entity_only() -> None:
    world = World((tier(member(ALICE, per_broker(MB)), member(BOB, per_broker(MB))),))
    world.quotas = {ALICE: replace(stored(ALICE), version=3, problem="bad JSON")}
    decision = world.run()
    assert report_of(decision, ALICE).state is MemberState.FOREIGN_CONTENT
    assert [write.entity for write in decision.writes] == [BOB]


def test_another_policys_record_is_left_alone() -> None:
    world = fixed_world(MB)
    world.quotas = {
        ALICE: replace(
            stored(ALICE, {FETCH: "5000"}), ledger=LedgerRecord(ALICE, "other/policy", "u", {})
        )
    }
    decision = world.run()
    assert not decision.writes
    assert [note.reason for note in decision.notes] == [Reason.CLUSTER_ALREADY_MANAGED]


def test_the_later_of_two_members_with_one_entity_changes_nothing() -> None:
    world = World(
        (
            tier(member(ALICE, per_broker(5 * MB))),
            tier(member(ALICE, per_broker(7 * MB)), key="streaming/late"),
        )
    )
    decision = world.run()
    assert world.text(ALICE) == "5000000"
    assert [report.state for report in decision.members] == [
        MemberState.CONTRACT,
        MemberState.OVERLAPPING,
    ]


def test_a_deleted_policy_gives_everything_back_uncapped_and_without_leaders() -> None:
    world = many_world()
    world.run()
    world.policy, world.topology, world.tiers = policy(deleting=True), None, None
    assert not world.after(60).finished_deleting
    assert {
        text for quota in (world.quotas or {}).values() for text in quota.values.values()
    } == set()
    assert world.after(1).finished_deleting


def test_the_write_budget_holds_nothing_back_of_a_policy_that_is_deleted() -> None:
    world = many_world(30)
    world.run()
    budget = {"write_budget_changes": 20, "write_budget_period_seconds": 900.0}
    world.policy = policy(**budget)
    raised = [replace(one, contract=per_broker(2 * MB)) for one in (world.tiers or ())[0].members]
    world.tiers = (tier(*raised),)
    assert world.after(60).deferred_writes == 14  # all that raises may use is spent
    world.policy, charged = policy(deleting=True, **budget), world.memory.charged
    decision = world.after(1)
    assert (len(decision.writes), decision.deferred_writes) == (30, 0)
    assert world.memory.charged == charged
    assert world.after(1).finished_deleting


def test_a_policy_deleted_with_keep_leaves_quotas_and_drops_its_records() -> None:
    world = fixed_world(MB)
    world.run()
    world.policy = policy(deleting=True, deletion_policy=DeletionPolicy.RETAIN)
    decision = world.after(60)
    assert [(write.kind, dict(write.values), write.ledger) for write in decision.writes] == [
        (WriteKind.RECORD, {}, None)
    ]
    assert world.text(ALICE) == "1000000"
    assert world.after(1).finished_deleting


@pytest.mark.parametrize("frozen", [{"paused_by": ("spec.suspend",)}, {"mode": Mode.OBSERVE}])
def test_a_frozen_policy_writes_nothing_even_when_it_is_deleted(frozen: dict[str, object]) -> None:
    world = fixed_world(MB)
    world.run()
    world.policy = policy(deleting=True, **frozen)
    decision = world.after(60)
    assert (decision.writes, decision.finished_deleting) == ((), True)
    assert [note.reason for note in decision.notes] == [Reason.RESTORE_INCOMPLETE]


def test_observe_shows_what_it_would_write() -> None:
    world = fixed_world(MB, mode=Mode.OBSERVE)
    decision = world.run()
    assert not decision.writes
    assert [write.values for write in decision.would_write] == [{FETCH: "1000000"}]
    assert report_of(decision, ALICE).quota == {}


@pytest.mark.parametrize("period_seconds", [900.0, 120.0])
def test_raises_leave_a_fifth_of_the_budget_to_lowerings_and_the_rest_waits(
    period_seconds: float,
) -> None:
    world = many_world()
    world.run()
    members = world.tiers[0].members if world.tiers else ()
    raised = [replace(item, contract=per_broker(2 * MB)) for item in members[:8]]
    lowered = [replace(item, contract=per_broker(MB * 3 // 4)) for item in members[8:]]
    world.tiers = (tier(*raised, *lowered),)
    world.policy = policy(write_budget_changes=5, write_budget_period_seconds=period_seconds)
    decision = world.after(60)
    assert [write.kind for write in decision.writes] == [WriteKind.LOWERING] * 2 + [
        WriteKind.RAISE
    ] * 2
    assert decision.deferred_writes == 6
    assert decision.next_pass_in_seconds == pytest.approx(period_seconds)
    assert len(world.after(period_seconds).writes) == 4


def test_a_restart_recovers_the_budget_from_the_ledger() -> None:
    world = many_world()
    world.run()
    members = world.tiers[0].members if world.tiers else ()
    world.tiers = (tier(*[replace(item, contract=per_broker(2 * MB)) for item in members]),)
    world.policy = policy(write_budget_changes=5)
    assert len(world.after(60).writes) == 4
    world.memory = Memory()
    assert not world.after(60).writes
    world.memory = Memory()
    world.policy = replace(world.policy, write_budget_period_seconds=60.0)
    assert len(world.after(30).writes) == 4
