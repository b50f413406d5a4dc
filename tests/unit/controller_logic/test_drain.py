"""Drain-then-set: two writes where it is safe, and the ladder everywhere else."""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import QuotaWindow, Speed
from tidegate_logic.throttle.decision import StepKind, ThrottleStep
from tidegate_logic.throttle.input import ThrottleSettings


def flat_out(
    scrape_seconds: float = 1.0, floor_mb: float = 1, **settings: object
) -> SimulatedCluster:
    """One user that sends 50 MB/s of a contract of 100, beside 100 MB/s that cannot be cut: its
    target is its floor.
    """
    made = simulated_cluster(actor("a", "L3", 100, floor_mb), **({"speed": Speed.DRAIN} | settings))
    want(made, a=50)
    made.other[1, OUT] = 100 * MB
    made.scrape_seconds = scrape_seconds
    return made


def cut(played: SimulatedCluster) -> ThrottleStep:
    """The first cut, after three readings."""
    for _ in range(3):
        found = steps_of(played.run(played.scrape_seconds), StepKind.CUT)
        if found:
            return found["a"]
    raise AssertionError("nothing was cut")


def test_the_first_write_silences_everybody_for_the_longest_safe_time() -> None:
    step = cut(flat_out())
    assert step.draining
    assert step.value == pytest.approx(
        1.05 * 50 * MB / (1 + 17.22 / 11), rel=0.01
    )  # (11 + 1 + 1 + 2.5) / 0.9 = 17.2 s


def test_the_second_write_follows_once_fresh_readings_show_empty_windows() -> None:
    played = flat_out()
    first = cut(played)
    want(played, a=0.1)  # muted
    values = []
    for _ in range(14):
        played.run(1)
        values.append(played.in_force[first.key])
    assert values[-1] == 1 * MB
    assert len(set(values)) <= 2


def test_no_other_cut_of_the_direction_begins_meanwhile() -> None:
    played = flat_out()
    played.actors.append(actor("b", "L2", 100))
    played.in_force[played.actors[1].key] = 100 * MB
    cut(played)
    want(played, b=90)
    cuts = [steps_of(played.run(1), StepKind.CUT) for _ in range(5)]
    assert not any(cuts)


def test_without_fresh_readings_it_gives_up_and_the_ladder_goes_on() -> None:
    played = flat_out()
    first = cut(played)
    for _ in range(60):
        played.run(1)
    assert played.memory.drains == {}
    assert played.in_force[first.key] < first.value


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"speed": Speed.LADDER}, id="not asked for"),
        pytest.param({"scrape_seconds": 15.0}, id="a scrape of 15 s"),
        pytest.param({"floor_mb": 15}, id="a way of less than five times"),
        pytest.param({"window": QuotaWindow(11, 5)}, id="a window without measurement"),
    ],
)
def test_elsewhere_the_ladder_goes_on(changes: dict[str, object]) -> None:
    assert not cut(flat_out(**changes)).draining  # type: ignore[arg-type]


def test_who_is_throttled_already_is_not_drained() -> None:
    played = flat_out()
    want(played, a=120)
    assert not cut(played).draining


def test_brokers_too_unequal_to_be_empty_at_once_take_the_ladder() -> None:
    played = flat_out()
    played.limits[2] = played.limits[1]
    played.actors[0] = replace(played.actors[0], leaders={1: 1, 2: 1})
    want(played, a=50)
    played.wants[played.actors[0].key, 2] = 15 * MB
    assert not cut(played).draining


def test_a_lost_memory_leaves_the_ladder() -> None:
    played = flat_out()
    first = cut(played)
    played.memory = played.memory.__class__()
    values = []
    for _ in range(120):
        assert not any(step.draining for step in played.run(1).steps.values())
        values.append(played.in_force[first.key])
    assert values[-1] <= first.value / 8


@pytest.mark.parametrize(
    ("speed", "cut_at_once"),
    [(Speed.DRAIN, {"one", "two", "three"}), (Speed.LADDER, {"two", "three"})],
)
def test_l1_waits_for_no_tier_that_drains(speed: Speed, cut_at_once: set[str]) -> None:
    actors = (
        actor("zero", "L0", 60),
        actor("one", "L1", 60, 10),
        actor("two", "L2", 60, 5),
        actor("three", "L3", 60, 1),
    )
    played = simulated_cluster(*actors, limit_mb=50, speed=speed)
    played.scrape_seconds = 1.0
    want(played, zero=33, one=25, two=25, three=25)
    assert steps_of(played.run(1), StepKind.CUT).keys() == cut_at_once


def test_the_next_round_waits_for_no_dwell_after_the_end_of_a_drain() -> None:
    actors = (actor("zero", "L0", 60), actor("one", "L1", 60, 10), actor("three", "L3", 60, 1))
    played = simulated_cluster(*actors, limit_mb=50, speed=Speed.DRAIN)
    played.scrape_seconds = 1.0
    want(played, zero=45, one=25, three=25)
    cuts: dict[str, list[float]] = {"one": [], "three": []}
    for _ in range(45):
        found = steps_of(played.run(1), StepKind.CUT)
        for name in found:
            cuts[name].append(played.now_seconds)
        want(
            played, three=0.1 if played.now_seconds - cuts["three"][0] < 16 else 25
        )  # muted, and awake again
    first, second = cuts["three"]
    assert 5 < second - first < 20
    assert played.in_force[actors[2].key] == 1 * MB
    assert cuts["one"][1] - cuts["one"][0] == pytest.approx(ThrottleSettings().dwell_seconds, abs=1)
