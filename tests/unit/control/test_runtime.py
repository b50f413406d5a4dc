"""A cause that wakes a loop is never lost, bursts become one pass, and nothing delays brokers or the end."""

import threading
from collections.abc import Callable

import pytest

from tidegate.control.runtime import Cause, Wakeup

LONG_SECONDS = 60.0
SOON_SECONDS = 10.0


class Waiter(threading.Thread):
    """Waits in a thread of its own; `causes` is what it was woken by."""

    def __init__(self, wakeup: Wakeup) -> None:
        super().__init__(daemon=True)
        self._wakeup = wakeup
        self.causes: frozenset[Cause] | None = None
        self.start()

    def run(self) -> None:
        self.causes = self._wakeup.wait(LONG_SECONDS)

    def woken_by(self) -> frozenset[Cause] | None:
        self.join(SOON_SECONDS)
        return self.causes


def test_without_a_cause_the_timer_is_the_cause() -> None:
    assert Wakeup().wait(0.0) == {Cause.TIMER}


def test_a_time_that_is_over_already_does_not_wait() -> None:
    assert Wakeup().wait(-5.0) == {Cause.TIMER}


@pytest.mark.parametrize("cause", [Cause.OBJECTS, Cause.BROKERS])
def test_a_cause_before_the_wait_is_found_once(cause: Cause) -> None:
    wakeup = Wakeup(quiet_seconds=0.0)
    wakeup.poke(cause)
    assert (wakeup.wait(LONG_SECONDS), wakeup.wait(0.0)) == ({cause}, {Cause.TIMER})


def test_a_poke_wakes_the_waiting_loop() -> None:
    wakeup = Wakeup(quiet_seconds=0.0)
    waiter = Waiter(wakeup)
    wakeup.poke(Cause.BROKERS)
    assert waiter.woken_by() == {Cause.BROKERS}


@pytest.mark.parametrize("cause", [Cause.BROKERS, Cause.LEASE, Cause.STOP])
def test_brokers_a_lease_and_the_end_do_not_wait_for_a_burst_of_objects(cause: Cause) -> None:
    wakeup = Wakeup(quiet_seconds=LONG_SECONDS, longest_burst_seconds=LONG_SECONDS)
    wakeup.poke(Cause.OBJECTS)
    waiter = Waiter(wakeup)
    wakeup.poke(cause)
    assert waiter.woken_by() == {Cause.OBJECTS, cause}


def test_a_burst_becomes_one_pass() -> None:
    wakeup = Wakeup(quiet_seconds=0.05, longest_burst_seconds=LONG_SECONDS)
    waiter = Waiter(wakeup)
    for _ in range(1000):
        wakeup.poke(Cause.OBJECTS)
    assert (waiter.woken_by(), wakeup.wait(0.0)) == ({Cause.OBJECTS}, {Cause.TIMER})


def test_a_burst_that_never_ends_delays_a_pass_for_a_bounded_time_only() -> None:
    wakeup = Wakeup(quiet_seconds=LONG_SECONDS, longest_burst_seconds=0.05)
    wakeup.poke(Cause.OBJECTS)
    waiter = Waiter(wakeup)
    _until(lambda: not waiter.is_alive(), do=lambda: wakeup.poke(Cause.OBJECTS))
    assert waiter.causes == {Cause.OBJECTS}


def test_the_end_stays_the_end() -> None:
    wakeup = Wakeup()
    assert not wakeup.stopping
    wakeup.poke(Cause.STOP)
    assert [wakeup.wait(LONG_SECONDS) for _ in range(2)] == [{Cause.STOP}, {Cause.STOP}]
    assert wakeup.stopping


def _until(condition: Callable[[], bool], *, do: Callable[[], None]) -> None:
    pause = threading.Event()
    for _ in range(int(SOON_SECONDS / 0.005)):
        if condition():
            return
        do()
        pause.wait(0.005)
    raise AssertionError("it never came")
