"""A quota that no contract names any more waits, is restored, and is remembered for a while."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    DEFAULT_USER,
    FETCH,
    MB,
    PRODUCE,
    World,
    fixed_world,
    many_world,
    member,
    per_broker,
    policy,
    report_of,
    run_to_the_end,
    stored,
    tier,
)
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    DeletionPolicy,
    Entity,
    LedgerRecord,
    Mode,
    Override,
    Tier,
    WriteKind,
)
from tidegate_logic.quotas.leaving import (
    GRACE_SECONDS,
    LOOK_EVERY_SECONDS,
    REMEMBERED_SECONDS,
    Waiting,
    is_restored,
)
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.quotas.sent_rates import FASTEST_NIC_BYTES_PER_SECOND
from tidegate_logic.reasons import Reason


def two_tiers(**changes: object) -> World:
    """Alice and Bob in a tier each, 10 MB/s per broker."""
    return World(
        (
            tier(member(ALICE, per_broker(10 * MB)), key="streaming/gold"),
            tier(member(BOB, per_broker(10 * MB)), key="streaming/silver"),
        ),
        policy=policy(max_removal_percent=100, **changes),
    )


def waits(decision: Decision) -> list[str]:
    return [note.message for note in decision.notes if note.reason is Reason.RESTORE_WAITS]


def without_alice(world: World) -> tuple[Tier, ...]:
    return tuple(one for one in world.tiers or () if one.members[0].entity != ALICE)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seconds_away", [0.0, 5.0, GRACE_SECONDS - 1])
def test_a_replaced_tier_changes_nothing(seconds_away: float, *, restarted: bool) -> None:
    world = two_tiers()
    world.run()
    before, record = world.tiers, world.quotas
    world.tiers = without_alice(world)
    assert world.after(60).writes == ()
    if restarted:
        world.memory = Memory()
    assert world.after(seconds_away).writes == ()
    world.tiers = before
    decision = world.after(0)
    assert (decision.writes, waits(decision), world.quotas) == ((), [], record)


def test_another_tier_or_member_of_the_policy_takes_the_quota_over_with_steps() -> None:
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    world.after(60)
    moved = tier(member(ALICE, per_broker(4 * MB)), key="streaming/bronze")
    world.tiers = (*world.tiers, moved)
    assert run_to_the_end(world) == ["5000000", "4000000"]
    assert world.quotas is not None
    record = world.quotas[ALICE].ledger
    assert record is not None
    assert record.entries[FETCH].before is None


def test_a_grace_says_until_when_and_asks_for_passes_that_look() -> None:
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    decision = world.after(60)
    assert decision.next_pass_in_seconds == LOOK_EVERY_SECONDS
    assert decision.leaving == {ALICE: world.now_seconds + GRACE_SECONDS}
    (note,) = [one for one in decision.notes if one.reason is Reason.RESTORE_WAITS]
    assert (note.entity, note.tier_key) == (ALICE, "streaming/gold")
    assert "at 13:48:10 UTC" in note.message
    assert waits(world.watched(24)) == [note.message], (
        "no countdown: the same words pass after pass"
    )
    decision = world.after(6)
    assert (world.text(ALICE), decision.leaving) == (None, {})


def test_the_end_of_a_grace_is_not_put_off_by_other_changes() -> None:
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    world.after(60)
    for rate in (9, 8, 7):
        world.tiers = (tier(member(BOB, per_broker(rate * MB)), key="streaming/silver"),)
        world.after(9)
    world.after(3)
    assert world.text(ALICE) is None


def test_a_pass_that_may_not_know_all_members_begins_the_grace_again() -> None:
    world = two_tiers()
    world.run()
    gone = without_alice(world)
    world.tiers = gone
    world.after(60)
    world.tiers = None
    world.after(20)
    world.tiers = gone
    assert world.after(20).writes == ()
    assert world.watched(GRACE_SECONDS - 1).writes == ()
    world.after(1)
    assert world.text(ALICE) is None


def test_a_pause_begins_the_grace_again() -> None:
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    world.after(60)
    running, world.policy = world.policy, replace(world.policy, paused_by=("spec.suspend",))
    world.after(60)
    world.policy = running
    assert world.after(5).writes == ()
    world.watched(GRACE_SECONDS)
    assert world.text(ALICE) is None


def test_in_mode_observe_nothing_waits_since_nothing_is_restored() -> None:
    world = two_tiers()
    world.run()
    world.policy = replace(world.policy, mode=Mode.OBSERVE)
    world.tiers = without_alice(world)
    decision = world.after(60)
    assert [write.kind for write in decision.would_write] == [WriteKind.GIVE_BACK]
    assert (decision.writes, waits(decision)) == ((), [])
    world.policy = replace(world.policy, mode=Mode.ENFORCE)
    assert world.watched(GRACE_SECONDS - 1).writes == (), "Enforce, Observe and Enforce again"


def test_a_direction_that_left_the_contract_waits_too_and_the_member_says_so() -> None:
    both = (tier(member(ALICE, per_broker(MB, 2 * MB))),)
    world = World(both, policy=policy(max_removal_percent=100))
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(MB))),)
    decision = world.after(60)
    report = report_of(decision, ALICE)
    assert report.reason is Reason.RESTORE_WAITS
    assert "produce without a contract" in report.message
    world.tiers = both
    world.after(5)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("1000000", "2000000")


def test_a_default_that_is_taken_out_and_put_back_stays_and_its_users_with_it() -> None:
    world = fixed_world(MB, max_removal_percent=100)
    world.policy = replace(world.policy, defaults={DEFAULT_USER: {FETCH: 8 * MB}})
    world.tiers = ()
    world.run()
    declared, world.policy = world.policy, replace(world.policy, defaults={})
    world.tiers = (tier(member(ALICE, per_broker(MB))),)
    world.after(60)
    assert world.text(DEFAULT_USER) == "8000000"
    assert world.text(ALICE) == "4000000", "it steps down from the default, which is in force"
    world.policy = declared
    assert world.after(5).writes == ()


def test_what_an_override_gave_alone_ends_with_it() -> None:
    world = World((tier(member(ALICE, None)),), policy=policy(max_removal_percent=100))
    override = Override(
        "streaming/quarantine",
        world.now_seconds + 100,
        "why",
        entity=ALICE,
        rates=per_broker(2 * MB),
    )
    seen = world.observation

    def with_override() -> object:
        return replace(seen(), overrides=(override,))

    world.observation = with_override  # type: ignore[method-assign,assignment]
    world.run()
    assert world.text(ALICE) == "2000000"
    world.after(101)
    assert world.text(ALICE) is None


def test_the_guard_counts_at_once_and_who_came_back_has_not_left() -> None:
    world = many_world()
    world.run()
    all_of_them = world.tiers or ()
    kept = all_of_them[0].members
    for gone in (range(5), range(5, 10)):  # half of them each time, and back within the grace
        staying = tuple(one for place, one in enumerate(kept) if place not in gone)
        world.tiers = (replace(all_of_them[0], members=staying),)
        decision = world.after(60)
        assert Reason.REMOVAL_HELD not in [note.reason for note in decision.notes]
        world.tiers = all_of_them
        assert world.after(5).writes == ()
    world.tiers = ()
    decision = world.after(60)
    assert Reason.REMOVAL_HELD in [note.reason for note in decision.notes]


# --- what is remembered ---------------------------------------------------------------------------


def restored_world(**changes: object) -> World:
    """Alice had 2 MB/s, and was restored after her grace."""
    world = fixed_world(2 * MB, max_removal_percent=100, **changes)
    world.run()
    world.tiers = ()
    world.after_grace(60)
    assert world.text(ALICE) is None
    return world


def record_of(world: World) -> LedgerRecord | None:
    assert world.quotas is not None
    return world.quotas[ALICE].ledger


def test_who_lost_one_quota_and_keeps_another_has_not_come_back() -> None:
    """Alice loses one of two quotas; then two of the other three members go, of whom one may."""
    names = [ALICE, BOB, *(Entity(f"user-{number}") for number in range(2))]
    members = [member(one, per_broker(10 * MB, 10 * MB)) for one in names]
    world = World((tier(*members),), policy=policy(max_removal_percent=50))
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(10 * MB)), *members[1:]),)
    world.after_grace(60)
    assert world.text(ALICE, PRODUCE) is None
    world.tiers = (tier(member(ALICE, per_broker(10 * MB)), members[1]),)
    world.after_grace(60)
    world.after(60)
    assert [world.text(one) for one in names] == [str(10 * MB)] * 4


def test_who_is_on_the_way_back_to_the_quota_of_before_has_not_come_back() -> None:
    """Alice goes back to 100 kB/s in steps; meanwhile two of the other three go, one may."""
    names = [ALICE, BOB, *(Entity(f"user-{number}") for number in range(2))]
    members = [member(one, per_broker(10 * MB)) for one in names]
    world = World((tier(*members),), policy=policy(max_removal_percent=50))
    world.someone_sets(ALICE, "100007")
    world.run()
    world.tiers = (tier(*members[1:]),)
    world.after_grace(60)
    world.tiers = (tier(members[1]),)
    world.after(15)
    for _ in range(2):  # it may take a step of her way back in each
        world.after(GRACE_SECONDS / 2)
    world.after(60)
    run_to_the_end(world)
    assert [world.text(one) for one in names] == ["100007", *[str(10 * MB)] * 3]


def test_the_ledger_remembers_what_was_restored_for_a_quarter_of_an_hour() -> None:
    world = restored_world()
    record = record_of(world)
    assert record is not None
    (entry,) = record.entries.values()
    assert is_restored(entry)
    assert (entry.before, entry.written, entry.previous) == (None, None, "2000000")
    assert world.after(REMEMBERED_SECONDS - 1).writes == ()
    (write,) = world.after(1).writes
    assert (write.kind, write.charged, dict(write.values)) == (WriteKind.RECORD, False, {})
    assert record_of(world) is None


def test_what_is_remembered_is_no_quota_of_ours() -> None:
    decision = restored_world().after(5)
    assert (decision.managed, decision.in_sync, decision.writes) == (0, 0, ())


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("away", [5.0, 60.0, REMEMBERED_SECONDS - 31])
def test_who_comes_back_is_limited_in_safe_steps(away: float, *, restarted: bool) -> None:
    world = restored_world()
    world.now_seconds += away
    if restarted:
        world.memory = Memory()
    world.tiers = (tier(member(ALICE, per_broker(2 * MB))),)
    rates = [int(text) for text in run_to_the_end(world) if text is not None]
    assert rates[-1] == 2 * MB
    for high, low in zip([FASTEST_NIC_BYTES_PER_SECOND, *rates], rates, strict=False):
        mute_seconds = predicted_mute_seconds(high, low, world.policy.window)
        assert mute_seconds <= world.policy.max_mute_seconds
    record = record_of(world)
    assert record is not None
    assert not any(is_restored(entry) for entry in record.entries.values())


def test_after_a_quarter_of_an_hour_a_quota_is_a_first_one_again() -> None:
    world = restored_world()
    world.now_seconds += REMEMBERED_SECONDS
    world.tiers = (tier(member(ALICE, per_broker(2 * MB))),)
    world.run()
    assert world.text(ALICE) == "2000000"


def test_what_somebody_set_after_it_was_restored_is_theirs_and_is_kept_as_before() -> None:
    world = restored_world()
    world.someone_sets(ALICE, "5000000")
    world.tiers = (tier(member(ALICE, per_broker(4 * MB))),)
    world.after(60)
    record = record_of(world)
    assert record is not None
    assert (world.text(ALICE), record.entries[FETCH].before) == ("4000000", "5000000")
    assert record.entries[FETCH].reason is Reason.ADOPTED


def test_a_smaller_or_equal_quota_from_before_is_not_remembered_for_it_limits() -> None:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.quotas = {ALICE: stored(ALICE, {FETCH: "8000000"})}
    world.run()
    world.tiers = ()
    world.after_grace(60)
    assert (world.text(ALICE), record_of(world)) == ("8000000", None)


def test_a_quota_that_somebody_removed_is_remembered_when_we_let_go_of_it() -> None:
    world = fixed_world(2 * MB, max_removal_percent=100)
    world.run()
    world.someone_sets(ALICE, None)
    world.tiers = ()
    world.after_grace(60)
    world.tiers = (tier(member(ALICE, per_broker(2 * MB))),)
    world.after(5)
    assert int(world.text(ALICE) or 0) > 2 * MB


@pytest.mark.parametrize("deletion", DeletionPolicy)
def test_a_deleted_policy_keeps_no_memory_and_gives_no_grace(deletion: DeletionPolicy) -> None:
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    world.after_grace(60)
    world.policy = replace(world.policy, deleting=True, deletion_policy=deletion)
    world.after(1)
    assert world.quotas is not None
    assert all(one.ledger is None for one in world.quotas.values())
    assert world.decide().finished_deleting


def test_what_another_policy_remembers_is_in_no_ones_way() -> None:
    world = restored_world()
    world.policy = replace(world.policy, key="streaming/other")
    world.tiers = (tier(member(ALICE, per_broker(2 * MB))),)
    world.after(5)
    record = record_of(world)
    assert record is not None
    assert record.policy_key == "streaming/other"
    assert int(world.text(ALICE) or 0) > 2 * MB


def test_a_policy_in_mode_observe_that_is_deleted_leaves_no_quota_behind() -> None:
    world = restored_world()
    world.policy = replace(world.policy, mode=Mode.OBSERVE, deleting=True)
    decision = world.after(1)
    assert (decision.finished_deleting, decision.notes) == (True, ())


# --- passes that miss what happens between them ---------------------------------------------------


def restored_after(looks: Sequence[float]) -> float | None:
    """When (seconds after the first look) a quota is restored that every look finds unwanted."""
    waiting = Waiting(looks[0], looks[0])
    for at_seconds in looks[1:]:
        waiting = waiting.seen_again(at_seconds)
        if waiting.ends_at_seconds <= at_seconds:
            return at_seconds - looks[0]
    return None


@pytest.mark.parametrize(
    ("what", "looks", "expected"),
    [
        ("a pass each 10 s", [0, 10, 20, 30], 30),
        ("passes for other reasons", [0, 1, 14, 29, 29.9, 30.1], 30.1),
        ("a break that hides nothing", [0, 15, 30], 30),
        ("two looks do not do", [0, 30], None),
        ("it stands still", [0, 31.4, 41, 51, 61, 62], 62),
        ("it stands still twice", [0, 31, 41, 72, 82, 92, 102], 102),
        ("passes each 20 s", range(0, 100, 20), 80),
        ("passes each 30 s", range(0, 200, 30), 90),
        ("passes each 5 min", range(0, 2000, 300), 900),
        ("the clock jumps ahead by an hour", [0, 10, 3620, 3630, 3640, 3650], 3650),
        ("the clock jumps back by an hour", [0, 20, -3580, -3570, -3560, -3550], -3550),
        ("the clock goes back by a second", [0, 10, 9, 20, 30], 30),
    ],
)
def test_a_grace_begins_again_where_a_pass_may_have_missed_something(
    what: str, looks: Sequence[float], expected: float | None
) -> None:
    assert restored_after(looks) == expected, what


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=60))
def test_a_quota_is_restored_only_after_30_s_of_close_looks_but_in_a_bounded_time(
    gaps: list[float],
) -> None:
    looks = list(accumulate(gaps, initial=0.0))
    ends_at = restored_after(looks)
    longest = max(gaps)
    if ends_at is None:
        assert looks[-1] < 3 * (GRACE_SECONDS + longest)
        return
    assert ends_at <= 3 * (GRACE_SECONDS + longest)
    at = looks.index(ends_at)
    breaks = [number for number in range(1, at + 1) if gaps[number - 1] > 15.0]
    counted_from = breaks[min(len(breaks), 2) - 1] if breaks else 0
    assert ends_at - looks[counted_from] >= GRACE_SECONDS


def test_a_member_that_came_and_went_while_the_process_stood_still_has_its_whole_grace() -> None:
    """As on day 2859: named and unnamed again within the 31 s between two passes."""
    world = two_tiers()
    world.run()
    world.tiers = without_alice(world)
    world.after(60)
    assert world.after(31).writes == ()
    assert world.watched(GRACE_SECONDS - 1).writes == ()
    world.after(1)
    assert world.text(ALICE) is None


# --- whatever happens -----------------------------------------------------------------------------

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["named", "unnamed", "unknown", "paused", "restart", "edited", "removed"]),
        st.floats(0.0, 70.0),
    ),
    max_size=40,
)


@given(ACTS)
def test_no_quota_goes_within_its_grace_and_none_comes_back_without_safe_steps(
    acts: list[tuple[str, float]],
) -> None:
    """A client with a limit keeps it for 30 s after its contract was known to be gone.

    And no write may mute for longer than allowed what was free lately.
    """
    world = fixed_world(2 * MB, max_removal_percent=100)
    world.run()
    named, unnamed_since, free_since, was = world.tiers, None, None, world.text(ALICE)
    looks = 0  # that found her unnamed, one after the other
    for act, seconds in acts:
        world.now_seconds += seconds
        world.policy = replace(world.policy, paused_by=())
        if act == "named":
            world.tiers = named
        elif act == "unnamed":
            world.tiers = ()
        elif act == "unknown":
            world.tiers = None
        elif act == "paused":
            world.policy = replace(world.policy, paused_by=("spec.suspend",))
        elif act == "restart":
            world.memory = Memory()
        elif act == "edited":
            world.tiers = (tier(member(ALICE, per_broker(3 * MB))),)
        else:
            world.tiers = (tier(member(BOB, per_broker(MB))),)
        is_unnamed = (
            world.tiers is not None
            and act not in ("named", "edited", "paused")
            and all(one.entity != ALICE for held in world.tiers for one in held.members)
        )
        world.run()
        looks = looks + 1 if is_unnamed and act != "restart" else int(is_unnamed)
        now = world.text(ALICE)
        unnamed_since = (
            None if not is_unnamed or act == "restart" else unnamed_since or world.now_seconds
        ) or (world.now_seconds if is_unnamed else None)
        if was is not None and now is None:
            assert is_unnamed
            assert unnamed_since is not None
            assert world.now_seconds - unnamed_since >= GRACE_SECONDS
            assert looks > 2, "two looks do not tell that nothing was between them"
            free_since = world.now_seconds
        if was is None and now is not None:
            assert free_since is not None
            if world.now_seconds - free_since < REMEMBERED_SECONDS:
                mute_seconds = predicted_mute_seconds(
                    FASTEST_NIC_BYTES_PER_SECOND, int(now), world.policy.window
                )
                assert mute_seconds <= world.policy.max_mute_seconds
        was = now
