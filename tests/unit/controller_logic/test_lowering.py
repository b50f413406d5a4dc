"""Every way down passes the mute guard."""

from itertools import groupby

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    DEFAULT_USER,
    FETCH,
    MB,
    fixed_world,
    member,
    per_broker,
    report_of,
    run_to_the_end,
    stored,
    tier,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.model import MIN_BYTE_RATE, Policy, QuotaWindow
from tidegate_logic.quotas.steps import MuteGuard
from tidegate_logic.reasons import Reason


def test_an_edited_contract_goes_down_in_safe_steps() -> None:
    world = fixed_world(50 * MB)
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(1 * MB))),)
    world.now_seconds += 60
    assert run_to_the_end(world) == [
        str(rate) for rate in (25_000_000, 12_500_000, 6_250_000, 3_125_000, 1_562_500, 1_000_000)
    ]


def test_a_member_on_its_way_down_says_where_it_is_and_where_it_goes() -> None:
    world = fixed_world(50 * MB)
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(1 * MB))),)
    report = report_of(world.after(60), ALICE)
    assert report.state is MemberState.STEPPING
    assert (report.quota[FETCH], report.target[FETCH]) == (25 * MB, 1 * MB)
    assert "1 MB/s" in report.message
    assert "25 MB/s" in report.message


def test_two_lowerings_are_a_step_distance_apart() -> None:
    world = fixed_world(50 * MB)
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(1 * MB))),)
    world.after(60)
    decision = world.after(29)
    assert not decision.writes
    assert decision.next_pass_in_seconds == pytest.approx(1)
    assert world.after(1).writes


def test_a_larger_quota_of_somebody_else_is_adopted_in_steps() -> None:
    world = fixed_world(10 * MB)
    world.quotas = {ALICE: stored(ALICE, {FETCH: "100000000"})}
    assert run_to_the_end(world) == ["50000000", "25000000", "12500000", "10000000"]


def test_the_first_quota_where_a_default_was_in_force_is_a_lowering_too() -> None:
    world = fixed_world(1 * MB)
    world.quotas = {DEFAULT_USER: stored(DEFAULT_USER, {FETCH: "8000000"})}
    assert run_to_the_end(world) == ["4000000", "2000000", "1000000"]


def test_giving_back_where_a_smaller_default_waits_goes_down_in_steps() -> None:
    world = fixed_world(8 * MB, max_removal_percent=100)
    world.quotas = {DEFAULT_USER: stored(DEFAULT_USER, {FETCH: "2000000"})}
    world.run()
    world.tiers = ()
    world.after(60)
    stood = [text for text, _ in groupby(run_to_the_end(world))]  # looks of the grace change none
    assert stood == ["8000000", "4000000", None]


def test_a_window_too_long_for_the_bound_never_lowers_and_says_so() -> None:
    world = fixed_world(10 * MB, window=QuotaWindow(11, 30))
    world.quotas = {ALICE: stored(ALICE, {FETCH: "100000000"})}
    report = report_of(world.run(), ALICE)
    assert world.text(ALICE) == "100000000"
    assert (report.state, report.reason) == (MemberState.HELD, Reason.INVALID_SPEC)


def test_a_quota_of_a_few_bytes_is_given_back_in_one_write_once_the_floor_is_reached() -> None:
    """Whole bytes per second are too coarse to step among so few; the way back must still end."""
    guard = MuteGuard.of(Policy("streaming/orders", "uid", max_mute_seconds=2))
    assert guard.step(5, MIN_BYTE_RATE, None, now_seconds=0.0).value == 5
    assert guard.step(5, MIN_BYTE_RATE + 100, None, now_seconds=0.0).value > MIN_BYTE_RATE
