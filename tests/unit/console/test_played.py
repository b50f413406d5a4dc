"""A load that is played for the console: its clock, and what pages are given."""

from __future__ import annotations

from tests.doubles.simulated_console import EPOCH, KEY, moments
from tests.unit.simulation.loads import evening
from tidegate.commands.played_load import PlayedSource
from tidegate.console.server import Console
from tidegate_logic.throttle.nic_status import Pressure


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def played(speed: int = 20) -> tuple[PlayedSource, Clock]:
    clock = Clock()
    passes = moments(evening(mode="Observe"))
    return PlayedSource(passes, EPOCH, speed, monotonic=clock), clock


def test_its_clock_is_faster_stands_and_goes_on_at_another_speed() -> None:
    source, clock = played()
    assert source.at_seconds() == 0.0
    clock.now += 15
    assert (source.at_seconds(), source.now_seconds()) == (300.0, EPOCH + 300)
    source.pause()
    clock.now += 100
    assert (source.at_seconds(), source.is_paused) == (300.0, True)
    source.go(5)
    clock.now += 2
    assert (source.at_seconds(), source.is_paused) == (310.0, False)


def test_it_begins_with_its_first_viewer() -> None:
    clock = Clock()
    passes = moments(evening(mode="Observe"))
    source = PlayedSource(passes, EPOCH, 20, monotonic=clock, waits_for_viewer=True)
    clock.now += 100
    assert (source.at_seconds(), source.is_paused) == (0.0, True)
    source.begin()
    clock.now += 1
    source.begin()  # of a second viewer
    assert (source.at_seconds(), source.is_paused) == (20.0, False)


def test_its_statuses_are_of_after_the_writes_of_a_pass() -> None:
    source, _ = played()
    assert any(one.decision.writes for one in source.passes)
    for one in source.passes:
        conditions = one.objects.policies[0]["status"]["conditions"]
        reasons = {condition["reason"] for condition in conditions}
        assert "Conflict" not in reasons, one.at_seconds


def test_a_speed_of_ones_own_is_among_those_to_choose() -> None:
    assert played(7)[0].speeds == (1, 5, 7, 20, 60)
    assert played(60)[0].speeds == (1, 5, 20, 60)


def test_at_its_end_it_stands_and_begins_again_when_it_is_asked_to() -> None:
    source, clock = played(60)
    clock.now += 10_000
    assert source.is_over
    assert source.at_seconds() == source.passes[-1].at_seconds
    assert source.objects().heard_at_seconds == source.now_seconds()
    source.go()
    assert (source.at_seconds(), source.is_over) == (0.0, False)


def test_pages_get_what_the_operator_would_report_of_an_enforcing_policy() -> None:
    source, clock = played()
    console = Console(source, player=source)
    console.note()
    before = source.changes()
    clock.now += 450 / 20
    console.note()
    assert source.changes() != before
    now = console.policy(source.objects(), KEY)
    assert now is not None
    (policy,) = source.objects().policies
    assert policy["spec"]["mode"] == "Enforce"
    levels = {one["level"]: one["state"] for one in policy["status"]["levels"]}
    assert levels["L3"] in ("Stepping", "Throttled")
    assert levels["L0"] == "Contract"
    readings = source.measured(KEY).readings
    assert readings is not None
    over = [one for one in source.passes if one.at_seconds < 450 and one.decision.watched]
    assert any(
        broker.pressure is Pressure.OVER for one in over for broker in one.decision.watched or ()
    )
