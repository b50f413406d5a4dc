"""Strides: steps towards what a round of cuts decided, before the next round can be made."""

from dataclasses import replace

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    decided,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import QuotaWindow
from tidegate_logic.throttle.decision import StepKind, ThrottleDecision
from tidegate_logic.throttle.input import ThrottleMemory, ThrottleSettings


def cluster(others_mb: float = 60) -> SimulatedCluster:
    """An L3 and an L1 user that want 100 MB/s each of a limit of 100, and another 60 of an L0."""
    played = simulated_cluster(
        actor("low", "L3", 200, 1), actor("high", "L1", 200, 1), actor("zero", "L0", 200)
    )
    played.scrape_seconds = 1.0
    want(played, low=100, high=100, zero=others_mb)
    return played


def times_of_cuts(
    played: SimulatedCluster, seconds: int, *, passes_every_seconds: int = 1
) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {}
    for second in range(passes_every_seconds, seconds + 1, passes_every_seconds):
        for _ in range(passes_every_seconds - 1):
            played.pass_time(1)
        for name in steps_of(played.run(1), StepKind.CUT):
            times.setdefault(name, []).append(second)
    return times


def after(played: SimulatedCluster, seconds: int) -> ThrottleDecision:
    for _ in range(seconds - 1):
        played.run(1)
    return played.run(1)


def test_a_known_target_is_stepped_to_each_14_s_and_a_new_round_waits_25_s_after_that() -> None:
    played = cluster()
    want(played, low=100, high=1, zero=80)
    assert times_of_cuts(played, 40) == {"low": [1, 15, 29]}
    played.other[1, OUT] = 14 * MB
    assert times_of_cuts(played, 20) == {"low": [54 - 40]}


def test_far_over_the_limit_a_new_round_waits_for_no_readings_of_the_strides() -> None:
    played = cluster()  # L3 at its throttled rate is not enough
    times = times_of_cuts(played, 60)
    assert times["low"][:3] == [1, 15, 29]
    assert times["high"][:2] == [1, 31]


def test_strides_do_not_put_off_a_round_that_lowers_a_higher_level() -> None:
    played = simulated_cluster(
        actor("l3", "L3", 120, 2),
        actor("l2", "L2", 120, 10),
        actor("l1", "L1", 120, 20),
        actor("l0", "L0", 200),
    )
    want(played, l3=60, l2=60, l1=60, l0=68)
    times = times_of_cuts(played, 120)
    assert times["l1"] == [31, 70]  # 25 s after the stride at 45; it was 98, after one at 73
    assert times["l3"] == [1, 15, 29, 45, 70, 84]


def test_nor_one_whose_readings_do_not_show_the_last_stride_yet() -> None:
    """As in the demo, where passes are 5 s apart; L1's second step came 65 s after its first."""
    played = simulated_cluster(
        actor("l3", "L3", 60, 1),
        actor("l2", "L2", 60, 5),
        actor("l1", "L1", 60, 10),
        actor("l0", "L0", 60),
        limit_mb=50,
    )
    played.scrape_seconds = 1.0
    want(played, l3=23.1, l2=23, l1=25.4, l0=28.5)
    times = times_of_cuts(played, 120, passes_every_seconds=5)
    # at 70 L3 could stride to 1.8 MB/s, with 0.8 more to come, while 2.9 are asked of L1
    assert times == {"l3": [5, 20, 50, 75], "l2": [5, 20, 50], "l1": [35, 75]}


def test_the_record_says_when_the_next_round_may_come_far_over_the_limit_too() -> None:
    played = cluster()
    began = played.now_seconds
    found = after(played, 15).round_of(OUT)
    assert any(step.in_stride for step in found.steps)
    assert found.next_cut_at_seconds == began + 31


def test_strides_on_one_broker_hold_up_no_first_round_of_another() -> None:
    low, other = actor("low", "L3", 200, 1), actor("other", "L3", 200, 1, {2: 1})
    played = simulated_cluster(low, other, brokers=2)
    played.scrape_seconds = 1.0
    want(played, low=100, other=20)
    played.other = {(1, OUT): 80 * MB, (2, OUT): 60 * MB}
    assert times_of_cuts(played, 20) == {"low": [1, 15]}
    played.other[2, OUT] = 100 * MB  # less than a quarter over
    assert times_of_cuts(played, 30)["other"][0] == 31 - 20


def test_just_over_the_limit_a_mean_from_before_the_last_lowering_asks_for_nothing() -> None:
    played = simulated_cluster(actor("one", "L1", 200, 1), actor("zero", "L0", 200))
    played.scrape_seconds = 1.0
    want(played, one=30, zero=60)
    after(played, 30)
    want(played, one=60)
    played.pass_time(1)
    one = played.actors[0].key
    step = played.decide().steps[one]
    for _ in range(11):  # its turn among the writes comes late
        played.pass_time(1)
        step = played.decide().steps[one]
    played.apply(one, step.value)
    assert step.value == 37_500_000  # with which the broker is within its limit
    assert not times_of_cuts(played, 60)


