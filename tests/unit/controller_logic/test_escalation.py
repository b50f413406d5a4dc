"""The state machine of one direction: when it cuts, how long it holds, when it restores, and what
it survives.
"""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    decided,
    in_force_mb,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import ClientRate, QuotaWindow
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import LimitedBy, Phase, StepKind, ThrottleDecision
from tidegate_logic.throttle.input import ThrottleMemory
from tidegate_logic.throttle.record import LOWER_TIERS_FIRST, NEVER_THROTTLED


def four_tiers(**settings: object) -> SimulatedCluster:
    """L0 to L3 with contracts of 60 MB/s that want 25 each; the limit is 50, throttled rates are
    10, 5 and 1.
    """
    actors = (
        actor("zero", "L0", 60),
        actor("one", "L1", 60, 10),
        actor("two", "L2", 60, 5),
        actor("three", "L3", 60, 1),
    )
    played = simulated_cluster(*actors, limit_mb=50, **settings)
    want(played, zero=25, one=25, two=25, three=25)
    return played


def phase(decision: ThrottleDecision) -> Phase:
    return decision.round_of(OUT).phase


def run_for(
    played: SimulatedCluster, seconds: float, interval_seconds: float = 15
) -> list[ThrottleDecision]:
    return [played.run(interval_seconds) for _ in range(round(seconds / interval_seconds))]


def test_a_severe_overload_is_cut_at_once() -> None:
    assert steps_of(four_tiers().run(15), StepKind.CUT).keys() == {"three", "two"}


def test_lower_tiers_step_first_and_l1_waits_while_they_have_more_to_give() -> None:
    played = four_tiers()
    cuts = [sorted(steps_of(decision, StepKind.CUT)) for decision in run_for(played, 75)]
    assert cuts == [["three", "two"], ["three", "two"], ["three", "two"], [], ["one", "three"]]


def rounds(seconds: int, **settings: object) -> list[int]:
    """When an L1 user alone is cut, for whom there are no strides."""
    played = simulated_cluster(actor("one", "L1", 200, 1), limit_mb=50, **settings)
    played.other[1, OUT] = 50 * MB
    want(played, one=100)
    return [at for at in range(1, seconds) if steps_of(played.run(1), StepKind.CUT)]


def test_two_rounds_of_cuts_are_a_dwell_apart_whatever_the_interval() -> None:
    assert rounds(90) == [1, 31, 61]


def test_a_dwell_follows_the_brokers_window() -> None:
    assert rounds(15, window=QuotaWindow(2, 1)) == [1, 7, 13]


def test_a_step_is_half_of_what_the_window_may_hold_and_says_so() -> None:
    step = steps_of(four_tiers().run(15), StepKind.CUT)["three"]
    assert (
        step.value == 15_625_000
    )  # half of 1.25 times the 25 MB/s that it sends, far below its contract
    assert (step.target, step.limited_by, step.predicted_mute_seconds) == (
        1 * MB,
        LimitedBy.MAX_MUTE,
        12.0,
    )


def test_all_come_to_where_the_limit_is_kept_and_l0_keeps_what_it_wants() -> None:
    played = four_tiers()
    run_for(played, 300)
    assert sum(played.sends(one, 1) for one in played.actors) <= 50 * MB
    assert in_force_mb(played)["zero"] == 60


def test_when_the_load_falls_all_return_to_exactly_their_contracts_after_a_hold() -> None:
    played = four_tiers()
    run_for(played, 300)
    want(played, zero=2, one=2, two=2, three=2)
    decisions = run_for(played, 150)
    assert in_force_mb(played) == {"zero": 60, "one": 60, "two": 60, "three": 60}
    assert phase(decisions[-1]) is Phase.NORMAL
    assert decisions[-1].steps == {}


def test_nothing_is_raised_before_the_hold_is_over() -> None:
    played = four_tiers(hold_seconds=120.0)
    played.run(15)
    want(played, zero=1, one=1, two=1, three=1)
    decisions = run_for(played, 105)
    assert not [decision for decision in decisions if steps_of(decision, StepKind.RELEASE)]
    assert steps_of(played.run(15), StepKind.RELEASE).keys() == {"two", "three"}


