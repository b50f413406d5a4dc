"""What threads share: causes that wake a loop, the wait after a failed pass, and signs of life."""

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.process import patience, wait_until
from tests.unit.hands import Hands
from tidegate.control.runtime import Backoff, Cause, PassAllowance, VitalSigns, Wakeup

# --- waking a loop --------------------------------------------------------------------------------
# A cause that wakes a loop is never lost, bursts become one pass, and nothing delays brokers or the
# end.


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
        self.join(patience(SOON_SECONDS))
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
    wait_until(lambda: condition() or do(), "it", timeout_seconds=SOON_SECONDS, poll_seconds=0.005)


# --- passes for changed objects -------------------------------------------------------------------
# Some wait for nothing, a flood brings one a distance, and no change waits longer than a distance.


def test_some_passes_wait_for_nothing_and_come_back_one_a_distance() -> None:
    allowance = PassAllowance(distance_seconds=1.0, at_once=3)
    for _ in range(3):
        assert allowance.wait_seconds(100.0) == 0.0
        allowance.take(100.0)
    assert allowance.wait_seconds(100.0) == 1.0
    assert allowance.wait_seconds(100.75) == 0.25
    assert allowance.wait_seconds(102.0) == 0.0
    allowance.take(102.0)
    allowance.take(102.0)
    assert allowance.wait_seconds(102.0) == 1.0


@given(
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
    free=st.lists(st.booleans(), min_size=60, max_size=60),
    at_once=st.integers(1, 10),
    distance_seconds=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_no_change_waits_longer_than_a_distance_and_passes_stay_bounded(
    gaps: list[float], free: list[bool], at_once: int, distance_seconds: float
) -> None:
    allowance = PassAllowance(distance_seconds=distance_seconds, at_once=at_once)
    now, waited = 0.0, []
    for gap, comes_along in zip(gaps, free, strict=False):
        now += gap
        if comes_along:  # with a reading, a broker event: it does not wait
            allowance.take(now)
            continue
        wait_seconds = allowance.wait_seconds(now)
        assert 0.0 <= wait_seconds <= distance_seconds + 1e-9
        now += wait_seconds
        allowance.take(now)
        waited.append(now)
    for first, begun in enumerate(waited):
        for last in range(first, len(waited)):
            most = at_once + (waited[last] - begun) / distance_seconds
            assert last - first + 1 <= most + 1e-6


# --- the wait after a failed pass -----------------------------------------------------------------
# The wait after a failed pass: longer each time, never too long, and never in step with others.


def test_each_failure_doubles_the_wait_up_to_the_most() -> None:
    backoff = Backoff(first_seconds=1.0, most_seconds=30.0, jitter=lambda: 1.0)
    assert [backoff.next_seconds() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize(("drawn", "waited_seconds"), [(0.0, 4.0), (0.5, 6.0), (1.0, 8.0)])
def test_jitter_takes_away_up_to_half(drawn: float, waited_seconds: float) -> None:
    assert Backoff(first_seconds=8.0, jitter=lambda: drawn).next_seconds() == waited_seconds


def test_a_pass_that_went_well_begins_anew() -> None:
    backoff = Backoff(jitter=lambda: 1.0)
    for _ in range(5):
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() == 1.0


def test_days_of_failures_do_not_overflow() -> None:
    backoff = Backoff(most_seconds=30.0, jitter=lambda: 1.0)
    assert {backoff.next_seconds() for _ in range(5000)} >= {30.0}
    assert backoff.next_seconds() == 30.0


# --- signs of life --------------------------------------------------------------------------------
# A loop that is dead or stuck is named; one that waits or has ended is not.


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def signs(clock: Hands) -> VitalSigns:
    return VitalSigns(clock, 120.0)


def test_nothing_is_wrong_where_nothing_runs(signs: VitalSigns) -> None:
    assert signs.failure_text() is None


@pytest.mark.parametrize(
    ("silent_seconds", "complains"), [(119.0, False), (120.0, False), (121.0, True)]
)
def test_silence_is_a_complaint_only_beyond_the_limit(
    signs: VitalSigns, clock: Hands, silent_seconds: float, complains: bool
) -> None:
    signs.beat("policy streaming/orders")
    clock.now += silent_seconds
    assert (signs.failure_text() is not None) is complains


def test_a_complaint_names_every_silent_loop_and_how_long_it_has_been_silent(
    signs: VitalSigns, clock: Hands, golden: Callable[[str], None]
) -> None:
    signs.beat("manager")
    clock.now += 30
    signs.beat("leases")
    clock.now += 130
    signs.beat("policy streaming/orders")
    assert signs.silent_seconds() == {"leases": 130, "manager": 160}
    golden(signs.failure_text() or "")


def test_a_sign_of_life_ends_a_complaint(signs: VitalSigns, clock: Hands) -> None:
    signs.beat("manager")
    clock.now += 500
    signs.beat("manager")
    assert signs.failure_text() is None


def test_a_loop_that_ended_as_it_should_is_not_missed(signs: VitalSigns, clock: Hands) -> None:
    signs.beat("policy streaming/orders")
    signs.forget("policy streaming/orders")
    clock.now += 500
    assert signs.failure_text() is None
