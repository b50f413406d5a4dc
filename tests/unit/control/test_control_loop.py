"""A policy's thread goes on whatever a pass raises, and passes when brokers or leaders move, without a second event."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lab.process import wait_until
from tests.unit.control.stage import Stage
from tidegate.control.manager import ControlLoop
from tidegate.control.runtime import Cause, Wakeup

FAR_SECONDS = 600.0
KEY = "streaming/orders"
NAMESPACE, NAME = KEY.split("/")


class Passes:
    """A controller that counts its passes. `errors` are raised by the next ones, `next_in_seconds` is what each returns."""

    def __init__(self) -> None:
        self.count = 0
        self.broken: list[Exception] = []
        self.errors: list[Exception] = []
        self.next_in_seconds = FAR_SECONDS
        self.closed = False
        self.looked = threading.Event()
        self.moved = False

    def pass_once(self) -> float:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.next_in_seconds

    def broke(self, error: Exception) -> float:
        self.broken.append(error)
        return 0.0

    def leaders_moved(self) -> bool:
        self.looked.set()
        return self.moved

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def loop(stage: Stage, passes: Passes) -> Iterator[ControlLoop]:
    controller: Any = passes
    loop = ControlLoop(KEY, stage.world, controller, Wakeup(quiet_seconds=0.0))
    yield loop
    loop.ask_to_stop()
    assert loop.wait(10.0)


def passed(passes: Passes, times: int) -> None:
    wait_until(lambda: passes.count >= times, f"pass {times}", timeout_seconds=10, poll_seconds=0.005)


def wakes(stage: Stage, cause: Cause) -> float:
    return (
        stage.telemetry.registry.get_sample_value(
            "tidegate_wakes_total", {"policy_namespace": NAMESPACE, "policy": NAME, "cause": cause.value}
        )
        or 0.0
    )


def test_the_first_pass_waits_for_nothing(loop: ControlLoop, passes: Passes) -> None:
    loop.start()
    passed(passes, 1)
    assert passes.count == 1


@pytest.mark.parametrize("cause", [Cause.OBJECTS, Cause.BROKERS])
def test_an_event_brings_a_pass_long_before_it_is_due(stage: Stage, loop: ControlLoop, passes: Passes, cause: Cause) -> None:
    loop.start()
    passed(passes, 1)
    loop.wake(cause)
    passed(passes, 2)
    assert wakes(stage, cause) == 1


def test_a_pass_that_is_due_comes_by_itself(stage: Stage, loop: ControlLoop, passes: Passes) -> None:
    passes.next_in_seconds = 0.0
    loop.start()
    passed(passes, 3)
    assert wakes(stage, Cause.TIMER) >= 2


def test_whatever_a_pass_raises_is_reported_and_the_next_one_comes(loop: ControlLoop, passes: Passes) -> None:
    passes.errors = [ValueError("a bug"), KeyError("another")]
    loop.start()
    passed(passes, 3)
    assert [type(error) for error in passes.broken] == [ValueError, KeyError]


def test_leaders_that_move_after_a_broker_event_bring_a_pass_without_a_further_event(loop: ControlLoop, passes: Passes) -> None:
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.BROKERS)
    passed(passes, 2)
    assert passes.looked.wait(10.0)
    assert passes.count == 2, "nothing had moved yet"
    passes.moved = True
    passed(passes, 3)


def test_leaders_are_not_asked_for_where_no_broker_came_or_went(loop: ControlLoop, passes: Passes) -> None:
    passes.moved = True
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.OBJECTS)
    passed(passes, 2)
    assert not passes.looked.is_set()


def test_a_loop_that_has_to_stop_closes_its_connection_and_is_not_missed(stage: Stage, loop: ControlLoop, passes: Passes) -> None:
    loop.start()
    passed(passes, 1)
    loop.ask_to_stop()
    assert loop.wait(10.0)
    stage.now += 10_000
    assert (passes.closed, stage.world.vital_signs.failure_text()) == (True, None)


def test_a_loop_that_is_stuck_in_a_pass_is_missed(stage: Stage, passes: Passes) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    class Stuck(Passes):
        def pass_once(self) -> float:
            stuck.set()
            go_on.wait(10.0)
            return FAR_SECONDS

    controller: Any = Stuck()
    loop = ControlLoop(KEY, stage.world, controller, Wakeup())
    loop.start()
    assert stuck.wait(10.0)
    stage.now += 121
    silent = stage.world.vital_signs.silent_seconds()
    loop.ask_to_stop()
    go_on.set()
    assert loop.wait(10.0)
    assert silent == {f"policy {KEY}": 121}
