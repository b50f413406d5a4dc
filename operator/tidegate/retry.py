"""Repeat a call that may succeed the next time; the one user of tenacity."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

Result = TypeVar("Result")


def retry(
    call: Callable[[], Result],
    *,
    attempts: int,
    is_worth_repeating: Callable[[BaseException], bool],
    pause_seconds: Callable[[int, BaseException], float] = lambda *_: 0.0,
    until_monotonic_seconds: float = math.inf,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """The result of the first attempt that succeeds; raises the error of the last one otherwise.

    `pause_seconds` gives the pause after the attempt of that number, from 1, and its error. A pause
    that would last to `until_monotonic_seconds` or beyond is not begun.
    """

    def pause(state: RetryCallState) -> float:
        return pause_seconds(state.attempt_number, _error(state))

    def is_too_late(state: RetryCallState) -> bool:
        return monotonic() + state.upcoming_sleep >= until_monotonic_seconds

    retrying = Retrying(
        retry=retry_if_exception(is_worth_repeating),
        wait=pause,
        stop=lambda state: stop_after_attempt(attempts)(state) or is_too_late(state),
        sleep=lambda seconds: sleep(seconds) if seconds > 0 else None,
        reraise=True,
    )
    return retrying(call)


def _error(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    if error is None:
        raise ValueError("there is no pause after an attempt that succeeded")
    return error
