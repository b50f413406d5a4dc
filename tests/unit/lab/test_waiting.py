"""Waiting is bounded, and its error shows why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import process
from lab.errors import LabError
from lab.process import wait_until
from tests.goldens.golden import numbers


def test_what_the_condition_gave_is_returned() -> None:
    answers = iter([None, "", "there"])
    assert wait_until(lambda: next(answers), "it", timeout_seconds=5, poll_seconds=0) == "there"


def test_a_condition_that_never_comes_is_an_error_that_names_it(golden: Callable[[str], None]) -> None:
    with pytest.raises(LabError) as failed:
        wait_until(lambda: False, "the moon", timeout_seconds=0.01, poll_seconds=0)
    assert 0.01 in numbers(str(failed.value))
    assert "the moon" in str(failed.value)
    golden(str(failed.value))


def test_a_process_that_ended_is_reported_at_once_with_its_log(tmp_path: Path, golden: Callable[[str], None]) -> None:
    with process.start("broker", ["sh", "-c", "echo no port left; exit 1"], log_path=tmp_path / "log") as broker:
        broker.wait(5)
        with pytest.raises(LabError) as failed:
            wait_until(lambda: False, "its port", timeout_seconds=60, processes=[broker])
    assert 1 in numbers(str(failed.value))
    for named in ("broker", "its port", "no port left"):
        assert named in str(failed.value)
    golden(str(failed.value).replace(str(tmp_path), "FOLDER"))
