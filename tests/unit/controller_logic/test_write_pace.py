"""Writes of the throttle are spread over one tooth of its clients, never further."""

from itertools import pairwise

import pytest

from controller_logic.model import QuotaWindow
from controller_logic.write_pace import WritePace, paced

WINDOW = QuotaWindow(11, 1)


def played(count: int, window: QuotaWindow = WINDOW) -> list[tuple[float, int]]:
    """When how many went, with everybody back as soon as the next slot is due."""
    waiting, now, pace, gone = list(range(count)), 1000.0, None, []
    while waiting:
        turn = paced(waiting, pace, window, now_seconds=now)
        gone.append((now - 1000.0, turn.now))
        waiting, pace = waiting[turn.now :], turn.pace
        now += turn.due_in_seconds or 0.0
    return gone


@pytest.mark.parametrize(("count", "last", "most"), [(1, 0, 1), (3, 2, 1), (12, 11, 1), (13, 11.1, 2), (30, 10.8, 3), (1000, 11.1, 84)])
def test_few_go_a_second_apart_and_many_fill_a_tooth(count: int, last: float, most: int) -> None:
    gone = played(count)
    assert sum(went for _, went in gone) == count
    assert max(went for _, went in gone) == most
    assert gone[-1][0] == pytest.approx(last, abs=0.1)


def test_the_slots_of_many_are_equally_far_apart() -> None:
    times = [at for at, _ in played(30)]
    assert {round(later - earlier, 6) for earlier, later in pairwise(times)} == {1.2}


def test_a_shorter_window_is_a_shorter_spread() -> None:
    assert played(30, QuotaWindow(2, 1))[-1][0] == pytest.approx(2)


def test_nobody_goes_before_the_slot() -> None:
    turn = paced([1, 2], WritePace(1, 1.0, 1001.0), WINDOW, now_seconds=1000.25)
    assert (turn.now, turn.due_in_seconds) == (0, 0.75)


def test_more_who_come_meanwhile_make_the_slots_fuller_not_the_spread_longer() -> None:
    first = paced(list(range(30)), None, WINDOW, now_seconds=1000.0)
    turn = paced(list(range(100)), first.pace, WINDOW, now_seconds=1001.2)
    assert turn.now == 9


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert paced([1, 2], WritePace(1, 1.0, 5000.0), WINDOW, now_seconds=1000.0).now == 1