def test_raises_into_headroom_stop_below_the_limit() -> None:
    played = simulated_cluster(actor("a", "L3", 400, 1))
    want(played, a=200)
    played.other[1, OUT] = 50 * MB
    run_for(played, 120)
    played.other[1, OUT] = 0
    run_for(played, 900)
    assert 90 * MB <= played.in_force[played.actors[0].key] <= 95 * MB


def test_l1_gets_back_before_l2_and_l2_before_l3() -> None:
    played = four_tiers()
    run_for(played, 300)
    played.limits[1] = replace(played.limits[1], egress=68 * MB)
    decisions = run_for(played, 300)
    raised = [
        sorted({**steps_of(decision, StepKind.RAISE), **steps_of(decision, StepKind.RELEASE)})
        for decision in decisions
    ]
    order = [names for names in raised if names]
    assert order[0] == ["one"]
    assert "three" not in [name for names in order[:2] for name in names]


def test_too_much_load_soon_after_a_raise_doubles_the_hold() -> None:
    played = simulated_cluster(actor("a", "L3", 400, 1))
    want(played, a=130)
    run_for(played, 60)
    want(played, a=10)
    decisions = run_for(played, 90)
    assert any(steps_of(decision, StepKind.RELEASE) for decision in decisions)
    want(played, a=130)
    decisions = run_for(played, 30)
    assert decisions[-1].round_of(OUT).hold_seconds == 90


def test_a_hold_that_was_doubled_halves_again_after_a_long_quiet() -> None:
    played = simulated_cluster(actor("a", "L3", 400, 1))
    want(played, a=10)
    played.run(15)
    directions = {OUT: replace(played.memory.directions[OUT], hold_seconds=180.0)}
    played.memory = replace(played.memory, directions={**played.memory.directions, **directions})
    decisions = run_for(played, 1200)
    assert decisions[-1].round_of(OUT).hold_seconds == 45


def test_exhausted_where_every_tier_is_at_its_floor_and_it_is_not_enough() -> None:
    played = four_tiers()
    played.other[1, OUT] = 40 * MB
    decisions = run_for(played, 600)
    assert phase(decisions[-1]) is Phase.EXHAUSTED
    assert Reason.QUOTA_EXHAUSTED in [
        finding.reason for finding in decisions[-1].round_of(OUT).findings
    ]
    assert in_force_mb(played) == {"zero": 60, "one": 10, "two": 5, "three": 1}


def test_all_blind_holds_everything() -> None:
    played = four_tiers()
    run_for(played, 60)
    played.lies[1, OUT] = None
    played.run(15)  # the last reading still justifies one cut
    before = in_force_mb(played)
    decisions = run_for(played, 300)
    assert phase(decisions[-1]) is Phase.HELD
    assert in_force_mb(played) == before


def throttled_and_blind(**settings: object) -> SimulatedCluster:
    played = four_tiers(**settings)
    run_for(played, 60)
    played.lies[1, OUT] = None
    played.silent = {1}
    played.run(15)
    assert min(in_force_mb(played).values()) < 60
    return played


def test_load_that_is_unknown_for_long_gives_everybody_the_contract_where_the_policy_says_so() -> (
    None
):
    played = throttled_and_blind(release_after_seconds=300.0)
    while not played.run(15).round_of(OUT).blind:
        pass  # the last reading is usable for a while
    before = in_force_mb(played)
    for _ in range(19):
        played.run(15)
        assert in_force_mb(played) == before
    played.run(15)
    assert set(in_force_mb(played).values()) == {60}
    findings = played.decide().round_of(OUT).findings
    assert Reason.RELEASED_UNMEASURED in [finding.reason for finding in findings]


def test_when_readings_come_again_the_same_load_is_cut_again() -> None:
    played = throttled_and_blind(release_after_seconds=300.0)
    run_for(played, 600)
    del played.lies[1, OUT]
    decisions = run_for(played, 240)
    assert {name for decision in decisions for name in steps_of(decision, StepKind.CUT)} >= {
        "three",
        "two",
    }
    assert Reason.RELEASED_UNMEASURED not in [
        finding.reason for finding in decisions[-1].round_of(OUT).findings
    ]


