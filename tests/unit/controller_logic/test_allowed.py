"""spec.allowedEntities: tiers manage the entities that the policy lets them name, and no others."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.test_invariants import Turn, play, turns, worlds
from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    MB,
    World,
    member,
    per_broker,
    policy,
    report_of,
    tier,
)
from tidegate_logic.contracts.allowed import is_allowed
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decide import decide
from tidegate_logic.model import (
    AllowedEntities,
    Entity,
    Level,
    Override,
    WriteKind,
)
from tidegate_logic.reasons import Reason


@pytest.mark.parametrize(
    ("allowed", "entity", "namespace", "expected"),
    [
        (AllowedEntities(users=("orders",)), Entity("orders"), "streaming", True),
        (AllowedEntities(users=("orders",)), Entity("orders-2"), "streaming", False),
        (AllowedEntities(users=("orders-*",)), Entity("orders-2"), "streaming", True),
        (AllowedEntities(users=("orders-*",)), Entity("orders-"), "streaming", True),
        (AllowedEntities(users=("orders-*",)), Entity("orders"), "streaming", False),
        (AllowedEntities(users=("*",)), Entity("anybody"), "streaming", True),
        # a pair reaches its user's clients only, so the user decides
        (AllowedEntities(users=("orders",)), Entity("orders", "etl"), "streaming", True),
        (AllowedEntities(client_ids=("etl",)), Entity("orders", "etl"), "streaming", False),
        # a client id alone reaches clients of every user
        (AllowedEntities(users=("*",)), Entity(None, "etl"), "streaming", False),
        (AllowedEntities(client_ids=("etl*",)), Entity(None, "etl-7"), "streaming", True),
        (AllowedEntities(("orders",), (), ("team-a",)), Entity("orders"), "team-a", True),
        (AllowedEntities(("orders",), (), ("team-a",)), Entity("orders"), "team-b", False),
    ],
)
def test_whose_entities_a_pattern_covers(
    allowed: AllowedEntities, entity: Entity, namespace: str, *, expected: bool
) -> None:
    found = is_allowed(policy(allowed=(allowed,)), f"{namespace}/tier", entity)
    assert found is expected


def test_without_a_list_everything_is_allowed_and_with_an_empty_one_nothing() -> None:
    assert is_allowed(policy(), "streaming/orders", ALICE)
    assert not is_allowed(policy(allowed=()), "streaming/orders", ALICE)


def _two_members(**changes: object) -> World:
    return World(
        (tier(member(ALICE, per_broker(5 * MB)), member(BOB, per_broker(5 * MB))),),
        policy=policy(**changes),
    )


def test_a_member_outside_of_the_list_is_refused_by_name_and_the_others_are_served() -> None:
    world = _two_members(allowed=(AllowedEntities(users=("alice", "orders-*")),))
    decision = world.run()
    assert [write.entity for write in decision.writes] == [ALICE]
    refused = report_of(decision, BOB)
    assert (refused.state, refused.reason) == (MemberState.NOT_ALLOWED, Reason.ENTITY_NOT_ALLOWED)
    assert refused.message == (
        "spec.allowedEntities of policy streaming/main does not allow user=bob: users that "
        "tiers of namespace streaming may name are alice, orders-*. This member changes nothing, "
        "and a quota that it had from Tidegate is that of a removed member: restored, or held "
        "until that is confirmed (removal.maxPercent)"
    )
    assert [(note.reason, note.entity) for note in decision.notes] == [
        (Reason.ENTITY_NOT_ALLOWED, BOB)
    ]
    assert [(one.level, one.members) for one in decision.levels] == [(Level.L1, 1)]


def test_a_tier_that_may_not_name_an_entity_cannot_take_it_from_one_that_may() -> None:
    squatter = tier(member(ALICE, per_broker(1024)), key="team-b/first")
    owner = tier(member(ALICE, per_broker(7 * MB)), key="team-a/orders")
    world = World(
        (squatter, owner),
        policy=policy(allowed=(AllowedEntities(("alice",), (), ("team-a",)),)),
    )
    decision = world.run()
    assert world.text(ALICE) == "7000000"
    assert [report.state for report in decision.members] == [
        MemberState.CONTRACT,
        MemberState.NOT_ALLOWED,
    ]


def test_a_shorter_list_gives_the_quota_back_as_if_the_member_had_been_removed() -> None:
    world = _two_members(max_removal_percent=100)
    world.run()
    assert world.text(BOB) == "5000000"
    world.policy = replace(world.policy, allowed=(AllowedEntities(users=("alice",)),))
    decision = world.after_grace(60)
    assert [(write.entity, write.kind) for write in decision.writes] == [(BOB, WriteKind.GIVE_BACK)]
    assert (world.text(ALICE), world.text(BOB)) == ("5000000", None)


def test_a_list_that_lets_go_of_too_many_is_held_by_the_removal_guard() -> None:
    names = [Entity(f"user-{number}") for number in range(10)]
    world = World((tier(*(member(entity, per_broker(MB)) for entity in names)),), policy=policy())
    world.run()
    world.policy = replace(world.policy, allowed=(AllowedEntities(users=("none",)),))
    decision = world.after(60)
    assert not decision.writes
    assert Reason.REMOVAL_HELD in {note.reason for note in decision.notes}
    assert all(world.text(entity) == "1000000" for entity in names)


def test_an_override_for_an_entity_outside_of_the_list_says_so() -> None:
    world = _two_members(allowed=(AllowedEntities(users=("alice",)),))
    end_seconds = world.now_seconds + 3600
    overrides = (
        Override("streaming/bobs", end_seconds, "why", entity=BOB, rates=per_broker(9 * MB)),
        Override("streaming/all", end_seconds, "why", level=Level.L1),
    )
    decision, _ = decide(replace(world.observation(), overrides=overrides), world.memory)
    assert list(decision.overridden.applied) == [ALICE]
    (refused,) = decision.overridden.not_applicable["streaming/bobs"]
    assert refused.reason is Reason.ENTITY_NOT_ALLOWED
    assert BOB not in {write.entity for write in decision.writes}


def test_a_refused_namesake_is_no_concern_of_an_override() -> None:
    squatter = tier(member(ALICE, per_broker(1024)), key="team-b/first")
    owner = tier(member(ALICE, per_broker(7 * MB)), key="team-a/orders")
    world = World(
        (squatter, owner),
        policy=policy(allowed=(AllowedEntities(("alice",), (), ("team-a",)),)),
    )
    override = Override(
        "team-a/more", world.now_seconds + 60, "why", entity=ALICE, rates=per_broker(9 * MB)
    )
    decision, _ = decide(replace(world.observation(), overrides=(override,)), world.memory)
    assert list(decision.overridden.applied) == [ALICE]
    assert decision.overridden.not_applicable == {}


def test_a_client_id_outside_of_the_list_does_not_withhold_metering() -> None:
    strange = tier(member(Entity(None, "etl"), per_broker(MB)), key="streaming/strange")
    world = World(
        (strange,),
        policy=policy(metering_enabled=True, allowed=(AllowedEntities(users=("*",)),)),
    )
    decision, _ = decide(replace(world.observation(), client_quotas_exist=False), world.memory)
    assert Reason.METERING_WITHHELD not in {note.reason for note in decision.notes}


_NAMES = ("a", "b", "c", "d", "a*", "*")
_lists = st.none() | st.lists(
    st.builds(
        AllowedEntities,
        st.lists(st.sampled_from(_NAMES), max_size=2).map(tuple),
        st.lists(st.sampled_from(_NAMES), max_size=2).map(tuple),
        st.sampled_from([(), ("streaming",), ("elsewhere",)]),
    ),
    max_size=2,
).map(tuple)


@settings(deadline=None)
@given(worlds(), st.lists(st.tuples(_lists, turns.map(lambda given: given[0])), max_size=6))
def test_no_decision_has_an_entity_that_the_policy_does_not_allow_but_to_give_it_back(
    world: World, story: list[tuple[tuple[AllowedEntities, ...] | None, Turn]]
) -> None:
    for allowed, turn in story:
        world.policy = replace(world.policy, allowed=allowed)
        before, decision = play(world, turn)
        named = {one.entity: one.tier_key for one in decision.members}

        def may(entity: Entity, named: dict[Entity, str] = named) -> bool:
            return entity.is_default or is_allowed(world.policy, named[entity], entity)

        counting = {one.entity for one in decision.members if one.counts}
        assert all(may(entity) for entity in counting)
        assert all(may(entity) for entity in decision.overridden.applied)
        steps = decision.throttle.steps if decision.throttle is not None else {}
        assert {entity for entity, _ in steps} <= counting
        for write in (*decision.writes, *decision.would_write):
            if write.entity in named and not may(write.entity):
                assert before[write.entity].ledger is not None, "it was never ours"
                assert write.reason in (Reason.GIVEN_BACK, Reason.STEPPING)
