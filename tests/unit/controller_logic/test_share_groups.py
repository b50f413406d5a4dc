"""Members that share groups use have no fetch quota; what is unknown changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.loaded_world import LoadedWorld, loaded_world, set_limit
from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    World,
    member,
    per_broker,
    policy,
    report_of,
    stored,
    tier,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.contracts.share_groups import DWELL_SECONDS, groups_of
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    DeletionPolicy,
    Entity,
    Level,
    Observation,
    Override,
    ShareGroup,
    ShareGroupRule,
    Speed,
    StoredQuota,
)
from tidegate_logic.reasons import Reason

PAIR = Entity("alice", "orders-reader")
CLIENT = Entity(client_id="orders-reader")
ORDERS = ShareGroup("orders", frozenset({"orders-reader"}), lock_seconds=30.0)
OTHER = ShareGroup("invoices", frozenset({"orders-reader", "x"}), lock_seconds=15.0)
CONTRACT = per_broker(10 * MB, 8 * MB)
NOTHING_SECONDS = 15.0


@dataclass
class SharedWorld(World):
    """Share groups as brokers report them; None = they do not answer."""

    groups: tuple[ShareGroup, ...] | None = ()

    def observation(self) -> Observation:
        return replace(super().observation(), share_groups=self.groups)

    def restart(self) -> None:
        """The operator begins again, and has not asked about share groups yet."""
        self.memory, self.groups = Memory(), None


def world_of(entity: Entity = PAIR, **changes: object) -> SharedWorld:
    named = replace(member(entity, CONTRACT), **changes)  # type: ignore[arg-type]
    return SharedWorld((tier(named),))


@pytest.mark.parametrize(
    ("entity", "names", "reads"),
    [
        (PAIR, (), True),
        (CLIENT, (), True),
        (Entity("alice", "other"), (), False),
        (ALICE, (), False),
        (ALICE, ("orders",), True),
        (ALICE, ("ord*",), True),
        (ALICE, ("order",), False),
        (ALICE, ("invoices",), False),
    ],
)
def test_which_member_a_share_group_reads_with(
    entity: Entity, names: tuple[str, ...], *, reads: bool
) -> None:
    world = world_of(entity, share_group_names=names)
    world.groups = (ORDERS,)
    decision = world.run()
    assert (world.text(entity) is None) is reads
    assert world.text(entity, PRODUCE) == "8000000"
    assert (report_of(decision, entity).reason is Reason.SHARE_GROUP) is reads


def test_a_group_that_comes_frees_at_once_what_was_there_before_and_dwells_when_it_goes() -> None:
    world = world_of()
    world.quotas = {PAIR: stored(PAIR, {FETCH: "12000000"})}
    world.run()
    assert world.text(PAIR) == "10000000"
    world.groups = (ORDERS,)
    decision = world.after(NOTHING_SECONDS)
    assert world.text(PAIR) == "12000000", "one pass, without a grace and without confirmation"
    assert [write.reason for write in decision.writes] == [Reason.GIVEN_BACK]
    assert world.after(NOTHING_SECONDS).writes == ()
    world.groups = ()
    assert world.after(NOTHING_SECONDS).writes == ()
    assert world.after(DWELL_SECONDS - 1).writes == ()
    world.after(1)
    assert world.text(PAIR) == "10000000"


def test_members_without_members_in_a_restart_of_the_clients_count_as_read_with() -> None:
    world = world_of()
    for groups in ((ORDERS,), (), (ORDERS,), ()):
        world.groups = groups
        world.after(DWELL_SECONDS - 1)
        assert world.text(PAIR) is None
    assert "until less than 10 minutes ago" in report_of(world.run(), PAIR).message


def test_two_groups_of_one_member_are_named_and_the_last_one_that_goes_counts() -> None:
    world = world_of()
    world.groups = (ORDERS, OTHER)
    assert "share groups invoices, orders use it" in report_of(world.run(), PAIR).message
    world.groups = (OTHER,)
    world.after(2 * DWELL_SECONDS)
    assert world.text(PAIR) is None
    assert "share group invoices uses it" in report_of(world.run(), PAIR).message


@pytest.mark.parametrize("before", [None, "12000000"])
def test_a_restarted_operator_writes_no_first_fetch_quota_until_it_knows(
    before: str | None,
) -> None:
    world = world_of()
    if before is not None:
        world.quotas = {PAIR: stored(PAIR, {FETCH: before})}
    world.groups = (ORDERS,)
    world.run()
    world.restart()
    for _ in range(5):
        world.after(NOTHING_SECONDS)
        assert world.text(PAIR) == before
    world.groups = ()
    world.after(NOTHING_SECONDS)
    assert world.text(PAIR) == "10000000"


def test_a_restarted_operator_keeps_the_fetch_quota_that_stands_while_it_does_not_know() -> None:
    world = world_of()
    world.run()
    world.restart()
    assert world.after(NOTHING_SECONDS).writes == ()
    assert world.text(PAIR) == "10000000"


def test_a_member_that_no_share_group_can_be_matched_with_waits_for_nothing() -> None:
    world = world_of(ALICE)
    world.groups = None
    world.run()
    assert world.text(ALICE) == "10000000"


def test_brokers_that_stop_answering_change_nothing() -> None:
    world = world_of()
    world.groups = (ORDERS,)
    world.run()
    world.groups = None
    world.after(10 * DWELL_SECONDS)
    assert world.text(PAIR) is None


def test_time_without_answers_does_not_count_as_time_without_the_group() -> None:
    world = world_of()
    for groups in ((ORDERS,), None, ()):
        world.groups = groups
        world.after(2 * DWELL_SECONDS)
        assert world.text(PAIR) is None
    world.after(DWELL_SECONDS)
    assert world.text(PAIR) is not None


def test_a_restart_on_the_way_down_to_a_foreign_value_turns_nothing_round() -> None:
    world = world_of()
    world.quotas = {PAIR: stored(PAIR, {FETCH: "1000000"})}
    world.run()
    world.groups = (ORDERS,)
    world.after(60)
    way = int(world.text(PAIR) or 0)
    assert 1_000_000 < way < 10_000_000
    world.restart()
    world.after(60)
    assert int(world.text(PAIR) or 0) < way


def test_another_writers_fetch_quota_stays() -> None:
    world = world_of()
    world.quotas = {PAIR: stored(PAIR, {FETCH: "12345"})}
    world.groups = (ORDERS,)
    world.run()
    assert world.text(PAIR) == "12345"


def test_an_override_sets_no_fetch_quota_either() -> None:
    world = world_of()
    world.groups = (ORDERS,)
    override = Override(
        "streaming/o", world.now_seconds + 9e5, "test", entity=PAIR, rates=per_broker(20 * MB)
    )
    observation = replace(world.observation(), overrides=(override,))
    world.observation = lambda: observation  # type: ignore[method-assign]
    world.run()
    assert (world.text(PAIR), world.text(PAIR, PRODUCE)) == (None, "8000000")


def test_only_the_member_that_counts_says_which_groups_read_with_it() -> None:
    first, second = member(ALICE, CONTRACT), member(ALICE, CONTRACT)
    world = SharedWorld(
        (tier(first), tier(replace(second, share_group_names=("orders",)), key="other/late"))
    )
    world.groups = (ORDERS,)
    world.run()
    assert world.text(ALICE) == "10000000"


def test_a_member_with_a_fetch_contract_alone_says_why_it_is_not_limited() -> None:
    world = SharedWorld((tier(member(PAIR, per_broker(10 * MB)), level=Level.L0),))
    world.groups = (ORDERS,)
    report = report_of(world.run(), PAIR)
    assert (report.state, report.reason) == (MemberState.UNLIMITED, Reason.SHARE_GROUP)
    assert "10 MB/s perBroker is not written" in report.message


def test_a_deleted_policy_restores_everything() -> None:
    world = world_of()
    world.run()
    world.groups = (ORDERS,)
    world.policy = replace(world.policy, deleting=True, deletion_policy=DeletionPolicy.RESTORE)
    world.after(NOTHING_SECONDS)
    assert (world.text(PAIR), world.text(PAIR, PRODUCE)) == (None, None)


# --- shareGroups: Throttle, and the throttle --------------------------------------------------------


def longest_mute(world: SharedWorld) -> float:
    """The longest mute that the way down from 100 to 10 MB/s was predicted to cause."""
    longest = 0.0
    for _ in range(40):
        decision = world.run()
        longest = max([longest, *(one.predicted_mute_seconds for one in decision.writes)])
        if decision.next_pass_in_seconds is None:
            return longest
        world.now_seconds += decision.next_pass_in_seconds
    raise AssertionError("it does not come to rest")


@pytest.mark.parametrize(
    ("lock_seconds", "bound"), [(15.0, 5), (30.0, 10), (None, 10), (60.0, 12), (3.0, 2)]
)
def test_a_member_that_accepts_throttling_is_muted_for_a_third_of_the_lock_at_most(
    lock_seconds: float | None, bound: int
) -> None:
    world = world_of(share_groups=ShareGroupRule.THROTTLE)
    world.quotas = {PAIR: stored(PAIR, {FETCH: "100000000", PRODUCE: "8000000"})}
    world.groups = (replace(ORDERS, lock_seconds=lock_seconds),)
    assert bound - 1.1 < longest_mute(world) <= bound
    assert world.text(PAIR) == "10000000"


def test_a_member_that_accepts_throttling_is_bounded_while_groups_are_unknown() -> None:
    world = world_of(share_groups=ShareGroupRule.THROTTLE)
    world.quotas = {PAIR: stored(PAIR, {FETCH: "100000000", PRODUCE: "8000000"})}
    world.groups = None
    assert longest_mute(world) <= 10


class SharedLoad(LoadedWorld):
    """The user of L3 reads by a share group once `group` is set."""

    group: ShareGroup | None = None

    def observation(self) -> Observation:
        groups = () if self.group is None else (self.group,)
        return replace(super().observation(), share_groups=groups)


def shared_load(
    rule: ShareGroupRule = ShareGroupRule.PROTECT, **changes: Any
) -> tuple[SharedLoad, Entity]:
    found = loaded_world(**changes)
    world = SharedLoad(**{name: getattr(found, name) for name in found.__dataclass_fields__})
    (low,) = [one for one in world.tiers or () if one.level is Level.L3]
    changed = replace(low.members[0], share_group_names=("orders",), share_groups=rule)
    world.tiers = tuple(
        replace(one, members=(changed,)) if one is low else one for one in world.tiers or ()
    )
    return world, changed.entity


def test_a_throttled_member_that_a_group_begins_to_read_with_is_let_go_and_others_are_cut() -> None:
    world, low = shared_load()
    world.minutes(2)
    set_limit(world, 80 * MB)
    world.minutes(6)
    assert float(world.text(low) or 0) < 25 * MB
    world.group = ORDERS
    world.minutes(8)
    assert world.text(low) is None
    assert world.carried <= 80 * MB, "the others are throttled for it"
    world.group = None
    world.minutes(DWELL_SECONDS / 60 + 8)
    assert float(world.text(low) or 0) < 25 * MB, "it takes part again"


@pytest.mark.parametrize("speed", list(Speed))
def test_a_cut_of_a_member_that_accepts_it_mutes_for_a_third_of_the_lock_at_most(
    speed: Speed,
) -> None:
    mutes = {}
    for group in (replace(OTHER, name="orders"), None):
        world, low = shared_load(ShareGroupRule.THROTTLE, speed=speed)
        world.group, world.scrape_seconds = group, 1.0
        world.minutes(2)
        set_limit(world, 50 * MB)
        cuts = [w for one in world.minutes(6) for w in one.writes if w.entity == low]
        mutes[group is not None] = max(one.predicted_mute_seconds for one in cuts)
    assert mutes[True] <= 5 < mutes[False]
    assert (mutes[False] > 12) is (speed is Speed.DRAIN)


# --- whatever happens -------------------------------------------------------------------------------

GROUPS = st.one_of(
    st.none(),
    st.lists(
        st.builds(
            ShareGroup,
            st.sampled_from(["orders", "invoices", "x"]),
            st.frozensets(st.sampled_from(["orders-reader", "y"])),
            lock_seconds=st.sampled_from([None, 1.0, 15.0, 60.0]),
        ),
        max_size=3,
        unique_by=lambda group: group.name,
    ).map(tuple),
)
ACTS = st.lists(st.tuples(GROUPS, st.floats(0.0, 900.0), st.booleans()), max_size=12)
FOREIGN = st.sampled_from([None, "2000000", "50000000"])


@given(ACTS, FOREIGN, st.sampled_from(list(ShareGroupRule)))
def test_no_fetch_quota_is_written_while_a_group_reads_and_nothing_foreign_is_lost(
    acts: list[tuple[tuple[ShareGroup, ...] | None, float, bool]],
    foreign: str | None,
    rule: ShareGroupRule,
) -> None:
    world = world_of(share_groups=rule)
    protects = rule is ShareGroupRule.PROTECT
    world.quotas = {} if foreign is None else {PAIR: stored(PAIR, {FETCH: foreign})}
    for groups, seconds, restarts in acts:
        if restarts:
            world.restart()
            before = world.text(PAIR)
            world.after(seconds)
            if protects and before == foreign:
                assert world.text(PAIR) == foreign, "what is unknown changes nothing"
        world.groups = groups
        before = world.text(PAIR)
        decision = world.after(seconds)
        mine = groups_of(world.observation().tiers[0].members[0], groups or ())  # type: ignore[index]
        if mine and protects:
            for write in decision.writes:
                assert FETCH not in write.values or write.reason is Reason.GIVEN_BACK
        world.memory = replace(world.memory, charged=())
    world.groups = (ORDERS,)
    for _ in range(12):  # the way to a lower foreign value has safe steps
        world.after(60)
    assert world.text(PAIR) == (foreign if protects else "10000000")
    world.policy = policy(deleting=True)
    for _ in range(12):
        world.after(60)
    assert world.text(PAIR) == foreign
    assert isinstance((world.quotas or {})[PAIR], StoredQuota)