def test_one_reading_between_begins_the_wait_anew() -> None:
    played = throttled_and_blind(release_after_seconds=300.0)
    run_for(played, 270)
    del played.lies[1, OUT]
    run_for(played, 30)
    played.lies[1, OUT] = None
    before = in_force_mb(played)
    run_for(played, 270)
    assert all(
        now <= was for now, was in zip(in_force_mb(played).values(), before.values(), strict=True)
    )
    assert min(in_force_mb(played).values()) < 60


def test_a_broker_with_readings_still_bounds_what_is_given_back_on_it() -> None:
    both, there = (
        actor("both", "L3", 100, 1, leaders={1: 1, 2: 1}),
        actor("there", "L3", 100, 1, leaders={2: 1}),
    )
    played = simulated_cluster(both, there, brokers=2, limit_mb=100, release_after_seconds=300.0)
    want(played, both=150, there=150)
    played.other = {(1, OUT): 60 * MB, (2, OUT): 60 * MB}
    run_for(played, 120)
    played.lies[2, OUT] = None
    run_for(played, 1200)
    assert in_force_mb(played)["there"] == 100
    assert in_force_mb(played)["both"] <= 40


def test_a_blind_broker_blocks_raises_of_those_who_lead_on_it_only() -> None:
    played = simulated_cluster(
        actor("here", "L3", 100, 1), actor("there", "L3", 100, 1, leaders={2: 1}), brokers=2
    )
    want(played, here=150, there=150)
    played.other = {(1, OUT): 20 * MB, (2, OUT): 20 * MB}
    run_for(played, 60)
    want(played, here=5, there=5)
    played.lies[2, OUT] = None
    run_for(played, 300)
    assert played.in_force[played.actors[0].key] == 100 * MB
    assert played.in_force[played.actors[1].key] < 100 * MB


def test_a_restart_in_the_middle_of_a_step_writes_nothing() -> None:
    played = four_tiers()
    played.run(15)
    before = dict(played.in_force)
    played.memory = ThrottleMemory()
    played.run(15)
    assert played.in_force == before


def test_a_restarted_operator_goes_on_where_the_last_one_stopped() -> None:
    one, other = four_tiers(), four_tiers()
    for number in range(20):
        one.run(15)
        other.memory = ThrottleMemory() if number == 2 else other.memory
        other.run(15)
    assert in_force_mb(one) == in_force_mb(other)


def test_after_a_restart_a_cut_counts_although_its_leaders_went_and_left_a_smaller_contract() -> (
    None
):
    moved, other = actor("moved", "L3", 50, 1, {1: 2}), actor("other", "L3", 101, 1, {2: 2})
    played = simulated_cluster(moved, other, brokers=2)
    want(played, moved=150)
    played.other[1, OUT], played.wants[other.key, 2] = 12 * MB, 80 * MB
    assert steps_of(played.run(15), StepKind.CUT).keys() == {"moved"}
    played.run(15)
    played.actors[0] = replace(moved, leaders={1: 1})
    played.wants[other.key, 2] = 190 * MB
    assert not steps_of(played.run(5), StepKind.CUT)
    played.memory = ThrottleMemory()
    assert not steps_of(played.decide(), StepKind.CUT)


def test_a_contract_that_the_ledger_records_is_no_throttle_after_a_restart() -> None:
    played = four_tiers()
    played.pass_time(15)
    given = played.given()
    rates = tuple(replace(rate, in_force=30 * MB, recorded_fraction=1.0) for rate in given.rates)
    want(played, zero=1, one=1, two=1, three=1)
    decision, memory = decided(replace(given, rates=rates), ThrottleMemory())
    assert not [step for step in decision.steps.values() if step.kind is StepKind.HOLD]
    assert not [held for held in memory.held.values() if held.applied]


