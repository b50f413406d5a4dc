"""Writes of the throttle are spread over one sawtooth period of its clients, never further."""

from itertools import pairwise

import pytest

from tidegate_logic.model import QuotaWindow
from tidegate_logic.quotas.budget import WritePace, paced

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


@pytest.mark.parametrize(
    ("count", "last", "most"),
    [(1, 0, 1), (3, 2, 1), (12, 11, 1), (13, 11.1, 1), (30, 11.6, 2), (1000, 12, 43)],
)
def test_few_go_a_second_apart_and_many_fill_a_sawtooth_period(
    count: int, last: float, most: int
) -> None:
    gone = played(count)
    assert sum(went for _, went in gone) == count
    assert max(went for _, went in gone) <= most
    assert gone[-1][0] == pytest.approx(last, abs=0.6)


def test_many_go_evenly() -> None:
    gone = played(30)
    assert max(later - earlier for (earlier, _), (later, _) in pairwise(gone)) <= 0.8
    assert {went for _, went in gone} == {1, 2}


def test_a_slow_pass_takes_those_along_who_became_due_meanwhile() -> None:
    first = paced(range(120), None, WINDOW, now_seconds=1000.0)
    assert paced(range(119), first.pace, WINDOW, now_seconds=1001.55).now == 15


def test_a_shorter_window_is_a_shorter_spread() -> None:
    assert played(30, QuotaWindow(2, 1))[-1][0] == pytest.approx(3, abs=0.5)


def test_no_one_goes_before_the_time() -> None:
    turn = paced([1, 2], WritePace(1.0, 1001.0, 2), WINDOW, now_seconds=1000.25)
    assert (turn.now, turn.due_in_seconds) == (0, 0.75)


def test_time_in_which_no_one_waited_is_no_credit() -> None:
    first = paced([1], None, WINDOW, now_seconds=1000.0)
    assert paced(range(5), first.pace, WINDOW, now_seconds=1008.0).now == 1


def test_those_who_come_soon_after_wait_for_the_next_moment() -> None:
    first = paced([1], None, WINDOW, now_seconds=1000.0)
    assert paced([2], first.pace, WINDOW, now_seconds=1000.25).now == 0


def test_more_who_come_meanwhile_make_the_gaps_smaller_not_the_spread_longer() -> None:
    first = paced(range(30), None, WINDOW, now_seconds=1000.0)
    turn = paced(range(100), first.pace, WINDOW, now_seconds=1001.0)
    assert turn.pace is not None
    assert turn.pace.gap_seconds == pytest.approx(0.12)


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert paced([1, 2], WritePace(1.0, 5000.0, 2), WINDOW, now_seconds=1000.0).now == 1