def test_a_client_that_sends_nothing_to_a_broker_holds_up_no_round_there() -> None:
    first, second = (
        actor("first", "L3", 100, 1, {1: 1, 2: 1}),
        actor("second", "L3", 100, 1, {2: 1}),
    )
    played = simulated_cluster(first, second, brokers=2)
    played.scrape_seconds = 1.0
    played.wants = {(first.key, 1): 100 * MB, (second.key, 2): 50 * MB}
    played.other = {(1, OUT): 20 * MB, (2, OUT): 30 * MB}
    for _ in range(12):  # its turn among the writes comes 11 s after the round
        played.pass_time(1)
        step = played.decide().steps[first.key]
    played.apply(first.key, step.value)
    played.other[2, OUT] = 56 * MB  # soon a mean of 24 s is above the limit, by less than a tenth
    assert times_of_cuts(played, 23)["second"] == [19]


def test_a_stride_goes_as_far_as_a_window_allows_that_holds_only_the_last_step() -> None:
    played = cluster()
    first = steps_of(after(played, 1), StepKind.CUT)["low"]
    stride = steps_of(after(played, 14), StepKind.CUT)["low"]
    assert (first.in_stride, stride.in_stride) == (False, True)
    assert stride.value == first.value // 2
    assert (stride.target, stride.predicted_mute_seconds) == (first.target, 12.0)


def test_no_stride_goes_below_the_target_of_its_round() -> None:
    played = cluster(others_mb=20)  # 220 of 100: 97 is aimed at
    first = steps_of(after(played, 1), StepKind.CUT)["low"]
    played.other[1, OUT] = 50 * MB  # more came since, which only a new round may answer
    values = [
        step.value
        for _ in range(40)
        for step in steps_of(played.run(1), StepKind.CUT).values()
        if step.in_stride
    ]
    assert values
    assert min(values) >= first.target


def test_l1_never_strides() -> None:
    played = simulated_cluster(actor("high", "L1", 200, 1), actor("zero", "L0", 200))
    played.scrape_seconds = 1.0
    want(played, high=100, zero=60)
    assert times_of_cuts(played, 60)["high"][:2] == [1, 31]


def test_no_stride_once_the_broker_is_within_its_limit() -> None:
    played = cluster()
    played.run(1)
    want(played, high=1, zero=1)
    # a mean of 24 s forgets within 14 s only because the whole load went
    want(played, low=1)
    assert "low" not in times_of_cuts(played, 29)


def test_no_stride_on_a_reading_from_before_the_last_step() -> None:
    played = cluster()
    played.run(1)
    old = played.given().readings
    for _ in range(28):
        played.now_seconds += 1
        given = replace(played.given(), readings=old)
        decision, played.memory = decided(given, played.memory)
        assert not [step for step in decision.steps.values() if step.in_stride]


def test_where_more_than_twelve_of_a_level_give_none_strides() -> None:
    many = [actor(f"user-{number:02}", "L3", 50, 1) for number in range(13)]
    played = simulated_cluster(*many)
    played.scrape_seconds = 1.0
    want(played, **{f"user-{number:02}": 25 for number in range(13)})
    assert times_of_cuts(played, 40)["user-00"] == [1, 31]
    few = simulated_cluster(*many[:12])
    few.scrape_seconds = 1.0
    want(few, **{f"user-{number:02}": 25 for number in range(12)})
    assert times_of_cuts(few, 40)["user-00"] == [1, 15]


def test_whose_step_was_written_late_strides_late() -> None:
    played = cluster()
    low = played.actors[0].key
    want(played, low=50, high=1, zero=40)
    after(played, 30)
    want(played, low=100, zero=70)
    step = None
    while step is None:  # two of three readings have to agree
        played.pass_time(1)
        step = played.decide().steps.get(low)
    for _ in range(9):  # its turn among the writes comes 9 s after the round
        played.pass_time(1)
        step = played.decide().steps[low]
    played.apply(low, step.value)
    seconds = 0
    while played.decide().steps[low].value >= step.value:
        played.pass_time(1)
        seconds += 1
    assert seconds == 14


def test_strides_follow_the_brokers_window() -> None:
    assert ThrottleSettings().stride_seconds == 14
    assert ThrottleSettings(window=QuotaWindow(2, 1)).stride_seconds == 5
    assert ThrottleSettings().replan_seconds == 25


def test_a_restarted_operator_waits_for_its_next_round() -> None:
    played = cluster()
    played.run(1)
    played.memory = ThrottleMemory()
    assert times_of_cuts(played, 40)["low"] == [30]