def test_leaders_that_move_rescale_the_throttle_and_back_exactly() -> None:
    played = simulated_cluster(actor("a", "L3", 60, 1))
    want(played, a=130)
    played.in_force[played.actors[0].key] = 60 * MB
    played.other[1, OUT] = 60 * MB
    run_for(played, 60)
    held = played.in_force[played.actors[0].key]
    played.actors[0] = replace(played.actors[0], leaders={1: 2})
    assert played.decide().steps[played.actors[0].key].value == 2 * held
    played.actors[0] = replace(played.actors[0], leaders={1: 1})
    assert played.decide().steps[played.actors[0].key].value == held


def test_a_cut_that_was_never_put_in_force_is_wanted_again_while_the_broker_is_over() -> None:
    played = four_tiers()
    played.run(15, admits=lambda _: False)
    again = played.run(5, admits=lambda _: False)
    assert again.steps[played.actors[3].key].value == 15_625_000


def test_a_cut_that_was_never_put_in_force_is_dropped_once_no_one_needs_it() -> None:
    played = four_tiers()
    played.run(15, admits=lambda _: False)
    want(played, zero=1, one=1, two=1, three=1)
    for _ in range(3):
        played.run(15, admits=lambda _: False)
    assert played.run(15).steps == {}


def test_a_raise_that_was_never_put_in_force_is_dropped_when_a_broker_is_over() -> None:
    played = four_tiers()
    run_for(played, 300)
    before = dict(played.in_force)
    want(played, zero=2, one=2, two=2, three=2)
    for _ in range(5):
        played.run(15, admits=lambda _: False)
    want(played, zero=60, one=25, two=25, three=25)
    played.run(15, admits=lambda step: not step.lowers)
    assert played.in_force == before


def test_drift_is_not_taken_for_a_decision() -> None:
    played = four_tiers()
    run_for(played, 300)
    key = played.actors[3].key
    held = played.in_force[key]
    played.in_force[key] = 40 * MB
    decision = played.decide()
    assert decision.steps[key].target == held
    assert held < decision.steps[key].value < 40 * MB  # back in safe steps


def test_an_exempt_entity_is_let_go() -> None:
    played = four_tiers()
    run_for(played, 300)
    played.actors[3] = replace(played.actors[3], throttled=None)
    assert played.actors[3].key not in played.decide().steps


def test_a_limit_edited_in_the_middle_of_an_episode_counts_at_once() -> None:
    played = four_tiers()
    run_for(played, 300)
    played.limits[1] = replace(played.limits[1], egress=1000 * MB)
    decision = played.run(15)
    assert steps_of(decision, StepKind.RELEASE).keys() == {"one", "two", "three"}


def test_a_throttled_rate_raised_in_the_middle_of_an_episode_counts_at_once() -> None:
    played = four_tiers()
    run_for(played, 300)
    played.actors[3] = replace(played.actors[3], throttled=4 * MB)
    assert played.decide().steps[played.actors[3].key].value == 4 * MB


def test_the_same_input_and_memory_give_the_same_decision() -> None:
    played = four_tiers()
    run_for(played, 60)
    memory = played.memory
    first = played.decide()
    played.memory = memory
    assert played.decide() == first


def test_the_record_names_who_was_left_alone_and_why() -> None:
    found = four_tiers().run(15).round_of(OUT)
    whys = {str(one.entity.user): one.why for one in found.not_done}
    assert whys == {"zero": NEVER_THROTTLED, "one": LOWER_TIERS_FIRST}
    assert found.next_cut_at_seconds == 1045.0


def test_client_rates_of_the_future_are_not_used() -> None:
    played = four_tiers()
    played.pass_time(15)
    given = played.given()
    clients = {
        place: ClientRate(given.now_seconds + 100, rate.bytes_per_second)
        for place, rate in given.readings.clients.items()
    }
    decision, _ = decided(replace(given, readings=replace(given.readings, clients=clients)))
    assert Reason.CLIENT_RATES_UNKNOWN in [
        finding.reason for finding in decision.round_of(OUT).findings
    ]


@pytest.mark.parametrize("interval_seconds", [1, 5, 15])
def test_constant_demand_comes_to_rest_and_stays_there(interval_seconds: int) -> None:
    played = four_tiers()
    played.scrape_seconds = interval_seconds
    run_for(played, 600, interval_seconds)
    before = dict(played.in_force)
    run_for(played, 600, interval_seconds)
    assert played.in_force == before
