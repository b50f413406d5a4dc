"""Repeating a call: as often as is allowed, with the pauses that are asked for, and never beyond
the deadline.
"""

from collections.abc import Callable

import pytest

from tidegate.retry import retry


def failing(times: int) -> Callable[[], str]:
    errors = iter([OSError(str(number + 1)) for number in range(times)])

    def call() -> str:
        for error in errors:
            raise error
        return "done"

    return call


def is_os_error(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_the_first_success_is_the_result_and_pauses_grow_by_attempt() -> None:
    slept: list[float] = []
    result = retry(
        failing(2),
        attempts=3,
        is_worth_repeating=is_os_error,
        pause_seconds=lambda attempt, _: attempt * 0.5,
        sleep=slept.append,
    )
    assert (result, slept) == ("done", [0.5, 1.0])


def test_the_error_of_the_last_attempt_is_raised_as_it_is() -> None:
    with pytest.raises(OSError, match="3"):
        retry(failing(9), attempts=3, is_worth_repeating=is_os_error)


def test_an_error_that_will_not_go_away_is_raised_at_once() -> None:
    slept: list[float] = []
    with pytest.raises(OSError, match="1"):
        retry(
            failing(1),
            attempts=3,
            is_worth_repeating=lambda error: isinstance(error, ValueError),
            sleep=slept.append,
        )
    assert slept == []


@pytest.mark.parametrize(("pause", "slept_seconds"), [(1.9, [1.9]), (2.0, [])])
def test_no_pause_is_begun_that_would_last_to_the_deadline(
    pause: float, slept_seconds: list[float]
) -> None:
    now, slept = [10.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with pytest.raises(OSError, match=str(len(slept_seconds) + 1)):
        retry(
            failing(9),
            attempts=5,
            is_worth_repeating=is_os_error,
            pause_seconds=lambda *_: pause,
            until_monotonic_seconds=12.0,
            monotonic=lambda: now[0],
            sleep=sleep,
        )
    assert slept == slept_seconds
