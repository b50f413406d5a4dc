"""Waiting for a condition within a bound, with an error that shows why it did not come. It starts and stops nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from lab.errors import LabError
from lab.process import Process

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout_seconds: float,
    processes: Sequence[Process] = (),
    poll_seconds: float = 0.05,
) -> T:
    """Poll `condition` until it is truthy and return what it gave.

    `what` completes the sentence "waited N s for ...". Raises `LabError` after `timeout_seconds`, or at once when one of the
    `processes` it depends on has ended; both show the tails of their logs. A condition that raises is not caught.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = condition()
        if answer:
            return answer
        _fail_on_ended(processes, what)
        if time.monotonic() >= deadline:
            raise LabError("\n".join([f"Waited {timeout_seconds:g} s for {what}; it did not come.", *_tails(processes)]))
        time.sleep(poll_seconds)


def _fail_on_ended(processes: Sequence[Process], what: str) -> None:
    for process in processes:
        if not process.is_running():
            raise LabError(f"{process.name} ended with code {process.exit_code} before {what}.\n{process.log_tail()}")


def _tails(processes: Sequence[Process]) -> list[str]:
    return [process.log_tail() for process in processes]
