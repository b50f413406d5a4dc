"""What is restored, to whom, into which headroom."""

from dataclasses import replace
from math import inf

import pytest

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedClient,
    SimulatedCluster,
    actor,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import RateKey
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.throttle.decision import LimitedBy, StepKind, ThrottleDecision
from tidegate_logic.throttle.input import ActiveThrottle, ThrottleMemory


def held_at(played: SimulatedCluster, **values_mb: float) -> None:
    """These users are throttled to so much, since long ago."""
    held: dict[RateKey, ActiveThrottle] = {}
    for one in played.actors:
        if str(one.entity.user) in values_mb:
            value = round(values_mb[str(one.entity.user)] * MB)
            played.in_force[one.key] = value
            held[one.key] = ActiveThrottle(value, one.promised, 0.0, applied=True)
    played.memory = ThrottleMemory(held=held)


def after_a_hold(played: SimulatedCluster) -> ThrottleDecision:
    """The round in which raises are first allowed."""
    for _ in range(3):
        assert not steps_of(played.run(15), StepKind.RAISE)
    return played.run(15)


def one_user(contract_mb: float = 100, at_mb: float = 20, other_mb: float = 0) -> SimulatedCluster:
    played = simulated_cluster(actor("a", "L3", contract_mb))
    held_at(played, a=at_mb)
    want(played, a=contract_mb)
    played.other[1, OUT] = other_mb * MB
    return played


def test_a_cap_that_binds_grows_eightfold_at_most() -> None:
    step = steps_of(after_a_hold(one_user(at_mb=5)), StepKind.RAISE)["a"]
    assert (step.value, step.limited_by) == (40 * MB, LimitedBy.RAMP)


