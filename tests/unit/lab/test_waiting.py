"""Waiting is bounded, and its error shows why."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import process
from lab.errors import LabError
from lab.process import wait_until


def test_what_the_condition_gave_is_returned() -> None:
    answers = iter([None, "", "there"])
    assert wait_until(lambda: next(answers), "it", timeout_seconds=5, poll_seconds=0) == "there"


def test_a_condition_that_never_comes_is_an_error_that_names_it() -> None:
    with pytest.raises(LabError, match=r"Waited 0\.01 s for the moon; it did not come"):
        wait_until(lambda: False, "the moon", timeout_seconds=0.01, poll_seconds=0)


def test_a_process_that_ended_is_reported_at_once_with_its_log(tmp_path: Path) -> None:
    with process.start("broker", ["sh", "-c", "echo no port left; exit 1"], log_path=tmp_path / "log") as broker:
        broker.wait(5)
        with pytest.raises(LabError, match=r"broker ended with code 1 before its port(.|\n)*no port left"):
            wait_until(lambda: False, "its port", timeout_seconds=60, processes=[broker])