def first_raise_after_too_much(played: SimulatedCluster, calm_seconds: int) -> int:
    """Too much load comes soon after a raise and goes again; then nothing is raised for so long,
    and the next raise is from 5 MB/s.
    """
    after_a_hold(played)
    played.other[1, OUT] = 200 * MB
    played.run(15)
    played.other[1, OUT] = 90 * MB  # within the limit, without headroom
    for _ in range(calm_seconds // 15):
        played.run(15)
    held = {
        one.key: ActiveThrottle(5 * MB, one.promised, 0.0, applied=True) for one in played.actors
    }
    played.in_force = dict.fromkeys(held, 5 * MB)
    played.memory = replace(played.memory, held=held)
    played.other[1, OUT] = 0
    for _ in range(40):
        if raised := steps_of(played.run(15), StepKind.RAISE):
            return raised["a"].value
    raise AssertionError("nothing was raised")


def test_after_a_raise_that_was_followed_by_too_much_load_a_cap_is_at_most_doubled() -> None:
    assert first_raise_after_too_much(one_user(at_mb=5), calm_seconds=120) == 10 * MB


def test_quiet_for_four_holds_forgives_it() -> None:
    assert first_raise_after_too_much(one_user(at_mb=5), calm_seconds=600) == 40 * MB


def test_a_raise_fills_the_headroom_and_no_more() -> None:
    step = steps_of(after_a_hold(one_user(other_mb=65)), StepKind.RAISE)["a"]
    assert step.value == pytest.approx(30 * MB, rel=1e-4)
    assert (step.limited_by, step.brokers) == (LimitedBy.HEADROOM, (1,))
    assert step.headroom[1] == pytest.approx(10 * MB)


def test_a_raise_that_is_not_worth_a_write_is_left_out() -> None:
    assert not steps_of(after_a_hold(one_user(other_mb=73.5)), StepKind.RAISE)


def test_what_takes_little_of_the_headroom_is_given_whole() -> None:
    step = steps_of(after_a_hold(one_user(contract_mb=24, at_mb=20)), StepKind.RELEASE)["a"]
    assert (step.value, step.limited_by) == (24 * MB, LimitedBy.CONTRACT)


def test_a_cap_that_does_not_bind_is_released_whatever_its_contract() -> None:
    played = one_user(contract_mb=1000, at_mb=60, other_mb=80)
    want(played, a=5)
    assert steps_of(after_a_hold(played), StepKind.RELEASE)["a"].value == 1000 * MB


def test_a_cap_near_the_highest_rate_of_late_is_not_taken_for_free() -> None:
    played = one_user(contract_mb=1000, at_mb=60)
    want(played, a=50)
    played.run(15)
    want(played, a=5)
    for _ in range(2):
        played.run(15)
    assert played.run(15).steps[played.actors[0].key].kind is not StepKind.RELEASE


def test_a_client_that_uses_a_little_less_than_its_cap_is_not_held_for_ever() -> None:
    played = one_user(contract_mb=100, at_mb=20, other_mb=55)
    want(played, a=15.7)  # less than limits a client, more than leaves it free
    step = steps_of(after_a_hold(played), StepKind.RAISE)["a"]
    assert step.value / MB == pytest.approx(20 + 95 - 55 - 15.7, rel=1e-3)


def test_many_share_the_headroom_by_one_factor() -> None:
    played = simulated_cluster(*[actor(f"u{number}", "L3", 100) for number in range(4)])
    held_at(played, u0=5, u1=10, u2=10, u3=15)
    want(played, u0=100, u1=100, u2=100, u3=100)
    played.other[1, OUT] = 35 * MB
    raised = steps_of(after_a_hold(played), StepKind.RAISE)
    assert {name: step.value / MB for name, step in raised.items()} == pytest.approx(
        {"u0": 7.5, "u1": 15, "u2": 15, "u3": 22.5}, rel=1e-3
    )


def test_a_user_who_binds_on_a_cool_broker_only_is_raised_although_another_is_nearly_full() -> None:
    played = simulated_cluster(actor("a", "L3", 100, leaders={1: 1, 2: 1}), brokers=2)
    held_at(played, a=20)
    key = played.actors[0].key
    played.wants = {(key, 1): 3 * MB, (key, 2): 100 * MB}
    played.other[1, OUT] = 90 * MB
    step = steps_of(after_a_hold(played), StepKind.RAISE)["a"]
    assert step.value == pytest.approx(95 * MB, rel=1e-4)  # what broker 2 has room for


def test_a_nic_that_says_less_than_kafka_moves_leaves_less_headroom() -> None:
    played = one_user(at_mb=60)
    played.lies[1, OUT] = 31 * MB
    assert steps_of(after_a_hold(played), StepKind.RAISE)["a"].value <= 95 * MB


def test_a_broker_without_a_limit_takes_whatever_is_given_back() -> None:
    played = one_user(contract_mb=1000, at_mb=20)
    played.limits[1] = played.limits[1].__class__()
    step = steps_of(after_a_hold(played), StepKind.RELEASE)["a"]
    assert step.value == 1000 * MB
    assert inf not in step.headroom.values()


@pytest.mark.parametrize(("higher", "lower"), [("L1", "L2"), ("L2", "L3"), ("L1", "L3")])
def test_a_lower_tier_waits_until_the_higher_one_has_its_contract(higher: str, lower: str) -> None:
    actors: list[SimulatedClient] = [actor("high", higher, 100), actor("low", lower, 100)]
    played = simulated_cluster(*actors)
    held_at(played, high=10, low=1)
    want(played, high=100, low=100)
    assert steps_of(after_a_hold(played), StepKind.RAISE).keys() == {"high"}


def test_what_still_goes_down_to_a_smaller_contract_is_not_called_released() -> None:
    """Its leaders left when a raise was due: above the new contract there is nothing to restore,
    and it goes down by safe steps.
    """
    played = one_user(contract_mb=99, at_mb=95, other_mb=2)
    for _ in range(4):
        played.run(15)
    played.actors[0] = actor("a", "L3", 33)
    key = played.actors[0].key
    for _ in range(10):
        in_force = played.in_force[key]
        step = played.run(1).steps.get(key)
        assert step is None or step.kind is not StepKind.RELEASE or step.value >= in_force
        assert (
            step is None
            or predicted_mute_seconds(in_force, step.value, played.settings.window)
            <= played.settings.max_mute_seconds
        )
        played.run(29)
    assert played.in_force[key] == 33 * MB
